"""The variables that an optimizer makes, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ops.leaf import Variable, variable


class Memory:
    """Named variables of an optimizer, made at first use; saved values wait for theirs.

    variables: What was made so far, by name, in the order of making.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self._labels: dict[Variable, str] = {}
        self._saved: dict[str, np.ndarray] = {}
        self.parts: Any = None  # how ranks share what is remembered, see `distributed.parts`
        self.sums: Any = None  # what ranks add up apart, see `distributed.sums`
        self._added_up: set[str] = set()  # sums over calls

    def register(self, name: str, held: Variable) -> Variable:
        """Return the variable of a name, `held` where there is none yet."""
        if name not in self.variables:
            self.variables[name] = held
            if name in self._saved and not self._waits(name, held):
                held.assign(self._cut(name, self._saved.pop(name)))
        return self.variables[name]

    def _waits(self, name: str, held: Variable) -> bool:
        """Return whether a value's part is not known yet to be one."""
        return self.parts is not None and self._saved[name].shape != held.shape and (
            name not in self.parts.shapes
        )

    def share(self, strategy: Any, apart: bool = True) -> None:
        """Let ranks share what is remembered, where a strategy wants that.

        All ranks call it. `apart` says whether gradients may be added up by each rank alone.
        """
        sums = None if strategy is None or not apart else strategy.optimizer_sums()
        if (sums is None) != (self.sums is None):
            begun = {name: self.variables[name] for name in sorted(self._added_up)}
            whole = {name: self._whole(name, held.value) for name, held in begun.items()}
            self.sums = sums
            for name, held in begun.items():
                held.assign(self._cut(name, whole[name]))
        parts = None if strategy is None else strategy.optimizer_parts()
        if parts is None:
            return
        if self.parts is None and any("/" in name for name in self.variables):
            raise ConfigError(
                message(
                    "shard_optimizer=True, and the optimizer has taken steps without",
                    need="a new optimizer",
                    hint="state_dict() of the old one, load_state_dict() of the new one",
                )
            )
        self.parts = self.parts or parts

    def settle(self) -> None:
        """Give variables their part of saved values, once it is known that they are parts."""
        for name in [name for name in self._saved if name in self.variables]:
            self.variables[name].assign(self._cut(name, self._saved.pop(name)))

    def added_up(self, name: str, value: Any) -> Variable:
        """Return the variable of a sum over calls, which ranks may have terms of."""
        self._added_up.add(name)
        return self.remember(name, value)

    def _whole(self, name: str, value: np.ndarray) -> np.ndarray:
        """Return a value of all ranks; where each has a term of it, all of them call it."""
        whole: np.ndarray = value
        if self.sums is not None and name in self._added_up:
            whole = self.sums.gathered(value)
        elif self.parts is not None and name in self.parts.shapes:
            whole = self.parts.gathered(name, value)
        return whole

    def _cut(self, name: str, value: Any) -> Any:
        if self.sums is not None and name in self._added_up:
            return self.sums.cut(value)
        if self.parts is None or name not in self.parts.shapes:
            return value
        return self.parts.cut(name, value)

    def remember(self, name: str, value: Any) -> Variable:
        """Return the variable of a name, made with `value` where there is none yet."""
        known = self.variables.get(name)
        return self.register(name, variable(name, init=value)) if known is None else known

    def counter(self) -> Variable:
        """Return the step's variable: int64, counted from 0."""
        return self.remember("step", np.int64(0))

    def label(self, target: Variable) -> str:
        """Return a name for a variable that no other of this optimizer has."""
        if target not in self._labels:
            stem = target.name or "variable"
            label, number = stem, 0
            while label in self._labels.values():
                number += 1
                label = f"{stem}_{number}"
            self._labels[target] = label
        return self._labels[target]

    def save(self) -> dict[str, np.ndarray]:
        """Return all values by name."""
        return {name: self._whole(name, held.value) for name, held in self.variables.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore values; those of variables that are not made yet wait until they are.

        raises ShapeError, DTypeError: If a value does not fit its variable; none is restored then.
        """
        fitted = self.fitted(saved)
        waiting = {name: np.array(v) for name, v in saved.items() if name not in fitted}
        for name, value in fitted.items():
            self.variables[name].assign(value)
        self._saved.update(waiting)

    def fitted(self, saved: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return, of the values whose variables are made, what these would hold.

        raises ShapeError, DTypeError: If a value does not fit its variable.
        """
        return {
            name: self.variables[name].state.fitted(self._cut(name, value))
            for name, value in saved.items()
            if name in self.variables
        }
