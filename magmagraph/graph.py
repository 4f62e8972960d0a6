"""Nodes, which users hold; graphs, which passes rewrite; and the trace between them.

A `Node` is immutable and made by calling an `Op`. User nodes are not interned: each keeps its own
line. `mg.function` freezes them into a `Graph`, whose nodes are interned: equal pure expressions
are one node, so that common subexpressions and dead code need no pass of their own.
"""

from __future__ import annotations

import functools
import itertools
import operator
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .dims import Constraint, Dim
from .errors import GraphError, message
from .op import _NODE, Effect, Kind, Line, Op
from .types import Extent, Shape, Type, TypeLike

if TYPE_CHECKING:
    from .ops.operators import Operators
else:  # ops/operators.py hangs them on Node, once the operations are there
    Operators = object


class Node(Operators):
    """A value of a symbolic graph: an operation applied to other nodes.

    Attributes
    ----------
    op, inputs, attrs
        The operation record, its operands, its keyword arguments (not to be changed).
    type
        A `Type`, or a tuple of them for operations with several results.
    name, line
        The user's name for it, and the user's source line that made it.
    constraints
        Equalities between extents that can be checked at the call only.
    """

    __slots__ = ("__weakref__", "attrs", "constraints", "inputs", "line", "name", "op", "type")

    __array_ufunc__ = None  # ndarray * node asks the node
    __array_priority__ = 1000

    op: Op
    inputs: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Any  # TypeLike; Any keeps rules readable: most operations have one result
    name: str | None
    line: Line | None
    constraints: tuple[Constraint, ...]

    def __init__(
        self,
        op: Op,
        inputs: tuple[Node, ...],
        attrs: Mapping[str, Any],
        type: TypeLike,
        name: str | None = None,
        line: Line | None = None,
        constraints: tuple[Constraint, ...] = (),
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.type = type
        self.name = name
        self.line = line
        self.constraints = constraints

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.type.dtype  # type: ignore[no-any-return]

    @property
    def shape(self) -> Shape:
        """The extents: ints, and `Dim` where named or anonymous."""
        return self.type.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> Extent:
        """Number of elements."""
        return self.type.size  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Node):
            return self is other
        raise TypeError(
            message(
                "== between nodes is identity (nodes are dictionary keys) and is not defined "
                f"against {type(other).__name__}",
                mend="mg.equal(a, b) compares values",
            )
        )

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = object.__hash__

    def _no_value(self, what: str, mend: str) -> NoReturn:
        raise TypeError(
            message(f"{what} of a node has no meaning: nothing has run yet", mend=mend)
        )

    def __bool__(self) -> bool:
        self._no_value("the truth value", "mg.where(condition, a, b), or node.eval() for the value")

    def __float__(self) -> float:
        self._no_value("float()", "node.eval() for the value")

    def __int__(self) -> int:
        self._no_value("int()", "node.eval() for the value")

    def __index__(self) -> int:
        self._no_value("an index made", "mg.take(x, node), or node.eval() for the value")

    def __complex__(self) -> complex:
        self._no_value("complex()", "node.eval() for the value")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value(
            "np.asarray()",
            "node.eval() for the value, or a function of magmagraph in NumPy's place",
        )

    def __repr__(self) -> str:
        label = f"'{self.name}' " if self.name else ""
        return f"<{self.op.name} {label}{self.type!r}>"

    def __copy__(self) -> Node:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unflatten, (_flatten(self),))


_NODE.append(Node)


class Key:
    """The identity of an input leaf, kept through pickling and freezing."""

    __slots__ = ("__weakref__", "name", "node", "serial")
    _serials = itertools.count()

    def __init__(self, name: str) -> None:
        self.name = name
        self.serial = next(Key._serials)
        self.node: weakref.ref[Node] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Key, (self.name,))


def topological(
    roots: Iterable[Node], stop: Callable[[Node], bool] | None = None
) -> list[Node]:
    """Return every node that the roots need, operands first, each once; no recursion.

    Nodes for which `stop` is true are listed but not entered.
    """
    order: list[Node] = []
    done: set[int] = set()
    stack: list[Node | None] = []
    pending: list[Node] = []
    for root in roots:
        if id(root) in done:
            continue
        stack.append(root)
        while stack:
            node = stack.pop()
            if node is None:
                finished = pending.pop()
                if id(finished) not in done:
                    done.add(id(finished))
                    order.append(finished)
                continue
            if id(node) in done:
                continue
            if not node.inputs or (stop is not None and stop(node)):
                done.add(id(node))
                order.append(node)
                continue
            stack.append(None)
            pending.append(node)
            for operand in reversed(node.inputs):
                if id(operand) not in done:
                    stack.append(operand)
    return order


def _flatten(root: Node) -> list[tuple[Any, ...]]:
    """Return the nodes below `root` as records that hold indexes, for pickling."""
    order = topological([root])
    number = {id(node): i for i, node in enumerate(order)}
    return [
        (
            type(node),
            node.op,
            tuple(number[id(i)] for i in node.inputs),
            dict(node.attrs),
            node.type,
            node.name,
            node.line,
            node.constraints,
        )
        for node in order
    ]


def _unflatten(records: list[tuple[Any, ...]]) -> Node:
    nodes: list[Node] = []
    for kind, op, inputs, attrs, type_, name, line, constraints in records:
        owner = attrs.get("key", attrs.get("state"))
        known = owner.node() if owner is not None and owner.node is not None else None
        if known is None:
            operands = tuple(nodes[i] for i in inputs)
            known = kind(op, operands, attrs, type_, name, line, constraints)
            if owner is not None:
                owner.node = weakref.ref(known)
        nodes.append(known)
    return nodes[-1]


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
        return ("array", array.dtype.name, array.shape, array.tobytes())
    if isinstance(value, np.dtype):
        return ("dtype", value.name)
    if isinstance(value, (Dim, Type)) or kind is slice:
        return (kind.__name__, value if kind is not slice else repr(value))
    if isinstance(value, Mapping):
        return (dict, tuple((k, attribute_key(v)) for k, v in sorted(value.items())))
    return ("object", id(value))  # states, keys, body graphs: their own identity


def structure(body: Graph) -> tuple[Any, ...]:
    """Return a hashable key that equal body graphs share: operations, attributes, types, edges."""
    number = {node: i for i, node in enumerate(body.nodes)}
    lines = tuple(
        (
            node.op,
            tuple([number[i] for i in node.inputs]),
            tuple([(k, attribute_key(v)) for k, v in node.attrs.items()]),
            node.type,
        )
        for node in body.nodes
    )
    return (lines, tuple([number[n] for n in body.outputs]))


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
        if id(node) in self._members and _same(node.inputs, inputs):
            return node
        attrs = node.attrs
        key = (
            node.op,
            tuple(map(id, inputs)),
            tuple((k, attribute_key(attrs[k])) for k in sorted(attrs)) if attrs else (),
        )
        member = self._table.get(key)
        if member is None:
            constraints = node.constraints
            if _same(node.inputs, inputs):
                result = node.type
            else:
                result, constraints = node.op.infer(inputs, attrs)
            member = type(node)(node.op, inputs, attrs, result, node.name, node.line, constraints)
            self._table[key] = member
            self._members.add(id(member))
        return member

    def apply(self, op: Op, *inputs: Node, **attrs: Any) -> Node:
        """Return the member that applies `op` to members `inputs`."""
        return self.intern(op(*inputs, **attrs))

    def intern(self, root: Node) -> Node:
        """Return the member equal to `root`; what lies below it is interned too."""
        if id(root) in self._members:
            return root
        return self.intern_all([root])[0]

    def intern_all(
        self,
        roots: Sequence[Node],
        seen: Callable[[Node, Node], None] | None = None,
        leaves: Mapping[Op, Node] | None = None,
    ) -> list[Node]:
        """Intern several roots.

        ``seen(node, member)`` is called for each node that was not a member; `leaves` gives
        members that stand for every leaf of an operation (the step counter of a function).
        """
        members = self._members
        result: dict[int, Node] = {}
        for node in topological(roots, stop=lambda n: id(n) in members):
            if id(node) in members:
                result[id(node)] = node
                continue
            if leaves is not None and node.op in leaves:
                member = leaves[node.op]
            else:
                member = self.make(node, tuple(result[id(i)] for i in node.inputs))
            result[id(node)] = member
            if seen is not None:
                seen(node, member)
        return [result[id(root)] for root in roots]


def _same(left: tuple[Node, ...], right: tuple[Node, ...]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


class Trace:
    """What became of what: graph nodes to the user's nodes, and the rules between.

    Attributes
    ----------
    sources
        Graph node -> the user's nodes that were frozen into it.
    made_by
        Graph node -> (pass name, rule name, the node it replaced), as first made.
    became
        Graph node -> [(pass name, rule name, replacement)].
    """

    def __init__(self) -> None:
        self.sources: dict[Node, list[Node]] = {}
        self.made_by: dict[Node, tuple[str, str, Node]] = {}
        self.became: dict[Node, list[tuple[str, str, Node]]] = {}

    def freeze(self, user: Node, member: Node) -> None:
        """Note that the user's node was frozen into `member`."""
        self.sources.setdefault(member, []).append(user)

    def replace(self, old: Node, new: Node, pass_name: str, rule: str) -> None:
        """Note that a pass put `new` in the place of `old`."""
        if new is old:
            return
        self.made_by.setdefault(new, (pass_name, rule, old))
        self.became.setdefault(old, []).append((pass_name, rule, new))

    def origins(self, node: Node) -> list[Node]:
        """Return the user's nodes that a graph node comes from (possibly none)."""
        seen: set[Node] = set()
        while node not in self.sources:
            step = self.made_by.get(node)
            if step is None or node in seen:
                return []
            seen.add(node)
            node = step[2]
        return self.sources[node]


@dataclass(frozen=True, eq=False)
class Graph:
    """A frozen program: what it takes, what it returns, which variables it renews.

    Attributes
    ----------
    inputs
        Input leaves in the caller's order (parameters, for a body graph).
    outputs
        Nodes whose values are returned.
    updates
        Pairs (variable, new value); all read the values of before the call.
    effects
        Ordered roots: taps, asserts, barriers.
    interner
        The maker of its nodes, shared by all graphs of one compile.
    order
        The schedule, once the schedule pass has chosen one; operands first.
    placement
        Decisions of the memory pass, None before it.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    updates: tuple[tuple[Node, Node], ...]
    interner: Interner
    effects: tuple[Node, ...] = ()
    order: tuple[Node, ...] | None = None
    placement: Any = None

    @property
    def roots(self) -> tuple[Node, ...]:
        """Everything that must be computed: effects, outputs, new values."""
        return (*self.effects, *self.outputs, *(value for _, value in self.updates))

    @functools.cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node once, operands first (the schedule where there is one)."""
        if self.order is not None:
            return self.order
        leaves = dict.fromkeys((*self.inputs, *(variable for variable, _ in self.updates)))
        return tuple(topological([*leaves, *self.roots]))

    @functools.cached_property
    def users(self) -> Mapping[Node, tuple[Node, ...]]:
        """For each node, the nodes that read it (each once; roots are not counted)."""
        users: dict[Node, dict[Node, None]] = {node: {} for node in self.nodes}
        for node in self.nodes:
            for operand in node.inputs:
                users[operand][node] = None
        return {node: tuple(readers) for node, readers in users.items()}

    @functools.cached_property
    def variables(self) -> tuple[Node, ...]:
        """The variable leaves, in order of first use."""
        return tuple(n for n in self.nodes if n.op.effect is Effect.STATE)

    @functools.cached_property
    def constraints(self) -> tuple[tuple[Constraint, Node], ...]:
        """Constraints on named extents with the node that made each, without repeats."""
        found: dict[Constraint, Node] = {}
        for node in self.nodes:
            for constraint in node.constraints:
                found.setdefault(constraint, node)
        return tuple(found.items())

    def replace(
        self,
        *,
        outputs: Sequence[Node] | None = None,
        updates: Sequence[tuple[Node, Node]] | None = None,
        effects: Sequence[Node] | None = None,
        order: Sequence[Node] | None = None,
        placement: Any = None,
    ) -> Graph:
        """Return this graph with some fields changed (itself where nothing differs)."""
        new_outputs = self.outputs if outputs is None else tuple(outputs)
        new_updates = self.updates if updates is None else tuple(updates)
        new_effects = self.effects if effects is None else tuple(effects)
        if (
            order is None
            and placement is None
            and _same(new_outputs, self.outputs)
            and _same(new_effects, self.effects)
            and _same(tuple(v for _, v in new_updates), tuple(v for _, v in self.updates))
        ):
            return self
        return Graph(
            self.inputs,
            new_outputs,
            new_updates,
            self.interner,
            new_effects,
            None if order is None else tuple(order),
            placement,
        )

    def substitute(
        self,
        mapping: Mapping[Node, Node],
        changed: Callable[[Node, Node], None] | None = None,
    ) -> Graph:
        """Return the graph with nodes replaced by members; what reads them is remade.

        Replacements are looked up once, not again inside replacements. ``changed(old, new)`` is
        called for each node that is remade.
        """
        if not mapping:
            return self
        make = self.interner.make
        result: dict[Node, Node] = {}
        for node in self.nodes:
            new = mapping.get(node)
            if new is None:
                new = make(node, tuple(result.get(i, i) for i in node.inputs))
                if changed is not None and new is not node:
                    changed(node, new)
            result[node] = new
        return self.replace(
            outputs=[result[n] for n in self.outputs],
            updates=[(variable, result[value]) for variable, value in self.updates],
            effects=[result[n] for n in self.effects],
        )

    def verify(self) -> None:
        """Raise `GraphError` unless every invariant of a frozen graph holds."""
        position = {node: i for i, node in enumerate(self.nodes)}
        for node, i in position.items():
            for operand in node.inputs:
                if position.get(operand, i) >= i:
                    raise GraphError(f"{node!r} is ordered before its operand {operand!r}")
            if node not in self.interner:
                raise GraphError(f"{node!r} is not a member of the graph's interner")
            if node.op.kind is not Kind.LEAF:
                result, _ = node.op.infer(node.inputs, node.attrs)
                if result != node.type:
                    raise GraphError(f"{node!r} has type {node.type}, but its rule gives {result}")
        if self.order is not None:
            for root in self.roots:
                if root not in position:
                    raise GraphError(f"the schedule lacks {root!r}")
        for variable, value in self.updates:
            if variable.type != value.type:
                raise GraphError(f"the update of {variable!r} has type {value.type}")
        if len({variable for variable, _ in self.updates}) != len(self.updates):
            raise GraphError("a variable is updated twice")

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def freeze(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    updates: Sequence[tuple[Node, Node]] = (),
    effects: Sequence[Node] = (),
    *,
    trace: Trace | None = None,
    interner: Interner | None = None,
    leaves: Mapping[Op, Node] | None = None,
) -> Graph:
    """Freeze user nodes into a graph with interned nodes.

    Parameters
    ----------
    inputs, outputs, updates, effects
        As in `Graph`, but the user's own nodes.
    trace
        Filled with the lines of every node, also of those that became one.
    leaves
        User nodes that stand for every leaf of an operation.
    """
    interner = Interner() if interner is None else interner
    stand_in = {op: interner.intern(node) for op, node in (leaves or {}).items()}
    roots = [*inputs, *effects, *outputs]
    for variable, value in updates:
        roots += [variable, value]
    members = interner.intern_all(roots, None if trace is None else trace.freeze, stand_in)
    at = iter(members)
    new_inputs = tuple(next(at) for _ in inputs)
    new_effects = tuple(next(at) for _ in effects)
    new_outputs = tuple(next(at) for _ in outputs)
    new_updates = tuple((next(at), next(at)) for _ in updates)
    return Graph(new_inputs, new_outputs, new_updates, interner, new_effects)
