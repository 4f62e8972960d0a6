"""Values that are computed from variables, and computed again when those have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .state import State

__all__ = ["Derived"]


class _Stale:
    """In the place of a newer copy: what computes the value."""

    def __init__(self, fetch: Callable[[np.ndarray], None]) -> None:
        self.fetch = fetch


class Derived(State):
    """The state of a variable whose value is a function of other variables.

    It is computed when it is read and a source has been written since.

    Parameters
    ----------
    sources
        What the value depends on.
    compute
        ``compute()``: the value, always of one shape and dtype.
    name
        Of the variable.
    """

    __slots__ = ("_changes", "_newest", "compute", "seen", "sources")

    def __init__(
        self, sources: Sequence[State], compute: Callable[[], np.ndarray], name: str
    ) -> None:
        self.sources = tuple(sources)
        self.compute = compute
        self._newest: Any = None
        self._changes = 0
        self.seen = self._versions()
        super().__init__(compute(), name)

    def _versions(self) -> tuple[int, ...]:
        return tuple([source.version for source in self.sources])

    def _renew(self, array: np.ndarray) -> None:
        self.seen = self._versions()
        array[...] = self.compute()

    @property
    def newest(self) -> Any:
        """What has a newer value than the host's buffer."""
        return self._newest if self._versions() == self.seen else _Stale(self._renew)

    @newest.setter
    def newest(self, value: Any) -> None:
        self._newest = value

    @property
    def version(self) -> int:
        """Counts the changes of the sources."""
        return self._changes + sum(self._versions())

    @version.setter
    def version(self, value: int) -> None:
        self._changes = value - sum(self._versions())

    def __reduce__(self) -> Any:
        return (State, (self.read(), self.name))
