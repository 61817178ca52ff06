"""Variables of NCCL and gloo that make them send where the paths are. A variable that the user has set stays."""

from __future__ import annotations

import ipaddress
import os
from typing import Mapping, Sequence, Union

from . import addresses
from .environment import Settings

#: Where the kernel shows RDMA devices.
_DEVICES = "/sys/class/infiniband"

#: Largest number of GIDs of a port that are looked at.
_MAX_GIDS = 1024


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(256).strip()
    except OSError:
        return ""


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def gid_index(interface: str, own: Sequence[addresses.Address], devices: str = _DEVICES) -> int | None:
    """Returns the index of the GID for RoCE v2 that holds an address of the interface, IPv6 first. None: there is none.

    ``devices`` is the kernel's directory of RDMA devices.
    """
    for device in _listed(devices):
        for port in _listed(f"{devices}/{device}/ports"):
            root = f"{devices}/{device}/ports/{port}"
            indices = sorted(int(name) for name in _listed(f"{root}/gids") if name.isdigit())[:_MAX_GIDS]
            for address in own:
                wanted = address if address.version == 6 else ipaddress.IPv6Address(f"::ffff:{address}")
                for index in indices:
                    if _read(f"{root}/gid_attrs/ndevs/{index}") != interface:
                        continue
                    if _read(f"{root}/gid_attrs/types/{index}") != "RoCE v2":
                        continue
                    if _is_address(_read(f"{root}/gids/{index}"), wanted):
                        return index
    return None


def _is_address(text: str, wanted: addresses.Address) -> bool:
    try:
        return ipaddress.ip_address(text) == wanted
    except ValueError:
        return False


def _networks(texts: Sequence[str]) -> list[Union[ipaddress.IPv4Network, ipaddress.IPv6Network]]:
    return [ipaddress.ip_network(text, strict=False) for text in texts]


def passed_by(interface: str, given: Sequence[str]) -> str | None:
    """Returns the address that gloo tells the peers, if the job has no path to it. None: it has.

    ``given``: addresses and prefixes of this rank in the job. Of an interface with both families, gloo takes the IPv4 address.
    """
    own = addresses.of_interface(interface)
    chosen = next((address for address in own if address.version == 4), own[0] if own else None)
    if chosen is None or any(chosen in network for network in _networks(given)):
        return None
    return str(chosen)


def of_job(
    settings: Settings, environ: Mapping[str, str], interface: str | None, given: Sequence[str] = ()
) -> dict[str, str]:
    """Returns the variables to set, without those that are set already.

    ``given``: addresses and prefixes of this rank in the job.
    """
    found: dict[str, str] = {}
    if interface is not None and "interface" in settings.hints:
        found["GLOO_SOCKET_IFNAME"] = interface
        # With `=`, NCCL takes this very name and no name that only begins so.
        found["NCCL_SOCKET_IFNAME"] = f"={interface}"
        if given and all(network.version == 6 for network in _networks(given)):
            # NCCL would take an IPv4 address of the interface before an IPv6 address.
            found["NCCL_SOCKET_FAMILY"] = "AF_INET6"
    if interface is not None and "gid" in settings.hints:
        index = gid_index(interface, addresses.of_interface(interface))
        if index is not None:
            found["NCCL_IB_GID_INDEX"] = str(index)
    if settings.traffic_class is not None and "traffic-class" in settings.hints:
        found["NCCL_IB_TC"] = str(settings.traffic_class)
    return {name: value for name, value in found.items() if not environ.get(name)}
