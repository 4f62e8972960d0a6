"""How the rows of parts that ranks bring are divided into batches."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["apportion"]


def apportion(rows: int, lengths: Sequence[int]) -> list[int]:
    """Return how many of the first rows of an epoch are of each part.

    The rows of all parts are merged in one order, in which each part is spread evenly: row `i` of a
    part of length `n` is at the position ``(i + 1/2) / n``, and the lower part comes first in a
    tie. So the numbers are those of the Webster (Sainte-Lague) method, add up to `rows`, and never
    decrease when `rows` grows.

    Parameters
    ----------
    rows
        From 0 to the sum of the lengths.
    lengths
        The number of rows of each part, at least 1.

    Returns
    -------
    list of int
        A number for each part.

    Examples
    --------
    >>> [apportion(rows, (4, 2)) for rows in (0, 2, 4, 6)]
    [[0, 0], [1, 1], [3, 1], [4, 2]]
    >>> apportion(7, (5, 5, 4))  # parts of x[rank::3], of 14 rows: the first 7 rows of x
    [3, 2, 2]
    """
    count = len(lengths)
    if min(lengths) == max(lengths):
        return [rows // count + (part < rows % count) for part in range(count)]
    total = sum(lengths)
    # All rows up to the position rows / total; then the nearest ones are added or left out.
    taken = [(2 * rows * length + total) // (2 * total) for length in lengths]
    missing = rows - sum(taken)
    step = 1 if missing > 0 else -1
    ahead = [
        (step * Fraction(2 * taken[part] + step, lengths[part]), step * part)
        for part in range(count)
    ]
    heapq.heapify(ahead)
    for _ in range(abs(missing)):
        part = step * ahead[0][1]
        taken[part] += step
        position = step * Fraction(2 * taken[part] + step, lengths[part])
        heapq.heapreplace(ahead, (position, step * part))
    return taken
