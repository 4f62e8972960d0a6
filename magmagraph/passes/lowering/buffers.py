"""Which nodes are steps, which are other names for a buffer, and how large buffers are.

Shared by the schedule, memory and lower passes: they must see the same buffers.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir import dims
from ...ir.graph import Graph, Node
from ...ir.op import Kind
from ...ir.types import Extent, Type

UNKNOWN_EXTENT = 128  # what a named dimension counts for where no feed has told its size yet

Buffer = tuple[Node, int]  # the node that makes it, and which of its results it is


def is_leaf(node: Node) -> bool:
    """Return whether the node's value exists before the first step."""
    return node.op.kind is Kind.LEAF and node.op.scalar.expression is None


def is_alias(node: Node) -> bool:
    """Return whether the node is another name (and type) for its operand's buffer."""
    return node.op.layout.alias or (
        len(node.inputs) == 1 and isinstance(node.inputs[0].type, tuple)
    )


def is_step(node: Node) -> bool:
    """Return whether running the node takes a kernel."""
    return not is_leaf(node) and not is_alias(node)


def buffer_of(node: Node) -> Buffer:
    """Return the buffer that holds the node's value: look through aliases and projections."""
    index = 0
    while is_alias(node):
        operand = node.inputs[0]
        if isinstance(operand.type, tuple):
            index = node.attrs["index"]
        node = operand
    return node, index


def types_of(node: Node) -> tuple[Type, ...]:
    """Return the types of the node's results."""
    return node.type if isinstance(node.type, tuple) else (node.type,)


def hinted(extent: Extent, hints: Mapping[str, int]) -> int:
    """Return an extent under the hinted sizes; a name without a hint counts `UNKNOWN_EXTENT`."""
    if isinstance(extent, int):
        return extent
    sizes = {name: hints.get(name, UNKNOWN_EXTENT) for name in dims.names(extent)}
    return max(0, dims.evaluate(extent, sizes))


def hinted_bytes(type_: Type, hints: Mapping[str, int]) -> int:
    """Return the bytes of a value of this type under the hinted sizes."""
    return hinted(type_.bytes, hints)


def operands(node: Node) -> list[Buffer]:
    """Return the buffers that a step reads, each once, leaves included."""
    return list(dict.fromkeys(buffer_of(i) for i in node.inputs))


def root_buffers(graph: Graph) -> set[Buffer]:
    """Return the buffers that are still needed after the last step."""
    return {buffer_of(node) for node in graph.roots}
