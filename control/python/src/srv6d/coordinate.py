"""Makes a job out of ranks that share a store: rank 0 has it placed, and every rank joins at its own daemon.

```text
every rank   member/RANK  who I am, what my daemon's other jobs occupy
rank 0       pulse        signs of life until the summary
rank 0       verdict      whether the job is placed; with it job, placement, paths/RANK
every rank   ready/RANK   which of my paths are not in force
rank 0       summary      which ranks are not ready
```

Nothing of this raises for a daemon, a store or a peer that fails: the outcome says why, and the job goes on over the paths
that the fabric chooses. Every wait has an end.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from . import addresses, environment, job as jobs
from .board import Abandoned, Board, Listener, Pulse, Store, StoreLost
from .client import Client, DaemonError
from .environment import Place, Settings
from .job import Member

_log = logging.getLogger("srv6d")

#: Largest number of ranks that a summary names.
_NAMED = 16


@dataclass
class Outcome:
    """What has become of the attempt to coordinate a job."""

    #: This rank's part of the job. None: its traffic takes the paths that the fabric chooses.
    member: Member | None = None
    #: Why the job is not coordinated, or why this rank has no part in it. None: all is well as far as this rank knows.
    why: str | None = None
    #: Ranks whose paths were not in force in time, each with the reason.
    missing: Mapping[str, str] = field(default_factory=dict)
    #: Interface of the traffic, if it is known.
    interface: str | None = None
    #: Addresses and prefixes of this rank that its peers send to.
    addresses: Sequence[str] = ()
    #: Whether the job is placed, so that every rank knows of it.
    is_placed: bool = False
    #: Whether there is nothing to coordinate, because no rank sends to another host.
    is_needless: bool = False

    @property
    def complete(self) -> bool:
        """Whether the paths of all ranks are in force."""
        return self.member is not None and self.why is None and not self.missing


class _NotCoordinated(Exception):
    """The job is not coordinated, for the reason in the text."""


class _Needless(_NotCoordinated):
    """There is nothing to coordinate, for the reason in the text."""


def coordinate(store: Store, place: Place, settings: Settings, environ: Mapping[str, str], name: str = "0") -> Outcome:
    """Coordinates the job of the ranks that share ``store``. All of them call this, with the same ``name``.

    Returns after about four times ``settings.timeout`` and three minutes at the latest; within seconds if all is well.
    """
    board = Board(store, name)
    conversation = _Conversation(board, place, settings, environ)
    thread = threading.Thread(target=conversation.run, name="srv6d-coordinate", daemon=True)
    thread.start()
    thread.join(4 * (settings.timeout + jobs.PATIENCE) + jobs.PLACING_PATIENCE)
    if thread.is_alive():
        # A store that is gone may hold the thread inside a call for ever.
        board.abandon()
        return Outcome(why="the job's store does not answer", interface=conversation.outcome.interface)
    return conversation.outcome


class _Conversation:
    """One rank's side of the conversation on the board."""

    def __init__(self, board: Board, place: Place, settings: Settings, environ: Mapping[str, str]) -> None:
        self.board = board
        self.place = place
        self.settings = settings
        self.environ = environ
        self.client = Client(settings.socket)
        self.outcome = Outcome()
        #: Set as soon as it is known why the job cannot be joined here.
        self.trouble: str | None = None

    def run(self) -> None:
        """Talks, and leaves the result in ``outcome``."""
        try:
            self._talk()
        except Abandoned:
            pass
        except (_NotCoordinated, StoreLost) as why:
            self.outcome.why = str(why)
            self.outcome.is_needless = isinstance(why, _Needless)
        except Exception as why:  # training must go on whatever is wrong here
            _log.exception("a defect of srv6d's package")
            self.outcome.why = f"a defect of this package: {why!r}"
        if self.board.is_abandoned and self.outcome.member is not None:
            self.outcome.member.end()

    def _talk(self) -> None:
        me = self._describe()
        self.board.pin(f"member/{self.place.rank}", me)
        self.board.count("here")
        if self.place.rank != 0:
            self._follow(me)
            return
        with Pulse(self.board):
            self._lead(me)
            self._follow(me)

    def _describe(self) -> dict[str, Any]:
        """Says who this rank is, and what its daemon knows."""
        interface = environment.find_interface(self.environ, self.settings, self.place)
        self.outcome.interface = interface
        given = list(self.settings.addresses)
        own = given or [str(address) for address in (addresses.of_interface(interface) if interface else [])][:8]
        self.outcome.addresses = own
        me = {
            "rank": self.place.rank,
            "host": environment.find_host(self.environ, self.settings, self.place),
            "addresses": own,
            "size": self.place.world_size,
            "terms": self._terms(),
            "trouble": None,
            "occupancy": [],
        }
        if not own:
            what = f"interface {interface} has no address" if interface else "it cannot be told which interface the traffic takes"
            me["trouble"] = f"{what} that other hosts can send to: set SRV6D_INTERFACE or SRV6D_ADDRESSES"
            self.trouble = str(me["trouble"])
            return me
        try:
            # One rank of a host is enough, and the lists are long.
            occupied = jobs.occupancy(self.client)
            me["occupancy"] = occupied if not self.place.local_rank else []
        except DaemonError as why:
            self.trouble = str(why)
            me["daemon"] = self.trouble
        return me

    def _terms(self) -> dict[str, Any]:
        """Returns what all ranks must agree on, apart from the members."""
        settings = self.settings
        terms = {"pattern": settings.pattern, "priority": settings.priority, **settings.more}
        if settings.tenant is not None:
            terms["tenant"] = settings.tenant
        return terms

    # What rank 0 does.

    def _lead(self, me: Mapping[str, Any]) -> None:
        """Collects the members, has the job placed, and pins what came of it."""
        try:
            if self.trouble is not None:
                raise _NotCoordinated(self.trouble)
            job, others = self._job(self._members(), me)
            until = time.monotonic() + self.settings.timeout
            placed = jobs.place(self.client, job, others, until)
            for rank in range(self.place.world_size):
                self.board.pin(f"paths/{rank}", placed.paths.get(rank, []))
            self.board.pin("job", job)
            self.board.pin("placement", placed.placement)
        except (_NotCoordinated, DaemonError) as why:
            self.board.pin("verdict", {"why": f"rank 0: {why}", "needless": isinstance(why, _Needless)})
        except StoreLost:
            raise
        except Exception as why:  # the others must not wait for a rank that has failed
            self.board.pin("verdict", {"why": f"rank 0: a defect of this package: {why!r}"})
            raise
        else:
            self.board.pin("verdict", {"why": None})
            self._say_placed(job, placed.placement)

    def _say_placed(self, job: Mapping[str, Any], placement: Mapping[str, Any]) -> None:
        _log.info("job %s, generation %s, is placed: %d ranks, busiest link %s with %s, bound %s", job["id"],
                  job["generation"], len(job["members"]), placement.get("busiest_link"), placement.get("busiest"),
                  placement.get("bound"))  # fmt: skip
        for share in placement.get("shares") or []:
            _log.info("job %s shares %s with job %s", job["id"], ", ".join(share.get("links", [])), share.get("job"))

    def _members(self) -> list[Mapping[str, Any]]:
        """Waits for all ranks, and returns what they say of themselves, by rank."""
        size = self.place.world_size
        until = time.monotonic() + self.settings.timeout
        if not self.board.wait(until, lambda: self.board.count("here", 0) >= size):
            absent = [rank for rank in range(size) if not self.board.has(f"member/{rank}")]
            raise _NotCoordinated(f"{_ranks(absent)} did not come within {self.settings.timeout:.0f} s")
        return [self._member(rank) for rank in range(size)]

    def _member(self, rank: int) -> Mapping[str, Any]:
        said = self.board.read(f"member/{rank}")
        is_right = (
            isinstance(said, dict)
            and said.get("rank") == rank
            and isinstance(said.get("host"), str)
            and isinstance(said.get("addresses"), list)
            and isinstance(said.get("terms"), dict)
            and isinstance(said.get("occupancy"), list)
        )
        if not is_right:
            raise _NotCoordinated(f"rank {rank} does not say who it is: use the same version of the package on all hosts")
        if said.get("trouble"):
            raise _NotCoordinated(f"rank {rank} on {said['host']}: {said['trouble']}")
        if said.get("size") != self.place.world_size:
            raise _NotCoordinated(f"rank {rank} knows of {said.get('size')} ranks, rank 0 of {self.place.world_size}")
        terms = self._terms()
        for key in sorted({*terms, *said["terms"]}):
            if terms.get(key) != said["terms"].get(key):
                raise _NotCoordinated(f"the ranks disagree about {key}: rank {rank} says {said['terms'].get(key)!r}, "
                                      f"rank 0 {terms.get(key)!r}: set the same variables on all hosts")  # fmt: skip
        return dict(said)

    def _job(self, members: list[Mapping[str, Any]], me: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Returns the job, and what other jobs occupy."""
        if len({member["host"] for member in members}) < 2:
            raise _Needless(f"all ranks are on host {me['host']}: there is no path to place")
        others = [entry for member in members for entry in member["occupancy"] if isinstance(entry, dict)]
        name = self.settings.job or _id(self.environ)
        known = [entry["generation"] for entry in others if entry.get("id") == name and isinstance(entry.get("generation"), int)]
        job = {
            "id": name,
            # A job that starts again replaces itself.
            "generation": max(known, default=0) + 1,
            **self._terms(),
            "members": [{key: member[key] for key in ("rank", "host", "addresses")} for member in members],
        }
        return job, others

    def _summarise(self) -> None:
        """Waits until all ranks are ready, and pins those that are not."""
        size = self.place.world_size
        # A rank that joins late says what it misses as much later than this one.
        until = time.monotonic() + self.settings.timeout + jobs.PATIENCE
        all_there = self.board.wait(until, lambda: self.board.count("settled", 0) >= size)
        missing: dict[str, str] = {}
        if not all_there or self.board.count("troubled", 0):
            for rank in range(size):
                if not self.board.has(f"ready/{rank}"):
                    missing[str(rank)] = "says nothing"
                elif why := self.board.read_object(f"ready/{rank}").get("why"):
                    missing[str(rank)] = str(why)
        self.board.pin("summary", {"missing": dict(list(missing.items())[:_NAMED]), "count": len(missing)})

    # What every rank does, rank 0 too.

    def _follow(self, me: Mapping[str, Any]) -> None:
        """Joins the job that rank 0 has had placed, and waits until all ranks are ready."""
        # The leader's own waits are bounded, and it gives signs of life meanwhile.
        listener = Listener(self.board, self.settings.timeout)
        far = time.monotonic() + 3 * self.settings.timeout + jobs.PLACING_PATIENCE
        if not self.board.wait(far, lambda: self.board.has("verdict"), listener.is_silent) or not self.board.has("verdict"):
            raise _NotCoordinated(self._silence(listener))
        verdict = self.board.read_object("verdict")
        if verdict.get("why"):
            raise (_Needless if verdict.get("needless") else _NotCoordinated)(str(verdict["why"]))
        self.outcome.is_placed = True
        why = self._take_part(me)
        self.outcome.why = why
        self.board.pin(f"ready/{self.place.rank}", {"why": why})
        if why:
            self.board.count("troubled")
        self.board.count("settled")
        if self.place.rank == 0:
            self._summarise()
        far = time.monotonic() + 2 * (self.settings.timeout + jobs.PATIENCE)
        if not self.board.wait(far, lambda: self.board.has("summary"), listener.is_silent) or not self.board.has("summary"):
            self.outcome.missing = {"0": self._silence(listener)}
            return
        missing = self.board.read_object("summary").get("missing")
        self.outcome.missing = missing if isinstance(missing, dict) else {}

    def _silence(self, listener: Listener) -> str:
        if listener.has_begun:
            return f"rank 0 has died or hangs: no sign of it for {Listener.PATIENCE:.0f} s"
        return f"rank 0 did not come within {self.settings.timeout:.0f} s"

    def _take_part(self, me: Mapping[str, Any]) -> str | None:
        """Joins, and waits until the paths of this rank are in force. Returns why they are not."""
        if self.trouble is not None:
            return self.trouble
        rank = self.place.rank
        job, placement = self.board.read_object("job"), self.board.read_object("placement")
        paths = self.board.read(f"paths/{rank}")
        why = self._disagrees(job, me)
        if why is not None:
            return why
        if not isinstance(paths, list) or not all(isinstance(path, dict) and "prefix" in path for path in paths):
            return "rank 0 has handed out paths that cannot be read: use the same version of the package on all hosts"
        member = Member(self.client, job, placement, rank, paths, self.settings.lease)
        try:
            member.join()
        except DaemonError as error:
            return str(error)
        self.outcome.member = member
        missing = member.wait(time.monotonic() + self.settings.timeout, lambda: self.board.is_abandoned)
        if not missing:
            return None
        first = [f"{prefix}: {reason}" for prefix, reason in list(missing.items())[:3]]
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return f"{len(missing)} of {len(member.paths)} paths are not in force: {'; '.join(first)}{more}"

    def _disagrees(self, job: Mapping[str, Any], me: Mapping[str, Any]) -> str | None:
        """Returns why the job of rank 0 is not the job that this rank is a member of."""
        members = job.get("members")
        if not isinstance(members, list) or len(members) != self.place.world_size:
            return f"rank 0 has started a job with other members than the {self.place.world_size} ranks that this one knows of"
        entry = {key: me[key] for key in ("rank", "host", "addresses")}
        if members[self.place.rank] != entry:
            return f"rank 0 has this rank as {members[self.place.rank]}, and it is {entry}"
        wrong = [key for key, value in self._terms().items() if job.get(key) != value]
        if self.settings.job is not None and job.get("id") != self.settings.job:
            wrong.append("id")
        if wrong:
            return f"rank 0 has started a job with another {', '.join(wrong)} than this rank knows"
        return None


def _ranks(ranks: list[int]) -> str:
    named = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {named}{more}"


def _id(environ: Mapping[str, str]) -> str:
    """Returns an id for a job that has none: of Slurm's step, of torchrun, or a new one."""
    slurm, step = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", "")
    if slurm.isdigit():
        return f"slurm-{slurm}.{step}" if step.isdigit() else f"slurm-{slurm}"
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    # torchrun says `none` where nobody has named the run.
    fit = "".join(letter if letter.isascii() and letter.isalnum() or letter in "._-" else "-" for letter in run)[:48]
    if run not in ("", "none"):
        return f"torchrun-{fit}"
    return f"{socket.gethostname()[:32] or 'job'}-{os.getpid()}-{secrets.token_hex(4)}"
