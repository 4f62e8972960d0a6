"""Models: `Model` of any graph, and `NeuralNetwork` of layers one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import is_float
from ..errors import (
    ArgumentError,
    ConfigError,
    DataError,
    GraphError,
    MagmagraphError,
    ShapeError,
    message,
)
from ..files.reading import reading
from ..function import Function
from ..function.feeds import bind_sizes
from ..ir import dims
from ..ir.graph import Node
from ..ir.html import preformatted
from ..ir.op import describe
from ..ir.types import FilePath
from ..nn.activations import activation_name
from ..nn.basic import Input
from ..nn.layer import Layer, Weight, initial_values_left_out, name_layers, no_penalty
from ..ops.convert import as_node
from ..ops.leaf import Variable
from ..ops.random.bits import streams_from
from ..optimizer import Adam, Optimizer
from ..regularize import Penalty
from . import files, replay
from .adapters import Adapting
from .architecture import build_layer, build_optimizer, describe_layer
from .changes import checked_changes
from .compiling import Compiling, no_optimizer
from .copying import Copying
from .data import as_array, check_rows, checked_size, conform_inputs, given_inputs, on_host
from .lookups import limits_of
from .losses import Labels, loss_function
from .metrics import checked_metrics
from .saving import Saving, loading
from .skeleton import build_graph
from .sources import Source, source_of
from .summary import Summary, summarize
from .training import History, Training, check_options

__all__ = ["Model", "NeuralNetwork"]


class Model(Compiling, Copying, Saving, Adapting):
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
        self._last: tuple[Labels, bool, dict[str, Any]] | None = None
        self._frozen: tuple[str, ...] = ()  # paths of weights that `freeze` keeps
        self._epochs = 0  # in all runs of `fit`: every epoch has an order of its own
        self._drawn = 0  # how many steps with random numbers the model did that this is a copy of
        self._set_graph(inputs, outputs)

    def _set_graph(self, inputs: Any, outputs: Any) -> None:
        for argument in (inputs, outputs):
            if isinstance(argument, Layer):
                raise GraphError(
                    message(
                        f"a model is given the layer {argument!r}",
                        need="nodes",
                        hint=f"{argument!r}()" if isinstance(argument, Input) else "layer(x)",
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

    def _of_graph(self, inputs: Any, outputs: Any, **options: Any) -> Any:
        return Model(inputs, outputs, **options)

    # What it holds.

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name: ``layer/weight``, and variables outside of layers."""
        named_weights: dict[str, Weight] = {}
        for layer in self.layers:
            for name, weight in layer.weights().items():
                named_weights[f"{self._labels[id(layer)]}/{name}"] = weight
        variables = {weight.variable for weight in named_weights.values()}
        for variable in replay.loose_variables(self.outputs, self.inputs):
            if variable in variables:
                continue
            name, number = variable.name or "variable", 0
            while name in named_weights:
                number += 1
                name = f"{variable.name}_{number}"
            named_weights[name] = Weight(variable, variable.dtype.kind == "f", True)
        return self._with_frozen(named_weights)

    @property
    def trainable(self) -> list[Variable]:
        """The variables that an optimizer updates."""
        return list(
            dict.fromkeys(w.variable for w in self.weights().values() if w.trainable)
        )

    @property
    def parameters(self) -> int:
        """How many numbers its weights are."""
        variables = dict.fromkeys(weight.variable for weight in self.weights().values())
        return _Count(sum(variable.state.held.size for variable in variables))

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
        validation_data: Any = None,
        validation_split: float = 0.0,
        callbacks: Iterable[Any] = (),
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        data: str = "whole",
        verbose: int | str = "auto",
        progress: bool | None = None,
        resume: Any = None,
        resume_changes: str | Iterable[str] = (),
        **options: Any,
    ) -> History:
        """Train.

        Parameters
        ----------
        x : array, list of arrays, iterable of batches, or set of examples
            Examples, ``(rows, ...)``, for each input; ints become floats. Or, without `y`, an
            iterable of batches ``(x, y)`` or ``(x, y, weights)``, tuples or lists, to go through
            once an epoch: `mg.batches`, a DataLoader of torch, a list. Or an object with
            ``__len__`` and ``__getitem__`` that gives examples ``(x, y)`` by their positions.
        y : array
            Labels: numbers of classes, or values; those of a network with one output may lack
            its axis.
        batch_size : int or callable
            Examples in a step. A function of the epoch (from 0) makes batches grow. Batches that
            are given as such keep their sizes.
        epochs : int
            How often to go through all examples, counted from the beginning of the run.
        validation_data : (x, y), (x, y, weights), or iterable of batches, optional
            Evaluated after every epoch.
        validation_split : float
            Part of the rows, the last ones, that is kept aside for validation instead.
        callbacks : iterable of Callback or callable
            `mg.callbacks`; a function is called with epoch and record after each epoch, and stops
            the run by returning True.
        shuffle : bool
            Whether every epoch, also of a later run, has an order of its own; the model's seed
            decides. Batches that are given as such keep their order.
        class_weight : dict, sequence or "balanced", optional
            A weight for each class, ``{class: weight}`` (classes that it does not name have 1), by
            which the loss of its rows is multiplied. "balanced" takes rows / (classes * rows of the
            class), so that the mean over rows is 1.
        sample_weight : array, optional
            A weight for each row, shape ``(rows,)``. With weights, also those of classes, the loss
            is the mean over rows of weight times loss, and metrics count each row as often as its
            weight: what they add up of rows is divided by the sum of weights.
        initial_epoch : int
            The number of the first epoch: a run of ``epochs=10, initial_epoch=4`` has 6, which
            have the orders and rates of the last 6 of 10.
        steps_per_epoch : int, optional
            How many batches are an epoch, instead of one pass over the data; the next epoch goes
            on where this one ends. With it, `x` may be a generator.
        data : {"whole", "sharded"}
            With ``distribute=``: "whole" means that each rank is given all data and takes its part
            of each batch; "sharded" that each rank is given rows of its own, `x` and `y` as well as
            weights and the data for validation. Shards may have different lengths, at least 1.
            Batches take rows of all shards in proportion to their lengths, and an epoch ends with
            all of them. Shards ``x[rank::size]`` of an array are trained on as that array is,
            without shuffling in the same order.
        verbose : int or str
            0 shows nothing, 1 a bar and a line for each epoch, 2 plain lines; "auto" is 1 in
            terminals and notebooks, and elsewhere, as in the log of a job, a plain line in at
            least 5 seconds.
        progress : bool, optional
            True is ``verbose=1``, False is ``verbose=0``.
        resume : path, optional
            A file that `mg.callbacks.Checkpoint` wrote: the run goes on where it was cut, and ends
            as if it had not been. A file that is not there yet starts from the beginning. `epochs`
            may be more than before.
        resume_changes : str, or sequence of str
            What else may differ from the run that wrote the file, and is that of this call:
            "learning_rate", "optimizer" (which begins anew), "callbacks" (those of a class that the
            file knows go on), "data", "batch_size", "shuffle", "seed", "loss", "metrics",
            "regularize". An epoch that was cut begins again where its data or loss may differ.
        **options
            Of `mg.function`, for the training step: ``distribute=``, ``memory_limit=``,
            ``passes=``, ...

        Returns
        -------
        History
            A mapping: ``history["loss"]`` has a number for each epoch.

        Raises
        ------
        DataError
            If the data do not fit the model or each other, hold NaN, or name a class that there
            is not, or the file to resume from is of a run that differs in what `resume_changes`
            does not name; before anything is changed.
        ConfigError
            If a setting is none, or a callback watches a number that is not reported.
        DivergedError
            If the loss or a weight turns NaN or infinite. The weights, and all else that a step
            renews, are then those of the beginning of the epoch. The text names the layer, the
            operation and the line that made the first such value.

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
        if progress is not None:
            verbose = int(progress)
        if resume is not None and initial_epoch:
            raise ConfigError(
                message(
                    f"resume= is given with initial_epoch={initial_epoch}",
                    need="one of them: the file says at which epoch the run goes on",
                )
            )
        changes = checked_changes(resume_changes)
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
            verbose=verbose,
            class_weight=class_weight,
            sample_weight=sample_weight,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            data=data,
            options=options,
        )
        if resume is not None:
            training.resume(resume, changes)
        return training.run()

    def evaluate(
        self, x: Any, y: Any = None, *, sample_weight: Any = None, batch_size: int = 256
    ) -> dict[str, Any]:
        """Return the loss and the metrics over some examples.

        Parameters
        ----------
        x, y, sample_weight
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
        self._check_loss()
        return self._result(*self._totals(source_of(self, x, y, sample_weight), size))

    def _checked(self, x: Any, y: Any) -> tuple[list[np.ndarray], np.ndarray, Labels]:
        self._ready(x)
        self._check_loss()
        xs = conform_inputs(x, self.inputs, self.limits)
        labels_array = as_array(y, "the labels")
        check_rows(xs, labels_array if labels_array.ndim else None)
        if not labels_array.ndim or labels_array.dtype.kind not in "iufb":
            raise DataError(
                message(
                    "there are no labels" if y is None else f"the labels are {labels_array.dtype}",
                    need="an array of numbers, one row for each example",
                    hint=None
                    if y is None
                    else "np.unique(labels, return_inverse=True)[1] numbers classes from 0",
                )
            )
        fresh = Labels.of(labels_array, self.outputs[0], self.loss)
        labels = self._known.setdefault(fresh.kind, fresh)  # one input for all functions
        return xs, labels.conform(labels_array), labels

    def _totals(self, data: Source, batch_size: int) -> tuple[list[Any], int]:
        """Return the sums over rows of the loss and the metrics, and the number of rows."""
        compiled = self._evaluation(data.labels, data.weighted)
        rows = 0
        totals: list[Any] = [0.0] * (1 + len(self.metrics) + data.weighted)
        for count, batch in data.epoch(0, batch_size, None, (0, 1)):
            loss, *statistics = on_host(compiled(*batch))
            totals[0] += float(loss) * count
            totals[1:] = [a + np.asarray(b) for a, b in zip(totals[1:], statistics, strict=True)]
            rows += count
        return totals, rows

    def _result(self, totals: Sequence[Any], rows: int) -> dict[str, Any]:
        """Return what sums over rows say, by name; those of weighted rows end with the weight."""
        record: dict[str, Any] = {"loss": float(totals[0]) / rows}
        statistics, weight = totals[1 : len(self.metrics) + 1], totals[len(self.metrics) + 1 :]
        counts: Any = float(weight[0]) if weight else rows
        if self.metrics and not counts:
            raise DataError(
                message("the weights of all rows are 0", need="a row that counts, for metrics")
            )
        for kind, total in zip(self.metrics, statistics, strict=True):
            record[kind.name] = kind.result(np.asarray(total), counts)
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
            columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        else:
            sizes = bind_sizes(self.inputs, [v.shape for v in xs])
            columns = [
                np.empty((0, *(dims.evaluate(e, sizes) for e in node.shape[1:])), node.dtype)
                for node in self.outputs
            ]
        return columns[0] if self._single else columns

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
        classes: np.ndarray = scores.argmax(-1)
        return classes

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
        size = None if batch_size is None else checked_size(batch_size)
        return summarize(
            [(self._labels[id(call.layer)], call, node) for call, node in self.calls],
            parameters=self.parameters,
            trainable=self.trainable,
            batch_size=size,
            memory=None if size is None else self._planned_memory(size),
        )

    # Looking at it.

    def __call__(self, *inputs: Any, training: bool = False) -> Any:
        """Apply the network: to nodes, which gives nodes, or to arrays, which gives arrays.

        Parameters
        ----------
        *inputs
            A node or an array for each input. A node may be of any expression: the layers are
            called again on it, and share their weights.
        training : bool
            Whether layers are applied as in training (dropout, batch statistics); of nodes.

        Returns
        -------
        Node or array, or a list of them
            One for each output. Of arrays, what `predict` returns.

        Raises
        ------
        ShapeError, DataError
            If what is given does not fit the inputs.

        Examples
        --------
        >>> import magmagraph as mg
        >>> net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")
        >>> net([[1.0, 2.0, 3.0]]).shape
        (1, 2)
        >>> x = mg.var("x", shape=("rows", 3))
        >>> loss = mg.mean(net(x, training=True) ** 2)
        >>> len(mg.grad(loss, net.trainable))
        2
        """
        if not isinstance(training, (bool, np.bool_)):
            raise ConfigError(
                message(f"training is a {type(training).__name__}", need="True or False")
            )
        if not any(isinstance(value, Node) for value in inputs):
            if training:
                raise ConfigError(
                    message(
                        f"{type(self).__name__} is called on arrays with training=True",
                        need="nodes",
                        hint="fit(x, y), or net.step(x, y), which train",
                    )
                )
            return self.predict(inputs[0] if len(inputs) == 1 else list(inputs))
        self._ready_for(inputs)
        if len(inputs) != len(self.inputs):
            raise GraphError(
                message(
                    f"{type(self).__name__} is called on {len(inputs)} nodes",
                    need=f"{len(self.inputs)}, one for each input",
                )
            )
        nodes = [as_node(value, own.dtype) for value, own in zip(inputs, self.inputs, strict=True)]
        for value, own in zip(nodes, self.inputs, strict=True):
            if value.ndim != own.ndim or any(
                isinstance(a, int) and isinstance(b, int) and a != b
                for a, b in zip(value.shape[1:], own.shape[1:], strict=True)
            ):
                raise ShapeError(
                    message(
                        f"{type(self).__name__} is called on {describe(value)}",
                        need=f"shape {own.shape}, as input '{own.name}'",
                    )
                )
        outputs = replay.applied(self.outputs, self.inputs, nodes, training=bool(training))
        return outputs[0] if self._single else outputs

    def _ready_for(self, nodes: Sequence[Any]) -> None:
        """Make what depends on the shape of the first input; a model of nodes is ready."""

    @property
    def step(self) -> Function:
        """The compiled training step: that of the last `fit`, or one for usual labels.

        Its inputs are those of the model, then the labels; its outputs are the loss and what the
        metrics need. Each call trains on one batch: ``loss, *rest = net.step(x, y)``.

        Examples
        --------
        >>> import magmagraph as mg, numpy as np
        >>> net = mg.NeuralNetwork([mg.nn.Input((2,)), mg.nn.Dense(1)], loss="mse")
        >>> losses = [float(net.step(np.ones((4, 2)), np.ones((4, 1)))[0]) for _ in range(3)]
        >>> losses == sorted(losses, reverse=True)
        True
        """
        self._check_loss()
        labels, weighted, options = self._last or (self._usual_labels(), False, {})
        return self.training_step(labels, weighted=weighted, **options)

    @property
    def function(self) -> Function:
        """The compiled function that predicts: from examples to a list of outputs."""
        self._ready_for(())
        return self._prediction()

    @property
    def report(self) -> Any:
        """What each pass did to the training step, or, without a loss, to `function`."""
        return (self.function if self.loss is None else self.step).report

    def show(self, *, training: bool = False) -> Any:
        """Return the compiled network as an object that prints and saves itself (`mg.show`).

        Parameters
        ----------
        training : bool
            Whether that is the training step; else the function that predicts.

        Returns
        -------
        Shown
            ``.text()``, ``.svg()``, ``.html()``, ``.save("net.html")``.
        """
        # Here, as most programs never look: it imports the pictures.
        from ..inspect.show import Shown

        return Shown(self.step if training else self.function)

    def profile(self, x: Any = None, y: Any = None, *, batch_size: int = 32) -> Any:
        """Measure the kernels of a training step; of `function`, without a loss. No weight changes.

        Parameters
        ----------
        x, y
            As for `fit`; the first batch is measured. Random examples unless given.
        batch_size : int
            Examples in the step.

        Returns
        -------
        Profile
            As of ``Function.profile``: time, bytes and operations of each kernel.
        """
        size = checked_size(batch_size)
        compiled = self.function if self.loss is None else self.step
        if x is None:
            rng = np.random.default_rng(self.seed)
            return compiled.profile(*(_example(node, size, rng) for node in compiled.inputs))
        if self.loss is None:
            xs = conform_inputs(x, self.inputs, self.limits)
            return compiled.profile(*(array[:size] for array in xs))
        data = source_of(self, x, y)
        _, batch = next(data.epoch(0, size, None, (0, 1)))
        return self.training_step(data.labels, weighted=data.weighted).profile(*batch)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from ..help.spellings import OF_MODEL

            if name not in OF_MODEL:
                return object.__getattribute__(self, name)  # it raises as it did
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message(text, hint=OF_MODEL[name]), name=name, obj=self)

    def _usual_labels(self, rows: int = 1) -> Labels:
        """Return labels of the kind that the loss usually has."""
        output = self.outputs[0]
        takes_classes = self.loss in ("cross_entropy", "nll_loss")
        shape = output.shape[:-1] if takes_classes else output.shape
        extents = [rows, *(extent if isinstance(extent, int) else 1 for extent in shape[1:])]
        # Of one element in memory: only its type counts.
        example = np.broadcast_to(
            np.zeros((), np.int32 if takes_classes else output.dtype), extents
        )
        labels = Labels.of(example, output, self.loss)
        return self._known.setdefault(labels.kind, labels)

    def _planned_memory(self, batch_size: int) -> Any:
        """Return the bytes of a training step of so many examples."""
        step = self.training_step(self._usual_labels(batch_size))
        return step._memory_for(*(_example_shape(node, batch_size) for node in step.inputs))

    @loading
    def load(
        cls,  # noqa: N805 (a class method, unless it is asked of a model)
        path: FilePath,
        *,
        custom: Mapping[str, type[Layer]] | None = None,
        **options: Any,
    ) -> Model:
        """Return a model from a file that `save` or a checkpoint wrote.

        Of a model, ``model.load(path)``, it reads the weights into that one and returns it, as
        `load_weights` does.

        Parameters
        ----------
        path
            Of the file.
        custom : dict, optional
            Classes of layers that are not of `mg.nn`, by name. Nothing is imported for a file.
        **options
            In the place of what the file says: loss, optimizer, metrics, regularize, seed; and
            device and precision.

        Returns
        -------
        Model
            With the weights of the file; a `NeuralNetwork` where it was one. The optimizer begins
            anew.

        Raises
        ------
        DataError
            If the file is missing (`MissingFileError`, which is a FileNotFoundError, too),
            truncated or damaged, or names an unknown layer.

        Examples
        --------
        >>> import magmagraph as mg, tempfile, os
        >>> x = mg.var("x", shape=("batch", 3))
        >>> model = mg.Model(x, mg.nn.Dense(3)(x) + mg.exp(x))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     path = os.path.join(place, "model.safetensors")
        ...     model.save(path)
        ...     again = mg.Model.load(path)
        >>> bool((again.predict([[1, 2, 3]]) == model.predict([[1, 2, 3]])).all())
        True
        """
        return _read_model(path, custom, options)

    def _ready(self, x: Any) -> None:
        """Make what depends on the first data; a model of nodes is ready."""

    def _repr_html_(self) -> str:
        return preformatted(repr(self)) + self.summary()._repr_html_()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.layers)} layers>"


class NeuralNetwork(Model):
    """A network of layers one after the other.

    Parameters
    ----------
    layers : sequence of Layer
        Of `mg.nn`. The first is an `Input`, which says the shape of an example; without one the
        first data say it.
    **options
        As of `Model`: loss, optimizer, metrics, regularize, seed, device, precision.

    Examples
    --------
    >>> import magmagraph as mg
    >>> net = mg.NeuralNetwork(
    ...     [mg.nn.Input((784,)), mg.nn.Dense(528, activation="sigmoid"), mg.nn.Dense(10)],
    ...     loss="cross_entropy", optimizer=mg.optimizer.SGD(0.05, weight_decay=0.001))
    >>> net.parameters
    419770
    """

    def __init__(self, layers: Sequence[Layer], **options: Any) -> None:
        if isinstance(layers, Layer) or not isinstance(layers, Iterable):
            raise ConfigError(
                message(
                    f"a network is given {type(layers).__name__}",
                    need="a list of layers of mg.nn",
                    hint="[mg.nn.Input(shape), mg.nn.Dense(10)], say",
                )
            )
        self.members = list(layers)
        for member in self.members:
            if not isinstance(member, Layer):
                raise ConfigError(
                    message(
                        f"a network is given {type(member).__name__}", need="layers of mg.nn"
                    )
                )
        if len({id(member) for member in self.members}) != len(self.members):
            raise ConfigError(
                message("a layer appears twice in a network", need="layers of their own",
                        hint="mg.Model, in which a layer may be called twice")
            )
        if all(isinstance(member, Input) for member in self.members):
            raise GraphError(message("a network has no layers", need="a layer beside Input"))
        if any(isinstance(member, Input) for member in self.members[1:]):
            raise ConfigError(
                message("an Input stands behind the first place of a network",
                        need="one Input, the first layer",
                        hint="mg.Model([x1, x2], output) for several inputs")
            )
        name_layers(self.members)
        self._waiting = True
        super().__init__((), (), **options)
        self._single = True
        if self.members and isinstance(self.members[0], Input):
            self._build(self.members[0]())

    def _build(self, x: Node) -> None:
        value = x
        with streams_from(self.seed):
            for member in self.members:
                if not isinstance(member, Input):
                    value = member(value)
        self._waiting = False
        self._set_graph(x, value)

    def _ready(self, x: Any) -> None:
        """Build it for the shape of the first data, where no layer says the shape."""
        if self._waiting:
            first = as_array(given_inputs(x, 1)[0], "the examples")
            if first.ndim < 1 or first.dtype.kind not in "iufb":
                raise DataError(
                    message(f"the examples are {first.dtype}", need="an array of numbers")
                )
            self._build(Input(first.shape[1:])())

    def _ready_for(self, nodes: Sequence[Any]) -> None:
        if self._waiting and nodes and isinstance(nodes[0], Node):
            self._build(Input(nodes[0].shape[1:], nodes[0].dtype.name)())
        self._check_built()

    @property
    def step(self) -> Function:
        """The compiled training step, as `Model.step`."""
        self._check_built()
        return super().step

    def _check_built(self) -> None:
        if self._waiting:
            raise ConfigError(
                message("the network was not built yet", need="the shape of its input",
                        hint="mg.nn.Input(shape) as the first layer")
            )

    def _check_ready(self) -> None:
        self._check_built()

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name: ``layer/weight``."""
        self._check_built()
        return super().weights()

    def summary(self, batch_size: int | None = None) -> Summary:
        """Return a table of the layers, as `Model.summary`."""
        self._check_built()
        return super().summary(batch_size)

    def _repr_html_(self) -> str:
        if self._waiting:
            return preformatted("\n".join([repr(self), *map(repr, self.members)]))
        return super()._repr_html_()

    def __repr__(self) -> str:
        if self._waiting:
            return f"<{type(self).__name__} of {len(self.members)} layers, not built yet>"
        return super().__repr__()

    def structure(self) -> dict[str, Any]:
        """Return its layers as JSON values."""
        self._check_built()
        members = list(self.members)
        if not isinstance(members[0], Input):
            members.insert(0, Input(self.inputs[0].shape[1:], self.inputs[0].dtype.name))
        return {"layers": [describe_layer(layer) for layer in members]}

    @loading
    def load(
        cls,  # noqa: N805 (a class method, unless it is asked of a model)
        path: FilePath,
        *,
        custom: Mapping[str, type[Layer]] | None = None,
        **options: Any,
    ) -> NeuralNetwork:
        """Return a network from a file that `save` or a checkpoint wrote.

        Of a network, ``net.load(path)``, it reads the weights into that one and returns it, as
        `load_weights` does.

        Parameters
        ----------
        path, custom, **options
            As of `Model.load`.

        Returns
        -------
        NeuralNetwork
            With the weights of the file. The optimizer begins anew.

        Raises
        ------
        DataError
            If the file is missing, truncated or damaged, names an unknown layer, or holds a model
            that is no list of layers.

        Examples
        --------
        >>> import magmagraph as mg, tempfile, os
        >>> net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")
        >>> with tempfile.TemporaryDirectory() as place:
        ...     path = os.path.join(place, "net.safetensors")
        ...     net.save(path)
        ...     again = mg.NeuralNetwork.load(path)
        >>> bool((again.predict([[1, 2, 3]]) == net.predict([[1, 2, 3]])).all())
        True
        """
        model = _read_model(path, custom, options)
        if not isinstance(model, cls):
            raise DataError(
                message(
                    f"{str(path)!r} holds a model that is no list of layers",
                    hint="mg.Model.load(path)",
                )
            )
        return model


def _read_model(path: FilePath, custom: Mapping[str, type[Layer]] | None, options: Any) -> Model:
    """Return the model of a file; see `Model.load`."""
    tensors, about = files.read_weights(path)
    architecture = about["architecture"]
    if architecture is None:
        raise DataError(
            message(
                f"{str(path)!r} holds the weights of a model that Python code built",
                hint="build it again, and model.load_weights(path)",
            )
        )
    # Wrong inputs are the caller's error.
    passing = MagmagraphError if options or custom else ()
    with (
        reading(f"{str(path)!r}", "does not hold a model", passing=passing),
        initial_values_left_out(sum(array.nbytes for array in tensors.values())),
    ):
        arguments = {
            "loss": architecture["loss"],
            "metrics": architecture["metrics"],
            "regularize": architecture.get("regularize") and Penalty(*architecture["regularize"]),
            "seed": architecture["seed"],
            **options,
        }
        if architecture["optimizer"] is not None and "optimizer" not in options:
            arguments["optimizer"] = build_optimizer(architecture["optimizer"])
        if "graph" in architecture:
            inputs, outputs = build_graph(architecture, custom or {})
            single = architecture.get("single", False)
            model: Model = Model(inputs, outputs[0] if single else outputs, **arguments)
        else:
            layers = [build_layer(layer, custom or {}) for layer in architecture["layers"]]
            model = NeuralNetwork(layers, **arguments)
        model.set_tensors(tensors, f"{str(path)!r}")
    return model


class _Count(int):
    """A number that says what is meant where it is called, as PyTorch's method is."""

    def __call__(self) -> Any:
        raise ArgumentError(
            message(
                f"the attribute parameters is a number, {int(self)}",
                hint="net.trainable, the list of variables; an optimizer is given none: "
                "mg.NeuralNetwork(layers, loss=..., optimizer=mg.optimizer.Adam(1e-3))",
            )
        )


def _example_shape(node: Node, rows: int) -> tuple[int, ...]:
    """Return the shape of an input for so many rows; other unknown extents are 1."""
    rest = (extent if isinstance(extent, int) else 1 for extent in node.shape[1:])
    return (rows, *rest)


def _example(node: Node, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return random values of an input, zeros where they are integers."""
    shape = _example_shape(node, rows)
    return (rng.random(shape) if is_float(node.dtype) else np.zeros(shape)).astype(node.dtype)


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

