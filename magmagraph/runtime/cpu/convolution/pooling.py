"""Pooling as steps of a program: one library for each dtype and kernel."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....ir.graph import Node
from ....ir.interpret import bind_attributes
from ....ops.spatial.pooling_records import kernel_name, reads_windows, spatial_of
from .. import sources
from ..compiler import Library
from ..support import function_address, load_kernels

__all__ = ["pooling_library", "pooling_source", "pooling_step"]

_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def pooling_source(dtype: np.dtype, name: str) -> str:
    """Return the C of a record's kernel for float32 or float64, by the record's name."""
    return sources.pooling_source(_TYPES[dtype], name)


@functools.lru_cache(maxsize=16)
def pooling_library(dtype: np.dtype, name: str) -> Library:
    """Return the library of a record's kernel, compiled on the first call.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    return load_kernels(pooling_source(dtype, name))


def pooling_step(
    node: Node,
    sizes: Mapping[str, int],
    operands: Sequence[int],
    out: int,
    shapes: Sequence[Sequence[int]],
) -> tuple[int, list[int]]:
    """Return the step of a record of pooling.

    Parameters
    ----------
    node
        The node that it computes, of float32 or float64 (or of positions in such an operand).
    sizes
        The sizes of its named dimensions.
    operands, out : int
        Addresses of one or two operands, and of the result.
    shapes
        Extents of the first operand and of the result.

    Returns
    -------
    (int, list of int)
        Function and cells: 0-1 the operands (0 for none), 2 the result, 3 outer, 4 inner, then
        for three axes each 5 inputs, 8 window, 11 windows, 14 strides, 17 dilation, 20 padding
        before the first element.

    Raises
    ------
    CompilerUnavailable
        Where there is no working C compiler.
    """
    attrs: dict[str, Any] = bind_attributes(node.attrs, sizes)
    last, count = attrs["channels_last"], len(attrs["window"])
    operand_geometry, result_geometry = (spatial_of(tuple(shape), count, last) for shape in shapes)
    inputs, windows = (
        (result_geometry, operand_geometry)
        if reads_windows(node)
        else (operand_geometry, result_geometry)
    )
    lead = shapes[0][: len(shapes[0]) - count - (1 if last else 0)]
    library = pooling_library(node.inputs[0].dtype, node.op.name)
    cells = [operands[0], operands[1] if len(operands) > 1 else 0, out]
    cells += [math.prod(lead), shapes[0][-1] if last else 1]
    for values, missing in (
        (inputs, 1),
        (attrs["window"], 1),
        (windows, 1),
        (attrs["strides"], 1),
        (attrs["dilation"], 1),
        (attrs["low"], 0),
    ):
        cells += [missing] * (3 - count) + [int(v) for v in values]
    return function_address(library, kernel_name(node)), cells
