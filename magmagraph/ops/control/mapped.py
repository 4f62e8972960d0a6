"""Map graphs over an axis: nodes rewritten by the rules of their operations, or a loop over it.

`batch` rewrites each node by its operation's rule. Where there is none, the node becomes a body
graph of its own that the operation `mapped` runs once for each position.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...autodiff.autodiff import sweep
from ...autodiff.transforms.rebuild import again, rebuild, unobserved
from ...dtypes import is_inexact
from ...errors import GraphError, message
from ...ir.collection import collection_paused
from ...ir.docstrings import documented
from ...ir.graph import Graph, Node, freeze, topological
from ...ir.identity import is_among
from ...ir.interpret import Body
from ...ir.op import INEXACT, Call, Kind, Op, describe
from ...ir.types import Extent, Type, TypeLike
from ..leaf import input, parameter
from ..reduction.primitives import SUM
from ..rules import onnx_control
from ..rules.batching import all_batched, draws, map_draws, mapped_extent, repeated, rule_of
from ..shape.arrange import reshape
from ..shape.joining import broadcast_to
from .identities import ITEM, results_of


def _mapped_type(
    call: Call, *operands: Type, body: Graph, batched: tuple[bool, ...]
) -> TypeLike:
    extent = None
    for place, (leaf, operand_type, along) in enumerate(
        zip(body.inputs, operands, batched, strict=True)
    ):
        own = Type(operand_type.dtype, operand_type.shape[1:]) if along else operand_type
        if own != leaf.type:
            raise call.shape_error(f"parameter {place} is {leaf.type}, operand {place} gives {own}")
        if along:
            first = operand_type.shape[0]
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
    body: Graph = node.attrs["body"]
    batched: tuple[bool, ...] = node.attrs["batched"]
    result_cotangents = [cotangent] if len(body.outputs) == 1 else list(cotangent)
    leaves = [input(f"operand {i}", leaf.shape, leaf.dtype) for i, leaf in enumerate(body.inputs)]
    outputs = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)), unobserved)
    seen = [(o, c) for o, c in zip(outputs, result_cotangents, strict=True) if c is not None]
    seeds = [input("cotangent", output.shape, output.dtype) for output, _ in seen]
    targets = [("", leaf) for leaf in leaves if is_inexact(leaf.dtype)]
    gradients = sweep([output for output, _ in seen], seeds, targets, free=True)
    # The results that the rule reads exist already.
    values_of = {
        o: r for o, r in zip(outputs, results_of(node), strict=True) if not is_among(o, leaves)
    }
    values_of.update((seed, c) for seed, (_, c) in zip(seeds, seen, strict=True))
    plain: dict[Node, Node] = {}
    for leaf, operand, along in zip(leaves, node.inputs, batched, strict=True):
        (values_of if along else plain)[leaf] = operand
    extent = mapped_extent(node.inputs, batched)
    gradient_nodes = [part for part in gradients if part is not None]
    parts = iter(
        [in_front(part, extent) for part in batch(gradient_nodes, values_of, extent, plain)]
    )
    by_leaf: dict[int, Node | None] = {}
    for (_, leaf), part in zip(targets, gradients, strict=True):
        by_leaf[id(leaf)] = None if part is None else next(parts)
    result: list[Node | None] = []
    for leaf, along in zip(leaves, batched, strict=True):
        part = by_leaf.get(id(leaf))
        result.append(part if along or part is None else SUM(part, axes=(0,)))
    return result


def _batching(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Any:
    """Two mapped axes are one of as many positions as both have together."""
    inner: tuple[bool, ...] = node.attrs["batched"]
    outer = mapped_extent(operands, batched)
    places = [i for i, along in enumerate(inner) if along]
    count = node.inputs[places[0]].shape[0]
    full = all_batched(operands, batched)
    flat_operands = []
    for operand, own, along in zip(full, node.inputs, inner, strict=True):
        rest = own.shape[1:] if along else own.shape
        if not along:
            single = reshape(operand, (outer, 1, *rest))
            operand = broadcast_to(single, (outer, count, *rest))
        flat_operands.append(reshape(operand, (outer * count, *rest)))
    result = MAPPED(*flat_operands, body=node.attrs["body"], batched=(True,) * len(flat_operands))
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    split = [
        reshape(part, (outer, *type_.shape))
        for part, type_ in zip(results_of(result), types, strict=True)
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


# Graphs with one axis more: each node rewritten by its operation's rule for a mapped axis.


@documented
def batch(
    roots: Sequence[Node],
    mapped: Mapping[Node, Node],
    extent: Extent,
    plain: Mapping[Node, Node] | None = None,
    anew: Callable[[Node], bool] = lambda node: False,
) -> list[tuple[Node, bool]]:
    """Return the roots for all positions along an axis, and whether each has that axis.

    roots: Nodes to rewrite; each has one result.
    mapped: Node -> what takes its place, with the mapped axis in front. Not entered.
    extent: Of the mapped axis.
    plain: Node -> what takes its place, without that axis. Not entered.
    anew: Which random nodes draw again for each position.

    >>> x, xs = mg.input("x", (3,)), mg.input("xs", ("n", 3))
    >>> batch([mg.sum(x * x)], {x: xs}, xs.shape[0])
    [(<sum float32[n]>, True)]
    """
    with collection_paused():
        return _batch(roots, mapped, extent, plain or {}, anew)


def in_front(part: tuple[Node, bool], extent: Extent) -> Node:
    """Return a result of `batch` with the mapped axis in front."""
    node, along = part
    return node if along else repeated(node, extent)


def _batch(
    roots: Sequence[Node],
    mapped: Mapping[Node, Node],
    extent: Extent,
    plain: Mapping[Node, Node],
    anew: Callable[[Node], bool],
) -> list[tuple[Node, bool]]:
    new: dict[int, Any] = {id(node): other for node, other in plain.items()}
    along = {id(node) for node in mapped}
    new.update((id(node), other) for node, other in mapped.items())
    for node in topological(roots, stop=lambda n: id(n) in new):
        if id(node) in new:
            continue
        batched = tuple(id(operand) in along for operand in node.inputs)
        operands = tuple(new[id(operand)] for operand in node.inputs)
        if any(batched):
            along.add(id(node))
            new[id(node)] = _mapped(node, operands, batched)
        elif draws(node) and anew(node):
            along.add(id(node))
            new[id(node)] = _labelled(map_draws(again(node, operands), extent), node)
        else:
            new[id(node)] = again(node, operands)
    return [(new[id(root)], id(root) in along) for root in roots]


def _mapped(node: Node, operands: tuple[Any, ...], batched: tuple[bool, ...]) -> Any:
    """Map a node over all positions; return a tuple where its results are separate nodes."""
    if node.op is ITEM:
        source = operands[0]
        index = node.attrs["index"]
        result = source[index] if isinstance(source, tuple) else ITEM(source, index=index)
    else:
        rule = rule_of(node.op)
        result = None if rule is None else rule(node, operands, batched)
        if result is None:
            result = mapped_node(node, operands, batched)
    _check(node, result)
    if isinstance(result, tuple) or any(result is operand for operand in operands):
        return result
    return _labelled(result, node)


def _check(node: Node, result: Any) -> None:
    """Raise unless the results are those of the node with an axis in front."""
    types = [part.type for part in result] if isinstance(result, tuple) else _listed(result.type)
    for own, result_type in zip(_listed(node.type), types, strict=True):
        if (
            result_type.dtype != own.dtype
            or result_type.shape[1:] != own.shape
            or not result_type.shape
        ):
            raise GraphError(
                message(
                    f"vmap: the rule of {node.op.name} gave {result_type} for {describe(node)}",
                    need="its own type with one axis in front",
                )
            )


def _listed(type_: Any) -> list[Type]:
    return list(type_) if isinstance(type_, tuple) else [type_]


def _labelled(result: Node, node: Node) -> Node:
    """Return a node with the name and line of the node that it replaces."""
    return type(result)(
        result.op,
        result.inputs,
        result.attrs,
        result.type,
        node.name,
        node.line,
        result.constraints,
    )


RECORDS = (MAPPED,)
