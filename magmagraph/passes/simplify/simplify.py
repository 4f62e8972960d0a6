"""Simplify: identities out of the way, constants folded, algebra done, stable forms put in.

Before::

    %0 = input() : float32[n]  # x
    %1 = constant(value=1.0) : float32[]
    %2 = multiply(%0, %1) : float32[n]
    %3 = negative(%2) : float32[n]
    %4 = add(%2, %3) : float32[n]
    return %4

After::

    %0 = input() : float32[n]  # x
    %1 = subtract(%0, %0) : float32[n]
    return %1

(``x - x`` stays: it is NaN where x is infinite.) The rules stand in `inline`, `simplify.algebra`,
`simplify.layout`, `padded_slices`, `simplify.linalg`, `constants`, `stable`, `cancel`, `centered`,
`pooled` and `sum_factors`; what loops make for nobody is taken away by `loops`. A value that is not
finite may be replaced by its continuous limit, which the report lists as a repair; the reverse
never happens.

Numerics: `stable`.
"""

from __future__ import annotations

from ...ir.graph import Graph, Trace
from .. import inline, loops
from ..distribute import single_rank
from ..pipeline import Options
from ..rewriting.rewrite import rewrite, rules_by_operation
from . import (
    algebra as simplify_algebra,
)
from . import cancel, centered, padded_slices, pooled, stable, sum_factors
from . import (
    layout as simplify_layout,
)
from . import (
    linalg as simplify_linalg,
)
from .constants import FOLD
from .products import forget_distances

RULES = rules_by_operation(
    [
        *inline.RULES,
        *single_rank.RULES,
        *simplify_algebra.RULES,
        *simplify_layout.RULES,
        *padded_slices.RULES,
        *simplify_linalg.RULES,
        *stable.RULES,
        *cancel.RULES,
        *centered.RULES,
        *pooled.RULES,
        *sum_factors.RULES,
    ]
)
EVERYWHERE = (FOLD, simplify_layout.NARROW)


def simplify(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph in its simple, numerically stable form."""
    graph = loops.prune(graph, trace, options, "simplify")
    try:
        graph = rewrite(graph, RULES, trace, options, "simplify", EVERYWHERE)
    finally:
        forget_distances()
    return loops.prune(graph, trace, options, "simplify")
