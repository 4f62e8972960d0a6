"""What the files of layout operations share: axes, texts of shapes, sample arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Call, describe

LINE = np.array([0.5, -1.0, 2.0])
MATRIX = np.arange(6.0).reshape(2, 3) - 2.5
CUBE = np.linspace(-2.0, 3.0, 24).reshape(2, 3, 4)


def axes_of(call: Call, axes: Any, ndim: int, name: str = "axis") -> list[int]:
    """Return normalized axes, each at most once, in the order given."""
    if isinstance(axes, Node):
        raise call.dtype_error(
            f"{name} is {describe(axes)}",
            need="ints, known when the graph is built",
            hint="mg.maximum(x, y), mg.minimum(x, y), mg.add(x, y) take two arrays",
        )
    single = isinstance(axes, str) or not isinstance(axes, Iterable)
    single = single or getattr(axes, "ndim", 1) == 0
    listed: list[Any] = [axes] if single else list(axes)
    positions = [call.axis(axis, ndim, name) for axis in listed]
    for position, axis in enumerate(positions):
        if axis in positions[:position]:
            raise call.shape_error(f"{name}={axes!r} names axis {axis} twice")
    return positions


def shape_text(shape: Sequence[Any]) -> str:
    """Return a shape as text."""
    inner = ", ".join(map(str, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
