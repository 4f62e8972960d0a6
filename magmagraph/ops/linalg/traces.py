"""Diagonals, traces and transposes of matrices, batched."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests
from ..convert import as_node, as_operand
from ..elementwise.arithmetic import add, multiply
from ..indexing.gathering import TAKE
from ..indexing.iota import IOTA
from ..leaf import extent as extent_scalar
from ..reduction.primitives import sum
from ..shape.arrange import reshape, swapaxes
from ..shape.axes import CUBE
from ..shape.slicing import cut
from .parts import (
    SQUARES,
    TALL,
    VECTOR,
    matrices,
)

__all__ = [
    "diagonal",
    "matrix_transpose",
    "trace",
]


@documented
def matrix_transpose(x: Any) -> Node:
    """Exchange the last two axes.

    x: Node or array of shape ``(..., m, n)``, of any dtype.
    returns: Of shape ``(..., n, m)``; not conjugated.
    raises ShapeError: If `x` has fewer than two axes.

    >>> mg.matrix_transpose(mg.input("x", ("batch", 2, 3))).shape
    (batch, 3, 2)
    """
    node = as_node(x)
    matrices(Call(MATRIX_TRANSPOSE, (node,)), node.type)
    return swapaxes(node, -1, -2)


@documented
def diagonal(x: Any, *, offset: int = 0) -> Node:
    """Take the diagonals of matrices.

    x: Node or array of shape ``(..., m, n)``, of any dtype.
    offset: How far above the main diagonal; a negative one below.
    returns: Of shape ``(..., k)``: ``k = min(m, n)`` for the main diagonal.
    raises ShapeError: If `x` has fewer than two axes.

    >>> mg.linalg.diagonal([[1.0, 2.0], [3.0, 4.0]]).eval()
    array([1., 4.], dtype=float32)
    """
    node = as_node(x)
    return _diagonal(Call(DIAGONAL, (node,)), node, offset)


def _diagonal(call: Call, node: Node, offset: int) -> Node:
    offset = call.whole(offset, "offset")
    batch, rows, columns = matrices(call, node.type)
    down, across = (0, offset) if offset > 0 else (-offset, 0)
    count = dims.maximum(dims.minimum(rows - down, columns - across), 0)
    flat = reshape(node, (*batch, rows * columns))
    start = down * columns + across
    if isinstance(columns, int):
        if type(count) is int and count == 0:
            start = 0  # there is no such diagonal, nor an element that it would start at
        return cut(flat, flat.ndim - 1, start, count, columns + 1)
    steps = IOTA(shape=(count,), axis=0, dtype=np.dtype(np.int64))
    places = add(multiply(steps, extent_scalar(columns + 1)), extent_scalar(start))
    return TAKE(flat, places, axis=flat.ndim - 1, mode="clip")


@documented
def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Node:
    """Add up the diagonals of matrices.

    x: Node or array of shape ``(..., m, n)``.
    offset: How far above the main diagonal; a negative one below.
    dtype: Of the sum; that of `mg.sum` unless said.
    returns: Of shape ``(...)``.
    raises ShapeError: If `x` has fewer than two axes.

    >>> mg.linalg.trace([[1.0, 2.0], [3.0, 4.0]]).eval()
    array(5., dtype=float32)
    """
    node = as_operand(x, dtype)
    return sum(_diagonal(Call(TRACE, (node,)), node, offset), axis=-1, dtype=dtype)


MATRIX_TRANSPOSE = Composite(
    kind=Kind.LAYOUT,
    dtypes=INEXACT,
    function=matrix_transpose,
    tests=Tests(
        samples=lambda: [Sample((CUBE,)), Sample((np.arange(6).reshape(2, 3),))],
        bad_samples=lambda: [
            BadSample((VECTOR,), ShapeError, "matrix_transpose: an operand of 1 axis")
        ],
        reference=np.matrix_transpose,
    ),
    numerics="exact",
)

DIAGONAL = Composite(
    name="linalg_diagonal",
    kind=Kind.LAYOUT,
    namespace="linalg",
    dtypes=INEXACT,
    function=diagonal,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARES,)),
            Sample((CUBE,), {"offset": 1}),
            Sample((TALL,), {"offset": -2}),
            Sample((TALL,), {"offset": 5}),
            Sample((np.arange(6).reshape(2, 3),)),
        ],
        bad_samples=lambda: [
            BadSample((VECTOR,), ShapeError, "linalg_diagonal: an operand of 1 axis")
        ],
        reference=lambda x, offset=0: np.linalg.diagonal(x, offset=offset),
    ),
    numerics="exact",
)

TRACE = Composite(
    name="linalg_trace",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=INEXACT,
    function=trace,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARES,)),
            Sample((CUBE,), {"offset": 1}),
            Sample((np.zeros((2, 0, 0)),)),
        ],
        bad_samples=lambda: [
            BadSample((VECTOR,), ShapeError, "linalg_trace: an operand of 1 axis")
        ],
        reference=lambda x, offset=0: np.linalg.trace(x, offset=offset),
    ),
    numerics="reassoc",
)

RECORDS = (
    MATRIX_TRANSPOSE,
    DIAGONAL,
    TRACE,
)
