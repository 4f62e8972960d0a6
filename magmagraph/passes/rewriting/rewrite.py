"""Local rewriting: rules, and the driver that applies them until none applies.

The driver walks a graph once from the leaves, brings each node to its normal form, and enters what
a replacement adds. It repeats such sweeps until one changes nothing, so that a pass made of rules
is idempotent: applied to its own result, it returns that very graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...dtypes import is_complex
from ...errors import PassError, message
from ...ir.graph import Graph, Node, Trace
from ...ir.identity import is_among
from ...ir.locking import cached_property
from ...ir.op import Op, describe
from ...ir.records import record
from ..pipeline import Options
from ..report import Record
from .pattern import Application, Bindings, Pattern

REWRITES_PER_NODE = 40  # of the graph that a pass receives; no useful rule set comes near
REWRITES_AT_LEAST = 1_000
SWEEPS = 25


class Match:
    """A place where a rule matches.

    Attributes
    ----------
    root
        The node that would be replaced.
    options
        The pipeline's options.

    The nodes and attributes that the pattern names are attributes too: ``m.x``.
    """

    __slots__ = ("_bound", "_rewriter", "options", "repairs", "root")

    def __init__(self, root: Node, bound: Bindings, rewriter: Rewriter) -> None:
        self.root = root
        self._bound = bound
        self._rewriter = rewriter
        self.options = rewriter.options
        self.repairs: list[str] = []

    def __getattr__(self, name: str) -> Any:
        try:
            return self._bound[name]
        except KeyError:
            raise AttributeError(f"the pattern names no {name!r}") from None

    def reads(self, node: Node) -> int:
        """Return how many nodes and roots read `node`."""
        return self._rewriter.reads.get(node, 1)

    def readers(self, node: Node) -> tuple[Node, ...] | None:
        """Return the nodes that read `node` where this sweep began; None where it is a root."""
        graph = self._rewriter.graph
        node = self._rewriter.origins.get(node, node)
        if is_among(node, graph.roots):
            return None
        return graph.users.get(node, ())

    def intern(self, node: Node) -> Node:
        """Return the graph's own node for an expression, which can be compared by identity."""
        return self._rewriter.graph.interner.intern(node)

    def is_complex(self) -> bool:
        """Return whether the place has to do with complex numbers."""
        bound = (value for value in self._bound.values() if isinstance(value, Node))
        return any(has_complex(node) for node in (self.root, *self.root.inputs, *bound))

    def repair(self, text: str) -> None:
        """Note, if the rule applies, that it replaces a non-finite value by its limit."""
        self.repairs.append(text)


def has_complex(node: Node) -> bool:
    """Return whether a node's value, or one of its results, is complex."""
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    return any(is_complex(type_.dtype) for type_ in types)


Check = Callable[[Match], str | None]
Replacement = Callable[[Match], Node | None]


@record(frozen=True)
class Rule:
    """A local rewriting.

    Attributes
    ----------
    name
        As reports show it.
    pattern
        What is replaced: a `Pattern`, or the operations whose nodes `replacement` looks at itself.
    replacement
        ``replacement(match)`` gives the new node, written with ordinary operations and of the
        matched type, or None where the place does not fit after all.
    check
        ``check(match)`` gives the reason to refuse, or None. A refusal is reported.
    looks
        A quick test of the node that spares most nodes the rest.
    complex
        Whether it holds for complex numbers too. The others are refused where the matched node, an
        operand of it, or what a wildcard stands for is complex.
    """

    name: str
    pattern: Pattern | tuple[Op, ...]
    replacement: Replacement
    check: Check | None = None
    looks: Callable[[Node], bool] | None = None
    complex: bool = False

    @cached_property
    def needed(self) -> frozenset[Op]:
        """The operations that the operands of a match have for certain."""
        operations = (
            self.pattern.operand_operations if isinstance(self.pattern, Application) else ()
        )
        return frozenset(operations)

    @cached_property
    def possible(self) -> Callable[[Node], bool]:
        """A look at a node and its operands, which is False where it rules the rule out."""
        if self.looks is not None:
            return self.looks
        return self.pattern.possible if isinstance(self.pattern, Pattern) else _always


def _always(node: Node) -> bool:
    return True


def rules_by_operation(rules: Sequence[Rule]) -> dict[Op, list[Rule]]:
    """Return for each operation the rules whose root it can be, in their order."""
    table: dict[Op, list[Rule]] = {}
    for rule in rules:
        if isinstance(rule.pattern, tuple):
            roots = rule.pattern
        else:
            assert isinstance(rule.pattern, Application), "a rule's root is an operation"
            roots = (rule.pattern.op,)
        for op in roots:
            table.setdefault(op, []).append(rule)
    return table


def rewrite(
    graph: Graph,
    rules: Mapping[Op, Sequence[Rule]],
    trace: Trace,
    options: Options,
    name: str,
    everywhere: Sequence[Rule] = (),
) -> Graph:
    """Apply rules until none applies; returns the same graph where none did.

    Parameters
    ----------
    rules
        By the operation of their root; see `rules_by_operation`.
    name
        The pass, for the trace and for errors.
    everywhere
        Rules that look at every node, after those of its operation.

    Raises
    ------
    PassError
        Where the rules do not come to an end, or a replacement has another type; the text names
        the rule and the node.
    """
    budget = REWRITES_AT_LEAST + REWRITES_PER_NODE * len(graph)
    for _ in range(SWEEPS):
        sweep = Rewriter(graph, rules, everywhere, trace, options, name, budget)
        result = sweep.run()
        if result is graph:
            return graph
        budget = sweep.budget
        graph = result
    rule, node = sweep.last
    raise PassError(
        message(
            f"{name}: still rewriting after {SWEEPS} sweeps, last by the rule '{rule}' "
            f"at {describe(node)}"
        )
    )


def _any_complex(graph: Graph) -> bool:
    """Return whether a graph has to do with complex numbers anywhere."""
    seen = {id(node.type): node for node in graph.nodes}  # nodes share few types
    return any(map(has_complex, seen.values()))


class _Frame:
    """A node on its way to its normal form, and what it was before."""

    __slots__ = ("known", "node", "position")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.known = [node]
        self.position = 0  # operands before this one have their normal form


class Rewriter:
    """One sweep over a graph."""

    def __init__(
        self,
        graph: Graph,
        rules: Mapping[Op, Sequence[Rule]],
        everywhere: Sequence[Rule],
        trace: Trace,
        options: Options,
        name: str,
        budget: int,
    ) -> None:
        self.graph = graph
        self.rules = rules
        self.everywhere = tuple(everywhere)
        self.trace = trace
        self.options = options
        self.record: Record = options.record
        self.name = name
        self.budget = budget
        self.last: tuple[str, Node] = ("", graph.nodes[0]) if graph.nodes else ("", None)  # type: ignore[assignment]
        self.normal: dict[Node, Node] = {}
        self.origins: dict[Node, Node] = {}  # what stood where a node is: of the graph at first
        self._active: set[Node] = set()
        self._any_complex = graph.analysis(_any_complex)
        reads: dict[Node, int] = {}
        for node in graph.nodes:
            inputs = node.inputs
            for operand in inputs if len(inputs) < 2 else dict.fromkeys(inputs):
                reads[operand] = reads.get(operand, 0) + 1
        for root in graph.roots:
            reads[root] = reads.get(root, 0) + 1
        self.reads = reads

    def run(self) -> Graph:
        """Return the graph with every node in its normal form."""
        normal = self.normal
        for node in self.graph.nodes:
            if node in normal:
                continue
            # Most nodes stay as they are: this way around spares them a frame.
            for operand in node.inputs:
                if normal[operand] is not operand:
                    self._normalize(node)
                    break
            else:
                replacement = self._apply(node)
                if replacement is None:
                    normal[node] = node
                else:
                    self._normalize(node, replacement)
        graph = self.graph
        return graph.replace(
            outputs=[normal[n] for n in graph.outputs],
            updates=[(variable, normal[value]) for variable, value in graph.updates],
            effects=[normal[n] for n in graph.effects],
        )

    def _normalize(self, root: Node, replacement: Node | None = None) -> None:
        """Bring a node to its normal form; its first replacement may be known already."""
        normal, active = self.normal, self._active
        frames = [_Frame(root)]
        active.add(root)
        if replacement is not None:
            self._move(frames[0], replacement)
        while frames:
            frame = frames[-1]
            node = frame.node
            done = normal.get(node)
            if done is not None:
                self._settle(frame, done)
                frames.pop()
                continue
            inputs = node.inputs
            position = frame.position
            while position < len(inputs) and inputs[position] in normal:
                position += 1
            frame.position = position
            if position < len(inputs):
                self._enter(inputs[position])
                frames.append(_Frame(inputs[position]))
                continue
            if inputs:
                rebuilt = self.graph.interner.make(node, tuple([normal[i] for i in inputs]))
                if rebuilt is not node:
                    self.trace.replace(node, rebuilt, self.name, "operands")
                    self._move(frame, rebuilt)
                    continue
            replacement = self._apply(node)
            if replacement is not None:
                self._move(frame, replacement)
                continue
            self._settle(frame, node)
            frames.pop()

    def _enter(self, node: Node) -> None:
        if node in self._active:
            rule, at = self.last
            raise PassError(
                message(
                    f"{self.name}: the rule '{rule}' at {describe(at)} does not come to an end: "
                    f"it leads back to {describe(node)}"
                )
            )
        self._active.add(node)

    def _move(self, frame: _Frame, node: Node) -> None:
        """Go on with another node in the same frame; one that is known ends it at once."""
        if node not in self.normal:
            self._enter(node)
            frame.known.append(node)
            self.origins.setdefault(node, frame.known[0])
        frame.node = node
        frame.position = 0

    def _settle(self, frame: _Frame, done: Node) -> None:
        reads = self.reads
        for node in frame.known:
            self._active.discard(node)
            self.normal[node] = done
            if node is not done and node in reads:
                reads[done] = reads.get(done, 0) + reads[node]
        self.normal[done] = done

    def _apply(self, node: Node) -> Node | None:
        rules = self.rules.get(node.op)
        if rules:
            present = {operand.op for operand in node.inputs}
            for rule in rules:
                if rule.needed <= present and rule.possible(node):
                    result = self._try(rule, node)
                    if result is not None:
                        return result
        for rule in self.everywhere:
            if rule.possible(node):
                result = self._try(rule, node)
                if result is not None:
                    return result
        return None

    def _try(self, rule: Rule, node: Node) -> Node | None:
        pattern = rule.pattern
        if isinstance(pattern, tuple):
            return self._at(rule, Match(node, {}, self))
        for bound in pattern.match(node, {}):
            result = self._at(rule, Match(node, bound, self))
            if result is not None:
                return result
        return None

    def _at(self, rule: Rule, match: Match) -> Node | None:
        node = match.root
        if self._any_complex and not rule.complex and match.is_complex():
            self.record.refuse(rule.name, node, "the rule holds for real numbers only")
            return None
        if rule.check is not None:
            reason = rule.check(match)
            if reason is not None:
                self.record.refuse(rule.name, node, reason)
                return None
        new_node = rule.replacement(match)
        if new_node is None:
            return None
        if new_node.type != node.type:
            raise PassError(
                message(
                    f"{self.name}: the rule '{rule.name}' gives {new_node.type} "
                    f"for {describe(node)}",
                    need="the type of what is replaced",
                )
            )
        member = self._intern(new_node, rule, node)
        if member is node:
            return None
        self.budget -= 1
        self.last = (rule.name, node)
        if self.budget < 0:
            raise PassError(
                message(
                    f"{self.name}: the budget of rewrites is used up, last by the rule "
                    f"'{rule.name}' at {describe(node)}"
                )
            )
        self.record.hit(rule.name)
        for text in match.repairs:
            self.record.repair(rule.name, node, text)
        self.trace.replace(node, member, self.name, rule.name)
        return member

    def _intern(self, new_node: Node, rule: Rule, node: Node) -> Node:
        made_by = self.trace.made_by
        sources = self.trace.sources

        def seen(_: Node, member: Node) -> None:
            if member not in sources and member not in made_by:
                made_by[member] = (self.name, rule.name, node)
                member.line = node.line  # the user's, not that of the call that compiles

        return self.graph.interner.intern_all([new_node], seen)[0]
