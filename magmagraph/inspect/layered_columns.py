"""Columns of a layered layout, after Brandes and Köpf (2001): straight edges, boxes apart.

Vertices are aligned with the median of their neighbours, in four ways: with those above or below,
from the left or from the right. Each alignment is a set of vertical blocks, which are pushed
together over the graph of who stands beside whom; the result is the mean of the middle two. All
four keep the order and the distances of every row, so their mean does, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Neighbours = Sequence[Sequence[int]]


def columns(
    order: Sequence[Sequence[int]],
    above: Neighbours,
    below: Neighbours,
    widths: Sequence[float],
    boxes: int,
    box_gap: float,
    line_gap: float,
) -> list[float]:
    """Return the middle of each vertex.

    Parameters
    ----------
    order
        The vertices of each row from left to right.
    above, below
        The neighbours of each vertex in the rows next to its own.
    widths
        Of each vertex.
    boxes
        Vertices below this number are boxes, the others are points at which edges pass.
    box_gap, line_gap
        Distance between two boxes, and between a point and anything.
    """
    count = len(widths)
    place = [0] * count
    for row in order:
        for i, vertex in enumerate(row):
            place[vertex] = i
    crossed = _crossed(order, above, place, boxes)
    upper = [sorted(near, key=place.__getitem__) for near in above]
    lower = [sorted(near, key=place.__getitem__) for near in below]
    gaps: list[tuple[int, int, float]] = []
    for row in order:
        for left, right in itertools.pairwise(row):
            gap = box_gap if left < boxes and right < boxes else line_gap
            gaps.append((left, right, gap + (widths[left] + widths[right]) / 2))
    found = []
    for near, rows in ((upper, order), (lower, order[::-1])):
        for mirrored in (False, True):
            roots = _aligned(rows, near, place, crossed, mirrored)
            found.append(_compacted(roots, gaps, mirrored))
    return _balanced(found, widths)


def _crossed(
    order: Sequence[Sequence[int]], above: Neighbours, place: Sequence[int], boxes: int
) -> set[tuple[int, int]]:
    """Return the edges (upper, lower) that cross one between two points, which is kept straight."""
    found: set[tuple[int, int]] = set()
    for upper, lower in itertools.pairwise(order):
        first, scanned = 0, 0
        for i, vertex in enumerate(lower):
            partner = _inner(vertex, above, boxes)
            if partner is None and i < len(lower) - 1:
                continue
            last = len(upper) if partner is None else place[partner]
            while scanned <= i:
                other = lower[scanned]
                for near in above[other]:
                    at = place[near]
                    if (at < first or at > last) and not (other >= boxes and near >= boxes):
                        found.add((near, other))
                scanned += 1
            first = last
    return found


def _inner(vertex: int, above: Neighbours, boxes: int) -> int | None:
    """Return the point above a point, or None."""
    if vertex >= boxes:
        for near in above[vertex]:
            if near >= boxes:
                return near
    return None


def _aligned(
    rows: Sequence[Sequence[int]],
    near: Neighbours,
    place: Sequence[int],
    crossed: set[tuple[int, int]],
    mirrored: bool,
) -> list[int]:
    """Return for each vertex the first one of its block."""
    root = list(range(len(place)))
    taken = [False] * len(place)  # is aligned with a vertex of the next row already
    for row in rows[1:]:
        limit = -1 if not mirrored else 1 << 60
        for vertex in reversed(row) if mirrored else row:
            neighbours = near[vertex]
            if not neighbours:
                continue
            half = len(neighbours) // 2
            if len(neighbours) % 2:
                medians = [neighbours[half]]
            else:
                medians = [neighbours[half - 1], neighbours[half]]
                if mirrored:
                    medians.reverse()
            for other in medians:
                at = place[other]
                if (
                    not taken[other]
                    and (at < limit if mirrored else at > limit)
                    and (other, vertex) not in crossed
                    and (vertex, other) not in crossed
                ):
                    root[vertex] = root[other]
                    taken[other] = True
                    limit = at
                    break
    return root


def _compacted(
    root: Sequence[int], gaps: Sequence[tuple[int, int, float]], mirrored: bool
) -> list[float]:
    """Return the column of each vertex, its block being as far left (right) as it can be."""
    count = len(root)
    after: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    missing = [0] * count
    for left, right, gap in gaps:
        a, b = root[left], root[right]
        if mirrored:
            a, b = b, a
        after[a].append((b, gap))
        missing[b] += 1
    pending = [v for v in range(count) if root[v] == v and not missing[v]]
    at = [0.0] * count
    for block in pending:  # grows while it is walked
        here = at[block]
        for other, gap in after[block]:
            if here + gap > at[other]:
                at[other] = here + gap
            missing[other] -= 1
            if not missing[other]:
                pending.append(other)
    for block in reversed(pending):  # what has room moves up to what stands beside it
        beside = after[block]
        if beside:
            at[block] = max(at[block], min([at[other] - gap for other, gap in beside]))
    if mirrored:
        return [-at[r] for r in root]
    return [at[r] for r in root]


def _balanced(found: Sequence[Sequence[float]], widths: Sequence[float]) -> list[float]:
    """Return the mean of the middle two of four assignments, moved onto the narrowest."""
    edges = [
        (
            min([x - w / 2 for x, w in zip(xs, widths, strict=True)]),
            max([x + w / 2 for x, w in zip(xs, widths, strict=True)]),
        )
        for xs in found
    ]
    left, right = min(edges, key=lambda edge: edge[1] - edge[0])
    moved = []
    for number, (xs, (low, high)) in enumerate(zip(found, edges, strict=True)):
        shift = right - high if number % 2 else left - low
        moved.append([x + shift for x in xs])
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]
