"""Frames and items of a picture, and their positions within their frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.graph import Node
from .layered import Layout, Net, layered

CHARACTER = 7.3  # width of one of a label in CSS pixels: the widest of the fonts' at 12 pixels
SMALL = 6.4  # width of one of a type, at 10.5 pixels
BOX = 28.0  # height of a box
TYPE = 20.0  # height of the type below it
SIGN = 26.0  # width of the sign at the left of a box
ROW_GAP = 26.0
PAD = 14.0  # between a frame and what is in it
TITLE = 20.0  # height of a frame's title
PORT = 8.0


@dataclass(eq=False)
class Item:
    """One thing in a frame.

    role: "node", "frame", "entry" or "exit" (where a value crosses the frame's edge), "update" or
        "output" (where a value ends).
    node: The node that it shows; of entries, exits and outputs, the value; of updates, the
        variable.
    label: Its text.
    note: The type of its value, which stands on the edge below it.
    style: Its colours: a key of `palette.COLOURS`.
    inner: Of a frame, what is in it.
    width, row, x: Its place: `x` is its middle, from the left of what its frame holds.
    number: Its position in its frame.
    """

    role: str
    node: Node | None
    label: str = ""
    note: str = ""
    style: str = ""
    inner: Frame | None = None
    width: float = PORT
    row: int = 0
    x: float = 0.0
    number: int = -1

    def __post_init__(self) -> None:
        if self.role not in ("entry", "exit"):
            self.width = max(
                SIGN + len(self.label) * CHARACTER + 12.0, len(self.note) * SMALL + 8.0
            )


@dataclass(eq=False)
class Frame:
    """A part of a picture that is laid out on its own.

    title: Of a scope, its name; empty for the whole.
    parent: The frame around it.
    kernel: The fused node that it shows, if it shows one.
    items: What is in it.
    nets: Their edges, between the numbers of items; ``values`` has the value of each.
    item: What shows it in its parent.
    width: Of what it holds.
    """

    title: str = ""
    parent: Frame | None = None
    kernel: Node | None = None
    items: list[Item] = field(default_factory=list)
    nets: list[Net] = field(default_factory=list)
    values: list[Node] = field(default_factory=list)
    item: Item | None = None
    width: float = 0.0
    depth: int = 0
    _ports: dict[tuple[str, Node], Item] = field(default_factory=dict)
    _nets: dict[tuple[int, Node | None], Net] = field(default_factory=dict)
    _edges: set[tuple[int, int]] = field(default_factory=set)

    def add(self, item: Item) -> Item:
        """Append and return an item."""
        item.number = len(self.items)
        self.items.append(item)
        return item

    def open(self, title: str, kernel: Node | None = None, style: str = "scope") -> Frame:
        """Append and return a frame within."""
        inner = Frame(title, self, kernel, depth=self.depth + 1)
        inner.item = self.add(Item("frame", kernel, title, style=style, inner=inner))
        return inner

    def port(self, role: str, value: Node) -> Item:
        """Return where a value comes in ("entry") or goes out ("exit")."""
        item = self._ports.get((role, value))
        if item is None:
            item = self._ports[role, value] = self.add(Item(role, value))
        return item

    def connect(self, source: Item, target: Item, value: Node) -> None:
        """Let an item read a value of another; a frame has several, all others have one."""
        key = (source.number, value if source.role == "frame" else None)
        net = self._nets.get(key)
        if net is None:
            net = self._nets[key] = Net(source.number, [])
            self.nets.append(net)
            self.values.append(value)
        edge = (id(net), target.number)
        if edge not in self._edges:
            self._edges.add(edge)
            net.targets.append(target.number)

    def ports(self, role: str) -> dict[Node, float]:
        """Return the place of each port of a role, from the frame's left edge."""
        return {
            value: PAD + item.x for (kind, value), item in self._ports.items() if kind == role
        }

    def frames(self) -> Iterator[Frame]:
        """Give this frame and all within it, outer ones first."""
        yield self
        for item in self.items:
            if item.inner is not None:
                yield from item.inner.frames()

    def arrange(self, hint: Mapping[Node, float], layouts: dict[Any, Layout]) -> None:
        """Choose the place of everything in it, innermost frames first.

        hint: A place from left to right for some nodes, to start from.
        layouts: The layouts so far, by what they were made of: a network repeats its blocks, and a
            pass leaves most of them alone.
        """
        for item in self.items:
            if item.inner is not None:
                item.inner.arrange(hint, layouts)
                item.width = max(item.width, item.inner.width + 2 * PAD)
        widths = [item.width for item in self.items]
        roles = tuple([item.role for item in self.items])
        key = (tuple(widths), roles, tuple([(net.source, *net.targets) for net in self.nets]))
        layout = layouts.get(key)
        if layout is None:
            start = None
            if any(item.node in hint for item in self.items):
                start = [0.0 if i.node is None else hint.get(i.node, 0.0) for i in self.items]
            layout = layouts[key] = layered(
                widths,
                self.nets,
                top=[i for i, role in enumerate(roles) if role == "entry"],
                bottom=[i for i, role in enumerate(roles) if role == "exit"],
                hint=start,
            )
        self.nets = layout.nets
        self.width = layout.width
        for item, row, x in zip(self.items, layout.rows, layout.columns, strict=True):
            item.row, item.x = row, x


def join(source: tuple[Item, Frame], target: tuple[Item, Frame], value: Node) -> None:
    """Lead a value from one item to another, through the edges of the frames between them."""
    item, frame = source
    reader, inner = target
    down: list[Frame] = []
    while inner.depth > frame.depth:
        down.append(inner)
        inner = _parent(inner)
    while frame is not inner:
        if frame.depth > inner.depth:
            frame, item = _out(frame, item, value)
            continue
        down.append(inner)
        inner = _parent(inner)
        frame, item = _out(frame, item, value)
    for within in reversed(down):
        assert within.item is not None
        frame.connect(item, within.item, value)
        frame, item = within, within.port("entry", value)
    frame.connect(item, reader, value)


def _parent(frame: Frame) -> Frame:
    assert frame.parent is not None
    return frame.parent


def _out(frame: Frame, item: Item, value: Node) -> tuple[Frame, Item]:
    """Lead a value out of a frame; return the frame around it, and what stands for it there."""
    frame.connect(item, frame.port("exit", value), value)
    assert frame.item is not None
    return _parent(frame), frame.item
