"""A body graph run once for each position along an axis.

It is what `mg.vmap` makes of an operation whose record has no rule of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtypes import is_inexact
from ...graph import Graph, Node, freeze
from ...interpret import Body
from ...op import INEXACT, Call, Kind, Op
from ...transforms.rebuild import rebuild, unobserved
from ...types import Type, TypeLike
from ..leaf import input, parameter
from ..reduction.primitives import SUM
from ..rules import onnx_control
from ..rules.batching import all_batched, mapped_extent
from ..shape.arrange import reshape
from ..shape.joining import broadcast_to
from .identities import ITEM


def _mapped_type(
    call: Call, *operands: Type, body: Graph, batched: tuple[bool, ...]
) -> TypeLike:
    extent = None
    for place, (leaf, given, along) in enumerate(zip(body.inputs, operands, batched, strict=True)):
        own = Type(given.dtype, given.shape[1:]) if along else given
        if own != leaf.type:
            raise call.shape_error(f"parameter {place} is {leaf.type}, operand {place} gives {own}")
        if along:
            first = given.shape[0]
            extent = first if extent is None else call.unify(extent, first, "mapped extents")
    if extent is None:
        raise call.shape_error("no operand has the mapped axis")
    call.constraints += [constraint for constraint, _ in body.constraints]
    results = tuple(Type(node.dtype, (extent, *node.shape)) for node in body.outputs)
    return results[0] if len(results) == 1 else results


def _evaluate(xp: Any, *arrays: Any, body: Body, batched: tuple[bool, ...]) -> Any:
    count = next(a.shape[0] for a, along in zip(arrays, batched, strict=True) if along)
    outputs = body.graph.outputs
    results = [
        xp.empty((count, *node.type.concrete(dict(body.sizes))), node.dtype) for node in outputs
    ]
    for i in range(count):
        one = [a[i] if along else a for a, along in zip(arrays, batched, strict=True)]
        for result, part in zip(results, body.run(one, xp), strict=True):
            result[i] = part
    return results[0] if len(results) == 1 else tuple(results)


def _gradient(node: Node, cotangent: Any) -> list[Node | None]:
    """Return the cotangents of one position, mapped over the axis."""
    from ...gradients.autodiff import sweep
    from ...transforms.mapped import batch, in_front

    body: Graph = node.attrs["body"]
    batched: tuple[bool, ...] = node.attrs["batched"]
    arriving = [cotangent] if len(body.outputs) == 1 else list(cotangent)
    leaves = [input(f"operand {i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(body.inputs)]
    outputs = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)), unobserved)
    seen = [(o, c) for o, c in zip(outputs, arriving, strict=True) if c is not None]
    seeds = [input("cotangent", output.shape, output.dtype) for output, _ in seen]
    targets = [("", leaf) for leaf in leaves if is_inexact(leaf.dtype)]
    found = sweep([output for output, _ in seen], seeds, targets, free=True)
    # What the rule reads of the results is there already.
    known = {o: r for o, r in zip(outputs, results_of(node), strict=True) if o not in leaves}
    known.update((seed, c) for seed, (_, c) in zip(seeds, seen, strict=True))
    plain: dict[Node, Node] = {}
    for leaf, operand, along in zip(leaves, node.inputs, batched, strict=True):
        (known if along else plain)[leaf] = operand
    extent = mapped_extent(node.inputs, batched)
    reached = [part for part in found if part is not None]
    parts = iter([in_front(part, extent) for part in batch(reached, known, extent, plain)])
    by_leaf: dict[int, Node | None] = {}
    for (_, leaf), part in zip(targets, found, strict=True):
        by_leaf[id(leaf)] = None if part is None else next(parts)
    result: list[Node | None] = []
    for leaf, along in zip(leaves, batched, strict=True):
        part = by_leaf.get(id(leaf))
        result.append(part if along or part is None else SUM(part, axes=(0,)))
    return result


def results_of(node: Node) -> list[Node]:
    """Return the results of a node: itself, or an item for each of several."""
    if not isinstance(node.type, tuple):
        return [node]
    return [ITEM(node, index=i) for i in range(len(node.type))]


def _batching(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Two mapped axes are one of as many positions as both have together."""
    inner: tuple[bool, ...] = node.attrs["batched"]
    outer = mapped_extent(operands, batched)
    places = [i for i, along in enumerate(inner) if along]
    count = node.inputs[places[0]].shape[0]
    full = all_batched(operands, batched)
    joined = []
    for operand, own, along in zip(full, node.inputs, inner, strict=True):
        rest = own.shape[1:] if along else own.shape
        if not along:
            single = reshape(operand, (outer, 1, *rest))
            operand = broadcast_to(single, (outer, count, *rest))
        joined.append(reshape(operand, (outer * count, *rest)))
    made = MAPPED(*joined, body=node.attrs["body"], batched=(True,) * len(joined))
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    split = [
        reshape(part, (outer, *type_.shape))
        for part, type_ in zip(results_of(made), types, strict=True)
    ]
    return split[0] if len(split) == 1 else tuple(split)


MAPPED = Op(
    name="mapped",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="A body graph run once for each position along an axis.",
    rule=_mapped_type,
    evaluate=_evaluate,
    onnx=onnx_control.mapped,
    gradient=_gradient,
    batching=_batching,
    sharding="mapped",
)


def mapped_node(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Return a node's operation in a loop over the mapped axis."""
    types = [operand.type for operand in node.inputs]
    leaves = [parameter(i, type_) for i, type_ in enumerate(types)]
    again = type(node)(node.op, tuple(leaves), node.attrs, node.type, None, None, node.constraints)
    body = freeze(leaves, results_of(again))
    return MAPPED(*operands, body=body, batched=tuple(batched))


RECORDS = (MAPPED,)
