"""Windows for signals: one line of weights each, made where it is used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import canonical
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Composite, Kind, Sample
from ..convert import cast
from ..elementwise.arithmetic import divide, multiply, subtract
from ..elementwise.comparison import maximum
from ..elementwise.family import publish
from ..elementwise.math import cos, sqrt
from ..elementwise.signs import absolute
from ..indexing.gathering import size_of
from ..indexing.iota import IOTA
from ..rules.namesakes import namesake
from ..special.bessel import i0

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _turn(count: Any, dtype: Any) -> Node:
    """Return positions from 0 to 1, as floats; a single one is in the middle."""
    extent = dims.parse_shape((count,))[0]
    target = config.float_dtype if dtype is None else canonical(dtype)
    wide = np.dtype(np.float64) if target.itemsize == 8 else np.dtype(np.float32)
    places = IOTA(shape=(extent,), axis=0, dtype=wide)
    if isinstance(extent, int):
        return divide(places, float(extent - 1)) if extent > 1 else places + 0.5
    last = cast(size_of(extent - 1), wide)
    # For a single position the numerator is half of the divisor: it is in the middle.
    shift = maximum(subtract(1.0, last), 0.0) * 0.5
    return divide(places + shift, maximum(last, 1.0))


def _window(
    name: str, what: str, formula: str, weights: Callable[[Node], Node], example: str
) -> Any:
    def function(M: Any, dtype: Any = None) -> Node:
        place = _turn(M, dtype)
        result = weights(place)
        return cast(result, config.float_dtype if dtype is None else dtype)

    return publish(
        function,
        name,
        __name__,
        f"Make the {what} window, {formula} for x from 0 to 1.",
        """
        M: Number of weights: an int, a name or a Dim.
        dtype: `mg.config.float_dtype` unless said.
        returns: Of one axis; a single weight is 1.
        """,
        f"""
        >>> mg.{name}(5).eval().round(2)
        array({example}, dtype=float32)
        """,
    )


def _wave(place: Node, waves: int) -> Node:
    return cos(multiply(place, 2.0 * math.pi * waves))


bartlett = _window(
    "bartlett",
    "triangular",
    "``1 - abs(2x - 1)``",
    lambda place: 1.0 - absolute(place * 2.0 - 1.0),
    "[0. , 0.5, 1. , 0.5, 0. ]",
)
hanning = _window(
    "hanning",
    "von Hann",
    "``0.5 - 0.5 cos(2 pi x)``",
    lambda place: 0.5 - 0.5 * _wave(place, 1),
    "[0. , 0.5, 1. , 0.5, 0. ]",
)
hamming = _window(
    "hamming",
    "Hamming",
    "``0.54 - 0.46 cos(2 pi x)``",
    lambda place: 0.54 - 0.46 * _wave(place, 1),
    "[0.08, 0.54, 1.  , 0.54, 0.08]",
)
blackman = _window(
    "blackman",
    "Blackman",
    "``0.42 - 0.5 cos(2 pi x) + 0.08 cos(4 pi x)``",
    lambda place: 0.42 - 0.5 * _wave(place, 1) + 0.08 * _wave(place, 2),
    "[-0.  ,  0.34,  1.  ,  0.34, -0.  ]",
)


@documented
def kaiser(M: Any, beta: Any, dtype: Any = None) -> Node:
    """Make the Kaiser window, ``i0(beta sqrt(1 - (2x - 1)**2)) / i0(beta)`` for x from 0 to 1.

    M: Number of weights: an int, a name or a Dim.
    beta: How narrow it is: a number or a scalar node.
    dtype: `mg.config.float_dtype` unless said.
    returns: Of one axis; a single weight is 1. The gradient flows to `beta`.

    >>> mg.kaiser(3, 2.0).eval().round(4)
    array([0.4387, 1.    , 0.4387], dtype=float32)
    """
    place = _turn(M, dtype)
    away = place * 2.0 - 1.0
    inside = maximum(1.0 - multiply(away, away), 0.0)
    result = divide(i0(multiply(sqrt(inside), beta)), i0(cast(beta, place.dtype)))
    return cast(result, config.float_dtype if dtype is None else dtype)


def _record(function: Callable[..., Node], doc: str, samples: list[Sample]) -> Composite:
    standard = getattr(np, function.__name__)
    return namesake(
        Kind.INDEX,
        function,
        doc,
        samples,
        reference=lambda *numbers, dtype=None, **options: standard(*numbers, **options),
        numerics="reassoc",
    )


_COUNTS = [
    Sample((), {"M": 7}),
    Sample((), {"M": 6, "dtype": "float64"}),
    Sample((), {"M": 1}),
    Sample((), {"M": 0}),
]

RECORDS = (
    _record(bartlett, "The triangular window.", _COUNTS),
    _record(blackman, "Blackman's window.", _COUNTS),
    _record(hamming, "Hamming's window.", _COUNTS),
    _record(hanning, "The window of von Hann.", _COUNTS),
    _record(
        kaiser,
        "Kaiser's window.",
        [
            Sample((), {"M": 7, "beta": 8.5}),
            Sample((), {"M": 6, "beta": 0.5, "dtype": "float64"}),
            Sample((), {"M": 1, "beta": 3.0}),
        ],
    ),
)
