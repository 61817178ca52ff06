"""Variables that NCCL and gloo get, and RDMA devices as the kernel shows them."""

import ipaddress
import os
import tempfile
import unittest
from unittest import mock

from srv6d import addresses, hints
from srv6d.environment import Settings


class HintsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.own = [ipaddress.ip_address("fcbb:0:800::2"), ipaddress.ip_address("10.200.0.2")]
        patch = mock.patch.object(addresses, "of_interface", lambda name: self.own)
        patch.start()
        self.addCleanup(patch.stop)
        directory = tempfile.TemporaryDirectory(prefix="srv6d-py-")
        self.addCleanup(directory.cleanup)
        self.devices = directory.name

    def add_gid(self, index: int, gid: str, kind: str, interface: str) -> None:
        port = os.path.join(self.devices, "mlx5_0", "ports", "1")
        for name, value in (("gids", gid), ("gid_attrs/types", kind), ("gid_attrs/ndevs", interface)):
            os.makedirs(os.path.join(port, name), exist_ok=True)
            with open(os.path.join(port, name, str(index)), "w", encoding="ascii") as file:
                file.write(value + "\n")

    def test_the_gid_is_that_of_the_address_for_roce_v2(self) -> None:
        self.add_gid(0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth1")
        self.add_gid(1, "fcbb:0000:0800:0000:0000:0000:0000:0002", "IB/RoCE v1", "eth1")
        self.add_gid(2, "0000:0000:0000:0000:0000:ffff:0ac8:0002", "RoCE v2", "eth1")
        self.add_gid(3, "fcbb:0000:0800:0000:0000:0000:0000:0002", "RoCE v2", "eth2")
        self.add_gid(11, "fcbb:0000:0800:0000:0000:0000:0000:0002", "RoCE v2", "eth1")
        self.assertEqual(hints.gid_index("eth1", self.own, self.devices), 11)
        self.assertEqual(hints.gid_index("eth1", self.own[1:], self.devices), 2)
        self.assertIsNone(hints.gid_index("eth9", self.own, self.devices))

    def test_a_machine_without_rdma_has_no_gid(self) -> None:
        self.assertIsNone(hints.gid_index("eth1", self.own, self.devices + "/absent"))

    def test_hints_are_set_one_by_one(self) -> None:
        with mock.patch.object(hints, "gid_index", lambda interface, own: 3):
            names = {
                "interface": {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"},
                "gid": {"NCCL_IB_GID_INDEX": "3"},
                "traffic-class": {"NCCL_IB_TC": "104"},
            }
            for name, expected in names.items():
                settings = Settings(hints=(name,), traffic_class=104)
                self.assertEqual(hints.of_job(settings, {}, "eth1"), expected)
            self.assertEqual(hints.of_job(Settings(hints=(), traffic_class=104), {}, "eth1"), {})

    def test_nccl_takes_ipv6_where_the_job_has_nothing_else(self) -> None:
        only = Settings(hints=("interface",))
        for given, family in ((["fcbb:0:800::/64"], "AF_INET6"), (["fcbb:0:800::2", "10.200.0.2"], None), ([], None)):
            self.assertEqual(hints.of_job(only, {}, "eth1", given).get("NCCL_SOCKET_FAMILY"), family)

    def test_an_address_of_gloo_that_has_no_path_is_found(self) -> None:
        for given, address in (
            (["fcbb:0:800::2"], "10.200.0.2"), (["fcbb:0:800::2", "10.200.0.0/24"], None), ([], "10.200.0.2"),
        ):  # fmt: skip
            self.assertEqual(hints.passed_by("eth1", given), address)
        self.own.pop()
        self.assertIsNone(hints.passed_by("eth1", ["fcbb:0:800::/64"]))
        self.own.pop()
        self.assertIsNone(hints.passed_by("eth1", []))

    def test_what_the_user_has_set_stays(self) -> None:
        found = hints.of_job(Settings(), {"NCCL_SOCKET_IFNAME": "ib0"}, "eth1")
        self.assertEqual(found, {"GLOO_SOCKET_IFNAME": "eth1"})

    def test_nothing_is_set_for_an_interface_that_is_not_known(self) -> None:
        self.assertEqual(hints.of_job(Settings(), {}, None), {})


if __name__ == "__main__":
    unittest.main()
