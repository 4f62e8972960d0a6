"""How a model is written to a file, and what comes back."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError, DataError, message
from ..ir.graph import Node
from ..ir.types import FilePath
from ..nn.layer import Call, Layer, Weight
from ..optimizer import Optimizer
from ..regularize import Penalty
from . import files
from .architecture import describe_optimizer
from .metrics import Metric, metric
from .skeleton import describe_graph
from .torch_weights import (
    LoadReport,
    Place,
    loaded,
    places,
    read_state,
    renamed,
    torch_state,
    write_state,
)

__all__ = ["Saving", "loading", "same_json"]


if TYPE_CHECKING:
    loading = classmethod
else:

    class loading(classmethod):  # noqa: N801 (a decorator, as classmethod)
        """Of a class, a method that makes a model; of a model, one that reads into that model."""

        def __get__(self, model: Any, owner: Any = None) -> Any:
            bound_method = super().__get__(None, owner)
            if model is None:
                return bound_method

            @functools.wraps(bound_method)
            def load(path: FilePath, **options: Any) -> Any:
                if options:
                    names = ", ".join(f"{name}=" for name in options)
                    raise ConfigError(
                        message(
                            f"load of a model is given {names}, which a model has already",
                            hint=f"{type(model).__name__}.load(path, {names}...), a new one",
                        )
                    )
                model.load_weights(path)
                return model

            return load


class Saving:
    """Models as files; mixed into `Model`."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    calls: list[tuple[Call, Node]]
    layers: list[Layer]
    _labels: dict[int, str]
    loss: Any
    optimizer: Optimizer
    metrics: list[Metric]
    regularize: Penalty | None
    seed: int
    _single: bool

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name."""
        raise NotImplementedError

    def structure(self) -> dict[str, Any]:
        """Return layers, and the graph between them, as JSON values."""
        described = describe_graph(self.inputs, self.outputs, self.calls, self.layers)
        return {**described, "single": self._single}

    def architecture(self) -> dict[str, Any]:
        """Return structure, loss, metrics, penalty and optimizer as JSON values.

        Raises
        ------
        ConfigError
            If a layer has an argument that a file cannot hold, a function of the user's.
        """
        penalty = self.regularize
        return {
            **self.structure(),
            "loss": self.loss if isinstance(self.loss, str) else None,
            "metrics": [kind.name for kind in self.metrics if _is_named(kind)],
            "regularize": [penalty.l1, penalty.l2] if isinstance(penalty, Penalty) else None,
            "optimizer": describe_optimizer(self.optimizer),
            "seed": self.seed,
        }

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the values of all weights by name."""
        return {name: weight.variable.value for name, weight in self.weights().items()}

    def save(self, path: FilePath) -> None:
        """Write architecture and weights to a file, whole or not at all.

        Parameters
        ----------
        path
            Of a safetensors file, whose header holds the architecture as JSON. What is there is
            replaced once the new file is complete.

        Raises
        ------
        ConfigError
            If a layer has an argument that a file cannot hold, a function of the user's.

        See Also
        --------
        load : the model again.
        mg.callbacks.Checkpoint : also the optimizer's state and the position in the run.
        """
        self._write(path, self.architecture())

    def save_weights(self, path: FilePath) -> None:
        """Write the weights to a file, whole or not at all; the architecture where one can.

        Parameters
        ----------
        path
            Of a safetensors file; what is there is replaced once the new one is complete.
        """
        try:
            architecture: dict[str, Any] | None = self.architecture()
        except ConfigError:  # functions of the user's, which only his code builds again
            architecture = None
        self._write(path, architecture)

    def _write(self, path: FilePath, architecture: dict[str, Any] | None) -> None:
        files.write(path, self.tensors(), {"kind": "model", "architecture": architecture})

    def load_weights(self, path: FilePath) -> None:
        """Read the weights from a file that `save`, `save_weights` or a checkpoint wrote.

        Of a checkpoint (`mg.callbacks.Checkpoint`) the weights alone are read; ``fit(...,
        resume=path)`` also takes the state of the optimizer and the position in the run.

        Raises
        ------
        DataError
            If the file is missing (`MissingFileError`) or damaged, or holds the weights of another
            architecture: the model keeps its own then.
        """
        tensors, _ = files.read_weights(path)
        self.set_tensors(tensors, f"{str(path)!r}")

    def _places(self) -> list[Place]:
        """Return the weights by attribute path."""
        return self._places_of(self.weights())

    def _places_of(self, weights: dict[str, Weight]) -> list[Place]:
        labelled = [(self._labels[id(layer)], layer) for layer in self.layers]
        inside = {v for layer in self.layers for v in layer.variables}
        return places(labelled, {k: w for k, w in weights.items() if w.variable not in inside})

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the values of all weights by attribute path: ``encoder.0.attention.query.kernel``.

        The first part is the name of a layer of the model, unless it has a single one.

        See Also
        --------
        load_torch, save_torch

        Examples
        --------
        >>> import magmagraph as mg
        >>> net = mg.NeuralNetwork(
        ...     [mg.nn.Input((4,)), mg.nn.Dense(8, "relu"), mg.nn.Dense(3)], loss="mse")
        >>> {path: array.shape for path, array in net.state_dict().items()}
        {'dense.kernel': (4, 8), 'dense.bias': (8,), 'dense_1.kernel': (8, 3), 'dense_1.bias': (3,)}
        """
        return {place.path: np.array(place.weight.variable.value) for place in self._places()}

    def load_torch(
        self,
        source: FilePath | Mapping[str, Any] | Any,
        rename: Mapping[str, str | None] | Callable[[str], str | None] | None = None,
        strict: bool = True,
    ) -> LoadReport:
        r"""Set the weights from PyTorch's or Hugging Face's, by attribute path.

        Parameters
        ----------
        source : path, mapping or torch.nn.Module
            A safetensors file of any writer, its index where it is in several files, a folder with
            one of these, a file of ``torch.save`` (read by torch, which makes tensors alone), a
            state dict, or a module.
        rename : mapping or callable, optional
            From names there to names here: regular expressions and what takes their place, in
            order (None leaves the tensor out); or a function of a name.
        strict : bool, optional
            Whether every weight must have a tensor, and every tensor a weight; else what fits is
            loaded.

        Returns
        -------
        LoadReport
            What was loaded, transposed, missing and not expected.

        Raises
        ------
        DataError
            If it is damaged or does not fit: the network keeps all its weights then.
        MissingLibraryError
            If it is a file of ``torch.save`` and torch is not installed.

        Notes
        -----
        ``weight`` there is ``kernel``, ``table`` or ``scale`` here, ``bias`` also ``offset``,
        ``running_mean`` and ``running_var`` are ``mean`` and ``variance``. `RNN`, `LSTM` and `GRU`
        take torch's ``weight_ih_l0`` and so on, `MultiHeadAttention` its ``in_proj_weight``. Which
        matrices and filters are transposed follows from the shapes; square ones follow the
        others, or torch's ``Linear``.

        Examples
        --------
        >>> import magmagraph as mg, numpy as np
        >>> net = mg.NeuralNetwork([mg.nn.Input((2,)), mg.nn.Dense(3)], loss="mse")
        >>> state = {"fc.weight": np.ones((3, 2), "f4"), "fc.bias": np.zeros(3, "f4")}
        >>> print(net.load_torch(state, rename={r"^fc\.": ""}))
        2 weights loaded, 1 of them transposed
        transposed: kernel
        >>> net.predict([[1.0, 2.0]])
        array([[3., 3., 3.]], dtype=float32)
        """
        tensors, label = read_state(source)
        own = self._places()
        values, report = loaded(own, renamed(tensors, rename, label), strict, label)
        for place in own:
            if place.path in values:
                place.weight.variable.assign(values[place.path])
        return report

    def save_torch(self, path: FilePath) -> None:
        """Write the weights under torch's names, matrices and filters in torch's order of axes.

        Parameters
        ----------
        path
            Of a safetensors file; one that ends in ``.pt``, ``.pth`` or ``.bin`` is written by
            ``torch.save``.

        Raises
        ------
        MissingLibraryError
            If torch is to write it and is not installed.
        PathError, StorageError
            If it cannot be written.
        """
        write_state(path, torch_state(self._places()))

    def set_tensors(
        self, tensors: Mapping[str, np.ndarray], source: str = "what is given"
    ) -> None:
        """Set all weights, those of another library for instance.

        Parameters
        ----------
        tensors
            An array for each name of `tensors()`, of its shape and dtype.
        source
            Where they come from, as messages say it.

        Raises
        ------
        DataError
            If one is missing, unknown, or of another shape or dtype: none is set then.

        Examples
        --------
        >>> import magmagraph as mg, numpy as np
        >>> net = mg.NeuralNetwork([mg.nn.Input((2,)), mg.nn.Dense(1)], loss="mse")
        >>> net.set_tensors({"dense/kernel": np.ones((2, 1), "f4"), "dense/bias": np.ones(1, "f4")})
        >>> net.predict([[1.0, 2.0]])
        array([[4.]], dtype=float32)
        """
        own = self.weights()
        self.check_tensors(tensors, source)
        for name, weight in own.items():
            weight.variable.assign(tensors[name])

    def check_tensors(self, tensors: Mapping[str, np.ndarray], source: str) -> None:
        """Raise `DataError` unless there is an array for each weight, of its shape and dtype."""
        own = self.weights()
        missing = [name for name in own if name not in tensors]
        unknown = [name for name in tensors if name not in own]
        if missing or unknown:
            lines = [f"{source} is of another architecture:"]
            lines += [f"it lacks {name}, which this model has" for name in missing[:5]]
            lines += [f"it has {name}, which this model lacks" for name in unknown[:5]]
            raise DataError(message("\n".join(lines), need=f"the {len(own)} weights of this model"))
        for name, weight in own.items():
            expected, array = weight.variable.state.held, tensors[name]
            if expected.shape != array.shape or expected.dtype != array.dtype:
                raise DataError(
                    message(
                        f"{source} is of another architecture: {name} is "
                        f"{array.dtype.name}{list(array.shape)} there",
                        need=f"{expected.dtype.name}{list(expected.shape)}, as in this model",
                        hint="array.T: torch keeps these matrices the other way around"
                        if expected.ndim == 2 and expected.shape == array.shape[::-1] != array.shape
                        else None,
                    )
                )


def same_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal, tuples and lists alike."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _is_named(kind: Metric) -> bool:
    try:
        return type(metric(kind.name)) is type(kind)
    except ConfigError:
        return False
