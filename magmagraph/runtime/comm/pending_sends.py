"""Messages that may not have left yet, with the memory that they are read from.

They outlive their communicators, which may be let go of. When Python ends, what is left stays in
memory: MPI ends later, and other ranks read messages until then.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
from typing import Any

__all__ = ["SENT", "Sent"]


class Sent:
    """Requests of this process that may not be done, with what MPI reads or writes for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[tuple[Any, Any]] = []
        atexit.register(self._stay)

    def add(self, request: Any, kept: Any) -> None:
        """Keep something until a request is done."""
        with self._lock:
            self._held.append((request, kept))

    def reap(self) -> None:
        """Release messages that were sent."""
        if self._held:
            with self._lock:
                self._held = [(request, kept) for request, kept in self._held if not request.Test()]

    def _stay(self) -> None:
        for pair in self._held:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(pair))


SENT = Sent()
