"""Look nodes up by identity: ``==`` between nodes makes a node, which compares their values.

Dictionaries and sets need nothing of this module. They hash a node by its address, which no two
living nodes share, and compare by ``is`` first. Lists, tuples, and weak references compare by
``==``: use these functions in place of ``node in nodes``, ``nodes.index(node)``,
``nodes.remove(node)``, ``left == right``, and `weakref.WeakKeyDictionary`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, MutableSequence, Sequence
from typing import Generic, TypeVar
from weakref import KeyedRef

__all__ = ["WeakMap", "index_of", "is_among", "remove_from", "same_nodes"]

Member = TypeVar("Member")
Value = TypeVar("Value")


def is_among(member: object, members: Iterable[object]) -> bool:
    """Return whether an object is one of some, by identity.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, y = mg.input("x"), mg.input("y")
    >>> is_among(x, [y, x]), is_among(x, (y,))
    (True, False)
    """
    return id(member) in map(id, members)


def index_of(members: Iterable[Member], member: Member) -> int:
    """Return the first position of an object among some, by identity.

    raises ValueError: If it is not among them.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, y = mg.input("x"), mg.input("y")
    >>> index_of([y, x], x)
    1
    """
    return list(map(id, members)).index(id(member))


def remove_from(members: MutableSequence[Member], member: Member) -> None:
    """Remove the first occurrence of an object from a list, by identity.

    raises ValueError: If it is not in the list.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, y = mg.input("x"), mg.input("y")
    >>> nodes = [y, x]
    >>> remove_from(nodes, x)
    >>> len(nodes)
    1
    """
    del members[index_of(members, member)]


def same_nodes(left: Sequence[object], right: Sequence[object]) -> bool:
    """Return whether two sequences hold the same objects in the same order, by identity.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, y = mg.input("x"), mg.input("y")
    >>> same_nodes([x, y], (x, y)), same_nodes([x, y], [x, x])
    (True, False)
    """
    return len(left) == len(right) and all(map(operator.is_, left, right))


class WeakMap(Generic[Member, Value]):
    """Hold a value for each of some objects as long as the object lives, by identity.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x, y = mg.input("x"), mg.input("y")
    >>> notes: WeakMap[mg.Node, str] = WeakMap()
    >>> notes[x] = "seen"
    >>> notes.get(x), notes.get(y)
    ('seen', None)
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[int, tuple[KeyedRef[int, Member], Value]] = {}

    def __setitem__(self, member: Member, value: Value) -> None:
        address = id(member)
        self._held[address] = (KeyedRef(member, self._forget, address), value)

    def get(self, member: Member) -> Value | None:
        """Return the value of an object, or None where it has none."""
        entry = self._held.get(id(member))
        return None if entry is None else entry[1]

    def _forget(self, reference: KeyedRef[int, Member]) -> None:
        self._held.pop(reference.key, None)
