"""Choose which nodes a picture of a graph shows as boxes or frames, and which it hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...ir.graph import Graph, Node, Trace, operations
from ...ir.lines import Group
from ...ir.op import Effect, Kind
from ...text.writing import Writer
from .layered import Layout
from .scene_frame import Frame, Item, join

_APART = 4  # steps of a path between two readers of a leaf from which on it is drawn twice
_NAMED = 3  # operations in the title of a kernel
_LONGEST = 40  # characters of a name
_SHOWN = ("axis", "axes", "permutation", "index")  # attributes that stand in labels, if short
_SHORT = 12
_PRODUCT = "transpose_a"  # the attribute that lowered products have

Source = tuple[Item, Frame]


class Scene:
    """A picture of some nodes: frames and boxes, each in its place.

    nodes, outputs, updates: As of a `Graph`.
    hint: A place from left to right for nodes, from the picture of a similar graph.
    group: The group that a node belongs to; that of its own line unless given. A function's group
        of one node is left out.
    layouts: Layouts that other pictures found, to use again.
    root: The frame that holds everything.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[Node],
        updates: Sequence[tuple[Node, Node]],
        hint: Mapping[Node, float] | None = None,
        group: Callable[[Node], Group | None] | None = None,
        layouts: dict[Any, Layout] | None = None,
    ) -> None:
        self.root = Frame()
        self._group = group or own_group
        self._frames: dict[Group | None, Frame] = {None: self.root}
        self._titles: Counter[tuple[Frame, str]] = Counter()
        self._sizes = Counter(
            around
            for node in nodes
            if node.op.kind is not Kind.LEAF and (inner := self._group(node)) is not None
            for around in inner.around()
        )
        self._made: dict[Node, Source] = {}  # where a value can be read
        self._results: dict[Node, list[Source | Node]] = {}  # of kernels with several results
        self._leaves: dict[Node, list[tuple[int, Item, Frame]]] = {}
        self._depth: dict[Node, int] = {}
        self._writer = Writer()
        self._read = {operand for node in nodes for operand in node.inputs}
        self._read.update(outputs, (value for _, value in updates))
        for node in nodes:
            self._show(node)
        self._ends(outputs, updates)
        for leaf, readers in self._leaves.items():
            self._show_leaf(leaf, readers)
        self.root.arrange(hint or {}, {} if layouts is None else layouts)

    def places(self) -> dict[Node, float]:
        """Return where nodes are from left to right, to lay out a similar graph alike."""
        return {
            item.node: item.x
            for frame in self.root.frames()
            for item in frame.items
            if item.node is not None and item.role in ("node", "frame")
        }

    # ------------------------------------------------------------------ nodes

    def _show(self, node: Node) -> None:
        """Add what shows a node; its operands are there already."""
        self._depth[node] = 1 + max((self._depth[i] for i in node.inputs), default=-1)
        if is_number(node):
            return
        if node.op.kind is Kind.LEAF:
            self._leaves[node] = []
        elif node.inputs and node.inputs[0] in self._results:
            result = self._results[node.inputs[0]][int(node.attrs["index"])]
            if isinstance(result, Node):
                self._pass_on(node, result)
            else:
                self._made[node] = result
        elif bodies := bodies_of(node):
            self._kernel(node, bodies)
        else:
            frame = self._frame(self._group(node))
            item = frame.add(self._box(node, node.inputs, self._read))
            for operand in node.inputs:
                self._lead(operand, item, frame, self._depth[node])
            self._made[node] = (item, frame)

    def _frame(self, group: Group | None) -> Frame:
        """Return the frame of a group; a second one of a name in the same frame has a number."""
        frame = self._frames.get(group)
        if frame is None:
            assert group is not None
            outer = self._frame(group.parent)
            if group.kind == "function" and self._sizes[group] < 2:
                frame = outer
            else:
                self._titles[outer, group.name] += 1
                count = self._titles[outer, group.name]
                frame = outer.open(group.name if count == 1 else f"{group.name} {count}")
            self._frames[group] = frame
        return frame

    def _box(self, node: Node, operands: Sequence[Node], read: Iterable[Node]) -> Item:
        note = self._writer.types(node.type) if node in read else ""
        return Item("node", node, label_of(node, operands), note, style_of(node))

    def _pass_on(self, node: Node, operand: Node) -> None:
        """Let a result that is an operand be read where the operand is."""
        if operand in self._leaves:
            self._leaves[node] = self._leaves[operand]
        elif operand in self._made:
            self._made[node] = self._made[operand]

    def _kernel(self, node: Node, bodies: Sequence[Graph]) -> None:
        """Add a frame that shows the body of a fused node."""
        frame = self._frame(self._group(node)).open(kernel_title(node), node, "fused")
        operands = iter(node.inputs)
        results: list[Source | Node] = []
        for body in bodies:
            stands = {parameter: next(operands) for parameter in body.inputs}
            read = {operand for inner in body.nodes for operand in inner.inputs}
            read.update(body.outputs)
            shown: dict[Node, Item] = {}
            for inner in body.nodes:
                if inner.op.kind is Kind.LEAF:
                    if inner not in stands and not is_number(inner):
                        shown[inner] = frame.add(self._box(inner, (), read))
                    continue
                operand_values = [stands.get(operand, operand) for operand in inner.inputs]
                box = shown[inner] = frame.add(self._box(inner, operand_values, read))
                for operand in inner.inputs:
                    if operand in shown:
                        frame.connect(shown[operand], box, operand)
                    elif operand in stands:
                        self._lead(stands[operand], box, frame, self._depth[node])
            for out in body.outputs:
                results.append((shown[out], frame) if out in shown else stands.get(out, out))
        if len(results) > 1:
            self._results[node] = results
        elif isinstance(results[0], Node):
            self._pass_on(node, results[0])
        else:
            self._made[node] = results[0]

    # ------------------------------------------------------------------ edges

    def _lead(self, value: Node, item: Item, frame: Frame, depth: int) -> None:
        """Let an item read a value."""
        if value in self._leaves:
            self._leaves[value].append((depth, item, frame))
        elif value in self._made:
            join(self._made[value], (item, frame), value)

    def _ends(self, outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]]) -> None:
        """Add a box for each new value and each result."""
        for variable, value in updates:
            item = Item("update", variable, f"update {_name(variable)}", style="update")
            self._lead(value, self.root.add(item), self.root, self._depth[value] + 1)
        for position, value in enumerate(outputs):
            label = "return" if len(outputs) == 1 else f"return {position}"
            item = Item("output", value, label, style="output")
            self._lead(value, self.root.add(item), self.root, self._depth[value] + 1)

    def _show_leaf(self, leaf: Node, readers: list[tuple[int, Item, Frame]]) -> None:
        """Add a leaf, in each place where it is read."""
        note = self._writer.types(leaf.type)
        label, style = label_of(leaf, ()), style_of(leaf)
        if not readers:
            if not is_number(leaf) and leaf in self._leaves and leaf.op.kind is Kind.LEAF:
                self.root.add(Item("node", leaf, label, note, style))
            return
        if leaf.op.kind is not Kind.LEAF:
            return  # a kernel's result that is this leaf: its readers are the leaf's
        readers.sort(key=lambda reader: reader[0])
        groups = [[readers[0]]]
        for reader in readers[1:]:
            if reader[0] - groups[-1][-1][0] > _APART:
                groups.append([])
            groups[-1].append(reader)
        drawn: dict[tuple[Frame, Frame | None], Item] = {}
        for group in groups:
            around = [frame for _, _, frame in group]
            if style == "input":  # what is fed comes from outside of the groups that read it
                around.append(self._frame(self._group(leaf)))
            frame = _common(around)
            # Two that would enter the same frame within are one.
            key = (frame, _towards(frame, group[0][2]))
            box = drawn.get(key) if key[1] is not None else None
            if box is None:
                box = frame.add(Item("node", leaf, label, note, style))
                drawn[key] = box
            for _, item, inner in group:
                join((box, frame), (item, inner), leaf)


def _towards(outer: Frame, inner: Frame) -> Frame | None:
    """Return the frame directly in `outer` that contains `inner`; None where that is `outer`."""
    child = None
    while inner is not outer:
        assert inner.parent is not None
        child, inner = inner, inner.parent
    return child


def own_group(node: Node) -> Group | None:
    """Return the group in which a node was made; of a kernel, the one around all it computes."""
    bodies = bodies_of(node)
    if not bodies:
        return node.line.group if node.line else None
    inner = (n for body in bodies for n in body.nodes if n.op.kind is not Kind.LEAF)
    return shared_group(own_group(n) for n in inner)


def shared_group(groups: Iterable[Group | None]) -> Group | None:
    """Return the innermost group around some; what has none counts only if it is the most.

    Examples
    --------
    >>> a = Group("a")
    >>> b = Group("b", a)
    >>> shared_group([Group("c", b), b, Group("d", a), None])
    <scope a>
    >>> shared_group([a, None, None]) is None
    True
    """
    listed = list(groups)
    inside = [group for group in listed if group is not None]
    if not inside or 2 * len(inside) < len(listed):
        return None
    shared = list(inside[0].around())
    for group in dict.fromkeys(inside[1:]):
        around = set(group.around())
        shared = [outer for outer in shared if outer in around]
    return shared[0] if shared else None


def traced_group(trace: Trace) -> Callable[[Node], Group | None]:
    """Return the function that gives the group of what passes made: that of what it came from."""
    olds: dict[Node, list[Node]] = {}
    for old, became in trace.became.items():
        for _, _, new in became:
            if bodies_of(new):
                olds.setdefault(new, []).append(old)

    def group(node: Node) -> Group | None:
        if node in olds:
            parts = [user for old in olds[node] for user in trace.origins(old)]
        else:
            parts = trace.origins(node)
        return shared_group(own_group(part) for part in parts) if parts else own_group(node)

    return group


def _common(frames: Sequence[Frame]) -> Frame:
    """Return the innermost frame, none of a kernel, that is around all of some."""
    common = frames[0]
    for frame in frames[1:]:
        while common is not frame:
            if common.depth >= frame.depth:
                assert common.parent is not None
                common = common.parent
            else:
                assert frame.parent is not None
                frame = frame.parent
    while common.kernel is not None:
        assert common.parent is not None
        common = common.parent
    return common


# ---------------------------------------------------------------------- texts


def is_number(node: Node) -> bool:
    """Return whether a node is a number that the labels of its readers show."""
    constant = "value" in node.attrs or "dim" in node.attrs
    return constant and node.op.kind is Kind.LEAF and node.shape == ()


def bodies_of(node: Node) -> tuple[Graph, ...]:
    """Return the graphs that a kernel computes; nothing for other nodes."""
    if node.op.kind is not Kind.LOWERED:
        return ()
    body = node.attrs.get("body")
    bodies = node.attrs.get("bodies", () if body is None else (body,))
    return tuple(body for body in bodies if isinstance(body, Graph))


def label_of(node: Node, operands: Sequence[Node]) -> str:
    """Return the text in the box of a node: its name, operation, numbers and attributes.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> y = mg.multiply(x, 0.5)
    >>> label_of(y, y.inputs)
    'multiply 0.5'
    """
    if node.op.kind is Kind.LEAF:
        return _name(node)
    parts = [node.op.name]
    parts += [_number(operand) for operand in operands if is_number(operand)]
    for name in _SHOWN:
        if name in node.attrs and len(text := _plain(node.attrs[name])) <= _SHORT and text:
            parts.append(f"{name}={text}")
    text = " ".join(parts)
    return _cut(f"{node.name} = {text}" if node.name else text)


def kernel_title(node: Node) -> str:
    """Return the title of a kernel's frame: what it computes, so that kernels can be told apart.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> f = mg.function([x], mg.exp(x) + 1.0).compile()
    >>> kernel_title(f.graph.outputs[0])
    'kernel: exp, add'
    """
    names = operations(node)
    more = len(names) - _NAMED
    return f"kernel: {', '.join(names[:_NAMED])}" + (f" and {more} more" if more > 0 else "")


def style_of(node: Node) -> str:
    """Return the key of a node's colours: its kind, or for leaves the kind of leaf.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> style_of(x), style_of(mg.sum(x))
    ('input', 'reduction')
    """
    if node.op.kind is Kind.LEAF:
        if node.op.effect is Effect.STATE:
            return "variable"
        return "constant" if "value" in node.attrs else "input"
    if node.op.kind is Kind.LOWERED and _PRODUCT in node.attrs:
        return Kind.CONTRACTION.value
    return node.op.kind.value


def line_of(node: Node) -> str:
    """Return the user's line that made a node, without its folder."""
    return f"{Path(node.line.file).name}:{node.line.number}" if node.line else ""


def _name(node: Node) -> str:
    return _cut(node.name or node.op.name)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 12]}…{text[-11:]}"


def _number(node: Node) -> str:
    if "dim" in node.attrs:
        return str(node.attrs["dim"])
    value = node.attrs["value"]
    return f"{value.item():.4g}" if node.dtype.kind == "f" else str(value)


def _plain(value: Any) -> str:
    """Return an attribute in few characters."""
    if isinstance(value, tuple) and all(isinstance(e, int) for e in value):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, int) else ""
