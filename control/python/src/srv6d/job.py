"""One rank's part of a job at the daemon of its host."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Callable, Mapping, Sequence

from .client import Broken, Client, DaemonError, NotRunning, Refused

_log = logging.getLogger("srv6d")

#: Seconds between two looks whether paths are in force.
_LOOK = 0.2

#: Length of a lease in seconds, where the daemon cannot see the process and the user says nothing.
DEFAULT_LEASE = 60.0

#: Longest wait for the answer of a request that changes tables, in seconds.
PATIENCE = 15.0

#: Longest wait for a placement, in seconds.
PLACING_PATIENCE = 120.0

#: Refusals that another attempt may overcome.
_PASSING = ("busy", "topology_failed", "stopping", "unknown_placement")


class Placement:
    """A whole job as the daemon of the leader has placed it."""

    def __init__(self, placement: Mapping[str, Any], paths: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
        #: The daemon's summary, which every member hands to its own daemon unchanged.
        self.placement = placement
        #: The paths of every rank.
        self.paths = paths


def occupancy(client: Client) -> list[Any]:
    """Returns what the other jobs of a daemon occupy. Raises a DaemonError if the daemon does not take part in jobs."""
    value = client.value("job", "occupancy", action="occupancy")
    return list(value) if isinstance(value, list) else []


def place(client: Client, job: Mapping[str, Any], others: Sequence[Any], until: float) -> Placement:
    """Has the whole job placed. ``until``: the time of ``time.monotonic()`` after which no further attempt begins."""
    while True:
        try:
            return _place_once(client, job, others)
        except (Refused, NotRunning) as why:
            is_passing = isinstance(why, NotRunning) or why.code in _PASSING
            if not is_passing or time.monotonic() + 1.0 > until:
                raise
            _log.info("placing again: %s", why)
            time.sleep(1.0)


def _place_once(client: Client, job: Mapping[str, Any], others: Sequence[Any]) -> Placement:
    value = client.value("job", "placed", patience=PLACING_PATIENCE, action="place", job=job, others=others)
    paths: dict[int, Sequence[Mapping[str, Any]]] = {}
    try:
        placement = value["placement"]
        # Every page has at least one more rank.
        for _ in job["members"]:
            paths.update({int(entry["rank"]): list(entry["paths"]) for entry in value["assignments"]})
            first = value.get("next")
            if first is None:
                break
            value = client.value("job", "placed", action="assignments", number=placement["number"], first=first)
    except (AttributeError, KeyError, TypeError, ValueError) as why:
        raise Broken(f"the daemon behind {client.path} answers a placement that cannot be read: {why!r}") from None
    return Placement(placement, paths)


class Member:
    """A rank that has joined its job at a daemon.

    It ends by `end`, or when the daemon sees that the process is gone. Where the daemon cannot see it, in another
    container, a thread renews a lease.
    """

    def __init__(
        self, client: Client, job: Mapping[str, Any], placement: Mapping[str, Any], rank: int,
        paths: Sequence[Mapping[str, Any]], lease: float | None,
    ) -> None:  # fmt: skip
        self.client = client
        #: The job: its id, generation, pattern and members.
        self.job = job
        #: The summary of the placement.
        self.placement = placement
        #: Rank of this member.
        self.rank = rank
        #: Paths of this rank, as placed.
        self.paths = paths
        self._lease = lease
        self._process = os.getpid()
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    @property
    def id(self) -> str:
        """Id of the job."""
        return str(self.job["id"])

    def join(self) -> None:
        """Joins, and renews the lease from now on where there is one.

        Raises a DaemonError; for a daemon that is not there after PATIENCE only.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._join()
                break
            except (Refused, NotRunning) as why:
                code = why.code if isinstance(why, Refused) else None
                if code == "unseen_process" and self._lease is None:
                    _log.info("the daemon cannot see this process: the job is held by a lease of %.0f s", DEFAULT_LEASE)
                    self._lease = DEFAULT_LEASE
                elif (code in _PASSING or isinstance(why, NotRunning)) and time.monotonic() < until:
                    # A daemon that restarts is back within seconds.
                    time.sleep(_LOOK)
                else:
                    raise
        if self._lease is not None and self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="srv6d-lease", daemon=True)
            self._renewing.start()

    def _join(self) -> None:
        hold: Any = "process" if self._lease is None else {"seconds": max(5, int(self._lease))}
        self.client.value("job", "job", patience=PATIENCE, action="join", job=self.job, placement=self.placement,
                          rank=self.rank, paths=self.paths, hold=hold)  # fmt: skip

    def _renew(self) -> None:
        pause = (self._lease or DEFAULT_LEASE) / 3
        trouble: str | None = None
        while not self._ended.wait(pause):
            try:
                self._renew_once()
                if trouble is not None:
                    _log.warning("the lease of job %s is renewed again", self.id)
                trouble = None
            except DaemonError as why:
                # A daemon that restarts keeps its ports' tables; the lease lasts for two more attempts.
                if trouble is None:
                    _log.warning("the lease of job %s cannot be renewed: %s", self.id, why)
                trouble = str(why)

    def _renew_once(self) -> None:
        try:
            self.client.ask("job", action="renew", job=self.id, rank=self.rank)
        except Refused as why:
            if why.code not in ("unknown_job", "unknown_rank") or self._ended.is_set():
                raise
            _log.warning("the daemon has lost job %s: rank %d joins again", self.id, self.rank)
            self._join()

    def waiting(self) -> dict[str, str]:
        """Returns the prefixes whose paths are not in force, each with the reason. Raises a DaemonError."""
        jobs = self.client.value("job", "jobs", action="show", job=self.id)
        try:
            shown = [path for job in jobs for path in job.get("paths", []) if path.get("rank") == self.rank]
        except (AttributeError, TypeError) as why:
            raise Broken(f"the daemon behind {self.client.path} shows a job that cannot be read: {why!r}") from None
        states = {str(path.get("prefix")): path for path in shown}
        missing: dict[str, str] = {}
        for path in self.paths:
            state = states.get(str(path["prefix"]), {})
            if state.get("state") != "in_force":
                missing[str(path["prefix"])] = str(state.get("why") or state.get("state") or "the daemon does not show it")
        return missing

    def wait(self, until: float, gives_up: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """Waits until all paths are in force. Returns those that are not at the time ``until``, each with the reason."""
        while True:
            try:
                missing = self.waiting()
            except Refused as why:
                missing = {"all paths": str(why)}
                if why.code in ("unknown_job", "unknown_rank"):
                    self._try_to_join()
            except DaemonError as why:
                missing = {"all paths": str(why)}
            if not missing or time.monotonic() >= until or gives_up():
                return missing
            self._ended.wait(_LOOK)

    def _try_to_join(self) -> None:
        try:
            self._join()
        except DaemonError as why:
            _log.info("rank %d cannot join again: %s", self.rank, why)

    def end(self) -> None:
        """Ends this rank's part: its paths go at once. A process that was forked from the rank ends nothing."""
        if self._ended.is_set() or os.getpid() != self._process:
            return
        self._ended.set()
        try:
            self.client.ask("job", patience=PATIENCE, action="end", job=self.id, rank=self.rank)
        except Refused as why:
            if why.code not in ("unknown_job", "unknown_rank"):
                _log.warning("job %s has not been ended: %s", self.id, why)
        except DaemonError as why:
            _log.info("job %s ends with its lease: %s", self.id, why)

    def table(self) -> str:
        """Returns the paths of this rank as a table for people."""
        names = {int(member["rank"]): str(member["host"]) for member in self.job["members"]}
        rows = [("TO", "PREFIX", "SEGMENTS", "VIA")]
        for path in self.paths:
            to = int(path["to"])
            rows.append((f"{to} {names.get(to, '')}".strip(), str(path["prefix"]), ", ".join(map(str, path["segments"])),
                         " > ".join(map(str, path.get("via", [])))))  # fmt: skip
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
