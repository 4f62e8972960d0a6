"""Write the update of a variable by a product, or by rows, as one step that adds to it in place.

Before::

    %0 = input() : float32[batch, 3]  # x
    %1 = input() : float32[batch, 2]  # g
    %2 = variable() : float32[3, 2]  # W
    %3 = constant(value=0.5) : float32[]
    %4 = gemm(%0, %1, transpose_a=True, transpose_b=False, scaled=False, accumulate=False)
        : float32[3, 2]
    %5 = multiply(%4, %3) : float32[3, 2]
    %6 = subtract(%2, %5) : float32[3, 2]
    update %2 = %6
    return

After::

    %0 = input() : float32[batch, 3]  # x
    %1 = input() : float32[batch, 2]  # g
    %2 = variable() : float32[3, 2]  # W
    %3 = constant(value=-0.5) : float32[]
    %4 = constant(value=1.0) : float32[]
    %5 = gemm(%0, %1, %3, %2, %4, transpose_a=True, transpose_b=False,
        scaled=True, accumulate=True) : float32[3, 2]
    update %2 = %5
    return

The gradient is then never stored: the memory pass can let the product write into the variable's own
buffer. Refused where something else reads the gradient (clipping, a norm, an output, a second
moment), where further terms are in the sum, and for values that update no variable: there, an
addition is cheaper inside a fused region.

In the same way the gradient of a table whose rows are looked up, which is those rows' gradients
added into zeros, becomes an addition into the table itself: ``scatter_rows``. A step of a large
vocabulary then touches the rows that were looked up, and no array of the table's size is made.

Numerics: `reassoc`. The scalar factors are multiplied with each other before the product.
"""

from __future__ import annotations

import numpy as np

from ..dtypes import is_float
from ..ir.graph import Graph, Node, Trace
from ..ir.identity import is_among, same_nodes
from ..ir.op import Kind
from ..ops.convert import cast
from ..ops.indexing.gathering import SCATTER_ADD
from ..ops.products.lowered import GEMM, gemm, scatter_rows
from .pipeline import Options
from .rewriting.pattern import uniform
from .simplify.linear import Term, combination, one, read_counts, substituted, times

RULE = "accumulate into the variable"
ADDING = (GEMM, SCATTER_ADD)  # what has a step that adds into an old value
LOOKED_THROUGH = 24  # operations between a product and a sum, for the reason of a refusal


def accumulate(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with the updates that allow it written as accumulating products."""
    reads = read_counts(graph)
    mapping: dict[Node, Node] = {}
    for variable, value in graph.updates:
        if value.op in ADDING or not is_float(value.dtype) or value in mapping:
            continue
        terms = combination(value, reads, lambda node: node.op in ADDING)
        if terms is None:
            continue
        products = [term for term in terms if term.node.op in ADDING]
        if not products:
            _refuse_shared(value, terms, reads, options)
            continue
        reason = _reason(variable, terms, products, reads)
        if reason is not None:
            options.record.refuse(RULE, value, reason, other=products[0].node)
            continue
        write = _accumulated if products[0].node.op is GEMM else _rows_added
        written = graph.interner.intern_all([write(variable, terms, products[0])])[0]
        mapping[value] = written
        options.record.hit(RULE)
        trace.replace(value, written, "accumulate", RULE)
    return substituted(
        graph, mapping, lambda old, new: trace.replace(old, new, "accumulate", "operands")
    )


def _reason(
    variable: Node, terms: list[Term], products: list[Term], reads: dict[Node, int]
) -> str | None:
    """Return why an update is not written as one product, or None."""
    product = products[0].node
    if len(products) > 1:
        return f"{len(products)} products are added, and one call adds only one"
    if reads[product] > 1:
        return f"the product is read {reads[product]} times, so its value is needed by itself"
    if product.attrs.get("accumulate"):
        return "the product already has an addend"
    others = [term.node for term in terms if term.node is not product]
    if not same_nodes(others, [variable]):
        if not is_among(variable, others):
            return "the old value of the variable is not among the terms"
        return f"{len(others) - 1} further terms are in the sum"
    if product.op is SCATTER_ADD:
        return _reason_rows(product, next(t for t in terms if t.node is variable))
    return None


def _reason_rows(rows: Node, old: Term) -> str | None:
    """Return why rows are not added into the variable where they belong, or None."""
    if old.factor is not None and uniform(old.factor) != 1:
        return "the old value is scaled, which changes every row"
    if rows.attrs["axis"] != 0:
        return f"slices are added along axis {rows.attrs['axis']}, and the kernel adds rows"
    if rows.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        return f"there is no kernel that adds rows of {rows.dtype.name}"
    return None


def _refuse_shared(
    value: Node, terms: list[Term], reads: dict[Node, int], options: Options
) -> None:
    """Note the near miss of a term that is more than a product, or read by others too."""
    for term in terms:
        inner = combination(term.node, reads, lambda node: node.op in ADDING) or []
        if any(part.node.op in ADDING for part in inner):
            reason = f"the gradient is read {reads[term.node]} times, not only here"
        elif _is_made_of_product(term.node):
            reason = f"'{term.node.op.name}' needs the product before it is added"
        else:
            continue
        options.record.refuse(RULE, value, reason, other=term.node)
        return


def _is_made_of_product(root: Node) -> bool:
    """Return whether elementwise operations near a node read a product of its shape."""
    stack, looked = [root], 0
    while stack and looked < LOOKED_THROUGH:
        node = stack.pop()
        looked += 1
        if node.op in ADDING:
            return True
        if node.op.kind is Kind.ELEMENTWISE:
            stack += [operand for operand in node.inputs if operand.shape == root.shape]
    return False


def _accumulated(variable: Node, terms: list[Term], product: Term) -> Node:
    node = product.node
    a, b, *scale = node.inputs
    alpha = product.factor
    if scale:
        alpha = scale[0] if alpha is None else times(alpha, scale[0])
    (rest,) = [term for term in terms if term.node is variable]
    return gemm(
        a,
        b,
        transpose_a=node.attrs["transpose_a"],
        transpose_b=node.attrs["transpose_b"],
        alpha=None if alpha is None or uniform(alpha) == 1 else alpha,
        addend=variable,
        beta=one(variable) if rest.factor is None else rest.factor,
        **{key: node.attrs[key] for key in ("compute", "result") if key in node.attrs},
    )


def _rows_added(variable: Node, terms: list[Term], rows: Term) -> Node:
    values, positions = rows.node.inputs
    if positions.dtype.itemsize < 4 or positions.dtype.kind == "u":
        positions = cast(positions, np.int64)
    return scatter_rows(
        values, positions, variable, alpha=rows.factor, mode=rows.node.attrs["mode"]
    )
