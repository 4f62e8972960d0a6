"""Loops: a body graph run again and again, what it hands on, and the rows that it leaves.

The operands are carries (what an iteration hands to the next), stacks (one row an iteration) and
reads (the same for all). The body's parameters stand for a carry each, a row of each stack, and the
reads; it gives the new carries, then rows of the results.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...autodiff.autodiff import sweep, zeros_of
from ...autodiff.derivatives import forward, in_forward_mode
from ...autodiff.transforms.closure import close
from ...autodiff.transforms.rebuild import rebuild, unobserved
from ...dtypes import is_inexact
from ...errors import LinAlgError
from ...ir.graph import Graph, Node, topological
from ...ir.identity import is_among
from ...ir.interpret import Body
from ...ir.op import INEXACT, Call, Kind, Op, Parts, Refusal, Scalar
from ...ir.types import Extent, Type, TypeLike
from ..elementwise.arithmetic import add
from ..leaf import input
from ..rules import onnx_control
from ..rules.batching import mapped_extent, repeated
from ..shape.arrange import moveaxis
from .identities import ITEM, results_of
from .mapped import batch, in_front

__all__ = ["LOOP", "LOOP_STEP", "PULLBACK", "extent_of", "loop"]

_FLAG = Type(np.dtype(np.bool_), ())
_STEP = Type(np.dtype(np.int64), ())
_ATTRIBUTES = {
    "carries": "Count",
    "stacks": "Count",
    "flag": "Literal['', 'carry', 'stack']",
}

# Results that are worth more memory than computing them again takes time.
_WORTH_KEEPING = frozenset((Kind.CONTRACTION, Kind.CONVOLUTION, Kind.LINALG, Kind.TRANSFORM))


def _loop_type(
    call: Call,
    *operands: Type,
    body: Graph,
    carries: int,
    stacks: int,
    length: Extent | None,
    reverse: bool,
    flag: str,
) -> TypeLike:
    if len(operands) != len(body.inputs):
        raise call.shape_error(f"{len(operands)} operands for {len(body.inputs)} parameters")
    extent = length
    for place, (leaf, operand_type) in enumerate(zip(body.inputs, operands, strict=True)):
        own = operand_type
        if carries <= place < carries + stacks:
            own = Type(operand_type.dtype, operand_type.shape[1:])
            first = operand_type.shape[0]
            extent = first if extent is None else call.unify(extent, first, "lengths of the stacks")
        if own != leaf.type:
            raise call.shape_error(f"parameter {place} is {leaf.type}, operand {place} gives {own}")
    types = [node.type for node in body.outputs]
    for place, (before, after) in enumerate(zip(operands[:carries], types, strict=False)):
        if before != after:
            raise call.shape_error(f"carry {place} is {before} before an iteration, {after} after")
    if flag and operands[0 if flag == "carry" else carries].dtype != _FLAG.dtype:
        raise call.dtype_error("the flags of a loop", need="the dtype bool")
    rows: list[Type] = []
    if types[carries:]:
        if extent is None:
            raise call.shape_error("rows of a loop without a bound", need="a length")
        rows = [Type(row.dtype, (extent, *row.shape)) for row in types[carries:]]
    call.constraints += [constraint for constraint, _ in body.constraints]
    results = (*types[:carries], *rows)
    return results[0] if len(results) == 1 else results


def _evaluate(
    xp: Any,
    *arrays: Any,
    body: Body,
    carries: int,
    stacks: int,
    length: int | None,
    reverse: bool,
    flag: str,
) -> Any:
    state = list(arrays[:carries])
    along, reads = arrays[carries : carries + stacks], arrays[carries + stacks :]
    count = along[0].shape[0] if along else length
    row_nodes = body.graph.outputs[carries:]
    rows: list[Any] = [None] * len(row_nodes)
    for step in itertools.count() if count is None else range(count):
        at = count - 1 - step if reverse and count is not None else step
        if flag == "carry" and not bool(state[0]):
            break
        if flag == "stack" and not bool(along[0][at]):
            continue
        # An ellipsis: rows that are numbers stay arrays, which calls take as they are.
        try:
            step_results = body.run([*state, *(stack[at, ...] for stack in along), *reads], xp)
        except LinAlgError as error:
            which = f"iteration {step}" if count is None else f"iteration {at} of {count}"
            error.args = (f"{error}\n  in: {which}", *error.args[1:])
            raise
        state = step_results[:carries]
        for place, row in enumerate(step_results[carries:]):
            if rows[place] is None:
                rows[place] = xp.zeros((count, *row.shape), row.dtype)
            rows[place][at] = row
    for place, node in enumerate(row_nodes):
        if rows[place] is None:
            shape = node.type.concrete(dict(body.sizes))
            rows[place] = xp.zeros((count, *shape), node.dtype)
    results = [*state, *rows]
    return results[0] if len(results) == 1 else tuple(results)


def _flops(*operands: Type, body: Graph, carries: int, stacks: int, **attrs: Any) -> Extent:
    """Count the body once for each iteration; once alone where nothing bounds them."""
    total: Extent = 0
    for node in body.nodes:
        if node.op.flops is not None:
            total = total + node.op.flops(*[i.type for i in node.inputs], **node.attrs)
        elif node.inputs and not isinstance(node.type, tuple) and not node.op.layout.alias:
            total = total + node.size
    extent = operands[carries].shape[0] if stacks else attrs["length"]
    return total if extent is None else total * extent


# Derivatives: reverse mode for loops that save rows, forward mode for the others.


class _Body:
    """A loop's body on leaves of its own, and what each leaf stands for."""

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        self.node = node
        self.carries: int = attrs["carries"]
        self.stacks: int = attrs["stacks"]
        body: Graph = attrs["body"]
        self.points = [input(f"operand {i}", p.shape, p.dtype) for i, p in enumerate(body.inputs)]
        leaves = dict(zip(body.inputs, self.points, strict=True))
        self.outputs = rebuild(body.outputs, leaves, unobserved)
        edge = self.carries + self.stacks
        self.carry_points = self.points[: self.carries]
        self.row_points = self.points[self.carries : edge]
        self.read_points = self.points[edge:]
        self.starts = node.inputs[: self.carries]
        self.stack_nodes = node.inputs[self.carries : edge]
        self.reads = node.inputs[edge:]

    def live(self, result_cotangents: Sequence[Node | None]) -> list[bool]:
        """Return which outputs of the body have a cotangent, from which results have one."""
        has = [cotangent is not None for cotangent in result_cotangents]
        targets = [("", point) for point in self.carry_points if is_inexact(point.dtype)]
        while True:
            outputs = [m for m, h in zip(self.outputs, has, strict=True) if h]
            weights = [input("weight", m.shape, m.dtype) for m in outputs]
            gradients = dict(
                zip([p for _, p in targets], sweep(outputs, weights, targets), strict=True)
            )
            before = sum(has)
            for place, point in enumerate(self.carry_points):
                has[place] = has[place] or gradients.get(point) is not None
            if sum(has) == before:
                return has


def loop_gradient(node: Node, cotangents: Any) -> Parts:
    """Return the cotangents of a loop's operands, by a loop in reverse order."""
    single = not isinstance(node.type, tuple)
    result_cotangents: list[Node | None] = [cotangents] if single else list(cotangents)
    if extent_of(node) is None:
        return _pulled_back(node, result_cotangents)
    return _reversed(node, result_cotangents)


def _reversed(node: Node, result_cotangents: Sequence[Node | None]) -> list[Node | None]:
    loop_body = _Body(node)
    has = loop_body.live(result_cotangents)
    if not any(has):
        return [None] * len(node.inputs)
    results = results_of(node)
    weights = [
        input("cotangent", output.shape, output.dtype) if live else None
        for output, live in zip(loop_body.outputs, has, strict=True)
    ]
    float_points = [point for point in loop_body.points if is_inexact(point.dtype)]
    outputs = [output for output, live in zip(loop_body.outputs, has, strict=True) if live]
    seeds = [weight for weight in weights if weight is not None]
    gradients: dict[Node, Node | None] = dict(
        zip(
            float_points,
            sweep(outputs, seeds, [("", point) for point in float_points]),
            strict=True,
        )
    )
    # Read the rows that the forward loop saved instead of computing them again.
    rows: dict[Node, Node] = {}
    saved_inputs: dict[Node, Node] = {}
    for output, result in zip(
        loop_body.outputs[loop_body.carries :], results[loop_body.carries :], strict=True
    ):
        if output not in saved_inputs and not is_among(
            output, (*loop_body.row_points, *loop_body.read_points)
        ):
            saved_inputs[output] = input("kept", output.shape, output.dtype)
            rows[saved_inputs[output]] = result
    values_of = {**saved_inputs, **dict(zip(loop_body.read_points, loop_body.reads, strict=True))}
    reads_of = {
        (id(output.inputs[0]), output.attrs["index"]): leaf
        for output, leaf in saved_inputs.items()
        if output.op is ITEM
    }

    def renew(node: Node, operands: tuple[Node, ...]) -> Node | None:
        # Rules create new items of a node with several results.
        return reads_of.get((id(node.inputs[0]), node.attrs["index"])) if node.op is ITEM else None

    reached = {point: part for point, part in gradients.items() if part is not None}
    parts = dict(zip(reached, rebuild(list(reached.values()), values_of, renew), strict=True))
    starts: dict[Node, Node] = {}
    carried: list[Node] = []
    for place, point in enumerate(loop_body.carry_points):
        weight = weights[place]
        if weight is not None:
            cotangent = result_cotangents[place]
            starts[weight] = zeros_of(weight) if cotangent is None else cotangent
            carried.append(parts[point] if point in parts else zeros_of(weight))
    for point, read in zip(loop_body.read_points, loop_body.reads, strict=True):
        if point in parts:
            total = input("total", read.shape, read.dtype)
            starts[total] = zeros_of(read)
            carried.append(add(total, parts[point]))
    made_rows = [parts[point] for point in loop_body.row_points if point in parts]
    stacked: dict[Node, Node] = {}
    flag: str = node.attrs["flag"]
    if flag:
        # Iterations that did not run left zeros, so that the history of the flag says which did.
        first_carry = loop_body.carry_points[0]
        ran = rows[saved_inputs[first_carry]] if flag == "carry" else loop_body.stack_nodes[0]
        stacked[input("ran", (), ran.dtype)] = ran
    stacked.update(zip(loop_body.row_points, loop_body.stack_nodes, strict=True))
    stacked.update(rows)
    stacked.update(
        (weight, cotangent)
        for weight, cotangent in zip(
            weights[loop_body.carries :], result_cotangents[loop_body.carries :], strict=True
        )
        if weight is not None and cotangent is not None
    )
    # Without stacks, the number of iterations decides.
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
    return [
        *(None if weight is None else next(last) for weight in weights[: loop_body.carries]),
        *(next(row) if point in parts else None for point in loop_body.row_points),
        *(next(last) if point in parts else None for point in loop_body.read_points),
    ]


# Loops without a bound.


def _pulled_back(node: Node, result_cotangents: Sequence[Node | None]) -> Parts:
    """Return a placeholder for cotangents without a rule; it is linear in them."""
    if not in_forward_mode():
        return [unbounded()] * len(node.inputs)
    results = results_of(node)
    weights = [
        zeros_of(result) if cotangent is None else cotangent
        for result, cotangent in zip(results, result_cotangents, strict=True)
        if is_inexact(result.dtype)
    ]
    places = [i for i, operand in enumerate(node.inputs) if is_inexact(operand.dtype)]
    if not places or all(cotangent is None for cotangent in result_cotangents):
        return [None] * len(node.inputs)
    node_parts = PULLBACK(
        *node.inputs,
        *weights,
        results=tuple(node.inputs[i].type for i in places),
        **node.attrs,
    )
    parts: list[Node | None] = [None] * len(node.inputs)
    for i, part in zip(places, results_of(node_parts), strict=True):
        parts[i] = part
    return parts


def pullback_gradient(node: Node, tangents: Any) -> Parts:
    """Return the tangents of a loop's results, by a loop that carries tangents too."""
    attrs = {name: value for name, value in node.attrs.items() if name != "results"}
    body: Graph = attrs["body"]
    operands = node.inputs[: len(body.inputs)]
    result_tangents = list(tangents) if isinstance(node.type, tuple) else [tangents]
    places = [i for i, operand in enumerate(operands) if is_inexact(operand.dtype)]
    along = dict(zip(places, result_tangents, strict=True))
    loop_body = _Body(LOOP(*operands, **attrs))
    points = {i: loop_body.points[i] for i in places}
    directions = {i: input("tangent", point.shape, point.dtype) for i, point in points.items()}
    output_tangents = forward(
        [output for output in loop_body.outputs if is_inexact(output.dtype)],
        [("", point) for point in points.values()],
        [directions[i] for i in places],
    )
    moving = iter(output_tangents)
    slopes = [next(moving) if is_inexact(output.dtype) else None for output in loop_body.outputs]
    starts = dict(zip(loop_body.carry_points, loop_body.starts, strict=True))
    carried = list(loop_body.outputs)
    for i, point in enumerate(loop_body.carry_points):
        if i in directions:
            tangent, slope = along[i], slopes[i]
            starts[directions[i]] = zeros_of(point) if tangent is None else tangent
            carried.append(zeros_of(point) if slope is None else slope)
    values_of = dict(zip(loop_body.read_points, loop_body.reads, strict=True))
    for i in places[sum(place < loop_body.carries for place in places) :]:
        tangent = along[i]
        values_of[directions[i]] = zeros_of(operands[i]) if tangent is None else tangent
    finals, _ = loop(rebuild(carried, values_of), [], starts, {}, flag=attrs["flag"])
    stack_tangents = finals[loop_body.carries :]
    # Second derivatives would need the reverse mode that there is not.
    return [*[unbounded()] * len(operands), *stack_tangents]


# Loops mapped over an axis: one loop for all examples, or the examples one after the other.


def loop_batching(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Return the results of a loop for all examples, with their axis in front."""
    attrs = node.attrs
    body: Graph = attrs["body"]
    carries, stacks, flag = attrs["carries"], attrs["stacks"], attrs["flag"]
    extent = mapped_extent(operands, batched)
    edge = carries + stacks
    points = [input(f"operand {i}", p.shape, p.dtype) for i, p in enumerate(body.inputs)]
    outputs = rebuild(body.outputs, dict(zip(body.inputs, points, strict=True)))
    varies = list(batched)
    if flag == "stack" and varies[carries]:
        return example_by_example(node, operands, batched)

    def anew(draw: Node) -> bool:
        return bool(draw.inputs) and draw.inputs[0].op is LOOP_STEP

    while True:
        mapped: dict[Node, Node] = {}
        plain: dict[Node, Node] = {}
        leaves = []
        for point, along in zip(points, varies, strict=True):
            leaf = input("operand", (extent, *point.shape) if along else point.shape, point.dtype)
            leaves.append(leaf)
            (mapped if along else plain)[point] = leaf
        mapped_parts = batch(outputs, mapped, extent, plain, anew)
        newly_varying = [i for i in range(carries) if mapped_parts[i][1] and not varies[i]]
        if not newly_varying:
            break
        for i in newly_varying:  # a carry that varies after an iteration does so before the next
            varies[i] = True
    if flag == "carry" and varies[0]:
        return example_by_example(node, operands, batched)
    full = []
    for i, (operand, is_batched) in enumerate(zip(operands, batched, strict=True)):
        if varies[i] and not is_batched:
            full.append(repeated(operand, extent))
        elif carries <= i < edge and is_batched:
            full.append(moveaxis(operand, 0, 1))
        else:
            full.append(operand)
    carried = [
        in_front(part, extent) if along else part[0]
        for part, along in zip(mapped_parts[:carries], varies, strict=False)
    ]
    reads = dict(zip(leaves[edge:], full[edge:], strict=True))
    rows = [part for part, _ in mapped_parts[carries:]]
    again = rebuild([*carried, *rows], reads)
    finals, stacks_made = loop(
        again[:carries],
        again[carries:],
        dict(zip(leaves[:carries], full[:carries], strict=True)),
        dict(zip(leaves[carries:edge], full[carries:edge], strict=True)),
        length=None if stacks else extent_of(node),
        reverse=attrs["reverse"],
        flag=flag,
        save="nothing",  # the rows that the mapped loop saves are among its rows
    )
    results = [
        final if along else repeated(final, extent)
        for final, along in zip(finals, varies, strict=False)
    ]
    for made_row, (_, along) in zip(stacks_made, mapped_parts[carries:], strict=True):
        results.append(moveaxis(made_row, 1, 0) if along else repeated(made_row, extent))
    return results[0] if len(results) == 1 else tuple(results)


def example_by_example(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Return the results of any node for all examples, computed by a loop over these."""
    leaves = [
        input("operand", operand.type.shape, operand.dtype) if along else value
        for operand, value, along in zip(node.inputs, operands, batched, strict=True)
    ]
    again = type(node)(
        node.op, tuple(leaves), node.attrs, node.type, None, None, node.constraints
    )
    stacked = {
        leaf: operand
        for leaf, operand, along in zip(leaves, operands, batched, strict=True)
        if along
    }
    _, rows = loop([], results_of(again), {}, stacked)
    return rows[0] if len(rows) == 1 else tuple(rows)


# The records.

LOOP = Op(
    name="loop",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="A body graph run again and again: the last carries, and a row of each iteration.",
    rule=_loop_type,
    attributes=_ATTRIBUTES,
    evaluate=_evaluate,
    onnx=onnx_control.looped,
    gradient=loop_gradient,
    batching=loop_batching,
    sharding="turns",
    flops=_flops,
)


def _pullback_type(
    call: Call, *operands: Type, results: tuple[Type, ...], **attrs: Any
) -> TypeLike:
    """Check the operands of a loop, a cotangent of each of its results, and the slopes' types."""
    if attrs["stacks"] or attrs["length"] is not None:
        raise call.shape_error("the pullback of a loop with a bound", need="a loop without one")
    count = len(attrs["body"].inputs)
    result = _loop_type(call, *operands[:count], **attrs)
    result_types = result if isinstance(result, tuple) else (result,)
    for what, types, expected in (
        ("cotangents", operands[count:], result_types),
        ("results", results, operands[:count]),
    ):
        inexact = tuple(each for each in expected if is_inexact(each.dtype))
        if types != inexact:
            raise call.shape_error(
                f"{what} of the types {', '.join(map(str, types))}",
                need=", ".join(map(str, inexact)) or "a loop of floats",
            )
    return results[0] if len(results) == 1 else results


def _no_reverse(xp: Any, *arrays: Any, **attrs: Any) -> Any:
    raise unbounded().error()


PULLBACK = Op(
    name="loop_pullback",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="Cotangents through a loop without a bound, of which forward mode takes the transpose.",
    rule=_pullback_type,
    attributes=_ATTRIBUTES | {"body": "Graph", "length": "Extent | None", "reverse": "bool"},
    evaluate=_no_reverse,
    gradient=pullback_gradient,
)


def _step_type(call: Call, step: Type, iteration: Type) -> Type:
    if step != _STEP or iteration != _STEP:
        raise call.dtype_error(f"operands {step} and {iteration}", need="int64 scalars")
    return _STEP


_GOLDEN = 0x9E3779B1  # 2**32 over the golden ratio: its multiples lie far apart (three gaps)


def _step(xp: Any, step: Any, iteration: Any) -> Any:
    low = int(step) & 0xFFFFFFFF
    high = ((int(step) >> 32 & 0xFFFFFFFF) * _GOLDEN + int(iteration) + 1) & 0xFFFFFFFF
    return xp.asarray(np.array(high << 32 | low, np.uint64).astype(np.int64))


LOOP_STEP = Op(
    name="loop_step",
    kind=Kind.ELEMENTWISE,
    doc="The step of a random node inside of a loop: the iteration in its upper half.",
    rule=_step_type,
    evaluate=_step,
    scalar=Scalar(
        "((int64_t)((((((uint64_t)a >> 32) * 2654435769u + (uint64_t)b + 1u) & 4294967295u)"
        " << 32) | ((uint64_t)a & 4294967295u)))"
    ),
    no_gradient="integer valued",
    numerics="exact",
)


def extent_of(node: Node) -> Extent | None:
    """Return the most iterations of a loop, or None where nothing bounds them."""
    if node.attrs["stacks"]:
        first: Extent = node.inputs[node.attrs["carries"]].shape[0]
        return first
    length: Extent | None = node.attrs["length"]
    return length


def loop(
    carried: Sequence[Node],
    rows: Sequence[Node],
    starts: Mapping[Node, Node],
    stacked: Mapping[Node, Node],
    *,
    length: Extent | None = None,
    reverse: bool = False,
    flag: str = "",
    save: str = "products",
) -> tuple[list[Node], list[Node]]:
    """Return the last carries and the stacks of rows of a new loop.

    carried, rows: What the body makes: the new carries, and rows of the results.
    starts: Leaf that stands for a carry -> where it starts.
    stacked: Leaf that stands for a row -> the stack of rows.
    length: The most iterations where there are no stacks.
    reverse: True begins with the last row.
    flag: Which iterations run, see the design note: "", "carry" or "stack".
    save: What the gradient finds as rows: "products" (and the carries), "carries" or "nothing".
    """
    arguments = [*starts, *stacked]
    bounded = bool(stacked) or length is not None
    extra = _saved([*carried, *rows], starts, arguments, save) if bounded else []
    body, reads = close([*carried, *rows, *extra], arguments)
    node = LOOP(
        *starts.values(),
        *stacked.values(),
        *reads,
        body=body,
        carries=len(starts),
        stacks=len(stacked),
        length=None if stacked else length,
        reverse=reverse,
        flag=flag,
    )
    results = results_of(node)
    count = len(starts)
    return results[:count], results[count : count + len(rows)]


def _saved(
    outputs: Sequence[Node], starts: Mapping[Node, Node], arguments: Sequence[Node], save: str
) -> list[Node]:
    """Return the nodes of a body that its gradient should read, not compute again."""
    if save == "nothing":
        return []
    rows = set(outputs[len(starts) :])
    saved = [leaf for leaf in starts if leaf not in rows]
    if save == "carries":
        return saved
    varying = {id(node) for node in arguments}
    for node in topological(outputs, stop=lambda n: id(n) in varying):
        if not any(id(operand) in varying for operand in node.inputs):
            continue
        varying.add(id(node))
        source = node.inputs[0] if node.inputs and isinstance(node.inputs[0].type, tuple) else node
        if source.op.kind in _WORTH_KEEPING and not isinstance(node.type, tuple):
            saved.append(node)
    return [node for node in saved if node not in rows]


def unbounded() -> Any:
    """Return why reverse mode stops at a loop without a bound."""
    return Refusal(
        "reverse mode through a while_loop without a bound: the carries of its steps are not kept",
        need="a bound on the number of steps",
        hint="mg.while_loop(..., max_steps=n), or forward mode: mg.jvp",
    )


RECORDS = (LOOP, PULLBACK, LOOP_STEP)
