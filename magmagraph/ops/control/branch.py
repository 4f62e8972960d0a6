"""Branches: one of several body graphs is run, and the others are not."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from ...autodiff.autodiff import sweep, zeros_of
from ...autodiff.transforms.closure import close
from ...autodiff.transforms.rebuild import rebuild, unobserved
from ...dtypes import is_inexact, is_integer
from ...ir.graph import Graph, Node, freeze
from ...ir.interpret import Body
from ...ir.op import INEXACT, Call, Kind, Op, Parts
from ...ir.types import Extent, Type, TypeLike
from ..leaf import input, parameter
from ..rules import onnx_control
from ..rules.batching import mapped_extent
from .identities import results_of
from .loop import example_by_example
from .mapped import batch, in_front

__all__ = ["BRANCH", "branch"]


def _branch_type(call: Call, index: Type, *operands: Type, bodies: tuple[Graph, ...]) -> TypeLike:
    if index.shape != () or not is_integer(index.dtype):
        raise call.dtype_error(f"an index of type {index}", need="an integer scalar")
    results = tuple(node.type for node in bodies[0].outputs)
    for number, body in enumerate(bodies):
        parameters = tuple(leaf.type for leaf in body.inputs)
        if parameters != operands:
            raise call.shape_error(f"branch {number} takes {parameters}, and is given {operands}")
        types = tuple(node.type for node in body.outputs)
        if types != results:
            raise call.shape_error(f"branch {number} gives {types}, branch 0 {results}")
        call.constraints += [constraint for constraint, _ in body.constraints]
    return results[0] if len(results) == 1 else results


def _evaluate(xp: Any, index: Any, *arrays: Any, bodies: tuple[Body, ...]) -> Any:
    results = bodies[min(max(int(index), 0), len(bodies) - 1)].run(arrays, xp)
    return results[0] if len(results) == 1 else tuple(results)


def _flops(index: Type, *operands: Type, bodies: tuple[Graph, ...]) -> Extent:
    """Count the first branch: which one runs is known at the call only."""
    total: Extent = 0
    for node in bodies[0].nodes:
        if node.op.flops is not None:
            total = total + node.op.flops(*[i.type for i in node.inputs], **node.attrs)
        elif node.inputs and not isinstance(node.type, tuple) and not node.op.layout.alias:
            total = total + node.size
    return total


def _gradient(node: Node, cotangents: Any) -> Parts:
    """Differentiate every branch; the gradient is a branch by the same index."""
    index, *operands = node.inputs
    bodies: tuple[Graph, ...] = node.attrs["bodies"]
    all_cotangents = [cotangents] if not isinstance(node.type, tuple) else list(cotangents)
    points = [input(f"operand {i}", o.shape, o.dtype) for i, o in enumerate(operands)]
    float_points = [point for point in points if is_inexact(point.dtype)]
    seeds = {
        place: input("cotangent", part_cotangent.shape, part_cotangent.dtype)
        for place, part_cotangent in enumerate(all_cotangents)
        if part_cotangent is not None
    }
    gradients = []
    for body in bodies:
        outputs = rebuild(body.outputs, dict(zip(body.inputs, points, strict=True)), unobserved)
        targets = [("", point) for point in float_points]
        gradients.append(sweep([outputs[i] for i in seeds], list(seeds.values()), targets))
    reaches = [any(parts[i] is not None for parts in gradients) for i in range(len(float_points))]
    if not any(reaches):
        return [None] * len(node.inputs)
    choices = [
        [
            zeros_of(point) if part is None else part
            for point, part, any_reached in zip(float_points, parts, reaches, strict=True)
            if any_reached
        ]
        for parts in gradients
    ]
    starts = dict(zip(points, operands, strict=True))
    starts.update((seed, all_cotangents[i]) for i, seed in seeds.items())
    slopes = iter(branch(index, choices, starts))
    by_point = {p: next(slopes) for p, r in zip(float_points, reaches, strict=True) if r}
    return [None, *(by_point.get(point) for point in points)]


def _batching(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Map every branch; where the choice differs, examples run one after the other."""
    if batched[0]:
        return example_by_example(node, operands, batched)
    extent = mapped_extent(operands, batched)
    mapped: dict[Node, Node] = {}
    plain: dict[Node, Node] = {}
    starts: dict[Node, Node] = {}
    points = []
    for own, operand, along in zip(node.inputs[1:], operands[1:], batched[1:], strict=True):
        point = input("operand", own.shape, own.dtype)
        leaf = input("operand", operand.shape, operand.dtype)
        points.append(point)
        starts[leaf] = operand
        (mapped if along else plain)[point] = leaf
    choices = []
    for body in node.attrs["bodies"]:
        outputs = rebuild(body.outputs, dict(zip(body.inputs, points, strict=True)))
        choices.append([in_front(part, extent) for part in batch(outputs, mapped, extent, plain)])
    results = branch(operands[0], choices, starts)
    return results[0] if len(results) == 1 else tuple(results)


BRANCH = Op(
    name="branch",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="One of several body graphs, by a number that is clamped to those that there are.",
    rule=_branch_type,
    evaluate=_evaluate,
    onnx=onnx_control.branched,
    gradient=_gradient,
    batching=_batching,
    sharding="choice",
    flops=_flops,
)


def branch(
    index: Node,
    choices: Sequence[Sequence[Node]],
    starts: dict[Node, Node],
    inside: Container[int] = (),
) -> list[Node]:
    """Return the results of one of several branches.

    index: An integer scalar: which one.
    choices: For each branch what it computes, from the leaves in `starts`; of equal types.
    starts: Leaf -> the operand that it stands for.
    inside: Ids of nodes that belong to a branch though they depend on no leaf.
    """
    whole, reads = close([node for choice in choices for node in choice], list(starts), inside)
    leaves = [parameter(i, leaf.type) for i, leaf in enumerate(whole.inputs)]
    outputs = rebuild(whole.outputs, dict(zip(whole.inputs, leaves, strict=True)))
    count = len(choices[0])
    bodies = tuple(
        freeze(leaves, outputs[start : start + count]) for start in range(0, len(outputs), count)
    )
    return results_of(BRANCH(index, *starts.values(), *reads, bodies=bodies))


RECORDS = (BRANCH,)
