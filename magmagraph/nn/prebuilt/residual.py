"""Residual networks."""

from __future__ import annotations

from collections.abc import Callable

from ...init import he_normal
from ...ir.docstrings import documented
from ...ops.random.bits import next_stream
from ..basic import Activation, Input, Output
from ..composed import Residual
from ..convolutional import Conv2D
from ..layer import Layer
from ..normalization import BatchNorm
from ..pooling import GlobalAvgPool2D, MaxPool2D

__all__ = ["resnet18", "resnet50"]


def _convolution(filters: int, window: int, stride: int = 1) -> list[Layer]:
    """Return a convolution without bias, followed by normalization."""
    kernel = Conv2D(
        filters,
        window,
        stride=stride,
        padding=window // 2,
        bias=False,
        kernel_init=_fan_out,
    )
    return [kernel, BatchNorm()]


def _fan_out(shape: tuple[int, ...], dtype: object) -> object:
    """Draw from He's normal distribution with the fan-out.

    K. He et al., "Delving deep into rectifiers", 2015, equation 14.
    """
    outs, ins, *window = shape
    kernel = he_normal(seed=next_stream())((ins, outs, *window), dtype)  # type: ignore[arg-type]
    return kernel.swapaxes(0, 1)


def _basic(filters: int, stride: int, shortcut: bool) -> Residual:
    return Residual(
        [
            *_convolution(filters, 3, stride),
            Activation("relu"),
            *_convolution(filters, 3),
        ],
        shortcut=_convolution(filters, 1, stride) if shortcut else None,
        activation="relu",
    )


def _bottleneck(filters: int, stride: int, shortcut: bool) -> Residual:
    return Residual(
        [
            *_convolution(filters, 1),
            Activation("relu"),
            *_convolution(filters, 3, stride),
            Activation("relu"),
            *_convolution(4 * filters, 1),
        ],
        shortcut=_convolution(4 * filters, 1, stride) if shortcut else None,
        activation="relu",
    )


def _residual(
    classes: int,
    shape: tuple[int, int, int],
    counts: tuple[int, ...],
    block: Callable[[int, int, bool], Residual],
    widens: bool,
) -> list[Layer]:
    layers: list[Layer] = [Input(shape)]
    if shape[1] <= 64:  # section 4.2: small images are not reduced before the blocks
        layers += [*_convolution(64, 3), Activation("relu")]
    else:
        layers += [*_convolution(64, 7, 2), Activation("relu"), MaxPool2D(3, stride=2, padding=1)]
    for stage, count in enumerate(counts):
        for number in range(count):
            stride = 2 if stage and not number else 1
            first = number == 0 and (stage > 0 or widens)
            layers.append(block(64 << stage, stride, first))
    return [*layers, GlobalAvgPool2D(), Output(classes)]


@documented
def resnet18(classes: int = 1000, shape: tuple[int, int, int] = (3, 224, 224)) -> list[Layer]:
    """Return the layers of ResNet-18.

    K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016,
    table 1, with projections where shapes change (option B).

    classes: Outputs.
    shape: Of an image: channels, height, width. Images of up to 64 rows, as those of CIFAR, enter
        by a 3x3 convolution and are not pooled before the blocks.
    returns (list of Layer):

    >>> net = mg.NeuralNetwork(mg.nn.prebuilt.resnet18(10, (3, 32, 32)))
    >>> sum(variable.value.size for variable in net.trainable)
    11173962
    """
    return _residual(classes, shape, (2, 2, 2, 2), _basic, widens=False)


@documented
def resnet50(classes: int = 1000, shape: tuple[int, int, int] = (3, 224, 224)) -> list[Layer]:
    """Return the layers of ResNet-50, the strides of its blocks in their 3x3 convolutions.

    K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016,
    table 1.

    classes, shape: As of `resnet18`.
    returns (list of Layer):
    """
    return _residual(classes, shape, (3, 4, 6, 3), _bottleneck, widens=True)
