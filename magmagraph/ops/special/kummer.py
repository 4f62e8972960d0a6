"""Kummer's confluent hypergeometric function, where its series alternates.

SciPy's recurrence loses all digits there for some arguments: 1F1(30, 0.3, -0.1) is -1.420, SciPy
1.17 gives -1.530. The terms of the series reach exp(2 sqrt(-a x)), 5e6 at the bound that is taken
here, so that sums of twice the digits of float64 leave all of the digits of the result.
"""

from __future__ import annotations

from typing import Any

__all__ = ["alternates", "series"]

_LARGEST_ARGUMENT = 1.0
_LARGEST_PRODUCT = 60.0  # of -a x
_LEAST_B = 1e-3
_LARGEST_PARAMETER = 1e15
# Term k is at most prod((60 + j) / ((b + j) (j + 1)), j < k), less than 1e-24 of the largest one
# from k = 56 on, for each b of at least 1e-3.
_TERMS = 56

Pair = tuple[Any, Any]  # a sum of two float64, the second one less than an ulp of the first


def alternates(a: Any, b: Any, x: Any) -> Any:
    """Return where `series` is right to the last digits, and SciPy need not be."""
    return (
        (abs(x) <= _LARGEST_ARGUMENT)
        & (a * x < 0)
        & (-a * x <= _LARGEST_PRODUCT)
        & (abs(a) <= _LARGEST_PARAMETER)
        & (b >= _LEAST_B)
        & (b <= _LARGEST_PARAMETER)
    )


def series(a: Any, b: Any, x: Any) -> Any:
    """Return the sum of (a)_k x^k / ((b)_k k!) of arrays of float64, in twice their digits.

    Examples
    --------
    >>> import numpy as np
    >>> series(np.array([30.0]), np.array([0.3]), np.array([-0.1])).round(6)
    array([-1.420475])
    """
    zero = 0.0 * x
    term: Pair = (zero + 1.0, zero)
    total = term
    for k in range(_TERMS):
        factor = _times(_sum(a, zero + k), (x, zero))
        divisor = _times(_sum(b, zero + k), (zero + (k + 1.0), zero))
        term = _over(_times(term, factor), divisor)
        high, low = _sum(total[0], term[0])
        total = _fast_sum(high, low + (total[1] + term[1]))
    return total[0] + total[1]


def _sum(a: Any, b: Any) -> Pair:
    """Return the rounded sum of two numbers, and its error."""
    high = a + b
    part = high - a
    return high, (a - (high - part)) + (b - part)


def _fast_sum(a: Any, b: Any) -> Pair:
    """Return what `_sum` does, for numbers of which the first is the larger one."""
    high = a + b
    return high, b - (high - a)


def _halves(a: Any) -> Pair:
    """Return two numbers of 26 bits whose sum is a number."""
    wide = 134217729.0 * a  # 2**27 + 1
    high = wide - (wide - a)
    return high, a - high


def _product(a: Any, b: Any) -> Pair:
    """Return the rounded product of two numbers, and its error."""
    result = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return result, ((a1 * b1 - result) + a1 * b2 + a2 * b1) + a2 * b2


def _times(a: Pair, b: Pair) -> Pair:
    high, low = _product(a[0], b[0])
    return _fast_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def _over(a: Pair, b: Pair) -> Pair:
    first = a[0] / b[0]
    high, low = _product(first, b[0])
    rest = (a[0] - high) - low + a[1] - first * b[1]
    return _fast_sum(first, rest / b[0])
