"""How a model is written to a file, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, message
from . import files

if TYPE_CHECKING:
    from ..nn.layer import Layer, Weight

__all__ = ["Saving"]


class Saving:
    """Weights as files; mixed into `Model`."""

    layers: list[Layer]

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name."""
        raise NotImplementedError

    def architecture(self) -> dict[str, Any] | None:
        """Return how it is built, as JSON values; None for a graph, which Python code builds."""
        return None

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the values of all weights by name."""
        return {name: weight.variable.value for name, weight in self.weights().items()}

    def save_weights(self, path: Any) -> None:
        """Write the weights to a file, whole or not at all.

        Parameters
        ----------
        path
            Of a safetensors file; what is there is replaced once the new one is complete.
        """
        files.write(path, self.tensors(), {"kind": "model", "architecture": self.architecture()})

    save = save_weights

    def load_weights(self, path: Any) -> None:
        """Read the weights from a file that `save` wrote.

        Raises
        ------
        DataError
            If the file is missing or damaged, or holds the weights of another architecture: the
            model keeps its own then.
        """
        tensors, _ = files.read(path, "model")
        self.set_tensors(tensors, f"{str(path)!r}")

    def set_tensors(self, tensors: Mapping[str, np.ndarray], source: str) -> None:
        """Set all weights, or raise `DataError` and set none."""
        own = self.weights()
        missing = [name for name in own if name not in tensors]
        unknown = [name for name in tensors if name not in own]
        if missing or unknown:
            lines = [f"{source} is of another architecture:"]
            lines += [f"it lacks {name}, which this model has" for name in missing[:5]]
            lines += [f"it has {name}, which this model lacks" for name in unknown[:5]]
            raise DataError(message("\n".join(lines), need=f"the {len(own)} weights of this model"))
        for name, weight in own.items():
            held, given = weight.variable.state.held, tensors[name]
            if held.shape != given.shape or held.dtype != given.dtype:
                raise DataError(
                    message(
                        f"{source} is of another architecture: {name} is "
                        f"{given.dtype.name}{list(given.shape)} there",
                        need=f"{held.dtype.name}{list(held.shape)}, as in this model",
                    )
                )
        for name, weight in own.items():
            weight.variable.assign(tensors[name])


def same_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal, tuples and lists alike."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
