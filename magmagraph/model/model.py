"""Models: inputs and outputs of a graph, with all that trains, uses and stores it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import dims
from ..errors import ConfigError, DataError, GraphError, message
from ..function import Function
from ..function.feeds import bind_sizes
from ..graph import Node
from ..nn.activations import activation_name
from ..nn.basic import Input
from ..nn.layer import Layer, Weight, name_layers, no_penalty
from ..ops.leaf import Variable
from ..optimizer import Adam, Optimizer
from ..regularize import Penalty
from . import replay
from .compiling import Compiling, no_optimizer
from .copying import Copying
from .data import as_array, check_rows, checked_size, conform_inputs, on_host
from .lookups import limits_of
from .losses import Labels, loss_function
from .metrics import checked_metrics
from .saving import Saving
from .summary import Summary, summarize
from .training import History, Training, check_options

__all__ = ["Model"]


class Model(Compiling, Copying, Saving):
    """A network given by the inputs and outputs of a graph.

    Parameters
    ----------
    inputs, outputs : Node, or sequence of Node
        Layers between them were called as ``layer(x)``; the training step calls them again with
        ``training=True``.
    loss : str or callable, optional
        The name of a loss (`cross_entropy`, `mse`, ...), or a function from outputs and labels to
        a scalar node. Needed for training.
    optimizer : Optimizer, optional
        `Adam` unless said.
    metrics : sequence of str, Metric or callable, optional
        What is reported beside the loss (`mg.metrics`); the accuracy of a cross-entropy unless
        said.
    regularize : Penalty, optional
        On all weights that decay; layers may have their own.
    seed : int
        Of weights, of the order of examples, and of everything random in training.
    device, precision
        As of `mg.function`.

    Attributes
    ----------
    layers
        The layers, in order of use.

    See Also
    --------
    NeuralNetwork : layers one after the other.

    Examples
    --------
    >>> import magmagraph as mg
    >>> import numpy as np
    >>> x = mg.var("x", shape=("batch", 4))
    >>> h = mg.nn.Dense(8, "relu")(x)
    >>> model = mg.Model(x, mg.nn.Dense(3)(mg.concatenate([x, h], axis=1)), loss="cross_entropy")
    >>> model.predict(np.zeros((5, 4))).shape
    (5, 3)
    """

    def __init__(
        self,
        inputs: Node | Sequence[Node],
        outputs: Node | Sequence[Node],
        *,
        loss: Any = None,
        optimizer: Optimizer | None = None,
        metrics: Iterable[Any] | None = None,
        regularize: Penalty | None = None,
        seed: int = 0,
        device: str = "auto",
        precision: str = "float32",
    ) -> None:
        self.loss = loss
        self.optimizer = Adam() if optimizer is None else optimizer
        if not isinstance(self.optimizer, Optimizer):
            raise no_optimizer(optimizer)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ConfigError(message(f"seed={seed!r}", need="an int"))
        if metrics is None:
            metrics = ("accuracy",) if loss in ("cross_entropy", "binary_cross_entropy") else ()
        self.metrics = checked_metrics(metrics)
        if regularize is not None and not callable(regularize):
            raise no_penalty("regularize", regularize)
        self.regularize = regularize
        self.seed = int(seed)
        self.options: dict[str, Any] = {"device": device, "precision": precision}
        #: Of the last run of `fit`, also of one that was cut.
        self.history = History()
        self._functions: dict[Any, Function] = {}
        self._known: dict[Any, Labels] = {}
        self._epochs = 0  # in all runs of `fit`: every epoch has an order of its own
        self._drawn = 0  # how many steps with random numbers the model did that this is a copy of
        self._set_graph(inputs, outputs)

    def _set_graph(self, inputs: Any, outputs: Any) -> None:
        for given in (inputs, outputs):
            if isinstance(given, Layer):
                raise GraphError(
                    message(
                        f"a model is given the layer {given!r}",
                        need="nodes",
                        hint=f"{given!r}()" if isinstance(given, Input) else "layer(x)",
                    )
                )
        self.inputs = (inputs,) if isinstance(inputs, Node) else tuple(inputs)
        self._single = isinstance(outputs, Node)
        self.outputs = (outputs,) if isinstance(outputs, Node) else tuple(outputs)
        for node in self.inputs:
            if "key" not in node.attrs:
                raise GraphError(
                    message(f"{node!r} is given as an input of a model", need="a node of mg.input")
                )
        self.calls = replay.calls(self.outputs, self.inputs)
        self.layers = list({id(c.layer): c.layer for c, _ in self.calls}.values())
        self._labels = _labels(self.layers)
        self.limits = limits_of(self.outputs, self.inputs, self.layers)
        loss_function(self.loss, None) if self.loss is not None else None

    # What it holds.

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name: ``layer/weight``, and variables outside of layers."""
        found: dict[str, Weight] = {}
        for layer in self.layers:
            for name, weight in layer.weights().items():
                found[f"{self._labels[id(layer)]}/{name}"] = weight
        known = {weight.variable for weight in found.values()}
        for held in replay.loose_variables(self.outputs, self.inputs):
            if held in known:
                continue
            name, number = held.name or "variable", 0
            while name in found:
                number += 1
                name = f"{held.name}_{number}"
            found[name] = Weight(held, held.dtype.kind == "f", True)
        return found

    @property
    def trainable(self) -> list[Variable]:
        """The variables that an optimizer renews."""
        return list(
            dict.fromkeys(w.variable for w in self.weights().values() if w.trainable)
        )

    @property
    def parameters(self) -> int:
        """How many numbers its weights are."""
        return sum(
            v.state.held.size for v in dict.fromkeys(w.variable for w in self.weights().values())
        )

    @property
    def _probabilities(self) -> bool:
        return self._activation() in ("softmax", "sigmoid")

    def _activation(self) -> str | None:
        """Return the name of the activation that gives the output."""
        layer: Any = self.layers[-1] if self.layers else None
        if self.calls and self.calls[-1][1] is not self.outputs[-1]:
            return None
        while isinstance(getattr(layer, "members", None), list) and layer.members:
            if hasattr(layer, "shortcut"):
                break
            layer = layer.members[-1]
        return activation_name(getattr(layer, "activation", None))

    # Using it.

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: Any = 32,
        epochs: int = 1,
        validation_data: tuple[Any, Any] | None = None,
        validation_split: float = 0.0,
        callbacks: Iterable[Any] = (),
        shuffle: bool = True,
        resume: Any = None,
        progress: bool | None = None,
        **options: Any,
    ) -> History:
        """Train.

        Parameters
        ----------
        x : array, or list of arrays
            Examples, ``(rows, ...)``, for each input; ints become floats. Or an iterable of
            batches ``(x, y)`` to go through once an epoch (`mg.batches`; no generator, which
            ends with its first epoch).
        y : array
            Labels: numbers of classes, or values; those of a network with one output may lack
            its axis.
        batch_size : int or callable
            Examples in a step. A function of the epoch (from 0) makes batches grow.
        epochs : int
            How often to go through all examples, counted from the beginning of the run.
        validation_data : (x, y), optional
            Evaluated after every epoch.
        validation_split : float
            Part of the rows, the last ones, that is kept aside for validation instead.
        callbacks : iterable of Callback or callable
            `mg.callbacks`; a function is called with epoch and record after each epoch, and stops
            the run by returning True.
        shuffle : bool
            Whether every epoch, also of a later run, has an order of its own; the model's seed
            decides.
        resume : path, optional
            A file that `mg.callbacks.Checkpoint` wrote: the run goes on where it was cut, and ends
            as if it had not been. A file that is not there yet starts from the beginning.
        progress : bool, optional
            Whether progress is shown; where the output is a terminal, unless said.
        **options
            Of `mg.function`, for the training step: ``distribute=``, ``passes=``, ...

        Returns
        -------
        History
            A mapping: ``history["loss"]`` has a number for each epoch.

        Raises
        ------
        DataError
            If the data do not fit the model or each other, hold NaN, or name a class that there
            is not, or the file to resume from belongs to another model or other data; before
            anything is changed.
        ConfigError
            If a setting is none, or a callback watches a number that is not reported.
        DivergedError
            If the loss or a weight turns NaN or infinite. The weights, and all else that a step
            renews, are then those of the beginning of the epoch.

        Examples
        --------
        >>> import magmagraph as mg
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
        >>> net = mg.NeuralNetwork([mg.nn.Input((1,)), mg.nn.Dense(1)], loss="mse",
        ...                        optimizer=mg.optimizer.SGD(0.5))
        >>> history = net.fit(x, 3 * x + 1, batch_size=16, epochs=20)
        >>> history["loss"][-1] < 1e-3
        True
        """
        check_options(options, self.fit)
        if not isinstance(validation_split, (int, float)) or not 0 <= validation_split < 1:
            raise ConfigError(
                message(f"validation_split={validation_split!r}", need="0 <= validation_split < 1")
            )
        training = Training(
            self,
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            validation_data=validation_data,
            validation_split=validation_split,
            callbacks=callbacks,
            shuffle=shuffle,
            progress=progress,
            options=options,
        )
        if resume is not None:
            training.resume(resume)
        return training.run()

    def evaluate(self, x: Any, y: Any, *, batch_size: int = 256) -> dict[str, Any]:
        """Return the loss and the metrics over some examples.

        Parameters
        ----------
        x, y
            As for `fit`.
        batch_size : int
            Examples that are computed together.

        Returns
        -------
        dict
            By name: "loss", and each metric.

        Raises
        ------
        DataError
            As `fit`.
        """
        size = checked_size(batch_size)
        xs, values, labels = self._checked(x, y)
        return self._evaluated(xs, values, labels, size)

    def _checked(self, x: Any, y: Any) -> tuple[list[np.ndarray], np.ndarray, Labels]:
        self._ready(x)
        self._check_loss()
        xs = conform_inputs(x, self.inputs, self.limits)
        given = as_array(y, "the labels")
        check_rows(xs, given if given.ndim else None)
        if not given.ndim or given.dtype.kind not in "iufb":
            raise DataError(
                message(
                    "there are no labels" if y is None else f"the labels are {given.dtype}",
                    need="an array of numbers, one row for each example",
                    hint=None
                    if y is None
                    else "np.unique(labels, return_inverse=True)[1] numbers classes from 0",
                )
            )
        fresh = Labels.of(given, self.outputs[0], self.loss)
        labels = self._known.setdefault(fresh.kind, fresh)  # one input for all functions
        return xs, labels.conform(given), labels

    def _evaluated(
        self, xs: list[np.ndarray], y: np.ndarray, labels: Labels, batch_size: int
    ) -> dict[str, Any]:
        compiled = self._evaluation(labels)
        rows = len(y)
        totals: list[Any] = [0.0] * (1 + len(self.metrics))
        for start in range(0, rows, batch_size):
            part = slice(start, start + batch_size)
            loss, *found = on_host(compiled(*(x[part] for x in xs), y[part]))
            totals[0] += float(loss) * len(y[part])
            totals[1:] = [a + np.asarray(b) for a, b in zip(totals[1:], found, strict=True)]
        return self._result(totals, rows)

    def _result(self, totals: Sequence[Any], rows: int) -> dict[str, Any]:
        """Return what sums over rows say, by name."""
        record: dict[str, Any] = {"loss": float(totals[0]) / rows}
        for kind, total in zip(self.metrics, totals[1:], strict=True):
            record[kind.name] = kind.result(np.asarray(total), rows)
        return record

    def predict(self, x: Any, *, batch_size: int = 256) -> Any:
        """Return what the network gives for some examples.

        Parameters
        ----------
        x
            As for `fit`.
        batch_size : int
            Examples that are computed together.

        Returns
        -------
        ndarray, or list of them
            An array ``(rows, ...)`` for each output; without examples one without rows.
        """
        size = checked_size(batch_size)
        self._ready(x)
        xs = conform_inputs(x, self.inputs, self.limits, finite=False)
        rows = check_rows(xs, least=0)
        if rows:
            compiled = self._prediction()
            parts = [
                on_host(compiled(*(v[i : i + size] for v in xs))) for i in range(0, rows, size)
            ]
            joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
        else:
            sizes = bind_sizes(self.inputs, [v.shape for v in xs])
            joined = [
                np.empty((0, *(dims.evaluate(e, sizes) for e in node.shape[1:])), node.dtype)
                for node in self.outputs
            ]
        return joined[0] if self._single else joined

    def predict_class(self, x: Any, *, batch_size: int = 256) -> np.ndarray:
        """Return the likeliest class of each example.

        Parameters
        ----------
        x, batch_size
            As for `predict`.

        Returns
        -------
        ndarray
            int64; of a single output column the side of even odds.
        """
        scores = self.predict(x, batch_size=batch_size)
        if not isinstance(scores, np.ndarray):
            raise ConfigError(message(f"the model has {len(scores)} outputs", need="one"))
        if scores.ndim < 2 or scores.shape[-1] == 1:
            limit = 0.5 if self._probabilities else 0.0
            flat = scores if scores.ndim < 2 else scores[..., 0]
            return np.asarray(flat > limit).astype(np.int64)
        found: np.ndarray = scores.argmax(-1)
        return found

    def summary(self, batch_size: int | None = None) -> Summary:
        """Return a table of the layers: shapes, parameters, arithmetic.

        Parameters
        ----------
        batch_size : int, optional
            Also plan a training step of so many examples, and say what memory it takes; nothing is
            run for it.

        Returns
        -------
        Summary
            To be printed, with the numbers as attributes.

        Examples
        --------
        >>> import magmagraph as mg
        >>> net = mg.NeuralNetwork([mg.nn.Input((784,)), mg.nn.Dense(10)], loss="cross_entropy")
        >>> net.summary().parameters
        7850
        """
        return summarize(self, None if batch_size is None else checked_size(batch_size))

    def _ready(self, x: Any) -> None:
        """Make what depends on the first data; a model of nodes is ready."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.layers)} layers>"


def _labels(layers: Sequence[Layer]) -> dict[int, str]:
    """Return a name for each layer that no other has."""
    name_layers(list(layers))
    labels: dict[int, str] = {}
    for layer in layers:
        stem = layer.name or "layer"
        label, number = stem, 0
        while label in labels.values():
            number += 1
            label = f"{stem}_{number}"
        labels[id(layer)] = label
    return labels

