"""What each pass did: counts, rules that hit, near misses with their reasons, repairs.

A `Report` is a list of `Record`, one per pass. It prints as a table, turns into JSON, and keeps the
graph before and after every pass, so that a compile can be stepped through.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..ir import records
from ..ir.fallback import Fallback, Fallbacks
from ..ir.graph import Graph, Node
from ..ir.html import Displayed, details, preformatted, table_html

WIDTH = 100  # characters of a line of a printed report
_KEPT = "\u00a0"  # a space at which no line is broken


@records.record(frozen=True)
class Refusal:
    """A place where a rule nearly matched, and the reason why it did not apply.

    Attributes
    ----------
    rule, reason
        What was not applied, and why.
    node, line, group
        The node, the user's line that made it, and the group that this belongs to.
    other
        Of a rule for two nodes: the second, and where it was made.
    obstacle
        The node that is in the way, and where it was made; empty where the reason says all.
    """

    rule: str
    node: str
    line: str
    reason: str
    group: str = ""
    other: str = ""
    obstacle: str = ""

    @property
    def place(self) -> str:
        """The node or nodes, their lines and groups, and what is in the way; a line for each."""
        text = self.node + (f", made at {self.line}" if self.line else "")
        text += f", in {self.group}" if self.group else ""
        text += f"\n        with {self.other}" if self.other else ""
        return text + (f"\n        between them {self.obstacle}" if self.obstacle else "")


@dataclass
class Record(Displayed):
    """What one pass did.

    Attributes
    ----------
    name
        The pass.
    milliseconds
        Time it took; not part of comparisons.
    before, after
        Numbers of nodes (steps, where the pass makes a plan).
    hits
        Rule -> how often it was applied.
    refusals
        Near misses, each rule and node once.
    notes
        Decisions worth a line.
    repairs
        Places where a value that was not finite is replaced by its continuous limit.
    fallbacks
        Of the record of the kernels: the steps that do not run as the kernels of a family, each
        with the reason. Calls add to them, so they are not part of comparisons.
    skipped
        True where the caller left the pass out.
    of_steps
        True where the pass changes the steps of a plan, when sizes are known.
    graphs
        The graphs before and after, for stepping; not part of comparisons.
    """

    name: str
    milliseconds: float = field(default=0.0, compare=False)
    before: int = 0
    after: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    fallbacks: Fallbacks = field(default_factory=Fallbacks, compare=False, repr=False)
    skipped: bool = False
    of_steps: bool = False
    graphs: tuple[Any, Any] | None = field(default=None, compare=False, repr=False)
    _refused: dict[tuple[str, Node], str] = field(
        default_factory=dict, compare=False, repr=False
    )

    def hit(self, rule: str, times: int = 1) -> None:
        """Count an application of a rule."""
        self.hits[rule] = self.hits.get(rule, 0) + times

    def refuse(
        self,
        rule: str,
        node: Node,
        reason: str,
        *,
        other: Node | None = None,
        obstacle: Node | None = None,
    ) -> None:
        """Note why a rule was not applied to a node; the same rule and node are noted once.

        Parameters
        ----------
        rule, node, reason
            What was not applied, where, and why.
        other
            The second node of a rule for two.
        obstacle
            The node that is in the way.
        """
        if (rule, node) not in self._refused:
            self._refused[rule, node] = reason
            line, group = (str(node.line), node.line.scope) if node.line else ("", "")
            others = ("" if each is None else placed(each) for each in (other, obstacle))
            self.refusals.append(Refusal(rule, label(node), line, reason, group, *others))

    def reasons(self, node: Node) -> dict[str, str]:
        """Return why rules were not applied to a node, by rule."""
        return {rule: why for (rule, other), why in self._refused.items() if other is node}

    def note(self, text: str) -> None:
        """Add a line."""
        if text not in self.notes:
            self.notes.append(text)

    def repair(self, rule: str, node: Node, text: str) -> None:
        """Note that a rule replaces a non-finite value of `node` by its continuous limit."""
        where = f" {node.line.place.removeprefix('made ')}" if node.line else ""
        line = f"{rule}: {label(node)}{where}: {text}"
        if line not in self.repairs:
            self.repairs.append(line)

    def _html(self) -> str:
        return self._alone()._html()

    def __str__(self) -> str:
        """Return the part of the report that is about this pass."""
        return str(self._alone())

    def _alone(self) -> Report:
        alone = Report()
        alone.records.append(self)
        return alone

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values."""
        fields: dict[str, Any] = {
            "pass": self.name,
            "milliseconds": round(self.milliseconds, 3),
            "before": self.before,
            "after": self.after,
            "skipped": self.skipped,
            "hits": dict(self.hits),
            "refusals": [vars(refusal) for refusal in self.refusals],
            "notes": list(self.notes),
            "repairs": list(self.repairs),
        }
        if self.fallbacks:
            fields["fallbacks"] = [fallback_row(fallback) for fallback in self.fallbacks]
        return fields


def fallback_row(fallback: Fallback) -> dict[str, Any]:
    """Return a fallback as plain values."""
    node = fallback.node
    return {
        "step": fallback.step,
        "node": label(node),
        "line": str(node.line) if node.line else "",
        "group": node.line.scope if node.line else "",
        "wanted": fallback.wanted,
        "taken": fallback.taken,
        "reason": fallback.reason,
        "expected": fallback.expected,
    }


def label(node: Node) -> str:
    """Return a node's operation, name and type: the same text in each run."""
    name = f" '{node.name}'" if node.name else ""
    return f"{node.op.name}{name} : {node.type}"


def placed(node: Node) -> str:
    """Return a node's label with the line and the group that made it."""
    return label(node) + (f", {node.line.place}" if node.line else "")


def _counts(record: Record) -> str:
    """Return the numbers of nodes before and after a pass."""
    if record.skipped:
        return "skipped"
    if record.graphs is None and not record.before:
        return ""  # no pass: the kernels, which the runtime makes
    if record.of_steps or (record.graphs and not isinstance(record.graphs[1], Graph)):
        return f"{record.before} -> {record.after} steps"
    same = record.before == record.after
    return str(record.before) if same else f"{record.before} -> {record.after}"


def _grouped(refusals: list[Refusal]) -> dict[tuple[str, str], list[str]]:
    """Return for each rule and reason the places, each once with its count."""
    groups: dict[tuple[str, str], dict[str, int]] = {}
    for refusal in refusals:
        places = groups.setdefault((refusal.rule, refusal.reason), {})
        places[refusal.place] = places.get(refusal.place, 0) + 1
    return {
        key: [f"{place} (x{count})" if count > 1 else place for place, count in places.items()]
        for key, places in groups.items()
    }


def _by_reason(fallbacks: Fallbacks) -> dict[str, list[str]]:
    """Return for each way and reason the steps that take it."""
    groups: dict[str, list[str]] = {}
    for fallback in fallbacks:
        node = fallback.node
        groups.setdefault(str(fallback), []).append(f"step {fallback.step}: {placed(node)}")
    return groups


def _wrapped(text: str, head: str, indent: int) -> str:
    """Return a head and text, wrapped to lines of at most `WIDTH` characters where words allow."""
    return textwrap.fill(
        text,
        max(WIDTH, indent + 40),
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_KEPT, " ")


class Report(Displayed):
    """One record per pass, in the order in which they ran.

    Attributes
    ----------
    records
        See `Record`.
    graph
        The graph after the last pass that gives one.

    Examples
    --------
    >>> report = Report()
    >>> record = report.start("simplify")
    >>> record.hit("add zero")
    >>> report["simplify"].hits
    {'add zero': 1}
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.graph: Graph | None = None

    def start(self, name: str) -> Record:
        """Append and return the record of a pass that begins."""
        record = Record(name)
        self.records.append(record)
        return record

    def note_kernels(self, milliseconds: float, lines: Any, fallbacks: Fallbacks) -> None:
        """Append the record of making the kernels, which the runtime does after the passes.

        It shows what the runtime adds to the fallbacks later, too: at a call of other sizes.
        """
        record = self.start("kernels")
        record.milliseconds = milliseconds
        record.fallbacks = fallbacks
        for line in [lines] if isinstance(lines, str) else lines or ():
            record.note(str(line))

    def note_binding(self, records: Iterable[Record]) -> None:
        """Put the records of passes that ran for the newest sizes in the place of earlier ones."""
        for record in records:
            at = [number for number, old in enumerate(self.records) if old.name == record.name]
            if at:
                self.records[at[0]] = record
            else:
                self.records.append(record)

    def __getitem__(self, name: str) -> Record:
        for record in self.records:
            if record.name == name:
                return record
        raise KeyError(f"no pass {name!r} ran; these did: {', '.join(r.name for r in self)}")

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.records == other.records

    __hash__ = None  # type: ignore[assignment]

    @property
    def milliseconds(self) -> float:
        """Time of all passes together."""
        return sum(record.milliseconds for record in self.records)

    @property
    def repairs(self) -> list[str]:
        """The repairs of all passes."""
        return [text for record in self.records for text in record.repairs]

    @property
    def fallbacks(self) -> list[Fallback]:
        """The steps that do not run as the kernels of a family, each with the reason."""
        return [fallback for record in self.records for fallback in record.fallbacks]

    def steps(self) -> Iterator[tuple[str, Any, Any]]:
        """Give (pass, graph before, graph after) for each pass that ran, for stepping through.

        What a pass after the last graph makes (a plan) stands as `after`.
        """
        for record in self.records:
            if record.graphs is not None:
                yield (record.name, *record.graphs)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the records as JSON text."""
        return json.dumps([record.as_dict() for record in self.records], indent=indent)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for record in self.records:
            details = [
                f"{rule}{_KEPT}x{count}" if count > 1 else rule
                for rule, count in record.hits.items()
            ]
            if record.refusals:
                details.append(f"{len(record.refusals)} refused")
            if record.repairs:
                details.append(f"{len(record.repairs)} repairs")
            if record.fallbacks:
                details.append(f"{len(record.fallbacks)} without a kernel")
            text = "; ".join([", ".join(details), *record.notes] if details else record.notes)
            rows.append((record.name, f"{record.milliseconds:.1f}", _counts(record), text))
        return rows

    def _html(self) -> str:
        rows = [("pass", "ms", "nodes", "rules"), *self._rows()]
        shown = [[cell.replace(_KEPT, " ") for cell in row] for row in rows]
        parts = [table_html(shown, left=(0, 2, 3))]
        for record in self.records:
            for (rule, reason), places in _grouped(record.refusals).items():
                title = f"{record.name}: {rule} refused: {reason} ({len(places)})"
                parts.append(details(title, preformatted("\n".join(places))))
            parts += [preformatted(f"{record.name}: repair, {text}") for text in record.repairs]
            for way, places in _by_reason(record.fallbacks).items():
                title = f"{record.name}: {way}"
                parts.append(details(title, preformatted("\n".join(places)), shown=True))
        return "".join(parts)

    def __str__(self) -> str:
        rows = [("pass", "ms", "nodes", "rules"), *self._rows()]
        name, time, nodes = (max(len(row[i]) for row in rows) for i in range(3))
        lines = []
        for row in rows:
            head = f"{row[0]:<{name}}  {row[1]:>{time}}  {row[2]:<{nodes}}  "
            lines.append(_wrapped(row[3], head, len(head)) if row[3] else head.rstrip())
        for record in self.records:
            for (rule, reason), places in _grouped(record.refusals).items():
                lines.append(_wrapped(f"{record.name}: {rule} refused: {reason}", "", 4))
                lines += [f"    {place}" for place in places]
            lines += [_wrapped(f"{record.name}: repair, {text}", "", 4) for text in record.repairs]
            for way, places in _by_reason(record.fallbacks).items():
                lines.append(_wrapped(f"{record.name}: {way}", "", 4))
                lines += [f"    {place}" for place in places]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<report of {len(self.records)} passes>"

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title="passes")
        for name in ("pass", "ms", "nodes", "rules"):
            table.add_column(name, justify="right" if name in ("ms", "nodes") else "left")
        for row in self._rows():
            table.add_row(*(cell.replace(_KEPT, " ") for cell in row))
        return table
