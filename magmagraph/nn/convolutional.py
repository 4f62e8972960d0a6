"""Layers of images: convolutions and pooling over two spatial axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ConfigError, ShapeError, message
from ..ir.graph import Node
from ..ops.convolution.functions import conv2d
from ..ops.reduction.statistics import mean
from ..ops.spatial.pooling import avg_pool2d, max_pool2d
from .activations import activation as function_of
from .initializers import initializer
from .layer import Layer, count

__all__ = ["AvgPool2D", "Conv2D", "GlobalAvgPool2D", "MaxPool2D"]


def _pair(given: Any, name: str) -> tuple[int, int]:
    pair = tuple(given) if isinstance(given, (list, tuple)) else (given, given)
    whole = all(isinstance(extent, (int, np.integer)) and extent > 0 for extent in pair)
    if len(pair) != 2 or not whole:
        raise ConfigError(message(f"{name}={given!r}", need="a positive int, or two of them"))
    return int(pair[0]), int(pair[1])


def _images(layer: Layer, x: Node) -> None:
    if x.ndim != 4:
        raise ShapeError(
            message(
                f"layer '{layer.name}' is given an input of shape {x.shape}",
                need="images: (batch, channels, height, width)",
                hint="mg.nn.Reshape((1, 28, 28)) first, or Input((1, 28, 28))",
            )
        )


class Conv2D(Layer):
    """Slide windows of weights over images, see `mg.conv2d`.

    Parameters
    ----------
    filters : int
        Channels of the result.
    window : int or pair of int
        Height and width of the window.
    activation : str or callable, optional
        Of the result.
    stride, padding, dilation, groups
        As of `mg.conv2d`.
    layout : str
        "NCHW", channels first, or "NHWC".
    bias : bool
        Whether there is one.
    kernel_init, bias_init
        See `Layer.weight`. Initializers see the kernel as ``(filters, channels, *window)``.
    **options
        Of every `Layer`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.var("x", shape=("batch", 1, 28, 28))
    >>> mg.nn.Conv2D(8, 5, activation="relu")(x).shape
    (batch, 8, 24, 24)
    """

    def __init__(
        self,
        filters: int,
        window: Any,
        activation: Any = None,
        *,
        stride: Any = 1,
        padding: Any = "valid",
        dilation: Any = 1,
        groups: int = 1,
        layout: str = "NCHW",
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        bias_init: Any = "zeros",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.filters = count(filters, "Conv2D: filters")
        self.window = _pair(window, "Conv2D: window")
        self.activation = activation
        self.sliding = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "layout": _layout(layout),
        }
        self.bias = bias
        self.kernel_init, self.bias_init = kernel_init, bias_init
        self._function = function_of(activation)

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make kernel and bias."""
        _images(self, x)
        last = self.sliding["layout"] == "NHWC"
        channels = x.shape[-1 if last else 1]
        share = channels // self.sliding["groups"] if isinstance(channels, int) else channels
        shape: tuple[Any, ...] = (self.filters, share, *self.window)
        init = initializer(self.kernel_init)
        if last:
            shape = (*self.window, share, self.filters)
            init = _channels_last(init)
        self.kernel = self.weight("kernel", shape, init, decays=True)
        self.offset = self.weight("bias", (self.filters,), self.bias_init) if self.bias else None

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the filtered images."""
        _images(self, x)
        return self._function(conv2d(x, self.kernel, bias=self.offset, **self.sliding))


def _layout(layout: str) -> str:
    if layout not in ("NCHW", "NHWC"):
        raise ConfigError(message(f"layout={layout!r}", need="'NCHW' or 'NHWC'"))
    return layout


def _channels_last(init: Any) -> Any:
    """Return an initializer that sees a kernel with channels first, as fans are counted."""
    if not callable(init):
        return init

    def make(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        *window, ins, outs = shape
        made = np.moveaxis(init((outs, ins, *window), dtype), (0, 1), (-1, -2))
        return np.ascontiguousarray(made)

    return make


class MaxPool2D(Layer):
    """Keep the largest value of every window, see `mg.max_pool2d`.

    Parameters
    ----------
    window : int or pair of int
        Height and width.
    stride : int or pair of int, optional
        The window unless said.
    padding, layout
        As of `mg.max_pool2d`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.MaxPool2D(2)(mg.var("x", shape=("batch", 8, 24, 24))).shape
    (batch, 8, 12, 12)
    """

    _pool = staticmethod(max_pool2d)

    def __init__(
        self,
        window: Any = 2,
        *,
        stride: Any = None,
        padding: Any = "valid",
        layout: str = "NCHW",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.window = _pair(window, f"{type(self).__name__}: window")
        self.stride, self.padding, self.layout = stride, padding, _layout(layout)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return one value for each window."""
        _images(self, x)
        return self._pool(x, self.window, self.stride, self.padding, layout=self.layout)


class AvgPool2D(MaxPool2D):
    """Take the mean of every window, see `mg.avg_pool2d`; parameters as of `MaxPool2D`."""

    _pool = staticmethod(avg_pool2d)


class GlobalAvgPool2D(Layer):
    """Take the mean of every channel over all of the image.

    Parameters
    ----------
    layout : str
        "NCHW", or "NHWC".

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.GlobalAvgPool2D()(mg.var("x", shape=("batch", 512, 7, 7))).shape
    (batch, 512)
    """

    def __init__(self, *, layout: str = "NCHW", **options: Any) -> None:
        super().__init__(**options)
        self.layout = _layout(layout)

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return one value for each channel."""
        _images(self, x)
        return mean(x, (1, 2) if self.layout == "NHWC" else (2, 3))
