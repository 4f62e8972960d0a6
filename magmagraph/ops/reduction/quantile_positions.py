"""Where quantiles stand among sorted elements, and what lies between two of them."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Node
from ..elementwise.arithmetic import multiply, remainder, subtract
from ..elementwise.bits import logical_and, logical_or
from ..elementwise.comparison import clip, equal, less, where
from ..elementwise.rounding import ceil, floor, isinf, rint

__all__ = ["METHODS", "between", "neighbours", "position"]

# Positions of the quantile q among n sorted elements, counted from 0, are n q + a + q (1 - a - b)
# - 1 for the parameters (a, b) (Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996).
_INTERPOLATED = {
    "linear": (1.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1.0 / 3.0, 1.0 / 3.0),
    "normal_unbiased": (3.0 / 8.0, 3.0 / 8.0),
    "interpolated_inverted_cdf": (0.0, 1.0),
}
_OBSERVED = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation")
METHODS = (*_INTERPOLATED, *_OBSERVED, "lower", "higher", "midpoint", "nearest")


def position(q: Node, count: Any, method: str) -> Node:
    """Return the positions of quantiles among sorted elements, as floats."""
    last = subtract(count, 1.0)
    if method in _INTERPOLATED:
        a, b = _INTERPOLATED[method]
        if (a, b) == (1.0, 1.0):
            return multiply(q, last)
        place = count * q + (a + q * (1.0 - a - b)) - 1.0
        return clip(place, 0.0, last)
    if method in _OBSERVED:
        return clip(_observed(q, count, method), 0.0, last)
    place = multiply(q, last)
    if method == "lower":
        return floor(place)
    if method == "higher":
        return ceil(place)
    if method == "nearest":
        return rint(place)
    return (floor(place) + ceil(place)) * 0.5


def _observed(q: Node, count: Any, method: str) -> Node:
    """Return the positions of the methods that take observations (1 to 3 of Hyndman and Fan)."""
    place = multiply(q, count) - (1.5 if method == "closest_observation" else 1.0)
    whole = floor(place)
    exact = equal(place, whole)
    if method == "inverted_cdf":
        return ceil(place)
    if method == "averaged_inverted_cdf":
        return where(exact, place + 0.5, ceil(place))
    even = equal(remainder(whole, 2.0), 1.0)  # counted from 1
    return where(logical_and(exact, even), whole, whole + 1.0)


def between(low: Node, high: Node, share: Node) -> Node:
    """Interpolate, between equals too; no infinite width is multiplied by 0."""
    width = subtract(high, low)
    alike = logical_and(equal(low, high), isinf(low))
    still = logical_or(alike, logical_and(equal(share, 0), isinf(width)))
    width = where(still, 0, width)
    near, far = low + width * share, high - width * (1.0 - share)
    return where(still, low, where(less(share, 0.5), near, far))


def neighbours(place: Node, last: Any) -> tuple[Node, Node]:
    """Return the positions below and above a place among elements up to `last`."""
    low = clip(floor(place), 0.0, last)
    return low, clip(low + 1.0, 0.0, last)
