"""A daemon and a store for tests: the daemon speaks the job requests of the management socket, and fails as it is told."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from typing import Any, Callable


class Store:
    """What the ranks of a job share: the methods of PyTorch's stores that the package uses."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._counters: dict[str, int] = {}
        self._lock = threading.Lock()
        #: Raised by every use, once it is set.
        self.fault: Exception | None = None
        #: Every use hangs until this is set.
        self.is_there = threading.Event()
        self.is_there.set()

    def _enter(self) -> None:
        self.is_there.wait()
        if self.fault is not None:
            raise self.fault

    def set(self, key: str, value: str) -> None:
        self._enter()
        with self._lock:
            self._values[key] = value

    def get(self, key: str) -> bytes:
        self._enter()
        with self._lock:
            return self._values[key].encode()

    def add(self, key: str, amount: int) -> int:
        self._enter()
        with self._lock:
            self._counters[key] = self._counters.get(key, 0) + amount
            return self._counters[key]


class Refusal(Exception):
    """A request that the fake daemon refuses."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Daemon:
    """The daemon of one host, on a socket of its own in a thread."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.directory = tempfile.mkdtemp(prefix="srv6d-py-")
        self.path = os.path.join(self.directory, "srv6d.sock")
        #: Every request, without its version.
        self.requests: list[dict[str, Any]] = []
        #: Code and text with which an action is refused.
        self.refusals: dict[str, tuple[str, str]] = {}
        #: Called with every request before it is answered.
        self.before: Callable[[dict[str, Any]], None] = lambda request: None
        #: Bytes that are answered in place of an answer.
        self.raw: bytes | None = None
        #: Looks at a job until its paths are in force.
        self.looks_until_in_force = 2
        #: Prefix whose path stays `waiting`.
        self.stuck: str | None = None
        #: Whether the process that asks can be seen.
        self.sees_processes = True
        #: Ranks on a page of `place`.
        self.page = 64
        self.others: list[Any] = []
        self.members: dict[tuple[str, int], dict[str, Any]] = {}
        self._looks = 0
        self._placed: dict[str, dict[str, Any]] = {}
        self._listener: socket.socket | None = None
        self.start()

    def start(self) -> None:
        """Listens, as after a restart."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(64)
        self._listener = listener
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Ends, and keeps what it knows."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            os.unlink(self.path)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def actions(self) -> list[str]:
        return [request["action"] for request in list(self.requests)]

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            line = b""
            while part := connection.recv(1 << 16):
                line += part
            request = json.loads(line)
            assert request.pop("version") == 1 and request["request"] == "job", request
            self.requests.append(request)
            self.before(request)
            if self.raw is not None:
                answer = self.raw
            else:
                answer = json.dumps({"version": 1, **self._carry_out(request)}).encode() + b"\n"
            try:
                connection.sendall(answer)
            except OSError:
                pass

    def _carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request["action"]
        try:
            if action in self.refusals:
                raise Refusal(*self.refusals[action])
            result, value = getattr(self, f"_{action}")(request)
            return {"result": result, "value": value}
        except Refusal as why:
            refusal = {"invalid_configuration": False, "errors": [str(why)], "code": why.code}
            return {"result": "refused", "value": refusal}

    @staticmethod
    def digest(job: dict[str, Any]) -> str:
        return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()

    def _occupancy(self, request: dict[str, Any]) -> tuple[str, Any]:
        return "occupancy", self.others

    def _place(self, request: dict[str, Any]) -> tuple[str, Any]:
        job = request["job"]
        for index, member in enumerate(job["members"]):
            if member["rank"] != index or not member["addresses"] or set(member) != {"rank", "host", "addresses"}:
                raise Refusal("invalid_job", f"member {member} is wrong")
        placement = {"job": job["id"], "generation": job["generation"], "digest": self.digest(job), "number": "n1",
                     "bound": 1.0, "busiest": 1.0, "busiest_link": "leaf00 -> spine00", "links": [],
                     "shares": [{"job": "other", "links": ["leaf00 -> spine01"]}]}  # fmt: skip
        assignments = [{"rank": one["rank"], "paths": self._paths(job, one)} for one in job["members"]]
        self._placed["n1"] = {"placement": placement, "assignments": assignments}
        return "placed", self._page_of("n1", 0)

    @staticmethod
    def _paths(job: dict[str, Any], member: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"to": other["rank"], "prefix": f"{address}/128", "segments": [f"fcbb:0:1004:{1000 + other['rank']}:1005:fe06::"],
             "via": ["leaf00", "spine00", "leaf01"]}
            for other in job["members"] if other["host"] != member["host"] for address in other["addresses"]
        ]  # fmt: skip

    def _page_of(self, number: str, first: int) -> dict[str, Any]:
        placed = self._placed[number]
        page = placed["assignments"][first : first + self.page]
        end = first + self.page
        following = end if end < len(placed["assignments"]) else None
        return {"placement": placed["placement"], "assignments": page, "next": following}

    def _assignments(self, request: dict[str, Any]) -> tuple[str, Any]:
        return "placed", self._page_of(request["number"], request["first"])

    def _join(self, request: dict[str, Any]) -> tuple[str, Any]:
        job, rank = request["job"], request["rank"]
        if request["placement"]["digest"] != self.digest(job):
            raise Refusal("members_disagree", "the job is not the one that was placed")
        if request["hold"] == "process" and not self.sees_processes:
            raise Refusal("unseen_process", "the process that asks is in another pid namespace: hold by seconds")
        self.members[job["id"], rank] = {**request, "joined": time.monotonic()}
        return "job", self._view(job["id"])

    def _view(self, name: str) -> dict[str, Any]:
        members = {rank: member for (job, rank), member in sorted(self.members.items()) if job == name}
        paths = []
        for rank, member in members.items():
            for path in member["paths"]:
                is_there = self._looks >= self.looks_until_in_force and path["prefix"] != self.stuck
                state = ("in_force", None) if is_there else ("waiting", "the neighbour is not resolved")
                paths.append({"rank": rank, **path, "state": state[0], "why": state[1]})
        return {"id": name, "members": [{"rank": rank} for rank in members], "paths": paths}

    def _show(self, request: dict[str, Any]) -> tuple[str, Any]:
        name = request["job"]
        if not any(job == name for job, _ in self.members):
            raise Refusal("unknown_job", f"there is no job {name} here")
        self._looks += 1
        return "jobs", [self._view(name)]

    def _renew(self, request: dict[str, Any]) -> tuple[str, Any]:
        if (request["job"], request["rank"]) not in self.members:
            raise Refusal("unknown_job", f"there is no job {request['job']} here")
        return "jobs", [self._view(request["job"])]

    def _end(self, request: dict[str, Any]) -> tuple[str, Any]:
        if self.members.pop((request["job"], request["rank"]), None) is None:
            raise Refusal("unknown_rank", "it is not here")
        return "jobs", []
