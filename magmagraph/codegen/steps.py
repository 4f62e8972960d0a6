"""Facts about a step of a plan for backends: its bodies, extents of its values, layout of parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir import dims
from ..ir.dims import Dim
from ..ir.graph import Graph
from ..ir.plan import Step, Value
from ..ir.types import Type

__all__ = ["bodies_of", "bytes_of", "join_layout", "scaling_of", "shape_of"]


def bodies_of(step: Step) -> tuple[Graph, ...]:
    """Return the body graphs of a fused step."""
    attrs = step.node.attrs
    return tuple(attrs["bodies"]) if "bodies" in attrs else (attrs["body"],)


def shape_of(type_: Type) -> tuple[int, ...]:
    """Return the extents of a bound type."""
    assert not any(isinstance(extent, Dim) for extent in type_.shape)
    return type_.shape  # type: ignore[return-value]


def bytes_of(type_: Type) -> int:
    """Return the bytes of a bound type."""
    return int(type_.bytes)


def scaling_of(step: Step, first: int) -> tuple[Value | None, Value | None, Value | None]:
    """Return alpha, C and beta of a product whose matrices are the `first` operands."""
    rest = list(step.inputs[first:])
    alpha = rest.pop(0) if step.node.attrs["scaled"] else None
    c, beta = rest if step.node.attrs["accumulate"] else (None, None)
    return alpha, c, beta


def join_layout(
    step: Step, sizes: Mapping[str, int]
) -> tuple[int, int, list[tuple[int, int, int, int]]]:
    """Return the layout of a concatenation along one axis, or of an array padded with zeros.

    Returns
    -------
    rows, width
        How often they stand so, and the bytes of each row of the result.
    parts
        For each array where it begins in a row, and its bytes there; where these begin in a row of
        the array, and the bytes of such a row.
    """
    out = step.outputs[0]
    shape = shape_of(out.type)
    attrs = step.node.attrs
    if "axis" in attrs:
        axis, at = attrs["axis"] % len(shape), 0
    else:
        piece = shape_of(step.inputs[0].type)
        axis = next((a for a, e in enumerate(shape) if e != piece[a]), 0)
        start = attrs["starts"][axis]
        at = dims.evaluate(start, sizes) if isinstance(start, Dim) else int(start)
    unit = out.type.dtype.itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64))
    rows = int(np.prod(shape[:axis], dtype=np.int64))
    parts = []
    for position, value in enumerate(step.inputs):
        extent = count = shape_of(value.type)[axis]
        first = 0
        if "lengths" in attrs:
            first = dims.evaluate(attrs["starts"][position], sizes)
            count = dims.evaluate(attrs["lengths"][position], sizes)
        parts.append((at * unit, count * unit, first * unit, extent * unit))
        at += count
    return rows, unit * shape[axis], parts
