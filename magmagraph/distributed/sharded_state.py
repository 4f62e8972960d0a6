"""Variables of which each rank holds a part, and the whole ones that they are parts of.

Both are views of one value. A step writes the parts; who reads the whole variable then gathers
them, so that all ranks of the group have to read it together. Who writes the whole one finds it cut
again at the next step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..ir.communicator import Communicator
from ..ir.values.state import State
from ..ops.leaf import Variable, variable_of

__all__ = ["announcing", "owned", "part_of", "whole_of"]


class _Fetched:
    """The value of a whole variable, where ranks hold it: ``fetch(array)``, which all call."""

    def __init__(self, fetch: Callable[[np.ndarray], None]) -> None:
        self.fetch = fetch


class _Own(State):
    """What this rank holds of a variable.

    whole: The state that it is a part of.
    seen: The version of the whole that the part has.
    """

    __slots__ = ("_changes", "_newest", "seen", "whole")

    def __init__(self, whole: State, name: str) -> None:
        self.whole = whole
        self._newest: Any = None
        self._changes = 0
        self.seen = whole.version
        super().__init__(self.of(whole.data), name)
        # The constructor's own assignments are no changes of the value.
        self._changes, self.seen, whole.newest = 0, whole.version, None

    def of(self, value: np.ndarray) -> np.ndarray:
        """Return what the rank holds of a whole value."""
        return value

    def gather(self, array: np.ndarray) -> None:
        """Write the whole value, of which the ranks hold parts; all ranks of the group call it."""
        raise NotImplementedError

    def _cut(self, array: np.ndarray) -> None:
        array[...] = self.of(self.whole.data)
        self.seen = self.whole.version

    @property
    def newest(self) -> Any:
        """What has a newer value than the host's buffer: a device, or the whole variable."""
        return _Fetched(self._cut) if self.whole.version != self.seen else self._newest

    @newest.setter
    def newest(self, value: Any) -> None:
        self._newest = value

    @property
    def version(self) -> int:
        """Counts the changes of the part, and those of the whole."""
        return self._changes + self.whole.version

    @version.setter
    def version(self, value: int) -> None:
        whole = self.whole
        self._changes = value - whole.version
        # The parts are newer than the whole, also where it has copies on devices.
        whole.version += 1
        self.seen = whole.version
        whole.newest = _Fetched(self.gather)


class _Part(_Own):
    """One of equal pieces along an axis, in the ranks' order."""

    __slots__ = ("axis", "group")

    def __init__(self, whole: State, axis: int, group: Communicator, name: str) -> None:
        self.axis, self.group = axis, group
        super().__init__(whole, name)

    def of(self, value: np.ndarray) -> np.ndarray:
        """Return this rank's rows."""
        count = value.shape[self.axis] // self.group.size
        place = slice(self.group.rank * count, (self.group.rank + 1) * count)
        return value[(slice(None),) * self.axis + (place,)]

    def gather(self, array: np.ndarray) -> None:
        """Put the parts one beside the other."""
        rows = self.group.allgather(np.ascontiguousarray(self.data))
        np.concatenate(list(rows), axis=self.axis, out=array)


class _Owned(_Own):
    """The value itself, which this rank alone renews."""

    __slots__ = ("group",)

    def __init__(self, whole: State, group: Communicator, name: str) -> None:
        self.group = group
        super().__init__(whole, name)

    def gather(self, array: np.ndarray) -> None:
        """Send the value to the others."""
        array[...] = self.group.broadcast(self.data, self.group.rank)


class _Announcing(State):
    """A counter of steps; with each, what other ranks renew is out of date here."""

    __slots__ = ("_count", "elsewhere", "group")

    def __init__(self, group: Communicator, name: str) -> None:
        self.elsewhere: dict[State, int] = {}
        self.group = group
        self._count = 0
        super().__init__(np.zeros((), np.int64), name)

    @property
    def version(self) -> int:
        """Counts the steps."""
        return self._count

    @version.setter
    def version(self, value: int) -> None:
        self._count = value
        for whole, owner in self.elsewhere.items():
            whole.version += 1
            whole.newest = _Fetched(partial(self._receive, owner=owner))

    def _receive(self, array: np.ndarray, owner: int) -> None:
        array[...] = self.group.broadcast(array, owner)


_Known = weakref.WeakValueDictionary[Any, Variable]
_known: weakref.WeakKeyDictionary[State, _Known] = weakref.WeakKeyDictionary()


def _once(whole: Variable, key: Any, make: Callable[[str], State]) -> Variable:
    """Return the variable that is known by a key, made where there is none yet."""
    variables = _known.setdefault(whole.state, weakref.WeakValueDictionary())
    variable = variables.get(key)
    if variable is None:
        name = f"{whole.name or 'variable'} (part)"
        variable = variable_of(make(name), name)
        variables[key] = variable
    return variable


def part_of(whole: Variable, axis: int, group: Communicator) -> Variable:
    """Return the variable that holds this rank's part of another one; the same for each caller."""
    key = (axis, tuple(group.mesh.axes))
    return _once(whole, key, lambda name: _Part(whole.state, axis, group, name))


def owned(whole: Variable, group: Communicator) -> Variable:
    """Return the variable that holds another one's value on the only rank that renews it."""
    key = tuple(group.mesh.axes)
    return _once(whole, key, lambda name: _Owned(whole.state, group, name))


def announcing(group: Communicator) -> tuple[Variable, _Announcing]:
    """Return a counter of steps, and where to note what other ranks renew in them."""
    state = _Announcing(group, "steps of the pipeline")
    return variable_of(state, state.name), state


def whole_of(variable: Variable) -> Variable | None:
    """Return the variable that one is a part of, or itself; None for the ranks' own counters."""
    state = variable.state
    if isinstance(state, _Own):
        return None if state.whole.node is None else state.whole.node()
    return None if isinstance(state, _Announcing) else variable
