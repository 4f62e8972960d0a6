"""The data of the viewer, as plain values: docs/viewer-schema.md describes them.

One table has every node of every graph, since a node that a pass leaves alone stays the same
node; a graph is what its pass adds and drops. Texts stand once, in a table of their own.
"""

from __future__ import annotations

import functools
import json
import linecache
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import __version__
from ...ir.graph import Graph, Node, Trace
from ...ir.plan import Plan
from ...text.writing import Writer
from ..pictures.layered import Layout
from ..pictures.palette import COLOURS, DARK, LIGHT, NAMES, SIGNS
from ..pictures.scene import Scene, bodies_of, label_of, style_of, traced_group
from ..pictures.scene_frame import BOX, CHARACTER, PAD, ROW_GAP, SIGN, SMALL, TITLE, TYPE, Frame
from .plan import evidence_values, plan_values

SCHEMA = "magmagraph.viewer"
VERSION = 2
STYLES = tuple(COLOURS)
ROLES = ("node", "frame", "entry", "exit", "update", "output")
_CONTEXT = 3  # lines of the user's code above and below the one that made a node
_SHOWN = 8  # elements of a constant that are shown
_OWNERS = frozenset(("key", "state", "body", "bodies"))


@dataclass
class Pages:
    """The parts of a page.

    title: Of the page.
    graphs: (what made it, the graph), the source first.
    records: The passes' records.
    trace: The replacements that passes made.
    plan: The plan.
    device: Where it runs.
    sources: Step -> generated code.
    evidence: As of `magmagraph.inspect.evidence.evidence`.
    lines: Whether the user's lines are shown.
    """

    title: str
    graphs: Sequence[tuple[str, Graph]]
    records: Sequence[Any] = ()
    trace: Trace | None = None
    plan: Plan | None = None
    device: str = ""
    sources: Mapping[int, str] = field(default_factory=dict)
    evidence: Mapping[str, Any] | None = None
    lines: bool = True


def data(pages: Pages) -> dict[str, Any]:
    """Return the values of a page, ready for JSON.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import freeze
    >>> x = mg.input("x", shape=(3,))
    >>> made = data(Pages("exp", [("source", freeze([x], [mg.exp(x)]))]))
    >>> made["schema"], made["version"], len(made["nodes"]["op"])
    ('magmagraph.viewer', 2, 2)
    """
    return _Book(pages).data()


class _Book:
    """One page in the making."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.writer = Writer()
        self.texts: dict[str, int] = {}
        self.number: dict[Node, int] = {}
        self.inside: dict[int, int] = {}
        self.lines: dict[Any, int] = {}

    def data(self) -> dict[str, Any]:
        """Return the values."""
        pages = self.pages
        graphs, layouts = self._graphs()
        content = {
            "schema": SCHEMA,
            "version": VERSION,
            "made_by": f"magmagraph {__version__}",
            "title": pages.title,
            "device": pages.device,
            "styles": styles(),
            "metrics": _METRICS,
            "graphs": graphs,
            "layouts": layouts,
            "passes": self._passes(),
            "moves": self._moves(),
            "plan": None
            if pages.plan is None
            else plan_values(pages.plan, self.node, pages.sources),
            "evidence": evidence_values(pages.evidence, dict(pages.graphs), self.node),
        }
        content["nodes"] = self._nodes()
        content["lines"], content["files"] = self._lines()
        content["texts"] = list(self.texts)
        return content

    def text(self, text: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(text, len(self.texts))

    def node(self, node: Node) -> int:
        """Return the number of a node; its operands have lower ones."""
        number = self.number.get(node)
        if number is None:
            number = self.number[node] = len(self.number)
        return number

    # ------------------------------------------------------------------ graphs

    def _graphs(self) -> tuple[list[dict[str, Any]], list[str]]:
        graphs: list[dict[str, Any]] = []
        layouts: list[str] = []
        layout_numbers: dict[Any, int] = {}
        known_layouts: dict[Any, Layout] = {}
        before: set[Node] = set()
        hint: dict[Node, float] = {}
        group = None if self.pages.trace is None else traced_group(self.pages.trace)
        for name, graph in self.pages.graphs:
            nodes = list(dict.fromkeys((*graph.inputs, *graph.nodes)))
            for node in nodes:
                self.node(node)
            now = set(nodes)
            key = (frozenset(nodes), graph.outputs, graph.updates)
            if key not in layout_numbers:
                scene = Scene(nodes, graph.outputs, graph.updates, hint, group, known_layouts)
                hint = scene.places()
                layout_numbers[key] = len(layouts)
                # As a text: the page reads those alone that are looked at.
                layouts.append(json.dumps(self._layout(scene.root), separators=(",", ":")))
            graphs.append(
                {
                    "name": name,
                    "adds": _steps([self.node(n) for n in nodes if n not in before]),
                    "drops": _steps([self.node(n) for n in before - now]),
                    "outputs": [self.node(n) for n in graph.outputs],
                    "updates": [[self.node(v), self.node(n)] for v, n in graph.updates],
                    "layout": layout_numbers[key],
                }
            )
            before = now
        return graphs, layouts

    def _layout(self, root: Frame) -> dict[str, Any]:
        frames = list(root.frames())
        at = {id(frame): i for i, frame in enumerate(frames)}
        return {"frames": [self._frame(frame, at) for frame in frames]}

    def _frame(self, frame: Frame, at: Mapping[int, int]) -> dict[str, Any]:
        kernel = -1 if frame.kernel is None else self.node(frame.kernel)
        columns: dict[str, list[int]] = {
            name: [] for name in ("role", "node", "frame", "label", "note", "style", "width", "row")
        }
        for item in frame.items:
            number = -1
            if item.node is not None:
                number = self.node(item.node)
                if kernel >= 0 and item.role == "node":
                    self.inside[number] = kernel
            row = (
                ROLES.index(item.role),
                number,
                -1 if item.inner is None else at[id(item.inner)],
                self.text(item.label),
                self.text(item.note),
                STYLES.index(item.style) if item.style else -1,
                math.ceil(item.width),
                item.row,
            )
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
        nets = []
        for net, read in zip(frame.nets, frame.values, strict=True):
            lane = -1 if net.lane is None else round(net.lane)
            trunk = [round(x) for x in net.trunk]
            nets.append([self.node(read), net.source, net.targets, trunk, lane, net.far])
        return {
            "title": self.text(frame.title),
            "kernel": kernel,
            "wide": math.ceil(frame.width),
            **columns,
            "x": [round(item.x) for item in frame.items],
            "nets": nets,
        }

    # ------------------------------------------------------------------ nodes

    def _nodes(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {
            name: []
            for name in ("op", "name", "type", "style", "attributes", "line", "inputs", "inside")
        }
        columns["label"] = []
        for node in self.number:  # operands that no graph shows get no number
            line = -1
            if self.pages.lines and node.line is not None:
                line = self.lines.setdefault(node.line, len(self.lines))
            columns["op"].append(self.text(node.op.name))
            columns["name"].append(self.text(node.name or ""))
            columns["type"].append(self.text(self.writer.types(node.type)))
            columns["style"].append(self._style(node))
            columns["attributes"].append(self.text(self._attributes(node)))
            columns["line"].append(line)
            columns["inputs"].append([self.number[i] for i in node.inputs if i in self.number])
            columns["inside"].append(self.inside.get(self.number[node], -1))
            columns["label"].append(self.text(label_of(node, node.inputs)))
        return columns

    def _style(self, node: Node) -> int:
        style = "fused" if bodies_of(node) else style_of(node)
        return STYLES.index(style)

    def _attributes(self, node: Node) -> str:
        parts = []
        for name, value in node.attrs.items():
            if name in _OWNERS or isinstance(value, Graph):
                continue
            if isinstance(value, np.ndarray) and value.size > _SHOWN:
                parts.append(f"{name}=({value.size} elements)")
            else:
                parts.append(f"{name}={self.writer.attribute(value, None)}")
        return ", ".join(parts)

    def _lines(self) -> tuple[list[list[int]], list[dict[str, Any]]]:
        """Return the lines that made nodes, and the parts of files around them."""
        files: dict[str, set[int]] = {}
        for line in self.lines:
            around = range(max(1, line.number - _CONTEXT), line.number + _CONTEXT + 1)
            files.setdefault(line.file, set()).update(around)
        position = {name: i for i, name in enumerate(files)}
        lines = [[position[n.file], n.number, self.text(n.scope)] for n in self.lines]
        shown = []
        for name, numbers in files.items():
            rows = _read(name)
            shown.append(
                {
                    "name": self.text(Path(name).name),
                    "path": self.text(name),
                    "rows": [[n, rows[n - 1]] for n in sorted(numbers) if n <= len(rows)],
                }
            )
        return lines, shown

    # ------------------------------------------------------------------ passes

    def _passes(self) -> list[dict[str, Any]]:
        names = [name for name, _ in self.pages.graphs]
        passes = []
        for record in self.pages.records:
            fields = record.as_dict()
            fields["refusals"] = [
                {
                    "rule": self.text(refusal.rule),
                    "node": self.text(refusal.node),
                    "line": self.text(refusal.line if self.pages.lines else ""),
                    "reason": self.text(refusal.reason),
                    "group": self.text(refusal.group),
                    "other": self.text(refusal.other if self.pages.lines else ""),
                    "obstacle": self.text(refusal.obstacle if self.pages.lines else ""),
                    "node_id": self.number.get(node, -1),
                }
                for refusal, (_, node) in zip(record.refusals, record._refused, strict=True)
            ]
            fields["fallbacks"] = [
                {
                    "step": fallback.step,
                    "way": self.text(fallback.way),
                    "reason": self.text(fallback.reason),
                    "node": self.text(row["node"]),
                    "node_id": self.number.get(fallback.node, -1),
                }
                for row, fallback in zip(
                    fields.get("fallbacks", ()), record.fallbacks, strict=True
                )
            ]
            fields["graph"] = names.index(record.name) if record.name in names else -1
            passes.append(fields)
        return passes

    def _moves(self) -> dict[str, list[int]]:
        """Return the replacements, in the order of the passes that made them."""
        columns: dict[str, list[int]] = {name: [] for name in ("pass", "rule", "old", "new")}
        if self.pages.trace is None:
            return columns
        order = {record.name: i for i, record in enumerate(self.pages.records)}
        rows = []
        for old, became in self.pages.trace.became.items():
            # What stood in no graph still leads from one that did to another that does.
            for name, rule, new in became:
                if name in order:
                    rows.append((order[name], self.text(rule), self.node(old), self.node(new)))
        rows.sort()
        for row in rows:
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
        return columns


def _steps(numbers: Iterable[int]) -> list[int]:
    """Return ascending numbers as the first and the steps between them, which compress well."""
    ordered = sorted(numbers)
    return [n - before for n, before in zip(ordered, [0, *ordered], strict=False)]


@functools.lru_cache(maxsize=64)
def _read(name: str) -> list[str]:
    """Return the lines of a file, as far as it can be read (a notebook's cell, too)."""
    return [line.rstrip("\n") for line in linecache.getlines(name)]


def styles() -> dict[str, Any]:
    """Return names, colours, signs and legends of styles, and the colours of both themes."""
    themes = {
        name: {
            "paper": theme.paper, "ink": theme.ink, "muted": theme.muted, "edge": theme.edge,
            "faint": theme.faint, "tint": theme.tint,
        }
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
    return {
        "names": list(STYLES),
        "colours": [COLOURS[style] for style in STYLES],
        "signs": [SIGNS.get(style, "") for style in STYLES],
        "legend": [NAMES.get(style, style) for style in STYLES],
        "themes": themes,
    }


_METRICS = {
    "box": BOX, "character": CHARACTER, "pad": PAD, "row_gap": ROW_GAP, "sign": SIGN,
    "small": SMALL, "title": TITLE, "type": TYPE,
}
