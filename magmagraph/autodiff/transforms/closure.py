"""Bodies: what a Python function of nodes builds, as a closed graph and the nodes it reads."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ...errors import GraphError, message
from ...ir.graph import Graph, Node, freeze, topological
from ...ir.op import Effect, Kind, describe
from ...ops.leaf import parameter
from .rebuild import rebuild

__all__ = ["close"]


def close(
    outputs: Sequence[Node], arguments: Sequence[Node], inside: Container[int] = ()
) -> tuple[Graph, list[Node]]:
    """Return a body graph of outputs, and the nodes that it reads beside the arguments.

    What does not depend on an argument (variables, inputs, what is computed from them) is read
    from outside, where it is computed once; constants stay inside, also spread over a shape, and
    so do nodes whose ids are in `inside`. The body's parameters stand for the arguments, then for
    what is read.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, w = mg.input("x"), mg.input("w")
    >>> body, captured = close([x * mg.exp(w) + 1.0], [x])
    >>> captured, [node.op.name for node in body.nodes]
    ([<exp float32[]>], ['parameter', 'parameter', 'multiply', 'constant', 'add'])
    """
    varying = {id(node) for node in arguments}
    order = topological(outputs, stop=lambda node: id(node) in varying)
    constant: set[int] = set()
    for node in order:
        if any(id(operand) in varying for operand in node.inputs) or (
            id(node) in inside and _may_be_inside(node)
        ):
            varying.add(id(node))
        elif id(node) not in varying and _is_constant(node, constant):
            constant.add(id(node))
    for node in order:
        if node.op.layout.fades and len(node.inputs) > 1 and id(node) in varying:
            raise GraphError(
                message(
                    f"{describe(node)} carries default updates inside the body of an operation",
                    need="updates that land once a call",
                    hint="training=False, or a stateful value that is computed outside",
                )
            )
    captured: dict[Node, None] = {}
    for node in [*(o for n in order if id(n) in varying for o in n.inputs), *outputs]:
        if id(node) not in varying and id(node) not in constant:
            captured[node] = None
    own = dict.fromkeys(arguments)
    reads = [node for node in captured if node not in own]
    leaves = [parameter(i, node.type) for i, node in enumerate([*arguments, *reads])]
    results = rebuild(outputs, dict(zip([*arguments, *reads], leaves, strict=True)))
    return freeze(leaves, results), reads


def _may_be_inside(node: Node) -> bool:
    """Return whether a node that was made inside is computed there: a part of another's is not."""
    parts = any(isinstance(operand.type, tuple) for operand in node.inputs)
    return node.op.kind is not Kind.LEAF and not parts


def _is_constant(node: Node, constant: set[int]) -> bool:
    """Return whether a node is a constant, or such that its kernel makes it of one anew."""
    if node.op.kind is Kind.LEAF:
        return "value" in node.attrs
    pure = node.op.effect is Effect.PURE
    if not node.inputs:
        return pure
    spread = node.op.kind is Kind.LAYOUT and all(operand.size == 1 for operand in node.inputs)
    return pure and spread and all(id(operand) in constant for operand in node.inputs)
