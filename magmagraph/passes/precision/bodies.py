"""Products inside of loops and branches: the precision pass enters their bodies.

A body is a graph of its own. Its products are made gemm nodes first, as the passes before this one
did outside. What goes in and comes out keeps its type, carries too: a carry is rounded where a
product reads it, and added up in float32.

What a loop reads in every iteration (weights), and its stacks of rows, are cast before it, once:

    loop(w, body: h @ cast(w))  ->  loop(cast(w), body: h @ w)

A fixed point keeps float32: it runs until it changes by less than a tolerance, which rounding could
prevent. So do branches and loops that end when a value says so on devices, which run these as array
expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...dtypes import is_float
from ...ir.graph import Graph, Node, Trace, freeze, topological
from ...ir.identity import is_among
from ...ir.op import Kind
from ...ops.convert import CAST, cast
from ...ops.leaf import input, parameter
from ..contract import contract
from ..loops import each_body, holds_bodies
from ..pipeline import Options
from ..report import Record
from ..simplify.linear import exchanged
from ..simplify.simplify import simplify

RULE = "products of a loop or branch body"
OUTSIDE = "move a cast out of a loop"

Lower = Callable[[Graph, Trace, Options], Graph]


def enter_bodies(graph: Graph, trace: Trace, options: Options, lower: Lower) -> Graph:
    """Return the graph with the products inside of its bodies lowered.

    Parameters
    ----------
    lower
        The pass, for a body.
    """
    mapping: dict[Node, Node] = {}
    for node in graph.nodes:
        bodies = {name: value for name, value in node.attrs.items() if holds_bodies(value)}
        if not bodies or node.op.kind is not Kind.CONTROL:
            continue
        reason = _refusal(node, options)
        if reason is not None:
            options.record.refuse(RULE, node, reason)
            continue
        new = {name: each_body(value, lambda b: _body(b, options, lower))
               for name, value in bodies.items()}
        if all(new[name] is bodies[name] for name in bodies):
            continue
        loop = node.op(*node.inputs, name=node.name, **{**node.attrs, **new})
        mapping[node] = _with_casts_outside(loop, options) if "stacks" in node.attrs else loop
    return exchanged(graph, mapping, trace, options, "precision", RULE)


def _refusal(node: Node, options: Options) -> str | None:
    """Return why the bodies of a node stay as they are, or None."""
    if "tolerance" in node.attrs:
        return "it runs until it changes by less than its tolerance, which rounding could prevent"
    if options.target.device != "cpu" and node.attrs.get("flag", "branch"):
        return (
            "a device runs loops and branches that depend on a value as array expressions, "
            "where casts are not fused with products"
        )
    return None


def _body(body: Graph, options: Options, lower: Lower) -> Graph:
    """Return a body with its products lowered; the same one where there are none."""
    if not any(_may_change(node) for node in body.nodes):
        return body
    trace, aside = Trace(), replace(options, record=Record("body"))
    prepared = contract(simplify(body, trace, aside), trace, aside)
    lowered = lower(prepared, trace, options)
    return body if lowered is prepared else lowered


def _may_change(node: Node) -> bool:
    return node.op.policy == "allow" or any(map(holds_bodies, node.attrs.values()))


def _with_casts_outside(loop: Node, options: Options) -> Node:
    """Return a loop whose reads and stacks are cast before it, where its body casts them."""
    body: Graph = loop.attrs["body"]
    first: int = loop.attrs["carries"]
    edge: int = first + loop.attrs["stacks"]
    groups: list[list[tuple[Node, Node]]] = [[], [], []]  # carries, stacks, reads: leaf, operand
    places: dict[Node, Node] = {}
    for place, (leaf, operand) in enumerate(zip(body.inputs, loop.inputs, strict=True)):
        group = groups[(place >= first) + (place >= edge)]
        casts = [user for user in body.users[leaf] if _narrows(user)] if place >= first else []
        if len(casts) < len(body.users[leaf]) or is_among(leaf, body.outputs) or not casts:
            group.append((leaf, operand))
        for cast_node in casts:
            narrow = places[cast_node] = input("narrow", leaf.shape, cast_node.dtype)
            group.append((narrow, _cast(operand, cast_node)))
            options.record.hit(OUTSIDE)
    if not places:
        return loop
    pairs = [pair for group in groups for pair in group]
    leaves = [parameter(i, leaf.type) for i, (leaf, _) in enumerate(pairs)]
    replacements = dict(zip([leaf for leaf, _ in pairs], leaves, strict=True))
    for cast_node, narrow in places.items():
        replacements[cast_node] = replacements[narrow]
    for node in topological(body.outputs, stop=lambda n: n in replacements):
        if node not in replacements:
            replacements[node] = body.interner.make(
                node, tuple(replacements[i] for i in node.inputs)
            )
    outputs = [replacements[node] for node in body.outputs]
    attrs = {**loop.attrs, "body": freeze(leaves, outputs), "stacks": len(groups[1])}
    return loop.op(*[operand for _, operand in pairs], name=loop.name, **attrs)


def _narrows(node: Node) -> bool:
    """Return whether a node rounds float32 to 16 bits."""
    return node.op is CAST and is_float(node.dtype) and node.dtype.itemsize == 2


def _cast(operand: Node, like: Node) -> Node:
    if operand.op is CAST and operand.inputs[0].dtype == like.dtype:
        return operand.inputs[0]  # it was narrow before
    return cast(operand, like.dtype)
