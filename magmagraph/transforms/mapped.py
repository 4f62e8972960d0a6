"""Graphs with one axis more: each node rewritten by its operation's rule for a mapped axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..collection import collection_paused
from ..errors import GraphError, message
from ..graph import Node, topological
from ..op import describe
from ..ops.control.identities import ITEM
from ..ops.control.mapped import mapped_node
from ..ops.rules.batching import drawn, draws, repeated, rule_of
from ..types import Extent, Type
from .rebuild import again


def batch(
    roots: Sequence[Node],
    mapped: Mapping[Node, Node],
    extent: Extent,
    plain: Mapping[Node, Node] | None = None,
    anew: Callable[[Node], bool] = lambda node: False,
) -> list[tuple[Node, bool]]:
    """Return the roots for all positions along an axis, and whether each has that axis.

    Parameters
    ----------
    roots
        Nodes to rewrite; each has one result.
    mapped
        Node -> what takes its place, with the mapped axis in front. Not entered.
    extent
        Of the mapped axis.
    plain
        Node -> what takes its place, without that axis. Not entered.
    anew
        Which random nodes draw again for each position.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, xs = mg.input("x", (3,)), mg.input("xs", ("n", 3))
    >>> batch([mg.sum(x * x)], {x: xs}, xs.shape[0])
    [(<sum float32[n]>, True)]
    """
    with collection_paused():
        return _batch(roots, mapped, extent, plain or {}, anew)


def in_front(found: tuple[Node, bool], extent: Extent) -> Node:
    """Return what `batch` gives with the mapped axis in front in any case."""
    node, along = found
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
            new[id(node)] = _labelled(drawn(again(node, operands), extent), node)
        else:
            new[id(node)] = again(node, operands)
    return [(new[id(root)], id(root) in along) for root in roots]


def _mapped(node: Node, operands: tuple[Any, ...], batched: tuple[bool, ...]) -> Any:
    """Return the node for all positions: a tuple where its results are nodes of their own."""
    if node.op is ITEM:
        held = operands[0]
        index = node.attrs["index"]
        made = held[index] if isinstance(held, tuple) else ITEM(held, index=index)
    else:
        rule = rule_of(node.op)
        made = None if rule is None else rule(node, operands, batched)
        if made is None:
            made = mapped_node(node, operands, batched)
    _check(node, made)
    if isinstance(made, tuple) or any(made is operand for operand in operands):
        return made
    return _labelled(made, node)


def _check(node: Node, made: Any) -> None:
    """Raise unless the results are those of the node with an axis in front."""
    found = [part.type for part in made] if isinstance(made, tuple) else _listed(made.type)
    for own, given in zip(_listed(node.type), found, strict=True):
        if given.dtype != own.dtype or given.shape[1:] != own.shape or not given.shape:
            raise GraphError(
                message(
                    f"vmap: the rule of {node.op.name} gave {given} for {describe(node)}",
                    need="its own type with one axis in front",
                )
            )


def _listed(type_: Any) -> list[Type]:
    return list(type_) if isinstance(type_, tuple) else [type_]


def _labelled(made: Node, node: Node) -> Node:
    """Return a new node under the name and line of the one that it does the work of."""
    return type(made)(
        made.op, made.inputs, made.attrs, made.type, node.name, node.line, made.constraints
    )
