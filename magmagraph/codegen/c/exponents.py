"""Exponentials of values that are at most zero, such as differences from the maximum in a softmax.

They need no care for large results, which is a quarter of the instructions (`rationals`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...ir.graph import Node
from ...ops.elementwise.arithmetic import SUBTRACT
from ...ops.elementwise.comparison import WHERE
from ...ops.elementwise.math import EXP
from ...ops.elementwise.rounding import ISFINITE
from ...ops.reduction.primitives import MAX, SUM
from ..region.analysis import Region

__all__ = ["exponential"]

_FLOAT32 = np.dtype(np.float32)


def exponential(region: Region, node: Node, expression: str) -> str:
    """Return the C of a node; an exponential by the function that it may be computed by.

    Parameters
    ----------
    region
        The region.
    node
        A node of it.
    expression
        Its C, with ``expf`` where it is an exponential.

    Returns
    -------
    str
        The C with ``mg_expf_below`` where the operand is at most zero, or NaN; with
        ``mg_expf_within`` where that holds in rows whose largest element is finite, and all is
        added up: in another row the sum is infinite or NaN, whatever else is in it. Else as it was.
    """
    if node.op is not EXP or node.dtype != _FLOAT32:
        return expression
    return expression.replace("expf(", f"{_function(region, node)}(", 1)


def _function(region: Region, node: Node) -> str:
    difference = _source(region, node.inputs[0])
    if difference.op is not SUBTRACT or difference in region.accesses:
        return "expf"
    element, shift = (_source(region, operand) for operand in difference.inputs)
    # Broadcast along what it is the largest of, and not along another axis of the same length.
    if region.values[difference.inputs[1]].loops != region.values[shift].loops:
        return "expf"
    largest = _where_finite(region, shift)
    function = "mg_expf_below" if largest is shift else "mg_expf_within"
    if largest.op is not MAX or largest in region.accesses:
        return "expf"
    if _source(region, largest.inputs[0]) is not element:
        return "expf"
    if not region.values[largest].loops <= region.values[element].loops:
        return "expf"
    if largest is not shift and not all(user.op is SUM for user in _users(region, node)):
        return "expf"
    return function


def _source(region: Region, node: Node) -> Node:
    return region.values[node].source


def _where_finite(region: Region, node: Node) -> Node:
    """Return x of ``where(isfinite(x), x, constant)``; other nodes as they are."""
    if node.op is not WHERE or node in region.accesses:
        return node
    test, kept, other = (_source(region, operand) for operand in node.inputs)
    if test.op is not ISFINITE or test in region.accesses or "value" not in other.attrs:
        return node
    return kept if _source(region, test.inputs[0]) is kept else node


def _users(region: Region, node: Node) -> Iterator[Node]:
    """Yield what takes a value; the value itself where it is a result."""
    for user, value in region.values.items():
        if value.source is not user or user in region.accesses:
            continue
        if any(_source(region, operand) is node for operand in user.inputs):
            yield user
    if any(_source(region, output.node) is node for output in region.outputs):
        yield node
