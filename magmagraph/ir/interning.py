"""Interning: equal pure expressions of a graph are one node.

Two expressions are equal where operation, operands and attributes are, attributes by type and
exact bits: 0.0 is not -0.0, True is not 1, and nan is nan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .dims import Dim
from .identity import same_nodes
from .op import Effect, Node, Op, topological
from .types import Type


def attribute_key(value: Any) -> Any:
    """Return a hashable key that tells attribute values apart by type and exact bits."""
    kind = type(value)
    if kind is int or kind is str or value is None or kind is bool:
        return (kind, value)
    if kind is float:
        return (kind, struct.pack("<d", value))
    if kind is tuple or kind is list:
        return (tuple, tuple(map(attribute_key, value)))
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return ("array", array.dtype, array.shape, array.tobytes())
    if isinstance(value, np.dtype):
        return ("dtype", value)  # whose name takes longer to make than all else here
    if isinstance(value, (Dim, Type)) or kind is slice:
        return (kind.__name__, value if kind is not slice else repr(value))
    if isinstance(value, Mapping):
        return (dict, tuple((k, attribute_key(v)) for k, v in sorted(value.items())))
    return ("object", id(value))  # states, keys, body graphs: their own identity


def _key(node: Node, inputs: tuple[Node, ...]) -> tuple[Any, ...]:
    """Return what equal expressions share: operation, operands (members) and attributes."""
    attrs = node.attrs
    attributes = tuple([(k, attribute_key(attrs[k])) for k in sorted(attrs)]) if attrs else ()
    return node.op, tuple(map(id, inputs)), attributes


class Interner:
    """Makes the nodes of graphs: equal pure expressions are one node.

    One interner serves one compile, through all its passes, so that "nothing changed" is
    seen by identity.
    """

    __slots__ = ("_members", "_table")

    def __init__(self) -> None:
        self._table: dict[Any, Node] = {}
        self._members: set[int] = set()

    def __contains__(self, node: Node) -> bool:
        return id(node) in self._members

    def __len__(self) -> int:
        return len(self._table)

    def make(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """Return the member that applies `node`'s operation to `inputs` (members)."""
        if id(node) in self._members and same_nodes(node.inputs, inputs):
            return node
        key = _key(node, inputs)
        member = self._table.get(key)
        if member is None:
            result, constraints = node.type, node.constraints
            if not _same_types(node.inputs, inputs):
                result, constraints = node.op.infer(inputs, node.attrs)
            member = type(node)(
                node.op, inputs, node.attrs, result, node.name, node.line, constraints
            )
            self._table[key] = member
            self._members.add(id(member))
        return member

    def adopt(self, nodes: Iterable[Node]) -> None:
        """Take nodes as members, operands first: expressions that all differ from each other."""
        for node in nodes:
            self._table[_key(node, node.inputs)] = node
            self._members.add(id(node))

    def apply(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        """Return the member that applies `op` to members `inputs`."""
        return self.intern(op(*inputs, **attrs))

    def _observer(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """Return the member that does what an ordered node does, and passes nothing on."""
        attrs = {**node.attrs, "passes": False}
        type_, _ = node.op.infer(inputs, attrs)
        return self.make(type(node)(node.op, inputs, attrs, type_, node.name, node.line), inputs)

    def intern(self, root: Node) -> Node:
        """Return the member equal to `root`, and intern its operands too."""
        if id(root) in self._members:
            return root
        return self.intern_all([root])[0]

    def intern_all(
        self,
        roots: Sequence[Node],
        seen: Callable[[Node, Node], None] | None = None,
        leaves: Mapping[Op, Node] | None = None,
        effects: list[Node] | None = None,
    ) -> list[Node]:
        """Intern several roots.

        ``seen(node, member)`` is called for each node that was not a member; `leaves` gives
        members that stand for every leaf of an operation (the step counter of a function). Where
        `effects` is given, nodes whose effect is ordered pass their first operand on, and what
        they do is added there.
        """
        members = self._members
        result: dict[int, Node] = {}
        for node in topological(roots, stop=lambda n: id(n) in members):
            if id(node) in members:
                result[id(node)] = node
                continue
            if leaves is not None and node.op in leaves:
                member = leaves[node.op]
            elif node.op.layout.fades and node.inputs:
                member = result[id(node.inputs[0])]
            elif (
                effects is not None
                and node.op.effect is Effect.ORDERED
                and node.attrs["passes"]
            ):
                member = self._observer(node, tuple(result[id(i)] for i in node.inputs))
                effects.append(member)
                result[id(node)] = member.inputs[0]
                if seen is not None:
                    seen(node, member)
                continue
            else:
                member = self.make(node, tuple(result[id(i)] for i in node.inputs))
            result[id(node)] = member
            if seen is not None:
                seen(node, member)
        return [result[id(root)] for root in roots]


def _same_types(left: tuple[Node, ...], right: tuple[Node, ...]) -> bool:
    """Return whether a shape rule, which sees types and attributes only, would say the same."""
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if a is not b and a.type is not b.type and a.type != b.type:
            return False
    return True
