"""Copies of user graphs with some of their nodes replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.docstrings import documented
from ...ir.graph import Graph, Node, freeze, topological
from ...ir.op import Effect, Kind
from ...ir.types import Type
from ...ops.leaf import parameter

Renew = Callable[[Node, tuple[Node, ...]], Node | None]


@documented
def rebuild(
    roots: Sequence[Node], replace: Mapping[Node, Node], renew: Renew | None = None
) -> list[Node]:
    """Return the roots recomputed from replacements; what does not depend on one is kept.

    roots: Nodes to copy.
    replace: Node -> the node that takes its place. Replacements are not entered.
    renew: ``renew(node, new operands)`` may return the copy of a node itself, or None for the usual
        one; it is asked about every node that is not replaced.

    >>> x, y = mg.input("x"), mg.input("y")
    >>> copy, = rebuild([x + x], {x: y})
    >>> copy.inputs == (y, y)
    True
    """
    new: dict[int, Node] = {id(node): other for node, other in replace.items()}
    for node in topological(roots, stop=lambda n: id(n) in new):
        if id(node) in new:
            continue
        operands = tuple(new[id(operand)] for operand in node.inputs)
        renewed = None if renew is None else renew(node, operands)
        new[id(node)] = again(node, operands) if renewed is None else renewed
    return [new[id(root)] for root in roots]


def unobserved(node: Node, operands: tuple[Node, ...]) -> Node | None:
    """Leave taps and asserts out of a copy: what a gradient computes again is looked at once."""
    return operands[0] if observes(node) else None


def observes(node: Node) -> bool:
    """Return whether a node looks at its operand, and tells no other rank."""
    return node.op.effect is Effect.ORDERED and node.op.kind is not Kind.COLLECTIVE


def again(node: Node, operands: tuple[Node, ...]) -> Node:
    """Return a node's operation applied to other operands: itself where they are its own."""
    pairs = list(zip(node.inputs, operands, strict=True))
    if all(old is other for old, other in pairs):
        return node
    if all(old.type == other.type for old, other in pairs):
        return type(node)(
            node.op, operands, node.attrs, node.type, node.name, node.line, node.constraints
        )
    return node.op(*operands, name=node.name, **_retyped(node, operands))


def _retyped(node: Node, operands: tuple[Node, ...]) -> Mapping[str, Any]:
    """Return a node's attributes for operands of other types: those of its bodies' parameters."""
    attrs = dict(node.attrs)
    for name, value in node.attrs.items():
        if isinstance(value, Graph):
            attrs[name] = _retyped_body(node, value, operands)
        elif isinstance(value, tuple) and value and all(isinstance(body, Graph) for body in value):
            attrs[name] = tuple(_retyped_body(node, body, operands) for body in value)
    return attrs


def _retyped_body(node: Node, body: Graph, operands: tuple[Node, ...]) -> Graph:
    count = len(body.inputs)  # of the last operands: what chooses between bodies stands first
    before, after = node.inputs[-count:] if count else (), operands[-count:] if count else ()
    leaves = [
        # An operand that a body is run along has axes in front of the parameter's.
        parameter(i, Type(new.dtype, new.shape[old.ndim - leaf.ndim :]))
        for i, (leaf, old, new) in enumerate(zip(body.inputs, before, after, strict=True))
    ]
    results = rebuild(body.outputs, dict(zip(body.inputs, leaves, strict=True)))
    return freeze(leaves, results)
