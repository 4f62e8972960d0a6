"""Division with rounding, minima and maxima of extents: the operations that make atoms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError, message
from .algebra import Dim, Extent, build, operand_terms
from .atoms import (
    MOST_TERMS,
    Floor,
    Least,
    Monomial,
    Terms,
    common,
    lower,
    multiply,
    order,
    terms_of,
    too_large,
    upper,
    without,
)


class ZeroExtentError(ShapeError, ZeroDivisionError):
    """An extent is divided by zero."""


def _scaled_down(terms: Terms, content: int, factor: Monomial) -> Extent:
    """Every term over `content` and `factor`; all but the constant must divide."""
    return build({without(m, factor) or (): count // content for m, count in terms})


def floor_div(numerator: Extent, divisor: Extent) -> Extent:
    """Divide and round down, as Python's ``//`` does.

    Parameters
    ----------
    numerator, divisor : int or Dim

    Returns
    -------
    int or Dim
        What divides is divided; what is left stays as one ``//``.

    Raises
    ------
    ShapeError, ZeroDivisionError
        If the divisor is the int 0.

    Examples
    --------
    >>> n = Dim("n")
    >>> floor_div(6 * n + 4, 4), floor_div(n * n - 1, n - 1), floor_div(floor_div(n, 2), 3)
    (n + n//2 + 1, n + 1, n//6)
    """
    if not isinstance(numerator, Dim) and not isinstance(divisor, Dim):
        return int(numerator) // int(divisor)
    if isinstance(divisor, np.integer):
        divisor = int(divisor)
    top, bottom = operand_terms(numerator), operand_terms(divisor)
    if top is None or bottom is None:
        raise ArgumentError(f"extents are int or Dim, not {numerator!r} // {divisor!r}")
    if not bottom:
        raise ZeroExtentError(message(f"{numerator} // 0"))
    if bottom[0][1] < 0:
        return floor_div(-numerator, -divisor)
    positive = lower(divisor) >= 0
    merged = _merged(top, divisor, (1, -1)) if positive else None
    if merged is not None:
        return merged
    quotient, rest = _divided(top, bottom)
    if not rest:
        return quotient
    content = math.gcd(*(count for _, count in rest + bottom))
    constant = bottom[0][1] if not bottom[0][0] else 0
    if constant:
        # floor((g*s + c) / (g*d)) = floor((s + floor(c/g)) / d), so the constant may be rounded
        content = math.gcd(constant, *(count for monomial, count in rest if monomial))
        if not rest[0][0]:
            return quotient
    factor = common([monomial for monomial, _ in rest + bottom])
    if content > 1 or factor:
        return quotient + floor_div(
            _scaled_down(rest, content, factor), _scaled_down(bottom, content, factor)
        )
    if positive:
        merged = _merged(rest, divisor, (1, -1))
        if merged is not None:
            return quotient + merged
        # floor(r/d) = -floor((d - 1 - r)/d): of the two the one with the smaller coefficients
        mirror_quotient, mirror = _divided(terms_of(divisor - 1 - build(dict(rest))), bottom)
        if not mirror:
            return quotient - mirror_quotient
        if (_weight(mirror) < _weight(rest)) if constant else rest[0][1] < 0 < mirror[0][1]:
            return quotient - mirror_quotient - floor_div(build(dict(mirror)), divisor)
    whole = quotient + build({(Floor(build(dict(rest)), divisor),): 1})
    only = lower(whole)
    return int(only) if only == upper(whole) else whole


def _weight(terms: Terms) -> tuple[Any, ...]:
    return tuple((order(monomial), count) for monomial, count in terms)


def _divided(top: Terms, bottom: Terms) -> tuple[Extent, Terms]:
    """Polynomial division with remainder; the remainder is the same for all equal residues."""
    lead, lead_count = bottom[0]
    left, quotient = dict(top), dict[Monomial, int]()
    rest: dict[Monomial, int] = {}
    while left:
        if len(quotient) + len(rest) + len(left) > MOST_TERMS:
            raise too_large(f"a quotient of more than {MOST_TERMS} terms")
        monomial = min(left, key=order)
        count = left[monomial]
        share = without(monomial, lead)
        times = 0 if share is None else count // lead_count
        if times and share is not None:
            quotient[share] = quotient.get(share, 0) + times
            for other, amount in multiply(((share, times),), bottom).items():
                left[other] = left.get(other, 0) - amount
        count = left.pop(monomial)
        if count:
            rest[monomial] = count
    return build(quotient), terms_of(build(rest))


def _merged(top: Terms, divisor: Extent, counts: tuple[int, ...]) -> Extent | None:
    """``(±(a//b) + k) // d`` as one division ``(±a + ... + b*k) // (b*d)``, where there is one."""
    for monomial, count in top:
        if count not in counts or len(monomial) != 1 or not isinstance(monomial[0], Floor):
            continue
        inner, others = monomial[0], len(top) > 1
        if isinstance(inner.divisor, Dim) and (others or count < 0 or lower(inner.divisor) < 0):
            continue
        shift = build({m: c for m, c in top if m != monomial})
        raised = inner.numerator if count > 0 else inner.divisor - 1 - inner.numerator
        return floor_div(raised + inner.divisor * shift, inner.divisor * divisor)
    return None


def minimum(left: Extent, right: Extent) -> Extent:
    """Take the smaller of two extents.

    Examples
    --------
    >>> n = Dim("n")
    >>> minimum(n, 5), minimum(n, n + 1), minimum(n, 0), minimum(n, 2) + maximum(n - 2, 0)
    (min(n, 5), n, 0, n)
    """
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        return min(left, right)
    if _equal(left, right):
        return min(left, right, key=_form)
    return right + _least(left - right)


def maximum(left: Extent, right: Extent) -> Extent:
    """Take the larger of two extents.

    Examples
    --------
    >>> maximum(Dim("n") - 2, 0), maximum(Dim("n"), 0)
    (max(n - 2, 0), n)
    """
    if not isinstance(left, Dim) and not isinstance(right, Dim):
        return max(left, right)
    if _equal(left, right):
        return max(left, right, key=_form)
    return left - _least(left - right)


def ceil_div(numerator: Extent, divisor: Extent) -> Extent:
    """Divide and round up.

    Examples
    --------
    >>> ceil_div(7, 2), ceil_div(Dim("n"), 2), ceil_div(4 * Dim("n"), 2)
    (4, (n + 1)//2, 2*n)
    """
    return -floor_div(-numerator, divisor)


def _equal(left: Extent, right: Extent) -> bool:
    """Whether two extents are proved equal; their forms may differ."""
    apart = left - right
    return lower(apart) == 0 == upper(apart)


def _form(extent: Extent) -> tuple[Any, ...]:
    terms = terms_of(extent)
    return len(terms), _weight(terms)


def _least(value: Extent) -> Extent:
    """``min(value, 0)``."""
    if not isinstance(value, Dim):
        return min(value, 0)
    if lower(value) >= 0:
        return 0
    if upper(value) <= 0:
        return value
    content = math.gcd(*(count for _, count in terms_of(value)))
    factor = tuple(
        atom
        for atom in common([monomial for monomial, _ in terms_of(value)])
        if isinstance(atom, str) or atom.low >= 0
    )
    if content > 1 or factor:
        return _least(_scaled_down(terms_of(value), content, factor)) * build({factor: content})
    for monomial, count in terms_of(value):
        if len(monomial) == 1 and isinstance(monomial[0], Least) and abs(count) == 1:
            whole = value if count > 0 else -value
            shift = whole - build({monomial: 1})
            both = shift, shift + monomial[0].argument  # `whole` is the smaller of the two
            for known, other in (both, both[::-1]):
                if lower(known) >= 0:  # min(min(k, e), 0) = min(e, 0) for k >= 0
                    settled = _least(other)
                    return settled if count > 0 else value + settled
    if terms_of(value)[0][1] < 0:  # min(e, 0) = e + min(-e, 0): the leading coefficient is positive
        flipped = -value
        assert isinstance(flipped, Dim)
        return value + build({(Least(flipped),): 1})
    return build({(Least(value),): 1})
