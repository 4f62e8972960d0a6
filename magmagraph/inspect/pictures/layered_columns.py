"""Columns of a layered layout: straight edges, boxes apart, and not too wide.

First after Brandes and Köpf (2001): vertices are aligned with the median of their neighbours, in
four ways: with those above or below, from the left or from the right. Each alignment is a set of
vertical blocks, which are pushed together over the graph of who stands beside whom; the result is
the mean of the middle two. All four keep the order and the distances of every row, so their mean
does, too.

In large graphs long blocks stand in each other's way like stairs, and the drawing gets many times
as wide as its widest row. Then rows are placed in turn instead, each as close to its neighbours as
distances allow, in the sense of least squares: an isotonic regression, solved by pooling adjacent
violators (Barlow and others, "Statistical inference under order restrictions", 1972).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Neighbours = Sequence[Sequence[int]]

_SMALL = 300  # vertices up to which straight edges are worth any width
_LARGE = 2500  # vertices from which on rows are placed in turn at once
_WIDE = 1.5  # multiples of the widest row that a drawing may take
_ROUNDS = 6
_ANCHOR = 0.02
_STRAIGHT = 8.0  # weight of an edge's own points for each other, that of boxes being one


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

    order: The vertices of each row from left to right.
    above, below: The neighbours of each vertex in the rows next to its own.
    widths: Of each vertex.
    boxes: Vertices below this number are boxes, the others are points at which edges pass.
    box_gap, line_gap: Distance between two boxes, and between a point and anything.
    """
    count = len(widths)
    place = [0] * count
    for row in order:
        for i, vertex in enumerate(row):
            place[vertex] = i
    needed, gaps = _gaps(order, widths, boxes, box_gap, line_gap)
    if count <= _LARGE:
        xs = _straight(order, above, below, widths, boxes, place, gaps)
        ends = [x + side * w / 2 for x, w in zip(xs, widths, strict=True) for side in (-1, 1)]
        if count <= _SMALL or max(ends) - min(ends) <= _WIDE * needed:
            return xs
    return _relaxed(order, above, below, boxes, gaps)


def _gaps(
    order: Sequence[Sequence[int]],
    widths: Sequence[float],
    boxes: int,
    box_gap: float,
    line_gap: float,
) -> tuple[float, list[list[float]]]:
    """Return the width of the widest row, and how far neighbours of each row must be apart."""
    widest = 0.0
    gaps = []
    for row in order:
        row_gaps = [
            (box_gap if left < boxes and right < boxes else line_gap)
            + (widths[left] + widths[right]) / 2
            for left, right in itertools.pairwise(row)
        ]
        widest = max(widest, sum(row_gaps) + (widths[row[0]] + widths[row[-1]]) / 2)
        gaps.append(row_gaps)
    return widest, gaps


def _straight(
    order: Sequence[Sequence[int]],
    above: Neighbours,
    below: Neighbours,
    widths: Sequence[float],
    boxes: int,
    place: Sequence[int],
    gaps: Sequence[Sequence[float]],
) -> list[float]:
    """Return columns after Brandes and Köpf."""
    crossed = _crossed(order, above, place, boxes)
    upper = [sorted(near, key=place.__getitem__) for near in above]
    lower = [sorted(near, key=place.__getitem__) for near in below]
    beside = [
        (left, right, gap)
        for row, row_gaps in zip(order, gaps, strict=True)
        for (left, right), gap in zip(itertools.pairwise(row), row_gaps, strict=True)
    ]
    four = []
    for near, rows in ((upper, order), (lower, order[::-1])):
        for mirrored in (False, True):
            roots = _aligned(rows, near, place, crossed, mirrored)
            four.append(_compacted(roots, beside, mirrored))
    return _balanced(four, widths)


def _relaxed(
    order: Sequence[Sequence[int]],
    above: Neighbours,
    below: Neighbours,
    boxes: int,
    gaps: Sequence[Sequence[float]],
) -> list[float]:
    """Return columns by placing rows in turn, down and up, near those before them."""
    at = [0.0] * len(above)
    for row, apart in zip(order, gaps, strict=True):  # each row around the middle
        x = -sum(apart) / 2
        for vertex, gap in zip(row, [*apart, 0.0], strict=True):
            at[vertex] = x
            x += gap
    numbers = range(len(order))
    for turn in range(_ROUNDS):
        last = turn == _ROUNDS - 1
        for number in numbers if turn % 2 == 0 else reversed(numbers):
            row = order[number]
            targets, weights = [], []
            for vertex in row:
                near = above[vertex] if turn % 2 == 0 else below[vertex]
                if last or not near:
                    near = [*above[vertex], *below[vertex]]
                total, weight = 0.0, _ANCHOR  # a little towards the middle: rows do not drift off
                for other in near:
                    share = _STRAIGHT if other >= boxes and vertex >= boxes else 1.0
                    total += share * at[other]
                    weight += share
                targets.append(total / weight if near else at[vertex])
                weights.append(weight)
            for vertex, x in zip(row, _apart(targets, weights, gaps[number]), strict=True):
                at[vertex] = x
    return at


def _apart(
    targets: Sequence[float], weights: Sequence[float], gaps: Sequence[float]
) -> list[float]:
    """Return separated positions nearest to the wanted ones, in the weighted mean square.

    Examples
    --------
    >>> _apart([0.0, 0.0, 9.0], [1.0, 1.0, 1.0], [2.0, 2.0])
    [-1.0, 1.0, 9.0]
    """
    shifts = [0.0, *itertools.accumulate(gaps)]
    pools: list[tuple[float, float, int]] = []  # (weighted sum, weight, members)
    for x, weight, shift in zip(targets, weights, shifts, strict=True):
        total, heavy, members = weight * (x - shift), weight, 1
        while pools and pools[-1][0] * heavy > total * pools[-1][1]:
            before = pools.pop()
            total, heavy, members = total + before[0], heavy + before[1], members + before[2]
        pools.append((total, heavy, members))
    level = [total / heavy for total, heavy, members in pools for _ in range(members)]
    return [x + shift for x, shift in zip(level, shifts, strict=True)]


def _crossed(
    order: Sequence[Sequence[int]], above: Neighbours, place: Sequence[int], boxes: int
) -> set[tuple[int, int]]:
    """Return the edges (upper, lower) that cross one between two points, which is kept straight."""
    crossings: set[tuple[int, int]] = set()
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
                        crossings.add((near, other))
                scanned += 1
            first = last
    return crossings


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


def _balanced(layouts: Sequence[Sequence[float]], widths: Sequence[float]) -> list[float]:
    """Return the mean of the middle two of four assignments, moved onto the narrowest."""
    edges = [
        (
            min([x - w / 2 for x, w in zip(xs, widths, strict=True)]),
            max([x + w / 2 for x, w in zip(xs, widths, strict=True)]),
        )
        for xs in layouts
    ]
    left, right = min(edges, key=lambda edge: edge[1] - edge[0])
    moved = []
    for number, (xs, (low, high)) in enumerate(zip(layouts, edges, strict=True)):
        shift = right - high if number % 2 else left - low
        moved.append([x + shift for x in xs])
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]
