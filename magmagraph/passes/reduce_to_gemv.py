"""Take sums over one of two axes as products with a vector of ones, where that is faster.

Before::

    %0 = input() : float32[batch, 10]  # g
    %1 = sum(%0, axes=(0,)) : float32[10]
    return %1

After (forced, or where a measurement chose it)::

    %0 = input() : float32[batch, 10]  # g
    %1 = gemv_sum(%0, axis=0, scaled=False, accumulate=False) : float32[10]
    return %1

A library's product reads a matrix at the speed of memory. A sum of what a fused region computes is
cheaper still: the region computes the sum as well, and the matrix is not read again. So only values
that are in memory anyway (inputs, variables, products) are candidates, and of those the ones for
which a measured, cached trial says so; without trials, those of at least `LEAST` elements. A sum
that renews a variable takes the scale and the old value into the same call.

Numerics: `reassoc`.
"""

from __future__ import annotations

from ..dtypes import is_float
from ..ir.graph import Graph, Node, Trace, freeze
from ..ir.op import Kind
from ..ops.leaf import parameter
from ..ops.products.lowered import gemv_sum
from ..ops.reduction.primitives import SUM
from .lowering.buffers import hinted
from .pipeline import Options
from .rewriting.pattern import uniform
from .simplify.linear import Term, combination, exchanged, one, read_counts

RULE = "sum as a matrix-vector product"
MEASURED = ", measured faster"  # what is said then of the rule's reason
_COMPUTED = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.RANDOM, Kind.INDEX)  # what regions compute
LEAST = 1 << 14  # elements below which a call costs more than it saves, where nothing is measured


def reduce_to_gemv(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with the sums that gain from it written as gemv."""
    chosen: dict[Node, None] = {}
    rule = RULE + ("" if options.reduce_to_gemv == "always" or not _tries(options) else MEASURED)
    for node in graph.nodes:
        if node.op is SUM and _fits(node):
            reason = _reason(graph, node, options)
            if reason is None:
                chosen[node] = None
            else:
                options.record.refuse(RULE, node, reason, other=_partner(graph, node))
    if not chosen:
        return graph
    mapping: dict[Node, Node] = {}
    taken: set[Node] = set()  # sums that a renewal has taken in
    reads = read_counts(graph)
    for variable, value in graph.updates:
        if is_float(value.dtype):
            renewal = _renewal(variable, value, reads, chosen, taken)
            if renewal is not None:
                mapping[value] = renewal
    for node in chosen:
        if node not in taken:
            mapping[node] = gemv_sum(node.inputs[0], node.attrs["axes"][0])
    return exchanged(graph, mapping, trace, options, "reduce_to_gemv", rule)


def _fits(node: Node) -> bool:
    source = node.inputs[0]
    return source.ndim == 2 and len(node.attrs["axes"]) == 1 and is_float(source.dtype)


def _reason(graph: Graph, node: Node, options: Options) -> str | None:
    """Return why a sum stays one, or None."""
    if options.reduce_to_gemv == "always":
        return None
    if options.reduce_to_gemv == "never":
        return "reduce_to_gemv='never' was asked for"
    source = node.inputs[0]
    if source.op.kind in _COMPUTED:
        return f"the region that computes '{source.op.name}' computes the sum as well"
    if any(user.op.kind is Kind.ELEMENTWISE for user in graph.users[source]):
        return f"a region that reads '{source.op.name}' computes the sum as well"
    rows, columns = (hinted(e, options.hints) for e in source.shape)
    if _tries(options):
        return _measured(node, rows, columns, options)
    if rows * columns < LEAST:
        return f"{rows} x {columns} elements are fewer than {LEAST}"
    return None


def _partner(graph: Graph, node: Node) -> Node | None:
    """Return the node whose kernel can compute a sum as well, if there is one."""
    source = node.inputs[0]
    if source.op.kind in _COMPUTED:
        return source
    users = graph.users[source]
    return next((user for user in users if user.op.kind is Kind.ELEMENTWISE), None)


def _tries(options: Options) -> bool:
    """Return whether both forms are timed."""
    return options.tuning and options.choose is not None


def _measured(node: Node, rows: int, columns: int, options: Options) -> str | None:
    """Ask for a trial of both forms, on a matrix of this class of sizes."""
    assert options.choose is not None
    source = node.inputs[0]
    axis = node.attrs["axes"][0]
    leaf = parameter(0, source.type)
    candidates = {
        "sum": freeze([leaf], [SUM(leaf, axes=(axis,))]),
        "gemv": freeze([leaf], [gemv_sum(leaf, axis)]),
    }
    shape_class = f"{rows.bit_length()}x{columns.bit_length()}"
    key = f"reduce_to_gemv/{source.dtype.name}/axis{axis}/{shape_class}"
    winner = options.choose(key, candidates, dict(options.hints))
    options.record.note(f"{key}: {winner}")
    return None if winner == "gemv" else "a product with ones was not faster when measured"


def _renewal(
    variable: Node,
    value: Node,
    reads: dict[Node, int],
    chosen: dict[Node, None],
    taken: set[Node],
) -> Node | None:
    """Return beta * variable + alpha * sum as one call, where the update has that form."""
    terms = combination(value, reads, lambda node: node in chosen)
    if terms is None or len(terms) != 2:
        return None
    sums: list[Term] = [term for term in terms if term.node in chosen and reads[term.node] == 1]
    rest = [term for term in terms if term.node is variable]
    if len(sums) != 1 or len(rest) != 1:
        return None
    node = sums[0].node
    taken.add(node)
    alpha = sums[0].factor
    return gemv_sum(
        node.inputs[0],
        node.attrs["axes"][0],
        alpha=None if alpha is None or uniform(alpha) == 1 else alpha,
        addend=variable,
        beta=one(variable) if rest[0].factor is None else rest[0].factor,
    )
