"""Random numbers as nodes: counter-based bits, and the distributions made of them.

One record, `random_bits`, generates words from (seed, stream, part; step, element index). Raw
bits and what comes from them by exact operations (uniform, bernoulli, randint, permutation) are
equal on every backend and number of threads.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import numpy as np

from .. import dims
from ..config import config
from ..dims import Dim
from ..dtypes import canonical, iinfo, is_float, is_integer, promote
from ..errors import DTypeError, ShapeError, message
from ..graph import Node
from ..op import Call, Composite, Effect, Kind, Op
from ..types import Extent, Shape, Type
from .bits import bitwise_and, right_shift
from .comparison import less
from .convert import as_node, cast
from .elementwise import add, multiply, remainder, subtract
from .index import argsort, take
from .leaf import constant, extent
from .math import cos, log, sqrt
from .philox import UINT32, UINT64, bits, stream_key

__all__ = ["bernoulli", "normal", "permutation", "randint", "seed", "uniform"]

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

# How many random digits a number in [0, 1) has: those of the significand, so that none rounds to 1.
_DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


class _Streams:
    """The seed, and how many streams were handed out since it was set."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed = 0
        self.count = 0

    def restart(self, seed: int) -> None:
        with self.lock:
            self.seed, self.count = seed, 0

    def next(self) -> tuple[int, int]:
        with self.lock:
            stream = self.count
            self.count += 1
            return self.seed, stream


_streams = _Streams()


def seed(value: int | None = None) -> None:
    """Set the seed of the random nodes that are made from now on.

    Each random node has a stream of its own: its order since this call. Without a call the seed is
    0, so that a program gives the same numbers every time.

    Parameters
    ----------
    value
        An int in ``[0, 2**64)``, or None for one that the operating system draws.

    Raises
    ------
    ShapeError
        If it is out of that range.
    DTypeError
        If it is not an int.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.random.seed(7)
    >>> first = mg.random.uniform((2,)).eval()
    >>> mg.random.seed(7)
    >>> bool((mg.random.uniform((2,)).eval() == first).all())
    True
    """
    if value is None:
        value = int.from_bytes(os.urandom(8), "little")
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise DTypeError(message(f"random.seed: {value!r} is not an int", need="an int, or None"))
    if not 0 <= value < 2**64:
        raise ShapeError(message(f"random.seed: {value} is out of range", need="0 <= seed < 2**64"))
    _streams.restart(int(value))


# Records.

RANDOM_STEP = Op(
    name="random_step",
    kind=Kind.LEAF,
    effect=Effect.RANDOM,
    doc="How many calls the function has committed; a function puts its own counter here.",
    rule=lambda call: Type(INT64, ()),
    evaluate=lambda xp: xp.zeros((), dtype=np.int64),
    no_gradient="integer valued",
)


def _bits_type(
    call: Call, step: Type, *, seed: int, stream: int, part: int, shape: Shape, dtype: np.dtype
) -> Type:
    if step != Type(INT64, ()):
        raise call.dtype_error(f"a step of type {step}", need="an int64 scalar")
    if dtype not in (UINT32, UINT64):
        raise call.dtype_error(f"bits of dtype {dtype.name}", need="uint32 or uint64")
    return Type(dtype, shape)


def _bits(
    xp: Any,
    step: Any,
    *,
    seed: int,
    stream: int,
    part: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> Any:
    key = stream_key(seed, stream, part)
    return bits(xp, key, int(step), math.prod(shape), dtype).reshape(shape)


RANDOM_BITS = Op(
    name="random_bits",
    kind=Kind.RANDOM,
    effect=Effect.RANDOM,
    doc="Words of Philox4x32-10, from (seed, stream, part; step, element index).",
    rule=_bits_type,
    evaluate=_bits,
    # The key words are a kernel's arguments, and `index` is the element's position in the array.
    scalar=lambda dtype: f"$random{8 * dtype.itemsize}(key0, key1, a, index)",
    no_gradient="integer valued",
    numerics="exact",
)


def sources(shape: Shape, *dtypes: np.dtype) -> list[Node]:
    """Return independent random words, one node for each dtype, all of one new stream."""
    number, stream = _streams.next()
    step = RANDOM_STEP()
    return [
        RANDOM_BITS(step, seed=number, stream=stream, part=part, shape=shape, dtype=dtype)
        for part, dtype in enumerate(dtypes)
    ]


# Distributions.


def _result_dtype(name: str, dtype: Any, *parameters: Any) -> np.dtype:
    if dtype is None:
        given = [
            as_node(p).dtype for p in parameters if isinstance(p, (Node, np.ndarray, np.generic))
        ]
        floats = [d for d in given if is_float(d)]
        return promote(*floats) if floats else config.float_dtype
    wanted = canonical(dtype)
    if not is_float(wanted):
        raise DTypeError(
            message(
                f"random.{name}: dtype={wanted.name}",
                need="a float dtype",
                mend="mg.random.randint for integers" if is_integer(wanted) else None,
            )
        )
    return wanted


def _wide(dtype: np.dtype) -> np.dtype:
    return FLOAT64 if dtype == FLOAT64 else FLOAT32


def _unit(words: Node, dtype: np.dtype, digits: int) -> Node:
    """Return words as numbers in [0, 1) with so many binary digits; `dtype` holds them exactly."""
    width = 8 * words.dtype.itemsize
    kept = right_shift(words, constant(width - digits, dtype=words.dtype))
    # Signed integers convert faster, and these have a free sign bit.
    whole = cast(kept, INT64 if words.dtype == UINT64 else INT32)
    return multiply(cast(whole, dtype), constant(2.0**-digits, dtype=dtype))


def _fitted(name: str, result: Node, shape: Shape) -> Node:
    """Return a result of the wanted shape, which its parameters must not widen."""
    if result.shape != shape:
        raise ShapeError(
            message(
                f"random.{name}: parameters of shape {result.shape} do not fit shape {shape}",
                need="parameters that broadcast to it",
            )
        )
    return result


def _parameter(value: Any, dtype: np.dtype) -> Node:
    return cast(as_node(value, dtype), dtype)


def uniform(shape: Any = (), low: Any = 0.0, high: Any = 1.0, dtype: Any = None) -> Node:
    """Draw numbers that are uniform in ``[low, high)``.

    Parameters
    ----------
    shape
        Of the result: ints, names, Dims.
    low, high
        Numbers, arrays or nodes that broadcast to `shape`. Gradients flow to them:
        ``low + (high - low) * u``.
    dtype
        A float dtype; `mg.config.float_dtype`, or that of the parameters, unless said.

    Returns
    -------
    Node
        New numbers at every call of a function. ``u`` has as many random digits as the dtype's
        significand (float32: 24).

    Raises
    ------
    ShapeError
        If a parameter does not broadcast to `shape`.
    DTypeError
        If `dtype` is not a float.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.random.seed(0)
    >>> x = mg.random.uniform((1000,), low=-1.0).eval()
    >>> bool((x >= -1).all() and (x < 1).all())
    True
    """
    wanted = _result_dtype("uniform", dtype, low, high)
    extents = dims.parse_shape(shape)
    computing = _wide(wanted)
    (words,) = sources(extents, UINT64 if wanted == FLOAT64 else UINT32)
    unit = _unit(words, computing, _DIGITS[wanted.name])
    plain = type(low) in (int, float) and type(high) in (int, float)
    if plain and low == 0 and high == 1:
        return cast(unit, wanted)
    start, end = _parameter(low, computing), _parameter(high, computing)
    result = add(start, multiply(subtract(end, start), unit))
    return cast(_fitted("uniform", result, extents), wanted)


def normal(shape: Any = (), mean: Any = 0.0, std: Any = 1.0, dtype: Any = None) -> Node:
    """Draw normally distributed numbers.

    Two words make one number: ``sqrt(-2 log u1) * cos(2 pi u2)`` (G. Box, M. Muller, 1958).

    Parameters
    ----------
    shape
        Of the result: ints, names, Dims.
    mean, std
        Numbers, arrays or nodes that broadcast to `shape`. Gradients flow to them:
        ``mean + std * z``.
    dtype
        A float dtype; `mg.config.float_dtype`, or that of the parameters, unless said.

    Returns
    -------
    Node
        New numbers at every call of a function; none lies further than 6.8 standard deviations
        from the mean (8.7 in float64).

    Raises
    ------
    ShapeError
        If a parameter does not broadcast to `shape`.
    DTypeError
        If `dtype` is not a float.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.random.seed(0)
    >>> x = mg.random.normal((10000,), mean=3.0, std=2.0).eval()
    >>> round(float(x.mean()), 1), round(float(x.std()), 1)
    (3.0, 2.0)
    """
    wanted = _result_dtype("normal", dtype, mean, std)
    extents = dims.parse_shape(shape)
    computing = _wide(wanted)
    if computing == FLOAT64:
        radius, angle = sources(extents, UINT64, UINT64)
        first = _unit(radius, FLOAT64, 53)
        offset = 2.0**-54
    else:
        radius, angle = sources(extents, UINT32, UINT32)
        # All 32 digits: small values, which make the tails, keep them.
        first = multiply(cast(radius, FLOAT32), constant(2.0**-32, dtype=FLOAT32))
        offset = 2.0**-33
    positive = add(first, constant(offset, dtype=computing))  # log(0) is out of reach
    second = _unit(angle, computing, 53 if computing == FLOAT64 else 24)
    distance = sqrt(multiply(constant(-2.0, dtype=computing), log(positive)))
    turn = cos(multiply(constant(2.0 * math.pi, dtype=computing), second))
    result = multiply(distance, turn)
    if not (type(std) in (int, float) and std == 1):
        result = multiply(_parameter(std, computing), result)
    if not (type(mean) in (int, float) and mean == 0):
        result = add(_parameter(mean, computing), result)
    return cast(_fitted("normal", result, extents), wanted)


def bernoulli(shape: Any = (), p: Any = 0.5, dtype: Any = bool) -> Node:
    """Draw events that happen with probability `p`.

    Parameters
    ----------
    shape
        Of the result: ints, names, Dims.
    p
        A number, array or node that broadcasts to `shape`; rounded to 24 binary digits (53 if it
        is float64). No gradient: the result is a step function of it.
    dtype
        Of the result; bool unless said.

    Returns
    -------
    Node
        New events at every call of a function; the same on every backend.

    Raises
    ------
    ShapeError
        If `p` is a number outside of [0, 1], or does not broadcast to `shape`.

    Examples
    --------
    >>> import magmagraph as mg
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
    computing = _wide(chance.dtype)
    (words,) = sources(extents, UINT64 if computing == FLOAT64 else UINT32)
    unit = _unit(words, computing, _DIGITS[computing.name])
    return cast(_fitted("bernoulli", less(unit, cast(chance, computing)), extents), dtype)


def randint(shape: Any, low: Any, high: Any = None, dtype: Any = np.int32) -> Node:
    """Draw integers that are uniform in ``[low, high)``.

    Parameters
    ----------
    shape
        Of the result: ints, names, Dims.
    low, high
        Ints, Dims or integer nodes that broadcast to `shape`; with `high` left out the range is
        ``[0, low)``.
    dtype
        An integer dtype.

    Returns
    -------
    Node
        New integers at every call of a function; the same on every backend. 64 random bits make
        each, so that no integer is likelier than another by more than ``(high - low) / 2**64``
        of its probability.

    Raises
    ------
    ShapeError
        If the range is empty, or the dtype does not hold it.
    DTypeError
        If a bound is no integer.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.random.seed(0)
    >>> sorted(set(mg.random.randint((100,), 5, 8).eval().tolist()))
    [5, 6, 7]
    """
    first, last = (0, low) if high is None else (low, high)
    wanted = canonical(dtype)
    if not is_integer(wanted):
        raise DTypeError(message(f"random.randint: dtype={wanted.name}", need="an integer dtype"))
    extents = dims.parse_shape(shape)
    bounds = [int(b) if isinstance(b, (int, np.integer)) else b for b in (first, last)]
    static = all(isinstance(b, int) for b in bounds)
    if static:
        _check_range(bounds[0], bounds[1], wanted)
    (words,) = sources(extents, UINT64)
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
    return cast(_fitted("randint", add(offset, _whole(bounds[0])), extents), wanted)


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
                mend="a wider dtype=",
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


def permutation(x: Any) -> Node:
    """Draw a random order.

    Parameters
    ----------
    x
        An int, name or Dim `n`: the result is a permutation of ``0 .. n - 1`` (int64). A node or
        array: its parts along the first axis in random order; gradients flow through.

    Returns
    -------
    Node
        A new order at every call of a function; the same on every backend. Positions are sorted
        by 64 random bits each.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.random.seed(0)
    >>> sorted(mg.random.permutation(5).eval().tolist())
    [0, 1, 2, 3, 4]
    """
    if isinstance(x, (int, np.integer, str, Dim)) and not isinstance(x, bool):
        return _order(dims.parse_shape((x,))[0])
    node = as_node(x)
    if not node.ndim:
        raise ShapeError(
            message("random.permutation: the operand has no axes", need="an int or an array")
        )
    return take(node, _order(node.shape[0]), axis=0)


def _order(count: Extent) -> Node:
    (words,) = sources((count,), UINT64)
    return argsort(words)


RECORDS = (
    RANDOM_STEP,
    RANDOM_BITS,
    *(
        Composite(
            name=f"random.{function.__name__}",
            kind=Kind.RANDOM,
            function=function,
            doc=doc,
            no_gradient=no_gradient,
        )
        for function, doc, no_gradient in (
            (uniform, "Numbers uniform in [low, high).", ""),
            (normal, "Normally distributed numbers.", ""),
            (bernoulli, "Events of given probability.", "a step function of the probability"),
            (randint, "Integers uniform in [low, high).", "integer valued"),
            (permutation, "A random order.", ""),
        )
    ),
)
