"""What every compiled plan needs, built while the passes run.

The support library, and of float32 the products, convolutions and pooling do not depend on the
graph. Where they are not in the disk cache yet, the C compiler makes those that the graph will
want on other cores beside the first compile's passes. Its processes are started here and waited
for where the libraries are asked for; a thread that did both would wait for Python's lock at every
turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from ...config import config
from ...errors import CompilerUnavailable
from ...ir.graph import Graph, Node
from ...ir.op import Kind
from ...ops.convolution.filters import TILES
from ...ops.spatial import pooling_records
from .convolution.convolution import CONVOLUTION_LEVEL, convolution_source, needs_products
from .convolution.pooling import pooling_source
from .products.products import BLAS_LEVEL, PRODUCT_LEVEL, product_source, tiled_source
from .support import start_support

_FLOAT32 = np.dtype(np.float32)
_PRODUCTS = frozenset((Kind.CONTRACTION, Kind.LOWERED))
ALGORITHMS = (*TILES, "direct", "im2col")
_POOLING = frozenset(record.name for record in pooling_records.RECORDS)
_begun: set[str] = set()


def begin(graph: Graph) -> None:
    """Start to build the libraries that a plan needs, once in a process, in the background."""
    if config.compiler == "off":
        return
    libraries = _wanted(graph) - _begun
    if not libraries:
        return
    _begun.update(libraries)
    sources: list[str] = []
    levels: list[str | None] = []
    if "products" in libraries:
        sources.append(product_source(_FLOAT32))
        levels.append(BLAS_LEVEL)
    if "tiles" in libraries:
        sources.append(tiled_source(_FLOAT32))
        levels.append(PRODUCT_LEVEL)
    for algorithm in ALGORITHMS:
        if algorithm in libraries:
            sources.append(convolution_source(_FLOAT32, algorithm))
            levels.append(CONVOLUTION_LEVEL)
    for name in sorted(_POOLING & libraries):
        sources.append(pooling_source(_FLOAT32, name))
        levels.append(None)
    # Without a compiler, whoever needs a kernel meets the same error, and says so.
    with contextlib.suppress(CompilerUnavailable):
        start_support(sources, levels)


def _wanted(graph: Graph) -> set[str]:
    libraries = {"support"}
    for node in _nodes(graph):
        if node.op.kind in _PRODUCTS:
            libraries.add("products")
            factors = [operand.shape[-2:] for operand in node.inputs[:2]]
            # One row or column is for BLAS; what is wanted all the same is built when asked for.
            if len(factors) == 2 and all(len(s) == 2 and 1 not in s for s in factors):
                libraries.add("tiles")
        if node.op.name in _POOLING:
            libraries.add(node.op.name)
        elif node.op.kind is Kind.CONVOLUTION and node.op.kernel.algorithms is not None:
            # Where the user named one there is nothing to choose from: it is built when asked for.
            algorithms = node.op.kernel.algorithms(node)
            libraries.update(algorithms)
            if any(map(needs_products, algorithms)):
                libraries.add("products")
    return libraries


def _nodes(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph and of the bodies that its nodes hold."""
    for node in graph.nodes:
        yield node
        bodies = (*node.attrs.get("bodies", ()), node.attrs.get("body"))
        for body in bodies:
            if isinstance(body, Graph):
                yield from _nodes(body)
