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
import operator
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from ..errors import ArgumentError, ShapeError, message
from ..locking import shared_lock
from .atoms import (
    MOST_TERMS,
    Monomial,
    Terms,
    add,
    lower,
    multiply,
    order,
    too_large,
    upper,
)

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
        found = _NAMED.get(name)
        if found is not None:
            return found
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
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return _quotient(other, self)

    def __mod__(self, other: Extent) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return self - _quotient(self, other) * other

    def __rmod__(self, other: int) -> Extent:
        if operand_terms(other) is None:
            return NotImplemented
        return other - _quotient(other, self) * self

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
            from .text import write  # it computes with Dims, to write them shorter

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


def _quotient(numerator: Extent, divisor: Extent) -> Extent:
    from .division import floor_div  # which is written in terms of this class

    return floor_div(numerator, divisor)


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
            found = _NAMED.get(name)
            return _raw(((monomial, 1),), name) if found is None else found
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
