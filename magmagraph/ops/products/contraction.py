"""Products of matrices and tensors: matmul, and what NumPy makes of it.

`matmul` is the one record: two operands of at least two axes. Vectors, `dot`, `outer`,
`tensordot` are reshapes and transposes around it, or plain products and sums where those fuse
better. `einsum` stands in a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Op, Precision, Sample, Tests
from ...ir.types import Extent, Shape, Type
from ..convert import cast
from ..elementwise.arithmetic import multiply
from ..elementwise.complex_numbers import conj
from ..elementwise.family import BOOL, one_dtype, pair
from ..reduction.primitives import sum
from ..rules.sharding import shard_product
from ..shape.arrange import expand_dims, lifted, ravel, reshape, swapaxes, transpose
from ..shape.axes import axes_of

__all__ = ["dot", "inner", "matmul", "outer", "tensordot", "vdot"]

_LEFT = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]])
_RIGHT = np.array([[1.0, -0.4, 0.8, 2.0], [0.6, 1.1, -1.2, 0.1], [-0.9, 0.7, 0.2, 1.3]])
_BATCH = np.linspace(-1.0, 1.5, 24).reshape(4, 2, 3)


def _matmul_type(call: Call, a: Type, b: Type) -> Type:
    dtype = one_dtype(call, a, b)
    if dtype == BOOL:
        raise call.dtype_error(
            "operands of dtype bool", need="numbers", hint="mg.cast(x, 'int32') counts"
        )
    if a.ndim < 2 or b.ndim < 2:
        raise call.shape_error(
            f"operands of {a.ndim} and {b.ndim} axes",
            need="at least 2 axes each",
            hint="mg.matmul, which takes vectors too",
        )
    _check_inner(call, a, b)
    batch = _batch(call, a, b)
    return Type(dtype, (*batch, a.shape[-2], b.shape[-1]))


def _batch(call: Call, a: Type, b: Type) -> Shape:
    """Return the broadcast leading extents."""
    try:
        return dims.broadcast([a.shape[:-2], b.shape[:-2]], call.constraints)
    except dims.BroadcastFailure as failure:
        raise call.shape_error(
            f"leading extents {failure.left} and {failure.right} do not broadcast "
            f"(axis {failure.axis - 2})",
            need="equal extents, or a literal 1 (a named dimension never broadcasts)",
        ) from None


def _check_inner(call: Call, a: Type, b: Type) -> None:
    """Check that the axes that are summed over meet, or say which transpose would let them."""
    left = a.shape[-1]
    right = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if left == right or dims.unify(left, right, call.constraints) is not None:
        return
    hint = "transpose or reshape one operand"
    if b.ndim > 1 and b.shape[-1] == left:
        hint = "transpose the second operand: mg.matmul(a, mg.swapaxes(b, -1, -2))"
    elif a.ndim > 1 and a.shape[-2] == right:
        hint = "transpose the first operand: mg.matmul(mg.swapaxes(a, -1, -2), b)"
    elif b.ndim > 1 and a.ndim > 1 and b.shape[-1] == a.shape[-2]:
        hint = "exchange the operands: mg.matmul(b, a)"
    raise call.shape_error(
        f"inner extents {left} and {right} differ",
        need="the last axis of the first operand as long as the second to last (or only) axis "
        "of the second",
        hint=hint,
    )


def _matmul_gradient(node: Node, cotangent: Node) -> tuple[Node, Node]:
    a, b = node.inputs
    return (
        MATMUL(cotangent, swapaxes(b, -1, -2)),
        MATMUL(swapaxes(a, -1, -2), cotangent),
    )


def _map_matmul(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    a, b = operands
    if not batched[1]:
        if b.ndim == 2:
            return matmul(a, b)  # one product of all rows
        return MATMUL(lifted(a, node.ndim), b)
    if not batched[0]:
        if a.ndim == 2 and type(b.shape[-1]) is int and b.shape[-1] == 1:
            columns = matmul(reshape(b, b.shape[:-1]), swapaxes(a, 0, 1))
            return reshape(columns, (*columns.shape, 1))
        return MATMUL(a, lifted(b, node.ndim))
    return MATMUL(lifted(a, node.ndim), lifted(b, node.ndim))


def _matmul_flops(a: Type, b: Type) -> Extent:
    batch = dims.broadcast([a.shape[:-2], b.shape[:-2]], [])
    return 2 * dims.size(batch) * a.shape[-2] * a.shape[-1] * b.shape[-1]


@documented
def matmul(a: Any, b: Any) -> Node:
    """Multiply matrices, as the operator ``@``.

    a: Node or array of shape ``(..., m, k)``, or a vector ``(k,)``.
    b: Node or array of shape ``(..., k, n)``, or a vector ``(k,)``. Leading axes broadcast.
    returns: Of shape ``(..., m, n)``, without the axes that a vector lacks, and the promoted dtype.
    raises ShapeError: If the inner extents differ, leading axes do not broadcast, or an operand is
        a scalar.
    raises DTypeError: For bools.

    >>> mg.matmul(mg.constant([[1, 2], [3, 4]]), mg.constant([10, 1])).eval()
    array([12, 34], dtype=int32)
    >>> (mg.input("x", ("batch", 784)) @ mg.input("W", (784, 10))).shape
    (batch, 10)
    """
    left, right = pair(a, b)
    call = Call(MATMUL, (left, right))
    if not left.ndim or not right.ndim:
        raise call.shape_error(
            f"operands of {left.ndim} and {right.ndim} axes",
            need="at least one axis each",
            hint="mg.multiply for a scalar factor",
        )
    if left.dtype != BOOL:
        _check_inner(call, left.type, right.type)
    if left.ndim == right.ndim == 1:
        return cast(sum(multiply(left, right)), left.dtype)
    if left.ndim == 1:
        product = matmul(expand_dims(left, 0), right)
        return reshape(product, (*product.shape[:-2], product.shape[-1]))
    if right.ndim == 1:
        product = matmul(left, expand_dims(right, 1))
        return reshape(product, product.shape[:-1])
    if left.ndim > 2 and right.ndim == 2:
        # One large product instead of many small ones; the reshapes cost nothing.
        rows = MATMUL(reshape(left, (dims.size(left.shape[:-1]), left.shape[-1])), right)
        return reshape(rows, (*left.shape[:-1], right.shape[-1]))
    return MATMUL(left, right)


MATMUL = Op(
    name="matmul",
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    rule=_matmul_type,
    evaluate=lambda xp, a, b: xp.matmul(a, b),
    gradient=_matmul_gradient,
    batching=_map_matmul,
    sharding=shard_product,
    function=matmul,
    tests=Tests(
        samples=lambda: [
            Sample((_LEFT, _RIGHT)),
            Sample((_LEFT[0], _RIGHT)),
            Sample((_LEFT, _RIGHT[:, 0])),
            Sample((_LEFT[0], _RIGHT[:, 0])),
            Sample((_BATCH, _RIGHT)),
            Sample((_BATCH[:, None], np.stack([_RIGHT, 2.0 - _RIGHT]))),
        ],
        bad_samples=lambda: [
            BadSample((_LEFT, _RIGHT.T), ShapeError, "matmul: inner extents 3 and 4 differ"),
            BadSample((_LEFT, np.float64(2.0)), ShapeError, "matmul: operands of 2 and 0 axes"),
            BadSample(
                (_BATCH, np.stack([_RIGHT] * 3)),
                ShapeError,
                "matmul: leading extents 4 and 3 do not broadcast (axis -3)",
            ),
        ],
        reference=np.matmul,
    ),
    numerics="reassoc",
    flops=_matmul_flops,
    precision=Precision("allow"),
    onnx="MatMul",
)


@documented
def dot(a: Any, b: Any) -> Node:
    """Multiply as `numpy.dot` does.

    A scalar operand multiplies; two vectors give their inner product; else the last axis of `a`
    is summed with the second to last (or only) axis of `b`.

    a, b: Nodes or arrays; their dtypes are promoted.
    returns: The remaining axes of `a`, then those of `b`.
    raises ShapeError: If the extents that are summed over differ.

    >>> mg.dot(mg.constant([1, 2, 3]), mg.constant([4, 5, 6])).eval()
    array(32, dtype=int32)
    """
    left, right = pair(a, b)
    if not left.ndim or not right.ndim:
        return multiply(left, right)
    if left.ndim <= 2 and right.ndim <= 2:
        return matmul(left, right)
    return tensordot(left, right, (left.ndim - 1, max(right.ndim - 2, 0)))


@documented
def vdot(a: Any, b: Any) -> Node:
    """Sum the products of all elements of two arrays of as many.

    Of complex ones the conjugate of the first is taken, as in `numpy.vdot`.

    a, b: Nodes or arrays; their dtypes are promoted.
    returns: A scalar.
    raises ShapeError: If they do not have as many elements.

    >>> mg.vdot(mg.constant([[1, 2], [3, 4]]), mg.constant([[1, 1], [0, 2]])).eval()
    array(11, dtype=int32)
    """
    left, right = pair(a, b)
    return matmul(ravel(conj(left)), ravel(right))


@documented
def inner(a: Any, b: Any) -> Node:
    """Sum products over the last axes of both operands.

    a, b: Nodes or arrays; their dtypes are promoted.
    returns: The other axes of `a`, then those of `b`.
    raises ShapeError: If the last extents differ.

    >>> mg.inner(mg.constant([[1, 2], [3, 4]]), mg.constant([10, 1])).eval()
    array([12, 34], dtype=int32)
    """
    left, right = pair(a, b)
    if not left.ndim or not right.ndim:
        return multiply(left, right)
    return tensordot(left, right, (-1, -1))


@documented
def outer(a: Any, b: Any) -> Node:
    """Multiply each element of one operand with each of the other; both are raveled.

    a, b: Nodes or arrays; their dtypes are promoted.
    returns: Of two axes: the elements of `a`, those of `b`.

    >>> mg.outer(mg.constant([1, 2]), mg.constant([1, 10])).eval()
    array([[ 1, 10],
           [ 2, 20]], dtype=int32)
    """
    left, right = pair(a, b)
    return multiply(expand_dims(ravel(left), 1), expand_dims(ravel(right), 0))


@documented
def tensordot(a: Any, b: Any, axes: int | Sequence[Any] = 2) -> Node:
    """Sum products over pairs of axes.

    a, b: Nodes or arrays.
    axes: An int: the last so many axes of `a` with the first of `b`. A pair of axes, or of
        sequences of axes: those of `a` with those of `b`.
    returns: The remaining axes of `a`, then those of `b`.
    raises ShapeError: If extents that are summed over differ.

    >>> a, b = mg.input("a", ("n", 3, 4)), mg.input("b", (4, 3, "m"))
    >>> mg.tensordot(a, b, ((1, 2), (1, 0))).shape
    (n, m)
    """
    left, right = pair(a, b)
    call = Call(TENSORDOT, (left, right))
    if isinstance(axes, np.ndarray) and axes.ndim == 0:
        axes = axes.item()
    if isinstance(axes, (int, np.integer)):
        if not 0 <= axes <= min(left.ndim, right.ndim):
            raise call.shape_error(
                f"axes={axes} for operands of {left.ndim} and {right.ndim} axes",
                need="at most as many as both have",
            )
        ours: Sequence[int] = range(left.ndim - axes, left.ndim)
        theirs: Sequence[int] = range(axes)
    else:
        if len(axes) != 2:
            raise call.shape_error(f"{len(axes)} entries of axes", need="a pair, or an int")
        if isinstance(axes, (set, frozenset)):
            raise call.dtype_error(f"axes={axes!r} have no order", need="a pair, or an int")
        ours = axes_of(call, axes[0], left.ndim, "axes[0]")
        theirs = axes_of(call, axes[1], right.ndim, "axes[1]")
    if len(ours) != len(theirs):
        raise call.shape_error(f"{len(ours)} axes of the first operand for {len(theirs)}")
    summed = [
        call.unify(left.shape[i], right.shape[j], f"extents of axes {i} and {j}")
        for i, j in zip(ours, theirs, strict=True)
    ]
    free_left = [i for i in range(left.ndim) if i not in ours]
    free_right = [j for j in range(right.ndim) if j not in theirs]
    rows: Shape = tuple(left.shape[i] for i in free_left)
    columns: Shape = tuple(right.shape[j] for j in free_right)
    if not summed:
        shape = (*rows, *columns)
        return reshape(outer(left, right), shape)
    if not free_left and not free_right:
        product = multiply(left, transpose(right, [theirs[ours.index(i)] for i in sorted(ours)]))
        return cast(sum(product), product.dtype)
    first = reshape(transpose(left, [*free_left, *ours]), (dims.size(rows), dims.size(summed)))
    second = reshape(
        transpose(right, [*theirs, *free_right]), (dims.size(summed), dims.size(columns))
    )
    return reshape(matmul(first, second), (*rows, *columns))


DOT = Composite(
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    function=dot,
    tests=Tests(
        samples=lambda: [
            Sample((_LEFT, _RIGHT)),
            Sample((_BATCH, np.stack([_RIGHT, 2.0 - _RIGHT]))),
            Sample((_LEFT, np.float64(2.0))),
        ],
        bad_samples=lambda: [
            BadSample((_LEFT[0], _RIGHT[0]), ShapeError, "matmul: inner extents 3 and 4 differ")
        ],
        reference=np.dot,
    ),
    numerics="reassoc",
)
VDOT = Composite(
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    function=vdot,
    tests=Tests(
        samples=lambda: [Sample((_LEFT, 1.0 - _LEFT))],
        bad_samples=lambda: [
            BadSample((_LEFT, _RIGHT), ShapeError, "matmul: inner extents 6 and 12 differ")
        ],
        reference=np.vdot,
    ),
    numerics="reassoc",
)
INNER = Composite(
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    function=inner,
    tests=Tests(
        samples=lambda: [Sample((_BATCH, _LEFT)), Sample((_LEFT[0], _LEFT[1]))],
        bad_samples=lambda: [
            BadSample(
                (_LEFT, _RIGHT), ShapeError, "tensordot: extents of axes 1 and 1 differ: 3 and 4"
            )
        ],
        reference=np.inner,
    ),
    numerics="reassoc",
)
OUTER = Composite(
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    function=outer,
    tests=Tests(samples=lambda: [Sample((_LEFT[0], _RIGHT[0]))], reference=np.outer),
    numerics="exact",
)
TENSORDOT = Composite(
    dtypes=INEXACT,
    kind=Kind.CONTRACTION,
    function=tensordot,
    tests=Tests(
        samples=lambda: [
            Sample((_BATCH, _RIGHT), {"axes": 1}),
            Sample((_BATCH, np.stack([_BATCH] * 2)), {"axes": ((2, 0), (3, 1))}),
            Sample((_BATCH, np.swapaxes(_BATCH, 0, 1)), {"axes": ((0, 1, 2), (1, 0, 2))}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_BATCH, _RIGHT),
                ShapeError,
                "tensordot: extents of axes 1 and 0 differ: 2 and 3",
                {"axes": ((1,), (0,))},
            ),
            BadSample(
                (_BATCH, _RIGHT),
                ShapeError,
                "tensordot: axes=3 for operands of 3 and 2 axes",
                {"axes": 3},
            ),
        ],
        reference=lambda a, b, axes=2: np.tensordot(a, b, axes),
    ),
    numerics="reassoc",
)

RECORDS = (MATMUL, DOT, VDOT, INNER, OUTER, TENSORDOT)
