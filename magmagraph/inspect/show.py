"""`mg.show`: a node, a function or a pass record as an object that prints and saves itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import GraphError, PlanError, message
from ..files.writing import write_file
from ..ir.collection import collection_paused
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, Trace, freeze, topological
from ..ir.plan import GENERATED, Plan
from ..ir.types import FilePath
from ..passes.lowering.timeline import Timeline
from ..text.writing import dump, write_node
from .networkx import members

_FORMS = {
    ".txt": "text", ".dot": "dot", ".svg": "svg", ".html": "html", ".htm": "html", ".json": "json",
}  # fmt: skip
_DRAWN = 600  # nodes up to which a notebook shows a picture at once


class Shown:
    """Something to look at.

    what, source, evidence: As of `show`.
    """

    def __init__(
        self, what: Any, source: bool = True, evidence: Mapping[str, Any] | None = None
    ) -> None:
        self._what = what
        self._source = source
        self._evidence = evidence
        if not (_is_record(what) or _is_report(what) or isinstance(what, Plan)):
            members(what)  # raises where it holds no nodes

    def text(self) -> str:
        """Return it as text: of a function, its graph and then its plan."""
        what = self._what
        if _is_report(what):
            return str(what)
        if isinstance(what, Node):
            return write_node(what)
        if isinstance(what, (Graph, Plan)):
            return dump(what)
        if _is_record(what):
            before, after = what.graphs
            return f"before {what.name}:\n{dump(before)}\n\nafter {what.name}:\n{dump(after)}"
        if isinstance(getattr(what, "graph", None), Graph):
            return f"{dump(what)}\n\n{dump(what.plan)}"
        return "\n\n".join(write_node(node) for node in members(what)[1])

    def dot(self) -> str:
        """Return it in the language of Graphviz; of a pass record, the graph after the pass."""
        # Each form here, as a program needs one of them.
        from .pictures.dot import graph_dot, plan_dot

        what = self._what
        if _is_record(what):
            before, after = what.graphs
            what = after if isinstance(after, Graph) else before
        if isinstance(what, Plan):
            return plan_dot(what)
        return graph_dot(*members(what), self._source)

    def svg(self) -> str:
        """Return it as an SVG picture; of a pass record, the graphs before and after it."""
        with collection_paused():  # much is made, and all of it is kept until the end
            return self._svg(self._what)

    def _svg(self, what: Any) -> str:
        from .pictures.geometry import draw
        from .pictures.scene import Scene, traced_group
        from .pictures.svg import picture

        if not _is_record(what):
            trace = getattr(what, "trace", None)
            group = traced_group(trace) if isinstance(trace, Trace) else None
            drawn = [("", draw(Scene(*_drawn(what), group=group).root))]
            return picture(drawn, source=self._source, title=self._title())
        before, after = what.graphs
        scenes = [("before", Scene(*_drawn(before)))]
        if isinstance(after, Graph):
            scenes.append(("after", Scene(*_drawn(after), scenes[0][1].places())))
        drawings = [(heading, draw(scene.root)) for heading, scene in scenes]
        return picture(drawings, source=self._source, title=self._title())

    def html(self) -> str:
        """Return the viewer: one page that holds all it needs, and works without a network."""
        from .viewer import html

        with collection_paused():
            return html(self._pages())

    def json(self) -> str:
        """Return the data of the viewer as JSON text; docs/viewer-schema.md has its keys."""
        import json

        from .viewer.data import data

        return json.dumps(data(self._pages()), ensure_ascii=False, allow_nan=False)

    def _pages(self) -> Any:
        """Return the parts of the viewer's page."""
        from .viewer.data import Pages

        what = self._what
        common: dict[str, Any] = {
            "title": self._title(), "lines": self._source, "evidence": self._evidence,
        }
        if _is_report(what) or _is_record(what):
            records = list(what) if _is_report(what) else [what]
            return Pages(graphs=_graphs(records), records=records, **common)
        source_graph = getattr(what, "source_graph", None)
        if not isinstance(source_graph, Graph):
            return Pages(graphs=[("graph", _as_graph(what))], **common)
        what.compile()
        plan = what.plan
        return Pages(
            graphs=_graphs(list(what.report), source_graph),
            records=list(what.report),
            trace=what.trace,
            plan=plan,
            device=what.device,
            sources=_kernel_sources(what, plan),
            **common,
        )

    def save(self, path: FilePath, *, source: bool | None = None) -> None:
        """Write it to a file: text, DOT, a picture, the viewer, or its data.

        path: Its suffix names the form: ``.txt``, ``.dot``, ``.svg``, ``.html``, or ``.json`` for
            what the viewer shows.
        source: Whether the user's source lines are in it; as of `show` unless given.
        raises GraphError: There is no form of that suffix.
        """
        target = Path(path)
        suffix = target.suffix.lower()
        form = _FORMS.get(suffix)
        if form is None:
            there = f"pictures of the form {suffix!r}" if suffix else "files without a suffix"
            raise GraphError(
                message(
                    f"{target.name}: there are no {there}",
                    need=".txt, .dot, .svg, .html or .json",
                    hint=f"{target.stem}.html, which a browser opens",
                )
            )
        shown = self if source is None else Shown(self._what, source, self._evidence)
        content = getattr(shown, form)()
        write_file(target, content + "\n")

    def _title(self) -> str:
        what = self._what
        if _is_record(what):
            return f"{what.name}: {what.before} -> {what.after} nodes"
        if _is_report(what):
            return "compile report"
        name = getattr(what, "name", None)
        kind = type(what).__name__.lower()
        if isinstance(what, Node):
            return f"{name} = {what.op.name}" if name else what.op.name
        inputs = getattr(what, "inputs", ())
        names = ", ".join(node.name or node.op.name for node in inputs)
        return str(name) if name else f"{kind} of {names}" if names else kind

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        if _is_report(self._what):
            return f"<pre>{_escaped(self.text())}</pre>"
        count = len(_drawn(self._what)[0]) if not _is_record(self._what) else self._what.before
        if count > _DRAWN:
            return (
                f"<p>{count} nodes: too many for a picture in place; "
                "<code>.save('graph.html')</code> makes a page to look around in.</p>"
            )
        return f'<div style="overflow:auto;max-height:80vh">{self.svg()}</div>'

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        kind = type(self._what).__name__.lower()
        size = f" of {len(self._what)}" if isinstance(self._what, (list, tuple, dict)) else ""
        return f"<shown {kind}{size}>"


class _ShownTimeline(Shown):
    """The memory of a call: a text, a chart, or a page with both."""

    def __init__(self, what: Timeline) -> None:
        self._what, self._source, self._evidence = what, True, None

    def text(self) -> str:
        """Return it as text."""
        return str(self._what)

    def dot(self) -> str:
        """Raise GraphError: a chart is no graph."""
        raise GraphError(
            message("a timeline of memory is no graph", need=".txt, .svg, .html or .json")
        )

    def svg(self) -> str:
        """Return the chart as an SVG picture."""
        from .pictures.memory import memory_svg

        return memory_svg(self._what)

    def html(self) -> str:
        """Return a page with the chart and the text."""
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>memory of a call</title>'
            '<meta name="color-scheme" content="light dark">'
            f"<body>{self.svg()}<pre>{_escaped(self.text())}</pre></body></html>"
        )

    def json(self) -> str:
        """Return the timeline's values as JSON text."""
        import json

        return json.dumps(self._what.as_dict(), ensure_ascii=False, allow_nan=False)

    def _repr_html_(self) -> str:
        return f'<div style="overflow:auto;max-height:80vh">{self.svg()}</div>'


@documented
def show(
    what: Any, source: bool = True, evidence: Mapping[str, Any] | None = None
) -> Shown:
    """Return something to look at.

    what (Node, list or dict of nodes, Function, Graph, Plan, model, `f.report` or its record, or
        `f.memory.timeline()`): What to show. Of a function, the viewer has every pass, the plan and
        the kernels; of a model what it predicts is shown; of a timeline, a chart.
    source: Whether pictures name the user's source lines, and the viewer shows some around them.
    evidence: What was measured of a function, which the viewer shows: as of
        `magmagraph.inspect.evidence.evidence`.
    returns (Shown): An object with ``text()``, ``dot()``, ``svg()``, ``html()`` and ``save(path)``;
        it prints as its text, and notebooks draw it.
    raises GraphError: It holds no nodes.

    >>> x = mg.input("x", shape=(3,))
    >>> print(mg.show(x * x).text())
    %0 = input() : float32[3]  # x
    %1 = multiply(%0, %0) : float32[3]
    >>> mg.show(x * x).svg()[:4]
    '<svg'
    """
    if isinstance(what, Timeline):
        return _ShownTimeline(what)
    return Shown(what, source, evidence)


def _is_record(what: Any) -> bool:
    graphs = getattr(what, "graphs", None)
    return isinstance(graphs, tuple) and len(graphs) == 2


def _is_report(what: Any) -> bool:
    return hasattr(what, "records")


def _drawn(
    what: Any,
) -> tuple[Sequence[Node], Sequence[Node], Sequence[tuple[Node, Node]]]:
    """Return nodes, outputs and updates; of a plan, those of its steps."""
    if _is_report(what):
        what = what.graph
    if isinstance(what, Plan):
        return topological([node for step in what.steps for node in step.computed]), (), ()
    return members(what)


def _as_graph(what: Any) -> Graph:
    if isinstance(what, Graph):
        return what
    nodes, outputs, updates = _drawn(what)
    return freeze((), outputs or nodes[-1:], updates)


def _graphs(records: list[Any], source: Graph | None = None) -> list[tuple[str, Graph]]:
    """Return (what made it, graph) of a compile, the source first."""
    kept = [record for record in records if record.graphs is not None]
    if source is None:
        source = kept[0].graphs[0]
    graphs = [("source", source)]
    graphs += [(r.name, r.graphs[1]) for r in kept if isinstance(r.graphs[1], Graph)]
    return graphs


def _kernel_sources(function: Any, plan: Plan) -> dict[int, str]:
    """Return the generated code of the steps that have some."""
    sources = {}
    for i, step in enumerate(plan.steps):
        if step.role in GENERATED:
            try:
                sources[i] = function.source(i)
            except PlanError:  # interpreted: no compiler is there
                continue
    return sources


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
