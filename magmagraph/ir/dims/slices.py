"""The extent of a slice."""

from __future__ import annotations

from ...errors import ShapeError, message
from .algebra import Dim, Extent, ceil_div, lower, maximum, minimum, upper
from .meeting import Constraint, require


def slice_extent(
    extent: Extent,
    start: Extent | None = None,
    stop: Extent | None = None,
    step: int | None = None,
    constraints: list[Constraint] | None = None,
) -> Extent:
    """Find how many elements ``x[start:stop:step]`` has along an axis.

    These are Python's rules, for symbolic extents, too: ``x[1:]`` and ``x[:-1]`` have
    ``max(n - 1, 0)`` elements, none where `n` is 0, and ``x[:5]`` has ``min(n, 5)``. A bound that
    is a Dim has to lie between 0 and the extent, which goes into `constraints`; without such a
    list the result is exact for every bound that is not negative.

    extent (int or Dim): Of the axis.
    start, stop (int, Dim or None): As in a slice. A Dim counts from the front, unless it is always
        negative.
    step (int or None): Not zero.
    constraints (list of Constraint, optional): Gains the requirements.
    returns (int or Dim):
    raises ShapeError: If the step is zero, or a bound's sign is not known and may not be required.

    Examples
    --------
    >>> n, needs = Dim("n"), []
    >>> [slice_extent(n, *bounds, constraints=needs)
    ...  for bounds in ((1, None), (2, -3), (None, 5), (None, None, 2), (None, None, -1))]
    [max(n - 1, 0), max(n - 5, 0), min(n, 5), (n + 1)//2, n]
    >>> slice_extent(n, Dim("k"), None, constraints=needs), needs
    (-k + n, [n >= k, n >= k])
    """
    stride = 1 if step is None else step
    if stride == 0:
        raise ShapeError(message("the step of a slice is 0", need="a step other than 0"))
    symbolic = isinstance(extent, Dim) or isinstance(start, Dim) or isinstance(stop, Dim)
    if not symbolic:
        return len(range(*slice(start, stop, stride).indices(extent)))
    if stride < 0:
        # The elements from start back to just after stop are those of [stop + 1 : start + 1].
        if isinstance(stop, int) and stop == -1:
            return 0
        low = None if stop is None else _after(extent, stop, constraints)
        high = None  # after the last element comes the end, which a slice cannot name
        if start is not None and not (isinstance(start, int) and start == -1):
            high = _after(extent, start, constraints)
    else:
        low, high = start, stop
    if isinstance(low, Dim) or isinstance(high, Dim) or isinstance(extent, int):
        return ceil_div(_between(extent, low, high, constraints), abs(stride))
    return maximum(ceil_div(_constant_cut(extent, low or 0, high), abs(stride)), 0)


def _constant_cut(extent: Dim, low: int, high: int | None) -> Extent:
    """The length of ``[low:high]`` where only the extent is symbolic; none where it is negative."""
    if low >= 0:
        if high is None or high < 0:
            return extent - low + (high or 0)
        return 0 if high <= low else minimum(extent, high) - minimum(extent, low)
    if high is None:
        return minimum(extent, -low)
    if high < 0:
        return 0 if high <= low else minimum(extent, -low) - minimum(extent, -high)
    return maximum(minimum(extent, high) - maximum(extent + low, 0), 0)


def _between(
    extent: Extent,
    start: Extent | None,
    stop: Extent | None,
    constraints: list[Constraint] | None,
) -> Extent:
    low = 0 if start is None else _position(extent, start, constraints)
    high = extent if stop is None else _position(extent, stop, constraints)
    if require(high, ">=", low, constraints):
        return high - low
    return maximum(high - low, 0)


def _position(extent: Extent, bound: Extent, constraints: list[Constraint] | None) -> Extent:
    """Where a bound of a slice falls, from the front, between 0 and the extent."""
    if upper(bound) < 0:
        return maximum(extent + bound, 0)
    _count_from_front(bound, constraints)
    if isinstance(bound, Dim) and require(extent, ">=", bound, constraints):
        return bound
    return minimum(bound, extent)


def _after(extent: Extent, bound: Extent, constraints: list[Constraint] | None) -> Extent:
    """The bound one element further, where that element is not the end."""
    if isinstance(bound, int):
        return bound + 1
    if upper(bound) < 0:  # counted from the end, and one further might be the end
        return maximum(extent + bound + 1, 0)
    _count_from_front(bound, constraints)
    return bound + 1


def _count_from_front(bound: Extent, constraints: list[Constraint] | None) -> None:
    """Require a bound that is not always negative to be never so."""
    if lower(bound) < 0 and not require(bound, ">=", 0, constraints):
        raise ShapeError(
            message(
                f"whether the slice bound {bound} is negative is not known before the call",
                need="a bound whose sign is known",
                hint="maximum(bound, 0) counts from the front",
            )
        )
