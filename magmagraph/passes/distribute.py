"""Shard a named dimension over processes: collectives where reductions cross it.

It stands first, because collectives are ordinary nodes that every later pass must see. A function
that runs in one process has nothing to shard, so the graph is returned as it came.

Before and after::

    %0 = input() : float32[batch]  # x
    %1 = sum(%0, axis=(0,)) : float32[]
"""

from __future__ import annotations

from ..graph import Graph, Trace
from .pipeline import Options


def distribute(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph as it came: one process holds every dimension whole."""
    return graph
