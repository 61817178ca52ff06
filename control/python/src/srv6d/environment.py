"""Rank, peers and settings of a process, from the variables that launchers and users set."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from dataclasses import dataclass, field
from typing import Any, Mapping

from . import addresses

#: Largest number of ranks of a job; the daemon's bound.
MAX_RANKS = 65_536

#: Port of the rendezvous, if neither ``MASTER_PORT`` nor Slurm says one.
DEFAULT_PORT = 29_500

#: The patterns that the daemon places.
PATTERNS = ("all-to-all", "ring", "permutation", "pairs")

#: What ``SRV6D_HINTS`` may name.
HINTS = ("interface", "gid", "traffic-class")

#: An id of a job, or the name of a tenant.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class SettingError(ValueError):
    """A variable has a value that cannot be used. The text names the variable and the fix."""


def _text(environ: Mapping[str, str], name: str) -> str | None:
    """Returns a variable; an empty one counts as not set."""
    value = environ.get(name, "").strip()
    return value or None


def _number(environ: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    value = _text(environ, name)
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", value) or not low <= int(value) <= high:
        raise SettingError(f"{name}={value} is not a number from {low} to {high}")
    return int(value)


def _switch(environ: Mapping[str, str], name: str, default: bool) -> bool:
    value = _text(environ, name)
    if value is None:
        return default
    if value.lower() in ("1", "true", "yes", "on"):
        return True
    if value.lower() in ("0", "false", "no", "off"):
        return False
    raise SettingError(f"{name}={value} is neither 1 nor 0")


def _seconds(environ: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    value = _text(environ, name)
    if value is None:
        return default
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(s|m|)", value)
    seconds = float(match[1]) * (60 if match[2] == "m" else 1) if match else -1.0
    if not low <= seconds <= high:
        raise SettingError(f"{name}={value} is not a time from {low:.0f}s to {high:.0f}s, for example 60s or 2m")
    return seconds


def is_asked_for(environ: Mapping[str, str]) -> bool:
    """Returns whether ``TORCH_SRV6D`` asks for every process group of PyTorch to be a job."""
    return _switch(environ, "TORCH_SRV6D", default=False)


@dataclass(frozen=True)
class Place:
    """The place of a process among the ranks of its job."""

    #: Rank of this process, from 0.
    rank: int
    #: Number of ranks.
    world_size: int
    #: Rank among the processes of this host, if the launcher tells it.
    local_rank: int | None
    #: Address or name of the host of the rendezvous, if it is known.
    master_address: str | None
    #: Port of the rendezvous.
    master_port: int
    #: Who said so: torchrun, environment, mpirun, slurm or plugin.
    launcher: str

    def variables(self) -> dict[str, str]:
        """Returns the variables that PyTorch's own rendezvous ``env://`` reads."""
        found = {"RANK": str(self.rank), "WORLD_SIZE": str(self.world_size), "MASTER_PORT": str(self.master_port)}
        if self.local_rank is not None:
            found["LOCAL_RANK"] = str(self.local_rank)
        if self.master_address is not None:
            found["MASTER_ADDR"] = self.master_address
        return found


#: Variables for rank, number of ranks, and rank on the host, by launcher. The first pair that is set counts.
_LAUNCHERS = (
    ("environment", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def hosts(environ: Mapping[str, str]) -> list[str]:
    """Returns the names in ``HOSTS``, in the order of their ranks."""
    return [name for name in re.split(r"[,\s]+", environ.get("HOSTS", "")) if name]


def _of_plugin(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Returns rank and number of ranks where only ``HOSTS`` and ``HOSTNAME`` or ``RANK`` are set."""
    names = hosts(environ)
    if len(names) < 2:
        return None
    rank = _number(environ, "RANK", 0, MAX_RANKS - 1)
    host = environ.get("HOSTNAME", "").strip()
    if rank is None:
        if host not in names:
            raise SettingError(f"HOSTNAME={host} is not in HOSTS={','.join(names)}, and RANK is not set: set one of them")
        rank = names.index(host)
    return rank, len(names)


def first_host(nodelist: str) -> str:
    """Returns the first host of a list as Slurm writes it: ``node[03-10,12],login`` begins with ``node03``."""
    match = re.match(r"([^,\[]*)(?:\[([^\]]*)\]([^,\[]*))?", nodelist.strip())
    if match is None:
        return ""
    head, numbers, tail = match[1], match[2], match[3]
    if numbers is None:
        return head
    return head + re.split(r"[,-]", numbers)[0] + (tail or "")


def _master(environ: Mapping[str, str], launcher: str, world_size: int) -> str | None:
    address = _text(environ, "MASTER_ADDR")
    if address is not None:
        return address.strip("[]")
    if launcher == "slurm":
        nodes = _text(environ, "SLURM_STEP_NODELIST") or _text(environ, "SLURM_JOB_NODELIST")
        return (first_host(nodes) or None) if nodes else None
    if launcher == "mpirun":
        local = _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, MAX_RANKS)
        return "127.0.0.1" if local == world_size else None
    return None


def _port(environ: Mapping[str, str], launcher: str) -> int:
    port = _number(environ, "MASTER_PORT", 1, 65_535)
    if port is not None:
        return port
    job = _number(environ, "SLURM_JOB_ID", 0, 2**32 - 1) if launcher == "slurm" else None
    # Two jobs on one node get different ports.
    return DEFAULT_PORT if job is None else 20_000 + job % 10_000


def find_place(environ: Mapping[str, str]) -> Place | None:
    """Finds the place of this process. None: no launcher says it.

    Raises a SettingError for a variable that contradicts itself or another one.
    """
    for launcher, rank_name, size_name, local_name in _LAUNCHERS:
        rank = _number(environ, rank_name, 0, MAX_RANKS - 1)
        size = _number(environ, size_name, 1, MAX_RANKS)
        if rank is None or size is None:
            continue
        # A batch script has the variables of its first task, and is no task.
        if launcher == "slurm" and _text(environ, "SLURM_STEP_ID") is None and _text(environ, "SLURM_STEPID") is None:
            continue
        if rank >= size:
            raise SettingError(f"{rank_name}={rank} is not below {size_name}={size}: ranks are counted from 0")
        if launcher == "environment" and _text(environ, "TORCHELASTIC_RUN_ID"):
            launcher = "torchrun"
        local = _number(environ, local_name, 0, MAX_RANKS - 1)
        return Place(rank, size, local, _master(environ, launcher, size), _port(environ, launcher), launcher)
    found = _of_plugin(environ)
    if found is None:
        return None
    rank, size = found
    if rank >= size:
        raise SettingError(f"RANK={rank} is not below the number of HOSTS, {size}: ranks are counted from 0")
    return Place(rank, size, None, _master(environ, "plugin", size), _port(environ, "plugin"), "plugin")


@dataclass(frozen=True)
class Settings:
    """What a user may decide about the job. Every field has a variable; docs/pytorch.md lists them."""

    #: False: srv6d is not asked, and PyTorch does what it does without this package.
    enabled: bool = True
    #: True: a job that cannot be coordinated is an error. False: it runs over the paths that the fabric chooses.
    required: bool = False
    #: Path of the management socket. None: the client's default.
    socket: str | None = None
    #: Id of the job. None: of Slurm or torchrun, or drawn by rank 0.
    job: str | None = None
    #: Who sends to whom; one of PATTERNS.
    pattern: str = "all-to-all"
    tenant: str | None = None
    priority: int = 0
    #: More keys of the job, as the management socket knows them: detour, seed, pairs, spines, planes, demand.
    more: Mapping[str, Any] = field(default_factory=dict)
    #: Name of this host in the topology.
    host: str | None = None
    #: Addresses and prefixes of this rank. Empty: those of the interface.
    addresses: tuple[str, ...] = ()
    #: Network interface of the traffic. None: where the host of the rendezvous is reached.
    interface: str | None = None
    #: Longest wait for the other ranks, and again for the paths, in seconds.
    timeout: float = 60.0
    #: Length of a lease in seconds. None: the daemon watches the process.
    lease: float | None = None
    #: Which variables of NCCL and gloo are set; a subset of HINTS.
    hints: tuple[str, ...] = HINTS
    #: Traffic class of RDMA packets, 0 to 255. None: NCCL's own.
    traffic_class: int | None = None

    @staticmethod
    def from_environ(environ: Mapping[str, str]) -> "Settings":
        """Reads the variables. Raises a SettingError that names the first one that cannot be used."""
        return Settings(
            enabled=_switch(environ, "SRV6D_ENABLED", default=True),
            required=_switch(environ, "SRV6D_REQUIRED", default=False),
            socket=_text(environ, "SRV6D_SOCKET"),
            job=_name(environ, "SRV6D_JOB"),
            pattern=_one_of(environ, "SRV6D_PATTERN", PATTERNS, "all-to-all"),
            tenant=_name(environ, "SRV6D_TENANT"),
            priority=_number(environ, "SRV6D_PRIORITY", 0, 7) or 0,
            more=_more(environ),
            host=_text(environ, "SRV6D_HOST"),
            addresses=_addresses(environ),
            interface=_text(environ, "SRV6D_INTERFACE"),
            timeout=_seconds(environ, "SRV6D_TIMEOUT", 60.0, 1, 3_600),
            lease=_lease(environ),
            hints=_hints(environ),
            traffic_class=_number(environ, "SRV6D_TRAFFIC_CLASS", 0, 255),
        )


def _name(environ: Mapping[str, str], variable: str) -> str | None:
    value = _text(environ, variable)
    if value is not None and not _NAME.fullmatch(value):
        raise SettingError(f"{variable}={value} is not 1 to 64 of A-Z a-z 0-9 . _ -, with a letter or digit in front")
    return value


def _one_of(environ: Mapping[str, str], variable: str, choices: tuple[str, ...], default: str) -> str:
    value = _text(environ, variable) or default
    if value not in choices:
        raise SettingError(f"{variable}={value} is none of {', '.join(choices)}")
    return value


def _more(environ: Mapping[str, str]) -> Mapping[str, Any]:
    value = _text(environ, "SRV6D_JOB_KEYS")
    if value is None:
        return {}
    try:
        keys = json.loads(value)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, dict):
        raise SettingError('SRV6D_JOB_KEYS is no object of JSON, for example {"detour": 2}')
    own = {"id", "generation", "members", "pattern", "tenant", "priority"} & set(keys)
    if own:
        raise SettingError(f"SRV6D_JOB_KEYS has {', '.join(sorted(own))}, which have variables of their own or none")
    return keys


def _addresses(environ: Mapping[str, str]) -> tuple[str, ...]:
    given = [text for text in re.split(r"[,\s]+", environ.get("SRV6D_ADDRESSES", "")) if text]
    for text in given:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise SettingError(f"SRV6D_ADDRESSES: {text} is neither an address nor a prefix") from None
    if len(given) > 8:
        raise SettingError(f"SRV6D_ADDRESSES has {len(given)} addresses; a rank has 8 at most")
    return tuple(given)


def _lease(environ: Mapping[str, str]) -> float | None:
    if _text(environ, "SRV6D_LEASE") in (None, "process"):
        return None
    return _seconds(environ, "SRV6D_LEASE", 60.0, 5, 86_400)


def _hints(environ: Mapping[str, str]) -> tuple[str, ...]:
    value = _text(environ, "SRV6D_HINTS")
    if value is None or value == "1":
        return HINTS
    if value in ("0", "none"):
        return ()
    names = [name for name in re.split(r"[,\s]+", value) if name]
    unknown = [name for name in names if name not in HINTS]
    if unknown:
        raise SettingError(f"SRV6D_HINTS: {', '.join(unknown)} is none of {', '.join(HINTS)}, 0")
    return tuple(names)


#: Variables that may name the interface of the traffic, in the order in which they count.
_INTERFACES = ("BACKEND_INTERFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def find_interface(environ: Mapping[str, str], settings: Settings, place: Place) -> str | None:
    """Returns the interface of the traffic. None: it cannot be told."""
    if settings.interface is not None:
        return settings.interface
    for variable in _INTERFACES:
        name = (_text(environ, variable) or "").lstrip("=")
        # NCCL and gloo also take lists and beginnings of names, which are no single interface.
        if name and (variable == "BACKEND_INTERFACE" or addresses.of_interface(name)):
            return name
    if place.master_address is None:
        return None
    source = addresses.source_towards(place.master_address, place.master_port)
    return None if source is None or source.is_loopback else addresses.interface_of(source)


def find_host(environ: Mapping[str, str], settings: Settings, place: Place) -> str:
    """Returns the name of this host in the topology, found as `srv6d run --plugin-environment` finds it."""
    if settings.host is not None:
        return settings.host
    names, own = hosts(environ), _text(environ, "HOSTNAME")
    if names:
        if own in names:
            return own or ""
        if len(names) == place.world_size:
            return names[place.rank]
    if own is not None:
        return own
    prefix = _text(environ, "HOSTNAME_PREFIX")
    if prefix is not None:
        return f"{prefix}{place.rank:02}"
    return _text(environ, "SLURMD_NODENAME") or socket.gethostname()
