"""Convolutional networks without shortcuts."""

from __future__ import annotations

from ...ir.docstrings import documented
from ..basic import Dense, Dropout, Flatten, Input, Output
from ..convolutional import Conv2D
from ..layer import Layer
from ..pooling import AvgPool2D, MaxPool2D

__all__ = ["alexnet", "lenet5", "vgg16"]


@documented
def lenet5(classes: int = 10, shape: tuple[int, int, int] = (1, 28, 28)) -> list[Layer]:
    """Return the layers of LeNet-5.

    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document
    recognition", 1998, section II.B, in the form that is used now: tanh units, averages for
    subsampling, all maps connected, dense output.

    classes: Outputs.
    shape: Of an image: channels, height, width. Images of 28x28 are padded by 2.
    returns (list of Layer):

    >>> mg.NeuralNetwork(mg.nn.prebuilt.lenet5()).parameters
    61706
    """
    return [
        Input(shape),
        Conv2D(6, 5, "tanh", padding=2 if shape[1] == 28 else 0),
        AvgPool2D(2),
        Conv2D(16, 5, "tanh"),
        AvgPool2D(2),
        Flatten(),
        Dense(120, "tanh"),
        Dense(84, "tanh"),
        Output(classes),
    ]


@documented
def alexnet(classes: int = 1000, shape: tuple[int, int, int] = (3, 224, 224)) -> list[Layer]:
    """Return the layers of AlexNet in its form for one device.

    A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.

    classes: Outputs.
    shape: Of an image: channels, height, width.
    returns (list of Layer):
    """
    return [
        Input(shape),
        Conv2D(64, 11, "relu", stride=4, padding=2, kernel_init="he_normal"),
        MaxPool2D(3, stride=2),
        Conv2D(192, 5, "relu", padding=2, kernel_init="he_normal"),
        MaxPool2D(3, stride=2),
        Conv2D(384, 3, "relu", padding=1, kernel_init="he_normal"),
        Conv2D(256, 3, "relu", padding=1, kernel_init="he_normal"),
        Conv2D(256, 3, "relu", padding=1, kernel_init="he_normal"),
        MaxPool2D(3, stride=2),
        Flatten(),
        Dropout(0.5),
        Dense(4096, "relu", kernel_init="he_normal"),
        Dropout(0.5),
        Dense(4096, "relu", kernel_init="he_normal"),
        Output(classes),
    ]


_VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


@documented
def vgg16(classes: int = 1000, shape: tuple[int, int, int] = (3, 224, 224)) -> list[Layer]:
    """Return the layers of VGG-16.

    K. Simonyan, A. Zisserman, "Very deep convolutional networks for large-scale image
    recognition", 2014, configuration D.

    classes: Outputs.
    shape: Of an image: channels, height, width.
    returns (list of Layer):
    """
    layers: list[Layer] = [Input(shape)]
    for filters, count in _VGG16:
        layers += [
            Conv2D(filters, 3, "relu", padding=1, kernel_init="he_normal") for _ in range(count)
        ]
        layers.append(MaxPool2D(2))
    layers.append(Flatten())
    for _ in range(2):
        layers += [Dense(4096, "relu", kernel_init="he_normal"), Dropout(0.5)]
    return [*layers, Output(classes)]
