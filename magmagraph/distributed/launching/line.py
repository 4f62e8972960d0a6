"""The line between a rank and its launcher: messages of JSON, a line each, over a socket.

Both prove that they know the job's token, which ranks have from their environment, before the other
uses anything that they send. The token itself is not sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from typing import Any

__all__ = ["MAIN", "READING", "Line", "address", "enter", "proof", "split_address"]

PATIENCE = 30.0  # seconds to connect, and to be answered
TRIES = 5  # a launcher that strangers keep busy may close a rank's connection
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
        except (OSError, ValueError, RecursionError):
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

    def leave(self) -> None:
        """Close both directions, in the thread that receives."""
        self.close()
        with contextlib.suppress(OSError):
            self._file.close()


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


def proof(token: str, *parts: object) -> str:
    """Return what only those who know a job's token can say of some parts.

    Examples
    --------
    >>> proof("token", "rank", 1, "nonce") == proof("token", "rank", 1, "nonce")
    True
    >>> proof("token", "rank", 1, "nonce") == proof("token", "rank", 2, "nonce")
    False
    """
    return hmac.new(token.encode(), json.dumps(parts).encode(), hashlib.sha256).hexdigest()


def enter(
    host: str, port: int, token: str, rank: int, about: dict[str, Any]
) -> tuple[Line, dict[str, Any]]:
    """Return a rank's line to its launcher, and what the rank is to run.

    Parameters
    ----------
    host, port, token
        The launcher's address, and the token of the job.
    rank
        This rank.
    about
        What the launcher is to know of it.

    Raises
    ------
    OSError
        There is no launcher at the address, or another program than the job's launcher.
    """
    for _ in range(TRIES):
        connection = socket.create_connection((host, port), PATIENCE)
        line, nonce = Line(connection), secrets.token_hex(16)
        hello = {"hello": rank, "nonce": nonce, "proof": proof(token, "rank", rank, nonce)}
        try:
            line.send({**about, **hello})
            answer = line.receive()
        except OSError:
            answer = None
        if answer is not None:
            program, said = str(answer.get("program")), str(answer.get("proof"))
            known = proof(token, nonce, program).encode()
            if hmac.compare_digest(said.encode(errors="replace"), known):
                connection.settimeout(None)
                return line, json.loads(program)
            line.leave()
            raise ConnectionRefusedError(f"{host}:{port} is not the launcher of this job")
        line.leave()
        time.sleep(0.1)
    raise ConnectionRefusedError(f"the launcher at {host}:{port} does not answer")
