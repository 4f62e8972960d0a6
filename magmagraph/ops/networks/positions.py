"""Positions told to networks: sines and cosines that are added, or that turn pairs of features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import canonical
from ...errors import ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, multiply, subtract
from ..elementwise.family import floating
from ..elementwise.math import cos, exp, sin
from ..indexing.iota import IOTA
from ..indexing.keys import index
from ..shape.arrange import expand_dims, reshape
from ..shape.joining import concatenate, stack

__all__ = ["apply_rotary", "positional_encoding"]

FLOAT64 = np.dtype(np.float64)
FLOAT32 = np.dtype(np.float32)
INT32 = np.dtype(np.int32)


def _angles(positions: Node, pairs: int, base: float) -> Node:
    """Return ``position / base**(i / pairs)`` along a new last axis.

    In float64: of position 10,000 the angle in float32 is off by some 1e-3.
    """
    if not base > 0:
        raise ShapeError(message(f"the base of positions is {base}", need="a positive number"))
    step = -math.log(base) / max(pairs, 1)
    rates = exp(multiply(IOTA(shape=(pairs,), axis=0, dtype=FLOAT64), step))
    return multiply(expand_dims(cast(positions, FLOAT64), -1), rates)


def _check_even(name: str, width: Any) -> int:
    if not isinstance(width, int) or isinstance(width, bool) or width < 0 or width % 2:
        raise ShapeError(message(f"{name}: {width} features", need="an even number, known here"))
    return width


@grouped
@documented
def positional_encoding(
    length: Extent | str, features: int, *, base: float = 10000.0, dtype: Any = None
) -> Node:
    """Return the sines and cosines that tell positions to a network without an order of its own.

    ``sin(p / base**(2 i / features))`` at feature 2 i, the cosine behind it; A. Vaswani et al.,
    "Attention is all you need", NIPS 2017, section 3.5.

    length: The number of positions: an int or a dimension.
    features: An even number.
    base: The longest wavelength is 2 pi times it.
    dtype: Of the result; `mg.config.float_dtype` unless said.
    returns: Of shape ``(length, features)``.
    raises ShapeError: If `features` is not an even number.

    >>> mg.positional_encoding(2, 4).eval().round(3)
    array([[0.   , 1.   , 0.   , 1.   ],
           [0.841, 0.54 , 0.01 , 1.   ]], dtype=float32)
    """
    width = _check_even("positional_encoding", features)
    (count,) = dims.parse_shape((length,))
    angles = _angles(IOTA(shape=(count,), axis=0, dtype=INT32), width // 2, base)
    pairs = stack([sin(angles), cos(angles)], axis=-1)
    target = config.float_dtype if dtype is None else canonical(dtype)
    return cast(reshape(pairs, (count, width)), target)


@grouped
@documented
def apply_rotary(
    x: Any, positions: Any = None, *, base: float = 10000.0, interleaved: bool = False
) -> Node:
    """Turn pairs of features by angles that grow with the position.

    J. Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021, equation
    34: products of queries and keys then depend on the difference of their positions.

    x: Node or array of shape ``(..., length, features)``, the number of features even: queries or
        keys.
    positions: Integers that broadcast to ``(..., length)``; 0, 1, 2, ... unless said.
    base: Pair i is turned by ``position / base**(2 i / features)``.
    interleaved: Pairs are features 2 i and 2 i + 1; else i and ``features / 2 + i``.
    returns: Of the shape and float dtype of `x`.
    raises ShapeError: If the number of features is odd or not known, or `x` has fewer than two
        axes.

    >>> mg.apply_rotary([[1.0, 0.0], [1.0, 0.0]]).eval().round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]], dtype=float32)
    """
    node = floating(x)
    call = Call(APPLY_ROTARY, (node,))
    if node.ndim < 2:
        raise call.shape_error(
            f"an operand of {node.ndim} axes", need="shape (..., length, features)"
        )
    width = _check_even("apply_rotary", node.shape[-1])
    half = width // 2
    if positions is None:
        at = IOTA(shape=(node.shape[-2],), axis=0, dtype=INT32)
    else:
        at = as_node(positions, FLOAT64)
        call.broadcast(node.shape[:-1], at.shape)
    wide = cast(node, FLOAT32) if node.dtype.itemsize < 4 else node
    angles = _angles(at, half, base)
    turn, lift = cast(cos(angles), wide.dtype), cast(sin(angles), wide.dtype)
    if interleaved:
        pairs = reshape(wide, (*node.shape[:-1], half, 2))
        first, second = index(pairs, (..., 0)), index(pairs, (..., 1))
    else:
        first, second = index(wide, (..., slice(0, half))), index(wide, (..., slice(half, width)))
    rotated = [
        subtract(multiply(first, turn), multiply(second, lift)),
        add(multiply(second, turn), multiply(first, lift)),
    ]
    if interleaved:
        return cast(reshape(stack(rotated, axis=-1), node.shape), node.dtype)
    return cast(concatenate(rotated, axis=-1), node.dtype)


# Records.


def _encoding_reference(
    length: int, features: int, base: float = 10000.0, dtype: Any = None
) -> np.ndarray:
    encoding = np.empty((length, features))
    for p, i in np.ndindex(length, features):
        angle = p / base ** (2 * (i // 2) / features)
        encoding[p, i] = np.cos(angle) if i % 2 else np.sin(angle)
    return encoding


def _rotary_reference(
    x: np.ndarray, positions: Any = None, base: float = 10000.0, interleaved: bool = False
) -> np.ndarray:
    """Multiply each pair, as a complex number, by one of length 1."""
    half = x.shape[-1] // 2
    at = np.arange(x.shape[-2]) if positions is None else positions
    factor = np.exp(1j * np.asarray(at)[..., None] / base ** (np.arange(half) / half))
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    rotated = (first + 1j * second) * factor
    if interleaved:
        return np.stack([rotated.real, rotated.imag], -1).reshape(x.shape)
    return np.concatenate([rotated.real, rotated.imag], -1)


_FEATURES = np.cos(np.arange(24.0)).reshape(2, 3, 4)

POSITIONAL_ENCODING = Composite(
    kind=Kind.INDEX,
    function=positional_encoding,
    tests=Tests(
        samples=lambda: [
            Sample((), {"length": 5, "features": 6}),
            Sample((), {"length": 3, "features": 2, "base": 10.0, "dtype": "float64"}),
        ],
        bad_samples=lambda: [
            BadSample(
                (), ShapeError, "positional_encoding: 3 features", {"length": 2, "features": 3}
            )
        ],
        reference=_encoding_reference,
    ),
    no_gradient="a function of positions alone",
)
APPLY_ROTARY = Composite(
    kind=Kind.LAYOUT,
    function=apply_rotary,
    tests=Tests(
        samples=lambda: [
            Sample((_FEATURES,)),
            Sample((_FEATURES,), {"interleaved": True, "base": 100.0}),
            Sample((_FEATURES, np.array([7, 0, 2]))),
        ],
        bad_samples=lambda: [
            BadSample((_FEATURES[..., :3],), ShapeError, "apply_rotary: 3 features"),
            BadSample((_FEATURES[0, 0],), ShapeError, "apply_rotary: an operand of 1 axes"),
        ],
        reference=_rotary_reference,
    ),
)

RECORDS = (POSITIONAL_ENCODING, APPLY_ROTARY)
