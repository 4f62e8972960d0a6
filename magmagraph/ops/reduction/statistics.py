"""Compositions of reductions: means, norms, logsumexp, counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import canonical, finfo, is_complex, is_inexact, real_dtype
from ...errors import DTypeError, ShapeError, message
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import INEXACT, BadSample, Call, Composite, Kind, Op, Sample, Tests
from ..control.identities import stop_gradient
from ..convert import as_node, cast
from ..elementwise.arithmetic import divide
from ..elementwise.comparison import equal, minimum, not_equal
from ..elementwise.comparison import where as select
from ..elementwise.family import REAL, inexact, inexact_pair
from ..elementwise.math import exp, log, power, sqrt
from ..elementwise.rounding import isfinite
from ..elementwise.signs import absolute, sign
from ..leaf import extent
from ..shape.joining import broadcast_to
from .folding import (
    CUBE,
    Axis,
    extent_product,
    fold_reference,
    normalized_axes,
    restore_axes,
    restored,
)
from .masked import filled, mask_of, without_elements
from .primitives import MAX, SUM, counted, empty_result, max, sum

__all__ = ["count_nonzero", "logsumexp", "mean", "norm"]

_FLOAT32 = np.dtype(np.float32)


def averaged(name: str, x: Any, dtype: Any = None) -> Node:
    """Return the operand as floats of the requested dtype.

    raises DTypeError: If that is no float dtype.
    """
    if dtype is None:
        return inexact(x)
    target = canonical(dtype)
    if not is_inexact(target):
        raise DTypeError(
            message(
                f"{name}: dtype={target.name}",
                need="a float dtype: a mean is seldom whole",
                hint=f"mg.cast(mg.{name}(x), '{target.name}')",
            )
        )
    return cast(x, target)


def widened(x: Any) -> tuple[Node, np.dtype]:
    """Return a float operand, and the dtype of the result.

    Sums of 16-bit floats leave their range and their precision early, so they run in float32.
    """
    node = inexact(x)
    return (cast(node, _FLOAT32) if node.dtype.itemsize < 4 else node), node.dtype


def _count(x: Node, axes: tuple[int, ...]) -> Any:
    """Return how many elements are folded: exact for named axes."""
    count = extent_product(x.shape, axes)
    return float(count) if type(count) is int else cast(extent(count), x.dtype)


def average_of(x: Node, axes: tuple[int, ...], mask: Node | None) -> Node:
    """Return the mean over axes of the elements that count."""
    if mask is None:
        return divide(SUM(x, axes=axes), _count(x, axes))
    return divide(SUM(filled(x, mask, 0), axes=axes), counted(mask, axes, x.dtype))


@documented
def mean(
    x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None, *, where: Any = True
) -> Node:
    """Average the elements along axes.

    x: Node or array; ints become floats.
    axis: An axis, several, or None for all. A named axis is divided by its size at the call.
    dtype: Of the result; the float dtype of `x` unless said. 16-bit floats are added in float32.
    returns: Without the reduced axes (unless `keepdims`). No elements give NaN.

    >>> mg.mean([[1.0, 2.0], [3.0, 6.0]], axis=0).eval()
    array([2., 4.], dtype=float32)
    """
    node, result = widened(averaged("mean", x, dtype))
    axes = normalized_axes(SUM, node, axis)
    average = average_of(node, axes, mask_of("mean", node, where))
    return cast(restore_axes("mean", average, axes, keepdims), result)


@documented
def logsumexp(
    x: Any,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    b: Any = None,
    return_sign: bool = False,
    where: Any = True,
) -> Any:
    """Compute log(sum(b * exp(x))) along axes without overflow.

    x: Node or array; ints become floats.
    axis: An axis, several, or None for all.
    b: Factors of the exponentials, which broadcast against `x`, of either sign; 1 unless said.
    return_sign: Return the logarithm of the sum's absolute value, and its sign, too.
    returns (Node, or a pair of Node): Of the float dtype, without the reduced axes (unless
        `keepdims`); -inf where all elements are, inf where one is. Where the sum is negative NaN,
        with `return_sign` the sign -1.

    >>> mg.logsumexp([[1000.0, 1000.0]], axis=1).eval().round(1)
    array([1000.7], dtype=float32)
    >>> size, sign = mg.logsumexp([1000.0, 1000.0], b=[1.0, -3.0], return_sign=True)
    >>> print(size.eval().round(1), sign.eval())
    1000.7 -1.0
    """
    if b is not None or return_sign or where is not True:
        return _signed_logsumexp(x, axis, keepdims, b, return_sign, where)
    node, result = widened(x)
    axes = normalized_axes(MAX, node, axis)
    if not axes:
        return cast(node, result)
    if without_elements(node, axes):
        none = empty_result(node, axes, -np.inf)
        return cast(restore_axes("logsumexp", none, axes, keepdims), result)
    top = stop_gradient(MAX(node, axes=axes))
    top = select(isfinite(top), top, 0)
    total = log(SUM(exp(node - restored(top, axes)), axes=axes)) + top
    return cast(restore_axes("logsumexp", total, axes, keepdims), result)


def _signed_logsumexp(
    x: Any, axis: Axis, keepdims: bool, b: Any, return_sign: bool, where: Any
) -> Any:
    """Compute `logsumexp` with factors, of elements that count."""
    exponents, factor = inexact_pair(x, 1 if b is None else b)
    shape = Call(LOGSUMEXP, (exponents, factor)).broadcast(exponents.shape, factor.shape)
    exponents, factor = broadcast_to(exponents, shape), broadcast_to(factor, shape)
    mask = mask_of("logsumexp", exponents, where)
    node, result = widened(exponents)
    factor = filled(cast(factor, node.dtype), mask, 0)
    axes = normalized_axes(MAX, node, axis)
    # What is multiplied by 0 does not count either, but its factor has a gradient, which a
    # bounded exponential keeps finite.
    counts = not_equal(factor, 0)
    top = stop_gradient(max(select(counts, node, -np.inf), axes, initial=-np.inf))
    top = select(isfinite(top), top, 0)
    level = restored(top, axes)
    shift = (node if mask is None else select(mask, node, level)) - level
    bound = 0.9 * math.log(float(finfo(node.dtype).max))
    power = exp(select(counts, shift, minimum(shift, bound)))
    total = SUM(factor * power, axes=axes)
    parts = [log(absolute(total) if return_sign else total) + top]
    if return_sign:
        parts.append(sign(total))
    kept_parts = [cast(restore_axes("logsumexp", part, axes, keepdims), result) for part in parts]
    return tuple(kept_parts) if return_sign else kept_parts[0]


@documented
def norm(x: Any, ord: Any = 2, axis: Axis = None, keepdims: bool = False) -> Node:
    """Take the length of vectors along axes.

    x: Node or array; ints become floats.
    ord: 2: the root of the sum of squares. 1: the sum of absolute values. ``inf`` and ``-inf``: the
        largest and the smallest absolute value. 0: the number of elements that are not zero. Any
        other p: the sum of ``abs(x)**p``, to the power 1/p.
    axis: An axis, several (their elements are one vector), or None for all.
    returns: Of the float dtype, without the reduced axes (unless `keepdims`). The gradient of a
        vector of length 0 is 0; with `ord` 1, inf and -inf that of `absolute` at 0, which is 1.
    raises ShapeError: Where `ord` is not a number.

    >>> mg.norm([3.0, -4.0]).eval(), mg.norm([3.0, -4.0], ord=1).eval()
    (array(5., dtype=float32), array(7., dtype=float32))
    """
    if not isinstance(ord, (int, float)) or isinstance(ord, bool):
        raise ShapeError(
            message(
                f"norm: ord={ord!r} is not a number",
                need="2, 1, 0, inf, -inf or another power",
                hint="axis=(-2, -1) gives the Frobenius norm of matrices",
            )
        )
    node, result = widened(x)
    if is_complex(result):
        node, result = absolute(node), real_dtype(result)
    axes = normalized_axes(SUM, node, axis)
    if ord == 2:
        # The pass `simplify` scales it by the largest element; `stable_forms` has its gradient.
        length = sqrt(SUM(node * node, axes=axes)) if axes else absolute(node)
    elif ord == 1:
        length = SUM(absolute(node), axes=axes)
    elif math.isinf(ord):
        size = absolute(node)
        length = max(size, axes) if ord > 0 else -max(-size, axes)
    elif ord == 0:
        length = SUM(cast(not_equal(node, 0), node.dtype), axes=axes)
    else:
        # Zeros stay out of both powers, whose derivatives may be infinite there.
        zero = equal(node, 0)
        powers = select(zero, 0, power(absolute(select(zero, 1, node)), float(ord)))
        total = SUM(powers, axes=axes)
        none = equal(total, 0)
        length = select(none, 0, power(select(none, 1, total), 1.0 / float(ord)))
    return cast(restore_axes("norm", length, axes, keepdims), result)


@documented
def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Node:
    """Count the elements along axes that are not zero.

    x: Node or array.
    axis: An axis, several, or None for all.
    returns: int64, without the reduced axes (unless `keepdims`). No gradient: integer valued.

    >>> mg.count_nonzero([[1, 0], [2, 3]], axis=1).eval()
    array([1, 2])
    """
    return sum(not_equal(as_node(x), 0), axis, keepdims, canonical(np.int64))


def _norm_reference(x: Any, ord: Any = 2, axis: Any = None, keepdims: bool = False) -> Any:
    return np.linalg.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)


def _logsumexp_reference(x: Any, *args: Any, where: Any = True, **options: Any) -> Any:
    from scipy.special import logsumexp as reference

    factors = options.pop("b", None)
    if where is not True:
        factors = np.where(where, 1.0 if factors is None else factors, 0.0)
    return reference(x, *args, b=factors, **options)


def statistic_samples() -> list[Sample]:
    return [
        Sample((CUBE,)),
        Sample((CUBE,), {"axis": 1}),
        Sample((CUBE,), {"axis": (0, -1), "keepdims": True}),
    ]


_FACTORS = [[5, 2, 0, -1], [1, -5, 3, 0], [2, 1, -4, 2]]
_INFINITE = np.array([[-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 2.0]])
_LARGE = np.array([[1000.0, 999.5], [-1000.0, -1001.0]])

LOGSUMEXP = Composite(
    kind=Kind.REDUCTION,
    function=logsumexp,
    tests=Tests(
        samples=lambda: [
            *statistic_samples(),
            Sample((_INFINITE,), {"axis": 1}, gradient=(), reason="infinite values"),
            Sample((_LARGE,), {"axis": 1}),
            Sample((CUBE,), {"axis": 1, "b": _FACTORS, "return_sign": True}),
            Sample((_LARGE,), {"b": [[0, 2], [-3, 0]], "keepdims": True}),
            Sample((CUBE,), {"axis": (0, 2), "where": CUBE > -0.5, "keepdims": True}),
        ],
        bad_samples=lambda: [
            BadSample(
                (CUBE,),
                ShapeError,
                "logsumexp: extents 4 and 5 do not broadcast (axis -1)",
                {"b": [1, 2, 1, 2, 1]},
            ),
            BadSample(
                (CUBE,),
                ShapeError,
                "logsumexp: where of shape (5,) does not broadcast to the operand's shape "
                "(2, 3, 4)",
                {"where": np.ones(5, bool)},
            ),
        ],
        reference=_logsumexp_reference,
    ),
    numerics="reassoc",
)

RECORDS: tuple[Op | Composite, ...] = (
    Composite(
        dtypes=INEXACT,
        kind=Kind.REDUCTION,
        function=mean,
        tests=Tests(samples=statistic_samples, reference=fold_reference("mean")),
        numerics="reassoc",
    ),
    LOGSUMEXP,
    Composite(
        dtypes=INEXACT,
        kind=Kind.REDUCTION,
        function=norm,
        tests=Tests(
            samples=lambda: [
                *statistic_samples(),
                Sample((CUBE,), {"axis": 1, "ord": 1}),
                Sample((CUBE,), {"axis": 1, "ord": math.inf}),
                Sample((CUBE,), {"axis": 1, "ord": -math.inf}),
                Sample((CUBE,), {"axis": 1, "ord": 3}),
                Sample((CUBE,), {"axis": 1, "ord": 0}),
            ],
            bad_samples=lambda: [
                BadSample((REAL,), ShapeError, "norm: ord='fro' is not a number", {"ord": "fro"})
            ],
            reference=_norm_reference,
        ),
        numerics="reassoc",
    ),
    Composite(
        dtypes=INEXACT,
        kind=Kind.REDUCTION,
        function=count_nonzero,
        tests=Tests(
            samples=lambda: [
                Sample((np.array([[0.0, 1.5, np.nan], [-0.0, 0.0, 2.0]]),), {"axis": 1}),
                Sample((np.array([[0, 1], [2, 3]], dtype=np.int32),)),
            ],
            reference=lambda x, axis=None, keepdims=False: np.count_nonzero(
                x, axis=axis, keepdims=keepdims
            ),
        ),
        numerics="exact",
        no_gradient="integer valued",
    ),
)
