"""Random numbers as nodes: the distributions that are exact functions of their bits, and normal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dtypes import canonical, iinfo, is_integer
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call
from ...ir.types import Extent
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, multiply, remainder, subtract
from ..elementwise.bits import bitwise_and, right_shift
from ..elementwise.comparison import less
from ..elementwise.math import cos, log, sqrt
from ..indexing.gathering import take, take_along_axis
from ..indexing.sorting import argsort
from ..leaf import constant, extent
from .bits import (
    DIGITS,
    FLOAT32,
    FLOAT64,
    RANDOM_BITS,
    RANDOM_STEP,
    Key,
    drawing_record,
    fitted,
    parameter,
    result_dtype,
    seed,
    sources,
    unit,
    wide,
)
from .philox import UINT32, UINT64

__all__ = [
    "RANDOM_BITS",
    "RANDOM_STEP",
    "bernoulli",
    "normal",
    "permutation",
    "randint",
    "seed",
    "uniform",
]


@documented
def uniform(
    shape: Any = (),
    low: Any = 0.0,
    high: Any = 1.0,
    dtype: Any = None,
    *,
    key: Key | None = None,
) -> Node:
    """Draw numbers that are uniform in ``[low, high)``.

    shape: Of the result: ints, names, Dims.
    low, high: Numbers, arrays or nodes that broadcast to `shape`. Gradients flow to them: ``low +
        (high - low) * u``.
    dtype: A float dtype; `mg.config.float_dtype`, or that of the parameters, unless said.
    returns: New numbers at every call of a function. ``u`` has as many random digits as the dtype's
        significand (float32: 24).
    raises ShapeError: If a parameter does not broadcast to `shape`.
    raises DTypeError: If `dtype` is not a float.

    >>> mg.random.seed(0)
    >>> x = mg.random.uniform((1000,), low=-1.0).eval()
    >>> bool((x >= -1).all() and (x < 1).all())
    True
    """
    target = result_dtype("uniform", dtype, low, high)
    extents = dims.parse_shape(shape)
    computing = wide(target)
    (words,) = sources(extents, UINT64 if target == FLOAT64 else UINT32, key=key)
    share = unit(words, computing, DIGITS[target.name])
    plain = type(low) in (int, float) and type(high) in (int, float)
    if plain and low == 0 and high == 1:
        return cast(share, target)
    start, end = parameter(low, computing), parameter(high, computing)
    result = add(start, multiply(subtract(end, start), share))
    return cast(fitted("uniform", result, extents), target)


@documented
def normal(
    shape: Any = (),
    mean: Any = 0.0,
    std: Any = 1.0,
    dtype: Any = None,
    *,
    key: Key | None = None,
) -> Node:
    """Draw normally distributed numbers.

    Two words make one number: ``sqrt(-2 log u1) * cos(2 pi u2)`` (G. Box, M. Muller, 1958).

    shape: Of the result: ints, names, Dims.
    mean, std: Numbers, arrays or nodes that broadcast to `shape`. Gradients flow to them: ``mean +
        std * z``.
    dtype: A float dtype; `mg.config.float_dtype`, or that of the parameters, unless said.
    returns: New numbers at every call of a function; none lies further than 6.8 standard deviations
        from the mean (8.7 in float64).
    raises ShapeError: If a parameter does not broadcast to `shape`, or `std` is a negative number.
    raises DTypeError: If `dtype` is not a float.

    >>> mg.random.seed(0)
    >>> x = mg.random.normal((10000,), mean=3.0, std=2.0).eval()
    >>> round(float(x.mean()), 1), round(float(x.std()), 1)
    (3.0, 2.0)
    """
    if type(std) in (int, float) and std < 0:
        raise ShapeError(message(f"random.normal: std={std}", need="a std of at least 0"))
    target = result_dtype("normal", dtype, mean, std)
    extents = dims.parse_shape(shape)
    computing = wide(target)
    if computing == FLOAT64:
        radius, angle = sources(extents, UINT64, UINT64, key=key)
        first = unit(radius, FLOAT64, 53)
        offset = 2.0**-54
    else:
        radius, angle = sources(extents, UINT32, UINT32, key=key)
        # All 32 digits: small values, which make the tails, keep them.
        first = multiply(cast(radius, FLOAT32), constant(2.0**-32, dtype=FLOAT32))
        offset = 2.0**-33
    positive = add(first, constant(offset, dtype=computing))  # log(0) is out of reach
    second = unit(angle, computing, 53 if computing == FLOAT64 else 24)
    distance = sqrt(multiply(constant(-2.0, dtype=computing), log(positive)))
    turn = cos(multiply(constant(2.0 * math.pi, dtype=computing), second))
    result = multiply(distance, turn)
    if not (type(std) in (int, float) and std == 1):
        result = multiply(parameter(std, computing), result)
    if not (type(mean) in (int, float) and mean == 0):
        result = add(parameter(mean, computing), result)
    return cast(fitted("normal", result, extents), target)


@documented
def bernoulli(
    shape: Any = (), p: Any = 0.5, dtype: Any = bool, *, key: Key | None = None
) -> Node:
    """Draw events that happen with probability `p`.

    shape: Of the result: ints, names, Dims.
    p: A number, array or node that broadcasts to `shape`; rounded to 24 binary digits (53 if it is
        float64). No gradient: the result is a step function of it.
    dtype: Of the result; bool unless said.
    returns: New events at every call of a function; the same on every backend.
    raises ShapeError: If `p` is a number outside of [0, 1], or does not broadcast to `shape`.

    >>> mg.random.seed(0)
    >>> round(float(mg.random.bernoulli((10000,), 0.3).eval().mean()), 1)
    0.3
    """
    if isinstance(p, (int, float, np.number)) and not 0 <= p <= 1:
        raise ShapeError(
            message(f"random.bernoulli: p={p} is not a probability", need="0 <= p <= 1")
        )
    extents = dims.parse_shape(shape)
    chance = as_node(p, FLOAT32)
    computing = wide(chance.dtype)
    (words,) = sources(extents, UINT64 if computing == FLOAT64 else UINT32, key=key)
    share = unit(words, computing, DIGITS[computing.name])
    return cast(fitted("bernoulli", less(share, cast(chance, computing)), extents), dtype)


@documented
def randint(
    shape: Any, low: Any, high: Any = None, dtype: Any = np.int32, *, key: Key | None = None
) -> Node:
    """Draw integers that are uniform in ``[low, high)``.

    shape: Of the result: ints, names, Dims.
    low, high: Ints, Dims or integer nodes that broadcast to `shape`; with `high` left out the range
        is ``[0, low)``.
    dtype: An integer dtype.
    returns: New integers at every call of a function; the same on every backend. 64 random bits
        make each, so that no integer is likelier than another by more than ``(high - low) / 2**64``
        of its probability.
    raises ShapeError: If the range is empty, or the dtype does not hold it.
    raises DTypeError: If a bound is no integer.

    >>> mg.random.seed(0)
    >>> sorted(set(mg.random.randint((100,), 5, 8).eval().tolist()))
    [5, 6, 7]
    """
    first, last = (0, low) if high is None else (low, high)
    target = canonical(dtype)
    if not is_integer(target):
        raise DTypeError(message(f"random.randint: dtype={target.name}", need="an integer dtype"))
    extents = dims.parse_shape(shape)
    bounds = [int(b) if isinstance(b, (int, np.integer)) else b for b in (first, last)]
    static = all(isinstance(b, int) for b in bounds)
    if static:
        _check_range(bounds[0], bounds[1], target)
    (words,) = sources(extents, UINT64, key=key)
    if static and bounds[1] - bounds[0] <= 2**32:
        offset = _scaled(words, bounds[1] - bounds[0])
    elif static and bounds[1] - bounds[0] == 2**64:
        offset = words
    else:
        span = (
            constant(bounds[1] - bounds[0], dtype=UINT64)
            if static
            else subtract(_whole(bounds[1]), _whole(bounds[0]))
        )
        offset = remainder(words, span)
    # Sums of unsigned words wrap around, which is right for negative bounds.
    return cast(fitted("randint", add(offset, _whole(bounds[0])), extents), target)


def _check_range(low: int, high: int, dtype: np.dtype) -> None:
    if low >= high:
        raise ShapeError(
            message(f"random.randint: the range [{low}, {high}) is empty", need="low < high")
        )
    limits = iinfo(dtype)
    if low < limits.min or high - 1 > limits.max:
        raise ShapeError(
            message(
                f"random.randint: {dtype.name} does not hold the range [{low}, {high})",
                need=f"{limits.min} <= low < high <= {limits.max + 1}",
                hint="a wider dtype=",
            )
        )


def _whole(bound: Any) -> Node:
    """Return a bound as a uint64 node; a negative one modulo 2**64."""
    if isinstance(bound, int):
        return constant(bound % 2**64, dtype=UINT64)
    node = extent(bound) if isinstance(bound, (Dim, str)) else as_node(bound)
    if not is_integer(node.dtype):
        raise DTypeError(
            message(f"random.randint: a bound of dtype {node.dtype.name}", need="an integer dtype")
        )
    return cast(node, UINT64)


def _scaled(words: Node, span: int) -> Node:
    """Return ``floor(words / 2**64 * span)`` exactly, for a span of at most 2**32."""
    half, mask, width = (constant(v, dtype=UINT64) for v in (32, 2**32 - 1, span))
    low = right_shift(multiply(bitwise_and(words, mask), width), half)
    return right_shift(add(multiply(right_shift(words, half), width), low), half)


@documented
def permutation(
    x: Any, axis: int = 0, independent: bool = False, *, key: Key | None = None
) -> Node:
    """Draw a random order.

    x: An int, name or Dim `n`: the result is a permutation of ``0 .. n - 1`` (int64). A node or
        array: its parts along an axis in random order; gradients flow through.
    axis: The axis that is put into another order.
    independent: True draws an order for each line along the axis, False one for all.
    key: From `mg.random.key`: the same order at every call.
    returns: A new order at every call of a function, unless a key is given; the same on every
        backend. Positions are sorted by 64 random bits each.
    raises ShapeError: If the operand has no axes, or not this one.

    >>> mg.random.seed(0)
    >>> sorted(mg.random.permutation(5).eval().tolist())
    [0, 1, 2, 3, 4]
    """
    if isinstance(x, (int, np.integer, str, Dim)) and not isinstance(x, bool):
        return order(dims.parse_shape((x,))[0], key)
    node = as_node(x)
    if not node.ndim:
        raise ShapeError(
            message("random.permutation: the operand has no axes", need="an int or an array")
        )
    place = Call(PERMUTATION, (node,)).axis(axis, node.ndim)
    if independent:
        (words,) = sources(node.shape, UINT64, key=key)
        return take_along_axis(node, argsort(words, axis=place), axis=place)
    return take(node, order(node.shape[place], key), axis=place)


def order(count: Extent, key: Key | None) -> Node:
    """Return a random permutation of 0 .. count - 1."""
    (words,) = sources((count,), UINT64, key=key)
    return argsort(words)


PERMUTATION = drawing_record(permutation, "A random order.")

RECORDS = (
    drawing_record(uniform, "Numbers uniform in [low, high)."),
    drawing_record(normal, "Normally distributed numbers."),
    drawing_record(bernoulli, "Events of given probability.", "a step function of the probability"),
    drawing_record(randint, "Integers uniform in [low, high).", "integer valued"),
    PERMUTATION,
)
