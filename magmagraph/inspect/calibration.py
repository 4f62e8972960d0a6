"""The ranges of what products of int8 read, measured on the caller's feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ir.graph import Graph, Trace
from ..ir.interpret import evaluate
from ..passes import pipeline
from ..passes.precision.integers import int8_products
from .checking.running import bind

__all__ = ["ranges"]


def ranges(function: Any, feeds: Sequence[Any], named: Mapping[str, Any]) -> list[float]:
    """Return the largest magnitude that each product of int8 reads, in the order of the graph.

    Raises
    ------
    ConfigError
        The function has another precision or no such product, or what one reads is not finite.
    """
    if function.precision != "int8":
        raise ConfigError(
            message(
                f"calibrate of a function of precision {function.precision!r}",
                need="one of 'int8'",
                hint="mg.function(..., precision='int8')",
            )
        )
    bound = bind(function, feeds, named)
    records = function.passes
    before = records[: [record.name for record in records].index("precision")]
    options = function._options(bound.sizes)
    graph, _ = pipeline.run(function.source_graph, Trace(), passes=before, options=options)
    assert isinstance(graph, Graph)
    products, _ = int8_products(graph, options)
    if not products:
        raise ConfigError(
            message(
                "calibrate of a function without products of int8",
                hint="print(f.report['precision']), which says why",
            )
        )
    values = evaluate(graph, dict(zip(graph.inputs, bound.arrays, strict=True)), bound.sizes)
    found = [float(np.abs(values[node.inputs[0]]).max(initial=0.0)) for node in products]
    if not np.isfinite(found).all():
        raise ConfigError(
            message("calibrate is fed what makes values that are not finite", need="finite values")
        )
    return found
