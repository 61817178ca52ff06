"""The management socket of srv6d: one line of JSON there, one line of JSON back."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, Mapping

#: Version of the protocol. A daemon with another one is refused, because its messages might be misunderstood.
VERSION = 1

#: Path of the socket, unless ``SRV6D_SOCKET`` names another one.
DEFAULT_SOCKET = "/run/srv6d/srv6d.sock"

#: Longest request line that the daemon reads, in bytes.
MAX_REQUEST = 16 * 1024 * 1024

#: Longest answer that is read, in bytes. The paths of some ten thousand peers fit.
MAX_ANSWER = 64 * 1024 * 1024

#: Longest wait for an answer in seconds, for a request that changes little.
PATIENCE = 5.0


class DaemonError(Exception):
    """The daemon gave no answer that can be used. The text says why, and names the fix."""


class NotRunning(DaemonError):
    """No process listens on the socket."""


class Forbidden(DaemonError):
    """A daemon listens, but this user may not open its socket."""


class Silent(DaemonError):
    """The daemon does not answer in time."""


class Broken(DaemonError):
    """The connection broke off, or what came is no answer of this protocol."""


class Refused(DaemonError):
    """The daemon has understood the request and refuses it."""

    def __init__(self, errors: list[str], code: str | None = None) -> None:
        super().__init__("; ".join(errors))
        #: The messages, each complete.
        self.errors = errors
        #: A word for programs; None if the daemon gives none.
        self.code = code


class Client:
    """A daemon behind a socket. Every request is a connection of its own, so a client survives a restart of the daemon."""

    def __init__(self, path: str | None = None) -> None:
        #: Path of the socket.
        self.path = path or os.environ.get("SRV6D_SOCKET") or DEFAULT_SOCKET

    def ask(self, request: str, *, patience: float = PATIENCE, **fields: Any) -> tuple[str, Any]:
        """Sends a request and returns the kind of the answer and its value.

        Raises a DaemonError after ``patience`` seconds at the latest.
        """
        line = json.dumps({"version": VERSION, "request": request, **fields}, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_REQUEST:
            raise Refused([f"the request {request} has {len(line)} bytes, and srv6d reads {MAX_REQUEST} at most"])
        return self._answer(self._exchange(line, time.monotonic() + patience, patience))

    def value(self, request: str, expected: str, *, patience: float = PATIENCE, **fields: Any) -> Any:
        """Sends a request and returns the value of the answer, which must be of the kind ``expected``."""
        kind, value = self.ask(request, patience=patience, **fields)
        if kind != expected:
            raise Broken(f"srv6d behind {self.path} answers {request} with {kind!r} instead of {expected!r}: "
                         "restart the daemon after an upgrade, and use the package of the same version")
        return value

    def _exchange(self, line: bytes, end: float, patience: float) -> bytes:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with connection:
                connection.settimeout(patience)
                connection.connect(self.path)
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                return self._read(connection, end)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(
                f"srv6d is not running: nothing answers on {self.path}; start it, or name its socket in SRV6D_SOCKET "
                "(in a container: mount the directory of the socket)"
            ) from None
        except PermissionError:
            raise Forbidden(
                f"no permission to open {self.path}: run as root or as a member of the group that owns the socket"
            ) from None
        except TimeoutError:
            raise Silent(f"srv6d does not answer on {self.path} within {patience:.0f} s: it is busy or stopped") from None
        except OSError as why:
            raise Broken(f"the daemon behind {self.path} did not answer: {why}") from None

    def _read(self, connection: socket.socket, end: float) -> bytes:
        """Reads up to the end of the stream."""
        parts: list[bytes] = []
        size = 0
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            part = connection.recv(1 << 16)
            if not part:
                return b"".join(parts)
            size += len(part)
            if size > MAX_ANSWER:
                raise Broken(f"the answer of the daemon behind {self.path} is longer than {MAX_ANSWER} bytes")
            parts.append(part)

    def _answer(self, line: bytes) -> tuple[str, Any]:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise Broken(f"the daemon behind {self.path} closed the connection without a whole answer") from None
        version = message.get("version") if isinstance(message, Mapping) else None
        if not isinstance(message, Mapping) or not isinstance(version, int):
            raise Broken(f"what listens on {self.path} does not speak the protocol of srv6d")
        if version != VERSION:
            raise Broken(f"srv6d speaks version {version} of its protocol, this package version {VERSION}: "
                         "install the package of the same version as the daemon")
        kind, value = message.get("result"), message.get("value")
        if kind == "refused":
            refusal = value if isinstance(value, Mapping) else {}
            errors, code = refusal.get("errors"), refusal.get("code")
            texts = [str(error) for error in errors] if isinstance(errors, list) and errors else ["refused without a reason"]
            raise Refused(texts, code if isinstance(code, str) else None)
        if not isinstance(kind, str):
            raise Broken(f"the answer of the daemon behind {self.path} has no result")
        return kind, value
