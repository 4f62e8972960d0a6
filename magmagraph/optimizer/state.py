"""What an optimizer remembers of one variable between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..ir.graph import Node
from ..ops.convert import as_dtype, cast
from ..ops.elementwise.arithmetic import add
from ..ops.leaf import Variable

MakeVariable = Callable[[str, Any], Variable]


class VariableState:
    """The memory of one variable, given to `Optimizer.update`.

    Named values are variables, made at first use and kept by the optimizer. ``state["m"] = node``
    says what becomes of one at the end of the step; reading it gives the value from before.

    Attributes
    ----------
    variable
        The variable that is being updated.
    options
        The optimizer's settings for it, with those of its parameter group: ``options.momentum``.

    Examples
    --------
    >>> import magmagraph as mg
    >>> class Heavy(mg.optimizer.Optimizer):
    ...     def update(self, variable, gradient, state):
    ...         velocity = 0.9 * state.zeros("velocity") + gradient
    ...         state["velocity"] = velocity
    ...         return variable - state.learning_rate * velocity
    >>> x = mg.var("x", init=1.0)
    >>> optimizer = Heavy(0.1)
    >>> step = optimizer.step(x**2, [x])
    >>> step(), step(), round(float(x.value), 4), list(optimizer.state)
    (None, None, 0.46, ['learning_rate', 'x/velocity'])
    """

    def __init__(
        self,
        variable: Variable,
        rate: Node,
        options: Mapping[str, Any],
        step: Callable[[], Variable],
        make: MakeVariable,
    ) -> None:
        self.variable = variable
        self.options = SimpleNamespace(**options)
        self._rate = rate
        self._step = step
        self._make = make
        self._known: dict[str, Variable] = {}
        self.renewed: dict[Variable, Node] = {}

    @property
    def learning_rate(self) -> Node:
        """The rate of this step, a scalar of the variable's dtype."""
        return cast(self._rate, self.variable.dtype)

    @property
    def step(self) -> Node:
        """The number of this step, counted from 1, a scalar of the variable's dtype.

        Of float32, where the variable's dtype is narrower.
        """
        dtype = self.variable.dtype if self.variable.dtype.itemsize >= 4 else np.dtype(np.float32)
        return cast(add(self._step(), 1), dtype)

    def zeros(self, name: str) -> Variable:
        """Return a named value that starts as zeros like the variable."""
        return self.full(name, 0.0)

    def full(self, name: str, value: Any) -> Variable:
        """Return a named value, shaped like the variable, that starts as `value` everywhere."""
        if name not in self._known:
            held = self.variable.state.data
            one = np.asarray(value, held.dtype)
            self._known[name] = self._make(name, np.broadcast_to(one, held.shape))
        return self._known[name]

    def array(self, name: str, value: Any) -> Variable:
        """Return a named value of any shape that starts as `value`, in the variable's dtype."""
        if name not in self._known:
            self._known[name] = self._make(name, np.asarray(value, self.variable.dtype))
        return self._known[name]

    def scalar(self, name: str, value: Any = 0.0) -> Variable:
        """Return a named scalar of the variable's dtype that starts as `value`."""
        return self.array(name, value)

    @property
    def named(self) -> Mapping[str, Variable]:
        """What is remembered, by name."""
        return self._known

    def __getitem__(self, name: str) -> Variable:
        return self._known[name]

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __setitem__(self, name: str, value: Any) -> None:
        held = self._known[name]
        self.renewed[held] = as_dtype(value, held.dtype)
