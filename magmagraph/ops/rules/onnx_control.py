"""How loops, branches and running values are written in ONNX: operators that run graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import iinfo, is_bool, is_float
from ...graph import Graph, Node
from ...types import Type
from ..leaf import parameter
from .onnx_forms import Names, Rule, Target

__all__ = ["branched", "highest", "looped", "lowest", "mapped", "scanned_with"]

_FLAG = Type(np.dtype(np.bool_), ())
_STEP = Type(np.dtype(np.int64), ())


def _types(node: Node) -> tuple[Type, ...]:
    return node.type if isinstance(node.type, tuple) else (node.type,)


def _result(node: Node, names: Sequence[str]) -> Names:
    """Return the names as items read them: one alone where there is one result."""
    return tuple(names) if isinstance(node.type, tuple) else names[0]


def scanned_with(function: Callable[..., Node], initial: Callable[[np.dtype], Any]) -> Rule:
    """Return the rule of what a function of two numbers runs along an axis.

    Parameters
    ----------
    function
        Of nodes: the value so far, and an element of each operand.
    initial
        The value before the first element, of a dtype.
    """

    def rule(to: Target, node: Node, *inputs: str) -> str:
        axis = node.attrs["axis"]
        reverse = int(node.attrs["reverse"])
        if node.size == 0:
            return inputs[-1]  # as empty as the result; onnxruntime fails on scans of nothing
        narrow = is_float(node.dtype) and node.dtype.itemsize < 4
        dtype = np.dtype(np.float32) if narrow else node.dtype  # what is handed on is not rounded
        if narrow:
            inputs = tuple(to.cast(name, dtype) for name in inputs)
        line = Type(dtype, (*node.shape[:axis], *node.shape[axis + 1 :]))
        value = to.constant(np.asarray(initial(dtype)).astype(dtype))
        start = to.add("Expand", value, to.extents(line.shape))
        points = [parameter(i, line) for i in range(1 + len(inputs))]

        def fill(names: list[str]) -> list[str]:
            return to.write(points, [function(*points)], names) * 2

        body = to.graph(node.op.name, [line] * len(points), fill)
        count = len(inputs)
        _, result = to.run(
            "Scan", [line, Type(dtype, node.shape)], start, *inputs,
            body=body, num_scan_inputs=count,
            scan_input_axes=[axis] * count, scan_input_directions=[reverse] * count,
            scan_output_axes=[axis], scan_output_directions=[reverse],
        )  # fmt: skip
        return to.cast(result, node.dtype) if narrow else result

    return rule


def lowest(dtype: np.dtype) -> Any:
    """Return the value that every other of a dtype is at least."""
    return -np.inf if is_float(dtype) else False if is_bool(dtype) else iinfo(dtype).min


def highest(dtype: np.dtype) -> Any:
    """Return the value that every other of a dtype is at most."""
    return np.inf if is_float(dtype) else True if is_bool(dtype) else iinfo(dtype).max


def looped(to: Target, node: Node, *inputs: str) -> Names:
    """Run a body again and again: the last carries, and a row of each iteration.

    A flag among the carries ends the loop. One in the first stack leaves an iteration out: the
    carries stay, and its rows are zeros.
    """
    attrs = node.attrs
    body: Graph = attrs["body"]
    carries, stacks = attrs["carries"], attrs["stacks"]
    extent = node.inputs[carries].shape[0] if stacks else attrs["length"]
    count = "" if extent is None else to.extent(extent)
    types = _types(node)
    reverse, flag = attrs["reverse"], attrs["flag"]
    flagged = flag == "carry"
    rows = len(types) - carries
    first, along = inputs[:carries], inputs[carries : carries + stacks]
    reads = inputs[carries + stacks :]
    one, true = to.constant(np.int64(1)), to.constant(np.array(True))

    def fill(names: list[str]) -> list[str]:
        turn, state = names[0], names[2:]
        at = to.add("Sub", to.add("Sub", count, one), turn) if reverse else turn
        parts = [to.add("Gather", stack, at, axis=0) for stack in along]
        operands = [*state, *parts, *reads]
        if flag == "stack":
            made = [each.type for each in body.outputs]
            run = to.graph(
                node.op.name, [], lambda _: to.write(body.inputs, body.outputs, operands)
            )
            stay = to.graph(
                node.op.name, [], lambda _: [*state, *(_zeros(to, row) for row in made[carries:])]
            )
            results = list(to.run("If", made, parts[0], then_branch=run, else_branch=stay))
        else:
            results = to.write(body.inputs, body.outputs, operands)
        return [results[0] if flagged else true, *results]

    parameters = [_STEP, _FLAG, *(each.type for each in node.inputs[:carries])]
    inner = to.graph(node.op.name, parameters, fill)
    start = first[0] if flagged else true
    results = list(to.run("Loop", types, count, start, *first, body=inner))
    for place in range(carries, carries + rows):
        if flagged:  # rows of iterations that do not run are zeros
            results[place] = _filled(to, results[place], types[place])
        if reverse:
            results[place] = to.reversed(results[place], 0)
    return _result(node, results)


def _zeros(to: Target, type_: Type) -> str:
    return to.add("Expand", to.constant(np.zeros((), type_.dtype)), to.extents(type_.shape))


def _filled(to: Target, rows: str, type_: Type) -> str:
    """Return rows with zeros behind, as many as the type says."""
    short = to.add("Sub", to.extents(type_.shape[:1]), to.add("Shape", rows, start=0, end=1))
    before = to.constant(np.zeros(type_.ndim, np.int64))
    after = to.constant(np.zeros(type_.ndim - 1, np.int64))
    pads = to.add("Concat", before, short, after, axis=0)
    return to.add("Pad", rows, pads, to.constant(np.zeros((), type_.dtype)))


def mapped(to: Target, node: Node, *inputs: str) -> Names:
    """Run a body once for each position along an axis: a loop that hands nothing on."""
    batched: tuple[bool, ...] = node.attrs["batched"]
    body: Graph = node.attrs["body"]
    place = batched.index(True)
    count = to.extent(node.inputs[place].shape[0])

    def fill(names: list[str]) -> list[str]:
        operands = [
            to.add("Gather", each, names[0], axis=0) if along else each
            for each, along in zip(inputs, batched, strict=True)
        ]
        return [names[1], *to.write(body.inputs, body.outputs, operands)]

    inner = to.graph(node.op.name, [_STEP, _FLAG], fill)
    true = to.constant(np.array(True))
    return _result(node, to.run("Loop", _types(node), count, true, body=inner))


def branched(to: Target, node: Node, index: str, *inputs: str) -> Names:
    """Run one of several bodies, by a number that is clamped to those that there are."""
    bodies: Sequence[Graph] = node.attrs["bodies"]
    label = node.op.name

    def choice(place: int) -> Callable[[list[str]], Sequence[str]]:
        """Return what writes the body of a number, or of one above it."""

        def fill(names: list[str]) -> Sequence[str]:
            body = bodies[place]
            if place == len(bodies) - 1:
                return to.write(body.inputs, body.outputs, inputs)
            return chosen(place)

        return fill

    def chosen(place: int) -> Sequence[str]:
        body = bodies[place]
        here = to.graph(label, [], lambda _: to.write(body.inputs, body.outputs, inputs))
        above = to.graph(label, [], choice(place + 1))
        is_here = to.add("LessOrEqual", index, to.constant(np.asarray(place, node.inputs[0].dtype)))
        return to.run("If", _types(node), is_here, then_branch=here, else_branch=above)

    if len(bodies) == 1:
        return _result(node, to.write(bodies[0].inputs, bodies[0].outputs, inputs))
    return _result(node, chosen(0))
