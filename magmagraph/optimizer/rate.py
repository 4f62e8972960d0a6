"""Learning rates of every form, each with a scalar variable underneath."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..config import config
from ..errors import ConfigError, message
from ..ir.graph import Node
from ..ops.convert import cast
from ..ops.leaf import Variable, variable
from ..schedule import Plateau, at, exact_rate

RateLike = Any  # float | Callable[[Node], Node] | Node | Plateau


class Rate:
    """A learning rate: a number, a schedule, a node or a plateau.

    For a number or a plateau the variable is the rate. For a schedule it holds the rate of the
    coming step, and each step writes the next one: no step waits for the schedule. For a node
    it holds the rate that was used last.
    """

    def __init__(self, given: RateLike, name: str) -> None:
        self.name = name
        self.given = given
        self._variable: Variable | None = None
        if isinstance(given, Variable):
            self._variable = given
        elif isinstance(given, Plateau):
            self._variable = given.variable
        elif isinstance(given, Node):
            if given.shape != ():
                raise ConfigError(
                    message(f"the learning rate is a node of shape {given.shape}", need="a scalar")
                )
        elif not callable(given) and not isinstance(given, (int, float, np.number)):
            raise ConfigError(
                message(
                    f"the learning rate is a {type(given).__name__}",
                    need="a number, a schedule, a function of the step, or a scalar node",
                    hint="variables are named where the optimizer is used: "
                    "optimizer.step(loss, [w, b]), optimizer.minimize(loss, [w, b])"
                    if isinstance(given, (list, tuple, dict))
                    else None,
                )
            )
        elif not callable(given) and not 0 <= given < math.inf:
            raise ConfigError(
                message(
                    f"the learning rate is {given}",
                    need="a finite number of at least 0",
                    hint="minimize -loss, to climb" if given < 0 else None,
                )
            )

    @property
    def fixed(self) -> float | None:
        """The number that was given, None where it is another form."""
        return float(self.given) if isinstance(self.given, (int, float, np.number)) else None

    @property
    def scheduled(self) -> bool:
        """Whether it is a function of the step."""
        return callable(self.given) and not isinstance(self.given, (Node, Plateau))

    def held(self, dtype: Any = None) -> Variable:
        """Return the variable underneath; `dtype` matters where it is made now."""
        if self._variable is None:
            if isinstance(self.given, Node):
                first = 0.0
            elif self.scheduled:
                first = at(self.given, 0)
            else:
                first = float(self.given)
            element = config.float_dtype if dtype is None else dtype
            self._variable = variable(self.name, init=first, dtype=element)
        return self._variable

    def node(self) -> Node:
        """Return the rate of the step that is being built."""
        if isinstance(self.given, Node) and not isinstance(self.given, Variable):
            return self.given
        return self.held()

    def following(self, next_step: Any) -> Node | None:
        """Return the variable's new value, or None where a step leaves it alone.

        `next_step` gives the number of the step after this one, where it is asked for.
        """
        if self.scheduled:
            return cast(exact_rate(self.given, next_step()), self.held().dtype)
        if isinstance(self.given, Node) and not isinstance(self.given, Variable):
            return cast(self.given, self.held().dtype)
        return None
