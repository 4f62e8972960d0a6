"""Products of several matrices, of vectors, of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent, Shape
from ..convert import promoted
from ..elementwise.arithmetic import multiply, subtract
from ..elementwise.complex_numbers import conj
from ..elementwise.family import pair
from ..products.contraction import matmul
from ..reduction.primitives import sum
from ..shape.arrange import expand_dims, moveaxis, reshape
from ..shape.axes import CUBE, MATRIX
from ..shape.joining import stack
from ..shape.slicing import cut
from .parts import (
    COLUMNS,
    SQUARE,
    TALL,
    VECTOR,
    WIDE_,
)

__all__ = [
    "cross",
    "kron",
    "multi_dot",
    "outer",
    "vecdot",
]


# The assumed size of a named extent in choosing the order of products.
_TYPICAL = 64


# Chains of matrices.


def _estimate(extent: Extent, sizes: dict[str, int]) -> int:
    """Estimate an extent as a number, with a typical size for unknown names."""
    if type(extent) is int:
        return extent
    numbers = {name: sizes.get(name, _TYPICAL) for name in dims.names(extent)}
    return int(dims.evaluate(extent, numbers))


def _chain_order(sizes: Sequence[int]) -> list[list[int]]:
    """Return where to split each range of a chain, for the fewest multiplications.

    Factor i has ``sizes[i]`` rows and ``sizes[i + 1]`` columns (Cormen et al., "Introduction to
    Algorithms", on the chain of matrices). Of splits that cost as much the first is taken.
    """
    count = len(sizes) - 1
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for span in range(1, count):
        for first in range(count - span):
            last = first + span
            choices = [
                (
                    cost[first][k]
                    + cost[k + 1][last]
                    + sizes[first] * sizes[k + 1] * sizes[last + 1],
                    k,
                )
                for k in range(first, last)
            ]
            cost[first][last], split[first][last] = min(choices)
    return split


@documented
def multi_dot(arrays: Sequence[Any], *, sizes: dict[str, int] | None = None) -> Node:
    """Multiply several matrices, in the order that takes the fewest multiplications.

    arrays: At least two nodes or arrays. All are matrices, but the first and the last may be
        vectors: a row and a column.
    sizes: Sizes of named dimensions to choose the order by, 64 for those not mentioned. They change
        the cost, never the result.
    returns: Of the shape of ``arrays[0] @ arrays[1] @ ...``, and the promoted dtype.
    raises ShapeError: If there are fewer than two operands, one of them is no matrix, or the
        extents do not fit.

    >>> A, B = mg.input("A", (1000, 2)), mg.input("B", (2, 1000))
    >>> mg.linalg.multi_dot([A, B, A]).inputs[0] is A
    True
    """
    nodes = promoted(*arrays)
    call = Call(MULTI_DOT, nodes)
    if len(nodes) < 2:
        raise call.shape_error(f"{len(nodes)} operands", need="at least 2")
    for i, node in enumerate(nodes):
        inner = 0 < i < len(nodes) - 1
        if node.ndim != 2 and (inner or node.ndim != 1):
            raise call.shape_error(
                f"operand {i} of {node.ndim} axes",
                need="matrices; the first and the last may be vectors",
                hint="mg.matmul for batches of matrices",
            )
    size_of = dict(sizes or {})
    chain = [_estimate(node.shape[0], size_of) for node in nodes]
    chain.append(_estimate(nodes[-1].shape[-1], size_of))
    if nodes[0].ndim == 1:
        chain[0] = 1
    if nodes[-1].ndim == 1:
        chain[-1] = 1
    split = _chain_order(chain)

    def product(first: int, last: int) -> Node:
        if first == last:
            return nodes[first]
        k = split[first][last]
        return matmul(product(first, k), product(k + 1, last))

    return product(0, len(nodes) - 1)


# Vectors.


@documented
def vecdot(x1: Any, x2: Any, axis: int = -1) -> Node:
    """Multiply vectors along an axis of two arrays and add up.

    x1, x2: Nodes or arrays; the other axes broadcast. Of a complex `x1` the conjugate is taken.
    axis: The axis of both along which their vectors stand, which must be as long in both.
    returns: Of the broadcast shape without that axis, and the promoted dtype.
    raises ShapeError: If the extents differ or do not broadcast.

    >>> mg.vecdot([[1.0, 2.0], [3.0, 4.0]], [10.0, 1.0]).eval()
    array([12., 34.], dtype=float32)
    """
    left, right = pair(x1, x2)
    call = Call(VECDOT, (left, right))
    first, second = (call.axis(axis, node.ndim) for node in (left, right))
    call.unify(left.shape[first], right.shape[second], "the extents along the axis")
    product = multiply(conj(moveaxis(left, first, -1)), moveaxis(right, second, -1))
    return sum(product, axis=-1, dtype=product.dtype)


@documented
def outer(x1: Any, x2: Any) -> Node:
    """Multiply each element of one vector with each of another.

    x1, x2: Nodes or arrays of one axis (`mg.outer` takes any and ravels them).
    returns: Of shape ``(m, n)``, and the promoted dtype.
    raises ShapeError: If an operand has another number of axes.

    >>> mg.linalg.outer([1.0, 2.0], [1.0, 10.0]).eval()
    array([[ 1., 10.],
           [ 2., 20.]], dtype=float32)
    """
    left, right = pair(x1, x2)
    if left.ndim != 1 or right.ndim != 1:
        raise Call(OUTER, (left, right)).shape_error(
            f"operands of {left.ndim} and {right.ndim} axes",
            need="vectors",
            hint="mg.outer, which ravels them",
        )
    return multiply(expand_dims(left, 1), expand_dims(right, 0))


@documented
def cross(x1: Any, x2: Any, axis: int = -1) -> Node:
    """Compute the cross products of vectors of three elements.

    x1, x2: Nodes or arrays with extent 3 along an axis; the other axes broadcast.
    axis: That axis, of both.
    returns: Of the broadcast shape and the promoted dtype.
    raises ShapeError: If an extent along the axis is not 3, or others do not broadcast.

    >>> mg.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).eval()
    array([0., 0., 1.], dtype=float32)
    """
    left, right = pair(x1, x2)
    call = Call(CROSS, (left, right))
    parts = []
    for node in (left, right):
        own = call.axis(axis, node.ndim)
        if dims.unify(node.shape[own], 3, []) is None:
            raise call.shape_error(
                f"extent {node.shape[own]} along axis {axis}", need="vectors of 3 elements"
            )
        last = moveaxis(node, own, -1)
        parts.append([reshape(cut(last, last.ndim - 1, i, 1), last.shape[:-1]) for i in range(3)])
    (a, b, c), (d, e, f) = parts
    components = stack(
        [
            subtract(multiply(b, f), multiply(c, e)),
            subtract(multiply(c, d), multiply(a, f)),
            subtract(multiply(a, e), multiply(b, d)),
        ],
        axis=-1,
    )
    return moveaxis(components, -1, axis)


@documented
def kron(a: Any, b: Any) -> Node:
    """Compute the Kronecker product: each element of `a` times the whole of `b`.

    a, b: Nodes or arrays; the one with fewer axes gets axes of extent 1 in front.
    returns: With extents ``a.shape[i] * b.shape[i]``, and the promoted dtype.

    >>> mg.kron([1.0, 10.0], [1.0, 2.0, 3.0]).eval()
    array([ 1.,  2.,  3., 10., 20., 30.], dtype=float32)
    """
    left, right = pair(a, b)
    ndim = left.ndim if left.ndim > right.ndim else right.ndim
    ours: Shape = (*(1 for _ in range(ndim - left.ndim)), *left.shape)
    theirs: Shape = (*(1 for _ in range(ndim - right.ndim)), *right.shape)
    product = multiply(
        reshape(left, [e for extent in ours for e in (extent, 1)]),
        reshape(right, [e for extent in theirs for e in (1, extent)]),
    )
    return reshape(product, tuple(x * y for x, y in zip(ours, theirs, strict=True)))


MULTI_DOT = Composite(
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=INEXACT,
    function=multi_dot,
    tests=Tests(
        samples=lambda: [
            Sample(([TALL, SQUARE, COLUMNS],)),
            Sample(([VECTOR, WIDE_, TALL, VECTOR],)),
            Sample(([WIDE_, TALL],)),
        ],
        bad_samples=lambda: [
            BadSample(([TALL],), ShapeError, "multi_dot: 1 operands"),
            BadSample(([TALL, VECTOR, TALL],), ShapeError, "multi_dot: operand 1 of 1 axes"),
            BadSample(([TALL, TALL],), ShapeError, "matmul: inner extents 3 and 4 differ"),
        ],
        reference=np.linalg.multi_dot,
    ),
    numerics="reassoc",
)

VECDOT = Composite(
    kind=Kind.LINALG,
    dtypes=INEXACT,
    function=vecdot,
    tests=Tests(
        samples=lambda: [
            Sample((CUBE, CUBE[0])),
            Sample((CUBE, CUBE[::-1]), {"axis": 1}),
            Sample((np.zeros((2, 0)), np.zeros((2, 0)))),
        ],
        bad_samples=lambda: [
            BadSample(
                (VECTOR, MATRIX[0, :2]),
                ShapeError,
                "vecdot: the extents along the axis differ: 3 and 2",
            )
        ],
        reference=lambda x1, x2, axis=-1: (
            np.moveaxis(x1, axis, -1).conj() * np.moveaxis(x2, axis, -1)
        ).sum(axis=-1),
    ),
    numerics="reassoc",
)

OUTER = Composite(
    name="linalg_outer",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=INEXACT,
    function=outer,
    tests=Tests(
        samples=lambda: [Sample((VECTOR, TALL[0]))],
        bad_samples=lambda: [
            BadSample((VECTOR, TALL), ShapeError, "linalg_outer: operands of 1 and 2 axes")
        ],
        reference=np.linalg.outer,
    ),
    numerics="exact",
)

CROSS = Composite(
    name="linalg_cross",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=INEXACT,
    function=cross,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE, VECTOR)),
            Sample((CUBE, CUBE[:1]), {"axis": 1}),
        ],
        bad_samples=lambda: [
            BadSample((VECTOR, COLUMNS), ShapeError, "linalg_cross: extent 2 along axis -1"),
        ],
        reference=lambda x1, x2, axis=-1: np.linalg.cross(x1, x2, axis=axis),
    ),
    numerics="reassoc",
)

KRON = Composite(
    kind=Kind.LINALG,
    dtypes=INEXACT,
    function=kron,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE, COLUMNS)),
            Sample((VECTOR, TALL)),
            Sample((CUBE, VECTOR)),
            Sample((np.float64(2.0), VECTOR)),
            Sample((np.arange(3), np.arange(2))),
        ],
        reference=np.kron,
    ),
    numerics="exact",
)

RECORDS = (
    MULTI_DOT,
    VECDOT,
    OUTER,
    CROSS,
    KRON,
)
