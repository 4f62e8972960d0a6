"""The order of boxes in the rows of a layered layout: few crossings."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

Neighbours = Sequence[Sequence[int]]

_COUNTED = 4000  # edges up to which crossings are counted, and the best order of all kept
_SWAPPED = 500  # vertices up to which neighbours are swapped as well
_SWEEPS_COUNTED = 16
_SWEEPS = 4
_PATIENCE = 3  # sweeps without a better order after which the best is taken


def ordered(
    rows: Sequence[int],
    above: Neighbours,
    below: Neighbours,
    boxes: int,
    hint: Sequence[float] | None = None,
) -> list[list[int]]:
    """Return the vertices of each row, from left to right.

    rows: The row of each vertex; edges join vertices of rows next to each other.
    above, below: The neighbours of each vertex in those two rows.
    boxes: Vertices below this number are boxes, the others are points at which edges pass.
    hint: A place for each box, to start from.
    """
    order = _start(rows, above, below, boxes, hint)
    edges = sum(map(len, below))
    place = [0] * len(rows)
    for row in order:
        _number(row, place)
    if edges > _COUNTED:
        for sweep in range(_SWEEPS if hint is None else _SWEEPS // 2):
            _sweep(order, above if sweep % 2 == 0 else below, place, sweep % 2 == 0)
        return order
    best, fewest = [list(row) for row in order], _crossings(order, below, place)
    stuck = 0
    for sweep in range(_SWEEPS_COUNTED):
        if not fewest or stuck == _PATIENCE:
            break
        _sweep(order, above if sweep % 2 == 0 else below, place, sweep % 2 == 0)
        if len(rows) <= _SWAPPED:
            _swap(order, above, below, place)
        crossings = _crossings(order, below, place)
        stuck += 1
        if crossings < fewest:
            best, fewest, stuck = [list(row) for row in order], crossings, 0
    return best


def crossings(order: Sequence[Sequence[int]], below: Neighbours) -> int:
    """Return how many pairs of edges cross.

    Examples
    --------
    >>> crossings([[0, 1], [2, 3]], [[3], [2], [], []])
    1
    """
    place = [0] * len(below)
    for row in order:
        _number(row, place)
    return _crossings(order, below, place)


def _start(
    rows: Sequence[int],
    above: Neighbours,
    below: Neighbours,
    boxes: int,
    hint: Sequence[float] | None,
) -> list[list[int]]:
    """Return rows in the order of a walk in depth, so that what belongs together is close."""
    order: list[list[int]] = [[] for _ in range(max(rows) + 1)]
    seen = [False] * len(rows)
    roots = [v for v in range(len(rows)) if not above[v]]
    if hint is not None:
        roots.sort(key=lambda v: hint[v] if v < boxes else 0.0)
    for root in roots:
        pending = [root]
        while pending:
            vertex = pending.pop()
            if seen[vertex]:
                continue
            seen[vertex] = True
            order[rows[vertex]].append(vertex)
            pending.extend(reversed(below[vertex]))
    if hint is None:
        return order
    at = [hint[v] if v < boxes else 0.0 for v in range(len(rows))]
    for v in range(boxes, len(rows)):  # a point lies below what its edge comes from
        at[v] = at[above[v][0]]
    for row in order:
        row.sort(key=at.__getitem__)
    return order


def _number(row: Sequence[int], place: list[int]) -> None:
    for i, vertex in enumerate(row):
        place[vertex] = i


def _sweep(
    order: list[list[int]], neighbours: Neighbours, place: list[int], downward: bool
) -> None:
    """Sort each row by the mean place of the neighbours in the row before it."""
    span = range(1, len(order)) if downward else range(len(order) - 2, -1, -1)
    for number in span:
        row = order[number]
        if len(row) < 2:
            continue
        other = len(order[number - 1 if downward else number + 1])
        scale = other / len(row)
        keys = {}
        for i, vertex in enumerate(row):
            near = neighbours[vertex]
            if near:
                keys[vertex] = sum([place[n] for n in near]) / len(near)
            else:
                keys[vertex] = i * scale  # stays about where it is
        row.sort(key=keys.__getitem__)
        _number(row, place)


def _swap(
    order: list[list[int]], above: Neighbours, below: Neighbours, place: list[int]
) -> None:
    """Exchange neighbours in a row as long as that takes away crossings."""
    for row in order:
        better = True
        rounds = 0
        while better and rounds < 8:
            better = False
            rounds += 1
            for i in range(len(row) - 1):
                left, right = row[i], row[i + 1]
                gain = 0
                for near in (above, below):
                    a = [place[n] for n in near[left]]
                    b = [place[n] for n in near[right]]
                    gain += _pairs(a, b) - _pairs(b, a)
                if gain > 0:
                    row[i], row[i + 1] = right, left
                    place[right], place[left] = i, i + 1
                    better = True


def _pairs(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many edges of two vertices cross when the first is on the left."""
    return sum([1 for a in left for b in right if a > b])


def _crossings(order: Sequence[Sequence[int]], below: Neighbours, place: Sequence[int]) -> int:
    total = 0
    for row in order[:-1]:
        ends: list[int] = []
        for vertex in row:
            mine = [place[n] for n in below[vertex]]
            for end in mine:
                total += len(ends) - bisect_right(ends, end)
            for end in mine:
                insort(ends, end)
    return total
