"""Initial values of variables: `mg.init`.

Each function here returns an initializer, a callable ``(shape, dtype) -> ndarray`` that
`mg.variable` calls; it pickles, as layers that hold one do. Random ones take a `seed`; with None
they draw fresh entropy from the operating system. Numbers are drawn in float64 and rounded once.

Fans: for a matrix of shape ``(n, m)`` the fan-in is `n` and the fan-out `m`, as ``x @ W`` has it. A
convolution's kernel of shape ``(out, in, *window)`` has both times the window's elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from .errors import ConfigError, ShapeError, message
from .ir.docstrings import documented

__all__ = [
    "constant",
    "diagonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "mask",
    "normal",
    "ones",
    "orthogonal",
    "uniform",
    "zeros",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Initializer = Callable[[tuple[int, ...], np.dtype], np.ndarray]
Seed: TypeAlias = "int | Sequence[int] | np.random.SeedSequence | None"


def _rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.asarray(values).astype(dtype)


_PART = 1 << 13  # numbers that are drawn at a time, so that what is rounded is in the cache


def _drawn(draw: Callable[..., Any], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return as many numbers as a shape has, drawn in their order and rounded."""
    values = np.empty(shape, dtype)
    flat = values.reshape(-1)
    for begin in range(0, flat.size, _PART):
        part = flat[begin : begin + _PART]
        part[...] = draw(part.size)
    return values


def _checked(name: str, seed: Seed) -> Seed:
    """Return a seed, or raise where no generator takes it."""
    try:
        np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ConfigError(
            message(f"init.{name}: seed={seed!r}", need="an int of at least 0, several, or None")
        ) from None
    return seed


@documented
def constant(value: Any, seed: Seed = None) -> Initializer:
    """Fill with a value.

    value: A number, or an array that broadcasts to the shape.
    seed: Not used: there for the sake of one signature.
    returns (callable):
    raises ShapeError: When called, if the value does not broadcast to the shape.

    >>> mg.var("b", shape=(2,), init=mg.init.constant(0.5)).value
    array([0.5, 0.5], dtype=float32)
    """
    return partial(_constant, value)


def _constant(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    try:
        return _rounded(np.broadcast_to(np.asarray(value), shape), dtype)
    except ValueError:
        raise ShapeError(
            message(
                f"init.constant: a value of shape {np.shape(value)} for shape {shape}",
                need="a value that broadcasts to the shape",
            )
        ) from None


@documented
def zeros(seed: Seed = None) -> Initializer:
    """Fill with zeros.

    seed: Not used: there for the sake of one signature.
    returns (callable):

    >>> mg.var("b", shape=(2,), init=mg.init.zeros()).value
    array([0., 0.], dtype=float32)
    """
    return constant(0)


@documented
def ones(seed: Seed = None) -> Initializer:
    """Fill with ones.

    seed: Not used: there for the sake of one signature.
    returns (callable):

    >>> mg.var("scale", shape=(2,), init=mg.init.ones()).value
    array([1., 1.], dtype=float32)
    """
    return constant(1)


@documented
def uniform(low: float = -0.05, high: float = 0.05, seed: Seed = None) -> Initializer:
    """Draw uniformly from ``[low, high)``.

    low, high: The interval.
    seed: Of the generator.
    returns (callable):
    raises ShapeError: If ``low > high``.

    >>> values = mg.init.uniform(0.0, 2.0, seed=0)((1000,), "float32")
    >>> bool((values >= 0).all()), round(float(values.mean()), 1)
    (True, 1.0)
    """
    if low > high:
        raise ShapeError(message(f"init.uniform: low={low} is above high={high}"))
    return partial(_uniform, low, high, _checked("uniform", seed))


def _uniform(
    low: float, high: float, seed: Seed, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    return _drawn(partial(np.random.default_rng(seed).uniform, low, high), shape, dtype)


@documented
def normal(mean: float = 0.0, std: float = 0.05, seed: Seed = None) -> Initializer:
    """Draw from a normal distribution.

    mean, std: Mean and standard deviation.
    seed: Of the generator.
    returns (callable):
    raises ShapeError: If `std` is negative.

    >>> values = mg.init.normal(std=2.0, seed=0)((10000,), "float64")
    >>> round(float(values.std()), 1)
    2.0
    """
    if std < 0:
        raise ShapeError(message(f"init.normal: std={std} is negative"))
    return partial(_normal, mean, std, _checked("normal", seed))


def _normal(
    mean: float, std: float, seed: Seed, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    return _drawn(partial(np.random.default_rng(seed).normal, mean, std), shape, dtype)


def _fans(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) < 2:
        raise ShapeError(
            message(
                f"init.{name}: shape {shape} has no fan-in and fan-out",
                need="at least 2 axes",
                hint="mg.init.uniform or mg.init.normal, or mg.init.zeros for a bias",
            )
        )
    if len(shape) == 2:
        return shape
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _scaled(
    name: str, gain: float, seed: Seed, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    """Draw values whose variance depends on the fans, as an initializer's name says."""
    fan_in, fan_out = (max(fan, 1) for fan in _fans(name, shape))
    spread = math.sqrt(gain**2 * 2.0 / (fan_in + fan_out if "glorot" in name else fan_in))
    generator = np.random.default_rng(seed)
    if "normal" in name:
        return _drawn(partial(generator.normal, 0.0, spread), shape, dtype)
    limit = math.sqrt(3.0) * spread  # a uniform distribution on [-a, a) has variance a**2 / 3
    return _drawn(partial(generator.uniform, -limit, limit), shape, dtype)


@documented
def glorot_uniform(gain: float = 1.0, seed: Seed = None) -> Initializer:
    """Draw uniformly from ``[-a, a)`` with ``a = gain * sqrt(6 / (fan_in + fan_out))``.

    X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", AISTATS 2010, equation 16. For sigmoid and tanh.

    gain: Factor of the limit.
    seed: Of the generator.
    returns (callable):
    raises ShapeError: When called, if the shape has fewer than 2 axes.

    >>> W = mg.var("W", shape=(784, 10), init=mg.init.glorot_uniform(seed=0))
    >>> bool(abs(W.value).max() <= (6 / 794) ** 0.5)
    True
    """
    return partial(_scaled, "glorot_uniform", gain, _checked("glorot_uniform", seed))


@documented
def glorot_normal(gain: float = 1.0, seed: Seed = None) -> Initializer:
    """Draw normally with standard deviation ``gain * sqrt(2 / (fan_in + fan_out))``.

    X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", AISTATS 2010, equation 12.

    gain: Factor of the standard deviation.
    seed: Of the generator.
    returns (callable):
    raises ShapeError: When called, if the shape has fewer than 2 axes.

    >>> values = mg.init.glorot_normal(seed=0)((200, 200), "float32")
    >>> round(float(values.std()), 2)
    0.07
    """
    return partial(_scaled, "glorot_normal", gain, _checked("glorot_normal", seed))


@documented
def he_uniform(gain: float = 1.0, seed: Seed = None) -> Initializer:
    """Draw uniformly from ``[-a, a)`` with ``a = gain * sqrt(6 / fan_in)``.

    K. He, X. Zhang, S. Ren, J. Sun, "Delving deep into rectifiers", ICCV 2015, equation 10. For
    rectifiers.

    gain: Factor of the limit.
    seed: Of the generator.
    returns (callable):
    raises ShapeError: When called, if the shape has fewer than 2 axes.

    >>> W = mg.var("W", shape=(600, 10), init=mg.init.he_uniform(seed=0))
    >>> bool(abs(W.value).max() <= 0.1)
    True
    """
    return partial(_scaled, "he_uniform", gain, _checked("he_uniform", seed))


@documented
def he_normal(gain: float = 1.0, seed: Seed = None) -> Initializer:
    """Draw normally with standard deviation ``gain * sqrt(2 / fan_in)``.

    K. He, X. Zhang, S. Ren, J. Sun, "Delving deep into rectifiers", ICCV 2015, equation 10.

    gain: Factor of the standard deviation.
    seed: Of the generator.
    returns (callable):
    raises ShapeError: When called, if the shape has fewer than 2 axes.

    >>> values = mg.init.he_normal(seed=0)((200, 200), "float32")
    >>> round(float(values.std()), 2)
    0.1
    """
    return partial(_scaled, "he_normal", gain, _checked("he_normal", seed))


@documented
def orthogonal(gain: float = 1.0, seed: Seed = None) -> Initializer:
    """Draw a matrix whose rows or columns, whichever are fewer, are orthonormal.

    The factor Q of a normal matrix, with the signs of R's diagonal, is uniform over such matrices
    (F. Mezzadri, "How to generate random matrices from the classical compact groups", 2007). Used
    by A. Saxe, J. McClelland, S. Ganguli, "Exact solutions to the nonlinear dynamics of learning
    in deep linear neural networks", ICLR 2014.

    gain: Factor of the matrix.
    seed: Of the generator.
    returns (callable): Axes after the first are taken as one.
    raises ShapeError: When called, if the shape has fewer than 2 axes.

    Examples
    --------
    >>> import magmagraph as mg, numpy as np
    >>> Q = mg.init.orthogonal(seed=0)((3, 5), "float64")
    >>> bool(np.allclose(Q @ Q.T, np.eye(3)))
    True
    """
    return partial(_orthogonal, gain, _checked("orthogonal", seed))


def _orthogonal(
    gain: float, seed: Seed, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    _fans("orthogonal", shape)
    rows, columns = shape[0], math.prod(shape[1:])
    tall = np.random.default_rng(seed).normal(size=(max(rows, columns), min(rows, columns)))
    factor, triangle = np.linalg.qr(tall)
    factor = factor * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
    matrix = factor if rows >= columns else factor.T
    return _rounded(gain * matrix.reshape(shape), dtype)


def _matrix(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise ShapeError(message(f"init.{name}: shape {shape} is not a matrix's", need="2 axes"))
    return shape[0], shape[1]


@documented
def identity(gain: float = 1.0, seed: Seed = None) -> Initializer:
    """Put `gain` on the main diagonal and zeros elsewhere.

    gain: The diagonal's value.
    seed: Not used: there for the sake of one signature.
    returns (callable):
    raises ShapeError: When called, if the shape does not have 2 axes.

    >>> mg.var("W", shape=(2, 3), init=mg.init.identity()).value
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    return partial(_identity, gain)


def _identity(gain: float, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return _rounded(gain * np.eye(*_matrix("identity", shape)), dtype)


@documented
def diagonal(values: Any, seed: Seed = None) -> Initializer:
    """Put values on the main diagonal and zeros elsewhere.

    values: A number, or as many as the diagonal has elements; or an initializer, which is asked for
        that many.
    seed: Not used: there for the sake of one signature (an initializer has its own).
    returns (callable):
    raises ShapeError: When called, if the shape does not have 2 axes, or the values are not as many
        as its diagonal.

    >>> mg.var("W", shape=(2, 2), init=mg.init.diagonal([3.0, 4.0])).value
    array([[3., 0.],
           [0., 4.]], dtype=float32)
    """
    return partial(_diagonal, values)


def _diagonal(values: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    count = min(_matrix("diagonal", shape))
    line = np.asarray(values((count,), np.dtype(dtype)) if callable(values) else values)
    if line.shape not in ((), (count,)):
        raise ShapeError(
            message(
                f"init.diagonal: values of shape {line.shape} for shape {shape}",
                need=f"one value, or {count}",
            )
        )
    matrix = np.zeros(shape, dtype=dtype)
    np.fill_diagonal(matrix, line)
    return matrix


@documented
def mask(pattern: Any, values: Any = 1.0, seed: Seed = None) -> Initializer:
    """Put values where a pattern is true and zeros elsewhere.

    pattern: Array of bools (or of numbers: nonzero is true) that broadcasts to the shape; or a
        number in [0, 1]: the share of elements that are drawn to be true.
    values: A number or an array that broadcasts to the shape; or an initializer.
    seed: Of the generator that draws the pattern.
    returns (callable):
    raises ShapeError: When called, if the pattern or the values do not broadcast to the shape; or
        at once, if a share is outside of [0, 1].

    >>> mg.var("W", shape=(2, 2), init=mg.init.mask([[1, 0], [1, 1]], 0.5)).value
    array([[0.5, 0. ],
           [0.5, 0.5]], dtype=float32)
    """
    share = isinstance(pattern, (int, float)) and not isinstance(pattern, bool)
    if share and not 0 <= pattern <= 1:
        raise ShapeError(message(f"init.mask: a share of {pattern}", need="0 <= share <= 1"))
    return partial(_mask, share, pattern, values, _checked("mask", seed))


def _mask(
    share: bool,
    pattern: Any,
    values: Any,
    seed: Seed,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> np.ndarray:
    if share:
        chosen = np.random.default_rng(seed).random(shape) < pattern
    else:
        try:
            chosen = np.broadcast_to(np.asarray(pattern).astype(bool), shape)
        except ValueError:
            raise ShapeError(
                message(
                    f"init.mask: a pattern of shape {np.shape(pattern)} for shape {shape}",
                    need="a pattern that broadcasts to the shape",
                )
            ) from None
    filled = values if callable(values) else constant(values)
    return np.where(chosen, filled(shape, np.dtype(dtype)), np.zeros((), dtype=dtype))
