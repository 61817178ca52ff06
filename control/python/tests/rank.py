"""A rank of a job, for tests in network namespaces: joins, adds up a number of all ranks, and prints what it knows as JSON.

With `torch` as its argument it uses PyTorch and gloo. With `hook` it calls PyTorch's own functions, which TORCH_SRV6D=1 is to replace. Without
an argument it needs no PyTorch: rank 0 serves a store, and the sum goes round a ring of TCP connections. It stays until its standard
input ends.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import socketserver
import sys
import threading
import time
from typing import Any

#: Longest wait for a peer, in seconds.
PATIENCE = 60.0

#: Ports of the ring: this and the rank.
RING_PORT = 41_000


class Store(socketserver.ThreadingTCPServer):
    """A store for tests: one line of JSON there, one back."""

    address_family = socket.AF_INET6
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: str, port: int) -> None:
        super().__init__((address, port), Handler)
        self.values: dict[str, str] = {}
        self.counters: dict[str, int] = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def carry_out(self, method: str, key: str, argument: Any) -> Any:
        with self.lock:
            if method == "set":
                self.values[key] = argument
            elif method == "add":
                self.counters[key] = self.counters.get(key, 0) + argument
                return self.counters[key]
            return self.values.get(key)


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Store)
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.carry_out(*json.loads(line))).encode() + b"\n")


class StoreClient:
    def __init__(self, address: str, port: int) -> None:
        self._connection = connected(address, port)
        self._file = self._connection.makefile("rwb")
        self._lock = threading.Lock()

    def _ask(self, *words: Any) -> Any:
        with self._lock:
            self._file.write(json.dumps(words).encode() + b"\n")
            self._file.flush()
            line = self._file.readline()
        if not line:
            raise ConnectionResetError("the store is gone")
        return json.loads(line)

    def set(self, key: str, value: str) -> None:
        self._ask("set", key, value)

    def get(self, key: str) -> str:
        return str(self._ask("get", key, None))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", key, amount))


def connected(address: str, port: int, source: str | None = None) -> socket.socket:
    """Connects, as soon as somebody listens there."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((address, port), 5, (source, 0) if source else None)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def sum_over_ring(rank: int, addresses: list[str], number: int) -> int:
    """Returns the sum of the numbers of all ranks; each sends what it has received last to the next one."""
    with socket.create_server((addresses[rank], RING_PORT + rank), family=socket.AF_INET6) as listener:
        following = (rank + 1) % len(addresses)
        to = connected(addresses[following], RING_PORT + following, addresses[rank])
        listener.settimeout(PATIENCE)
        before, _ = listener.accept()
    with to, before, before.makefile("r", encoding="ascii") as lines:
        before.settimeout(PATIENCE)
        total = last = number
        for _ in addresses[1:]:
            to.sendall(f"{last}\n".encode())
            last = int(lines.readline())
            total += last
    return total


def with_stand_in() -> dict[str, Any]:
    from srv6d.coordinate import coordinate
    from srv6d.environment import Settings, find_place

    place = find_place(os.environ)
    assert place is not None and place.master_address is not None
    if place.rank == 0:
        Store(place.master_address, place.master_port)
    store = StoreClient(place.master_address, place.master_port)
    outcome = coordinate(store, place, Settings.from_environ(os.environ), os.environ)
    total = sum_over_ring(place.rank, os.environ["RING"].split(","), place.rank + 1)
    return {"outcome": outcome, "sum": total, "end": outcome.member.end if outcome.member else lambda: None}


def with_torch(is_hooked: bool) -> dict[str, Any]:
    import torch
    import torch.distributed as distributed

    import srv6d.torch

    module: Any = distributed if is_hooked else srv6d.torch
    module.init_process_group("gloo")
    number = torch.tensor([distributed.get_rank() + 1] * 1000)
    distributed.all_reduce(number)
    return {"outcome": srv6d.torch.current(), "sum": int(number[-1]), "end": module.destroy_process_group}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="rank " + os.environ["RANK"] + ": %(message)s")
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    done = with_torch(how == "hook") if how else with_stand_in()
    outcome = done["outcome"]
    report = {
        "rank": int(os.environ["RANK"]), "pid": os.getpid(), "sum": done["sum"], "complete": outcome is not None and outcome.complete,
        "why": outcome and outcome.why, "missing": outcome and dict(outcome.missing),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME"),
        "paths": [] if outcome is None or outcome.member is None else [dict(path) for path in outcome.member.paths],
    }  # fmt: skip
    print(json.dumps(report), flush=True)
    sys.stdin.read()
    done["end"]()


if __name__ == "__main__":
    main()
