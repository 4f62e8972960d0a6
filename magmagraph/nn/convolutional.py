"""Convolutions over one, two or three axes of space: plain, depthwise, separable, transposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convolution.functions import conv1d, conv2d, conv3d
from ..ops.convolution.transpose import conv1d_transpose, conv2d_transpose, conv3d_transpose
from .activations import activation as function_of
from .initializers import initializer
from .layer import Layer, count
from .spatial import check_spatial, extents_of, is_last, layout_of

__all__ = [
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
    "SeparableConv1D",
    "SeparableConv2D",
]


class _Convolution(Layer):
    """Windows of weights over axes of space."""

    _axes: ClassVar[int]
    _convolve: ClassVar[Callable[..., Node]]

    #: Axes of the results in a kernel, channels first and last.
    _results: ClassVar[tuple[int, int]] = (0, -1)

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
        layout: str | None = None,
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        bias_init: Any = "zeros",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        kind = type(self).__name__
        self.filters = count(filters, f"{kind}: filters")
        self.window = extents_of(window, self._axes, f"{kind}: window")
        self.activation = activation
        self.sliding = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": count(groups, f"{kind}: groups"),
            "layout": layout_of(layout, self._axes),
        }
        self.bias = bias
        self.kernel_init, self.bias_init = kernel_init, bias_init
        self._function = function_of(activation)

    @property
    def kernel_axis(self) -> int:
        """The axis of the kernel along which the results are."""
        return self._results[is_last(self.sliding["layout"])]

    def _channels(self, x: Node) -> Any:
        return x.shape[-1 if is_last(self.sliding["layout"]) else 1]

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make kernel and bias."""
        check_spatial(self, x, self._axes)
        channels, groups = self._channels(x), self.sliding["groups"]
        for what, number in (("channels of the input", channels), ("filters", self.filters)):
            if isinstance(number, int) and number % groups:
                raise ConfigError(
                    message(
                        f"layer '{self.name}': {number} {what} in groups={groups}",
                        need="a number that the groups divide",
                    )
                )
        shape, init = self._kernel_form(channels, groups)
        self.kernel = self.weight("kernel", shape, init, decays=True)
        self.offset = self.weight("bias", (self.filters,), self.bias_init) if self.bias else None

    def _kernel_form(self, channels: Any, groups: int) -> tuple[tuple[Any, ...], Any]:
        """Return the kernel's shape, and the initializer in the order of its axes."""
        share = channels // groups if isinstance(channels, int) else channels
        init = initializer(self.kernel_init)
        if is_last(self.sliding["layout"]):
            return (*self.window, share, self.filters), _with_moved_axes(init, (-1, -2))
        return (self.filters, share, *self.window), init

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the filtered values."""
        check_spatial(self, x, self._axes)
        convolve = type(self)._convolve
        return self._function(convolve(x, self.kernel, bias=self.offset, **self.sliding))


def _with_moved_axes(init: Any, places: tuple[int, int]) -> Any:
    """Return an initializer of kernels whose results and channels are at other axes.

    `init` sees ``(results, channels, *window)``, in which fans are counted.
    """
    if not callable(init):
        return init

    def make(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        seen = np.moveaxis(np.empty(shape, np.uint8), places, (0, 1)).shape
        return np.ascontiguousarray(np.moveaxis(init(seen, dtype), (0, 1), places))

    return make


@documented
class Conv2D(_Convolution):
    """Slide windows of weights over images, see `mg.conv2d`.

    filters (int): Channels of the result.
    window (int or pair of int): Height and width of the window.
    activation (str or callable, optional): Of the result.
    stride, padding, dilation, groups: As of `mg.conv2d`.
    layout (str, optional): "NCHW", channels first, unless said; or "NHWC".
    bias (bool): Whether there is one.
    kernel_init, bias_init: See `Layer.weight`. Initializers see the kernel as ``(filters, channels,
        *window)``.
    raises ConfigError: If an argument is out of range; by a call, if the groups do not divide
        channels or filters.
    raises ShapeError: By a call on what is no ``(batch, channels, height, width)``.

    >>> x = mg.var("x", shape=("batch", 1, 28, 28))
    >>> mg.nn.Conv2D(8, 5, activation="relu")(x).shape
    (batch, 8, 24, 24)
    """

    _axes, _convolve = 2, staticmethod(conv2d)


class Conv1D(_Convolution):
    """Slide windows of weights over sequences, see `mg.conv1d`; parameters as of `Conv2D`.

    The input is ``(batch, channels, length)``, or ``(batch, length, channels)`` with
    ``layout="NWC"``; `window` is an int. A causal convolution has ``padding=[(window - 1, 0)]``.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.Conv1D(8, 3, padding="same")(mg.var("x", shape=("batch", 2, "length"))).shape
    (batch, 8, length)
    """

    _axes, _convolve = 1, staticmethod(conv1d)


class Conv3D(_Convolution):
    """Slide windows of weights over volumes, see `mg.conv3d`; parameters as of `Conv2D`.

    The input is ``(batch, channels, depth, height, width)``, or channels last with
    ``layout="NDHWC"``; `window` is an int or three.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.Conv3D(4, (1, 3, 3))(mg.var("x", shape=("batch", 2, 5, 8, 8))).shape
    (batch, 4, 5, 6, 6)
    """

    _axes, _convolve = 3, staticmethod(conv3d)


# Every channel by itself.


class _Depthwise(_Convolution):
    def __init__(
        self, window: Any, activation: Any = None, *, multiplier: int = 1, **options: Any
    ) -> None:
        kind = type(self).__name__
        for name in ("filters", "groups"):
            if name in options:
                raise ConfigError(
                    message(
                        f"{kind}: {name}={options[name]!r}",
                        need=f"no {name}: each channel has `multiplier` filters of its own",
                    )
                )
        super().__init__(1, window, activation, **options)
        self.multiplier = count(multiplier, f"{kind}: multiplier")

    def build(self, x: Node) -> None:  # type: ignore[override]
        """Make kernel and bias."""
        check_spatial(self, x, self._axes)
        channels = self._channels(x)
        if isinstance(channels, int):  # the base explains what else it is
            self.sliding["groups"], self.filters = channels, channels * self.multiplier
        super().build(x)


@documented
class DepthwiseConv2D(_Depthwise):
    """Slide windows of its own over each channel of images.

    window (int or pair of int): Height and width of the window.
    activation (str or callable, optional): Of the result.
    multiplier (int): Results of each channel: the result has ``channels * multiplier``.
    **options: As of `Conv2D`, without `groups`; and of every `Layer`.

    >>> mg.nn.DepthwiseConv2D(3, multiplier=2)(mg.var("x", shape=("batch", 4, 9, 9))).shape
    (batch, 8, 7, 7)
    """

    _axes, _convolve = 2, staticmethod(conv2d)


class DepthwiseConv1D(_Depthwise):
    """Slide windows of its own over each channel of sequences; as `DepthwiseConv2D`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.DepthwiseConv1D(3)(mg.var("x", shape=("batch", 4, 9))).shape
    (batch, 4, 7)
    """

    _axes, _convolve = 1, staticmethod(conv1d)


class _Separable(Layer):
    """A depthwise convolution, and one with windows of one element that mixes the channels."""

    _parts: ClassVar[tuple[type[_Depthwise], type[_Convolution]]]

    def __init__(
        self,
        filters: int,
        window: Any,
        activation: Any = None,
        *,
        multiplier: int = 1,
        stride: Any = 1,
        padding: Any = "valid",
        dilation: Any = 1,
        layout: str | None = None,
        bias: bool = True,
        kernel_init: Any = "glorot_uniform",
        bias_init: Any = "zeros",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        depthwise, pointwise = self._parts
        self.activation = activation
        self.depthwise = depthwise(
            window,
            multiplier=multiplier,
            stride=stride,
            padding=padding,
            dilation=dilation,
            layout=layout,
            bias=False,
            kernel_init=kernel_init,
            name="depthwise",
        )
        self.pointwise = pointwise(
            filters,
            1,
            activation,
            layout=layout,
            bias=bias,
            kernel_init=kernel_init,
            bias_init=bias_init,
            name="pointwise",
        )

    def call(self, x: Node, training: bool) -> Node:  # type: ignore[override]
        """Return the filtered values."""
        result: Node = self.pointwise(self.depthwise(x))
        return result


@documented
class SeparableConv2D(_Separable):
    """Filter each channel of images by itself, then mix the channels of each pixel.

    F. Chollet, "Xception: deep learning with depthwise separable convolutions", CVPR 2017.

    filters (int): Channels of the result.
    window (int or pair of int): Height and width of the window of the first, depthwise convolution.
    activation (str or callable, optional): Of the result.
    multiplier (int): Results of each channel between both.
    stride, padding, dilation, layout: As of `Conv2D`, for the first one.
    bias (bool): Whether the second one has a bias.
    kernel_init, bias_init: See `Layer.weight`.

    >>> layer = mg.nn.SeparableConv2D(16, 3)
    >>> layer(mg.var("x", shape=("batch", 4, 9, 9))).shape
    (batch, 16, 7, 7)
    >>> [weight.value.shape for weight in layer.variables]
    [(4, 1, 3, 3), (16, 4, 1, 1), (16,)]
    """

    _parts = (DepthwiseConv2D, Conv2D)


class SeparableConv1D(_Separable):
    """Filter each channel of sequences by itself, then mix them; as `SeparableConv2D`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.SeparableConv1D(16, 3)(mg.var("x", shape=("batch", 4, 9))).shape
    (batch, 16, 7)
    """

    _parts = (DepthwiseConv1D, Conv1D)


# Transposed.


class _Transposed(_Convolution):
    _results = (1, -2)

    def __init__(
        self,
        filters: int,
        window: Any,
        activation: Any = None,
        *,
        output_padding: Any = 0,
        **options: Any,
    ) -> None:
        super().__init__(filters, window, activation, **options)
        self.sliding["output_padding"] = output_padding

    def _kernel_form(self, channels: Any, groups: int) -> tuple[tuple[Any, ...], Any]:
        share, init = self.filters // groups, initializer(self.kernel_init)
        if is_last(self.sliding["layout"]):
            return (*self.window, share, channels), _with_moved_axes(init, (-2, -1))
        return (channels, share, *self.window), _with_moved_axes(init, (1, 0))


@documented
class Conv2DTranspose(_Transposed):
    """Spread each element of images over a window, see `mg.conv2d_transpose`.

    With ``stride=2`` images get twice as large: the other half of a network that `Conv2D` with the
    same arguments made smaller.

    filters (int): Channels of the result.
    window (int or pair of int): Height and width of the window.
    activation (str or callable, optional): Of the result.
    output_padding (int or pair of int): Rows and columns that are added at the end of the result.
    **options: As of `Conv2D`, with padding, stride and groups as of `mg.conv2d_transpose`; and of
        every `Layer`. The kernel has shape ``(channels, filters / groups, *window)``, with channels
        last ``(*window, filters / groups, channels)``.

    >>> x = mg.var("x", shape=("batch", 16, 7, 7))
    >>> mg.nn.Conv2DTranspose(8, 4, stride=2, padding=1)(x).shape
    (batch, 8, 14, 14)
    """

    _axes, _convolve = 2, staticmethod(conv2d_transpose)


class Conv1DTranspose(_Transposed):
    """Spread each element of sequences over a window; as `Conv2DTranspose`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.Conv1DTranspose(8, 2, stride=2)(mg.var("x", shape=("batch", 4, 5))).shape
    (batch, 8, 10)
    """

    _axes, _convolve = 1, staticmethod(conv1d_transpose)


class Conv3DTranspose(_Transposed):
    """Spread each element of volumes over a window; as `Conv2DTranspose`.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.nn.Conv3DTranspose(2, 2, stride=2)(mg.var("x", shape=("batch", 4, 3, 5, 5))).shape
    (batch, 2, 6, 10, 10)
    """

    _axes, _convolve = 3, staticmethod(conv3d_transpose)
