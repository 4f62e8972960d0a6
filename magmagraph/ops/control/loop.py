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

from ...dtypes import is_inexact
from ...graph import Graph, Node, topological
from ...interpret import Body
from ...op import INEXACT, Call, Kind, Op, Scalar
from ...transforms.closure import close
from ...types import Extent, Type, TypeLike
from ..rules import onnx_control
from .loop_batching import loop_batching
from .loop_gradient import loop_gradient, pullback_gradient
from .mapped import results_of

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
    for place, (leaf, given) in enumerate(zip(body.inputs, operands, strict=True)):
        own = given
        if carries <= place < carries + stacks:
            own = Type(given.dtype, given.shape[1:])
            first = given.shape[0]
            extent = first if extent is None else call.unify(extent, first, "lengths of the stacks")
        if own != leaf.type:
            raise call.shape_error(f"parameter {place} is {leaf.type}, operand {place} gives {own}")
    made = [node.type for node in body.outputs]
    for place, (before, after) in enumerate(zip(operands[:carries], made, strict=False)):
        if before != after:
            raise call.shape_error(f"carry {place} is {before} before an iteration, {after} after")
    if flag and operands[0 if flag == "carry" else carries].dtype != _FLAG.dtype:
        raise call.dtype_error("the flags of a loop", need="the dtype bool")
    rows: list[Type] = []
    if made[carries:]:
        if extent is None:
            raise call.shape_error("rows of a loop without a bound", need="a length")
        rows = [Type(row.dtype, (extent, *row.shape)) for row in made[carries:]]
    call.constraints += [constraint for constraint, _ in body.constraints]
    results = (*made[:carries], *rows)
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
    made = body.graph.outputs[carries:]
    rows: list[Any] = [None] * len(made)
    for step in itertools.count() if count is None else range(count):
        at = count - 1 - step if reverse and count is not None else step
        if flag == "carry" and not bool(state[0]):
            break
        if flag == "stack" and not bool(along[0][at]):
            continue
        # An ellipsis: rows that are numbers stay arrays, which calls take as they are.
        found = body.run([*state, *(stack[at, ...] for stack in along), *reads], xp)
        state = found[:carries]
        for place, row in enumerate(found[carries:]):
            if rows[place] is None:
                rows[place] = xp.zeros((count, *row.shape), row.dtype)
            rows[place][at] = row
    for place, node in enumerate(made):
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
    made = _loop_type(call, *operands[:count], **attrs)
    for what, given, expected in (
        ("cotangents", operands[count:], made if isinstance(made, tuple) else (made,)),
        ("results", results, operands[:count]),
    ):
        inexact = tuple(each for each in expected if is_inexact(each.dtype))
        if given != inexact:
            raise call.shape_error(
                f"{what} of the types {', '.join(map(str, given))}",
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

    Parameters
    ----------
    carried, rows
        What the body makes: the new carries, and rows of the results.
    starts
        Leaf that stands for a carry -> where it starts.
    stacked
        Leaf that stands for a row -> the stack of rows.
    length
        The most iterations where there are no stacks.
    reverse
        True begins with the last row.
    flag
        Which iterations run, see the design note: "", "carry" or "stack".
    save
        What the gradient finds as rows: "products" (and the carries), "carries" or "nothing".
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
    """Return what the gradient of a body reads and should not compute again."""
    if save == "nothing":
        return []
    found = [leaf for leaf in starts if leaf not in outputs[len(starts) :]]
    if save == "carries":
        return found
    varying = {id(node) for node in arguments}
    for node in topological(outputs, stop=lambda n: id(n) in varying):
        if not any(id(operand) in varying for operand in node.inputs):
            continue
        varying.add(id(node))
        made = node.inputs[0] if node.inputs and isinstance(node.inputs[0].type, tuple) else node
        if made.op.kind in _WORTH_KEEPING and not isinstance(node.type, tuple):
            found.append(node)
    return [node for node in found if node not in outputs[len(starts) :]]


def unbounded() -> Any:
    """Return why reverse mode stops at a loop without a bound."""
    from ...op import Refusal

    return Refusal(
        "reverse mode through a while_loop without a bound: the carries of its steps are not kept",
        need="a bound on the number of steps",
        hint="mg.while_loop(..., max_steps=n), or forward mode: mg.jvp",
    )


RECORDS = (LOOP, PULLBACK, LOOP_STEP)
