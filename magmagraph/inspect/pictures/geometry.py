"""From frames to a drawing: where boxes and edges are, in CSS pixels.

The viewer does the same in the page (`viewer/geometry.js`), where frames can be closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.graph import Node
from .scene_frame import BOX, PAD, ROW_GAP, TITLE, TYPE, Frame, Item

_TURN = 6.0  # radius of the corners of lanes
_LANE_STEP = 3.0  # between edges that turn into lanes below the same row
_SPREAD = 12.0  # between edges that end at the same box


@dataclass(frozen=True)
class Placed:
    """A box or a frame where it is drawn.

    item: What it is.
    x, y, width, height: Its box, without the type below it.
    ground: The style of the frame that it stands in; empty for the whole picture.
    """

    item: Item
    x: float
    y: float
    width: float
    height: float
    ground: str = ""


@dataclass(frozen=True)
class Edge:
    """All lines of one value within one frame.

    value: Whose value it is.
    path: As in the attribute ``d`` of an SVG path.
    ends: Where it arrives at boxes: an arrow's tip at each.
    """

    value: Node
    path: str
    ends: tuple[tuple[float, float], ...]


@dataclass
class Drawing:
    """Everything of a picture in its place.

    width, height: Of all.
    boxes, frames, edges: Frames come outer ones first.
    """

    width: float = 0.0
    height: float = 0.0
    boxes: list[Placed] = field(default_factory=list)
    frames: list[Placed] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


def draw(root: Frame) -> Drawing:
    """Return where everything of a frame is drawn, from (0, 0)."""
    drawing = Drawing(width=root.width)
    drawing.height = _place(root, 0.0, 0.0, drawing)
    return drawing


def heights(frame: Frame) -> list[float]:
    """Return the height of each row of a frame."""
    rows = [0.0] * (1 + max((item.row for item in frame.items), default=-1))
    for item in frame.items:
        rows[item.row] = max(rows[item.row], _height(item))
    return rows


def _height(item: Item) -> float:
    if item.inner is not None:
        return _framed(item.inner)
    if item.role in ("entry", "exit"):
        return 0.0
    return BOX + (TYPE if item.note else 0.0)


def _framed(frame: Frame) -> float:
    rows = heights(frame)
    return TITLE + 2 * PAD + sum(rows) + ROW_GAP * max(0, len(rows) - 1)


def _place(frame: Frame, left: float, top: float, drawing: Drawing) -> float:
    """Place the content of a frame; return its height."""
    rows = heights(frame)
    tops = []
    y = top
    for height in rows:
        tops.append(y)
        y += height + ROW_GAP
    for item in frame.items:
        if item.role in ("entry", "exit"):
            continue
        x = left + item.x - item.width / 2
        ground = frame.item.style if frame.item is not None else ""
        if item.inner is None:
            drawing.boxes.append(Placed(item, x, tops[item.row], item.width, BOX, ground))
            continue
        place = Placed(item, x, tops[item.row], item.width, _height(item), ground)
        drawing.frames.append(place)
        shift = (item.width - item.inner.width) / 2
        _place(item.inner, x + shift, tops[item.row] + TITLE + PAD, drawing)
    _Router(frame, left, tops, rows, drawing).route()
    return y - ROW_GAP if rows else 0.0


class _Router:
    """The edges of one frame in the making."""

    def __init__(
        self,
        frame: Frame,
        left: float,
        tops: Sequence[float],
        rows: Sequence[float],
        drawing: Drawing,
    ) -> None:
        self.frame = frame
        self.left = left
        self.tops = tops
        self.rows = rows
        self.drawing = drawing
        self.arriving = self._arrivals()

    def _arrivals(self) -> dict[tuple[int, int], float]:
        """Return where each net ends at each of its targets: beside each other, uncrossed."""
        coming: dict[int, list[tuple[float, int]]] = {}
        for number, net in enumerate(self.frame.nets):
            far = set(net.far)
            for target in net.targets:
                span = self.frame.items[target].row - self.frame.items[net.source].row - 1
                last = net.lane if target in far else None
                if last is None:
                    last = net.trunk[span - 1] if span > 0 else self.frame.items[net.source].x
                coming.setdefault(target, []).append((last, number))
        arrivals = {}
        for target, nets in coming.items():
            item = self.frame.items[target]
            if item.inner is not None:
                entries = item.inner.ports("entry")
                edge = self.left + item.x - item.width / 2
                shift = (item.width - item.inner.width) / 2 - PAD
                for _, number in nets:
                    arrivals[number, target] = edge + shift + entries[self.frame.values[number]]
                continue
            step = min(_SPREAD, (item.width - 16.0) / len(nets))
            for i, (_, number) in enumerate(sorted(nets)):
                arrivals[number, target] = self.left + item.x + (i - (len(nets) - 1) / 2) * step
        return arrivals

    def route(self) -> None:
        """Add all edges to the drawing."""
        for number, (net, value) in enumerate(
            zip(self.frame.nets, self.frame.values, strict=True)
        ):
            source = self.frame.items[net.source]
            x = self._leaves_at(source, value)
            # A type is written on the edge below its box; from there it goes down to the row's end.
            y = self.tops[source.row] + (BOX if source.inner is None else _height(source))
            if source.role == "entry":
                y = self.tops[source.row] - PAD
            foot = self.tops[source.row] + self.rows[source.row]
            path = [f"M{x:.1f} {y:.1f}V{foot:.1f}"]
            ends: list[tuple[float, float]] = []
            far = set(net.far)
            near = [target for target in net.targets if target not in far]
            self._fan(path, ends, number, near, x, foot)
            for target in net.far:
                self._lane(path, ends, number, target, x, foot)
            self.drawing.edges.append(Edge(value, "".join(path), tuple(ends)))

    def _leaves_at(self, source: Item, value: Node) -> float:
        if source.inner is None:
            return self.left + source.x
        edge = self.left + source.x - source.width / 2
        shift = (source.width - source.inner.width) / 2 - PAD
        return edge + shift + source.inner.ports("exit")[value]

    def _fan(
        self,
        path: list[str],
        ends: list[tuple[float, float]],
        number: int,
        targets: Sequence[int],
        x: float,
        y: float,
    ) -> None:
        """Go down the trunk, with a branch to each target."""
        net = self.frame.nets[number]
        start = self.frame.items[net.source].row
        ending: dict[int, list[int]] = {}
        for target in targets:
            ending.setdefault(self.frame.items[target].row, []).append(target)
        for row in range(start + 1, max(ending, default=start) + 1):
            for target in ending.get(row, ()):
                self._end(path, ends, number, target, x, y)
            if row - start - 1 < len(net.trunk) and row < max(ending):
                onward = self.left + net.trunk[row - start - 1]
                top, foot = self.tops[row], self.tops[row] + self.rows[row]
                path.append(f"M{x:.1f} {y:.1f}{_curve(x, y, onward, top)}V{foot:.1f}")
                x, y = onward, foot

    def _end(
        self,
        path: list[str],
        ends: list[tuple[float, float]],
        number: int,
        target: int,
        x: float,
        y: float,
    ) -> None:
        item = self.frame.items[target]
        to, top = self.arriving[number, target], self.tops[item.row]
        path.append(f"M{x:.1f} {y:.1f}{_curve(x, y, to, top)}")
        if item.role == "exit":
            path.append(f"V{top + PAD:.1f}")
        elif item.inner is None:
            ends.append((to, top))

    def _lane(
        self,
        path: list[str],
        ends: list[tuple[float, float]],
        number: int,
        target: int,
        x: float,
        y: float,
    ) -> None:
        """Go through the lane at the side, down or up."""
        net = self.frame.nets[number]
        assert net.lane is not None
        item = self.frame.items[target]
        lane = self.left + net.lane
        to, top = self.arriving[number, target], self.tops[item.row]
        step = 4.0 + (number % 6) * _LANE_STEP
        out, back = y + step, top - step
        down = 1.0 if back > out else -1.0
        path.append(
            f"M{x:.1f} {y:.1f}V{out:.1f}H{lane - _TURN:.1f}"
            f"Q{lane:.1f} {out:.1f} {lane:.1f} {out + down * _TURN:.1f}"
            f"V{back - down * _TURN:.1f}Q{lane:.1f} {back:.1f} {lane - _TURN:.1f} {back:.1f}"
            f"H{to:.1f}V{top:.1f}"
        )
        if item.role == "exit":
            path.append(f"V{top + PAD:.1f}")
        elif item.inner is None:
            ends.append((to, top))


def _curve(x: float, y: float, to: float, end: float) -> str:
    """Return a curve that starts and ends upright, as part of a path."""
    if abs(x - to) < 0.5:
        return f"L{to:.1f} {end:.1f}"
    middle = (y + end) / 2
    return f"C{x:.1f} {middle:.1f} {to:.1f} {middle:.1f} {to:.1f} {end:.1f}"
