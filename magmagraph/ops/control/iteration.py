"""Iteration to a fixed point, inside of one operation: the body is a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autodiff.autodiff import sweep, zeros_of
from ...autodiff.transforms.closure import close
from ...autodiff.transforms.rebuild import rebuild, unobserved
from ...dtypes import is_inexact
from ...errors import DivergedError, message
from ...ir.graph import Graph, Node
from ...ir.interpret import Body
from ...ir.op import INEXACT, Call, Kind, Op
from ...ir.types import Type
from ..elementwise.arithmetic import add
from ..leaf import input
from ..rules import onnx_control
from .identities import results_of

_STEPS = Type(np.dtype(np.int64), ())


def _type(
    call: Call, *operands: Type, body: Graph, count: int, tolerance: float, max_steps: int,
    unconverged: str,
) -> tuple[Type, ...]:
    for place, (leaf, operand_type) in enumerate(zip(body.inputs, operands, strict=True)):
        if leaf.type != operand_type:
            raise call.shape_error(
                f"parameter {place} is {leaf.type}, operand {place} is {operand_type}"
            )
    if not count == len(body.outputs) <= len(operands):
        raise call.shape_error(
            f"count={count} for a body of {len(body.outputs)} outputs and {len(operands)} operands",
            need="an output and an operand for each value of the point",
        )
    call.constraints += [constraint for constraint, _ in body.constraints]
    return (*(node.type for node in body.outputs), _STEPS)


def _evaluate(
    xp: Any, *arrays: Any, body: Body, count: int, tolerance: float, max_steps: int,
    unconverged: str,
) -> tuple[Any, ...]:
    state, others = list(arrays[:count]), arrays[count:]
    change = np.inf
    for step in range(1, max_steps + 1):
        new = body.run([*state, *others], xp)
        change, size = _distance(xp, new, state)
        state = new
        if not np.isfinite(size):
            if unconverged == "raise":
                raise DivergedError(
                    message(
                        f"fixed_point: the iteration diverged: a value is not finite at step "
                        f"{step}",
                        need="a map that draws points together near the fixed point",
                        hint="start nearer to it, or damp the map: x + 0.5 * (f(x) - x)",
                    ),
                    step,
                )
            return (*state, np.int64(step))
        if change <= tolerance * max(1.0, size):
            return (*state, np.int64(step))
    if unconverged == "raise":
        raise DivergedError(
            message(
                f"fixed_point: {max_steps} steps left a change of {change:.3g}",
                need=f"at most {tolerance:.3g} times the largest value (or 1)",
                hint="a larger max_steps= or tolerance=; or unconverged='return'",
            ),
            max_steps,
        )
    return (*state, np.int64(max_steps))


def _distance(xp: Any, new: Sequence[Any], old: Sequence[Any]) -> tuple[float, float]:
    """Return the largest change, and the largest value, of all elements; NaN where one is."""
    change = size = 0.0
    for after, before in zip(new, old, strict=True):
        if not after.size:
            continue
        wide = np.complex128 if after.dtype.kind == "c" else np.float64
        after = xp.asarray(after).astype(wide)
        with np.errstate(all="ignore"):
            change = np.maximum(change, float(xp.max(xp.abs(after - xp.asarray(before)))))
            size = np.maximum(size, float(xp.max(xp.abs(after))))
    return float(change), float(size)


def iterate(outputs: Sequence[Node], starts: dict[Node, Node], **options: Any) -> list[Node]:
    """Return the fixed point of a map, and the number of steps to it.

    `starts` holds for each argument of the map, a leaf that the outputs depend on, where the
    iteration starts; there is one output for each, of its type.
    """
    body, reads = close(outputs, list(starts))
    node = FIXED_POINT(*starts.values(), *reads, body=body, count=len(starts), **options)
    return results_of(node)


def _gradient(node: Node, cotangents: Any) -> list[Node | None]:
    """Return the cotangents of the map's operands, by the implicit function theorem.

    At ``x = f(x, p)`` the cotangent ``u`` of ``x`` gives ``w = u + w df/dx``, again a fixed point,
    and ``w df/dp`` for ``p``. Where the iteration starts makes no difference.
    """
    body: Graph = node.attrs["body"]
    count: int = node.attrs["count"]
    states, reads = results_of(node)[:count], node.inputs[count:]
    state_cotangents = cotangents[:count]
    if all(u is None for u in state_cotangents):
        return [None] * len(node.inputs)
    # Leaves in the places of the operands: some of those may depend on others.
    points = [input("state", part.shape, part.dtype) for part in states]
    operands = [input("operand", part.shape, part.dtype) for part in reads]
    values_of = dict(zip([*points, *operands], [*states, *reads], strict=True))
    next_states = rebuild(body.outputs, dict(zip(body.inputs, values_of, strict=True)), unobserved)
    weights = [input("weight", part.shape, part.dtype) for part in states]
    targets = [("", leaf) for leaf in [*points, *operands] if is_inexact(leaf.dtype)]
    gradients = dict(
        zip([leaf for _, leaf in targets], sweep(next_states, weights, targets), strict=True)
    )
    returned: list[Node] = []
    for point, u in zip(points, state_cotangents, strict=True):
        part = gradients.get(point)
        terms = [term for term in (u, part) if term is not None]
        returned.append(add(*terms) if len(terms) == 2 else terms[0] if terms else zeros_of(point))
    back = rebuild(returned, values_of)
    starts = {
        w: zeros_of(w) if u is None else u for w, u in zip(weights, state_cotangents, strict=True)
    }
    options = {k: v for k, v in node.attrs.items() if k not in ("body", "count")}
    solved = iterate(back, starts, **options)[:count]
    values_of.update(zip(weights, solved, strict=True))
    parts = [gradients.get(leaf) for leaf in operands]
    filled = iter(rebuild([part for part in parts if part is not None], values_of))
    return [None] * count + [None if part is None else next(filled) for part in parts]


FIXED_POINT = Op(
    name="fixed_point",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="The point that a map leaves where it is, found by iteration, and the number of steps.",
    rule=_type,
    attributes={
        "count": "Count",
        "max_steps": "Count",
        "unconverged": "Literal['raise', 'return']",
    },
    evaluate=_evaluate,
    gradient=_gradient,
    onnx=onnx_control.iterated,
)

RECORDS = (FIXED_POINT,)
