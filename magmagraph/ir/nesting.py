"""Nested lists, tuples and dictionaries of nodes: taken apart and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .graph import Node


def leaves(tree: Any, label: str) -> list[tuple[str, Any]]:
    """Return the members of a nested structure in order, each with its place as text.

    Examples
    --------
    >>> leaves({"a": [1, 2], "b": 3}, "wrt")
    [("wrt['a'][0]", 1), ("wrt['a'][1]", 2), ("wrt['b']", 3)]
    """
    members: list[tuple[str, Any]] = []
    _collect(tree, label, members)
    return members


def _collect(tree: Any, label: str, members: list[tuple[str, Any]]) -> None:
    if isinstance(tree, Mapping):
        for key, member in tree.items():
            # A node as a key prints as its name, not as its repr with quotes around it.
            shown = key.name if isinstance(key, Node) and key.name else repr(key)
            _collect(member, f"{label}[{shown}]", members)
    elif isinstance(tree, (list, tuple)):
        for index, member in enumerate(tree):
            _collect(member, f"{label}[{index}]", members)
    else:
        members.append((label, tree))


def like(tree: Any, members: Sequence[Any]) -> Any:
    """Return `members` in the nested form of `tree`.

    Examples
    --------
    >>> like({"a": [1, 2], "b": 3}, "xyz")
    {'a': ['x', 'y'], 'b': 'z'}
    """
    return _restore(tree, iter(members))


def _restore(tree: Any, members: Iterator[Any]) -> Any:
    if isinstance(tree, Mapping):
        return {key: _restore(member, members) for key, member in tree.items()}
    if isinstance(tree, tuple):
        parts = [_restore(member, members) for member in tree]
        # A named tuple takes its fields one by one.
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if isinstance(tree, list):
        return [_restore(member, members) for member in tree]
    return next(members)
