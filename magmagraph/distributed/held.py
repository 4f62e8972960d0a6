"""Variables of which each rank holds a part, and the whole ones that they are parts of.

Both are views of one value. A step writes the parts; who reads the whole variable then gathers
them, so that all ranks of the group have to read it together. Who writes the whole one finds it cut
again at the next step.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..communicator import Communicator
from ..ops.leaf import Variable, variable_of
from ..state import State

__all__ = ["part_of"]


class _Gathered:
    """The value of a whole variable, as the ranks' parts have it."""

    def __init__(self, part: PartState) -> None:
        self._part = part

    def fetch(self, array: np.ndarray) -> None:
        """Write the parts into an array, one beside the other; all ranks of the group call it."""
        part = self._part
        rows = part.group.allgather(np.ascontiguousarray(part.data))
        np.concatenate(list(rows), axis=part.axis, out=array)


class _Cut:
    """The value of a part, as the whole variable has it."""

    def __init__(self, part: PartState) -> None:
        self._part = part

    def fetch(self, array: np.ndarray) -> None:
        """Write the rank's own rows into an array."""
        part = self._part
        array[...] = part.slice_of(part.whole.data)
        part.seen = part.whole.version


class PartState(State):
    """What one rank holds of a variable: equal pieces along an axis, in the ranks' order.

    Attributes
    ----------
    whole
        The state that it is a part of.
    axis
        That is cut.
    group
        The ranks that hold the parts.
    seen
        The version of the whole that the part has.
    """

    __slots__ = ("_changes", "_newest", "axis", "group", "seen", "whole")

    def __init__(self, whole: State, axis: int, group: Communicator, name: str) -> None:
        self.whole, self.axis, self.group = whole, axis, group
        self._newest: Any = None
        self._changes = 0
        self.seen = whole.version
        super().__init__(self.slice_of(whole.data), name)
        # The constructor's own assignments are no changes of the value.
        self._changes, self.seen, whole.newest = 0, whole.version, None

    def slice_of(self, value: np.ndarray) -> np.ndarray:
        """Return this rank's rows of a whole value."""
        count = value.shape[self.axis] // self.group.size
        place = slice(self.group.rank * count, (self.group.rank + 1) * count)
        return value[(slice(None),) * self.axis + (place,)]

    @property
    def newest(self) -> Any:
        """What has a newer value than the host's buffer: a device, or the whole variable."""
        return _Cut(self) if self.whole.version != self.seen else self._newest

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
        whole.newest = _Gathered(self)


_Parts = weakref.WeakValueDictionary[tuple[int, tuple[str, ...]], Variable]
_parts: weakref.WeakKeyDictionary[State, _Parts] = weakref.WeakKeyDictionary()


def part_of(whole: Variable, axis: int, group: Communicator) -> Variable:
    """Return the variable that holds this rank's part of another one; the same for each caller."""
    known = _parts.setdefault(whole.state, weakref.WeakValueDictionary())
    key = (axis, tuple(group.mesh.axes))
    found = known.get(key)
    if found is None:
        name = f"{whole.name or 'variable'} (part)"
        found = variable_of(PartState(whole.state, axis, group, name), name)
        known[key] = found
    return found
