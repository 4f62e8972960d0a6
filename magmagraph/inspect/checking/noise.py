"""What rounding may do to each value of a graph, found by moving all values a little.

A graph's own error says too little of what rounding in another order may do: where it is computed
in float64, which is the reference, it is zero, and elsewhere it may be small by luck. Here every
value, the fed ones too, is multiplied by ``1 + eps * u``, where ``u`` is random in [-1, 1] and
``eps`` is the distance of neighbours in its dtype (J. Vignes, Discrete stochastic arithmetic for
validating results of numerical software, Numerical Algorithms 37, 2004). How far a result moves is
what a computation that is right, but rounds elsewhere, may be off; where terms cancel it is much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dtypes import finfo, is_inexact
from ...errors import MagmagraphError
from ...ir.graph import Graph, Node
from .difference import difference
from .wide import evaluate_wide

SAMPLES = 3  # all three are small by luck once in some thousand cases


def rounding(
    graph: Graph,
    feeds: Mapping[Node, Any],
    sizes: Mapping[str, int],
    own: Mapping[Node, Any],
    wide: Mapping[Node, Any],
) -> dict[Node, float]:
    """Return for each float node how far rounding moves it, relative to its largest magnitude.

    graph: A graph as it was frozen.
    feeds, sizes: As for `evaluate_wide`.
    own, wide: The values in the graph's own dtypes, and in float64.
    """
    floats = [
        node
        for node in graph.nodes
        if not isinstance(node.type, tuple) and is_inexact(node.dtype)
    ]
    errors = {node: difference(own[node], wide[node]).error for node in floats}
    rng = np.random.default_rng(0)

    def moved(node: Node, value: Any, times: float) -> Any:
        if isinstance(value, tuple):
            return tuple(
                _moved(rng, part, type_.dtype, times)
                for part, type_ in zip(value, node.type, strict=True)
            )
        return _moved(rng, value, node.dtype, times)

    for _ in range(SAMPLES):
        try:
            values = evaluate_wide(graph, feeds, sizes, own, moved)
        except MagmagraphError:  # a matrix that is singular but for its rounding, say
            break
        for node in floats:
            errors[node] = max(errors[node], difference(values[node], wide[node]).error)
    return errors


def _moved(rng: np.random.Generator, value: Any, dtype: np.dtype, times: float) -> Any:
    if not is_inexact(dtype):
        return value
    step = times * float(finfo(dtype).eps)
    with np.errstate(all="ignore"):
        return value * (1.0 + step * rng.uniform(-1.0, 1.0, np.shape(value)))
