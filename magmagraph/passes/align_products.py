"""Give large 16-bit products rows that begin on 16 bytes, where theirs would be of odd length.

Before::

    %0 = input() : bfloat16[2048, 512]  # x
    %1 = input() : bfloat16[512, 1001]  # w
    %2 = gemm(%0, %1, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : bfloat16[2048, 1001]
    %3 = max(%2, axes=(1,)) : bfloat16[2048]
    return %3

After::

    %0 = input() : bfloat16[2048, 512]  # x
    %1 = input() : bfloat16[512, 1001]  # w
    %2 = iota(axis=1) : int32[2048, 1008]
    %3 = constant(value=1001) : int32[]
    %4 = less(%2, %3) : bool[2048, 1008]
    %5 = place(%1, starts=(0, 0), steps=(1, 1), shape=(512, 1008), value=0)
        : bfloat16[512, 1008]
    %6 = gemm(%0, %5, transpose_a=False, transpose_b=False, scaled=False, accumulate=False)
        : bfloat16[2048, 1008]
    %7 = constant(value=-inf) : bfloat16[]
    %8 = where(%4, %6, %7) : bfloat16[2048, 1008]
    %9 = max(%8, axes=(1,)) : bfloat16[2048]
    return %9

Tensor cores are fed by 16 bytes at a time. Libraries have kernels for rows that begin elsewhere,
at a sixth to an eighth of the speed (measured on an H200: 94 to 142 TFLOP/s for a vocabulary of
50257, 730 to 850 for one of 50264). Rows and columns of zeros change no product.

What follows a longer product is computed of the longer rows, too, as far as it is elementwise:
then its rows can be read and written 16 bytes at a time. Reductions along the rows and products
that contract them leave out what was added. Everything else reads a slice.

It is done on a CUDA device, for products of two matrices that are at least `LEAST` each way: for
these the copy of an operand is cheaper than what the product gains. Named sizes are left alone.

Numerics: `reassoc`. Longer products may add up in another order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..dtypes import is_float
from ..ir.graph import Graph, Node, Trace
from ..ir.op import Kind
from ..ir.types import Extent
from ..ops.elementwise.arithmetic import ADD, MULTIPLY
from ..ops.elementwise.comparison import LESS, WHERE
from ..ops.indexing.iota import INT32, IOTA
from ..ops.leaf import constant
from ..ops.products.lowered import GEMM
from ..ops.reduction.primitives import ARGMAX, ARGMIN, MAX, MIN, PROD, SUM
from ..ops.shape.arrange import RESHAPE
from ..ops.shape.joining import BROADCAST_TO
from ..ops.shape.slicing import PLACE, SLICE
from .lowering.buffers import hinted
from .pipeline import Options
from .rewriting.pattern import uniform
from .simplify.linear import substituted

RULE = "rows on 16 bytes"
LEAST = 256  # of each extent of a product
ALIGNED = 16  # bytes

_NEUTRAL = {
    SUM: 0.0, PROD: 1.0, MAX: -math.inf, MIN: math.inf, ARGMAX: -math.inf, ARGMIN: math.inf,
}  # fmt: skip


def align_products(graph: Graph, trace: Trace, options: Options) -> Graph:
    """Return the graph whose large 16-bit products have rows of whole vectors."""
    if options.target.device == "cpu":
        return graph
    aligning = _Aligning()
    lengths: dict[int, int] = {}
    for node in graph.nodes:
        extents = _longer(node)
        reason = _refusal(node, options.hints) if extents else None
        if reason is not None:
            options.record.refuse(RULE, node, reason)
        elif extents:
            options.record.hit(RULE)
            lengths.update(extents)
            aligning.product(node, extents)
        if aligning.longer and not extents:
            aligning.follow(node)
    if not lengths:
        return graph
    mapping = dict(zip(
        aligning.result, graph.interner.intern_all(list(aligning.result.values())), strict=True
    ))  # fmt: skip
    options.record.note(", ".join(f"{old} -> {new}" for old, new in sorted(lengths.items())))
    for old, new in mapping.items():
        trace.replace(old, new, "align_products", RULE)
    return substituted(
        graph, mapping, lambda old, new: trace.replace(old, new, "align_products", "operands")
    )


def _longer(node: Node) -> dict[int, int]:
    """Return the extents of a product that rows have and vectors do not divide, and longer ones."""
    factors = node.inputs[0].dtype if node.op is GEMM and node.ndim == 2 else None
    if factors is None or factors.itemsize != 2 or not is_float(factors):
        return {}
    rows, columns, inner = _extents(node)
    along = {columns, rows if node.attrs["transpose_a"] else inner}
    if node.attrs["transpose_b"]:
        along.add(inner)
    vector = ALIGNED // 2
    return {n: -(-n // vector) * vector for n in along if isinstance(n, int) and n % vector}


def _refusal(node: Node, hints: Mapping[str, int]) -> str | None:
    """Return why such a product stays as it is, or None."""
    least = min(hinted(extent, hints) for extent in _extents(node))
    if least < LEAST:
        return f"an extent of {least} is less than {LEAST}"
    if node.attrs["accumulate"] and node.dtype.itemsize < 4:
        return "what is added to would be rounded once more"
    return None


def _extents(node: Node) -> tuple[Extent, Extent, Extent]:
    """Return the rows and columns of a product, and what is contracted."""
    rows, columns = node.shape
    return rows, columns, node.inputs[0].shape[0 if node.attrs["transpose_a"] else 1]


class _Aligning:
    """What is computed of longer rows.

    Attributes
    ----------
    result
        What stands for a node of the graph.
    longer
        Values whose last axis is longer than that of the node, with anything in the rest.
    """

    def __init__(self) -> None:
        self.result: dict[Node, Node] = {}
        self.longer: dict[Node, Node] = {}
        # Products with all that was added, and what is to be added to them.
        self._whole: dict[Node, tuple[Node, Node | None]] = {}
        self._refused: set[Node] = set()
        self._zeros_behind: dict[tuple[Node, int, int], Node] = {}

    def product(self, node: Node, extents: dict[int, int]) -> None:
        """Compute a product of longer rows; what reads it has a slice."""
        a, b, *rest = node.inputs
        attrs = dict(node.attrs)
        rows, columns, inner = (
            extents.get(n, n) if isinstance(n, int) else n for n in _extents(node)
        )
        across, down = (1, 0) if attrs["transpose_a"] else (0, 1)
        a = self._with_zeros(self._with_zeros(a, across, rows), down, inner)
        across, down = (0, 1) if attrs["transpose_b"] else (1, 0)
        b = self._with_zeros(self._with_zeros(b, across, columns), down, inner)
        if (rows, columns) == node.shape:
            self.result[node] = GEMM(a, b, *rest, **attrs)
            return
        other: Node | None = None
        if attrs["accumulate"]:
            *rest, addend, beta = rest
            whole, other = self._whole.get(addend, (None, None))
            if whole is not None and whole.shape == (rows, columns) and uniform(beta) == 1:
                rest += [whole, beta]  # blocks of rows add to a product that is longer, too
            else:
                attrs["accumulate"] = False
                other = MULTIPLY(addend, beta)
        product = GEMM(a, b, *rest, **attrs)
        self._whole[node] = product, other
        self.result[node] = _begin(product, node.shape)
        if other is not None:
            self.result[node] = ADD(self.result[node], other)
            return
        if columns != node.shape[1]:
            self.longer[node] = _begin(product, (node.shape[0], columns))

    def follow(self, node: Node) -> None:
        """Compute a node of longer rows if it reads one that has them."""
        reads = [operand for operand in node.inputs if operand in self.longer]
        if not reads or isinstance(node.type, tuple):
            return
        extent = self.longer[reads[0]].shape[-1]
        assert isinstance(extent, int)
        if node.op.kind is Kind.ELEMENTWISE:
            longer = self._computed(node, node, extent)
            if longer is not None:
                self.longer[node] = longer
                self.result[node] = _begin(longer, node.shape)
        elif node.op is RESHAPE and node.shape and node.shape[-1] == node.inputs[0].shape[-1]:
            self.longer[node] = RESHAPE(
                self.longer[node.inputs[0]], shape=(*node.shape[:-1], extent)
            )
            self.result[node] = _begin(self.longer[node], node.shape)
        elif node.op in _NEUTRAL and is_float(node.inputs[0].dtype):
            source, axes = node.inputs[0], node.attrs["axes"]
            last = source.ndim - 1
            if node.op in (ARGMAX, ARGMIN) and last in axes and len(axes) > 1:
                return  # positions count through the rows, too
            if last in axes:
                self.result[node] = node.op(
                    self._without_rest(source, _NEUTRAL[node.op]), **node.attrs
                )
            else:
                self.longer[node] = node.op(self.longer[source], **node.attrs)
                self.result[node] = _begin(self.longer[node], node.shape)

    def _computed(self, node: Node, reader: Node, extent: int) -> Node | None:
        """Return an elementwise node of longer rows; None where an operand has none."""
        parts = (self._lengthened(i, reader, extent) for i in node.inputs)
        operands = [part for part in parts if part is not None]
        return node.op(*operands, **node.attrs) if len(operands) == len(node.inputs) else None

    def _lengthened(self, operand: Node, node: Node, extent: int) -> Node | None:
        """Return an operand of an elementwise node of longer rows; None where it has none."""
        if operand in self.longer:
            longer = self.longer[operand]
            return longer if longer.shape[-1] == extent else None
        if isinstance(operand.type, tuple):
            return None
        if not operand.shape or operand.shape[-1] == 1:
            return operand
        op, attrs = operand.op, dict(operand.attrs)
        if op is IOTA:
            return IOTA(**{**attrs, "shape": (*operand.shape[:-1], extent)})
        if op is BROADCAST_TO:
            source = self._lengthened(operand.inputs[0], node, extent)
            shape = (*operand.shape[:-1], extent)
            return None if source is None else BROADCAST_TO(source, shape=shape)
        if op.kind is Kind.ELEMENTWISE and operand not in self._refused:
            made = self._computed(operand, node, extent)
            if made is not None:
                self.longer[operand] = made
                return made
            self._refused.add(operand)
        if operand.ndim == 1 and node.ndim > 1:  # a bias: few numbers beside the product's
            return self._placed(operand, 0, extent)
        return None

    def _with_zeros(self, operand: Node, axis: int, extent: Extent) -> Node:
        """Return an operand of a product with zeros behind its rows, or below its columns."""
        if operand.shape[axis] == extent:
            return operand
        assert isinstance(extent, int)
        longer = self.longer.get(operand)
        if longer is not None and axis == operand.ndim - 1 and longer.shape[axis] == extent:
            return self._without_rest(operand, 0.0)
        return self._placed(operand, axis, extent)

    def _placed(self, operand: Node, axis: int, extent: int) -> Node:
        key = (operand, axis, extent)
        if key not in self._zeros_behind:
            shape = (*operand.shape[:axis], extent, *operand.shape[axis + 1 :])
            none, ones = (0,) * operand.ndim, (1,) * operand.ndim
            self._zeros_behind[key] = PLACE(operand, starts=none, steps=ones, shape=shape, value=0)
        return self._zeros_behind[key]

    def _without_rest(self, operand: Node, neutral: float) -> Node:
        """Return longer rows with a number in the places that were added."""
        longer, extent = self.longer[operand], operand.shape[-1]
        source = operand.inputs[0] if operand.op is RESHAPE else operand
        if source is not operand and source.op.kind is Kind.ELEMENTWISE:
            # Kernels compute no value that is reshaped: the choice belongs before that.
            return RESHAPE(self._without_rest(source, neutral), shape=longer.shape)
        places = IOTA(shape=longer.shape, axis=longer.ndim - 1, dtype=INT32)
        counts = LESS(places, constant(extent, dtype=INT32))
        return WHERE(counts, longer, constant(np.asarray(neutral), dtype=operand.dtype))


def _begin(node: Node, shape: tuple[Extent, ...]) -> Node:
    """Return the first rows and columns of a value."""
    if node.shape == shape:
        return node
    none, ones = (0,) * node.ndim, (1,) * node.ndim
    return SLICE(node, starts=none, steps=ones, shape=shape)
