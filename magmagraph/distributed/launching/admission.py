"""Admit ranks to their launcher: whoever connects proves the job's token, soon and in few bytes."""

from __future__ import annotations

import contextlib
import hmac
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .line import proof

__all__ = ["Admission"]

HELLO = 4096  # bytes of what a rank says first
PATIENCE = 10.0  # seconds in which it says that
WAITING = 64  # connections that may be silent at once
_LOOK = 0.1  # seconds between two looks at the time


class _Visitor:
    """A connection that has not proved anything yet."""

    def __init__(self) -> None:
        self.content = b""
        self.until = time.monotonic() + PATIENCE


class Admission:
    """A port that takes connections of the ranks of a job, in one thread.

    Other connections are closed: those that say anything else, say more than a rank does, are
    silent for some seconds, and, of many silent ones, the oldest.

    listener (socket.socket): The port; the door closes it.
    token (str): The secret of the job.
    ranks (int): How many there are.
    admit (callable): Takes a rank, what it has said, and its connection; each rank comes once.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        ranks: int,
        admit: Callable[[int, dict[str, Any], socket.socket], None],
    ) -> None:
        self._listener, self._token, self._admit = listener, token, admit
        self._absent = set(range(ranks))
        self._visitors: dict[socket.socket, _Visitor] = {}  # the oldest first
        self._closed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._serve, name="magmagraph-door", daemon=True)

    def open(self) -> None:
        """Begin to admit."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    def close(self) -> None:
        """Admit nobody any more, and close the port."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._listener.close()
            self._selector.close()

    def _serve(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(_LOOK):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                if connection is self._listener:
                    self._accept()
                else:
                    self._hear(connection)
            now = time.monotonic()
            for connection in [c for c, visitor in self._visitors.items() if visitor.until < now]:
                self._refuse(connection)
        for connection in list(self._visitors):
            self._refuse(connection)
        self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone, or this process has no descriptor left for it
            self._closed.wait(_LOOK)
            return
        if len(self._visitors) >= WAITING:
            self._refuse(next(iter(self._visitors)))
        connection.setblocking(False)
        self._visitors[connection] = _Visitor()
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> None:
        visitor = self._visitors.get(connection)
        if visitor is None:  # refused since the selector has named it
            return
        try:
            content = connection.recv(HELLO)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        visitor.content += content
        if not content or len(visitor.content) > HELLO:
            self._refuse(connection)
        elif visitor.content.endswith(b"\n"):
            hello = self._checked(visitor.content)
            if hello is None:
                self._refuse(connection)
                return
            self._forget(connection)
            self._absent.remove(hello["hello"])
            connection.setblocking(True)
            self._admit(hello["hello"], hello, connection)

    def _checked(self, content: bytes) -> dict[str, Any] | None:
        """Return what a rank of this job has said, or None if it is anything else."""
        try:
            hello = json.loads(content)
            rank, nonce, said = hello["hello"], hello["nonce"], hello["proof"].encode()
            process, host = hello["process"], hello["host"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        if type(rank) is not int or rank not in self._absent:
            return None
        if type(process) is not int or not isinstance(host, str) or not isinstance(nonce, str):
            return None
        expected = proof(self._token, "rank", rank, nonce).encode()
        return hello if hmac.compare_digest(said, expected) else None

    def _refuse(self, connection: socket.socket) -> None:
        self._forget(connection)
        with contextlib.suppress(OSError):
            connection.close()

    def _forget(self, connection: socket.socket) -> None:
        del self._visitors[connection]
        self._selector.unregister(connection)
