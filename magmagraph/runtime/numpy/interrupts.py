"""Interrupts wait until variables are written whole."""

from __future__ import annotations

import contextlib
import signal
import threading

# Those of `signal` look names of enums up, which takes twenty times as long.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as handle
from collections.abc import Iterator
from typing import Any

_HANDLED = tuple(
    int(number)
    for number in signal.valid_signals()
    if number not in (getattr(signal, "SIGKILL", None), getattr(signal, "SIGSTOP", None))
)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Hold back all signals that have handlers in Python, and deliver them after the block.

    A handler may raise, as that of SIGINT does, one of a clock or one for the end of a job's time.
    They run in the main thread only. Needed only where updates are written by Python steps: a
    compiled plan writes them in one call, which Python does not interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: held for number in _HANDLED if callable(held := getsignal(number))}
    caught: list[tuple[int, Any]] = []

    def catch(number: int, frame: Any) -> None:
        caught.append((number, frame))

    try:
        for number in handlers:
            handle(number, catch)
        yield
    finally:
        _give_back(list(handlers.items()))
        _deliver(caught, handlers)


def _deliver(caught: list[tuple[int, Any]], handlers: dict[int, Any]) -> None:
    """Call the handlers of all signals that came, whether or not one raises."""
    if caught:
        number, frame = caught.pop(0)
        try:
            handlers[number](number, frame)
        finally:
            _deliver(caught, handlers)


def _give_back(handlers: list[tuple[int, Any]]) -> None:
    """Set all handlers, though those that are set may raise meanwhile."""
    raised: BaseException | None = None
    while handlers:
        try:
            while handlers:
                handle(*handlers[-1])
                handlers.pop()
        except BaseException as error:
            raised = error
    if raised is not None:
        raise raised
