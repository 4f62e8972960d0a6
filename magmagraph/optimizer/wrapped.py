"""Optimizers around another one: averages of the weights, and flat minima."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from ..autodiff.transforms.rebuild import rebuild
from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ops.convert import cast
from ..ops.elementwise.arithmetic import add, divide, floor_divide, multiply, subtract
from ..ops.elementwise.bits import logical_and
from ..ops.elementwise.comparison import equal, greater_equal, maximum, where
from ..ops.leaf import Variable
from .base import Optimizer
from .clip import global_norm
from .settings import RANGES
from .state import VariableState

__all__ = ["EMA", "SAM", "SWA"]


class _Wrapped(Optimizer):
    """An optimizer that takes its steps by another one's rule."""

    own: ClassVar[tuple[str, ...]]

    def __init__(self, optimizer: Optimizer, **own: Any) -> None:
        kind = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise ConfigError(
                message(
                    f"{kind} is given {type(optimizer).__name__}",
                    need="an optimizer of mg.optimizer",
                    hint=f"mg.optimizer.{kind}(mg.optimizer.Adam(1e-3))",
                )
            )
        if type(optimizer).update is Optimizer.update or optimizer.state:
            why = "has taken steps" if optimizer.state else "has no rule for one variable"
            raise ConfigError(
                message(f"{kind} is given {optimizer!r}, which {why}", need="a new SGD, Adam, ...")
            )
        self.inner = optimizer
        self.ranges = {**optimizer.ranges, **{name: RANGES[name] for name in RANGES if name in own}}  # type: ignore[misc]
        super().__init__(
            optimizer._rate.given,
            clip_value=optimizer.clip_value,
            clip_norm=optimizer.clip_norm,
            accumulate=optimizer.accumulate,
            **optimizer.settings,
            **own,
        )

    def gradients(self, loss: Node, variables: list[Variable]) -> list[Node]:
        """Return the gradients that the other optimizer takes."""
        return self.inner.gradients(loss, variables)

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value, by the other optimizer's rule."""
        return self.inner.update(variable, gradient, state)

    def __repr__(self) -> str:
        given = "".join(f", {name}={self.settings[name]!r}" for name in self.own)
        return f"{type(self).__name__}({self.inner!r}{given})"


class _Averaged(_Wrapped):
    def averages(self) -> dict[Variable, np.ndarray]:
        """Return the average of each variable.

        Raises
        ------
        ConfigError
            Where no step was built yet.
        """
        values = self._memory.save()
        found = {
            variable: values[f"{label}/average"]
            for variable, label in self._memory._labels.items()
            if f"{label}/average" in values
        }
        if not found:
            raise ConfigError(
                message(
                    f"{type(self).__name__}: there are no averages before the first step",
                    need="a step: optimizer.step(loss, wrt)(), or net.fit(x, y)",
                )
            )
        return found

    @contextmanager
    def averaged(self) -> Iterator[Mapping[Variable, np.ndarray]]:
        """Have variables hold their averages inside of a ``with`` block."""
        averages = self.averages()
        before = {variable: variable.value for variable in averages}
        for variable, value in averages.items():
            variable.value = value
        try:
            yield averages
        finally:
            for variable, value in before.items():
                variable.value = value


@documented
class EMA(_Averaged):
    """Follow the weights by an exponential moving average.

    After each step of the other optimizer ``a <- k a + (1 - k) w``, from the first weights.

    optimizer (Optimizer): The one that takes the steps, new.
    average_decay (float, optional): ``k`` above.

    Notes
    -----
    ``with optimizer.averaged():`` variables hold the averages, to evaluate or save a network;
    `averages` returns them. Running statistics of `BatchNorm` are averages already.

    >>> w = mg.var("w", init=1.0)
    >>> optimizer = mg.optimizer.EMA(mg.optimizer.SGD(0.5), average_decay=0.5)
    >>> step = optimizer.step(w, [w])
    >>> step(), step(), float(w.value)
    (None, None, 0.0)
    >>> with optimizer.averaged():
    ...     float(w.value)
    0.375
    """

    own = ("average_decay",)

    def __init__(self, optimizer: Optimizer, average_decay: float = 0.999) -> None:
        super().__init__(optimizer, average_decay=average_decay)

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value, and renew its average."""
        new = super().update(variable, gradient, state)
        average = state.array("average", variable.value)
        share = 1.0 - state.options.average_decay
        state["average"] = add(average, multiply(subtract(new, average), share))
        return new


@documented
class SWA(_Averaged):
    """Average the weights of the last part of training (Izmailov and others 2018).

    The mean of the weights after the steps ``start, start + every, start + 2 every, ...``, counted
    from 0.

    optimizer (Optimizer): The one that takes the steps, new; its rate is constant or goes in cycles
        at the end.
    start, every (int, optional): See above.

    Notes
    -----
    As `EMA`. Running statistics of `BatchNorm` are those of the weights that were not averaged: run
    the data through the network in training once, inside of ``with optimizer.averaged():``.

    >>> w = mg.var("w", init=0.0)
    >>> optimizer = mg.optimizer.SWA(mg.optimizer.SGD(1.0), start=1, every=2)
    >>> step = optimizer.step(-w, [w])
    >>> [step() for _ in range(4)], [float(a) for a in optimizer.averages().values()]
    ([None, None, None, None], [3.0])
    """

    own = ("start", "every")

    def __init__(self, optimizer: Optimizer, start: int = 0, every: int = 1) -> None:
        for name, value, least in (("start", start, 0), ("every", every, 1)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ConfigError(
                    message(f"SWA: {name}={value!r}", need=f"an int of at least {least}")
                )
        super().__init__(optimizer, start=int(start), every=int(every))

    def update(self, variable: Variable, gradient: Node, state: VariableState) -> Node:
        """Return the variable's new value, and renew its average at some steps."""
        new = super().update(variable, gradient, state)
        average, options = state.array("average", variable.value), state.options
        past = subtract(cast(state.step, np.int64), 1 + options.start)
        turn = floor_divide(past, options.every)
        taken = logical_and(greater_equal(past, 0), equal(multiply(turn, options.every), past))
        count = cast(maximum(add(turn, 1), 1), variable.dtype)
        mean = add(average, divide(subtract(new, average), count))
        state["average"] = where(taken, mean, average)
        return new


@documented
class SAM(_Wrapped):
    """Step by the gradient at the worst point nearby (Foret and others 2021, algorithm 1).

    The other optimizer's rule, with the gradient at ``w + p g / |g|``, where ``|g|`` is the norm of
    all gradients together. A step computes the gradient twice.

    optimizer (Optimizer): The one whose rule it is, new.
    radius (float, optional): ``p`` above.

    >>> w = mg.var("w", init=1.0)
    >>> step = mg.optimizer.SAM(mg.optimizer.SGD(0.25), radius=0.5).step(w**2, [w])
    >>> step(), float(w.value)
    (None, 0.25)
    """

    own = ("radius",)

    def __init__(self, optimizer: Optimizer, radius: float = 0.05) -> None:
        super().__init__(optimizer, radius=radius)

    def gradients(self, loss: Node, variables: list[Variable]) -> list[Node]:
        """Return the gradients at the point that is moved uphill."""
        slopes = super().gradients(loss, variables)
        factor = divide(self.settings["radius"], maximum(global_norm(slopes), 1e-12))
        moved: dict[Node, Node] = {
            variable: add(variable, cast(multiply(slope, factor), variable.dtype))
            for variable, slope in zip(variables, slopes, strict=True)
        }
        return rebuild(slopes, moved)
