"""Lower the precision of products where the caller allows it.

Before, under ``precision="bfloat16"``::

    %0 = input() : float32[batch, 64]  # x
    %1 = variable() : float32[64, 64]  # W
    %2 = gemm(%0, %1, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : float32[batch, 64]
    %3 = tanh(%2) : float32[batch, 64]
    %4 = gemm(%3, %1, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : float32[batch, 64]
    return %4

After::

    %0 = input() : float32[batch, 64]  # x
    %1 = variable() : float32[64, 64]  # W
    %2 = cast(%0, dtype=bfloat16) : bfloat16[batch, 64]
    %3 = cast(%1, dtype=bfloat16) : bfloat16[64, 64]
    %4 = gemm(%2, %3, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : bfloat16[batch, 64]
    %5 = cast(%4, dtype=float32) : float32[batch, 64]
    %6 = tanh(%5) : float32[batch, 64]
    %7 = cast(%6, dtype=bfloat16) : bfloat16[batch, 64]
    %8 = gemm(%7, %3, transpose_a=False, transpose_b=False, scaled=False, accumulate=False,
        result=float32) : float32[batch, 64]
    return %8

It stands after contract, when every product is a gemm node, and before fuse, which hides what casts
would touch. Records say which operations it may change (`Op.policy`). A product adds in float32 in
any case; it stores 16 bits where its result goes on to another product, through operations that
follow, and else all that it has added up. Operations in between compute in float32: what fusion
makes of them reads and writes 16 bits. ``"tf32"`` changes no type: the chip rounds the operands.
float16 needs scaled gradients besides, see `loss_scaling`; ``"int8"`` is for products with weights,
see `integers`. Bodies of loops and branches are lowered
in the same way, see `precision.bodies`.

Numerics: `half`. Explicit casts, float64 nodes and the types of results never change.
"""

from __future__ import annotations

from ...dtypes import canonical, is_float
from ...ir.graph import Graph, Node, Trace
from ...ir.op import Kind
from ..lowering.buffers import hinted
from ..pipeline import Options
from ..report import label
from ..simplify.linear import substituted
from ..simplify.moments import one_pass
from .bodies import enter_bodies
from .halves import FLOAT32, Halves, factors_of
from .integers import with_int8
from .loss_scaling import scale_gradients

TF32_ROUNDING = 2.0**-11  # the largest relative error of rounding to 11 digits


def precision(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph with its float32 products in the precision that `options` allow."""
    mode = options.precision
    if mode == "float32":
        return graph
    graph = enter_bodies(graph, trace, options, precision)
    if mode == "float16":
        graph = scale_gradients(graph, trace, options)
    if mode == "int8":
        return with_int8(graph, trace, options)
    products = _chosen(graph, options)
    if mode == "tf32":
        return _tf32(graph, products, trace, options)
    lowered = Halves(graph, canonical(mode), products, trace, options).run()
    return one_pass(lowered, trace, options)


def _chosen(graph: Graph, options: Options) -> list[Node]:
    """Return the products to change; why others stay as they are goes into the report."""
    rule = f"product in {options.precision}"
    products = []
    for node in graph.nodes:
        if node.op.policy != "allow":
            continue
        reason = _refusal(node, options)
        if reason is None:
            products.append(node)
        elif reason:
            options.record.refuse(rule, node, reason)
    return products


def _refusal(node: Node, options: Options) -> str | None:
    """Return why a product stays as it is, "" where it is what it should be already, or None."""
    factors = [x.dtype for x in factors_of(node)]
    if any(is_float(dtype) and dtype.itemsize < 4 for dtype in factors):
        return ""
    if node.attrs.get("compute"):
        return ""
    names = " and ".join(dict.fromkeys(x.dtype.name for x in factors_of(node) or node.inputs))
    if not factors or not all(dtype == FLOAT32 for dtype in factors):
        return f"its operands are {names}, and only float32 is lowered"
    if options.precision == "tf32" and "compute" not in node.op.precision.mixed:
        return f"there is no '{node.op.name}' of tf32 operands"
    if options.precision not in ("tf32", *node.op.dtypes):
        return f"there is no '{node.op.name}' of {options.precision}"
    if _thin(node, options):
        return "a product with a vector is limited by memory: lower precision saves no time"
    return None


def _thin(node: Node, options: Options) -> bool:
    """Return whether a product of matrices has an extent of one: rows, columns or terms."""
    if node.op.kind is Kind.CONVOLUTION or isinstance(node.type, tuple) or node.ndim < 2:
        return False
    extents = [hinted(extent, options.hints) for extent in node.shape[-2:]]
    inner = node.inputs[0].shape[-2 if node.attrs.get("transpose_a") else -1]
    return 1 in (*extents, hinted(inner, options.hints))


def _tf32(graph: Graph, products: list[Node], trace: Trace, options: Options) -> Graph:
    """Return the graph with products whose operands the chip rounds to 11 digits."""
    mapping: dict[Node, Node] = {}
    for node in products:
        product = node.op(*node.inputs, **{**node.attrs, "compute": "tf32"})
        mapping[node] = graph.interner.intern(product)
        trace.replace(node, mapping[node], "precision", "product in tf32")
        options.record.hit("product in tf32")
        options.record.note(
            f"{label(node)}: tf32 operands, no cast; an element errs by up to "
            f"{2 * TF32_ROUNDING:.1e} of the sum of its terms' magnitudes"
        )
    return substituted(
        graph, mapping, lambda old, new: trace.replace(old, new, "precision", "operands")
    )
