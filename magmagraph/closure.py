"""Bodies: what a Python function of nodes builds, as a closed graph and the nodes it reads."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph, Node, freeze, topological
from .op import Kind
from .ops.leaf import parameter
from .rebuild import rebuild

__all__ = ["close"]


def close(outputs: Sequence[Node], arguments: Sequence[Node]) -> tuple[Graph, list[Node]]:
    """Return a body graph of outputs, and the nodes that it reads beside the arguments.

    What does not depend on an argument (variables, inputs, what is computed from them) is read
    from outside, where it is computed once; constants stay inside. The body's parameters stand for
    the arguments, then for what is read.

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
    for node in order:
        if any(id(operand) in varying for operand in node.inputs):
            varying.add(id(node))
    captured: dict[Node, None] = {}
    for node in order:
        if id(node) in varying:
            captured.update((o, None) for o in node.inputs if _is_outside(o, varying))
    captured.update((node, None) for node in outputs if _is_outside(node, varying))
    given = dict.fromkeys(arguments)
    reads = [node for node in captured if node not in given]
    leaves = [parameter(i, node.type) for i, node in enumerate([*arguments, *reads])]
    made = rebuild(outputs, dict(zip([*arguments, *reads], leaves, strict=True)))
    return freeze(leaves, made), reads


def _is_outside(node: Node, varying: set[int]) -> bool:
    constant = node.op.kind is Kind.LEAF and "value" in node.attrs
    return id(node) not in varying and not constant
