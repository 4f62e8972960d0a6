"""A graph under a name, as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autodiff.autodiff import sweep
from ...autodiff.transforms.closure import close
from ...autodiff.transforms.rebuild import rebuild, unobserved
from ...dtypes import is_inexact
from ...ir.graph import Graph, Node
from ...ir.interpret import Body
from ...ir.op import INEXACT, Call, Kind, Op
from ...ir.types import Type, TypeLike
from ..leaf import input
from ..rules import onnx_forms
from ..rules.batching import mapped_extent
from .identities import results_of
from .mapped import batch, in_front


def _type(call: Call, *operands: Type, body: Graph, label: str) -> TypeLike:
    if len(operands) != len(body.inputs):
        raise call.shape_error(
            f"{len(operands)} operands for {len(body.inputs)} parameters of {label}"
        )
    for place, (leaf, operand_type) in enumerate(zip(body.inputs, operands, strict=True)):
        if leaf.type != operand_type:
            raise call.shape_error(
                f"parameter {place} is {leaf.type}, operand {place} is {operand_type}"
            )
    call.constraints += [constraint for constraint, _ in body.constraints]
    results = tuple(node.type for node in body.outputs)
    return results[0] if len(results) == 1 else results


def _evaluate(xp: Any, *arrays: Any, body: Body, label: str) -> Any:
    results = body.run(arrays, xp)
    return results[0] if len(results) == 1 else tuple(results)


def inlined(node: Node) -> list[Node]:
    """Return the results of a node's body, written out on its operands."""
    body: Graph = node.attrs["body"]
    return rebuild(body.outputs, dict(zip(body.inputs, node.inputs, strict=True)))


def _gradient(node: Node, cotangents: Any) -> list[Node | None]:
    body: Graph = node.attrs["body"]
    result_cotangents = [cotangents] if len(body.outputs) == 1 else list(cotangents)
    # Leaves in the places of the operands: some of those may depend on others.
    leaves = [input("operand", leaf.shape, leaf.dtype) for leaf in body.inputs]
    outputs = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)), unobserved)
    seen = [(m, c) for m, c in zip(outputs, result_cotangents, strict=True) if c is not None]
    float_leaves = [leaf for leaf in leaves if is_inexact(leaf.dtype)]
    gradients = sweep(
        [m for m, _ in seen], [c for _, c in seen], [("", leaf) for leaf in float_leaves]
    )
    values_of = dict(zip(leaves, node.inputs, strict=True))
    parts = iter(rebuild([part for part in gradients if part is not None], values_of))
    by_leaf = {
        leaf: None if part is None else next(parts)
        for leaf, part in zip(float_leaves, gradients, strict=True)
    }
    return [by_leaf.get(leaf) for leaf in leaves]


def _batching(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Map the body, and keep its name."""
    body: Graph = node.attrs["body"]
    extent = mapped_extent(operands, batched)
    leaves = [input("operand", operand.shape, operand.dtype) for operand in operands]
    mapped: dict[Node, Node] = {}
    plain: dict[Node, Node] = {}
    for parameter, leaf, along in zip(body.inputs, leaves, batched, strict=True):
        (mapped if along else plain)[parameter] = leaf
    parts = [in_front(part, extent) for part in batch(body.outputs, mapped, extent, plain)]
    closed, reads = close(parts, leaves)
    return SUBGRAPH(*operands, *reads, body=closed, label=node.attrs["label"])


SUBGRAPH = Op(
    name="subgraph",
    kind=Kind.CONTROL,
    dtypes=INEXACT,
    doc="A graph under a name, as one operation; compilation writes it out.",
    rule=_type,
    evaluate=_evaluate,
    gradient=_gradient,
    batching=_batching,
    sharding="written out",
    onnx=onnx_forms.rewritten(inlined),
)


def subgraph(outputs: Sequence[Node], starts: dict[Node, Node], label: str) -> list[Node]:
    """Return outputs as results of one node; `starts` gives an operand for each argument."""
    body, reads = close(outputs, list(starts))
    node = SUBGRAPH(*starts.values(), *reads, name=label, body=body, label=label)
    return results_of(node)


RECORDS = (SUBGRAPH,)
