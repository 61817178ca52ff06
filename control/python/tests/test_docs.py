"""The page for users names every variable that the package reads, with its default, and no others."""

import os
import re
import unittest

import srv6d
from srv6d.environment import Settings

TOP = os.path.join(os.path.dirname(__file__), "..", "..", "..")
PAGE = os.path.join(TOP, "docs", "pytorch.md")
PACKAGE = os.path.dirname(srv6d.__file__)


def text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


@unittest.skipUnless(os.path.exists(PAGE), "the package is not in its repository")
class DocsTest(unittest.TestCase):
    def rows(self) -> dict[str, str]:
        section = text(PAGE).split("\n## Variables\n")[1].split("\n## ")[0]
        return dict(re.findall(r"^\| `((?:TORCH_)?SRV6D\w*)` \| ([^|]*) \|", section, re.MULTILINE))

    def read(self) -> set[str]:
        sources = [text(os.path.join(PACKAGE, name)) for name in os.listdir(PACKAGE) if name.endswith(".py")]
        return set(re.findall(r'"((?:TORCH_)?SRV6D\w*)"', "\n".join(sources)))

    def test_every_variable_has_its_row(self) -> None:
        self.assertEqual(set(self.rows()), self.read())

    def test_defaults_are_those_of_the_package(self) -> None:
        stated = {name: cell.strip("` ") for name, cell in self.rows().items()}
        stated = {name: cell for name, cell in stated.items() if cell not in ("see below", "all", "those of the interface")}
        self.assertEqual(Settings.from_environ({name: cell for name, cell in stated.items() if cell != "none"}),
                         Settings(socket="/run/srv6d/srv6d.sock"))  # fmt: skip

    def test_packaging_sets_only_variables_that_are_read(self) -> None:
        known = self.read() | {"SRV6D_NODES", "SRV6D_PARTITIONS"}
        for folder in ("slurm", "kubernetes"):
            path = os.path.join(TOP, "packaging", folder)
            for name in os.listdir(path):
                used = set(re.findall(r"\b(?:TORCH_)?SRV6D_[A-Z_]+\b|\bTORCH_SRV6D\b", text(os.path.join(path, name))))
                self.assertLessEqual(used, known, name)

    def test_the_package_has_the_version_of_the_daemon(self) -> None:
        version = re.search(r'^version = "(.*)"$', text(os.path.join(TOP, "Cargo.toml")), re.MULTILINE)
        project = re.search(r'^version = "(.*)"$', text(os.path.join(TOP, "control/python/pyproject.toml")), re.MULTILINE)
        assert version is not None and project is not None
        self.assertEqual((srv6d.__version__, project[1]), (version[1], version[1]))


if __name__ == "__main__":
    unittest.main()
