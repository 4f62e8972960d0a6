"""The indeterminates of extents, and what is known about the sign of an extent.

An extent is an int or a sum of terms, each an int coefficient times a monomial: a sorted tuple of
atoms, where an atom is the name of a dimension, a floor division or a minimum with zero.
:func:`lower` and :func:`upper` bound such a sum, given that dimensions are at least zero; canonical
forms and the proofs that a requirement always holds rest on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ..errors import ShapeError, message

if TYPE_CHECKING:
    from fractions import Fraction

    from .algebra import Dim, Extent

INFINITY: Final = math.inf
MOST_TERMS: Final = 256  # of an extent: products of sums multiply their numbers
MOST_TEXT: Final = 4000  # characters of an atom: minima inside minima double them
SPLITS: Final = 4  # how many atoms a bound looks into, one inside another: the work is 3**SPLITS

Bound: TypeAlias = "int | float | Fraction"


class Floor:
    """The atom ``numerator // divisor``; made by floor_div only, which sees to the form."""

    __slots__ = ("divisor", "high", "low", "numerator", "text")

    def __init__(self, numerator: Extent, divisor: Extent) -> None:
        self.numerator, self.divisor = numerator, divisor
        self.text = _bounded(f"{_enclosed(numerator)}//{_enclosed(divisor)}")
        self.low: Bound = -INFINITY
        self.high: Bound = INFINITY
        if lower(divisor) >= 0 and lower(numerator) >= 0:
            self.low, self.high = 0, upper(numerator)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Floor) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, tuple[Extent, Extent]]:
        return Floor, (self.numerator, self.divisor)


class Least:
    """The atom ``min(argument, 0)``; made by minimum only, which sees to the form."""

    __slots__ = ("argument", "high", "low", "text")

    def __init__(self, argument: Dim) -> None:
        self.argument = argument
        self.text = _bounded(f"min({argument}, 0)")
        self.low: Bound = lower(argument)
        self.high: Bound = 0

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Least) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[Any, tuple[Dim]]:
        return Least, (self.argument,)


Atom: TypeAlias = str | Floor | Least
Monomial: TypeAlias = tuple[Atom, ...]  # sorted, an atom once for each power
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]  # sorted: leading term first, constant last


class LongExtent(ShapeError):
    """An extent is too long to compute with."""


def too_large(what: str, need: str = f"at most {MOST_TERMS} terms") -> LongExtent:
    """Make (not raise) the error for an extent that is too long to compute with."""
    return LongExtent(message(f"an extent has {what}", need=need))


def _bounded(text: str) -> str:
    if len(text) > MOST_TEXT:
        raise too_large(f"{len(text)} characters", f"at most {MOST_TEXT}")
    return text


def key(atom: Atom) -> str:
    """The text of an atom: equal for equal atoms."""
    return atom if isinstance(atom, str) else atom.text


def _rank(atom: Atom) -> tuple[bool, str]:
    """Names before compound atoms, each in the order of their texts."""
    return (False, atom) if isinstance(atom, str) else (True, atom.text)


def terms_of(extent: Extent) -> Terms:
    """The terms of an extent, (monomial, coefficient) each, the leading one first."""
    if isinstance(extent, int):
        return (((), extent),) if extent else ()
    return extent._terms


def order(monomial: Monomial) -> tuple[int, tuple[tuple[bool, str], ...]]:
    """Leading monomials first: an order that multiplication keeps (graded lexicographic)."""
    return -len(monomial), tuple(map(_rank, monomial))


def add(left: Terms, right: Terms, scale: int = 1) -> dict[Monomial, int]:
    """``left + scale * right``."""
    terms = dict(left)
    for monomial, count in right:
        terms[monomial] = terms.get(monomial, 0) + scale * count
    return terms


def multiply(left: Terms, right: Terms) -> dict[Monomial, int]:
    """``left * right``."""
    if len(left) * len(right) > MOST_TERMS and min(len(left), len(right)) > 1:
        raise too_large(f"a product of {len(left)} and {len(right)} terms")
    terms: dict[Monomial, int] = {}
    for a, x in left:
        for b, y in right:
            both = tuple(sorted(a + b, key=_rank)) if a and b else a or b
            terms[both] = terms.get(both, 0) + x * y
    return terms


def without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """``monomial / factor``, or None where it does not divide."""
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def common(monomials: list[Monomial]) -> Monomial:
    """The largest monomial that divides all."""
    shared = list(monomials[0])
    for monomial in monomials[1:]:
        left, kept = list(monomial), list[Atom]()
        for atom in shared:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        shared = kept
    return tuple(shared)


def _enclosed(extent: Extent) -> str:
    """The text of an extent as an operand of ``//``."""
    plain = extent >= 0 if isinstance(extent, int) else extent.name is not None
    return str(extent) if plain else f"({extent})"


def lower(extent: Extent) -> int | float:
    """Bound an extent from below, for all sizes of its dimensions.

    Returns
    -------
    int or -inf
        Every value is at least this. It need not be the largest such number.
    """
    if isinstance(extent, (int, np.integer)):
        return int(extent)
    if extent.name is not None:
        return 0
    bound = _lowest(dict(extent._terms), SPLITS)
    return bound if isinstance(bound, float) else math.ceil(bound)


def upper(extent: Extent) -> int | float:
    """Bound an extent from above; see :func:`lower`."""
    if isinstance(extent, (int, np.integer)):
        return int(extent)
    if extent.name is not None:
        return INFINITY
    bound = _lowest({monomial: -count for monomial, count in extent._terms}, SPLITS)
    return -bound if isinstance(bound, float) else -math.ceil(bound)


def _lowest(terms: Mapping[Monomial, int | Fraction], splits: int) -> Bound:
    """A lower bound: by intervals, and by opening one atom, whose parts may cancel others."""
    best: Bound = 0
    opened: tuple[Floor | Least, int | Fraction] | None = None
    for monomial, count in terms.items():
        low, high = _span(monomial)
        best += min(_times(count, low), _times(count, high))
        if len(monomial) == 1 and not isinstance(monomial[0], str) and count and opened is None:
            opened = monomial[0], count
    if opened is None or not splits:
        return best
    atom, count = opened
    rest = {monomial: c for monomial, c in terms.items() if monomial != (atom,)}
    if isinstance(atom, Least):
        zero = _lowest(rest, splits - 1)
        other = _lowest(_plus(rest, count, atom.argument), splits - 1)
        return max(best, min(zero, other) if count > 0 else max(zero, other))
    edge = min(_times(count, atom.low), _times(count, atom.high))
    best = max(best, _lowest(rest, splits - 1) + edge)
    if isinstance(atom.divisor, int):  # (a - d + 1)/d <= a//d <= a/d
        numerator = atom.numerator - (atom.divisor - 1 if count > 0 else 0)
        from fractions import Fraction  # floors of dimensions are rare, its import is long

        share = Fraction(count) / atom.divisor
        best = max(best, _lowest(_plus(rest, share, numerator), splits - 1))
    return best


def _plus(
    terms: Mapping[Monomial, int | Fraction], factor: int | Fraction, extent: Extent
) -> dict[Monomial, int | Fraction]:
    total = dict(terms)
    for monomial, count in terms_of(extent):
        total[monomial] = total.get(monomial, 0) + factor * count
    return total


def _span(monomial: Monomial) -> tuple[Bound, Bound]:
    """The interval of a product of atoms."""
    low: Bound = 1
    high: Bound = 1
    for atom in monomial:
        first, last = (0, INFINITY) if isinstance(atom, str) else (atom.low, atom.high)
        corners = [_times(a, b) for a in (low, high) for b in (first, last)]
        low, high = min(corners), max(corners)
    return low, high


def _times(left: Bound, right: Bound) -> Bound:
    """A product in which zero times infinity is zero."""
    return left * right if left and right else 0
