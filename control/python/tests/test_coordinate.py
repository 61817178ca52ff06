"""Ranks that share a store make a job, or say why not: with leaders, members, stores and daemons that fail."""

from __future__ import annotations

import logging
import os
import threading
import time
import unittest
from dataclasses import replace
from typing import Any
from unittest import mock

import srv6d.board
import srv6d.job
from srv6d.board import Board, Listener, Pulse
from srv6d.coordinate import Outcome, coordinate
from srv6d.environment import Place, Settings
from support import Daemon, Store

#: Longest time that any of these conversations may take, in seconds.
PATIENCE = 60.0


class Ranks(unittest.TestCase):
    """Three hosts with a rank each, unless a test changes that."""

    def setUp(self) -> None:
        logging.getLogger("srv6d").setLevel(logging.CRITICAL)
        self.store = Store()
        self.daemons = [Daemon(f"host0{index}") for index in range(3)]
        for daemon in self.daemons:
            self.addCleanup(daemon.close)
        self.settings = [self.of(rank) for rank in range(3)]
        self.environ: list[dict[str, str]] = [{} for _ in range(3)]
        for target, name, value in (
            (Listener, "PATIENCE", 4.0), (Pulse, "INTERVAL", 0.1), (srv6d.job, "_LOOK", 0.02), (srv6d.job, "DEFAULT_LEASE", 0.3),
        ):  # fmt: skip
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def of(self, rank: int, **more: Any) -> Settings:
        return Settings(socket=self.daemons[rank].path, host=f"host0{rank}", addresses=(f"fcbb:0:800:{rank}::2",),
                        job="llm", timeout=20.0, **more)  # fmt: skip

    def run_ranks(self, ranks: list[int] | None = None, size: int = 3, store: Store | None = None) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}

        def one(rank: int) -> None:
            place = Place(rank, size, None, None, 29500, "environment")
            outcomes[rank] = coordinate(store or self.store, place, self.settings[rank], self.environ[rank])

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in (ranks or range(size))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive(), "a rank waits for ever")
        for outcome in outcomes.values():
            if outcome.member is not None:
                self.addCleanup(outcome.member.end)
        return outcomes

    def assert_plain(self, outcome: Outcome, says: str) -> None:
        self.assertIsNone(outcome.member)
        self.assertRegex(str(outcome.why), says)

    # All is well.

    def test_every_rank_joins_with_the_paths_that_rank_0_was_given(self) -> None:
        outcomes = self.run_ranks()
        for rank, outcome in outcomes.items():
            self.assertTrue(outcome.complete, outcome)
            assert outcome.member is not None
            joined = [request for request in self.daemons[rank].requests if request["action"] == "join"]
            self.assertEqual([(request["rank"], request["hold"]) for request in joined], [(rank, "process")])
            self.assertEqual(
                [path["prefix"] for path in joined[0]["paths"]],
                [f"fcbb:0:800:{other}::2/128" for other in range(3) if other != rank],
            )
        self.assertEqual([daemon.actions().count("place") for daemon in self.daemons], [1, 0, 0])

    def test_the_job_ends_at_every_daemon(self) -> None:
        for outcome in self.run_ranks().values():
            assert outcome.member is not None
            outcome.member.end()
            outcome.member.end()
        for daemon in self.daemons:
            self.assertEqual(daemon.members, {})
            self.assertEqual(daemon.actions().count("end"), 1)

    def test_a_process_that_was_forked_from_a_rank_ends_nothing(self) -> None:
        member = self.run_ranks()[1].member
        assert member is not None
        child = os.fork()
        if child == 0:
            member.end()
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn(("llm", 1), self.daemons[1].members)

    def test_what_other_jobs_occupy_is_told_to_who_places(self) -> None:
        for index, daemon in enumerate(self.daemons):
            daemon.others = [{"id": f"other-{index}", "generation": 1, "links": [["a_b", 1]]}]
        self.run_ranks()
        (place,) = [request for request in self.daemons[0].requests if request["action"] == "place"]
        self.assertEqual([entry["id"] for entry in place["others"]], ["other-0", "other-1", "other-2"])

    def test_a_job_that_starts_again_has_a_higher_generation(self) -> None:
        self.daemons[2].others = [{"id": "llm", "generation": 4, "links": []}]
        outcomes = self.run_ranks()
        assert outcomes[0].member is not None
        self.assertEqual(outcomes[0].member.job["generation"], 5)

    def test_a_placement_of_several_pages_is_read_whole(self) -> None:
        self.daemons[0].page = 1
        self.assertTrue(all(outcome.complete for outcome in self.run_ranks().values()))
        self.assertEqual(self.daemons[0].actions().count("assignments"), 2)

    def test_several_ranks_of_a_host_share_it(self) -> None:
        self.daemons[1] = self.daemons[0]
        self.settings[1] = replace(self.of(0), addresses=("fcbb:0:800:0::3",))
        outcomes = self.run_ranks()
        self.assertTrue(all(outcome.complete for outcome in outcomes.values()), outcomes)
        self.assertEqual(sorted(self.daemons[0].members), [("llm", 0), ("llm", 1)])

    def test_settings_reach_the_job(self) -> None:
        self.settings = [self.of(rank, pattern="ring", tenant="red", priority=3, more={"detour": 2}) for rank in range(3)]
        outcomes = self.run_ranks()
        assert outcomes[1].member is not None
        job = outcomes[1].member.job
        self.assertEqual([job[key] for key in ("pattern", "tenant", "priority", "detour")], ["ring", "red", 3, 2])

    def test_a_job_without_a_name_has_that_of_its_launcher(self) -> None:
        self.settings = [replace(self.of(rank), job=None) for rank in range(3)]
        for environ, name in (
            ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "slurm-7.0"),
            ({"TORCHELASTIC_RUN_ID": "run/é"}, "torchrun-run--"),
            ({"TORCHELASTIC_RUN_ID": "none"}, "[A-Za-z0-9].*-[0-9]+-[0-9a-f]{8}"),
        ):
            self.environ[0] = environ
            outcomes = self.run_ranks(store=Store())
            assert outcomes[2].member is not None
            self.assertRegex(outcomes[2].member.id, f"^{name}$")

    # Daemons that fail.

    def test_without_a_daemon_at_rank_0_all_go_on_alone(self) -> None:
        self.daemons[0].stop()
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "rank 0: srv6d is not running: nothing answers on .*srv6d.sock")

    def test_without_a_daemon_at_another_rank_the_others_are_steered(self) -> None:
        self.daemons[2].stop()
        outcomes = self.run_ranks()
        self.assert_plain(outcomes[2], "srv6d is not running")
        for rank in (0, 1):
            self.assertIsNotNone(outcomes[rank].member)
            self.assertRegex(outcomes[rank].missing["2"], "srv6d is not running")
            self.assertFalse(outcomes[rank].complete)

    def test_a_daemon_without_jobs_says_so(self) -> None:
        self.daemons[0].refusals["occupancy"] = ("no_jobs_table", "srv6d.toml has no [jobs]")
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, r"srv6d.toml has no \[jobs\]")

    def test_a_job_that_cannot_be_placed_says_so_at_every_rank(self) -> None:
        self.daemons[0].refusals["place"] = ("cannot_place", "host02 is not in the topology")
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "rank 0: host02 is not in the topology")
        self.assertEqual([daemon.members for daemon in self.daemons], [{}, {}, {}])

    def test_a_busy_daemon_is_asked_again(self) -> None:
        self.daemons[0].refusals["place"] = ("busy", "others are being placed")
        timer = threading.Timer(0.5, self.daemons[0].refusals.pop, args=("place",))
        timer.start()
        self.addCleanup(timer.join)
        self.assertTrue(all(outcome.complete for outcome in self.run_ranks().values()))
        self.assertGreater(self.daemons[0].actions().count("place"), 1)

    def test_an_answer_that_is_no_placement_is_refused(self) -> None:
        def spoil(request: dict[str, Any]) -> None:
            wrong = b'{"version":1,"result":"placed","value":{"placement":{}}}'
            self.daemons[0].raw = wrong if request["action"] == "place" else None

        self.daemons[0].before = spoil
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "a placement that cannot be read")

    def test_a_rank_whose_daemon_refuses_it_is_named(self) -> None:
        self.daemons[1].refusals["join"] = ("prefix_not_allowed", "fcbb:0:800::2/128 is not in [jobs] allowed_prefixes")
        outcomes = self.run_ranks()
        self.assert_plain(outcomes[1], "allowed_prefixes")
        self.assertRegex(outcomes[0].missing["1"], "allowed_prefixes")
        self.assertTrue(outcomes[0].is_placed and outcomes[1].is_placed)

    def test_paths_that_do_not_come_into_force_are_named_and_the_job_goes_on(self) -> None:
        self.settings = [replace(self.of(rank), timeout=3.0) for rank in range(3)]
        self.daemons[1].stuck = "fcbb:0:800:2::2/128"
        outcomes = self.run_ranks()
        says = "1 of 2 paths are not in force: fcbb:0:800:2::2/128: the neighbour is not resolved"
        self.assertRegex(str(outcomes[1].why), says)
        self.assertIsNotNone(outcomes[1].member)
        for rank in (0, 2):
            self.assertIsNone(outcomes[rank].why)
            self.assertRegex(outcomes[rank].missing["1"], says)

    def test_a_daemon_that_restarts_while_it_is_waited_for_is_survived(self) -> None:
        daemon = self.daemons[1]
        daemon.looks_until_in_force = 10**9

        def restart() -> None:
            joined.wait(PATIENCE)
            daemon.stop()
            daemon.members.clear()
            time.sleep(0.3)
            daemon.looks_until_in_force = 0
            daemon.start()

        joined = threading.Event()
        daemon.before = lambda request: joined.set() if request["action"] == "show" else None
        thread = threading.Thread(target=restart)
        thread.start()
        outcomes = self.run_ranks()
        thread.join()
        self.assertTrue(all(outcome.complete for outcome in outcomes.values()), outcomes)
        self.assertEqual(daemon.actions().count("join"), 2)

    def test_a_daemon_that_restarts_while_a_rank_joins_is_survived(self) -> None:
        daemon = self.daemons[1]
        self.daemons[0].before = lambda request: daemon.stop() if request["action"] == "place" else None
        timer = threading.Timer(1.0, daemon.start)
        timer.start()
        self.addCleanup(timer.join)
        outcomes = self.run_ranks()
        self.assertTrue(all(outcome.complete for outcome in outcomes.values()), outcomes)

    def test_a_daemon_that_stays_away_is_given_up(self) -> None:
        self.daemons[0].before = lambda request: self.daemons[1].stop() if request["action"] == "place" else None
        with mock.patch.object(srv6d.job, "PATIENCE", 0.5):
            outcomes = self.run_ranks()
        self.assert_plain(outcomes[1], "srv6d is not running")
        self.assertRegex(outcomes[2].missing["1"], "srv6d is not running")

    def test_a_daemon_in_another_container_holds_the_job_by_a_lease(self) -> None:
        daemon = self.daemons[1]
        daemon.sees_processes = False
        outcomes = self.run_ranks()
        self.assertTrue(outcomes[1].complete, outcomes[1])
        holds = [request["hold"] for request in daemon.requests if request["action"] == "join"]
        self.assertEqual(holds, ["process", {"seconds": 5}])
        self.assertTrue(self.comes(lambda: daemon.actions().count("renew") >= 2))
        daemon.stop()
        daemon.members.clear()
        daemon.start()
        self.assertTrue(self.comes(lambda: ("llm", 1) in daemon.members), "a daemon that has lost the job gets it again")
        assert outcomes[1].member is not None
        outcomes[1].member.end()
        self.assertEqual(daemon.members, {})

    def comes(self, condition: Any) -> bool:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    # Peers that fail, disagree or lie.

    def test_a_rank_that_does_not_come_is_named(self) -> None:
        self.settings = [replace(self.of(rank), timeout=3.0) for rank in range(3)]
        for outcome in self.run_ranks(ranks=[0, 1]).values():
            self.assert_plain(outcome, "rank 0: rank 2 did not come within 3 s")

    def test_a_rank_0_that_does_not_come_is_named(self) -> None:
        self.settings = [replace(self.of(rank), timeout=3.0) for rank in range(3)]
        for outcome in self.run_ranks(ranks=[1, 2]).values():
            self.assert_plain(outcome, "rank 0 did not come within 3 s")

    def test_a_rank_0_that_dies_before_the_verdict_is_named(self) -> None:
        board = Board(self.store, "0")
        board.count("pulse")
        for outcome in self.run_ranks(ranks=[1, 2]).values():
            self.assert_plain(outcome, "rank 0 has died or hangs")

    def test_a_rank_0_that_dies_after_the_verdict_leaves_the_paths(self) -> None:
        with mock.patch("srv6d.coordinate._Conversation._summarise", side_effect=SystemExit):
            outcomes = self.run_ranks()
        for rank in (1, 2):
            self.assertIsNotNone(outcomes[rank].member)
            self.assertRegex(outcomes[rank].missing["0"], "rank 0 has died or hangs")

    def test_ranks_that_disagree_are_named(self) -> None:
        self.settings[2] = self.of(2, pattern="ring")
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "disagree about pattern: rank 2 says 'ring', rank 0 'all-to-all'")

    def test_a_rank_without_an_address_is_named(self) -> None:
        self.settings[1] = replace(self.of(1), addresses=(), interface="srv6d-absent")
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "rank 1 on host01: interface srv6d-absent has no address .*set SRV6D_INTERFACE")

    def test_a_rank_that_knows_another_name_of_the_job_has_no_part(self) -> None:
        self.settings[1] = replace(self.of(1), job="mine")
        outcomes = self.run_ranks()
        self.assert_plain(outcomes[1], "another id than this rank knows")
        self.assertTrue(outcomes[0].is_placed)

    def test_a_rank_0_that_lies_about_a_member_is_not_believed(self) -> None:
        real = srv6d.job.place

        def lying(client: Any, job: dict[str, Any], others: Any, until: float) -> Any:
            job["members"][2]["addresses"] = ["fcbb:0:800:1::2"]
            return real(client, job, others, until)

        with mock.patch.object(srv6d.job, "place", lying):
            outcomes = self.run_ranks()
        self.assert_plain(outcomes[2], "rank 0 has this rank as .*800:1::2")
        self.assertEqual(self.daemons[2].members, {})

    def test_garbage_on_the_board_is_refused(self) -> None:
        for garbage in ("[]", "{", '{"rank":2}', "9" * 5000):
            store = Store()
            real = store.set
            store.set = lambda key, value: real(key, garbage if key.endswith("member/2") else value)  # type: ignore[method-assign]
            with self.subTest(garbage=garbage[:12]):
                for outcome in self.run_ranks(store=store).values():
                    self.assertIsNone(outcome.member)
                    self.assertTrue(outcome.why)

    def test_all_ranks_on_one_host_have_nothing_to_place(self) -> None:
        self.settings = [replace(self.of(rank), host="host00") for rank in range(3)]
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "all ranks are on host host00")
            self.assertTrue(outcome.is_needless)

    # Stores that fail.

    def test_a_store_that_is_gone_is_named(self) -> None:
        self.store.fault = ConnectionResetError("Connection reset by peer")
        for outcome in self.run_ranks().values():
            self.assert_plain(outcome, "the job's store cannot .* Connection reset by peer")

    def test_a_store_that_goes_after_the_verdict_leaves_no_member_without_an_end(self) -> None:
        def break_store(request: dict[str, Any]) -> None:
            if request["action"] == "join":
                self.store.fault = ConnectionResetError("gone")

        self.daemons[1].before = break_store
        outcomes = self.run_ranks()
        self.assertRegex(str(outcomes[1].why), "gone")
        for rank, outcome in outcomes.items():
            if outcome.member is not None:
                outcome.member.end()
            self.assertEqual(self.daemons[rank].members, {})

    def test_a_store_that_hangs_is_given_up(self) -> None:
        self.store.is_there.clear()
        self.addCleanup(self.store.is_there.set)
        self.settings = [replace(self.of(rank), timeout=0.2) for rank in range(3)]
        with mock.patch.object(srv6d.job, "PLACING_PATIENCE", 0.2), mock.patch.object(srv6d.job, "PATIENCE", 0.2):
            for outcome in self.run_ranks().values():
                self.assert_plain(outcome, "the job's store does not answer")


if __name__ == "__main__":
    unittest.main()
