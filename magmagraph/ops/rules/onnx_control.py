"""How loops, branches and running values are written in ONNX: operators that run graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dtypes import iinfo, is_bool, is_float, is_unsigned
from ...ir.graph import Graph, Node
from ...ir.types import Extent, Type
from ..leaf import parameter
from .onnx_forms import Names, Rule, Target, unsigned_dtype

__all__ = ["branched", "divisor", "highest", "iterated", "looped", "lowest", "mapped", "multiple",
           "repeated", "scanned_with"]  # fmt: skip

_FLAG = Type(np.dtype(np.bool_), ())
_STEP = Type(np.dtype(np.int64), ())


def _types(node: Node) -> tuple[Type, ...]:
    return node.type if isinstance(node.type, tuple) else (node.type,)


def _result(node: Node, names: Sequence[str]) -> Names:
    """Return the names as items read them: one alone where there is one result."""
    return tuple(names) if isinstance(node.type, tuple) else names[0]


def scanned_with(function: Callable[..., Node], initial: Callable[[np.dtype], Any]) -> Rule:
    """Return the rule of what a function of two numbers runs along an axis.

    function: Of nodes: the value so far, and an element of each operand.
    initial: The value before the first element, of a dtype.
    """

    def rule(to: Target, node: Node, *inputs: str) -> str:
        axis = node.attrs["axis"]
        reverse = int(node.attrs["reverse"])
        if node.size == 0:
            return inputs[-1]  # as empty as the result; onnxruntime fails on scans of nothing
        narrow = is_float(node.dtype) and node.dtype.itemsize < 4
        dtype = np.dtype(np.float32) if narrow else node.dtype  # carries are not rounded
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


def repeated(
    times: Callable[[Node], Extent],
    start: Callable[[Node], Sequence[Node]],
    step: Callable[..., Sequence[Node]],
) -> Rule:
    """Return the rule of an operation that repeats a step.

    times: How often, for a node of the operation.
    start: The values before the first step, for a node of the operation.
    step: Of nodes: the number of the step, from 0, and the values before it. It returns those after
        it, of the same types; the last ones are the results.
    """

    def rule(to: Target, node: Node, *inputs: str) -> Names:
        from ..leaf import parameter  # whose records import the forms of this folder

        values = start(node)
        if times(node) == 0:  # the step may have no form there, such as elements of an empty axis
            return _result(node, [to.node(value) for value in values[-len(_types(node)) :]])
        types = [Type(value.dtype, value.shape) for value in values]
        points = [parameter(i, type_) for i, type_ in enumerate([_STEP, *types])]
        body = step(*points)

        def fill(names: list[str]) -> list[str]:
            return [true, *to.write(points, body, [names[0], *names[2:]])]

        true, count = to.constant(np.array(True)), to.extent(times(node))
        operands = [to.node(value) for value in values]
        inner = to.graph(node.op.name, [_STEP, _FLAG, *types], fill)
        results = to.run("Loop", types, count, true, *operands, body=inner)
        return _result(node, results[-len(_types(node)) :])

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
            types = [each.type for each in body.outputs]
            run = to.graph(
                node.op.name, [], lambda _: to.write(body.inputs, body.outputs, operands)
            )
            stay = to.graph(
                node.op.name, [], lambda _: [*state, *(_zeros(to, row) for row in types[carries:])]
            )
            results = list(to.run("If", types, parts[0], then_branch=run, else_branch=stay))
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
    """Pad rows with zeros to the extent of the type."""
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
    """Run one of several bodies, chosen by a clamped index."""
    bodies: Sequence[Graph] = node.attrs["bodies"]
    label = node.op.name

    def choice(place: int) -> Callable[[list[str]], Sequence[str]]:
        """Return what writes the body of a number, or of one above it."""

        def fill(names: list[str]) -> Sequence[str]:
            body = bodies[place]
            if place == len(bodies) - 1:
                return to.write(body.inputs, body.outputs, inputs)
            return write_branch(place)

        return fill

    def write_branch(place: int) -> Sequence[str]:
        body = bodies[place]
        here = to.graph(label, [], lambda _: to.write(body.inputs, body.outputs, inputs))
        above = to.graph(label, [], choice(place + 1))
        is_here = to.add("LessOrEqual", index, to.constant(np.asarray(place, node.inputs[0].dtype)))
        return to.run("If", _types(node), is_here, then_branch=here, else_branch=above)

    if len(bodies) == 1:
        return _result(node, to.write(bodies[0].inputs, bodies[0].outputs, inputs))
    return _result(node, write_branch(0))


def divisor(to: Target, node: Node, x: str, y: str) -> str:
    """Find the greatest common divisor: Euclid's algorithm, until all remainders are 0."""
    return to.cast(_common_divisor(to, node, _size(to, node, x), _size(to, node, y)), node.dtype)


def multiple(to: Target, node: Node, x: str, y: str) -> str:
    """Divide by the greatest common divisor, and multiply; of two zeros, 0."""
    first, second = _size(to, node, x), _size(to, node, y)
    shared = _common_divisor(to, node, first, second)
    quotient = to.add("Div", first, to.add("Add", shared, _is_zero(to, node, shared)))
    return to.cast(to.add("Mul", quotient, second), node.dtype)


def _size(to: Target, node: Node, x: str) -> str:
    """Return absolute values as unsigned integers, which hold that of the lowest one, too."""
    size = x if is_unsigned(node.dtype) else to.add("Abs", x)
    return to.cast(to.add("Expand", size, to.extents(node.shape)), unsigned_dtype(node.dtype))


def _is_zero(to: Target, node: Node, x: str) -> str:
    """Return 1 where an unsigned integer is 0, and 0 elsewhere."""
    flags = to.add("Not", to.cast(x, np.dtype(np.bool_)))
    return to.cast(flags, unsigned_dtype(node.dtype))


def _common_divisor(to: Target, node: Node, x: str, y: str) -> str:
    line = Type(unsigned_dtype(node.dtype), node.shape)

    def any_left(rest: str) -> str:
        """Return whether an element is not 0."""
        flags = to.cast(to.cast(rest, np.dtype(np.bool_)), np.dtype(np.int64))
        return to.cast(to.add("ReduceSum", flags, keepdims=0), np.dtype(np.bool_))

    def fill(names: list[str]) -> list[str]:
        large, small = names[2:]
        done = _is_zero(to, node, small)  # where it is, the larger one stays as it is
        rest = to.add("Mod", large, to.add("Add", small, done))
        return [any_left(rest), to.add("Add", small, to.add("Mul", large, done)), rest]

    body = to.graph(node.op.name, [_STEP, _FLAG, line, line], fill)
    return to.run("Loop", [line, line], "", any_left(y), x, y, body=body)[0]


def iterated(to: Target, node: Node, *inputs: str) -> Names:
    """Run a map until its point changes by no more than the tolerance, or is not finite.

    As in the operation itself, distances and sizes are those of all values in float64. An error
    of an iteration that does not converge has no form: its last point is the result.
    """
    attrs = node.attrs
    body: Graph = attrs["body"]
    count, wide = attrs["count"], np.dtype(np.float64)
    start, reads = inputs[:count], inputs[count:]
    limit, one, infinite = (
        to.constant(np.float64(value)) for value in (attrs["tolerance"], 1.0, np.inf)
    )
    zero = to.constant(np.zeros(1))  # among the elements, of which there may be none
    line = to.constant(np.array([-1], np.int64))

    def largest(parts: Sequence[str]) -> str:
        """Return the largest absolute value of all elements; infinity where one is NaN."""
        flat = [to.add("Reshape", part, line) for part in parts]
        sizes = to.add("Abs", to.add("Concat", zero, *flat, axis=0))
        numbers = to.add("Where", to.add("IsNaN", sizes), infinite, sizes)
        return to.add("ReduceMax", numbers, keepdims=0)

    def fill(names: list[str]) -> list[str]:
        state = names[2 : 2 + count]
        new = to.write(body.inputs, body.outputs, [*state, *reads])
        after, before = ([to.cast(name, wide) for name in each] for each in (new, state))
        pairs = zip(after, before, strict=True)
        change = largest([to.add("Sub", *pair) for pair in pairs])
        size = largest(after)
        allowed = to.add("Mul", limit, to.add("Max", size, one))
        # A size that is infinite ends the iteration; so does a change that is small enough.
        far = to.add("And", to.add("Greater", change, allowed), to.add("Less", size, infinite))
        turns = to.add("Add", names[0], to.constant(np.int64(1)))
        return [far, *new, turns]

    types = [each.type for each in node.inputs[:count]]
    inner = to.graph(node.op.name, [_STEP, _FLAG, *types, _STEP], fill)
    most, true = to.constant(np.int64(attrs["max_steps"])), to.constant(np.array(True))
    steps = to.constant(np.int64(0))
    return to.run("Loop", _types(node), most, true, *start, steps, body=inner)
