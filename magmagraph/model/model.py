"""Models: inputs and outputs of a graph, with all that trains, uses and stores it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError, DataError, GraphError, message
from ..function import Function, function
from ..graph import Node
from ..nn.activations import activation_name
from ..nn.basic import Input
from ..nn.layer import Call, Layer, Weight, name_layers, no_penalty, note_call
from ..node import flatten, unflatten
from ..ops.convert import cast
from ..ops.elementwise import add
from ..ops.leaf import Variable
from ..ops.random_bits import streams_from
from ..optimizer import Adam, Optimizer
from ..regularize import Penalty
from . import replay
from .data import check_rows, checked_size, conform_inputs, on_host
from .losses import Labels, loss_function
from .metrics import Metric, metric
from .saving import Saving
from .summary import Summary, summarize
from .training import History, Training, check_options

__all__ = ["Model"]


class Model(Saving):
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
            raise _no_optimizer(optimizer)
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ConfigError(message(f"seed={seed!r}", need="an int"))
        if metrics is None:
            metrics = ("accuracy",) if loss in ("cross_entropy", "binary_cross_entropy") else ()
        if isinstance(metrics, str) or not isinstance(metrics, Iterable):
            raise ConfigError(
                message(f"metrics={metrics!r}", need="a list", mend=f"metrics=[{metrics!r}]")
            )
        self.metrics: list[Metric] = [metric(given) for given in metrics]
        if regularize is not None and not callable(regularize):
            raise no_penalty("regularize", regularize)
        self.regularize = regularize
        self.seed = int(seed)
        self.options: dict[str, Any] = {"device": device, "precision": precision}
        #: Of the last run of `fit`, also of one that was cut.
        self.history = History()
        self._functions: dict[Any, Function] = {}
        self._known: dict[Any, Labels] = {}
        self._drawn = 0  # how many steps with random numbers the model did that this is a copy of
        self._set_graph(inputs, outputs)

    def _set_graph(self, inputs: Any, outputs: Any) -> None:
        for given in (inputs, outputs):
            if isinstance(given, Layer):
                raise GraphError(
                    message(
                        f"a model is given the layer {given!r}",
                        need="nodes",
                        mend=f"{given!r}()" if isinstance(given, Input) else "layer(x)",
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

    # Compiling it.

    def _form(self, training: bool) -> list[Node]:
        if not training:
            return list(self.outputs)
        with streams_from(self.seed):
            return replay.training_form(self.outputs, self.inputs)

    def _loss(self, outputs: Sequence[Node], labels: Labels) -> Node:
        if self.loss is None:
            raise ConfigError(
                message("the model has no loss", need="one, to train and to evaluate by",
                        mend="loss='cross_entropy', or 'mse'")
            )
        if len(outputs) != 1:
            raise ConfigError(
                message(f"the model has {len(outputs)} outputs", need="one, to be trained by fit",
                        mend="optimizer.step on a loss of your own")
            )
        value = loss_function(self.loss, self._activation())(outputs[0], labels.node)
        if value.shape != ():
            raise ConfigError(
                message(f"the loss has shape {value.shape}", need="a scalar: the mean over a batch")
            )
        return value

    def _penalty(self) -> Node | None:
        terms: list[Node] = []
        if self.regularize is not None:
            terms.append(
                self.regularize([w.variable for w in self.weights().values() if w.decays])
            )
        for layer in self.layers:
            for part in layer.layers():
                if part.regularizer is not None:
                    held = [w.variable for w in part.weights().values() if w.decays]
                    terms.append(part.regularizer(held))
        total = None
        for term in terms:
            total = term if total is None else add(total, term)
        return total

    def _groups(self) -> Any:
        """Return the variables for the optimizer, in groups where layers have their own decay."""
        decays: dict[Variable, float] = {}
        for layer in self.layers:
            for part in layer.layers():
                if part.weight_decay is not None:
                    for weight in part.weights().values():
                        if weight.decays:
                            decays[weight.variable] = part.weight_decay
        if not decays:
            return self.trainable
        groups: dict[float | None, list[Variable]] = {}
        for held in self.trainable:
            groups.setdefault(decays.get(held), []).append(held)
        return [
            {"wrt": members} if decay is None else {"wrt": members, "weight_decay": decay}
            for decay, members in groups.items()
        ]

    def _reported(self, outputs: Sequence[Node], labels: Labels, loss: Node) -> list[Node]:
        return [
            loss,
            *(m.batch(outputs[0], labels.node, self._probabilities) for m in self.metrics),
        ]

    def _asked(self, labels: Labels) -> tuple[Any, ...]:
        """Return what, beside the network, a compiled function was made for."""
        return (labels.kind, self.loss, self.regularize, *map(id, self.metrics))

    def training_step(self, labels: Labels, **options: Any) -> Function:
        """Return the compiled step: from examples and labels to loss and statistics.

        One function holds the network, its loss, penalties, gradients, the optimizer, metrics and
        running statistics; it is made once for each kind of labels.
        """
        # The optimizer itself: a later one may have the address of one that is gone.
        chosen = (self.optimizer, tuple(self.trainable), *sorted(options.items(), key=str))
        place = ("step", *self._asked(labels), *chosen)
        if place not in self._functions:
            outputs = self._form(training=True)
            loss = self._loss(outputs, labels)
            penalty = self._penalty()
            total = loss if penalty is None else add(loss, cast(penalty, loss.dtype))
            if not isinstance(self.optimizer, Optimizer):
                raise _no_optimizer(self.optimizer)
            if not self.trainable:
                raise ConfigError(message("the model has no weight that can be trained"))
            step = self.optimizer.step(
                total,
                self._groups(),
                inputs=[*self.inputs, labels.node],
                outputs=self._reported(outputs, labels, total),
                name="training step",
                **{**self.options, **options},
            )
            if step.random_step is not None:
                step.random_step.assign(np.int64(self._drawn))
            self._functions[place] = step
        return self._functions[place]

    def _evaluation(self, labels: Labels) -> Function:
        place = ("evaluate", *self._asked(labels))
        if place not in self._functions:
            outputs = self._form(training=False)
            loss = self._loss(outputs, labels)
            penalty = self._penalty()
            total = loss if penalty is None else add(loss, cast(penalty, loss.dtype))
            self._functions[place] = function(
                [*self.inputs, labels.node],
                self._reported(outputs, labels, total),
                name="evaluation",
                default_updates=False,
                **self.options,
            )
        return self._functions[place]

    def _prediction(self) -> Function:
        if "predict" not in self._functions:
            self._functions["predict"] = function(
                list(self.inputs),
                list(self.outputs),
                name="prediction",
                default_updates=False,
                **self.options,
            )
        return self._functions["predict"]

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
            Labels: numbers of classes, or values.
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
            Whether every epoch has an order of its own, which the model's seed decides.
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
            If the loss turns NaN or infinite; the weights are those behind the step then.

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
        xs = conform_inputs(x, self.inputs)
        given = np.asarray(y)
        check_rows(xs, given if given.ndim else None)
        if not given.ndim or given.dtype.kind not in "iufb":
            raise DataError(
                message(
                    "there are no labels" if y is None else f"the labels are {given.dtype}",
                    need="an array of numbers, one row for each example",
                    mend=None
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
            An array ``(rows, ...)`` for each output.
        """
        size = checked_size(batch_size)
        self._ready(x)
        xs = conform_inputs(x, self.inputs, finite=False)
        rows = check_rows(xs)
        compiled = self._prediction()
        parts = [
            on_host(compiled(*(v[i : i + size] for v in xs))) for i in range(0, rows, size)
        ]
        joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
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

    # Copies, which compile functions of their own.

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in vars(self).items() if k not in _OF_GRAPH}
        counters = [f.random_step for f in self._functions.values() if f.random_step is not None]
        state["_drawn"] = max([self._drawn, *(int(held.value) for held in counters)])
        state["calls"] = [(c.layer, len(c.inputs), c.options, c.position) for c, _ in self.calls]
        operands = [node for call, _ in self.calls for node in call.inputs]
        given = [node for _, node in self.calls]
        state["counts"] = (len(self.inputs), len(self.outputs), len(given))
        # Together: nodes that are pickled one by one no longer share what they have in common.
        state["nodes"] = flatten([*self.inputs, *self.outputs, *given, *operands])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        nodes = iter(unflatten(*state.pop("nodes")))
        counts = state.pop("counts")
        made = state.pop("calls")
        inputs, outputs, given = ([next(nodes) for _ in range(count)] for count in counts)
        seen: dict[tuple[Node, ...], tuple[Node, ...]] = {}
        for (layer, count, options, position), node in zip(made, given, strict=True):
            operands = tuple(next(nodes) for _ in range(count))
            # The results of one call share the tuple of its operands.
            note_call(node, Call(layer, seen.setdefault(operands, operands), options, position))
        vars(self).update(state)
        self._functions, self._known = {}, {}
        self._set_graph(inputs, outputs[0] if self._single else outputs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.layers)} layers>"


_OF_GRAPH = ("inputs", "outputs", "calls", "layers", "_labels", "_functions", "_known")


def _no_optimizer(given: Any) -> ConfigError:
    mend = None
    if isinstance(given, type) and issubclass(given, Optimizer):
        mend = f"{given.__name__}(), an object of the class"
    elif isinstance(given, str):
        mend = "mg.optimizer.Adam(1e-3), say"
    return ConfigError(
        message(f"optimizer={given!r}", need="an optimizer of mg.optimizer", mend=mend)
    )


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

