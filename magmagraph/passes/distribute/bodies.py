"""Distribute operations that hold graphs: walk their bodies with the layouts of the operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.graph import Graph, Node
from ...ops.control.branch import branch
from ...ops.control.loop import extent_of, loop
from ...ops.leaf import input
from ...ops.rules.sharding import NotSharded
from .layouts import SUM, WHOLE, Layout, Way, parts
from .walk import Walk, as_sum, counts, is_zero

__all__ = ["BODIES"]

Made = tuple[Any, Any]


def _walked(
    walk: Walk, body: Graph, leaves: Mapping[Node, tuple[Node, Layout]], joined: Sequence[bool]
) -> tuple[Walk, list[Node]]:
    """Walk a body, and return its results; sums over ranks are taken where `joined`."""
    inner = walk.inside(counts(body.nodes, body.outputs))
    for parameter, (value, layout) in leaves.items():
        inner.given(parameter, value, layout)
    inner.run(body.nodes)
    outputs = [
        inner.complete(node) if join else inner.value[node]
        for node, join in zip(body.outputs, joined, strict=True)
    ]
    return inner, outputs


def _loop(walk: Walk, node: Node) -> Made:
    attrs = node.attrs
    body: Graph = attrs["body"]
    carries, stacks, flag = attrs["carries"], attrs["stacks"], attrs["flag"]
    edge = carries + stacks
    layouts = walk.layouts(node)
    for layout in layouts[carries:edge]:
        if layout.way is Way.PARTS and layout.axis == 0:
            raise NotSharded("it loops over the rows, which are spread over the ranks")
    if walk.sharded.in_extent(extent_of(node)):
        raise NotSharded("it runs as often as there are rows on all ranks")
    fresh = [input("operand", leaf.shape, leaf.dtype) for leaf in body.inputs[:edge]]
    # What begins at zero may be a sum over ranks until a turn shows that it is not: a gradient.
    carried = [
        SUM if layout.way is Way.WHOLE and is_zero(start) else layout
        for start, layout in zip(node.inputs, layouts[:carries], strict=False)
    ]
    stuck = [False] * carries  # what the body needs whole
    while True:
        leaves: dict[Node, tuple[Node, Layout]] = {}
        for i, parameter in enumerate(body.inputs):
            operand, layout = node.inputs[i], layouts[i]
            if i < carries:
                leaves[parameter] = (fresh[i], carried[i])
            elif i < edge:
                row = parts(layout.axis - 1, layout.outer) if layout.way is Way.PARTS else WHOLE
                leaves[parameter] = (fresh[i], row)
            else:
                whole = layout if layout.way is Way.PARTS else WHOLE
                leaves[parameter] = (walk.complete(operand), whole)
        inner, _ = _walked(walk, body, leaves, [False] * len(body.outputs))
        changed = False
        for i, output in enumerate(body.outputs[:carries]):
            after = inner.layout[output]
            before = carried[i]
            if before.way is Way.SUM and (after.way is not Way.SUM or _completes(inner, body, i)):
                carried[i], stuck[i], changed = WHOLE, True, True
            elif before.way is Way.WHOLE and after.way is Way.SUM and not stuck[i]:
                carried[i], changed = SUM, True
            elif before.way is Way.PARTS and after.way is Way.PARTS:
                same, outer = walk.sharded.joined((before.outer, after.outer))
                if before.axis != after.axis or not same:
                    raise NotSharded("a carry's rows change their order from one turn to the next")
                if outer != before.outer:
                    carried[i], changed = parts(before.axis, outer), True
            elif before.way is not after.way and not stuck[i]:
                raise NotSharded(f"a carry is {before} before a turn and {after} after it")
        if not changed:
            break
    if flag == "carry" and carried[0].way is not Way.WHOLE:
        raise NotSharded("ranks would run it different numbers of times")
    joined = [carried[i].way is Way.WHOLE for i in range(carries)]
    joined += [False] * (len(body.outputs) - carries)
    outputs_inside = [
        inner.complete(output) if join else inner.value[output]
        for output, join in zip(body.outputs, joined, strict=True)
    ]
    starts = {
        fresh[i]: as_sum(walk, node.inputs[i])
        if carried[i].way is Way.SUM
        else walk.complete(node.inputs[i])
        for i in range(carries)
    }
    stacked = {fresh[i]: walk.complete(node.inputs[i]) for i in range(carries, edge)}
    finals, rows = loop(
        outputs_inside[:carries],
        outputs_inside[carries:],
        starts,
        stacked,
        length=None if stacks else extent_of(node),
        reverse=attrs["reverse"],
        flag=flag,
        save="nothing",  # what gradients read is among its rows already
    )
    after = list(carried)
    for output in body.outputs[carries:]:
        layout = inner.layout[output]
        after.append(parts(layout.axis + 1, layout.outer) if layout.way is Way.PARTS else layout)
    return _results(node, [*finals, *rows], after)


def _completes(inner: Walk, body: Graph, i: int) -> bool:
    """Return whether the body takes the sum over ranks of a carry."""
    return body.inputs[i] in inner.completed


def _results(node: Node, values: Sequence[Node], layouts: Sequence[Layout]) -> Made:
    if isinstance(node.type, tuple):
        return tuple(values), tuple(layouts)
    return values[0], layouts[0]


def _branch(walk: Walk, node: Node) -> Made:
    index, *operands = node.inputs
    chosen, *layouts = walk.layouts(node)
    if chosen.way is not Way.WHOLE and chosen.way is not Way.SUM:
        raise NotSharded("ranks would take different branches")
    bodies: tuple[Graph, ...] = node.attrs["bodies"]
    fresh = [input("operand", operand.shape, operand.dtype) for operand in operands]
    operand_layouts = [layout if layout.way is Way.PARTS else WHOLE for layout in layouts]
    walked: list[Walk] = []
    for body in bodies:
        leaves = dict(zip(body.inputs, zip(fresh, operand_layouts, strict=True), strict=True))
        walked.append(_walked(walk, body, leaves, [False] * len(body.outputs))[0])
    choices: list[list[Node]] = [[] for _ in bodies]
    result_layouts: list[Layout] = []
    for outputs in zip(*(body.outputs for body in bodies), strict=True):
        ways = [inner.layout[output] for inner, output in zip(walked, outputs, strict=True)]
        if len({layout for layout in ways if layout.way is Way.PARTS}) > 1:
            raise NotSharded("its branches give rows in different orders")
        apart = any(layout.way is Way.SUM for layout in ways)
        result_layouts.append(SUM if apart else ways[0])
        for choice, inner, output in zip(choices, walked, outputs, strict=True):
            choice.append(as_sum(inner, output) if apart else inner.value[output])
    starts = dict(zip(fresh, map(walk.complete, operands), strict=True))
    return _results(node, branch(walk.complete(index), choices, starts), result_layouts)


def _subgraph(walk: Walk, node: Node) -> Made:
    """Inline a subgraph, on the values of the rank."""
    body: Graph = node.attrs["body"]
    leaves = {
        parameter: (walk.value[operand], layout)
        for parameter, operand, layout in zip(
            body.inputs, node.inputs, walk.layouts(node), strict=True
        )
    }
    inner, outputs = _walked(walk, body, leaves, [False] * len(body.outputs))
    return _results(node, outputs, [inner.layout[output] for output in body.outputs])


BODIES: dict[str, Callable[[Walk, Node], Made]] = {
    "turns": _loop,
    "choice": _branch,
    "written out": _subgraph,
}
