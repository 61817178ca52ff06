"""Runs a program as if its process groups were made by `srv6d.torch`: ``torchrun -m srv6d train.py --epochs 3``."""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Runs the script that the command line names, with what follows as its arguments."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit("usage: python3 -m srv6d SCRIPT [ARGUMENT]...   (torchrun -m srv6d SCRIPT [ARGUMENT]...)")
    from . import torch as wrapper

    wrapper.install()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
