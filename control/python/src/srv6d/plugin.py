"""The interface of the SRv6 plugin for PyTorch, over a job of srv6d: its users change one import.

::

    from srv6d.plugin import DemoPlugin          # was: from srv6_plugin import DemoPlugin
    plugin = DemoPlugin(api_endpoint)
    plugin.init_process_group()
"""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import Any, Mapping, Sequence

from . import torch as wrapper
from .environment import hosts
from .job import Member

_log = logging.getLogger("srv6d")


class NetworkProgrammer:
    """What the plugin's users know as the controller. It answers from the paths of the job and asks no API."""

    def __init__(self, api_endpoint: str | None) -> None:
        self.api_endpoint = api_endpoint
        self.collection_name = os.environ.get("TOPOLOGY_COLLECTION") or "fabric_graph"

    @property
    def _member(self) -> Member | None:
        outcome = wrapper.current()
        return outcome.member if outcome is not None else None

    def get_route_info(self, source: str, destination: str) -> dict[str, Any] | None:
        """Returns the path of this rank to a host, in the form of the API's answer. None: this rank has no path there.

        Nothing is booked by this, and ``source`` must be the host of this rank.
        """
        member = self._member
        if member is None:
            _log.error("there is no job: call init_process_group first, and see what it says")
            return None
        members = {_key(entry["host"]): entry for entry in member.job["members"]}
        target, own = members.get(_key(destination)), member.job["members"][member.rank]
        if target is None or _key(source) != _key(own["host"]):
            _log.error("the job has no path from %s to %s on this rank", source, destination)
            return None
        to = {entry["rank"] for entry in member.job["members"] if _key(entry["host"]) == _key(destination)}
        paths = [path for path in member.paths if path["to"] in to]
        if not paths:
            return {"found": False, "message": "No path found between specified nodes"}
        return {"found": True, "destination_info": _destination(target, paths), "srv6_data": _data(paths[0])}

    def program_all_routes(self, nodes: Sequence[Mapping[str, Any]]) -> bool:
        """Returns whether the paths to all ranks are in force. The daemon has put them in force before."""
        outcome = wrapper.current()
        return outcome is not None and outcome.complete


def _key(host: str) -> str:
    """Returns the key of a host's id: ``host00`` of ``hosts/host00``."""
    return host.rsplit("/", 1)[-1]


def _destination(target: Mapping[str, Any], paths: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    prefix = ipaddress.ip_network(paths[0]["prefix"], strict=False)
    found: dict[str, Any] = {
        "_key": _key(target["host"]), "prefix": str(prefix.network_address), "prefix_len": prefix.prefixlen,
        "ipv6_address": None, "ipv4_address": None,
    }  # fmt: skip
    for text in target["addresses"]:
        if "/" not in text:
            version = ipaddress.ip_address(text).version
            found[f"ipv{version}_address"] = found[f"ipv{version}_address"] or text
    return found


def _data(path: Mapping[str, Any]) -> dict[str, Any]:
    segments = [str(segment) for segment in path["segments"]]
    return {"srv6_sid_list": segments, "srv6_usid": segments[0] if segments else ""}


class DemoPlugin:
    """Makes the process group and has the paths of all ranks placed, as the plugin's class of this name does."""

    def __init__(self, api_endpoint: str | None = None) -> None:
        """``api_endpoint`` is kept for callers that read it. The daemon knows its controller itself ([jobs], [jalapeno])."""
        self.api_endpoint = api_endpoint
        self.network_programmer = NetworkProgrammer(api_endpoint)

    def init_process_group(self, backend: str = "gloo", **kwargs: Any) -> bool:
        """Makes the process group, and prints the paths of this rank. Returns whether there is a process group.

        Unlike in the plugin, ``backend`` and all other parameters count.
        """
        _as_plugin(os.environ)
        try:
            wrapper.init_process_group(backend, **kwargs)
        except Exception as why:  # the plugin's callers look at the result only
            _log.error("the process group cannot be made: %s", why)
            return False
        outcome = wrapper.current()
        if outcome is not None and outcome.member is not None:
            member = outcome.member
            print(f"srv6d: job {member.id}, paths of rank {member.rank}", member.table(), sep="\n", flush=True)
        return True


def _as_plugin(environ: Any) -> None:
    """Sets the defaults that the plugin has and PyTorch does not."""
    names = hosts(environ)
    if names and not environ.get("RANK") and environ.get("HOSTNAME") not in names:
        environ["RANK"] = "0"
    if environ.get("RANK") and not environ.get("WORLD_SIZE") and names:
        environ["WORLD_SIZE"] = str(len(names))
    if not environ.get("MASTER_ADDR"):
        environ["MASTER_ADDR"] = "localhost"
    environ["MASTER_ADDR"] = environ["MASTER_ADDR"].strip("[]")
