"""The functions that a model compiles: a step of training, evaluation, prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..function import Function, function
from ..ir.graph import Node
from ..nn.layer import Layer, Weight
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, multiply
from ..ops.leaf import Variable, input
from ..ops.random.bits import streams_from
from ..ops.reduction.primitives import sum
from ..ops.reduction.statistics import mean
from ..optimizer import Optimizer
from ..regularize import Penalty
from . import replay
from .losses import Labels, LossFunction, loss_function
from .metrics import Metric

__all__ = ["Compiling", "no_optimizer"]


class Compiling:
    """What a model compiles, each function once; mixed into `Model`."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    layers: list[Layer]
    loss: Any
    optimizer: Optimizer
    metrics: list[Metric]
    regularize: Penalty | None
    seed: int
    options: dict[str, Any]
    _functions: dict[Any, Function]
    _last: tuple[Labels, bool, dict[str, Any]] | None  # the settings of the last step
    _drawn: int

    def weights(self) -> dict[str, Weight]:
        """Return all weights by name."""
        raise NotImplementedError

    @property
    def trainable(self) -> list[Variable]:
        """The variables that an optimizer updates."""
        raise NotImplementedError

    @property
    def _probabilities(self) -> bool:
        raise NotImplementedError

    def _activation(self) -> str | None:
        raise NotImplementedError

    def _form(self, training: bool) -> list[Node]:
        if not training:
            return list(self.outputs)
        with streams_from(self.seed):
            return replay.training_form(self.outputs, self.inputs)

    def _check_loss(self) -> None:
        """Raise where there is nothing to be trained or judged by, before data are looked at."""
        if self.loss is None:
            raise ConfigError(
                message("the model has no loss", need="one, to train and to evaluate by",
                        hint="loss='cross_entropy', or 'mse'")
            )
        if len(self.outputs) != 1:
            raise ConfigError(
                message(
                    f"the model has {len(self.outputs)} outputs",
                    need="one, to be trained by fit",
                    hint="optimizer.step on a loss of your own",
                )
            )

    def _loss(
        self, outputs: Sequence[Node], labels: Labels, weights: Node | None = None
    ) -> Node:
        self._check_loss()
        function = loss_function(self.loss, self._activation())
        if weights is not None:
            return self._weighted(function, outputs[0], labels, weights)
        value = function(outputs[0], labels.node)
        if not isinstance(value, Node):
            raise ConfigError(
                message(
                    f"the loss {self.loss!r} returned {type(value).__name__}",
                    need="a scalar node, made of the outputs' and the labels' nodes",
                    hint="a return statement" if value is None else None,
                )
            )
        if value.shape != ():
            raise ConfigError(
                message(f"the loss has shape {value.shape}", need="a scalar: the mean over a batch")
            )
        return value

    def _weighted(
        self, function: LossFunction, output: Node, labels: Labels, weights: Node
    ) -> Node:
        """Return the mean over rows of weight times loss."""
        if callable(self.loss):
            raise ConfigError(
                message(
                    f"rows have weights, and the loss is {self.loss!r}",
                    need="a loss by its name, of which each row has its own number",
                    hint="weights inside of the function, by the labels: mg.take(weights, labels)",
                )
            )
        each = function(output, labels.node, reduction="none")
        if each.ndim == 0 or each.shape[0] != output.shape[0]:
            raise ConfigError(
                message(
                    f"rows have weights, and the loss {self.loss!r} has the shape {each.shape}",
                    need="a loss with a number for each row",
                )
            )
        if each.ndim > 1:
            each = mean(each, axis=tuple(range(1, each.ndim)))
        return mean(multiply(each, cast(weights, each.dtype)))

    def _penalty(self) -> Node | None:
        terms: list[Node] = []
        if self.regularize is not None:
            terms.append(
                self.regularize([w.variable for w in self.weights().values() if w.decays])
            )
        for layer in self.layers:
            for part in layer.layers():
                if part.regularizer is not None:
                    variables = [w.variable for w in part.weights().values() if w.decays]
                    terms.append(part.regularizer(variables))
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
        for variable in self.trainable:
            groups.setdefault(decays.get(variable), []).append(variable)
        return [
            {"wrt": members} if decay is None else {"wrt": members, "weight_decay": decay}
            for decay, members in groups.items()
        ]

    def _reported(
        self, outputs: Sequence[Node], labels: Labels, loss: Node, weights: Node | None
    ) -> list[Node]:
        """Return the loss and the statistic of each metric; of weighted rows, their weight last."""
        pair = outputs[0], labels.node
        if weights is None:
            return [loss, *(m.batch(*pair, self._probabilities) for m in self.metrics)]
        counts = cast(weights, np.float64)
        statistics = [m._weighted(*pair, counts, self._probabilities) for m in self.metrics]
        return [loss, *statistics, sum(counts)]

    def _settings(self, labels: Labels) -> tuple[Any, ...]:
        """Return the settings, besides the network, that a compiled function depends on."""
        return (labels.kind, self.loss, self.regularize, *map(id, self.metrics))

    def training_step(
        self, labels: Labels, *, weighted: bool = False, **options: Any
    ) -> Function:
        """Return the compiled step: from examples and labels to loss and statistics.

        One function holds the network, its loss, penalties, gradients, the optimizer, metrics and
        running statistics; it is made once for each kind of labels. Where rows are `weighted`, it
        takes their weights behind the labels.
        """
        # The optimizer itself: a later one may have the address of one that is gone.
        settings = (self.optimizer, tuple(self.trainable), *sorted(options.items(), key=str))
        place = ("step", weighted, *self._settings(labels), *settings)
        self._last = (labels, weighted, options)
        if place not in self._functions:
            outputs = self._form(training=True)
            weights = self._weights_input() if weighted else None
            loss = self._loss(outputs, labels, weights)
            penalty = self._penalty()
            total = loss if penalty is None else add(loss, cast(penalty, loss.dtype))
            if not isinstance(self.optimizer, Optimizer):
                raise no_optimizer(self.optimizer)
            if not self.trainable:
                raise ConfigError(message("the model has no weight that can be trained"))
            step = self.optimizer.step(
                total,
                self._groups(),
                inputs=[*self.inputs, labels.node, *([] if weights is None else [weights])],
                outputs=self._reported(outputs, labels, total, weights),
                name="training step",
                **{**self.options, **options},
            )
            if step.random_step is not None:
                step.random_step.assign(np.int64(self._drawn))
            self._functions[place] = step
        return self._functions[place]

    def _weights_input(self) -> Node:
        """Return an input for the weights of rows."""
        return input("sample_weight", self.outputs[0].shape[:1], np.float32)

    def _evaluation(self, labels: Labels, weighted: bool = False) -> Function:
        place = ("evaluate", weighted, *self._settings(labels))
        if place not in self._functions:
            outputs = self._form(training=False)
            weights = self._weights_input() if weighted else None
            loss = self._loss(outputs, labels, weights)
            penalty = self._penalty()
            total = loss if penalty is None else add(loss, cast(penalty, loss.dtype))
            self._functions[place] = function(
                [*self.inputs, labels.node, *([] if weights is None else [weights])],
                self._reported(outputs, labels, total, weights),
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


def no_optimizer(value: Any) -> ConfigError:
    """Return the error for a value that is no optimizer."""
    hint = None
    if isinstance(value, type) and issubclass(value, Optimizer):
        hint = f"{value.__name__}(), an object of the class"
    elif isinstance(value, str):
        hint = "mg.optimizer.Adam(1e-3), say"
    return ConfigError(
        message(f"optimizer={value!r}", need="an optimizer of mg.optimizer", hint=hint)
    )
