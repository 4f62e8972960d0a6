"""Write C that prefetches operands ahead of a loop, where they are in no cache.

What a processor fetches by itself ends with a page of 4 KiB, and begins anew in the next one. Where
a loop does little with an element, memory is what it waits for, and it asks for what it will read a
few pages later. Out of a cache this costs more than it gains, so there are two loops, and binding
says which (`Binding.read_ahead`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .text import indent

__all__ = ["ahead_of"]


def ahead_of(reads: Mapping[str, str], loop: Sequence[str]) -> list[str]:
    """Return a loop over groups from `j` on, and before it the same one that asks ahead.

    It is said to be the rare one: the other is then laid out as if it were alone, without which
    layer norm in a cache took 4 to 11 % more.

    Parameters
    ----------
    reads
        The pointer to a row that is read -> how many elements ahead of it are asked for, or 0.
    loop
        The loop: its head, what it does with a group, and its end.
    """
    if not reads:
        return [*loop]
    head, *group, end = loop
    asks = [f"__builtin_prefetch({row} + j + {number});" for row, number in reads.items()]
    return [
        f"if (__builtin_expect(({' | '.join(reads.values())}) != 0, 0)) {{",
        *indent([head, *indent(asks), *group, end]),
        "} else {",
        *indent([*loop]),
        "}",
    ]
