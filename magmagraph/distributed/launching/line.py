"""The line between a rank and its launcher: messages of JSON, a line each, over a socket."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

__all__ = ["MAIN", "READING", "Line", "address", "connect", "split_address"]

PATIENCE = 30.0  # seconds to connect
MAIN = "__magmagraph_main__"  # the launcher's own script, in a rank that calls its function
READING: list[str] = []  # the module that this rank imports, to call a function of it


class Line:
    """One end of a connection; any thread may send, one thread receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._file = connection.makefile("rb")
        self._lock = threading.Lock()

    def send(self, told: dict[str, Any]) -> None:
        """Send a message; OSError where the other end is gone."""
        content = json.dumps(told).encode() + b"\n"
        with self._lock:
            self._socket.sendall(content)

    def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None where the other end is gone."""
        try:
            content = self._file.readline()
            found = json.loads(content) if content.endswith(b"\n") else None
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            with contextlib.suppress(OSError):
                self._file.close()  # here: the thread that reads is the one that may
            return None
        return found

    def close(self) -> None:
        """Let the other end see that nobody is here; wakes a thread that receives."""
        with contextlib.suppress(OSError):  # it has gone first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def address(host: str, port: int, token: str, folder: str) -> str:
    """Return what a rank needs to know, as one text.

    Examples
    --------
    >>> split_address(address("127.0.0.1", 4000, "a1", "/tmp/a:b"))
    ('127.0.0.1', 4000, 'a1', '/tmp/a:b')
    """
    return f"{host}:{port}:{token}:{folder}"


def split_address(text: str) -> tuple[str, int, str, str]:
    """Return host, port, token, and the folder of pipes, which may be empty."""
    host, port, token, folder = text.split(":", 3)
    return host, int(port), token, folder


def connect(host: str, port: int) -> Line:
    """Return a line to the launcher."""
    connection = socket.create_connection((host, port), PATIENCE)
    connection.settimeout(None)
    return Line(connection)
