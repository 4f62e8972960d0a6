"""`f.check(*feeds)`: how far each pass and the run move the results, and who is to blame.

The reference is the source graph in float64; the baseline is what rounding in its own dtypes does
to each of its values. Decisions (comparisons, argmax, rounding, random bits) are those of the
baseline throughout, where a graph still has a node for them: a decision at a tie says nothing
about an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dtypes import Numerics, is_inexact, tolerance
from ...ir.graph import Graph, Node, Trace, topological
from ...ir.html import Displayed, preformatted, table_html
from ...ir.interpret import evaluate
from ...ir.op import describe
from ...ir.plan import Plan
from ...ops.control.identities import is_scaling_state
from ...ops.control.observing import muted
from ..node_history import OPERANDS
from ..values import stand_in
from .difference import difference, is_finite, widest
from .noise import rounding
from .running import Feeds, bind, run_once
from .wide import evaluate_wide, is_decision, widened

VERSION = 1  # of the JSON text
BASELINE = "source"
RUN = "run"
_MARGIN = 4.0  # multiples of the baseline's own error that rounding in another order may reach
_SHOWN = 5  # products whose errors are listed
_FLIPS = 0.01  # share of decisions that rounding may turn over at ties
_ORDER: tuple[Numerics, ...] = ("exact", "stable", "reassoc", "half")


@dataclass(frozen=True)
class Measure:
    """The error of one graph, or of the run.

    name: The pass, "source" or "run".
    error: The largest of all results and updates, relative to the reference's largest magnitude.
    allowed: What rounding explains there.
    where: The result or variable that has it.
    """

    name: str
    error: float
    allowed: float
    where: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "error": plain(self.error),
            "allowed": plain(self.allowed),
            "where": self.where,
        }


@dataclass(frozen=True)
class Blame:
    """Who made an error larger than rounding explains.

    name: The pass, or "run".
    rule: The rule of the pass (of the run: the kernel family).
    node: The first node whose value is wrong.
    sources: The user's nodes that it comes from.
    increase: How much larger the error is than before the pass.
    """

    name: str
    rule: str
    node: Node
    sources: tuple[Node, ...]
    increase: float

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "rule": self.rule,
            "node": describe(self.node),
            "sources": [describe(node) for node in self.sources],
            "increase": plain(self.increase),
            "text": str(self),
        }

    def __str__(self) -> str:
        sources = "; ".join(describe(node) for node in self.sources)
        origin = f"\n  it comes from {sources}" if sources else ""
        return (
            f"{self.name} is to blame: the rule '{self.rule}' made {describe(self.node)}, "
            f"an increase of {self.increase:.3g}{origin}"
        )


@dataclass
class Check(Displayed):
    """What `f.check` found.

    measures: One for the source graph, each pass that changed the graph, and the run.
    blame: Who made the first error that is larger than rounding explains, or None.
    repairs: Values that were not finite and are replaced by their continuous limit.
    not_finite: The first node of the source graph that makes a value that is not finite of finite
        operands, or None.
    notes: What could not be compared, and why.
    node_errors: For each float node of the source graph, how far rounding moves its value.
    pass_errors: For each pass, the error of each node that it made in the place of one of the
        source graph.
    """

    measures: list[Measure] = field(default_factory=list)
    blame: Blame | None = None
    repairs: list[str] = field(default_factory=list)
    not_finite: Node | None = None
    notes: list[str] = field(default_factory=list)
    node_errors: dict[Node, float] = field(default_factory=dict, repr=False)
    pass_errors: dict[str, dict[Node, float]] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether rounding explains every error."""
        return self.blame is None

    @property
    def errors(self) -> dict[str, float]:
        """The largest error of each pass by its name; that of "source" is the baseline."""
        return {measure.name: measure.error for measure in self.measures}

    def to_json(self, indent: int | None = 2) -> str:
        """Return the findings as JSON text; infinite errors are the string "inf"."""
        return json.dumps(
            {
                "version": VERSION,
                "ok": self.ok,
                "measures": [measure.as_dict() for measure in self.measures],
                "blame": None if self.blame is None else self.blame.as_dict(),
                "repairs": self.repairs,
                "not_finite": None if self.not_finite is None else describe(self.not_finite),
                "notes": self.notes,
            },
            indent=indent,
        )

    def _html(self) -> str:
        rows = [("pass", "error", "allowed", "where")]
        rows += [(m.name, f"{m.error:.2e}", f"{m.allowed:.2e}", m.where) for m in self.measures]
        return table_html(rows, left=(0, 3)) + preformatted("\n".join(self._remarks()))

    def _remarks(self) -> list[str]:
        """Return what the table does not say, the verdict last."""
        lines = [f"repair: {text}" for text in self.repairs]
        if self.not_finite is not None:
            lines.append(f"not finite from finite operands: {describe(self.not_finite)}")
        lines += self.notes
        return [*lines, "ok" if self.blame is None else str(self.blame)]

    def __str__(self) -> str:
        width = max(len("pass"), *(len(m.name) for m in self.measures))
        lines = [f"{'pass':<{width}}  {'error':>9}  {'allowed':>9}  where"]
        for m in self.measures:
            lines.append(f"{m.name:<{width}}  {m.error:9.2e}  {m.allowed:9.2e}  {m.where}".rstrip())
        return "\n".join([*lines, *self._remarks()])


def check(function: Any, *feeds: Any, **named: Any) -> Check:
    """Compare every graph of the compile, and the run, with the source graph in float64.

    function (Function): Compiled, if it is not yet.
    feeds, named: As for a call. Variables keep what they hold.
    returns (Check): ``ok``, ``errors`` (pass -> largest error, relative to the largest magnitude of
        the result), ``blame``, ``repairs``; it prints as a table.
    raises FeedError: As a call would.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> f = mg.function([x], mg.sum(mg.exp(x)))
    >>> f.check([1.0, 2.0, 3.0]).ok
    True
    """
    bound = bind(function, feeds, named)
    with function._lock, muted():
        return _Checker(function, bound).run()


def plain(error: float) -> float | str:
    """Return an error as JSON has it, which has no infinity."""
    return error if np.isfinite(error) else "inf"


class _Checker:
    """One comparison in the making."""

    def __init__(self, function: Any, feeds: Feeds) -> None:
        self.function = function
        self.feeds = feeds
        self.trace: Trace = function.trace
        self.source: Graph = function.source_graph
        self.roots = _roots(self.source)
        self.labels = _labels(self.source)
        self.result = Check()
        self.own = self._evaluate(self.source, {})
        fed = _fed(self.source, feeds.arrays)
        self.wide = evaluate_wide(self.source, fed, feeds.sizes, self.own)
        self.noise = rounding(self.source, fed, feeds.sizes, self.own, self.wide)
        self.result.node_errors = self.noise
        self.references = [self.wide[root] for root in self.roots]
        self.dtypes = [root.dtype for root in self.roots]
        self.baseline = [self.noise.get(root, 0.0) for root in self.roots]
        self.numerics: dict[str, Numerics] = {p.name: p.numerics for p in function.passes}
        # A pass counts in these: the source graph has no values to compare them with.
        updates = enumerate(self.source.updates, len(self.source.outputs))
        self.counters = {i for i, (_, value) in updates if is_scaling_state(value)}

    def _evaluate(self, graph: Graph, override: Mapping[Node, Any]) -> dict[Node, Any]:
        fed = _fed(graph, self.feeds.arrays)
        return evaluate(graph, fed, self.feeds.sizes, override=override)

    def run(self) -> Check:
        """Return the findings."""
        self._first_not_finite()
        before = [self.own[root] for root in self.roots]
        self._measure(BASELINE, before, "exact")
        standing: dict[Node, Node] = {node: node for node in self.source.nodes}
        worst = 0
        previous = list(self.baseline)
        for name, old, new in self.function.report.steps():
            if not isinstance(new, Graph) or new is old:
                continue
            worst = max(worst, _ORDER.index(self.numerics.get(name, "reassoc")))
            standing = _stand_ins(self.trace, name, new, standing)
            decided = {n: self.own[s] for n, s in standing.items() if is_decision(s)}
            values = self._evaluate(new, decided)
            now = [values[root] for root in _roots(new)]
            errors, wrong = self._measure(name, now, _ORDER[worst])
            self._note_repairs(name, before, now)
            self._note_errors(name, old, values, standing)
            if wrong is not None and self.result.blame is None:
                increase = errors[wrong] - previous[wrong]
                self.result.blame = self._blame(name, new, values, standing, worst, wrong, increase)
            before, previous = now, errors
        self._check_run(before, previous, max(worst, _ORDER.index("reassoc")))
        return self.result

    def _check_run(self, before: Sequence[Any], previous: Sequence[float], worst: int) -> None:
        now, refused = run_once(self.function, self.feeds)
        if refused:
            self.result.notes.append(f"the run was refused: {refused}")
            return
        errors, wrong = self._measure(RUN, now, _ORDER[worst])
        self._note_repairs(RUN, before, now)
        if wrong is not None and self.result.blame is None:
            step = _writer(self.feeds.bound.plan, self.source, wrong)
            if step is not None:
                self.result.blame = Blame(
                    RUN,
                    step.kernel,
                    step.computed[-1],
                    tuple(self.trace.origins(step.computed[-1])),
                    errors[wrong] - previous[wrong],
                )

    # ------------------------------------------------------------------ parts

    def _allowed(self, i: int, numerics: Numerics) -> float:
        if not is_inexact(self.dtypes[i]):
            return _flips(self.roots[i], self.references[i])
        row = tolerance(self.dtypes[i], numerics)
        return _MARGIN * self.baseline[i] + row.relative + row.absolute

    def _measure(
        self, name: str, now: Sequence[Any], numerics: Numerics
    ) -> tuple[list[float], int | None]:
        """Add a measure; return the error of each result, and the first that is too large."""
        errors = [
            0.0 if i in self.counters else difference(value, reference).error
            for i, (value, reference) in enumerate(zip(now, self.references, strict=True))
        ]
        allowed = [self._allowed(i, numerics) for i in range(len(errors))]
        if errors:
            top = max(range(len(errors)), key=lambda i: errors[i])
            where = self.labels[top] if errors[top] else ""
            self.result.measures.append(Measure(name, errors[top], allowed[top], where))
        else:
            self.result.measures.append(Measure(name, 0.0, 0.0, ""))
        wrong = [i for i, error in enumerate(errors) if error > allowed[i]]
        return errors, wrong[0] if wrong and name != BASELINE else None

    def _note_repairs(self, name: str, before: Sequence[Any], now: Sequence[Any]) -> None:
        """List the values that are finite from here on, and the rules that say they do that."""
        repairs: list[str] = []
        for label, old, new in zip(self.labels, before, now, strict=True):
            lost = ~np.isfinite(widest(widened(old)))
            count = int(np.count_nonzero(lost & np.isfinite(widest(widened(new)))))
            if count:
                repairs.append(f"{name}: {count} values of {label} are finite now")
        if repairs and name != RUN:
            repairs += self.function.report[name].repairs
        self.result.repairs += repairs

    def _note_errors(
        self, name: str, old: Graph, values: Mapping[Node, Any], standing: Mapping[Node, Node]
    ) -> None:
        """Keep the error of each node that the pass made."""
        old_nodes = set(old.nodes)
        self.result.pass_errors[name] = {
            node: difference(values[node], self.wide[source]).error
            for node, source in standing.items()
            if node not in old_nodes and source in self.noise
        }
        if self.numerics.get(name) == "half":
            self._note_products(name, standing)

    def _note_products(self, name: str, standing: Mapping[Node, Node]) -> None:
        """List what the products that lose digits most lose."""
        lost = [
            (error, standing[node])
            for node, error in self.result.pass_errors[name].items()
            if standing[node].op.policy == "allow"
        ]
        lost.sort(key=lambda pair: -pair[0])
        for error, source in lost[:_SHOWN]:
            made = (self.trace.sources.get(source) or [source])[0]
            self.result.notes.append(f"{name}: {describe(made)} errs by {error:.1e}")
        if len(lost) > _SHOWN:
            rest = len(lost) - _SHOWN
            self.result.notes.append(f"{name}: {rest} more products err by less")

    def _first_not_finite(self) -> None:
        for node in self.source.nodes:
            if isinstance(node.type, tuple) or not is_inexact(node.dtype):
                continue
            if "value" in node.attrs:  # an infinity that is written down is meant
                continue
            if not is_finite(self.own[node]) and all(is_finite(self.own[i]) for i in node.inputs):
                self.result.not_finite = (self.trace.sources.get(node) or [node])[0]
                return

    def _blame(
        self,
        name: str,
        graph: Graph,
        values: Mapping[Node, Any],
        standing: Mapping[Node, Node],
        worst: int,
        wrong: int,
        increase: float,
    ) -> Blame:
        """Return the first node of the graph whose value differs from its source node's."""
        guilty = _roots(graph)[wrong]
        for node in graph.nodes:
            source = standing.get(node)
            if source is None or source not in self.noise:
                continue
            error = difference(values[node], self.wide[source]).error
            base = self.noise[source]
            row = tolerance(node.dtype, _ORDER[worst])
            if error > _MARGIN * base + row.relative + row.absolute:
                guilty = node
                break
        return Blame(
            name,
            _rule_of(self.trace, name, guilty),
            guilty,
            tuple(self.trace.origins(guilty)),
            increase,
        )


def _flips(root: Node, reference: Any) -> float:
    """Return the share of a result's elements that may differ, for ints and bools."""
    exact = not any(
        not isinstance(node.type, tuple) and is_inexact(node.dtype) for node in topological([root])
    )
    return 0.0 if exact else max(_FLIPS, 1.0 / max(1, np.size(reference)))


def _roots(graph: Graph) -> list[Node]:
    return [*graph.outputs, *(value for _, value in graph.updates)]


def _labels(graph: Graph) -> list[str]:
    outputs = [f"output {i}" for i in range(len(graph.outputs))]
    return [*outputs, *(f"variable '{variable.name}'" for variable, _ in graph.updates)]


def _fed(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[Node, np.ndarray]:
    return dict(zip(graph.inputs, arrays, strict=True))


def _stand_ins(
    trace: Trace, name: str, after: Graph, standing: Mapping[Node, Node]
) -> dict[Node, Node]:
    """Return which nodes after a pass have the value of which nodes of the source graph."""
    present = set(after.nodes)
    stand_ins = {node: source for node, source in standing.items() if node in present}
    for node, source in standing.items():
        new = stand_in(trace, name, node, present)
        if new is not None:
            stand_ins.setdefault(new, source)
    return stand_ins


def _rule_of(trace: Trace, name: str, node: Node) -> str:
    """Return the rule of a pass that made a node, or else the nearest node below it."""
    seen = {node}
    pending = [node]
    while pending:
        here = pending.pop(0)
        maker = trace.made_by.get(here)
        if maker is not None and maker[0] == name and maker[1] != OPERANDS:
            return maker[1]
        for operand in here.inputs:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return OPERANDS


def _writer(plan: Plan, source: Graph, root: int) -> Any:
    """Return the last step that writes a result or a variable."""
    if root < len(source.outputs):
        slot_index = plan.fetches[root].slot
    else:
        state = source.updates[root - len(source.outputs)][0].attrs["state"]
        slot_index = next((slot.index for slot in plan.slots if slot.owner is state), -1)
    for step in reversed(plan.steps):
        if any(value.slot == slot_index for value in step.outputs):
            return step
    return None
