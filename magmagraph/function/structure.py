"""The form of a function's outputs: one node, lists, tuples and dictionaries of them, or None."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import FeedError, message
from ..ir.nesting import leaves, like


class Structure:
    """A nested form, and how values are put into it.

    leaves: The members in order.

    Examples
    --------
    >>> form = Structure({"a": [1, 2], "b": 3})
    >>> form.leaves, form.build("xyz")
    ([1, 2, 3], {'a': ['x', 'y'], 'b': 'z'})
    """

    __slots__ = ("_flat", "_form", "_labels", "_single", "leaves")

    def __init__(self, tree: Any) -> None:
        named = [] if tree is None else leaves(tree, "out")
        self.leaves: list[Any] = [member for _, member in named]
        self._labels = [label for label, _ in named]
        self._form = like(tree, range(len(named))) if named else tree
        self._single = isinstance(self._form, int)
        self._flat = isinstance(self._form, list) and all(isinstance(i, int) for i in self._form)

    def build(self, values: Sequence[Any]) -> Any:
        """Return values, one per leaf, in this form."""
        if self._single:
            return values[0]
        form = self._form
        if self._flat:
            return list(values)
        return None if form is None else like(form, values)

    def match(self, tree: Any) -> list[Any]:
        """Return the members of a tree of the same form, in order; raise where it differs."""
        named = [] if tree is None else leaves(tree, "out")
        if [label for label, _ in named] != self._labels:
            raise FeedError(
                message(
                    f"out= has the members {', '.join(label for label, _ in named) or 'none'}",
                    need=f"the form of the outputs: {', '.join(self._labels) or 'none'}",
                )
            )
        return [member for _, member in named]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)
