"""The derivatives of loops: reverse mode for those that save rows, forward mode for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...dtypes import is_inexact
from ...graph import Graph, Node
from ...op import Parts
from ...transforms.rebuild import rebuild, unobserved
from ..elementwise.arithmetic import add
from ..leaf import input
from .identities import ITEM
from .mapped import results_of

_forward: ContextVar[bool] = ContextVar("forward", default=False)


@contextmanager
def forward_mode() -> Iterator[None]:
    """Let rules of loops without a bound make what only forward mode resolves."""
    token = _forward.set(True)
    try:
        yield
    finally:
        _forward.reset(token)


class _Body:
    """A loop's body on leaves of its own, and what each leaf stands for."""

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        self.node = node
        self.carries: int = attrs["carries"]
        self.stacks: int = attrs["stacks"]
        body: Graph = attrs["body"]
        self.points = [input(f"operand {i}", p.shape, p.dtype) for i, p in enumerate(body.inputs)]
        known = dict(zip(body.inputs, self.points, strict=True))
        self.made = rebuild(body.outputs, known, unobserved)
        edge = self.carries + self.stacks
        self.carry_points = self.points[: self.carries]
        self.row_points = self.points[self.carries : edge]
        self.read_points = self.points[edge:]
        self.starts = node.inputs[: self.carries]
        self.stack_nodes = node.inputs[self.carries : edge]
        self.reads = node.inputs[edge:]

    def live(self, arriving: Sequence[Node | None]) -> list[bool]:
        """Return which outputs of the body have a cotangent, from which results have one."""
        from ...gradients.autodiff import sweep

        has = [cotangent is not None for cotangent in arriving]
        targets = [("", point) for point in self.carry_points if is_inexact(point.dtype)]
        while True:
            outputs = [m for m, h in zip(self.made, has, strict=True) if h]
            weights = [input("weight", m.shape, m.dtype) for m in outputs]
            found = dict(
                zip([p for _, p in targets], sweep(outputs, weights, targets), strict=True)
            )
            before = sum(has)
            for place, point in enumerate(self.carry_points):
                has[place] = has[place] or found.get(point) is not None
            if sum(has) == before:
                return has


def loop_gradient(node: Node, cotangents: Any) -> Parts:
    """Return the cotangents of a loop's operands, by a loop that runs the other way."""
    from .loop import extent_of

    single = not isinstance(node.type, tuple)
    arriving: list[Node | None] = [cotangents] if single else list(cotangents)
    if extent_of(node) is None:
        return _pulled_back(node, arriving)
    return _reversed(node, arriving)


def _reversed(node: Node, arriving: Sequence[Node | None]) -> list[Node | None]:
    from ...gradients.autodiff import sweep, zeros_of
    from .loop import extent_of, loop

    held = _Body(node)
    has = held.live(arriving)
    if not any(has):
        return [None] * len(node.inputs)
    results = results_of(node)
    weights = [
        input("cotangent", made.shape, made.dtype) if live else None
        for made, live in zip(held.made, has, strict=True)
    ]
    wanted = [point for point in held.points if is_inexact(point.dtype)]
    outputs = [made for made, live in zip(held.made, has, strict=True) if live]
    seeds = [weight for weight in weights if weight is not None]
    found: dict[Node, Node | None] = dict(
        zip(wanted, sweep(outputs, seeds, [("", point) for point in wanted]), strict=True)
    )
    # What the forward loop left as rows is read, not computed again.
    rows: dict[Node, Node] = {}
    kept: dict[Node, Node] = {}
    for made, result in zip(held.made[held.carries :], results[held.carries :], strict=True):
        if made not in kept and made not in held.row_points and made not in held.read_points:
            kept[made] = input("kept", made.shape, made.dtype)
            rows[kept[made]] = result
    known = {**kept, **dict(zip(held.read_points, held.reads, strict=True))}
    reads_of = {
        (id(made.inputs[0]), made.attrs["index"]): leaf
        for made, leaf in kept.items()
        if made.op is ITEM
    }

    def renew(made: Node, operands: tuple[Node, ...]) -> Node | None:
        # Rules ask anew for the results of a node that has several.
        return reads_of.get((id(made.inputs[0]), made.attrs["index"])) if made.op is ITEM else None

    reached = [point for point in wanted if found[point] is not None]
    parts = dict(
        zip(reached, rebuild([found[p] for p in reached], known, renew), strict=True)  # type: ignore[misc]
    )
    starts: dict[Node, Node] = {}
    carried: list[Node] = []
    for place, point in enumerate(held.carry_points):
        weight = weights[place]
        if weight is not None:
            given = arriving[place]
            starts[weight] = zeros_of(weight) if given is None else given
            carried.append(parts[point] if point in parts else zeros_of(weight))
    for point, read in zip(held.read_points, held.reads, strict=True):
        if point in parts:
            total = input("total", read.shape, read.dtype)
            starts[total] = zeros_of(read)
            carried.append(add(total, parts[point]))
    made_rows = [parts[point] for point in held.row_points if point in parts]
    stacked: dict[Node, Node] = {}
    flag: str = node.attrs["flag"]
    if flag:
        # Iterations that did not run left zeros, so that the history of the flag says which did.
        ran = rows[kept[held.carry_points[0]]] if flag == "carry" else held.stack_nodes[0]
        stacked[input("ran", (), ran.dtype)] = ran
    stacked.update(zip(held.row_points, held.stack_nodes, strict=True))
    stacked.update(rows)
    stacked.update(
        (weight, given)
        for weight, given in zip(weights[held.carries :], arriving[held.carries :], strict=True)
        if weight is not None and given is not None
    )
    # Where nothing tells the iterations apart, their number counts.
    length = None if stacked else extent_of(node)
    finals, slopes = loop(
        carried,
        made_rows,
        starts,
        stacked,
        length=length,
        reverse=not node.attrs["reverse"],
        flag="stack" if flag else "",
    )
    last, row = iter(finals), iter(slopes)
    arrived: list[Node | None] = [
        None if weight is None else next(last) for weight in weights[: held.carries]
    ]
    arrived += [next(row) if point in parts else None for point in held.row_points]
    arrived += [next(last) if point in parts else None for point in held.read_points]
    return arrived


# Loops without a bound.


def _pulled_back(node: Node, arriving: Sequence[Node | None]) -> Parts:
    """Return a node in the place of cotangents that nothing can compute; it is linear in them."""
    from .loop import PULLBACK, unbounded

    if not _forward.get():
        return [unbounded()] * len(node.inputs)
    from ...gradients.autodiff import zeros_of

    results = results_of(node)
    weights = [
        zeros_of(result) if cotangent is None else cotangent
        for result, cotangent in zip(results, arriving, strict=True)
        if is_inexact(result.dtype)
    ]
    places = [i for i, operand in enumerate(node.inputs) if is_inexact(operand.dtype)]
    if not places or all(cotangent is None for cotangent in arriving):
        return [None] * len(node.inputs)
    made = PULLBACK(
        *node.inputs,
        *weights,
        results=tuple(node.inputs[i].type for i in places),
        **node.attrs,
    )
    parts: list[Node | None] = [None] * len(node.inputs)
    for i, part in zip(places, results_of(made), strict=True):
        parts[i] = part
    return parts


def pullback_gradient(node: Node, tangents: Any) -> Parts:
    """Return the tangents of a loop's results: the loop runs once more, with tangents beside."""
    from ...gradients.autodiff import zeros_of
    from ...gradients.derivatives import forward
    from .loop import LOOP, loop, unbounded

    attrs = {name: value for name, value in node.attrs.items() if name != "results"}
    body: Graph = attrs["body"]
    operands = node.inputs[: len(body.inputs)]
    arriving = list(tangents) if isinstance(node.type, tuple) else [tangents]
    places = [i for i, operand in enumerate(operands) if is_inexact(operand.dtype)]
    along = dict(zip(places, arriving, strict=True))
    held = _Body(LOOP(*operands, **attrs))
    directions = {i: input("tangent", held.points[i].shape, held.points[i].dtype) for i in places}
    found = forward(
        [made for made in held.made if is_inexact(made.dtype)],
        [("", held.points[i]) for i in places],
        [directions[i] for i in places],
    )
    moving = iter(found)
    slopes = [next(moving) if is_inexact(made.dtype) else None for made in held.made]
    starts = dict(zip(held.carry_points, held.starts, strict=True))
    carried = list(held.made)
    for i, point in enumerate(held.carry_points):
        if i in directions:
            given, slope = along[i], slopes[i]
            starts[directions[i]] = zeros_of(point) if given is None else given
            carried.append(zeros_of(point) if slope is None else slope)
    known = dict(zip(held.read_points, held.reads, strict=True))
    for i in places[sum(place < held.carries for place in places) :]:
        given = along[i]
        known[directions[i]] = zeros_of(operands[i]) if given is None else given
    finals, _ = loop(rebuild(carried, known), [], starts, {}, flag=attrs["flag"])
    moved = finals[held.carries :]
    # Second derivatives would need the reverse mode that there is not.
    return [*[unbounded()] * len(operands), *moved]


