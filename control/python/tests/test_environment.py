"""Rank, addresses and settings from the variables of launchers and users."""

import ipaddress
import socket
import unittest
from unittest import mock

from srv6d import addresses
from srv6d.environment import Place, SettingError, Settings, find_host, find_interface, find_place, first_host


class PlaceTest(unittest.TestCase):
    def place(self, **environ: str) -> Place:
        found = find_place(environ)
        assert found is not None, environ
        return found

    def test_torchrun(self) -> None:
        found = self.place(
            RANK="3", WORLD_SIZE="8", LOCAL_RANK="1", MASTER_ADDR="fcbb:0:800::2", MASTER_PORT="29501", TORCHELASTIC_RUN_ID="a"
        )
        self.assertEqual(found, Place(3, 8, 1, "fcbb:0:800::2", 29501, "torchrun"))

    def test_the_training_operator(self) -> None:
        found = self.place(RANK="1", WORLD_SIZE="2", MASTER_ADDR="job-master-0", MASTER_PORT="23456", PET_NNODES="2")
        self.assertEqual(found, Place(1, 2, None, "job-master-0", 23456, "environment"))

    def test_open_mpi(self) -> None:
        found = self.place(
            OMPI_COMM_WORLD_RANK="2", OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_LOCAL_RANK="0", MASTER_ADDR="node1"
        )
        self.assertEqual(found, Place(2, 4, 0, "node1", 29500, "mpirun"))
        alone = self.place(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_SIZE="2")
        self.assertEqual(alone.master_address, "127.0.0.1")

    def test_mpich_and_intel(self) -> None:
        self.assertEqual(self.place(PMI_RANK="1", PMI_SIZE="2").launcher, "mpirun")

    def test_slurm(self) -> None:
        found = self.place(
            SLURM_PROCID="5", SLURM_NTASKS="16", SLURM_LOCALID="5", SLURM_STEP_ID="0", SLURM_JOB_ID="4711",
            SLURM_STEP_NODELIST="node[03-04]",
        )  # fmt: skip
        self.assertEqual(found, Place(5, 16, 5, "node03", 24711, "slurm"))

    def test_a_batch_script_of_slurm_is_no_rank(self) -> None:
        self.assertIsNone(find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}))

    def test_torchrun_inside_of_slurm_counts_first(self) -> None:
        found = self.place(RANK="1", WORLD_SIZE="2", SLURM_PROCID="0", SLURM_NTASKS="1", SLURM_STEP_ID="0")
        self.assertEqual((found.rank, found.world_size), (1, 2))

    def test_the_plugin(self) -> None:
        found = self.place(HOSTS="host00,host01, host02", HOSTNAME="host02", MASTER_ADDR="[2001:db8::1]")
        self.assertEqual(found, Place(2, 3, None, "2001:db8::1", 29500, "plugin"))
        self.assertEqual(self.place(HOSTS="a b", RANK="1").rank, 1)

    def test_nothing_says_a_rank(self) -> None:
        self.assertIsNone(find_place({}))
        self.assertIsNone(find_place({"RANK": "", "WORLD_SIZE": ""}))

    def test_variables_that_cannot_be_are_named(self) -> None:
        for environ, says in (
            ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 is not below WORLD_SIZE=4"),
            ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK=-1 is not a number"),
            ({"RANK": "x", "WORLD_SIZE": "4"}, "RANK=x"),
            ({"RANK": "0", "WORLD_SIZE": "70000"}, "WORLD_SIZE=70000"),
            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "99999"}, "MASTER_PORT"),
            ({"HOSTS": "a,b", "HOSTNAME": "c"}, "HOSTNAME=c is not in HOSTS=a,b"),
            ({"HOSTS": "a,b", "RANK": "2"}, "RANK=2 is not below the number of HOSTS"),
        ):
            with self.subTest(environ=environ), self.assertRaisesRegex(SettingError, says):
                find_place(environ)

    def test_lists_of_nodes(self) -> None:
        for nodelist, first in (
            ("node1", "node1"), ("node1,node2", "node1"), ("node[03-10,12],x", "node03"), ("n[7,9]-ib", "n7-ib"), ("", ""),
        ):  # fmt: skip
            self.assertEqual(first_host(nodelist), first)

    def test_the_rendezvous_of_pytorch_gets_its_variables(self) -> None:
        variables = Place(1, 2, 0, "node1", 29500, "slurm").variables()
        self.assertEqual(
            variables, {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
        )


class SettingsTest(unittest.TestCase):
    def test_defaults(self) -> None:
        self.assertEqual(Settings.from_environ({}), Settings())

    def test_every_variable(self) -> None:
        found = Settings.from_environ({
            "SRV6D_ENABLED": "off", "SRV6D_REQUIRED": "1", "SRV6D_SOCKET": "/s", "SRV6D_JOB": "llm", "SRV6D_PATTERN": "ring",
            "SRV6D_TENANT": "red", "SRV6D_PRIORITY": "7", "SRV6D_JOB_KEYS": '{"detour":2}', "SRV6D_HOST": "host03",
            "SRV6D_ADDRESSES": "fcbb:0:800:3::/64,10.0.0.1", "SRV6D_INTERFACE": "eth1", "SRV6D_TIMEOUT": "2m",
            "SRV6D_LEASE": "90", "SRV6D_HINTS": "gid,interface", "SRV6D_TRAFFIC_CLASS": "104",
        })  # fmt: skip
        self.assertEqual(
            found,
            Settings(
                enabled=False, required=True, socket="/s", job="llm", pattern="ring", tenant="red", priority=7,
                more={"detour": 2}, host="host03", addresses=("fcbb:0:800:3::/64", "10.0.0.1"), interface="eth1", timeout=120.0,
                lease=90.0, hints=("gid", "interface"), traffic_class=104,
            ),
        )  # fmt: skip

    def test_hints_can_be_switched_off(self) -> None:
        self.assertEqual(Settings.from_environ({"SRV6D_HINTS": "0"}).hints, ())

    def test_wrong_values_are_named(self) -> None:
        for name, value in (
            ("SRV6D_ENABLED", "maybe"), ("SRV6D_JOB", "-x"), ("SRV6D_JOB", "a" * 65), ("SRV6D_JOB", "a b"), ("SRV6D_TENANT", "ü"),
            ("SRV6D_PATTERN", "star"), ("SRV6D_PRIORITY", "8"), ("SRV6D_JOB_KEYS", "[1]"), ("SRV6D_JOB_KEYS", '{"id":"x"}'),
            ("SRV6D_JOB_KEYS", "{"), ("SRV6D_ADDRESSES", "fcbb::x"), ("SRV6D_ADDRESSES", ",".join(["::1"] * 9)),
            ("SRV6D_TIMEOUT", "0"), ("SRV6D_TIMEOUT", "1h"), ("SRV6D_LEASE", "4"), ("SRV6D_HINTS", "gid,tc"),
            ("SRV6D_TRAFFIC_CLASS", "256"), ("SRV6D_TIMEOUT", "9" * 400),
        ):  # fmt: skip
            with self.subTest(name=name, value=value[:20]), self.assertRaisesRegex(SettingError, name):
                Settings.from_environ({name: value})


class WhereTest(unittest.TestCase):
    PLACE = Place(1, 3, None, "127.0.0.1", 29500, "environment")

    def test_the_host_is_found_as_the_daemon_finds_it(self) -> None:
        for environ, settings, host in (
            ({"HOSTNAME": "a"}, Settings(host="set"), "set"),
            ({"HOSTS": "a,b,c", "HOSTNAME": "c"}, Settings(), "c"),
            ({"HOSTS": "a,b,c", "HOSTNAME": "pod-7"}, Settings(), "b"),
            ({"HOSTS": "a,b", "HOSTNAME": "pod-7"}, Settings(), "pod-7"),
            ({"HOSTNAME_PREFIX": "host"}, Settings(), "host01"),
            ({"SLURMD_NODENAME": "node1"}, Settings(), "node1"),
            ({}, Settings(), socket.gethostname()),
        ):
            with self.subTest(environ=environ):
                self.assertEqual(find_host(environ, settings, self.PLACE), host)

    def test_the_interface_is_named_by_whoever_names_one(self) -> None:
        here = mock.patch.object(addresses, "of_interface", lambda name: [1] if name == "eth7" else [])
        with here:
            for environ, settings, interface in (
                ({"BACKEND_INTERFACE": "eth1"}, Settings(interface="eth0"), "eth0"),
                ({"BACKEND_INTERFACE": "eth1", "GLOO_SOCKET_IFNAME": "eth7"}, Settings(), "eth1"),
                ({"GLOO_SOCKET_IFNAME": "eth7"}, Settings(), "eth7"),
                ({"NCCL_SOCKET_IFNAME": "=eth7"}, Settings(), "eth7"),
                ({"NCCL_SOCKET_IFNAME": "eth"}, Settings(), None),
            ):
                with self.subTest(environ=environ):
                    self.assertEqual(find_interface(environ, settings, self.PLACE), interface)

    def test_the_interface_is_that_towards_rank_0(self) -> None:
        towards = ipaddress.ip_address("2001:db8::7")
        with mock.patch.object(addresses, "source_towards", lambda host, port: towards), \
             mock.patch.object(addresses, "interface_of", lambda address: "eth3" if address == towards else None):  # fmt: skip
            self.assertEqual(find_interface({}, Settings(), self.PLACE), "eth3")

    def test_addresses_come_from_the_kernels_table(self) -> None:
        table = (
            "fcbb0000080000000000000000000002 03 40 00 80     eth1\n"
            "fe800000000000000000000000000001 03 40 20 80     eth1\n"
            "20010db8000000000000000000000001 03 40 00 c0     eth1\n"
            "20010db8000000000000000000000002 04 40 00 80     eth2\n"
            "garbage\n"
        )
        found = [str(address) for address in addresses._ipv6_of("eth1", table)]
        self.assertEqual(found, ["fcbb:0:800::2"])

    def test_loopback_has_no_address_for_others(self) -> None:
        self.assertEqual(addresses.of_interface("lo"), [])
        self.assertEqual(addresses.of_interface("srv6d-absent"), [])
        self.assertIsNone(find_interface({}, Settings(), self.PLACE))


if __name__ == "__main__":
    unittest.main()
