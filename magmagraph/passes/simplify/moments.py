"""Variances in one pass over the values.

A variance is written as the mean of squared deviations, which waits for the mean:

    sum((x - mean(x))**2)  ->  max(sum(x**2) - sum(x) * mean(x), 0)

The right side reads `x` once, and loses digits where the mean is large beside the deviations: it
errs by some ``2**-23 * mean**2``. Of what a product stored in 16 bits that is no loss: rounding it
has added a variance of ``2**-18 / 3 * mean**2`` in bfloat16 (``2**-24 / 3`` in float16) already.
So the rule is for these values alone, after `precision` has put casts in.

On a GPU, the deviations of float32 values wait for the mean in a second kernel where what is
averaged is too long for the registers of a block. There they are taken from the first value `s` of
each average instead, in float64:

    sum((x - mean(x))**2)  ->  max(sum(d**2) - sum(d)**2 / n, 0)
    d = float64(x) - float64(s)

No deviation of the n values is above ``sqrt(n)`` times the standard deviation, that of `s` neither,
so ``sum(d**2)`` is at most some n times the result: of the 16 digits of float64, those of n get
lost. Values that are all equal have the variance 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtypes import is_float
from ...ir import dims
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ...ops.convert import CAST
from ...ops.elementwise.arithmetic import MULTIPLY, SUBTRACT
from ...ops.elementwise.comparison import MAXIMUM
from ...ops.reduction.primitives import SUM
from ...ops.shape.slicing import cut
from ..pipeline import Options
from ..rewriting.build import like
from ..rewriting.rewrite import Match, Rule, rewrite, rules_by_operation
from .centered import mean_of

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
LONG_ROW = 8192  # values of an average that a block of a GPU keeps in its registers
LONG_COLUMN = 64  # of one down a column that a thread of a GPU reads twice, from the cache
DEEPEST = 8  # elementwise operations that make a value, at most, if its first one is made again


def one_pass(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with the variances of 16-bit products' results taken in one pass."""
    return rewrite(graph, RULES, trace, options, "precision")


def shifted(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with variances of long averages taken in one pass, for a GPU."""
    return rewrite(graph, SHIFTED, trace, options, "fuse")


def _squares_of_shifted(match: Match) -> Node | None:
    """Return the sum of squared deviations by sums of what is above the first value."""
    (square,) = match.root.inputs
    centered, again = square.inputs
    if centered is not again or centered.op is not SUBTRACT:
        return None
    x, mean = centered.inputs
    axes: Sequence[int] = match.root.attrs["axes"]
    count = dims.size(tuple(x.shape[axis] for axis in axes))
    if x.dtype != FLOAT32 or not isinstance(count, int):
        return None
    if count <= (LONG_ROW if x.ndim - 1 in axes else LONG_COLUMN):
        return None
    first = _first(x, x, frozenset(axes))
    if first is None or mean_of(mean, x, axes) is None:
        return None
    above = SUBTRACT(CAST(x, dtype=FLOAT64), CAST(first, dtype=FLOAT64))
    total = SUM(above, axes=tuple(axes))
    squares = SUM(MULTIPLY(above, above), axes=tuple(axes))
    of_shift = MULTIPLY(MULTIPLY(total, total), like(1 / count, total))
    return CAST(MAXIMUM(SUBTRACT(squares, of_shift), like(0, total)), dtype=FLOAT32)


def _first(node: Node, x: Node, axes: frozenset[int], depth: int = 0) -> Node | None:
    """Return the first elements of a value along some axes of `x`, whose trailing axes it has.

    Elementwise operations are computed again for these. None where that would be too many.
    """
    if depth > DEEPEST:
        return None
    if node.inputs and node.op.kind is Kind.ELEMENTWISE and node.op.scalar.expression is not None:
        operands = []
        for operand in node.inputs:
            first = _first(operand, x, axes, depth + 1)
            if first is None:
                return None
            operands.append(first)
        return node.op(*operands, **node.attrs)
    for axis in axes:
        own = axis - x.ndim + node.ndim
        if own >= 0 and node.shape[own] != 1:
            node = cut(node, own, 0, 1)
    return node


def _squares_at_once(match: Match) -> Node | None:
    """Return the sum of squared deviations by the sums of values and of squares."""
    (square,) = match.root.inputs
    centered, again = square.inputs
    if centered is not again or centered.op is not SUBTRACT:
        return None
    x, mean = centered.inputs
    axes: Sequence[int] = match.root.attrs["axes"]
    if not _was_rounded(x):
        return None
    term = mean_of(mean, x, axes)
    if term is None:
        return None
    total, average = term
    squares = SUM(MULTIPLY(x, x), axes=tuple(axes))
    return MAXIMUM(SUBTRACT(squares, MULTIPLY(total, average)), like(0, total))


def _was_rounded(x: Node) -> bool:
    """Return whether a value is a 16-bit result of a product, cast to float32."""
    if x.op is not CAST:
        return False
    (narrow,) = x.inputs
    if not is_float(narrow.dtype) or narrow.dtype.itemsize != 2 or x.dtype.itemsize != 4:
        return False
    return narrow.op.policy == "allow"


SHIFTED = rules_by_operation(
    [
        Rule(
            "variance in one pass", (SUM,), _squares_of_shifted,
            looks=lambda node: node.inputs[0].op is MULTIPLY,
        )
    ]
)
RULES = rules_by_operation(
    [
        Rule(
            "variance in one pass", (SUM,), _squares_at_once,
            looks=lambda node: node.inputs[0].op is MULTIPLY,
        )
    ]
)
