"""Launches at other addresses: those of a loop's iterations, or of a caller's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ....ir.ranges import Range, Touched

__all__ = ["ALIGNMENT", "Move", "moved"]

ALIGNMENT = 256  # bytes: what libraries and wide reads expect of addresses


class Move(NamedTuple):
    """A range of addresses, and where it begins now."""

    start: int
    end: int
    to: int


def moved(
    launches: Sequence[Any], touched: Sequence[Touched], moves: Sequence[tuple[int, int, int]]
) -> tuple[list[Any], list[Touched]]:
    """Return launches with some of their memory elsewhere, and the memory that each touches then.

    Parameters
    ----------
    launches
        Each has a method ``moved``.
    touched
        The memory of each.
    moves
        Ranges that do not overlap, each as a `Move`.
    """
    def shift(address: int) -> int:
        for start, end, to in moves:
            if start <= address < end:
                return address + to - start
        return address

    def shifted(ranges: Sequence[Range]) -> tuple[Range, ...]:
        return tuple((shift(start), shift(start) + end - start) for start, end in ranges)

    return (
        [launch.moved(shift) for launch in launches],
        [Touched(shifted(each.read), shifted(each.written)) for each in touched],
    )
