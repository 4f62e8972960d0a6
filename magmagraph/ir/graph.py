"""Graphs, which passes rewrite, and the trace that leads from them back to the user's nodes.

`mg.function` freezes user nodes into a `Graph`, whose nodes are interned: equal pure expressions
are one node, so that common subexpressions and dead code need no pass of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, TypeVarTuple

from ..errors import GraphError, message
from .attributes import Body
from .collection import collection_paused
from .dims import Constraint
from .identity import same_nodes
from .interning import Interner, attribute_key
from .locking import cached_property
from .op import Effect, Key, Kind, Node, Op, flatten, topological, unflatten
from .records import record

__all__ = [
    "Graph",
    "Interner",
    "Key",
    "Node",
    "Trace",
    "attribute_key",
    "freeze",
    "operations",
    "structure",
    "topological",
]

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Trace:
    """What became of what: graph nodes to the user's nodes, and the rules between.

    sources: Graph node -> the user's nodes that were frozen into it.
    made_by: Graph node -> (pass name, rule name, the node it replaced), as first made.
    became: Graph node -> [(pass name, rule name, replacement)].
    """

    def __init__(self) -> None:
        self.sources: dict[Node, list[Node]] = {}
        self.made_by: dict[Node, tuple[str, str, Node]] = {}
        self.became: dict[Node, list[tuple[str, str, Node]]] = {}

    def copy(self) -> Trace:
        """Return a trace that what is added later to this one is not in."""
        other = Trace()
        other.sources = {node: [*users] for node, users in self.sources.items()}
        other.made_by = dict(self.made_by)
        other.became = {node: [*steps] for node, steps in self.became.items()}
        return other

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


@record(frozen=True, eq=False)
class Graph(Body):
    """A frozen program: its inputs, its outputs, and the variables that it updates.

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

    def analysis(
        self, function: Callable[[Graph, *Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return ``function(graph, *arguments)``, computed once as long as the graph lives.

        The function must depend on nothing else, and its result should not hold the graph: two
        that hold each other outlive all that uses them.

        Examples
        --------
        >>> from magmagraph.ir.op import Kind
        >>> def count(graph: Graph, kind: Kind) -> int:
        ...     return sum(node.op.kind is kind for node in graph.nodes)
        >>> import magmagraph as mg
        >>> x = mg.input("x")
        >>> freeze([x], [mg.exp(x) + 1.0]).analysis(count, Kind.ELEMENTWISE)
        2
        """
        key = (function, *arguments)
        results = self.analyses
        try:
            cached = key in results
        except TypeError as error:
            raise GraphError(
                message(f"an analysis is kept by its arguments: {error}", need="hashable arguments")
            ) from None
        if not cached:
            results[key] = function(self, *arguments)
        result: Result = results[key]
        return result

    @cached_property
    def analyses(self) -> dict[tuple[Any, ...], Any]:
        """The results of `analysis`, by function and arguments."""
        return {}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node once, operands first (the schedule where there is one)."""
        if self.order is not None:
            return self.order
        leaves = dict.fromkeys((*self.inputs, *(variable for variable, _ in self.updates)))
        return tuple(topological([*leaves, *self.roots]))

    @cached_property
    def users(self) -> Mapping[Node, tuple[Node, ...]]:
        """For each node, the nodes that read it (each once; roots are not counted)."""
        users: dict[Node, dict[Node, None]] = {node: {} for node in self.nodes}
        for node in self.nodes:
            for operand in node.inputs:
                users[operand][node] = None
        return {node: tuple(readers) for node, readers in users.items()}

    @cached_property
    def variables(self) -> tuple[Node, ...]:
        """The variable leaves, in order of first use."""
        return tuple(n for n in self.nodes if n.op.effect is Effect.STATE)

    @cached_property
    def constraints(self) -> tuple[tuple[Constraint, Node], ...]:
        """Constraints on named extents with the node that made each, without repeats."""
        first_nodes: dict[Constraint, Node] = {}
        for node in self.nodes:
            for constraint in node.constraints:
                first_nodes.setdefault(constraint, node)
        return tuple(first_nodes.items())

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
            and same_nodes(new_outputs, self.outputs)
            and same_nodes(new_effects, self.effects)
            and same_nodes(tuple(v for _, v in new_updates), tuple(v for _, v in self.updates))
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
        """Return the graph with nodes replaced by members, and their readers rebuilt.

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
            node.op.check_attributes(node.attrs)
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a graph without decisions of passes: a body, say. Its nodes stay shared."""
        if self.order is not None or self.placement is not None:
            raise GraphError(message("a scheduled graph is not pickled", hint="pickle its source"))
        sides = (self.inputs, self.outputs, self.effects)
        variables = [node for pair in self.updates for node in pair]
        parts = flatten([node for side in (*sides, variables) for node in side])
        return _graph_again, (tuple(map(len, sides)), *parts)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def _graph_again(counts: tuple[int, ...], *parts: Any) -> Graph:
    nodes = iter(unflatten(*parts))
    inputs, outputs, effects = ([next(nodes) for _ in range(count)] for count in counts)
    rest = list(nodes)
    return freeze(inputs, outputs, list(zip(rest[::2], rest[1::2], strict=True)), effects)


@collection_paused()
def freeze(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    updates: Sequence[tuple[Node, Node]] = (),
    effects: Sequence[Node] = (),
    *,
    trace: Trace | None = None,
    leaves: Mapping[Op, Node] | None = None,
    observed: bool = False,
) -> Graph:
    """Freeze user nodes into a graph with interned nodes.

    inputs, outputs, updates, effects: As in `Graph`, but the user's own nodes.
    trace: Filled with the lines of every node, also of those that became one.
    leaves: User nodes that stand for every leaf of an operation.
    observed: Whether taps and asserts become effects, in the order in which they were written,
        instead of identities in the flow of data.
    """
    interner = Interner()
    stand_in = {op: interner.intern(node) for op, node in (leaves or {}).items()}
    roots = [*inputs, *effects, *outputs]
    for variable, value in updates:
        roots += [variable, value]
    observers: list[Node] | None = [] if observed else None
    members = interner.intern_all(
        roots, None if trace is None else trace.freeze, stand_in, observers
    )
    at = iter(members)
    new_inputs = tuple(next(at) for _ in inputs)
    new_effects = tuple(next(at) for _ in effects)
    if observers:
        observers.sort(key=lambda node: int(node.attrs["uid"]))
        new_effects = tuple(dict.fromkeys((*new_effects, *observers)))
    new_outputs = tuple(next(at) for _ in outputs)
    new_updates = tuple((next(at), next(at)) for _ in updates)
    return Graph(new_inputs, new_outputs, new_updates, interner, new_effects)


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


def operations(node: Node) -> tuple[str, ...]:
    """Return the operation of a node, or those inside of its bodies, each once."""
    value = node.attrs.get("bodies", (node.attrs.get("body"),))
    bodies = [body for body in value if isinstance(body, Graph)] if value else []
    if not bodies:
        return (node.op.name,)
    inner = [n.op.name for body in bodies for n in body.nodes if n.op.kind is not Kind.LEAF]
    return tuple(dict.fromkeys(inner))
