"""`f.explain(node)`: the history of a node through every pass, down to the kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..errors import GraphError, message
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node
from ..ir.html import Displayed, table_html
from ..ir.identity import same_nodes
from ..ir.op import Kind, describe
from ..ir.plan import Place, Plan, Role
from .node_history import INSIDE, OPERANDS, Move, advance, maker, source_nodes

VERSION = 1  # of the JSON text


@dataclass(frozen=True)
class Stage:
    """The effect of one pass on the node.

    name: The pass.
    rules: The rules that replaced it, in order.
    text: What happened, in words.
    nodes: The nodes that compute it after the pass; empty once nothing does.
    """

    name: str
    rules: tuple[str, ...]
    text: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class KernelUse:
    """The step of the plan that computes the node.

    step: Its number.
    family: The kernel family: fused, gemm, gemv, scatter, copy or array.
    slot: Number of the slot that the result is written to.
    place: Where that slot lies.
    in_place: True where the result overwrites an operand.
    inside: True where the kernel computes the node on the way to its result.
    ways: How a product runs, and why, for each set of sizes that the function was called with.
    fallbacks: What runs in place of the family that is for the operation, and why; empty where that
        runs.
    """

    step: int
    family: str
    slot: int
    place: str
    in_place: bool
    inside: bool
    ways: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "computed inside" if self.inside else "computed by"
        where = f"into slot {self.slot} ({self.place})"
        article = "an" if self.family[0] in "aeiou" else "a"
        return (
            f"{how} step {self.step}, {article} {self.family} kernel, "
            + (f"which writes {where}" if self.inside else where)
            + (", in place of an operand" if self.in_place else "")
            + "".join(f"; {way}" for way in (*self.ways, *self.fallbacks))
        )


@dataclass
class Explanation(Displayed):
    """The history of a node through the passes.

    node: The node that was asked about.
    sources: The user's nodes that are one with it in the graph, each with a line of its own.
    stages: A stage for each pass that changed it, or that says why it did not.
    kernels: The steps that compute it.
    memory: Where its value lies, for one that no kernel computes: a feed, a variable, a constant.
    """

    node: Node
    sources: list[Node]
    stages: list[Stage] = field(default_factory=list)
    kernels: list[KernelUse] = field(default_factory=list)
    memory: str = ""

    @property
    def lines(self) -> list[str]:
        """The user's lines that made it."""
        return list(dict.fromkeys(str(node.line) for node in self.sources if node.line))

    @property
    def groups(self) -> list[str]:
        """The scopes, layers and functions that made it, such as ``dense/gelu``."""
        lines = [node.line for node in self.sources if node.line]
        return list(dict.fromkeys(line.scope for line in lines if line.scope))

    def text(self) -> str:
        """Return the explanation, a line for each thing that happened."""
        lines = [_label(self.node)]
        places = dict.fromkeys(node.line.place for node in self.sources if node.line)
        lines += [f"  {place}" for place in places]
        if len(self.sources) > 1:
            lines.append(f"  {len(self.sources)} equal expressions, computed once")
        lines += [f"  {stage.name}: {stage.text}" for stage in self.stages]
        lines += [f"  plan: {use}" for use in self.kernels]
        if self.memory:
            lines.append(f"  plan: {self.memory}")
        return "\n".join(lines)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the explanation as JSON text."""
        return json.dumps(
            {
                "version": VERSION,
                "node": _label(self.node),
                "lines": self.lines,
                "groups": self.groups,
                "stages": [
                    {
                        "pass": stage.name,
                        "rules": list(stage.rules),
                        "text": stage.text,
                        "nodes": [_label(node) for node in stage.nodes],
                    }
                    for stage in self.stages
                ],
                "kernels": [vars(use) for use in self.kernels],
                "memory": self.memory,
            },
            indent=indent,
        )

    def _html(self) -> str:
        places = dict.fromkeys(node.line.place for node in self.sources if node.line)
        rows = [("", _label(self.node)), *(("line", place) for place in places)]
        if len(self.sources) > 1:
            rows.append(("", f"{len(self.sources)} equal expressions, computed once"))
        rows += [(stage.name, stage.text) for stage in self.stages]
        rows += [("plan", str(use)) for use in self.kernels]
        if self.memory:
            rows.append(("plan", self.memory))
        return table_html(rows, left=(0, 1))

    def __str__(self) -> str:
        return self.text()


@documented
def explain(function: Any, node: Node) -> Explanation:
    """Return the history of a node of the user's program.

    function (Function): A compiled function.
    node: A node that its outputs or updates were built from.
    returns (Explanation):
    raises GraphError: The function does not compute it.

    >>> x = mg.input("x", shape=(3,))
    >>> y = mg.exp(x)
    >>> f = mg.function([x], y * 2.0)
    >>> f.explain(y).kernels[0].family
    'fused'
    """
    if not isinstance(node, Node):
        raise GraphError(message(f"explain is given {type(node).__name__}", need="a node"))
    member = source_nodes(function).get(node)
    if member is None:
        raise GraphError(
            message(
                f"the function does not compute {describe(node)}",
                need="a node that its outputs or updates depend on",
            )
        )
    function.compile()
    explanation = Explanation(node, list(function.trace.sources.get(member, [node])))
    here = _follow(function, member, explanation)
    if here:
        _locate(function, here, explanation)
    return explanation


def _label(node: Node) -> str:
    name = f" '{node.name}'" if node.name else ""
    return f"{node.op.name}{name} : {node.type}"


def _follow(function: Any, member: Node, explanation: Explanation) -> dict[Node, bool]:
    """Go through the passes; return the nodes of the last graph that compute the node."""
    here: dict[Node, bool] = {member: False}
    for name, before, after in function.report.steps():
        if not isinstance(after, Graph):
            continue
        explanation.stages += _refused(function, name, here)
        if after is before:
            continue
        nexts, steps = advance(function.trace, name, after, here)
        if not nexts:
            nexts = _absorbed(function, name, before, after, here, explanation)
            if not nexts:
                return {}
        elif not same_nodes(list(nexts), list(here)):
            explanation.stages.append(_replaced(name, here, nexts, steps))
        here = nexts
    return here


def _refused(function: Any, name: str, here: dict[Node, bool]) -> list[Stage]:
    """Return the rewrites that a pass refused, and why."""
    reasons = [
        (rule, why) for node in here for rule, why in function.report[name].reasons(node).items()
    ]
    return [
        Stage(name, (), f"{rule} refused: {why}", tuple(here))
        for rule, why in dict.fromkeys(reasons)
    ]


def _replaced(
    name: str, here: dict[Node, bool], nexts: dict[Node, bool], steps: list[Move]
) -> Stage:
    rules = tuple(dict.fromkeys(move.rule for move in steps))
    shown_rules = [rule for rule in rules if rule != OPERANDS] or list(rules)
    news = [node for node in nexts if node not in here] or list(nexts)
    shown = ", ".join(map(_label, news))
    old = next(iter(here))
    if all(node.op.kind is Kind.LEAF and "value" in node.attrs for node in news):
        text = f"folded into the constant {news[0].attrs['value']!s:.60} ({', '.join(shown_rules)})"
    elif shown_rules == [OPERANDS]:
        text = f"rebuilt with new operands: {shown}"
    elif all(nexts.values()) and INSIDE in rules:
        text = f"fused into {shown}, which does not store it"
    else:
        text = f"{_label(old)} became {shown} ({', '.join(shown_rules)})"
    return Stage(name, rules, text, tuple(nexts))


def _absorbed(
    function: Any,
    name: str,
    before: Graph,
    after: Graph,
    here: dict[Node, bool],
    explanation: Explanation,
) -> dict[Node, bool]:
    """Return what took in a node that is gone: the replacements of its nearest readers."""
    seen: set[Node] = set(here)
    pending = [node for node in here if node in before.users]
    stopped: dict[str, Node] = {}
    taken: dict[Node, bool] = {}
    while pending:
        node = pending.pop(0)
        for reader in before.users.get(node, ()):
            if reader in seen:
                continue
            seen.add(reader)
            nexts, steps = advance(function.trace, name, after, {reader: False})
            rules = [move.rule for move in steps if move.rule != OPERANDS]
            if rules and nexts:
                stopped[rules[-1]] = reader
                taken.update(nexts)
            elif not nexts:
                pending.append(reader)
    if not stopped:
        explanation.stages.append(Stage(name, (), "dropped: no longer used", ()))
        return {}
    rule_names = ", ".join(f"'{rule}'" for rule in stopped)
    where = _label(next(iter(stopped.values())))
    computing = {n: True for n in taken if n.op.kind is not Kind.LEAF}
    if computing:
        text = f"absorbed by {', '.join(map(_label, computing))} ({rule_names} at {where})"
    else:
        text = f"eliminated ({rule_names} at {where})"
    explanation.stages.append(Stage(name, tuple(stopped), text, tuple(computing)))
    return computing


def _locate(function: Any, here: dict[Node, bool], explanation: Explanation) -> None:
    """Add the steps that compute the nodes, or the slots of their values."""
    plan: Plan = function.plan
    # What ends sums computes what the launch before it has begun, which is named.
    left_out = (Role.COPY, Role.ENDING)
    steps: dict[Node, list[int]] = {}
    for i, step in enumerate(plan.steps):
        for computed in step.computed if step.role not in left_out else ():
            steps.setdefault(computed, []).append(i)
    for node, inside in here.items():
        producer, index = maker(node)
        if producer in steps:
            numbers = steps[producer]
            number = next((i for i in numbers if plan.steps[i].makes(producer, index)), numbers[0])
            step = plan.steps[number]
            value = step.makes(producer, index) or step.outputs[0]
            explanation.kernels.append(
                KernelUse(
                    step=number,
                    family=step.kernel,
                    slot=value.slot,
                    place=plan.slots[value.slot].place.value,
                    in_place=value.slot in {v.slot for v in step.inputs},
                    inside=inside,
                    ways=_ways(function, number),
                    fallbacks=tuple(
                        str(row) for row in function.report.fallbacks if row.node is producer
                    ),
                )
            )
        elif producer.op.kind is Kind.LEAF:
            explanation.memory = _leaf_memory(plan, producer)


def _ways(function: Any, number: int) -> tuple[str, ...]:
    """Return how a step runs for the sizes that are bound, where there was a choice."""
    said = []
    for bound in function.bounds:
        way = getattr(bound, "ways", {}).get(number)
        if way is not None:
            sizes = bound.plan.sizes or {}
            named = ", ".join(f"{name}={size}" for name, size in sizes.items())
            said.append(f"{way}{f' for {named}' if named else ''}")
    return tuple(dict.fromkeys(said))


def _leaf_memory(plan: Plan, node: Node) -> str:
    owners = {
        Place.FEED: node.attrs.get("key"),
        Place.STATE: node.attrs.get("state"),
        Place.CONSTANT: node,
    }
    for slot in plan.slots:
        if slot.place in owners and owners[slot.place] is slot.owner:
            return f"read from slot {slot.index} ({slot.place.value})"
    return "a constant that kernels have written into them"
