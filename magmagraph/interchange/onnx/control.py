"""Branches, loops, sequences and optional values."""

from __future__ import annotations

from typing import Any

from ...autodiff.transforms.branching import cond
from ...autodiff.transforms.scanning import scan, while_loop
from ...errors import MagmagraphError
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.convert import cast
from ...ops.elementwise.bits import logical_and
from ...ops.elementwise.comparison import less
from ...ops.leaf import constant
from ...ops.shape.arrange import moveaxis, reshape, squeeze
from ...ops.shape.joining import concatenate, stack
from ...ops.shape.pieces import flip
from .operator import Body, Operator, Rule, Value
from .shapes import pieces

__all__ = ["CONTROL"]

_MOST = 1000  # iterations that are written out one by one


def _if(op: Operator) -> tuple[Value, ...]:
    predicate = op.node()
    branches = [op.body("then_branch"), op.body("else_branch")]
    value = op.known(0)
    if value is not None and value.size == 1:
        return tuple(branches[0 if value.reshape(-1)[0] else 1]())
    found: list[list[Node]] = []

    def run(branch: Body) -> Any:
        def function() -> list[Node]:
            results = branch()
            if not all(isinstance(result, Node) for result in results):
                raise op.depends(predicate, "which branch runs, of which one gives a sequence,")
            found.append(results)
            return results

        return function

    try:
        results = cond(reshape(predicate, ()), *map(run, branches))
    except MagmagraphError as error:
        if len(found) == 2 and any(
            a.shape != b.shape for a, b in zip(found[0], found[1], strict=False)
        ):
            shapes = [[result.shape for result in results] for results in found]
            raise op.depends(
                predicate, f"the shape of the results, {shapes[0]} or {shapes[1]},"
            ) from error
        raise
    return tuple(results)


def _loop(op: Operator) -> tuple[Value, ...]:
    body = op.body("body")
    limit = _limit(op)
    starts = op.inputs[2:]
    always: bool | None = True
    if op.has(1):
        always = _goes_on(op, op.node(1))
    if always is False:
        limit = 0
    carries = len(starts)
    stacked = body.outputs - 1 - carries
    plain = all(isinstance(start, Node) for start in starts)
    if always is not None and limit is not None and plain and limit != 0:
        scanned = _scanned(op, body, limit, starts)
        if scanned is not None:
            return scanned
    if always is not None and isinstance(limit, int):
        return _unrolled(op, body, limit, starts, stacked)
    if stacked or not plain:
        what = "how often it runs, and so the form of its results,"
        raise op.depends(op.node(0 if limit is None and op.has(0) else 1), what)
    return _repeated(op, body, starts)


def _limit(op: Operator) -> Extent | None:
    """Return the number of iterations where it is known."""
    if not op.has(0):
        return None
    value = op.known(0)
    if value is None:
        return None
    number = value.reshape(-1)[0]
    if isinstance(number, Dim):
        return number
    return max(int(number), 0)


def _goes_on(op: Operator, condition: Node) -> bool | None:
    value = op.build.known.of(condition)
    return None if value is None else bool(value.reshape(-1)[0])


class _OtherForm(Exception):
    """A loop's body changes the form of what it carries, or may end the loop."""


def _scanned(
    op: Operator, body: Body, limit: Extent, starts: list[Node]
) -> tuple[Value, ...] | None:
    """Return a loop that runs as often as is known as a scan; None where it is no such loop."""
    carries = len(starts)

    def function(carry: tuple[Any, list[Node]], _: None) -> tuple[Any, Any]:
        number, values = carry
        true = constant(True)
        after = body(number, true, *values)
        condition, carried, shown = after[0], after[1 : 1 + carries], after[1 + carries :]
        if condition is not true and _goes_on(op, condition) is not True:
            raise _OtherForm
        for before, now in zip(values, carried, strict=True):
            same = isinstance(now, Node) and now.dtype == before.dtype
            if not same or now.shape != before.shape:
                raise _OtherForm
        if not all(isinstance(each, Node) for each in shown):
            raise _OtherForm
        return (number + 1, carried), shown

    zero = constant(0, dtype="int64")
    try:
        (_, last), shown = scan(function, (zero, list(starts)), length=limit)
    except _OtherForm:
        return None
    return (*last, *shown)


def _unrolled(
    op: Operator, body: Body, limit: int, starts: list[Value], stacked: int
) -> tuple[Value, ...]:
    """Return a loop written out, iteration by iteration."""
    if limit > _MOST:
        raise op.refuse(f"{limit} iterations of a body whose shapes change, at most {_MOST} can be")
    values, rows = list(starts), [[] for _ in range(stacked)]  # type: list[Value], list[list[Node]]
    for i in range(limit):
        true = op.build.known.add(_array(True))
        after = body(op.build.known.add(_array(i)), true, *values)
        values = after[1 : 1 + len(values)]
        for row, value in zip(rows, after[1 + len(values) :], strict=True):
            row.append(value)
        goes_on = after[0] is true or _goes_on(op, after[0])
        if goes_on is None:
            raise op.refuse("its body changes the shapes that it carries, and may end at a call")
        if not goes_on:
            break
    if any(not row for row in rows):
        raise op.refuse("it stacks the results of no iteration, whose shape is not known")
    return (*values, *map(stack, rows))


def _array(value: Any) -> Any:
    import numpy as np

    return np.array(value, np.bool_ if isinstance(value, bool) else np.int64)


def _repeated(op: Operator, body: Body, starts: list[Node]) -> tuple[Value, ...]:
    """Return a loop that a condition ends."""
    carries = len(starts)
    most = reshape(op.node(0), ()) if op.has(0) else None
    begin = reshape(op.node(1), ()) if op.has(1) else constant(True)

    def condition(carry: Any) -> Node:
        number, goes_on, _ = carry
        return goes_on if most is None else logical_and(goes_on, less(number, most))

    def step(carry: Any) -> Any:
        number, _, values = carry
        after = body(number, constant(True), *values)
        goes_on = reshape(cast(after[0], "bool"), ())
        return number + 1, goes_on, after[1 : 1 + carries]

    zero = constant(0, dtype="int64")
    _, _, last = while_loop(condition, step, (zero, begin, list(starts)))
    return tuple(last)


def _scan(op: Operator) -> tuple[Value, ...]:
    body = op.body("body")
    count = int(op.get("num_scan_inputs", 0))
    states = op.inputs[: len(op.inputs) - count]
    outputs = body.outputs - len(states)
    axes = op.get("scan_input_axes", [0] * count)
    directions = op.get("scan_input_directions", [0] * count)
    rows = []
    for i in range(count):
        x = op.node(len(states) + i)
        x = moveaxis(x, op.counted(axes[i], x.ndim), 0)
        rows.append(flip(x, 0) if directions[i] else x)

    def function(carry: list[Node], row: list[Node]) -> tuple[list[Node], list[Node]]:
        after = body(*carry, *row)
        return after[: len(states)], after[len(states) :]

    last, shown = scan(function, list(states), rows)
    axes = op.get("scan_output_axes", [0] * outputs)
    directions = op.get("scan_output_directions", [0] * outputs)
    results = []
    for value, axis, back in zip(shown, axes, directions, strict=True):
        value = flip(value, 0) if back else value
        results.append(moveaxis(value, 0, op.counted(axis, value.ndim)))
    return (*last, *results)


# Sequences: lists of values, whose length is known when the graph is built.


def _place(op: Operator, index: int, length: int) -> int:
    place = int(op.number(index, "a position in a sequence"))
    if not -length <= place <= length:
        raise op.refuse(f"position {place} in a sequence of {length}")
    return place + length if place < 0 else place


def _at(op: Operator) -> Value:
    values = op.sequence(0)
    place = _place(op, 1, len(values))
    if place == len(values):
        raise op.refuse(f"position {place} in a sequence of {len(values)}")
    return values[place]


def _insert(op: Operator) -> list[Value]:
    values = list(op.sequence(0))
    place = _place(op, 2, len(values)) if op.has(2) else len(values)
    values.insert(place, op.inputs[1])
    return values


def _erase(op: Operator) -> list[Value]:
    values = list(op.sequence(0))
    del values[_place(op, 1, len(values)) if op.has(1) else -1]
    return values


def _joined(op: Operator) -> Node:
    values = op.sequence(0)
    ndim = values[0].ndim + (1 if op.get("new_axis", 0) else 0)
    axis = op.counted(op.get("axis", 0), ndim)
    return stack(values, axis) if op.get("new_axis", 0) else concatenate(values, axis)


def _to_sequence(op: Operator) -> list[Value]:
    x = op.node()
    axis = op.axis(x.ndim)
    extent = x.shape[axis]
    if not op.has(1):
        if not isinstance(extent, int):
            raise op.refuse(f"the length of the sequence, {extent}, is that of a call")
        parts = pieces(x, axis, [1] * extent)
        return parts if op.get("keepdims", 1) else [squeeze(part, axis) for part in parts]
    sizes: list[Extent] = list(op.extents(1, "the length of a sequence"))
    if op.node(1).ndim == 0:
        size = sizes[0]
        if not isinstance(extent, int) or not isinstance(size, int) or size < 1:
            raise op.refuse(f"pieces of {size} of {extent} elements")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    return list(pieces(x, axis, sizes))


def _map(op: Operator) -> tuple[list[Value], ...]:
    body = op.body("body")
    first = op.sequence(0)
    results: list[list[Value]] = [[] for _ in range(body.outputs)]
    for i in range(len(first)):
        row = [value[i] if isinstance(value, list) else value for value in op.inputs]
        for result, value in zip(results, body(*row), strict=True):
            result.append(value)
    return tuple(results)


def _optional(op: Operator) -> Value:
    return op.inputs[0] if op.inputs else None


def _has_element(op: Operator) -> Node:
    return op.build.known.add(_array(op.has(0)))


def _get_element(op: Operator) -> Value:
    if not op.has(0):
        raise op.refuse("it reads an optional value that is not given")
    return op.inputs[0]


def _length(op: Operator) -> Node:
    return op.build.known.add(_array(len(op.sequence(0))))


CONTROL: dict[str, Rule] = {
    "ConcatFromSequence": _joined,
    "If": _if,
    "Loop": _loop,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "Scan": _scan,
    "SequenceAt": _at,
    "SequenceConstruct": lambda op: list(op.inputs),
    "SequenceEmpty": lambda op: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _to_sequence,
}
