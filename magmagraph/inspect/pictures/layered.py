"""Layered layout: rows and columns for a directed graph, so that edges lead down and rarely cross.

After Sugiyama, Tagawa and Toda (1981): break cycles, choose rows, route long edges through dummies,
order the rows, choose columns. It knows boxes by their widths alone, and takes nearly linear time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from .layered_columns import columns
from .layered_order import ordered

BOX_GAP = 26.0  # between boxes of a row
LINE_GAP = 14.0  # between an edge that passes and what is beside it
LANE_GAP = 7.0  # between lanes
LANES = 48  # the most lanes that a side takes; more edges share them
_FEW = 400  # dummies that any graph may have
_PER_BOX = 3  # dummies for each box beyond that
_WIDEST = 3000.0  # width of a row from which on what nobody reads moves down
_SHORT = 4  # rows that an edge may pass without taking a lane


@dataclass
class Net:
    """All edges of one value: from a box to those that read it.

    source: Number of the box.
    targets: Numbers of the boxes, each once.
    trunk: Columns at which the edges pass the rows below the source, as far as the last target
        needs.
    lane: The column of the lane that far targets are reached through, or None.
    far: The targets that the lane leads to.
    """

    source: int
    targets: list[int]
    trunk: list[float] = field(default_factory=list)
    lane: float | None = None
    far: list[int] = field(default_factory=list)


@dataclass
class Layout:
    """Where the boxes are.

    rows: The row of each box, from 0 at the top.
    columns: The middle of each box; the leftmost edge of all boxes is at 0.
    width: Of everything, lanes included.
    nets: As given, with their routes.
    """

    rows: list[int]
    columns: list[float]
    width: float
    nets: list[Net]


def layered(
    widths: Sequence[float],
    nets: Sequence[Net],
    *,
    top: Collection[int] = (),
    bottom: Collection[int] = (),
    hint: Sequence[float] | None = None,
) -> Layout:
    """Return a layout.

    widths: Of each box.
    nets: The edges; their routes are filled in.
    top, bottom: Boxes that stand in the first row and in the last one, by themselves.
    hint: A place for each box from left to right, to start the order from: that of a similar graph.

    Examples
    --------
    >>> layout = layered([40.0, 40.0, 40.0], [Net(0, [1, 2]), Net(1, [2])])
    >>> layout.rows
    [0, 1, 2]
    """
    count = len(widths)
    if not count:
        return Layout([], [], 0.0, [])
    forward = _without_cycles(count, nets)
    rows = _rows(count, nets, forward, set(top), set(bottom))
    reading = {target for targets in forward for target in targets}
    sources = {net.source for net, targets in zip(nets, forward, strict=True) if targets}
    _spread(rows, widths, [v for v in reading - sources if v not in bottom], set(bottom))
    cap = _cap(count, nets, forward, rows)
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    all_rows = list(rows)
    trunks: list[list[int]] = []
    for net, targets in zip(nets, forward, strict=True):
        start = rows[net.source]
        near = [t for t in targets if rows[t] - start <= cap]
        kept = set(near)
        net.far = [t for t in net.targets if t not in kept]
        last = max((rows[t] for t in near), default=start + 1)
        trunk = list(range(len(all_rows), len(all_rows) + last - start - 1))
        trunks.append(trunk)
        for i, dummy in enumerate(trunk):
            all_rows.append(start + 1 + i)
            above.append([trunk[i - 1] if i else net.source])
            below.append([])
            below[above[-1][0]].append(dummy)
        for target in near:
            span = rows[target] - start - 1
            reader = trunk[span - 1] if span else net.source
            below[reader].append(target)
            above[target].append(reader)
    order = ordered(all_rows, above, below, count, hint)
    sizes = [*widths, *([0.0] * (len(all_rows) - count))]
    xs = columns(order, above, below, sizes, count, BOX_GAP, LINE_GAP)
    left = min(x - w / 2 for x, w in zip(xs, sizes, strict=True))
    xs = [x - left for x in xs]
    right = max(x + w / 2 for x, w in zip(xs, sizes, strict=True))
    for net, trunk in zip(nets, trunks, strict=True):
        net.trunk = [xs[dummy] for dummy in trunk]
    width = _lanes(nets, rows, right)
    return Layout(rows, xs[:count], width, list(nets))


def _without_cycles(count: int, nets: Sequence[Net]) -> list[list[int]]:
    """Return the targets of each net without the edges that close a cycle."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    for number, net in enumerate(nets):
        leaving[net.source].append(number)
    if all(target > net.source for net in nets for target in net.targets):
        return [list(net.targets) for net in nets]
    state = [0] * count  # 1: on the path that is being walked, 2: done
    kept: list[list[int]] = [[] for _ in nets]
    for root in range(count):
        if state[root]:
            continue
        state[root] = 1
        path = [(root, iter([(n, t) for n in leaving[root] for t in nets[n].targets]))]
        while path:
            vertex, edges = path[-1]
            for number, target in edges:
                if state[target] == 1:
                    continue
                kept[number].append(target)
                if state[target] == 0:
                    state[target] = 1
                    onward = [(n, t) for n in leaving[target] for t in nets[n].targets]
                    path.append((target, iter(onward)))
                    break
            else:
                state[vertex] = 2
                path.pop()
    return kept


def _rows(
    count: int,
    nets: Sequence[Net],
    forward: Sequence[Sequence[int]],
    top: set[int],
    bottom: set[int],
) -> list[int]:
    """Return the row of each box: as far up as edges allow, then down where that shortens them."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    entering = [0] * count
    for net, targets in zip(nets, forward, strict=True):
        leaving[net.source] += targets
        for target in targets:
            entering[target] += 1
    rows = [1 if top and v not in top else 0 for v in range(count)]
    missing = list(entering)
    order = [v for v in range(count) if not missing[v]]
    for vertex in order:  # grows while it is walked
        for target in leaving[vertex]:
            rows[target] = max(rows[target], rows[vertex] + 1)
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    kept_edges = [0] * count  # edges from what others read as well, and which does not move along
    for targets in leaving:
        if len(targets) > 1:
            for target in targets:
                kept_edges[target] += 1
    for vertex in reversed(order):
        if len(leaving[vertex]) > kept_edges[vertex] and vertex not in top:
            rows[vertex] = min(rows[t] for t in leaving[vertex]) - 1
    if bottom:
        last = max((rows[v] for v in range(count) if v not in bottom), default=-1) + 1
        for vertex in bottom:
            rows[vertex] = last
    used = {row: i for i, row in enumerate(sorted(set(rows)))}
    return [used[row] for row in rows]


def _spread(
    rows: list[int], widths: Sequence[float], ends: Sequence[int], bottom: set[int]
) -> None:
    """Move ends that would make a row too wide to the rows below it."""
    sizes: dict[int, float] = {}
    at: dict[int, list[int]] = {}
    for vertex, row in enumerate(rows):
        sizes[row] = sizes.get(row, 0.0) + widths[vertex] + BOX_GAP
    for vertex in sorted(ends):
        at.setdefault(rows[vertex], []).append(vertex)
    row = 0
    while row <= max(at, default=-1):
        for vertex in reversed(at.get(row, ())):
            size = widths[vertex] + BOX_GAP
            if sizes[row] <= _WIDEST or sizes[row] == size:
                break
            sizes[row] -= size
            sizes[row + 1] = sizes.get(row + 1, 0.0) + size
            at.setdefault(row + 1, []).append(vertex)
            rows[vertex] = row + 1
        row += 1
    lowest = max((rows[v] for v in range(len(rows)) if v not in bottom), default=0)
    for vertex in bottom:
        rows[vertex] = max(rows[vertex], lowest + 1)


def _cap(
    count: int, nets: Sequence[Net], forward: Sequence[Sequence[int]], rows: Sequence[int]
) -> int:
    """Return how many rows an edge may span before it takes a lane."""
    spans = sorted(
        rows[target] - rows[net.source]
        for net, targets in zip(nets, forward, strict=True)
        for target in targets
    )
    left = _FEW + _PER_BOX * count
    for span in spans:
        left -= span - 1
        if left < 0:
            return max(_SHORT, span - 1)
    return max(spans, default=1)


def _lanes(nets: Sequence[Net], rows: Sequence[int], right: float) -> float:
    """Give each net that needs one the first lane that is free on its rows; return the width."""
    waiting = []
    for net in nets:
        if net.far:
            ends = [rows[net.source], *(rows[target] for target in net.far)]
            waiting.append((min(ends), max(ends), net))
    waiting.sort(key=lambda entry: (entry[0], -entry[1]))
    free: list[int] = []  # the row from which on each lane is free
    used = 0
    for first, last, net in waiting:
        lane = next((i for i, row in enumerate(free) if row <= first), None)
        if lane is None and len(free) < LANES:
            lane = len(free)
            free.append(0)
        elif lane is None:
            lane = min(range(LANES), key=free.__getitem__)
        free[lane] = max(free[lane], last)
        net.lane = right + BOX_GAP / 2 + lane * LANE_GAP
        used = max(used, lane + 1)
    return right + (BOX_GAP / 2 + used * LANE_GAP if used else 0.0)
