"""Networks that are known by their names, with their standard initialization.

============================  ===================================================================
`lenet5`                      Y. LeCun et al., 1998: digits
`alexnet`                     A. Krizhevsky, 2014: images, on one device
`vgg16`                       K. Simonyan, A. Zisserman, 2014: images
`resnet18`, `resnet50`        K. He et al., 2015: images, residual
`gpt2`                        A. Radford et al., 2019: a language model; `gpt2_weights` its weights
`transformer`                 a small language model of the same form
============================  ===================================================================

Each returns the list of layers, for `mg.NeuralNetwork`; numbers of classes, channels and
sizes are arguments.
"""

from .gpt2 import gpt2, gpt2_weights
from .images import alexnet, lenet5, vgg16
from .language import transformer
from .residual import resnet18, resnet50

__all__ = [
    "alexnet",
    "gpt2",
    "gpt2_weights",
    "lenet5",
    "resnet18",
    "resnet50",
    "transformer",
    "vgg16",
]
