"""Exact integer algebra for extents: the class Dim and its canonical form.

A Dim is a polynomial with integer coefficients. Its indeterminates ("atoms") are named
dimensions, anonymous dimensions (named ``?0``, ``?1``, ...), floor divisions that do not come out
even, and ``min(e, 0)`` for an `e` of unknown sign. Everything else is reduced to these:
``min(a, b) = b + min(a - b, 0)``, ``max(a, b) = a + b - min(a, b)``, and a ceiling is the floor
of a shifted numerator. Each constructor brings its result to one canonical form, so that equal
extents, however they were come by, compare equal: the halves ``x[:2]`` and ``x[2:]`` add up to
the extent of ``x``, and so do ``x[::2]`` and ``x[1::2]``.

Named dimensions are sizes: every argument about signs assumes them to be at least zero, and a
divisor that cannot be negative to be positive.
"""

from __future__ import annotations

import itertools
import math
import operator
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from ...errors import ArgumentError, ShapeError, message
from ..locking import shared_lock

if TYPE_CHECKING:
    from fractions import Fraction

# Atoms, and sums of their products.

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

    returns (int or -inf): Every value is at least this. It need not be the largest such number.
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


# Extents.

_MOST_POWER = 64  # of a dimension: an extent of 2 is then more than memory holds


class Dim:
    """An extent that is not known yet, as an exact integer expression.

    ``Dim("batch")`` is the dimension of that name, the same object as long as it lives. Arithmetic
    (``+ - * // %``, with ints on either side) gives a Dim, or an int where the result is
    constant. With floats and arrays, and in true divisions, it is the scalar node
    ``mg.extent(dim)``, and the result is a node; `ops/operators.py` adds this to the operators.

    Parameters
    ----------
    name : str
        A Python identifier.

    Raises
    ------
    ShapeError
        If the name is not an identifier.

    Examples
    --------
    >>> batch = Dim("batch")
    >>> batch == "batch", (batch * 784) // 784 == batch, batch - batch
    (True, True, 0)
    >>> 2 * batch + 1
    2*batch + 1
    >>> -(-batch // 2)
    (batch + 1)//2
    """

    __slots__ = ("__weakref__", "_hash", "_name", "_terms", "_text")
    __array_ufunc__: ClassVar[None] = None  # numpy integers on the left leave the work to Dim

    _terms: Terms
    _name: str | None
    _text: str | None
    _hash: int

    def __new__(cls, name: str) -> Dim:
        """Find or make the dimension of a name."""
        if not isinstance(name, str):
            raise ArgumentError(message(f"a dimension's name is {name!r}", need="a string"))
        interned = _NAMED.get(name)
        if interned is not None:
            return interned
        if not name.isidentifier():
            raise ShapeError(
                message(
                    f"{name!r} is not a name for a dimension",
                    need="a Python identifier",
                    hint="an expression is built by arithmetic: mg.Dim('batch') * 2",
                )
            )
        return _named(name)

    @property
    def name(self) -> str | None:
        """The name, where this is a plain dimension; None for a compound expression."""
        return self._name

    @property
    def anonymous(self) -> bool:
        """Whether this is a plain dimension that was given no name."""
        return self._name is not None and self._name[0] == "?"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Dim):
            return self._hash == other._hash and self._terms == other._terms
        if isinstance(other, str):
            return self._name == other
        return NotImplemented

    if TYPE_CHECKING:  # ops/operators.py defines these: their results are nodes

        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...

    def __add__(self, other: Extent) -> Extent:
        terms = operand_terms(other)
        if terms is None:
            return NotImplemented
        return build(add(self._terms, terms))

    __radd__ = __add__

    def __sub__(self, other: Extent) -> Extent:
        terms = operand_terms(other)
        if terms is None:
            return NotImplemented
        return build(add(self._terms, terms, -1))

    def __rsub__(self, other: int) -> Extent:
        terms = operand_terms(other)
        if terms is None:
            return NotImplemented
        return build(add(terms, self._terms, -1))

    def __mul__(self, other: Extent) -> Extent:
        terms = operand_terms(other)
        if terms is None:
            return NotImplemented
        return build(multiply(self._terms, terms))

    __rmul__ = __mul__

    def __pow__(self, other: Any) -> Any:
        if not isinstance(other, (int, np.integer)) or other < 0:
            return NotImplemented
        if other > _MOST_POWER:
            raise ArgumentError(
                message(f"{self}**{other} of a dimension", need=f"at most {_MOST_POWER}")
            )
        result: Extent = 1
        for _ in range(other):
            result = result * self
        return result

    def __neg__(self) -> Extent:
        return build({monomial: -count for monomial, count in self._terms})

    def __pos__(self) -> Dim:
        return self

    def __floordiv__(self, other: Extent) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return floor_div(self, other)

    def __rfloordiv__(self, other: int) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return floor_div(other, self)

    def __mod__(self, other: Extent) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return self - floor_div(self, other) * other

    def __rmod__(self, other: int) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return other - floor_div(other, self) * self

    def __lt__(self, other: Extent) -> bool:
        return _decide(self, "<", other)

    def __le__(self, other: Extent) -> bool:
        return _decide(self, "<=", other)

    def __gt__(self, other: Extent) -> bool:
        return _decide(self, ">", other)

    def __ge__(self, other: Extent) -> bool:
        return _decide(self, ">=", other)

    def __bool__(self) -> bool:
        if lower(self) > 0 or upper(self) < 0:
            return True
        raise ArgumentError(
            message(
                f"whether the extent {self} is zero is not known before the call",
                hint="ask isinstance(extent, int) first, or compare with ==",
            )
        )

    def __int__(self) -> int:
        raise _no_number(self)

    def __index__(self) -> int:
        raise _no_number(self)

    def __float__(self) -> float:
        raise _no_number(self)

    def __repr__(self) -> str:
        text = self._text
        if text is None:
            text = self._text = write(self)
        return text

    def __copy__(self) -> Dim:
        return self

    def __deepcopy__(self, memo: Any) -> Dim:
        return self

    def __reduce__(self) -> tuple[Any, tuple[Terms]]:
        return _restored, (self._terms,)


Extent: TypeAlias = int | Dim

_NAMED: weakref.WeakValueDictionary[str, Dim] = weakref.WeakValueDictionary()
_anonymous_lock = shared_lock()
_anonymous_numbers = itertools.count()


def anonymous() -> Dim:
    """Make an extent without a name, different from every other.

    Examples
    --------
    >>> anonymous() == anonymous()
    False
    """
    number = next(_anonymous_numbers)
    return _raw((((f"?{number}",), 1),), f"?{number}")


def _named(name: str) -> Dim:
    """The dimension of a name that is known to be well formed."""
    return _NAMED.setdefault(name, _raw((((name,), 1),), name))


def atom_dim(name: str) -> Dim:
    """The plain dimension of an atom, anonymous or named, as text or a file has it."""
    global _anonymous_numbers
    if name[0] != "?":
        return Dim(name)
    with _anonymous_lock:  # those made from now on are different from the one that was read
        taken = int(name[1:])
        if next(_anonymous_numbers) <= taken:
            _anonymous_numbers = itertools.count(taken + 1)
    return _raw((((name,), 1),), name)


def _raw(terms: Terms, name: str | None = None) -> Dim:
    dim = object.__new__(Dim)
    dim._terms, dim._name, dim._text = terms, name, name
    dim._hash = hash(terms if name is None else name)  # as the string's: dict look-ups agree
    return dim


def _restored(terms: Terms) -> Dim:
    """Unpickle: names find their one object, anonymous numbers are taken from now on."""
    for monomial, _ in terms:
        for atom in monomial:
            if isinstance(atom, str):
                atom_dim(atom)
    built = build(dict(terms))
    assert isinstance(built, Dim)
    return built


def _no_number(dim: Dim) -> ArgumentError:
    return ArgumentError(
        message(
            f"the extent {dim} is known only at the call, and no number stands for it here",
            hint="give the axis an int in the input's shape, or compute with the extent itself",
        )
    )


def build(terms: Mapping[Monomial, int]) -> Extent:
    """The one constructor of sums: an int where nothing but a constant is left."""
    kept = [item for item in terms.items() if item[1]]
    if not kept:
        return 0
    if len(kept) == 1:
        monomial, count = kept[0]
        if not monomial:
            return count
        if count == 1 and len(monomial) == 1 and isinstance(monomial[0], str):
            name = monomial[0]
            interned = _NAMED.get(name)
            return _raw(((monomial, 1),), name) if interned is None else interned
    else:
        if len(kept) > MOST_TERMS:
            raise too_large(f"{len(kept)} terms")
        kept.sort(key=lambda item: order(item[0]))
    return _raw(tuple(kept))


def operand_terms(value: object) -> Terms | None:
    """The terms of what Dims compute with, None for everything else."""
    if isinstance(value, Dim):
        return value._terms
    if isinstance(value, (int, np.integer)):
        return (((), int(value)),) if value else ()
    return None


_COMPARISONS = {
    "<": (operator.lt, operator.ge),
    "<=": (operator.le, operator.gt),
    ">": (operator.gt, operator.le),
    ">=": (operator.ge, operator.lt),
}


def _decide(left: Dim, relation: str, right: Extent) -> bool:
    """A comparison, where the signs of the sizes alone decide it."""
    if operand_terms(right) is None:
        undecided: bool = NotImplemented
        return undecided
    difference = left - right
    holds, fails = _COMPARISONS[relation]
    low, high = lower(difference), upper(difference)
    if holds(low, 0) and holds(high, 0):
        return True
    if fails(low, 0) and fails(high, 0):
        return False
    raise ArgumentError(
        message(
            f"whether {left} {relation} {right} is not known before the call",
            hint="use minimum and maximum of the extents, or give the axis an int",
        )
    )


# Division, minima and maxima: the operations that make atoms.


class ZeroExtentError(ShapeError, ZeroDivisionError):
    """An extent is divided by zero."""


def _scaled_down(terms: Terms, content: int, factor: Monomial) -> Extent:
    """Every term over `content` and `factor`; all but the constant must divide."""
    return build({without(m, factor) or (): count // content for m, count in terms})


def floor_div(numerator: Extent, divisor: Extent) -> Extent:
    """Divide and round down, as Python's ``//`` does.

    numerator, divisor (int or Dim):
    returns (int or Dim): What divides is divided; what is left stays as one ``//``.
    raises ShapeError, ZeroDivisionError: If the divisor is the int 0.

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
            for one, other in (both, both[::-1]):
                if lower(one) >= 0:  # min(min(k, e), 0) = min(e, 0) for k >= 0
                    settled = _least(other)
                    return settled if count > 0 else value + settled
    if terms_of(value)[0][1] < 0:  # min(e, 0) = e + min(-e, 0): the leading coefficient is positive
        flipped = -value
        assert isinstance(flipped, Dim)
        return value + build({(Least(flipped),): 1})
    return build({(Least(value),): 1})


# Text, which `text.parse` reads back.


def write(dim: Dim) -> str:
    """Write a Dim so that ``parse`` reads it back.

    A sole ``min(e, 0)`` or rounded-up division is written together with the terms that complete
    it: ``min(n, 5)`` for ``min(n - 5, 0) + 5``, ``(n + 1)//2`` for ``n - n//2``.
    """
    special = _compound(dim)
    if len(special) == 1 and len(special[0][0]) == 1 and len(terms_of(dim)) > 1:
        (atom,), count = special[0]
        rest = dim - count * build({(atom,): 1})
        if isinstance(atom, Least) and abs(count) == 1:
            name = "min" if count == 1 else "max"
            pair = sorted([rest + count * atom.argument, rest], key=lambda e: isinstance(e, int))
            return f"{name}({pair[0]}, {pair[1]})"
        if isinstance(atom, Floor) and count == -1 and isinstance(atom.divisor, int):
            top = atom.divisor - 1 - atom.numerator + atom.divisor * rest
            small = all(0 < c < atom.divisor for m, c in terms_of(top) if m)
            if small and floor_div(top, atom.divisor) == dim:
                return Floor(top, atom.divisor).text
    return "".join(_term(*term, first=i == 0) for i, term in enumerate(terms_of(dim)))


def _compound(dim: Dim) -> list[tuple[Monomial, int]]:
    """The terms that have more to them than plain dimensions."""
    return [(m, c) for m, c in terms_of(dim) if any(not isinstance(atom, str) for atom in m)]


def _term(monomial: Monomial, count: int, first: bool) -> str:
    sign = ("-" if count < 0 else "") if first else (" - " if count < 0 else " + ")
    if not monomial:
        return f"{sign}{abs(count)}"
    bare = len(monomial) == 1 and abs(count) == 1 and sign != "-"
    factors = [
        f"({key(atom)})" if isinstance(atom, Floor) and not bare else key(atom) for atom in monomial
    ]
    return sign + "*".join(factors if abs(count) == 1 else [str(abs(count)), *factors])
