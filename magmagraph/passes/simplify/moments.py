"""Variances of 16-bit values in one pass over them.

A variance is written as the mean of squared deviations, which waits for the mean:

    sum((x - mean(x))**2)  ->  max(sum(x**2) - sum(x) * mean(x), 0)

The right side reads `x` once, and loses digits where the mean is large beside the deviations: it
errs by some ``2**-23 * mean**2``. Of what a product stored in 16 bits that is no loss: rounding it
has added a variance of ``2**-18 / 3 * mean**2`` in bfloat16 (``2**-24 / 3`` in float16) already.
So the rule is for these values alone, after `precision` has put casts in.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import is_float
from ...ir.graph import Graph, Node, Trace
from ...ops.convert import CAST
from ...ops.elementwise.arithmetic import MULTIPLY, SUBTRACT
from ...ops.elementwise.comparison import MAXIMUM
from ...ops.reduction.primitives import SUM
from ..pipeline import Options
from ..rewriting.build import like
from ..rewriting.rewrite import Match, Rule, rewrite, rules_by_operation
from .centered import mean_of


def one_pass(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with the variances of 16-bit products' results taken in one pass."""
    return rewrite(graph, RULES, trace, options, "precision")


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
    found = mean_of(mean, x, axes)
    if found is None:
        return None
    total, average = found
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


RULES = rules_by_operation(
    [
        Rule(
            "variance in one pass", (SUM,), _squares_at_once,
            looks=lambda node: node.inputs[0].op is MULTIPLY,
        )
    ]
)
