"""Layouts, extents of windows and checks of inputs, for layers over axes of space."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ConfigError, ShapeError, message
from ..ir.graph import Node
from .layer import Layer

__all__ = ["check_spatial", "extents_of", "is_last", "layout_of"]

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
_INPUTS = {
    1: ("sequences: (batch, channels, length)", "mg.expand_dims, or mg.nn.Reshape((channels, -1))"),
    2: (
        "images: (batch, channels, height, width)",
        "mg.nn.Reshape((1, 28, 28)) first, or Input((1, 28, 28))",
    ),
    3: (
        "volumes: (batch, channels, depth, height, width)",
        "mg.nn.Reshape((1, depth, height, width)) first",
    ),
}


def layout_of(layout: str | None, axes: int) -> str:
    """Return a layout of so many axes of space: channels first unless said."""
    names = _LAYOUTS[axes]
    if layout is None:
        return names[0]
    if layout not in names:
        raise ConfigError(message(f"layout={layout!r}", need=f"{names[0]!r} or {names[1]!r}"))
    return layout


def is_last(layout: str) -> bool:
    """Return whether channels are the last axis of a layout."""
    return layout.endswith("C")


def extents_of(extents: Any, axes: int, name: str) -> tuple[int, ...]:
    """Return a positive int for each axis, from one for all or a sequence."""
    extent_tuple = tuple(extents) if isinstance(extents, (list, tuple)) else (extents,) * axes
    whole = all(
        isinstance(extent, (int, np.integer)) and not isinstance(extent, bool) and extent > 0
        for extent in extent_tuple
    )
    if len(extent_tuple) != axes or not whole:
        several = {1: "a positive int", 2: "a positive int, or two of them"}
        raise ConfigError(
            message(
                f"{name}={extents!r}",
                need=several.get(axes, f"a positive int, or {axes} of them"),
            )
        )
    return tuple(map(int, extent_tuple))


def check_spatial(layer: Layer, x: Node, axes: int) -> None:
    """Raise `ShapeError` where an input has another number of axes of space."""
    if x.ndim != axes + 2:
        need, hint = _INPUTS[axes]
        raise ShapeError(
            message(
                f"layer '{layer.name}' is given an input of shape {x.shape}", need=need, hint=hint
            )
        )
