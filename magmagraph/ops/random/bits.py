"""Streams of counter-based random bits, and the records that generate them.

One record, `random_bits`, generates words from (seed, stream, part; step, element index). Raw
bits and what comes from them by exact operations (uniform, bernoulli, randint, permutation) are
equal on every backend and number of threads.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import canonical, is_float, is_integer, promote
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import Call, Composite, Effect, Kind, Op, Scalar
from ...ir.types import Extent, Shape, Type
from ..convert import as_dtype, as_node, cast, weak_scalar
from ..elementwise.arithmetic import add, multiply
from ..elementwise.bits import bitwise_and, right_shift
from ..elementwise.comparison import equal
from ..leaf import constant
from .drawing import note
from .philox import UINT32, UINT64, WORD, bits, philox, stream_key

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)

# How many random digits a number in [0, 1) has: those of the significand, so that none rounds to 1.
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


class _Streams:
    """The seed, and how many streams were handed out since it was set."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, seed: int) -> None:
        self.numbers = seed, itertools.count()

    def next(self) -> tuple[int, int]:
        seed, numbers = self.numbers
        stream = next(numbers)  # in one step, whatever handlers and other threads do
        note(seed, stream)
        return seed, stream


_streams = _Streams()
# Streams that take the place of the program's own inside a `streams_from`.
_inside: ContextVar[_Streams | None] = ContextVar("streams", default=None)


def next_stream() -> tuple[int, int]:
    """Return the seed and the number of the next stream."""
    return (_inside.get() or _streams).next()


@contextmanager
def streams_from(seed: int) -> Iterator[None]:
    """Count the streams of random nodes that this thread makes from 0, with a seed of their own.

    What is built inside draws the same numbers in every program that builds the same; the
    program's own streams go on behind it where they were.
    """
    streams = _Streams()
    streams.restart(checked_seed("streams_from", seed))
    token = _inside.set(streams)
    try:
        yield
    finally:
        _inside.reset(token)


def checked_seed(name: str, value: Any) -> int:
    """Return a seed as an int in [0, 2**64), or raise."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise DTypeError(message(f"random.{name}: {value!r} is not an int", need="an int"))
    if not 0 <= value < 2**64:
        raise ShapeError(
            message(f"random.{name}: {value} is out of range", need="0 <= seed < 2**64")
        )
    return int(value)


@documented
def seed(value: int | None = None) -> None:
    """Set the seed of the random nodes that are made from now on.

    Each random node has a stream of its own: its order since this call. Without a call the seed is
    0, so that a program gives the same numbers every time.

    value: An int in ``[0, 2**64)``, or None for one that the operating system draws.
    raises ShapeError: If it is out of that range.
    raises DTypeError: If it is not an int.

    >>> mg.random.seed(7)
    >>> first = mg.random.uniform((2,)).eval()
    >>> mg.random.seed(7)
    >>> bool((mg.random.uniform((2,)).eval() == first).all())
    True
    """
    if value is None:
        value = int.from_bytes(os.urandom(8), "little")
    (_inside.get() or _streams).restart(checked_seed("seed", value))


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


def check_step(call: Call, step: Type) -> None:
    """Raise unless a step is an int64 scalar."""
    if step != Type(INT64, ()):
        raise call.dtype_error(f"a step of type {step}", need="an int64 scalar")


def _bits_type(
    call: Call,
    step: Type,
    *first: Type,
    seed: int,
    stream: int,
    part: int,
    shape: Shape,
    dtype: np.dtype,
) -> Type:
    for scalar in (step, *first):
        check_step(call, scalar)
    if dtype not in (UINT32, UINT64):
        raise call.dtype_error(f"bits of dtype {dtype.name}", need="uint32 or uint64")
    return Type(dtype, shape)


def _bits(
    xp: Any,
    step: Any,
    *first: Any,
    seed: int,
    stream: int,
    part: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> Any:
    key = stream_key(seed, stream, part)
    start = int(first[0]) if first else 0
    return bits(xp, key, int(step), math.prod(shape), dtype, start).reshape(shape)


RANDOM_BITS = Op(
    name="random_bits",
    kind=Kind.RANDOM,
    effect=Effect.RANDOM,
    doc="Words of Philox4x32-10, from (seed, stream, part; step, element index).",
    rule=_bits_type,
    attributes={"seed": "Seed", "stream": "Seed", "part": "Count"},
    evaluate=_bits,
    scalar=Scalar(
        # The key words are a kernel's arguments, and `index` is the element's position in the
        # array, behind those that a second operand gives (an array that is a part of a larger one).
        lambda dtype: f"$random{8 * dtype.itemsize}(key0, key1, a, index)"
    ),
    no_gradient="integer valued",
    sharding="counted",
    numerics="exact",
)


# Keys.


class Key:
    """Where a random node takes its bits from, said explicitly; made by `key`, `split`, `fold_in`.

    Attributes
    ----------
    seed, stream
        What takes the places of the seed and the stream's number.
    step
        What takes the place of the function's step: None for 0, or an int64 scalar node.
    """

    __slots__ = ("seed", "step", "stream")

    def __init__(self, seed: int, stream: int, step: Node | None = None) -> None:
        self.seed, self.stream, self.step = seed, stream, step

    def __repr__(self) -> str:
        folded = ", step=..." if self.step is not None else ""
        return f"Key({self.seed:#018x}, {self.stream:#018x}{folded})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        return (self.seed, self.stream) == (other.seed, other.stream) and self.step is other.step

    def __hash__(self) -> int:
        return hash((self.seed, self.stream, id(self.step)))


# The last word of the counter tells what bits are made for: streams have 0 there.
_FROM_SEED, _SPLIT, _FOLD, _MIX = 1, 2, 3, 4


def _mixed(counter: tuple[int, int, int, int], words: tuple[int, int]) -> tuple[int, int, int, int]:
    words_out = philox(
        np,
        tuple(np.array([word], dtype=np.uint64) for word in counter),  # type: ignore[arg-type]
        words,
    )
    return tuple(int(word[0]) for word in words_out)  # type: ignore[return-value]


def _halves(value: int) -> tuple[int, int]:
    return value & WORD, value >> 32


def _key_of(words: tuple[int, int, int, int], step: Node | None = None) -> Key:
    return Key(words[0] | words[1] << 32, words[2] | words[3] << 32, step)


def checked_key(name: str, value: Any) -> Key:
    """Return a key, or raise."""
    if not isinstance(value, Key):
        raise DTypeError(
            message(
                f"{name}: the key is of type {type(value).__name__}",
                need="a key",
                hint="mg.random.key(seed)",
            )
        )
    return value


@documented
def key(seed: int) -> Key:
    """Make a key: an explicit source of random numbers.

    A distribution that is given a key draws the same numbers in every call of every function; two
    nodes of one key and shape have the same numbers. Use each key once, and `split` it for more.

    seed: An int in ``[0, 2**64)``.
    returns (Key): Its numbers are independent of the streams that `mg.random.seed` begins.
    raises ShapeError, DTypeError: If the seed is out of that range, or not an int.

    >>> first, second = mg.random.split(mg.random.key(0))
    >>> x = mg.random.normal((3,), key=first)
    >>> bool((x.eval() == mg.random.normal((3,), key=first).eval()).all())
    True
    >>> bool((x.eval() == mg.random.normal((3,), key=second).eval()).any())
    False
    """
    return _key_of(_mixed((*_halves(checked_seed("key", seed)), 0, _FROM_SEED), (0, 0)))


@documented
def split(key: Key, num: int = 2) -> tuple[Key, ...]:
    """Make independent keys of one.

    key: The key, which should not be used for anything else then.
    num: How many.
    returns (tuple of Key):
    raises DTypeError, ShapeError: Where `key` is none, or `num` is not an int of at least 1.

    >>> len(set(mg.random.split(mg.random.key(0), 4)))
    4
    """
    parent = checked_key("random.split", key)
    if not isinstance(num, (int, np.integer)) or isinstance(num, bool) or not 0 < num < 2**32:
        raise ShapeError(message(f"random.split: num={num!r}", need="an int of at least 1"))
    words = _halves(parent.seed)
    return tuple(
        _key_of(_mixed((*_halves(parent.stream), i, _SPLIT), words), parent.step)
        for i in range(int(num))
    )


@documented
def fold_in(key: Key, data: Any) -> Key:
    """Make a key of a key and a number: one for each layer, step or device.

    key: The key.
    data: An int; or a scalar node of an integer dtype, a step counter say, so that the numbers
        change with its value at the call.
    returns (Key):
    raises DTypeError, ShapeError: Where `key` is none, or `data` is not an integer or not a scalar.

    >>> root = mg.random.key(0)
    >>> step = mg.input("step", (), "int32")
    >>> noise = mg.function([step], mg.random.normal((3,), key=mg.random.fold_in(root, step)))
    >>> bool((noise(1) == noise(1)).all()), bool((noise(1) == noise(2)).any())
    (True, False)
    """
    parent = checked_key("random.fold_in", key)
    words = _halves(parent.seed)
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        first = _mixed((*_halves(parent.stream), 0, _FOLD), words)
        low, high = _halves(int(data) % 2**64)
        return _key_of(_mixed((low, high, *first[2:]), first[:2]), parent.step)
    node = as_node(data)
    if not is_integer(node.dtype):
        raise DTypeError(
            message(
                f"random.fold_in: data of dtype {node.dtype.name}",
                need="an integer dtype",
                hint="mg.cast(data, 'int32')",
            )
        )
    if node.shape != ():
        raise ShapeError(message(f"random.fold_in: data of shape {node.shape}", need="a scalar"))
    child = _key_of(_mixed((*_halves(parent.stream), 0, _MIX), words))
    number = cast(node, INT64)
    if parent.step is not None:
        (before,) = sources((), UINT64, key=parent)
        number = add(cast(before, INT64), number)
    return Key(child.seed, child.stream, number)


def keys_for(key: Key | None, count: int) -> tuple[Key | None, ...]:
    """Return keys for the parts of a distribution: those of a split key, or none."""
    return (None,) * count if key is None else split(key, count)


# Words of a node.


def origin(key: Key | None) -> tuple[Node, int, int]:
    """Return step, seed and stream of a new random node."""
    if key is None:
        number, stream = next_stream()
        return RANDOM_STEP(), number, stream
    stream_key = checked_key("random", key)
    step = constant(0, dtype=INT64) if stream_key.step is None else stream_key.step
    return step, stream_key.seed, stream_key.stream


def sources(shape: Shape, *dtypes: np.dtype, key: Key | None = None) -> list[Node]:
    """Return independent random words, one node for each dtype, all of one stream."""
    step, number, stream = origin(key)
    return [
        RANDOM_BITS(step, seed=number, stream=stream, part=part, shape=shape, dtype=dtype)
        for part, dtype in enumerate(dtypes)
    ]


def wide(dtype: np.dtype) -> np.dtype:
    """Return the dtype that a distribution is computed in."""
    return FLOAT64 if dtype == FLOAT64 else FLOAT32


def unit(words: Node, dtype: np.dtype, digits: int) -> Node:
    """Return words as numbers in [0, 1) with so many binary digits; `dtype` holds them exactly."""
    width = 8 * words.dtype.itemsize
    high_bits = right_shift(words, constant(width - digits, dtype=words.dtype))
    # Signed integers convert faster, and these have a free sign bit.
    whole = cast(high_bits, INT64 if words.dtype == UINT64 else INT32)
    return multiply(cast(whole, dtype), constant(2.0**-digits, dtype=dtype))


def tails(shape: Shape, dtype: np.dtype, key: Key | None) -> tuple[Node, Node]:
    """Return uniform ranks as (in the lower half, distance from that end), never 0.

    A rank near 1 is rounded to as few digits as 1 has; its distance from 1 is not. One bit chooses
    the half, the others make a distance between 0 and 1/2 with its own digits.
    """
    large = dtype == FLOAT64
    (words,) = sources(shape, UINT64 if large else UINT32, key=key)
    one = constant(1, dtype=words.dtype)
    lower = equal(bitwise_and(words, one), 0)
    whole = cast(cast(right_shift(words, one), INT64 if large else INT32), dtype)
    scale = 2.0 ** (-64 if large else -32)
    distance = multiply(add(whole, constant(0.5, dtype=dtype)), constant(scale, dtype=dtype))
    return lower, distance


# Parameters of distributions.


def result_dtype(name: str, dtype: Any, *parameters: Any) -> np.dtype:
    """Return the float dtype that is asked for, or that of the parameters."""
    if dtype is None:
        dtypes = [
            as_node(p).dtype for p in map(weak_scalar, parameters)
            if isinstance(p, (Node, np.ndarray, np.generic))
        ]
        floats = [d for d in dtypes if is_float(d)]
        return promote(*floats) if floats else config.float_dtype
    target = canonical(dtype)
    if not is_float(target):
        raise DTypeError(
            message(
                f"random.{name}: dtype={target.name}",
                need="a float dtype",
                hint="mg.random.randint for integers" if is_integer(target) else None,
            )
        )
    return target


def fitted(name: str, result: Node, shape: Shape) -> Node:
    """Return a result of the wanted shape, which its parameters must not widen."""
    if result.shape != shape:
        raise misfit(name, result.shape, shape)
    return result


def misfit(name: str, parameter_shape: Shape, shape: Shape) -> ShapeError:
    """Make the error for parameters that are larger than the result."""
    return ShapeError(
        message(
            f"random.{name}: parameters of shape {parameter_shape} do not fit shape {shape}",
            need="parameters that broadcast to it",
        )
    )


def parameter(value: Any, dtype: np.dtype) -> Node:
    """Return a parameter as a node of a dtype."""
    return as_dtype(value, dtype)


def common_shape(name: str, shape: Any, nodes: tuple[Node, ...]) -> tuple[Extent, ...]:
    """Return the wanted shape; where it is None, the broadcast shape of the parameters."""
    joint = Call(RANDOM_BITS, nodes).broadcast((), *[node.shape for node in nodes])
    if shape is None:
        return joint
    extents = dims.parse_shape(shape)
    if nodes and Call(RANDOM_BITS, nodes).broadcast(joint, extents) != extents:
        raise misfit(name, joint, extents)
    return extents


def drawing_record(function: Callable[..., Node], doc: str, no_gradient: str = "") -> Composite:
    """Return the record of a public function of `mg.random`."""
    return Composite(
        name=f"random.{function.__name__}",
        kind=Kind.RANDOM,
        function=function,
        doc=doc,
        no_gradient=no_gradient,
    )


RECORDS = (RANDOM_STEP, RANDOM_BITS)
