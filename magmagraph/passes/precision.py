"""Lower the precision of products where the caller allows it.

It stands after contract, when every product is a gemm node, and before fuse, which hides what casts
would touch. ``precision="float32"`` allows nothing, and the graph is returned as it came; the other
settings have no rules on the CPU and are refused, rather than ignored.
"""

from __future__ import annotations

from ..errors import PassError, message
from ..graph import Graph, Trace
from .pipeline import Options


def precision(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph as it came; raise `PassError` for anything but float32."""
    if options.precision != "float32":
        raise PassError(
            message(
                f"precision={options.precision!r} has no rules on device {options.device!r}",
                need="precision='float32'",
            )
        )
    return graph
