"""Fourier transforms along axes.

A step of a :class:`~magmagraph.runtime.cpu.support.Program`; `fourier.c` has the kernel. Lengths
are products of 2, 3 and 5, and what a thread works on has to fit into a near cache.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from .compiler import Library
from .memory import Address, address_of
from .sources import FOURIER_LEVEL, fourier_source
from .support import function_address, load_kernels_together

__all__ = ["LONGEST", "factors_of", "fourier_step", "least_bytes"]

LONGEST = 4096  # complex numbers of a line
ALONE = 512  # of a line that may be computed without others beside it
FEWEST = 4  # lines that are longer
POINT = 128  # bytes of an element of all lines of a group, at most
KINDS = ("forward", "inverse", "of real", "to real")

Step = tuple[int, list[int]]


@functools.lru_cache(maxsize=4)
def _library(real: str) -> Library:
    (library,) = load_kernels_together([fourier_source(real)], [FOURIER_LEVEL])
    return library


@functools.lru_cache(maxsize=256)
def factors_of(length: int) -> tuple[int, ...] | None:
    """Return the factors of the passes over a line, or None where there is another prime.

    Examples
    --------
    >>> factors_of(48), factors_of(512), factors_of(7)
    ((4, 4, 3), (8, 8, 8), None)
    """
    found = []
    for prime in (5, 3):
        while length % prime == 0:
            found.append(prime)
            length //= prime
    twos = length.bit_length() - 1
    if length != 1 << twos:
        return None
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0
    eights = (twos - 2 * fours) // 3 if twos > 1 else 0
    return (*[8] * eights, *[4] * fours, *[2] * (twos == 1), *reversed(found))


def refusal(length: int, kind: str) -> str | None:
    """Return why a line of so many values has no kernel, or None."""
    if "real" in kind and length % 2:
        return f"a line of {length} real values is no line of half as many complex ones"
    points = length // 2 if "real" in kind else length
    if points > LONGEST:
        return f"kernels transform lines of at most {LONGEST} complex numbers"
    if factors_of(points) is None:
        return "kernels transform lines whose length is a product of 2, 3 and 5"
    return None


def too_few(length: int, lines: int) -> bool:
    """Return whether lines are so few that SciPy's library is faster."""
    return length > ALONE and lines < FEWEST


def least_bytes(shape: tuple[int, ...], axes: tuple[int, ...], kind: str) -> int:
    """Return the bytes that one thread needs to transform an array along axes."""
    halved = 2 if "real" in kind else 1
    return 2 * (max(shape[axis] // halved for axis in axes) + 1) * POINT


@functools.lru_cache(maxsize=64)
def _tables(points: int, real: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the factors of a length, the roots of its passes, and those of real lines."""
    factors = factors_of(points)
    assert factors is not None, "the family has refused it"
    dtype = np.dtype(real)
    parts, length = [np.zeros(0)], points
    for factor in factors:
        rest = length // factor
        turns = np.outer(np.arange(rest), np.arange(1, factor)) % length
        parts.append(_roots(turns.reshape(-1), length))
        length = rest
    halves = _roots(np.arange(points // 2 + 1), 2 * points)
    return (
        np.array(factors or [0], np.int64), np.concatenate(parts).astype(dtype),
        halves.astype(dtype),
    )  # fmt: skip


def _roots(turns: np.ndarray, length: int) -> np.ndarray:
    """Return exp(-2 pi i turns / length), real and imaginary parts in turn."""
    angles = 2 * math.pi * (turns / length)
    return np.stack([np.cos(angles), -np.sin(angles)], -1).reshape(-1)


def fourier_step(
    dtype: np.dtype,
    out: int,
    x: int,
    work: tuple[int, int],
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    kind: str,
    scale: float,
    keep: list[object],
) -> Step:
    """Return the step that transforms an array along axes.

    Parameters
    ----------
    dtype
        float32 or float64, of the parts.
    out, x : int
        Addresses of the result and of the array. `out` may be `x` unless one of them is real.
    work : (int, int)
        Address and bytes of memory to work in.
    shape : tuple of int
        Of the values; of real ones where there are real ones.
    axes : tuple of int
        One of them where there are real values.
    kind : str
        One of `KINDS`.
    scale : float
        What results are multiplied by.
    keep : list
        Takes what must live as long as the step.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 x, 2 work, the rest as in `fourier.c`.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    halved = 2 if "real" in kind else 1
    each = least_bytes(shape, axes, kind)
    bits = int(np.float64(scale).view(np.int64))
    words = [out, x, work[0], each, max(1, work[1] // each), len(axes), bits]
    for axis in axes:
        points = shape[axis] // halved
        tables = _tables(points, dtype.name)
        keep.append(tables)
        factors = factors_of(points)
        assert factors is not None, "the family has refused it"
        before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        words += [before, behind, KINDS.index(kind), points, len(factors)]
        words += [Address(address_of(table), table) for table in tables]
    real = "float" if dtype.itemsize == 4 else "double"
    return function_address(_library(real), "mg_fourier"), words
