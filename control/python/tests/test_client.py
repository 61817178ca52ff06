"""The client of the management socket: what it says of a daemon that is missing, silent, foreign, or of another version."""

import json
import os
import stat
import threading
import unittest

from srv6d import client
from srv6d.client import Broken, Client, Forbidden, NotRunning, Refused, Silent
from support import Daemon


class ClientTest(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = Daemon("host00")
        self.addCleanup(self.daemon.close)
        self.client = Client(self.daemon.path)

    def test_an_answer_is_its_kind_and_its_value(self) -> None:
        self.daemon.others = [{"id": "other", "generation": 1, "links": []}]
        self.assertEqual(self.client.ask("job", action="occupancy"), ("occupancy", self.daemon.others))
        self.assertEqual(self.daemon.requests, [{"request": "job", "action": "occupancy"}])

    def test_a_refusal_has_its_texts_and_its_code(self) -> None:
        self.daemon.refusals["occupancy"] = ("no_jobs_table", "srv6d.toml has no [jobs]")
        with self.assertRaises(Refused) as caught:
            self.client.ask("job", action="occupancy")
        self.assertEqual((str(caught.exception), caught.exception.code), ("srv6d.toml has no [jobs]", "no_jobs_table"))

    def test_a_refusal_of_a_daemon_without_codes_is_one_too(self) -> None:
        self.daemon.raw = b'{"version":1,"result":"refused","value":{"invalid_configuration":false,"errors":["no"]}}\n'
        with self.assertRaises(Refused) as caught:
            self.client.ask("job", action="occupancy")
        self.assertIsNone(caught.exception.code)

    def test_no_daemon_is_named_with_its_socket(self) -> None:
        for path in (self.daemon.directory + "/nothing.sock", self.daemon.path):
            self.daemon.stop()
            with self.assertRaisesRegex(NotRunning, f"nothing answers on {path}.*SRV6D_SOCKET"):
                Client(path).ask("job", action="occupancy")

    def test_the_variable_names_the_socket(self) -> None:
        before = os.environ.get("SRV6D_SOCKET")
        os.environ["SRV6D_SOCKET"] = "/nowhere/srv6d.sock"
        self.addCleanup(lambda: os.environ.pop("SRV6D_SOCKET") if before is None else os.environ.update(SRV6D_SOCKET=before))
        self.assertEqual(Client().path, "/nowhere/srv6d.sock")
        self.assertEqual(Client("/here").path, "/here")

    @unittest.skipIf(os.geteuid() == 0, "root may open every socket")
    def test_a_socket_that_may_not_be_opened_is_named(self) -> None:
        os.chmod(self.daemon.path, stat.S_IRUSR)
        with self.assertRaises(Forbidden):
            self.client.ask("job", action="occupancy")

    def test_a_daemon_that_hangs_is_given_up(self) -> None:
        hang = threading.Event()
        self.addCleanup(hang.set)

        def wait(request: object) -> None:
            hang.wait()

        self.daemon.before = wait
        with self.assertRaisesRegex(Silent, "does not answer"):
            self.client.ask("job", action="occupancy", patience=0.3)

    def test_what_is_no_answer_is_named(self) -> None:
        newer = json.dumps({"version": 2, "result": "occupancy", "value": []}).encode()
        for raw, says in (
            (b"", "without a whole answer"),
            (b"{", "without a whole answer"),
            (b"[" * 100_000, "without a whole answer"),
            (b"[]", "does not speak the protocol"),
            (b'{"hello":1}', "does not speak the protocol"),
            (newer, "version 2"),
            (b'{"version":1}', "has no result"),
            (b'{"version":1,"result":"ports","value":[]}', "instead of 'occupancy'"),
        ):
            self.daemon.raw = raw
            with self.subTest(raw=raw[:20]), self.assertRaisesRegex(Broken, says):
                self.client.value("job", "occupancy", action="occupancy")

    def test_a_request_that_is_too_long_is_not_sent(self) -> None:
        with self.assertRaisesRegex(Refused, "16777216 at most"):
            self.client.ask("job", action="place", job="x" * (16 * 1024 * 1024))
        self.assertEqual(self.daemon.requests, [])

    def test_an_endless_answer_is_cut_off(self) -> None:
        before, client.MAX_ANSWER = client.MAX_ANSWER, 1000
        self.addCleanup(setattr, client, "MAX_ANSWER", before)
        self.daemon.raw = b"x" * 100_000
        with self.assertRaisesRegex(Broken, "longer than 1000 bytes"):
            self.client.ask("job", action="occupancy")


if __name__ == "__main__":
    unittest.main()
