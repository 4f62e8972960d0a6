"""Orthonormal columns and an upper triangle: QR, by reflections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import GradientError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import LAPACK, BadSample, Call, Kind, Linalg, Op, Precision, Sample, Tests
from ...ir.types import Extent, Type
from ..control.identities import ITEM
from ..elementwise.arithmetic import add, negative
from ..elementwise.comparison import where
from ..products.contraction import matmul
from ..rules.matrix_facts import Facts, always
from ..shape.joining import concatenate
from ..shape.slicing import cut
from .parts import (
    EMPTY,
    SQUARE,
    STRIDED,
    TALL,
    WIDE_,
    adjoint,
    bad_matrices,
    hermitian,
    is_diagonal,
    is_empty,
    lower_part,
    matrices,
    numbers,
    upper_part,
    without_imaginary,
    zeros_like,
)
from .triangular import triangular

__all__ = ["qr"]


class QRResult(NamedTuple):
    """What `qr` returns: ``A = Q R``."""

    Q: Node
    R: Node


def _qr_type(call: Call, a: Type, *, mode: str) -> tuple[Type, Type]:
    batch, rows, columns = matrices(call, a)
    inner = rows if mode == "complete" else dims.minimum(rows, columns)
    return Type(a.dtype, (*batch, rows, inner)), Type(a.dtype, (*batch, inner, columns))


def _qr_r_type(call: Call, a: Type) -> Type:
    return _qr_type(call, a, mode="reduced")[1]


def _qr_facts(node: Node, known: object) -> tuple[Facts, Facts]:
    assert isinstance(node.type, tuple)
    rows, columns = node.type[0].shape[-2:]
    return Facts.ORTHOGONAL if rows == columns else Facts.NONE, Facts.UPPER


@hermitian
def _qr_gradient(node: Node, cotangents: Sequence[Node | None]) -> tuple[Node | None]:
    a = node.inputs[0]
    by_q, by_r = cotangents
    q, r = ITEM(node, index=0), ITEM(node, index=1)
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    if node.attrs["mode"] == "complete" and shorter != rows:
        if by_q is not None:
            raise GradientError(
                message(
                    f"qr: matrices of {rows} rows and {columns} columns determine only {shorter} "
                    "columns of the complete Q; the others have no gradient",
                    hint="mode='reduced'",
                )
            )
        q = cut(q, q.ndim - 1, 0, shorter)
        r = cut(r, r.ndim - 2, 0, shorter)
        by_r = None if by_r is None else cut(by_r, by_r.ndim - 2, 0, shorter)
    return (_thin_qr_gradient(a, q, r, by_q, by_r),)


def _thin_qr_gradient(
    a: Node, q: Node, r: Node, by_q: Node | None, by_r: Node | None
) -> Node | None:
    """Return the gradient of the reduced factors (Walter and Lehmann 2018 for tall matrices)."""
    if by_q is None and by_r is None:
        return None
    if is_empty(a.shape):
        return zeros_like(a)
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    if shorter not in (rows, columns):
        raise GradientError(
            message(
                f"qr: matrices of {rows} rows and {columns} columns, of which it is not known "
                "which are more, have no gradient",
                need="extents whose order is known",
                hint="give the extents as numbers, or make one of them the other",
            )
        )
    by_right: Node | None = None
    if columns != shorter:
        # A = [A1 A2], of which A1 = Q R1 is factored and R2 = Q^H A2 follows.
        if by_r is not None:
            right = cut(by_r, by_r.ndim - 1, shorter, columns - shorter)
            others = cut(a, a.ndim - 1, shorter, columns - shorter)
            through = matmul(others, adjoint(right))
            by_q = through if by_q is None else add(by_q, through)
            by_r = cut(by_r, by_r.ndim - 1, 0, shorter)
            by_right = matmul(q, right)
        else:
            by_right = zeros_like(cut(a, a.ndim - 1, shorter, columns - shorter))
        r = cut(r, r.ndim - 1, 0, shorter)
    inner: Node | None = None
    if by_r is not None:
        inner = matmul(r, adjoint(upper_part(by_r)))
    if by_q is not None:
        product = negative(matmul(adjoint(by_q), q))
        inner = product if inner is None else add(inner, product)
    assert inner is not None
    lower = lower_part(inner, -1)
    middle = where(is_diagonal(shorter, shorter), without_imaginary(inner), 0)
    total = matmul(q, add(add(lower, adjoint(lower)), middle))
    if by_q is not None:
        total = add(total, by_q)
    # total R^-H, as the adjoint of a solution with R.
    result = adjoint(triangular(r, adjoint(total), lower=False, trans="N"))
    return result if by_right is None else concatenate([result, by_right], axis=-1)


@hermitian
def _qr_r_gradient(node: Node, cotangent: Node) -> tuple[Node | None]:
    a = node.inputs[0]
    both = QR(a, mode="reduced")
    q, r = ITEM(both, index=0), ITEM(both, index=1)
    return (_thin_qr_gradient(a, q, r, None, cotangent),)


@documented
def qr(a: Any, mode: str = "reduced") -> Any:
    """Factor matrices into orthonormal columns and an upper triangle.

    a: Node or array of shape ``(..., m, n)``, float or complex.
    mode: With ``k = min(m, n)``: "reduced" gives ``Q`` of shape ``(..., m, k)`` and ``R`` of
        ``(..., k, n)``; "complete" ``(..., m, m)`` and ``(..., m, n)``; "r" only the reduced R.
    returns (QRResult or Node): ``Q`` and ``R`` with ``A = Q R`` and ``Q^H Q = I``. The signs of the
        diagonal of R are LAPACK's.
    raises ShapeError: If `a` has fewer than two axes, or the mode is none of these.
    raises GradientError: From the gradient of the complete Q of a matrix with more rows than
        columns, whose last columns are not determined; and where it is not known from the extents
        which are more.
    raises LinAlgError: At run time, from the gradient, if the first k columns are linearly
        dependent.

    Notes
    -----
    The gradient of tall matrices is that of Walter and Lehmann (2018, "Algorithmic differentiation
    of linear algebra functions"); for wide ones the first m columns are factored and the others
    follow from ``R2 = Q^H A2``.

    >>> Q, R = mg.linalg.qr([[3.0, 1.0], [4.0, 2.0]])
    >>> mg.abs(R).eval().round(4)
    array([[5. , 2.2],
           [0. , 0.4]], dtype=float32)
    """
    node = numbers(a)
    if mode == "r":
        matrices(Call(QR, (node,)), node.type)
        return QR_R(node)
    if mode not in ("reduced", "complete"):
        raise Call(QR, (node,)).shape_error(
            f"mode={mode!r}", need="one of 'reduced', 'complete', 'r'"
        )
    both = QR(node, mode=mode)
    return QRResult(ITEM(both, index=0), ITEM(both, index=1))


def _qr_flops(a: Type, **attrs: Any) -> Extent:
    rows, columns = a.shape[-2:]
    shorter = dims.minimum(rows, columns)
    once = 2 * rows * columns * shorter - dims.floor_div(2 * shorter * shorter * shorter, 3)
    return dims.size(a.shape[:-2]) * (2 * once if attrs else once)


QR = Op(
    name="qr",
    kind=Kind.LINALG,
    namespace="linalg",
    dtypes=LAPACK,
    rule=_qr_type,
    attributes={"mode": "Literal['reduced', 'complete']"},
    linalg=Linalg(facts=_qr_facts),
    evaluate=lambda xp, a, *, mode: tuple(xp.linalg.qr(a, mode=mode)),
    gradient=_qr_gradient,
    function=qr,
    tests=Tests(
        samples=lambda: [
            Sample((SQUARE,)),
            Sample((np.stack([TALL, TALL[::-1] + 0.1]),)),
            Sample((WIDE_,)),
            Sample((STRIDED,)),
            Sample((TALL,), {"mode": "r"}),
            Sample((WIDE_,), {"mode": "r"}),
            Sample((SQUARE,), {"mode": "complete"}),
            Sample(
                (TALL,),
                {"mode": "complete"},
                gradient=(),
                reason="the last columns of the complete Q are not determined",
            ),
            Sample((EMPTY,)),
        ],
        bad_samples=lambda: [
            *bad_matrices("qr")(),
            BadSample((SQUARE,), ShapeError, "qr: mode='raw'", {"mode": "raw"}),
        ],
        reference=lambda a, mode="reduced": np.linalg.qr(a, mode=mode),
    ),
    numerics="reassoc",
    flops=_qr_flops,
    precision=Precision("keep"),
)

QR_R = Op(
    name="qr_r",
    kind=Kind.LINALG,
    dtypes=LAPACK,
    doc="The upper triangle R of A = Q R alone.",
    rule=_qr_r_type,
    linalg=Linalg(facts=always(Facts.UPPER)),
    evaluate=lambda xp, a: xp.linalg.qr(a, mode="r"),
    gradient=_qr_r_gradient,
    numerics="reassoc",
    flops=_qr_flops,
    precision=Precision("keep"),
)

RECORDS = (QR, QR_R)
