"""Constant folding: what depends on constants only is computed once, when the graph is compiled.

Before::

    %0 = input() : float32[]  # x
    %1 = constant(value=2.0) : float32[]
    %2 = constant(value=3.0) : float32[]
    %3 = multiply(%1, %2) : float32[]
    %4 = add(%0, %3) : float32[]
    return %4

After::

    %0 = input() : float32[]  # x
    %1 = constant(value=6.0) : float32[]
    %2 = add(%0, %1) : float32[]
    return %2

Results larger than `LARGEST` bytes are kept as expressions unless they are no larger than what they
are made of: they would take memory for as long as the function lives. Random values, state and
generators of positions are never folded.
"""

from __future__ import annotations

import numpy as np

from ...dtypes import finfo, is_float
from ...errors import MagmagraphError
from ...ir.graph import Node
from ...ir.interpret import apply
from ...ir.op import Effect, Kind, Op
from ...ir.types import Extent, Type
from ...ops.elementwise.arithmetic import MULTIPLY
from ...ops.leaf import CONSTANT
from ..rewriting.rewrite import Match, Rule

LARGEST = 4096
_KINDS = frozenset(
    (
        Kind.ELEMENTWISE,
        Kind.REDUCTION,
        Kind.CONTRACTION,
        Kind.CONVOLUTION,
        Kind.LINALG,
        Kind.TRANSFORM,
        Kind.LAYOUT,
        Kind.INDEX,
    )
)


def constant_of(value: np.ndarray) -> Node:
    """Return a constant node of an array of the package's own making."""
    array = np.array(value, order="C")
    array.flags.writeable = False
    return Node(CONSTANT, (), {"value": array}, Type(array.dtype, array.shape))


def _is_known(extents: tuple[Extent, ...]) -> bool:
    return all(type(extent) is int for extent in extents)


def _fold(match: Match) -> Node | None:
    node = match.root
    inputs = node.inputs
    if not inputs or any(operand.op is not CONSTANT for operand in inputs):
        return None
    op: Op = node.op
    if op.kind not in _KINDS or op.effect is not Effect.PURE or not isinstance(node.type, Type):
        return None
    if not _is_known(node.shape):
        return None
    values = [operand.attrs["value"] for operand in inputs]
    size = node.type.bytes
    assert isinstance(size, int)
    if size > max(LARGEST, sum(value.nbytes for value in values)):
        return None
    try:
        result = apply(node, values, {})
    except MagmagraphError:  # a singular matrix, say: the call says so, and where it was made
        return None
    return constant_of(result) if op is not MULTIPLY or _is_harmless(result, values) else None


def _is_harmless(product: np.ndarray, values: list[np.ndarray]) -> bool:
    """Return whether a product left the range of its dtype nowhere.

    Where it did, as squares do, the expression is kept: a stable form may still take it up.
    """
    if not is_float(product.dtype):
        return True
    sizes = [np.abs(v.astype(np.float64)) for v in values]
    size = np.abs(product.astype(np.float64))
    tiny = (size < float(finfo(product.dtype).tiny)) & (sizes[0] > 0) & (sizes[1] > 0)
    huge = ~np.isfinite(size) & np.isfinite(sizes[0]) & np.isfinite(sizes[1])
    return not (tiny | huge).any()


def _looks(node: Node) -> bool:
    inputs = node.inputs
    return bool(inputs) and inputs[0].op is CONSTANT and inputs[-1].op is CONSTANT


FOLD = Rule("fold constants", (), _fold, looks=_looks, complex=True)
