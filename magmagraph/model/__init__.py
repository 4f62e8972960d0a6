"""Models: what trains, evaluates, uses and stores networks.

`NeuralNetwork` is layers one after the other; `Model` is any graph between inputs and outputs.
"""

from .history import History
from .model import Model
from .network import NeuralNetwork

__all__ = ["History", "Model", "NeuralNetwork"]
