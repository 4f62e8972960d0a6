"""Elementwise operations on complex arrays.

A step of a :class:`~magmagraph.runtime.cpu.support.Program`; `complex_elementwise.c` has the
kernel, which is compiled for an operation and the parts of its arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ...ir.types import Type
from .compiler import Library
from .sources import COMPLEX_LEVEL, complex_source
from .support import function_address, load_kernels_together

__all__ = ["MOST_AXES", "complex_step"]

MOST_AXES = 16

Step = tuple[int, list[int]]


@functools.lru_cache(maxsize=64)
def _library(real: str, statements: str, parts: tuple[int, int, int]) -> Library:
    (library,) = load_kernels_together([complex_source(real, statements, parts)], [COMPLEX_LEVEL])
    return library


def complex_step(
    statements: str, out: int, operands: Sequence[int], types: Sequence[Type], result: Type
) -> Step:
    """Return the step of an elementwise operation of one or two operands.

    Parameters
    ----------
    statements : str
        The C of the result's parts x and y, of those of the operands, a, b, c and d.
    out, operands : int
        Addresses.
    types, result
        Types of the operands and of the result, with known extents.

    Returns
    -------
    (int, list of int)
        Function and cells: 0 out, 1 and 2 operands, the rest as in the C.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    of = [2 if t.dtype.kind == "c" else 1 for t in (*types, result)]
    parts = (of[0], of[1] if len(types) > 1 else 0, of[-1])
    real = "float" if result.dtype.itemsize // of[-1] == 4 else "double"
    axes = _axes([[int(e) for e in t.shape] for t in types], [int(e) for e in result.shape])
    (count, first, second), *others = reversed(axes)
    words = [out, operands[0], operands[-1], len(others), count, first, second]
    words += [number for axis in reversed(others) for number in axis]
    return function_address(_library(real, statements, parts), "mg_complex"), words


def _axes(shapes: Sequence[Sequence[int]], result: Sequence[int]) -> list[list[int]]:
    """Return extent and steps of two operands for each axis, those that go on as one joined."""
    steps = []
    for shape in (shapes[0], shapes[-1]):
        padded, step, found = [1] * (len(result) - len(shape)) + list(shape), 1, []
        for extent in reversed(padded):
            found.append(0 if extent == 1 else step)
            step *= extent
        steps.append(found[::-1])
    axes: list[list[int]] = []
    for extent, *own in zip(result, *steps, strict=True):
        if extent == 1:
            continue
        if axes and all(a == b * extent for a, b in zip(axes[-1][1:], own, strict=True)):
            axes[-1] = [axes[-1][0] * extent, *own]
        else:
            axes.append([extent, *own])
    return axes or [[1, 0, 0]]
