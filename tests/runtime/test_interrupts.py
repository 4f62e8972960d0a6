"""Signals that come while variables are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from magmagraph.runtime.numpy.interrupts import deferred

NUMBERS = (signal.SIGUSR1, signal.SIGTERM)


class Stop(BaseException):
    """What a handler raises."""


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """Return the numbers of the signals that handlers were called for; that of the first raises."""
    found: list[int] = []

    def handler(number: int, frame: Any) -> None:
        found.append(number)
        if number == NUMBERS[0]:
            raise Stop

    before = {number: signal.signal(number, handler) for number in NUMBERS}
    yield found
    for number, held in before.items():
        assert signal.signal(number, held) is handler, "handlers are given back"


def test_signals_wait_for_the_end_of_the_block(seen: list[int]) -> None:
    ended = False
    with pytest.raises(Stop), deferred():
        for number in NUMBERS:
            signal.raise_signal(number)
        assert not seen
        ended = True
    assert ended and sorted(seen) == sorted(NUMBERS)


def test_an_error_in_the_block_comes_out(seen: list[int]) -> None:
    with pytest.raises(KeyError), deferred():
        signal.raise_signal(NUMBERS[1])
        raise KeyError
    assert seen == [NUMBERS[1]]


def test_other_threads_change_no_handlers(seen: list[int]) -> None:
    held: list[Any] = []

    def look() -> None:
        with deferred():
            held.append(signal.getsignal(NUMBERS[0]))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert held == [signal.getsignal(NUMBERS[0])]
