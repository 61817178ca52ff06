"""The functions that take the place of PyTorch's, over a stand-in of `torch.distributed` that has what they use of it."""

from __future__ import annotations

import ipaddress
import logging
import os
import runpy
import sys
import tempfile
import types
import unittest
from datetime import timedelta
from typing import Any, Iterator
from unittest import mock

import srv6d.__main__
import srv6d.torch as wrapper
from srv6d import addresses, plugin
from srv6d.coordinate import Outcome
from srv6d.environment import Place, SettingError, Settings
from srv6d.job import Member


class PrefixStore:
    def __init__(self, prefix: str, store: Any) -> None:
        self.prefix, self.store = prefix, store


class BottomStore:
    """The store of a rendezvous."""

    limit: timedelta | None = None

    def set_timeout(self, limit: timedelta) -> None:
        self.limit = limit


class Torch:
    """Stands in for PyTorch, and writes down what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, dict[str, Any]]] = []
        self.rendezvous_calls: list[tuple[Any, ...]] = []
        self.destroyed: list[Any] = []
        self.fault: Exception | None = None
        self.bottom = BottomStore()
        torch, self.distributed = types.ModuleType("torch"), types.ModuleType("torch.distributed")
        self.c10d, meeting = types.ModuleType("torch.distributed.distributed_c10d"), types.ModuleType("torch.distributed.rendezvous")
        members: dict[str, Any] = {
            "is_available": lambda: True, "PrefixStore": PrefixStore, "distributed_c10d": self.c10d,
            "init_process_group": self.init, "destroy_process_group": self.destroyed.append,
        }  # fmt: skip
        vars(self.distributed).update(members)
        vars(meeting).update(rendezvous=self.rendezvous)
        vars(torch).update(distributed=self.distributed)
        self.modules = {
            "torch": torch, "torch.distributed": self.distributed, "torch.distributed.distributed_c10d": self.c10d,
            "torch.distributed.rendezvous": meeting,
        }  # fmt: skip

    def init(self, backend: Any = None, **given: Any) -> None:
        self.calls.append((backend, given))
        if self.fault is not None:
            raise self.fault

    def rendezvous(self, url: str, rank: int, world_size: int, timeout: timedelta) -> Iterator[Any]:
        self.rendezvous_calls.append((url, rank, world_size, timeout))
        yield (self.bottom, int(os.environ["RANK"]) if rank < 0 else rank,
               int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size)  # fmt: skip


class StandIn(unittest.TestCase):
    """A test with the stand-in in the place of PyTorch, and an outcome that it decides itself."""

    RANKS = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}

    def setUp(self) -> None:
        logging.getLogger("srv6d").setLevel(logging.WARNING)
        self.torch = Torch()
        self.coordinated: list[tuple[Any, Place, str]] = []
        self.outcome = Outcome(why="nothing is there")
        for patch in (
            mock.patch.dict(sys.modules, self.torch.modules),
            mock.patch.dict(os.environ, self.RANKS, clear=True),
            mock.patch.object(wrapper, "coordinate", self.coordinate),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(self.forget)

    @staticmethod
    def forget() -> None:
        wrapper._end()
        wrapper._State.torch_init = wrapper._State.torch_destroy = None

    def coordinate(self, store: Any, place: Place, settings: Settings, environ: Any, name: str) -> Outcome:
        self.coordinated.append((store, place, name))
        return self.outcome

    def member(self) -> mock.Mock:
        paths = [{"to": 0, "prefix": "fcbb:0:800::2/128", "segments": ["fcbb:0:1:2::"], "via": ["leaf00", "spine00"]}]
        members = [{"rank": 0, "host": "host00", "addresses": ["fcbb:0:800::/64", "fcbb:0:800::2"]},
                   {"rank": 1, "host": "hosts/host01", "addresses": ["fcbb:0:800:1::2"]}]  # fmt: skip
        member = mock.Mock(wraps=Member(mock.Mock(), {"id": "llm", "members": members}, {}, 1, paths, None))
        member.id, member.rank, member.paths, member.job = "llm", 1, paths, {"id": "llm", "members": members}
        return member

    def succeed(self) -> mock.Mock:
        member = self.member()
        self.outcome = Outcome(member=member, is_placed=True, interface="eth1")
        return member

    def said(self, *arguments: Any, **named: Any) -> str:
        with self.assertLogs("srv6d", logging.WARNING) as logs:
            wrapper.init_process_group(*arguments, **named)
        return "\n".join(logs.output)


class TorchTest(StandIn):
    def test_pytorch_gets_the_store_on_which_the_job_was_made(self) -> None:
        self.succeed()
        wrapper.init_process_group("gloo", timeout=timedelta(seconds=90), pg_options="options")
        self.assertEqual(self.torch.rendezvous_calls, [("env://", -1, -1, timedelta(seconds=90))])
        self.assertEqual(self.torch.bottom.limit, timedelta(seconds=90))
        ((backend, given),) = self.torch.calls
        self.assertEqual((backend, given["rank"], given["world_size"], given["init_method"]), ("gloo", 1, 2, None))
        self.assertEqual((given["store"].prefix, given["store"].store), ("default_pg", self.torch.bottom))
        self.assertEqual((given["timeout"], given["pg_options"]), (timedelta(seconds=90), "options"))
        ((store, place, _),) = self.coordinated
        self.assertIs(store, given["store"])
        self.assertEqual((place.rank, place.world_size), (1, 2))

    def test_parameters_by_position_stay_what_they_are(self) -> None:
        self.succeed()
        limit = timedelta(seconds=5)
        wrapper.init_process_group("gloo", "tcp://[::1]:1", limit, 4, 2, None, "name", "options", "cuda:0")
        ((_, given),) = self.torch.calls
        self.assertEqual(
            (given["group_name"], given["pg_options"], given["device_id"], given["rank"]), ("name", "options", "cuda:0", 2)
        )
        self.assertEqual(self.torch.rendezvous_calls, [("tcp://[::1]:1", 2, 4, limit)])

    def test_a_store_of_the_caller_is_used(self) -> None:
        self.succeed()
        wrapper.init_process_group("gloo", store="theirs", rank=0, world_size=3)
        self.assertEqual(self.coordinated[0][:2], ("theirs", Place(0, 3, None, "127.0.0.1", 29500, "environment")))
        self.assertEqual(self.torch.rendezvous_calls, [])

    def test_every_group_has_a_board_of_its_own(self) -> None:
        self.succeed()
        for _ in range(2):
            wrapper.init_process_group("gloo")
            wrapper.destroy_process_group()
        first, second = (int(name) for _, _, name in self.coordinated)
        self.assertEqual(second, first + 1)

    def test_slurm_sets_what_pytorch_reads(self) -> None:
        self.succeed()
        os.environ.clear()
        os.environ.update(SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_STEP_ID="0", SLURM_JOB_ID="5", SLURM_JOB_NODELIST="n[1-2]")
        wrapper.init_process_group("gloo")
        self.assertEqual([os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")], ["1", "2", "n1", "20005"])

    def test_nothing_is_asked_where_srv6d_is_switched_off(self) -> None:
        os.environ["SRV6D_ENABLED"] = "0"
        wrapper.init_process_group("gloo", "env://")
        self.assertEqual((self.coordinated, self.torch.rendezvous_calls), ([], []))
        self.assertEqual(self.torch.calls[0][1]["init_method"], "env://")

    def test_without_srv6d_pytorch_goes_on_and_a_warning_says_so(self) -> None:
        said = self.said("gloo")
        self.assertIn("does not steer this rank", said)
        self.assertIn("nothing is there", said)
        self.assertEqual(len(self.torch.calls), 1)

    def test_without_a_launcher_pytorch_goes_on_by_itself(self) -> None:
        os.environ.clear()
        self.assertIn("no launcher says the rank", self.said("gloo"))
        os.environ.update(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
        self.assertIn("mpirun does not say where rank 0 is: set MASTER_ADDR", self.said("gloo"))
        self.assertIn("the backend mpi has no store", self.said("mpi"))
        self.assertEqual((len(self.torch.calls), self.torch.rendezvous_calls), (3, []))

    def test_a_job_of_one_rank_is_no_job(self) -> None:
        os.environ.update(RANK="0", WORLD_SIZE="1", SRV6D_REQUIRED="1")
        with self.assertLogs("srv6d", logging.INFO) as logs:
            wrapper.init_process_group("gloo")
        self.assertIn("INFO:srv6d:the job has one rank", logs.output[0])
        self.assertEqual((len(self.torch.calls), self.coordinated), (1, []))

    def test_an_address_in_brackets_is_bared_for_pytorch(self) -> None:
        self.succeed()
        os.environ["MASTER_ADDR"] = "[2001:db8::2]"
        wrapper.init_process_group("gloo")
        self.assertEqual(os.environ["MASTER_ADDR"], "2001:db8::2")

    def test_required_means_required(self) -> None:
        os.environ["SRV6D_REQUIRED"] = "1"
        with self.assertRaisesRegex(wrapper.NotCoordinated, "nothing is there"):
            wrapper.init_process_group("gloo")
        self.assertEqual(self.torch.calls, [])

    def test_a_wrong_variable_is_an_error(self) -> None:
        os.environ["SRV6D_PATTERN"] = "star"
        with self.assertRaisesRegex(SettingError, "SRV6D_PATTERN=star"):
            wrapper.init_process_group("gloo")

    def test_missing_ranks_are_named(self) -> None:
        self.succeed()
        self.outcome.missing = {"7": "says nothing"}
        self.assertIn("not all of its paths are in force: rank 7: says nothing", self.said("gloo"))

    def test_hints_are_set_once_the_job_is_placed(self) -> None:
        self.succeed()
        with mock.patch.object(addresses, "of_interface", lambda name: []):
            wrapper.init_process_group("gloo")
        self.assertEqual(os.environ["GLOO_SOCKET_IFNAME"], "eth1")
        os.environ.pop("GLOO_SOCKET_IFNAME")
        self.outcome = Outcome(why="no", interface="eth1")
        self.said("gloo")
        self.assertNotIn("GLOO_SOCKET_IFNAME", os.environ)

    def test_gloo_that_sends_past_the_paths_is_warned_of(self) -> None:
        self.succeed()
        self.outcome.addresses = ["fcbb:0:800:1::2"]
        own = [ipaddress.ip_address("fcbb:0:800:1::2"), ipaddress.ip_address("10.200.1.2")]
        with mock.patch.object(addresses, "of_interface", lambda name: own):
            self.assertIn("gloo sends to 10.200.1.2 on eth1", self.said("gloo"))
            self.assertIn("gloo sends to 10.200.1.2 on eth1", self.said("cpu:gloo,cuda:nccl"))
            with mock.patch.object(logging.getLogger("srv6d"), "warning") as warning:
                wrapper.init_process_group("nccl")
                self.outcome.addresses = ["fcbb:0:800:1::2", "10.200.1.2"]
                wrapper.init_process_group("gloo")
            warning.assert_not_called()

    def test_the_job_ends_with_the_default_group_only(self) -> None:
        member = self.succeed()
        wrapper.init_process_group("gloo")
        wrapper.destroy_process_group("another")
        member.end.assert_not_called()
        wrapper.destroy_process_group()
        member.end.assert_called_once()
        self.assertEqual(self.torch.destroyed, ["another", None])
        self.assertIsNone(wrapper.current())

    def test_the_job_ends_where_pytorch_fails(self) -> None:
        member = self.succeed()
        self.torch.fault = RuntimeError("no such backend")
        with self.assertRaisesRegex(RuntimeError, "no such backend"):
            wrapper.init_process_group("gloo")
        member.end.assert_called_once()

    def test_autoload_replaces_pytorchs_functions_if_it_is_asked_to(self) -> None:
        wrapper.autoload()
        self.assertEqual(self.torch.distributed.init_process_group, self.torch.init)
        os.environ["TORCH_SRV6D"] = "1"
        wrapper.autoload()
        wrapper.autoload()
        for module in (self.torch.distributed, self.torch.c10d):
            self.assertIs(module.init_process_group, wrapper.init_process_group)
        self.succeed()
        self.torch.distributed.init_process_group("gloo")
        self.torch.distributed.destroy_process_group()
        self.assertEqual((len(self.torch.calls), self.torch.destroyed), (1, [None]))

    def test_autoload_breaks_no_import(self) -> None:
        os.environ["TORCH_SRV6D"] = "perhaps"
        with self.assertLogs("srv6d", logging.WARNING) as logs:
            wrapper.autoload()
        self.assertIn("TORCH_SRV6D=perhaps", logs.output[0])

    def test_without_pytorch_the_import_error_says_so(self) -> None:
        with mock.patch.dict(sys.modules, {"torch": None, "torch.distributed": None}):
            with self.assertRaisesRegex(ImportError, "srv6d.torch needs PyTorch"):
                wrapper.init_process_group("gloo")

    def test_a_program_is_run_with_its_arguments(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write("import sys, torch.distributed\nseen = (sys.argv[1:], torch.distributed.init_process_group)\n")
            script.flush()
            seen: dict[str, Any] = {}
            run = runpy.run_path
            with mock.patch.object(sys, "argv", ["srv6d", script.name, "--epochs", "3"]), \
                 mock.patch.object(runpy, "run_path", lambda *path, **named: seen.update(run(*path, **named))):  # fmt: skip
                srv6d.__main__.main()
        self.assertEqual(seen["seen"], (["--epochs", "3"], wrapper.init_process_group))


class PluginTest(StandIn):
    """The class with the plugin's interface."""

    def setUp(self) -> None:
        super().setUp()
        self.plugin = plugin.DemoPlugin("http://api:30800/api/v1")
        self.printed: list[str] = []
        patch = mock.patch("builtins.print", lambda *words, **named: self.printed.append("\n".join(map(str, words))))
        patch.start()
        self.addCleanup(patch.stop)

    def test_it_prints_the_paths(self) -> None:
        self.succeed()
        self.assertTrue(self.plugin.init_process_group())
        (table,) = self.printed
        self.assertRegex(table, "job llm, paths of rank 1\nTO +PREFIX +SEGMENTS +VIA\n0 host00 +fcbb:0:800::2/128 +fcbb:0:1:2:: +leaf00 > spine00")
        self.assertEqual(self.torch.calls[0][0], "gloo")

    def test_it_returns_false_where_there_is_no_group(self) -> None:
        self.succeed()
        self.torch.fault = RuntimeError("no")
        with self.assertLogs("srv6d", logging.ERROR):
            self.assertFalse(self.plugin.init_process_group("nccl"))

    def test_it_goes_on_without_srv6d(self) -> None:
        with self.assertLogs("srv6d", logging.WARNING):
            self.assertTrue(self.plugin.init_process_group())

    def test_ranks_come_from_hosts(self) -> None:
        self.succeed()
        os.environ.clear()
        os.environ.update(HOSTS="host00,host01", HOSTNAME="host01", MASTER_ADDR="[2001:db8::2]")
        self.plugin.init_process_group()
        self.assertEqual((os.environ["RANK"], os.environ["MASTER_ADDR"]), ("1", "2001:db8::2"))

    def test_routes_are_answered_from_the_job(self) -> None:
        self.succeed()
        self.plugin.init_process_group()
        programmer = self.plugin.network_programmer
        found = programmer.get_route_info("hosts/host01", "hosts/host00")
        assert found is not None
        self.assertEqual(found["srv6_data"], {"srv6_sid_list": ["fcbb:0:1:2::"], "srv6_usid": "fcbb:0:1:2::"})
        destination = {key: found["destination_info"][key] for key in ("prefix", "prefix_len", "ipv6_address", "ipv4_address")}
        self.assertEqual(
            destination, {"prefix": "fcbb:0:800::2", "prefix_len": 128, "ipv6_address": "fcbb:0:800::2", "ipv4_address": None}
        )
        with self.assertLogs("srv6d", logging.ERROR):
            self.assertIsNone(programmer.get_route_info("hosts/host00", "hosts/host01"))
        self.assertTrue(programmer.program_all_routes([]))
        self.outcome.missing = {"0": "late"}
        self.assertFalse(programmer.program_all_routes([]))

    def test_without_a_job_there_are_no_routes(self) -> None:
        with self.assertLogs("srv6d", logging.ERROR):
            self.assertIsNone(self.plugin.network_programmer.get_route_info("hosts/host01", "hosts/host00"))
        self.assertFalse(self.plugin.network_programmer.program_all_routes([]))


if __name__ == "__main__":
    unittest.main()
