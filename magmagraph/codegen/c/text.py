"""Pieces of C text that generators of kernels share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.graph import Node
from .scalar import combine_expression

__all__ = [
    "advance", "for_loop", "guarded", "indent", "mentions", "part_name", "replace_if_better",
    "times",
]


def indent(lines: Sequence[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f"    {line}" for line in lines]


def mentions(text: str, word: str) -> bool:
    """Return whether a text contains a word, of letters, digits and underscores.

    Examples
    --------
    >>> mentions("in1[i0] + in12[i0]", "in1"), mentions("in12[i0]", "in1")
    (True, False)
    """
    at, size = text.find(word), len(text)
    while at >= 0:
        end = at + len(word)
        before, after = text[at - 1 : at], text[end : end + 1] if end < size else ""
        if not (before == "_" or before.isalnum() or after == "_" or after.isalnum()):
            return True
        at = text.find(word, end)
    return False


def for_loop(i: str, limit: str, inside: Sequence[str], first: str = "0") -> list[str]:
    """Return a loop from the first, 0 unless given, up to a limit."""
    return [f"for (int64_t {i} = {first}; {i} < {limit}; {i}++) {{", *indent(inside), "}"]


def guarded(condition: str, lines: Sequence[str]) -> list[str]:
    """Return lines that run under a condition."""
    return [f"if ({condition}) {{", *indent(lines), "}"]


def times(index: str, step: str) -> str:
    """Return an index times a step; an empty step is 1."""
    return f"{index} * {step}" if step else index


def advance(counters: Sequence[tuple[str, str]]) -> list[str]:
    r"""Return the lines that step (name, limit) counters like an odometer, the last one first.

    Examples
    --------
    >>> print("\n".join(advance([("i", "n"), ("j", "m")])))
    if (++j == m) {
        j = 0;
        i++;
    }
    """
    lines: list[str] = []
    for position, (name, limit) in enumerate(counters):
        if position == 0:
            lines = [f"{name}++;"]
        else:
            lines = guarded(f"++{name} == {limit}", [f"{name} = 0;", *lines])
    return lines


def replace_if_better(
    node: Node, dtype: np.dtype, value: str, at: str, element: str, here: str
) -> list[str]:
    """Return the lines that keep the better of two elements, and of equals the first."""
    better = combine_expression(node, dtype, value, element)
    worse = combine_expression(node, dtype, element, value)
    return [
        "{",
        f"    const int better = {better} | (!{worse} & ({here} < {at}));",
        f"    {at} = better ? {here} : {at};",
        f"    {value} = better ? {element} : {value};",
        "}",
    ]


def part_name(fold: str) -> str:
    """Return the name of what some rows fold to, before it goes into a fold's accumulator."""
    return f"{fold}_part"
