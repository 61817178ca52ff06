"""A notice board on the store of the job: every rank pins messages, and everybody reads them.

The store is whatever PyTorch's rendezvous gives: ``TCPStore``, ``PrefixStore``, ``FileStore``. Only three of its methods are used, in
a way that never blocks: a message is read when its counter says that it is there.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Callable, Protocol, Union

#: Longest message that is read, in bytes. The placement of a fabric with thousands of links fits.
MAX_MESSAGE = 32 * 1024 * 1024

#: Shortest and longest pause between two looks, in seconds.
_PAUSES = (0.01, 0.25)


class Store(Protocol):
    """What a store of PyTorch has."""

    def set(self, key: str, value: str) -> Any:
        """Stores a value."""

    def get(self, key: str) -> Union[bytes, str]:
        """Returns a value; blocks until it is there."""

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, which starts at 0, and returns it."""


class StoreLost(Exception):
    """The store does not answer any more, or not with what was stored."""


class Abandoned(Exception):
    """Nobody waits for this conversation any more."""


class Board:
    """Messages of one job. Ranks that call ``init_process_group`` several times have a board each time."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._abandoned = threading.Event()

    def abandon(self) -> None:
        """Ends the conversation: every further use raises Abandoned."""
        self._abandoned.set()

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for this conversation any more."""
        return self._abandoned.is_set()

    def _use(self, what: str, method: Callable[..., Any], key: str, *more: Any) -> Any:
        if self.is_abandoned:
            raise Abandoned
        try:
            return method(f"srv6d/{self._name}/{key}", *more)
        except Exception as why:  # a store raises what it likes
            raise StoreLost(f"the job's store cannot {what} {key}: {why}") from why

    def pin(self, key: str, message: Any) -> None:
        """Writes a message that can be JSON."""
        self._use("write", self._store.set, key, json.dumps(message, separators=(",", ":")))
        self.count(f"{key}#")

    def count(self, key: str, amount: int = 1) -> int:
        """Adds to a counter and returns it."""
        return int(self._use("count", self._store.add, key, amount))

    def has(self, key: str) -> bool:
        """Whether a message is there."""
        return self.count(f"{key}#", 0) > 0

    def read(self, key: str) -> Any:
        """Returns a message that is there."""
        text = self._use("read", self._store.get, key)
        if len(text) > MAX_MESSAGE:
            raise StoreLost(f"{key} in the job's store is longer than {MAX_MESSAGE} bytes")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise StoreLost(f"{key} in the job's store is no message of srv6d") from None

    def read_object(self, key: str) -> dict[str, Any]:
        """Returns a message that is there and has fields."""
        message = self.read(key)
        if not isinstance(message, dict):
            raise StoreLost(f"{key} in the job's store is no message of srv6d")
        return message

    def wait(self, until: float, *conditions: Callable[[], bool]) -> bool:
        """Waits until one of the conditions holds. False: ``until``, a time of ``time.monotonic()``, came first."""
        pause = _PAUSES[0]
        while not any(condition() for condition in conditions):
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._abandoned.wait(min(pause, left))
            pause = min(pause * 1.5, _PAUSES[1])
        return True


class Pulse:
    """Signs of life that one rank gives on a board until it is closed."""

    #: Seconds between two signs.
    INTERVAL = 1.0

    def __init__(self, board: Board) -> None:
        self._board = board
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="srv6d-pulse", daemon=True)

    def __enter__(self) -> "Pulse":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2 * self.INTERVAL)

    def _run(self) -> None:
        while True:
            try:
                self._board.count("pulse")
            except (StoreLost, Abandoned):
                return
            if self._ended.wait(self.INTERVAL):
                return


class Listener:
    """Tells whether the rank that gives signs of life still does."""

    #: Seconds without a sign after which it counts as dead.
    PATIENCE = 15.0

    def __init__(self, board: Board, first: float) -> None:
        """``first``: seconds to wait for the first sign of all."""
        self._board = board
        self._last = 0
        self._until = time.monotonic() + first

    def is_silent(self) -> bool:
        """Whether the signs have stopped, or never began in time."""
        beats = self._board.count("pulse", 0)
        if beats != self._last:
            self._last, self._until = beats, time.monotonic() + self.PATIENCE
        return time.monotonic() > self._until

    @property
    def has_begun(self) -> bool:
        """Whether there was a sign ever."""
        return self._last > 0
