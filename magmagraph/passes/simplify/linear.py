"""Linear combinations: a value taken apart into terms with scalar factors.

``W - rate * (G + decay * W)`` is the combination ``(1 - rate * decay) * W + (-rate) * G``. The
passes that hand sums and scales over to library calls read values in this form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...ir.graph import Graph, Node, Trace, topological
from ...ir.records import record
from ...ops.elementwise.arithmetic import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT
from ...ops.leaf import CONSTANT, constant
from ..pipeline import Options
from ..rewriting.pattern import uniform

MOST_TERMS = 16


@record(frozen=True)
class Term:
    """A node times a scalar node; None means the factor 1."""

    node: Node
    factor: Node | None


def read_counts(graph: Graph) -> dict[Node, int]:
    """Return for each node how many operand places and roots read it."""
    counts: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
    for node in graph.nodes:
        for operand in node.inputs:
            counts[operand] += 1
    for root in graph.roots:
        counts[root] += 1
    return counts


def combination(
    root: Node, reads: Mapping[Node, int], atom: Callable[[Node], bool]
) -> list[Term] | None:
    """Return the terms of `root`, equal ones joined, or None where there are too many.

    Parameters
    ----------
    reads
        As `read_counts` gives. A node below the root that is read elsewhere too is a term: its
        value is needed anyway.
    atom
        Nodes that are terms in any case.
    """
    coefficients: dict[Node, Node | None] = {}
    stack: list[tuple[Node, Node | None]] = [(root, None)]
    while stack:
        node, factor = stack.pop()
        parts = None if atom(node) else _parts(node, factor)
        if parts is None or (node is not root and reads.get(node, 1) > 1):
            if node in coefficients:
                coefficients[node] = plus(coefficients[node], factor, node)
            else:
                coefficients[node] = factor
            if len(coefficients) > MOST_TERMS:
                return None
            continue
        if len(stack) > 4 * MOST_TERMS:
            return None
        stack += reversed(parts)
    return [Term(node, factor) for node, factor in coefficients.items()]


def _parts(node: Node, factor: Node | None) -> list[tuple[Node, Node | None]] | None:
    """Return the terms of one operation, or None where it is not a linear one of full terms."""
    op = node.op
    if op is NEGATIVE:
        return [(node.inputs[0], negated(factor, node))]
    if op not in (ADD, SUBTRACT, MULTIPLY, DIVIDE):
        return None
    left, right = node.inputs
    if op is MULTIPLY:
        if left.shape == () and right.type == node.type:
            left, right = right, left
        if right.shape == () and left.type == node.type and left.shape != ():
            return [(left, times(factor, right))]
        return None
    if op is DIVIDE:
        if right.shape == () and left.type == node.type and left.shape != ():
            return [(left, over(factor, right))]
        return None
    if left.type != node.type or right.type != node.type:
        return None
    return [(left, factor), (right, factor if op is ADD else negated(factor, node))]


def substituted(
    graph: Graph, mapping: Mapping[Node, Node], remade: Callable[[Node, Node], None]
) -> Graph:
    """Return the graph with nodes replaced, also inside of what other replacements read.

    Replacements are written in terms of the graph's own nodes. ``remade(old, new)`` is called
    for nodes, replacements among them, that read other operands now.
    """
    if not mapping:
        return graph
    make = graph.interner.make
    result: dict[Node, Node] = {}
    for node in graph.nodes:
        target = mapping.get(node, node)
        ready = all(operand in result for operand in target.inputs)
        for part in (target,) if ready else topological([target], stop=lambda n: n in result):
            if part not in result:
                new_node = result[part] = make(part, tuple(result[i] for i in part.inputs))
                if new_node is not part:
                    remade(part, new_node)
        result[node] = result[target]
    return graph.replace(
        outputs=[result[n] for n in graph.outputs],
        updates=[(variable, result[value]) for variable, value in graph.updates],
        effects=[result[n] for n in graph.effects],
    )


def exchanged(
    graph: Graph,
    mapping: Mapping[Node, Node],
    trace: Trace,
    options: Options,
    name: str,
    rule: str | Callable[[Node], str],
) -> Graph:
    """Return the graph with nodes replaced, each a hit of a rule of the pass of that name.

    A rule for each node may be given in place of one for all.
    """
    if not mapping:
        return graph
    members = graph.interner.intern_all(list(mapping.values()))
    settled = dict(zip(mapping, members, strict=True))
    for node, member in settled.items():
        called = rule if isinstance(rule, str) else rule(node)
        options.record.hit(called)
        trace.replace(node, member, name, called)
    return substituted(graph, settled, lambda old, new: trace.replace(old, new, name, "operands"))


def times(factor: Node | None, scalar: Node) -> Node:
    """Return the product of a factor and a scalar node."""
    if factor is None or uniform(factor) == 1:
        return scalar
    return negated(scalar, scalar) if uniform(factor) == -1 else MULTIPLY(factor, scalar)


def over(factor: Node | None, scalar: Node) -> Node:
    """Return a factor divided by a scalar node."""
    return DIVIDE(one(scalar) if factor is None else factor, scalar)


def negated(factor: Node | None, like: Node) -> Node:
    """Return the negative of a factor."""
    if factor is None:
        return constant(-1, dtype=like.dtype)
    if factor.op is NEGATIVE:
        return factor.inputs[0]
    if factor.op is CONSTANT:
        return constant(-factor.attrs["value"], dtype=like.dtype)
    return NEGATIVE(factor)


def plus(left: Node | None, right: Node | None, like: Node) -> Node:
    """Return the sum of two factors; a negated one is written as a difference."""
    a = one(like) if left is None else left
    b = one(like) if right is None else right
    if b.op is NEGATIVE:
        return SUBTRACT(a, b.inputs[0])
    if a.op is NEGATIVE:
        return SUBTRACT(b, a.inputs[0])
    return ADD(a, b)


def one(like: Node) -> Node:
    """Return the scalar 1 of a node's dtype."""
    return constant(1, dtype=like.dtype)
