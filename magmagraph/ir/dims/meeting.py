"""What happens where two extents meet: unification, requirements, broadcasting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Literal

from ...errors import ShapeError, message
from ..records import record
from .algebra import Extent, floor_div, lower, terms_of, upper
from .binding import evaluate, names


@record(frozen=True)
class Constraint:
    """A relation between extents that must hold at every call.

    Parameters
    ----------
    left, right : int or Dim
    relation : "==" or ">="

    Examples
    --------
    >>> from magmagraph.ir.dims import Dim
    >>> constraint = Constraint(Dim("n"), ">=", 2)
    >>> constraint, constraint.check({"n": 1}), constraint.check({"n": 2})
    (n >= 2, False, True)
    """

    left: Extent
    relation: Literal["==", ">="]
    right: Extent

    def check(self, sizes: Mapping[str, int]) -> bool:
        """Tell whether it holds where the dimensions have these sizes."""
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        return left == right if self.relation == "==" else left >= right

    def __repr__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


class BroadcastFailure(ShapeError):
    """Two operands of a broadcast do not meet.

    axis (int): The axis of the result, counted from the right: -1 is the last.
    first, second (int): Which operands.
    left, right (int or Dim): Their extents there.
    """

    def __init__(self, axis: int, first: int, second: int, left: Extent, right: Extent) -> None:
        self.axis, self.first, self.second = axis, first, second
        self.left, self.right = left, right
        super().__init__(
            message(
                f"extents {left} and {right} do not meet at axis {axis}",
                need=meeting_need(left, right),
            )
        )

    def __reduce__(self) -> tuple[type[BroadcastFailure], tuple[int, int, int, Extent, Extent]]:
        return type(self), (self.axis, self.first, self.second, self.left, self.right)


def meeting_need(left: Extent, right: Extent) -> str:
    """Say what two extents that do not meet would have to be."""
    if isinstance(left, int) and isinstance(right, int):
        return "equal extents, or one of them 1"
    return "the same extent, or a literal 1 (a named dimension never broadcasts)"


def require(
    left: Extent,
    relation: Literal["==", ">="],
    right: Extent,
    constraints: list[Constraint] | None,
) -> bool:
    """Demand a relation: proved, refuted, or left to the call.

    left, right (int or Dim):
    relation ("==" or ">="):
    constraints (list of Constraint, or None): Where the relation is appended if it can be decided
        only at the call. With None nothing may stay open: such a relation counts as refuted.
    returns (bool): False if it cannot hold, or may not stay open.

    Examples
    --------
    >>> from magmagraph.ir.dims import Dim
    >>> left = []
    >>> require(Dim("n") + 2, ">=", 2, left), require(Dim("n"), ">=", 2, left), left
    (True, True, [n >= 2])
    >>> require(2 * Dim("n"), "==", 7, left)
    False
    """
    difference = left - right
    low, high = lower(difference), upper(difference)
    if relation == ">=":
        if low >= 0:
            return True
        possible = high >= 0
    else:
        if low == high == 0:
            return True
        possible = low <= 0 <= high and _divides(difference)
    if not possible or constraints is None:
        return False
    constraints.append(Constraint(left, relation, right))
    return True


def _divides(difference: Extent) -> bool:
    """Whether the sum can be zero: its constant is a multiple of the coefficients' divisor."""
    constant = 0
    shared = 0
    for monomial, count in terms_of(difference):
        if monomial:
            shared = gcd(shared, count)
        else:
            constant = count
    return not constant % shared if shared else not constant


def unify(left: Extent, right: Extent, constraints: list[Constraint]) -> Extent | None:
    """Let two extents meet that must be the same.

    left, right (int or Dim):
    constraints (list of Constraint): Gains an equality where only the call can tell.
    returns (int or Dim or None): The more specific of the two: an int before a Dim, a name before
        an anonymous dimension. None where they cannot be the same, or are different names.

    Examples
    --------
    >>> from magmagraph.ir.dims import Dim
    >>> open_questions = []
    >>> n = Dim("n")
    >>> unify(n, 5, open_questions), unify(n, Dim("m"), open_questions), open_questions
    (5, None, [n == 5])
    >>> print(unify(n, n + 1, open_questions))
    None
    """
    if left is right or left == right:
        return left
    if isinstance(left, int):
        if isinstance(right, int):
            return None
        return left if require(right, "==", left, constraints) else None
    if isinstance(right, int):
        return right if require(left, "==", right, constraints) else None
    ours, theirs = names(left), names(right)
    anonymous = any(name[0] == "?" for name in ours), any(name[0] == "?" for name in theirs)
    if ours != theirs and not any(anonymous):
        return None
    if not require(left, "==", right, constraints):
        return None
    return right if anonymous[0] and not anonymous[1] else left


def broadcast(
    shapes: Sequence[tuple[Extent, ...]], constraints: list[Constraint]
) -> tuple[Extent, ...]:
    """Align shapes from the right, as NumPy does, and find the shape of the result.

    A literal 1 stretches. A symbolic extent never does, even where its size turns out to be 1: it
    meets itself or a literal 1, and an int only under the constraint of being that int.

    shapes (sequence of shapes):
    constraints (list of Constraint): Gains what only the call can tell.
    returns (tuple of int or Dim):
    raises BroadcastFailure: Naming axis, operands and extents.

    Examples
    --------
    >>> from magmagraph.ir.dims import Dim
    >>> broadcast([(2, 1), (3,)], [])
    (2, 3)
    >>> broadcast([(Dim("n"), 3), (4,)], [])
    Traceback (most recent call last):
    magmagraph.ir.dims.meeting.BroadcastFailure: extents 3 and 4 do not meet at axis -1
      expected: equal extents, or one of them 1
    """
    first = shapes[0] if shapes else ()
    if all(shape is first or shape == first for shape in shapes):
        return first
    rank = max(map(len, shapes))
    result: list[Extent] = []
    for axis in range(-rank, 0):
        extent: Extent = 1
        owner = 0
        for index, shape in enumerate(shapes):
            if -axis > len(shape):
                continue
            other = shape[axis]
            if other is extent or (isinstance(other, int) and other == 1):
                continue
            if isinstance(extent, int) and extent == 1:
                extent, owner = other, index
                continue
            met = unify(extent, other, constraints)
            if met is None:
                raise BroadcastFailure(axis, owner, index, extent, other)
            extent = met
        result.append(extent)
    return tuple(result)


def exact_divide(
    numerator: Extent, divisor: Extent, constraints: list[Constraint]
) -> Extent | None:
    """Divide where the division must come out even, as for the -1 of a reshape.

    returns (int or Dim or None): The quotient, under a constraint where only the call can tell that
        it is exact; None where it cannot be exact.

    Examples
    --------
    >>> from magmagraph.ir.dims import Dim
    >>> open_questions = []
    >>> n = Dim("n")
    >>> exact_divide(784 * n, 28, open_questions), open_questions
    (28*n, [])
    >>> exact_divide(n, 2, open_questions), open_questions
    (n//2, [2*(n//2) == n])
    >>> print(exact_divide(7, 2, open_questions))
    None
    """
    if isinstance(divisor, int) and divisor == 0:
        return None
    quotient = floor_div(numerator, divisor)
    return quotient if require(quotient * divisor, "==", numerator, constraints) else None
