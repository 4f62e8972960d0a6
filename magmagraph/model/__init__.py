"""Models: what trains, evaluates, uses and stores networks.

`NeuralNetwork` is layers one after the other; `Model` is any graph between inputs and outputs.
"""

from ..help.argument_errors import tell_classes
from .history import History
from .model import Model, NeuralNetwork

__all__ = ["History", "Model", "NeuralNetwork"]

_METHODS = ("evaluate", "fit", "load", "predict", "predict_class", "save", "save_weights",
            "load_weights", "set_tensors", "summary")  # fmt: skip
tell_classes(globals(), __all__, *_METHODS)
