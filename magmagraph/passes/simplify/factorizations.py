"""One factorization for all that needs it: systems, inverses and determinants of one matrix.

Records say with `Linalg.factored` how their value comes from ``P A = L U``. Where two or more of
them read one matrix, or its transpose, or the factors are there anyway, the factorization, which is
the work that grows with the cube, is done once.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir.graph import Graph, Node, Trace
from ...ops.control.identities import ITEM
from ...ops.linalg.factor import LU
from ..lowering.buffers import hinted
from ..pipeline import Options
from .linear import exchanged
from .structure import swaps_last_two

RULE = "shared factorization"
# Of matrices of a batch: smaller ones are faster in one call for all of them. On a CPU factoring is
# one call, too; for two readers it takes 0.7 to 1.0 of the time from order 8 on.
LEAST_ORDER, LEAST_ELSEWHERE = 8, 64


class _Use(NamedTuple):
    """A node that factors can give, and whether it reads the transposed matrix."""

    node: Node
    transposed: bool


def share_factorizations(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with one factorization for each matrix that is read in several ways."""
    uses: dict[Node, list[_Use]] = {}
    for node in graph.nodes:
        if node.op.linalg.factored is None:
            continue
        matrix = node.inputs[0]
        transposed = swaps_last_two(matrix)
        base = matrix.inputs[0] if transposed else matrix
        uses.setdefault(base, []).append(_Use(node, transposed))
    mapping: dict[Node, Node] = {}
    for matrix, readers in uses.items():
        reason = _reason(graph, matrix, readers, options)
        if reason is not None:
            options.record.refuse(RULE, readers[0].node, reason)
            continue
        factors = LU(matrix)
        packed, pivots = ITEM(factors, index=0), ITEM(factors, index=1)
        for use in readers:
            assert use.node.op.linalg.factored is not None
            mapping[use.node] = use.node.op.linalg.factored(
                use.node, packed, pivots, use.transposed
            )
    return exchanged(graph, mapping, trace, options, "contract", RULE)


def _reason(graph: Graph, matrix: Node, readers: list[_Use], options: Options) -> str | None:
    """Return why the nodes do not share one factorization, or None."""
    there = any(reader.op is LU for reader in graph.users[matrix])
    if len(readers) < 2 and not there:
        return "only one operation needs the factors of this matrix"
    order = hinted(matrix.shape[-1], options.hints)
    least = LEAST_ORDER if options.target.device == "cpu" else LEAST_ELSEWHERE
    if matrix.ndim > 2 and order < least:
        return f"a batch of matrices of order {order} is faster in one call for all of them"
    return None
