"""Values of nodes by the reference interpreter: what a graph means, with nothing compiled."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.interpret import evaluate


def values(nodes: list[Node], feeds: Mapping[Node, Any] | None = None) -> list[np.ndarray]:
    """Return the value of each node."""
    feeds = {} if feeds is None else feeds
    graph = freeze(list(feeds), nodes)
    by_node = evaluate(graph, dict(zip(graph.inputs, feeds.values(), strict=True)))
    return [np.asarray(by_node[output]) for output in graph.outputs]


def value(node: Node, feeds: Mapping[Node, Any] | None = None) -> np.ndarray:
    """Return the value of one node."""
    return values([node], feeds)[0]


def assert_close(actual: Any, expected: Any, dtype: str = "float64", scale: Any = 1.0) -> None:
    """Compare by the tolerance table's row for sums in another order."""
    actual = np.asarray(actual)
    assert actual.shape == np.shape(expected)
    assert tolerance(canonical(dtype), "reassoc").close(actual, expected, scale), (
        f"{actual!r} differs from {expected!r}"
    )
