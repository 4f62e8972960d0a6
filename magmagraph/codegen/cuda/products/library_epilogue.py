"""Epilogues of product libraries: a bias, then relu or gelu.

A body that does no more than that with a product's result is computed by the library's call, which
then stores what the body would have made: the result itself never goes to memory.
"""

from __future__ import annotations

from ....dtypes import is_float
from ....ir.graph import Graph, Node
from ....ir.identity import index_of, is_among
from ....ir.op import Kind
from ....ir.records import record
from ....ir.types import Shape

__all__ = ["LibraryEpilogue", "library_epilogue"]

BIAS = "bias"  # of `Scalar.epilogue`; all others are functions of one operand


@record(frozen=True)
class LibraryEpilogue:
    """The operations of a body on a product's result.

    Attributes
    ----------
    name
        As `gemm.Shape` has it.
    bias
        The body's parameter that is added to each row, or None.
    """

    name: str
    bias: int | None


def library_epilogue(body: Graph, parameter: int) -> LibraryEpilogue | None:
    """Return the library epilogue that equals a body's operations on a parameter, or None."""
    source = body.inputs[parameter]
    if len(body.outputs) != 1 or body.outputs[0].type != source.type:
        return None
    node = body.outputs[0]
    if _converts(node):
        (node,) = node.inputs
    function = ""
    if node.op.scalar.epilogue not in ("", BIAS) and len(node.inputs) == 1:
        function, node = node.op.scalar.epilogue, _widened(node.inputs[0])
    bias: int | None = None
    if node.op.scalar.epilogue == BIAS:
        left, right = (_widened(operand) for operand in node.inputs)
        if left is not source:
            left, right = right, left
        bias = _row(body, right, source.shape)
        if bias is None:
            return None
        node = left
    if node is not source or not (function or bias is not None):
        return None
    words = [function] * bool(function) + [BIAS] * (bias is not None)
    return LibraryEpilogue("_".join(words), bias)


def _converts(node: Node) -> bool:
    """Return whether a node converts a float to another."""
    if node.op.kind is not Kind.ELEMENTWISE or node.op.scalar.expression != "a" or not node.inputs:
        return False
    return is_float(node.inputs[0].dtype) and is_float(node.dtype)


def _widened(node: Node) -> Node:
    """Return the operand of a widening cast, which rounds nothing."""
    while _converts(node) and node.inputs[0].dtype.itemsize <= node.dtype.itemsize:
        (node,) = node.inputs
    return node


def _row(body: Graph, node: Node, shape: Shape) -> int | None:
    """Return the parameter that is a vector along the columns of a matrix, or None."""
    if node.shape not in ((shape[1],), (1, shape[1])):
        return None
    while node.op.layout.alias and node.inputs:
        node = node.inputs[0]
    if not is_among(node, body.inputs) or node.ndim < 1:
        return None
    return index_of(body.inputs, node)
