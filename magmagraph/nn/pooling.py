"""Layers that summarize windows or whole channels, and that make axes of space larger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.spatial.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from ..ops.spatial.pooling_grid import (
    adaptive_avg_pool,
    adaptive_max_pool,
    global_avg_pool,
    global_max_pool,
)
from ..ops.spatial.resize import pixel_shuffle, resize
from .layer import Layer, count
from .spatial import check_spatial, extents_of, layout_of

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "GlobalAvgPool2D",
    "GlobalMaxPool2D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "PixelShuffle",
    "Upsample",
]


class _Pool(Layer):
    _axes: ClassVar[int]
    _pool: ClassVar[Callable[..., Node]]

    def __init__(
        self,
        window: Any = 2,
        *,
        stride: Any = None,
        padding: Any = "valid",
        layout: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.window = extents_of(window, self._axes, f"{type(self).__name__}: window")
        self.stride, self.padding = stride, padding
        self.layout = layout_of(layout, self._axes)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return one value for each window."""
        check_spatial(self, x, self._axes)
        pool = type(self)._pool
        return pool(x, self.window, self.stride, self.padding, layout=self.layout)


@documented
class MaxPool2D(_Pool):
    """Keep the largest value of every window, see `mg.max_pool2d`.

    window (int or pair of int): Height and width.
    stride (int or pair of int, optional): The window unless said.
    padding, layout: As of `mg.max_pool2d`.

    >>> mg.nn.MaxPool2D(2)(mg.var("x", shape=("batch", 8, 24, 24))).shape
    (batch, 8, 12, 12)
    """

    _axes, _pool = 2, staticmethod(max_pool2d)


class AvgPool2D(_Pool):
    """Take the mean of every window, see `mg.avg_pool2d`; parameters as of `MaxPool2D`."""

    _axes, _pool = 2, staticmethod(avg_pool2d)


class MaxPool1D(_Pool):
    """Keep the largest value of every window of sequences, ``(batch, channels, length)``.

    Parameters as of `MaxPool2D`, for one axis.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.MaxPool1D(2)(mg.constant([[[1.0, 3.0, 2.0, 0.0]]])).eval()
    array([[[3., 2.]]], dtype=float32)
    """

    _axes, _pool = 1, staticmethod(max_pool1d)


class AvgPool1D(_Pool):
    """Take the mean of every window of sequences; parameters as of `MaxPool2D`, for one axis."""

    _axes, _pool = 1, staticmethod(avg_pool1d)


class MaxPool3D(_Pool):
    """Keep the largest value of every window of volumes; parameters as of `MaxPool2D`."""

    _axes, _pool = 3, staticmethod(max_pool3d)


class AvgPool3D(_Pool):
    """Take the mean of every window of volumes; parameters as of `MaxPool2D`."""

    _axes, _pool = 3, staticmethod(avg_pool3d)


@documented
class GlobalAvgPool2D(Layer):
    """Take the mean of every channel over all of the image.

    layout (str, optional): "NCHW" unless said, or "NHWC".

    >>> mg.nn.GlobalAvgPool2D()(mg.var("x", shape=("batch", 512, 7, 7))).shape
    (batch, 512)
    """

    _pool: ClassVar[Callable[..., Node]] = staticmethod(global_avg_pool)

    def __init__(self, *, layout: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.layout = layout_of(layout, 2)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return one value for each channel."""
        check_spatial(self, x, 2)
        return type(self)._pool(x, self.layout)


class GlobalMaxPool2D(GlobalAvgPool2D):
    """Take the largest value of every channel over all of the image; as `GlobalAvgPool2D`."""

    _pool = staticmethod(global_max_pool)


@documented
class AdaptiveAvgPool(Layer):
    """Take the mean of each part of a grid, whatever the extents are: `mg.adaptive_avg_pool`.

    extents (int or sequence of int): Parts along each axis of space, of which the input has one to
        three.
    layout (str, optional): As of `mg.conv`; channels first unless said.
    raises ConfigError: If an extent is not positive.
    raises ShapeError: By a call: the input has another number of axes, or a named one is to have
        several parts.

    >>> mg.nn.AdaptiveAvgPool((2, 3))(mg.var("x", shape=("batch", 8, 7, 9))).shape
    (batch, 8, 2, 3)
    """

    _pool: ClassVar[Callable[..., Node]] = staticmethod(adaptive_avg_pool)

    def __init__(self, extents: Any, *, layout: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        several = len(extents) if isinstance(extents, (list, tuple)) else 1
        counts = extents_of(extents, several, f"{type(self).__name__}: extents")
        self.extents: Any = counts if isinstance(extents, (list, tuple)) else counts[0]
        self.layout = layout

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return a value for each part."""
        return type(self)._pool(x, self.extents, self.layout)


class AdaptiveMaxPool(AdaptiveAvgPool):
    """Keep the largest value of each part of a grid; parameters as of `AdaptiveAvgPool`."""

    _pool = staticmethod(adaptive_max_pool)


@documented
class Upsample(Layer):
    """Make sequences, images or volumes larger by a factor, see `mg.resize`.

    scale (float, or sequence of float): Factors of the extents: one for all axes of space, or one
        for each.
    method (str): "nearest", "linear" or "cubic".
    align_corners, channels_last: As of `mg.resize`.
    raises ConfigError: If a factor is not positive.
    raises ShapeError: By a call, as `mg.resize`.

    >>> mg.nn.Upsample(2)(mg.var("x", shape=("batch", 8, "h", 9))).shape
    (batch, 8, 2*h, 18)
    """

    def __init__(
        self,
        scale: Any = 2,
        *,
        method: str = "nearest",
        align_corners: bool = False,
        channels_last: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for factor in scale if isinstance(scale, (list, tuple)) else (scale,):
            number = isinstance(factor, (int, float, np.number)) and not isinstance(factor, bool)
            if not number or not factor > 0:
                raise ConfigError(message(f"Upsample: scale={scale!r}", need="positive numbers"))
        self.scale, self.method = scale, method
        self.align_corners, self.channels_last = align_corners, channels_last

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the larger values."""
        return resize(
            x,
            scale=self.scale,
            method=self.method,
            align_corners=self.align_corners,
            channels_last=self.channels_last,
        )


@documented
class PixelShuffle(Layer):
    """Make images larger by laying channels out as pixels, see `mg.pixel_shuffle`.

    W. Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel
    convolutional neural network", CVPR 2016.

    factor (int): Of height and width; it takes the square of it of the channels.
    raises ConfigError: If the factor is no positive int.
    raises ShapeError: By a call, if its square does not divide the channels.

    >>> mg.nn.PixelShuffle(2)(mg.var("x", shape=("batch", 12, 5, 5))).shape
    (batch, 3, 10, 10)
    """

    def __init__(self, factor: int, **options: Any) -> None:
        super().__init__(**options)
        self.factor = count(factor, "PixelShuffle: factor")

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the larger images."""
        return pixel_shuffle(x, self.factor)
