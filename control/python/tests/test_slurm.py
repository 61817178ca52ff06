"""Prolog and epilog of Slurm, with programs in the place of `srv6d`, `scontrol` and `logger` that write down their arguments."""

import json
import os
import subprocess
import tempfile
import unittest

SCRIPTS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "packaging", "slurm")

SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames node[1-3]" ] && printf 'node1\\nnode2\\nnode3\\n' && exit
[ "$3" = node1 ] && echo node1 && exit
[ "$3" = strange ] && echo 'node1;reboot' && echo node2 && exit
exit 1
"""

SRV6D = """#!/bin/sh
echo "$*" >> "$DIRECTORY/asked"
[ "$2" = start ] && cat "$3" > "$DIRECTORY/job.json"
[ "$2" = "$FAILS" ] || exit 0
echo "error: $FAILS fails" >&2
exit 1
"""

LOGGER = """#!/bin/sh
echo "$*" >> "$DIRECTORY/log"
"""


@unittest.skipUnless(os.path.isdir(SCRIPTS), "the package is not in its repository")
class SlurmTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="srv6d-py-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        for name, text in (("scontrol", SCONTROL), ("srv6d", SRV6D), ("logger", LOGGER)):
            with open(os.path.join(self.directory, name), "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(file.name, 0o755)
        nodes = os.path.join(self.directory, "nodes")
        with open(nodes, "w", encoding="ascii") as file:
            file.write("# fabric\nnode1 fcbb:0:800:1::2 10.200.1.2\nnode2 fcbb:0:800:2::/64\nnode3 fcbb:0:800:3::2\n")
        self.environ = {
            "PATH": f"{self.directory}:/usr/bin:/bin", "DIRECTORY": self.directory, "SRV6D_NODES": nodes, "FAILS": "",
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "node[1-3]", "SLURMD_NODENAME": "node2", "SLURM_JOB_PARTITION": "gpu",
        }  # fmt: skip

    def run_script(self, script: str, **environ: str) -> None:
        path = os.path.join(SCRIPTS, script)
        done = subprocess.run([path], env={**self.environ, **environ}, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), "a script that fails drains its node")

    def lines(self, name: str) -> list[str]:
        path = os.path.join(self.directory, name)
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_the_prolog_starts_the_job_and_waits(self) -> None:
        self.run_script("prolog")
        start, wait = self.lines("asked")
        self.assertRegex(start, "^job start /[^ ]* --host node2$")
        self.assertEqual(wait, "job wait slurm-4711 --timeout 60s")
        job = json.loads("\n".join(self.lines("job.json")))
        self.assertEqual(job, {
            "id": "slurm-4711", "pattern": "all-to-all",
            "members": [
                {"rank": 0, "host": "node1", "addresses": ["fcbb:0:800:1::2", "10.200.1.2"]},
                {"rank": 1, "host": "node2", "addresses": ["fcbb:0:800:2::/64"]},
                {"rank": 2, "host": "node3", "addresses": ["fcbb:0:800:3::2"]},
            ],
        })  # fmt: skip
        self.assertEqual(self.lines("log"), [])

    def test_what_prevents_the_job_is_logged_and_the_node_stays(self) -> None:
        os.truncate(self.environ["SRV6D_NODES"], 0)
        for environ, says in (
            ({"FAILS": ""}, "node1 has no line in"),
            ({"SRV6D_NODES": "/nowhere"}, "/nowhere is missing"),
            ({"SLURM_JOB_NODELIST": ""}, "does not say SLURM_JOB_NODELIST"),
            ({"SLURM_JOB_NODELIST": "unknown"}, "scontrol show hostnames unknown fails"),
            ({"SLURM_JOB_NODELIST": "strange"}, "letters that no node has"),
            ({"SLURM_JOB_ID": "1;reboot"}, "SLURM_JOB_ID is not a number"),
        ):
            with self.subTest(says=says):
                self.run_script("prolog", **environ)
                self.assertIn(says, self.lines("log")[-1])
        self.assertEqual(self.lines("asked"), [])

    def test_a_daemon_that_refuses_is_logged(self) -> None:
        self.run_script("prolog", FAILS="start")
        self.assertIn("not placed, the fabric chooses its paths: error: start fails", self.lines("log")[-1])
        self.run_script("prolog", FAILS="wait")
        self.assertIn("not all of its paths are in force: error: wait fails", self.lines("log")[-1])

    def test_one_node_and_other_partitions_have_no_job(self) -> None:
        self.run_script("prolog", SLURM_JOB_NODELIST="node1")
        self.run_script("prolog", SRV6D_PARTITIONS="cpu debug")
        self.assertEqual((self.lines("asked"), self.lines("log")), ([], []))
        self.run_script("prolog", SRV6D_PARTITIONS="cpu gpu")
        self.assertEqual(len(self.lines("asked")), 2)

    def test_the_epilog_ends_the_job(self) -> None:
        self.run_script("epilog")
        self.assertEqual(self.lines("asked"), ["job end slurm-4711"])
        self.run_script("epilog", FAILS="end")
        self.assertIn("no job to end", self.lines("log")[-1])
        self.run_script("epilog", SLURM_JOB_ID="")
        self.assertEqual(len(self.lines("asked")), 2)


if __name__ == "__main__":
    unittest.main()
