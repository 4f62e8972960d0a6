"""Regions that one kernel computes: their bodies are graphs."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Graph
from ...ir.interpret import Body
from ...ir.op import INEXACT, Call, Kind, Op
from ...ir.types import Type, TypeLike


def _check(call: Call, body: Graph, types: tuple[Type, ...]) -> tuple[Type, ...]:
    if len(types) != len(body.inputs):
        raise call.shape_error(
            f"the body has {len(body.inputs)} parameters, {len(types)} operands are given"
        )
    for i, (leaf, operand_type) in enumerate(zip(body.inputs, types, strict=True)):
        if leaf.type != operand_type:
            raise call.shape_error(f"parameter {i} is {leaf.type}, operand {i} is {operand_type}")
    return tuple(node.type for node in body.outputs)


def _fused_type(call: Call, *types: Type, body: Graph) -> TypeLike:
    results = _check(call, body, types)
    return results[0] if len(results) == 1 else results


def _fused_many_type(call: Call, *types: Type, bodies: tuple[Graph, ...]) -> TypeLike:
    results: list[Type] = []
    at = 0
    for body in bodies:
        results.extend(_check(call, body, types[at : at + len(body.inputs)]))
        at += len(body.inputs)
    if at != len(types):
        raise call.shape_error(f"the bodies have {at} parameters, {len(types)} operands are given")
    return results[0] if len(results) == 1 else tuple(results)


def _evaluate_fused(xp: Any, *arrays: Any, body: Body) -> Any:
    results = body.run(arrays, xp)
    return results[0] if len(results) == 1 else tuple(results)


def _evaluate_many(xp: Any, *arrays: Any, bodies: tuple[Body, ...]) -> Any:
    results: list[Any] = []
    at = 0
    for body in bodies:
        input_count = len(body.graph.inputs)
        results.extend(body.run(arrays[at : at + input_count], xp))
        at += input_count
    return results[0] if len(results) == 1 else tuple(results)


FUSED = Op(
    name="fused",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
    doc="A region that one kernel computes; its body is a graph of parameters.",
    rule=_fused_type,
    evaluate=_evaluate_fused,
    no_gradient="made by passes, after gradients are taken",
)

FUSED_MANY = Op(
    name="fused_many",
    kind=Kind.LOWERED,
    dtypes=INEXACT,
    doc="Several independent regions in one kernel launch.",
    rule=_fused_many_type,
    evaluate=_evaluate_many,
    no_gradient="made by passes, after gradients are taken",
)

RECORDS = (FUSED, FUSED_MANY)
