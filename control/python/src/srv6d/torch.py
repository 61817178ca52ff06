"""``torch.distributed.init_process_group``, with the paths of the job placed before the first packet.

::

    import srv6d.torch
    srv6d.torch.init_process_group("nccl")

Everything that PyTorch takes is handed on to it. ``TORCH_SRV6D=1`` does the same for a program that is not changed: PyTorch 2.5 and
later load `autoload` with ``import torch``; for others there is ``torchrun -m srv6d train.py``.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
from datetime import timedelta
from typing import Any, Callable

from . import hints
from .coordinate import Outcome, coordinate
from .environment import Place, SettingError, Settings, find_place, is_asked_for

__all__ = ["autoload", "current", "destroy_process_group", "init_process_group", "install"]

_log = logging.getLogger("srv6d")

#: PyTorch's own limit for operations of a process group, used where it does not say one.
_DEFAULT_TIMEOUT = timedelta(minutes=30)


class NotCoordinated(RuntimeError):
    """The job is not coordinated, and ``SRV6D_REQUIRED`` is set."""


class _State:
    """What this module keeps between calls."""

    #: The last outcome.
    outcome: Outcome | None = None
    #: How often a process group was made; all ranks count alike.
    groups = 0
    #: PyTorch's functions, where they are replaced by those of this module.
    torch_init: Callable[..., Any] | None = None
    torch_destroy: Callable[..., Any] | None = None


def _distributed() -> Any:
    try:
        module: Any = importlib.import_module("torch.distributed")
    except ImportError as why:
        raise ImportError(f"srv6d.torch needs PyTorch, which cannot be imported: {why}") from why
    if not module.is_available():
        raise RuntimeError("this PyTorch is built without torch.distributed")
    return module


def current() -> Outcome | None:
    """Returns what has become of the last attempt to coordinate a job. None: there was none, or it has ended."""
    return _State.outcome


def init_process_group(
    backend: Any = None, init_method: str | None = None, timeout: timedelta | None = None, world_size: int = -1,
    rank: int = -1, store: Any = None, group_name: str = "", *more: Any, settings: Settings | None = None, **others: Any,
) -> None:  # fmt: skip
    """Makes PyTorch's default process group, with the parameters of ``torch.distributed.init_process_group``.

    Before that, the ranks have their paths placed together. Where that cannot be done, a warning says why, and PyTorch
    goes on alone.

    ``settings``: in place of the variables in the environment.

    Raises a SettingError if a variable of srv6d cannot be used, NotCoordinated if ``SRV6D_REQUIRED`` is set and the job
    cannot be coordinated, and what PyTorch raises.
    """
    distributed = _distributed()
    torch_init = _State.torch_init or distributed.init_process_group
    given = {"init_method": init_method, "world_size": world_size, "rank": rank, "store": store}
    settings = settings or Settings.from_environ(os.environ)
    if timeout is not None:
        others["timeout"] = timeout
    if more:
        # What PyTorch takes by position behind the name of the group.
        others.update(zip(("pg_options", "device_id"), more))
    if settings.enabled:
        outcome = _prepare(distributed, backend, timeout, settings, given)
        _report(outcome, settings)
    try:
        torch_init(backend, group_name=group_name, **given, **others)
    except BaseException:
        _end()
        raise


def _prepare(
    distributed: Any, backend: Any, timeout: timedelta | None, settings: Settings, given: dict[str, Any]
) -> Outcome:
    """Finds the store and coordinates the job on it. Changes ``given`` so that PyTorch uses the same store."""
    _end()
    if str(backend).lower() == "mpi":
        return Outcome(why="the backend mpi has no store over which the ranks could agree")
    try:
        place = find_place(os.environ)
    except SettingError as why:
        if given["store"] is None and given["init_method"] in (None, "env://"):
            raise
        _log.info("%s", why)
        place = None
    place = _with_arguments(place, given)
    if given["store"] is None:
        if given["init_method"] in (None, "env://"):
            if place is None:
                return Outcome(why="no launcher says the rank: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or use torchrun")
            if place.master_address is None:
                return Outcome(why=f"{place.launcher} does not say where rank 0 is: set MASTER_ADDR on all ranks")
            for name, value in place.variables().items():
                os.environ.setdefault(name, value)
            # PyTorch takes an IPv6 address without brackets only.
            os.environ["MASTER_ADDR"] = place.master_address
        place = _meet(place, timeout, given)
    if place is None:
        return Outcome(why="PyTorch is given a store without a rank: give rank and world_size, too")
    if place.world_size < 2:
        return Outcome(why="the job has one rank: there is no path to place", is_needless=True)
    _State.groups += 1
    outcome = coordinate(given["store"], place, settings, os.environ, str(_State.groups))
    _State.outcome = outcome
    if outcome.is_placed:
        os.environ.update(hints.of_job(settings, os.environ, outcome.interface, outcome.addresses))
        _check_gloo(backend, outcome)
    if outcome.member is not None:
        atexit.register(outcome.member.end)
    return outcome


def _check_gloo(backend: Any, outcome: Outcome) -> None:
    """Warns if gloo is about to tell the peers an address to which the job has no path."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    if interface is None or interface != outcome.interface or (backend is not None and "gloo" not in str(backend).lower()):
        return
    address = hints.passed_by(interface, outcome.addresses)
    if address is not None:
        _log.warning("gloo sends to %s on %s, and the job has no path there: add it to SRV6D_ADDRESSES", address, interface)


def _with_arguments(place: Place | None, given: dict[str, Any]) -> Place | None:
    """Returns the place as the caller's arguments say it, which count more than variables."""
    rank, size = int(given["rank"]), int(given["world_size"])
    if rank < 0 and size < 0:
        return place
    rank = rank if rank >= 0 else (place.rank if place else -1)
    size = size if size > 0 else (place.world_size if place else -1)
    if not 0 <= rank < size:
        return place
    if place is None:
        return Place(rank, size, None, None, 29_500, "arguments")
    return Place(rank, size, place.local_rank, place.master_address, place.master_port, place.launcher)


def _meet(place: Place | None, timeout: timedelta | None, given: dict[str, Any]) -> Place | None:
    """Does PyTorch's rendezvous, and leaves its store, rank and size in ``given``."""
    rendezvous = importlib.import_module("torch.distributed.rendezvous").rendezvous
    url = given["init_method"] or "env://"
    limit = timeout or _DEFAULT_TIMEOUT
    store, rank, size = next(iter(rendezvous(url, given["rank"], given["world_size"], timeout=limit)))
    store.set_timeout(limit)
    given.update(init_method=None, store=_prefixed(store, "default_pg"), rank=rank, world_size=size)
    known = place or Place(rank, size, None, None, 29_500, "arguments")
    return Place(rank, size, known.local_rank, known.master_address, known.master_port, known.launcher)


def _prefixed(store: Any, prefix: str) -> Any:
    return importlib.import_module("torch.distributed").PrefixStore(prefix, store)


def _report(outcome: Outcome, settings: Settings) -> None:
    """Says what has become of the job."""
    if outcome.complete and outcome.member is not None:
        _log.info("job %s: the paths of all %d ranks are in force", outcome.member.id, len(outcome.member.job["members"]))
        _log.debug("paths of rank %d:\n%s", outcome.member.rank, outcome.member.table())
        return
    if outcome.is_needless:
        _log.info("%s", outcome.why)
        return
    texts = [outcome.why] if outcome.why else []
    texts += [f"rank {rank}: {why}" for rank, why in outcome.missing.items() if why != outcome.why]
    said = "; ".join(texts)
    if settings.required:
        _end()
        raise NotCoordinated(f"the job is not coordinated by srv6d, and SRV6D_REQUIRED is set: {said}")
    if outcome.member is None:
        _log.warning("srv6d does not steer this rank, its traffic takes the paths that the fabric chooses: %s", said)
    else:
        _log.warning("job %s goes on, and not all of its paths are in force: %s", outcome.member.id, said)


def _end() -> None:
    """Ends this rank's part of the job, if it has one."""
    outcome, _State.outcome = _State.outcome, None
    if outcome is not None and outcome.member is not None:
        outcome.member.end()
        atexit.unregister(outcome.member.end)


def destroy_process_group(group: Any = None) -> None:
    """Ends PyTorch's process group and, with the default group, the job. Its paths go at once."""
    distributed = _distributed()
    torch_destroy = _State.torch_destroy or distributed.destroy_process_group
    is_default = group is None or group is getattr(getattr(distributed, "group", None), "WORLD", None)
    try:
        torch_destroy(group)
    finally:
        if is_default:
            _end()


def install() -> None:
    """Puts this module's functions in the place of PyTorch's own. It is harmless to do so twice."""
    if _State.torch_init is not None:
        return
    distributed = _distributed()
    _State.torch_init, _State.torch_destroy = distributed.init_process_group, distributed.destroy_process_group
    modules = [distributed, getattr(distributed, "distributed_c10d", None)]
    for module in (module for module in modules if module is not None):
        module.init_process_group = init_process_group
        module.destroy_process_group = destroy_process_group


def autoload() -> None:
    """Entry point that PyTorch 2.5 and later call at the end of ``import torch``. Does nothing without ``TORCH_SRV6D=1``."""
    try:
        if is_asked_for(os.environ):
            install()
    except Exception as why:  # an import must not fail for this
        _log.warning("TORCH_SRV6D has no effect: %s", why)
