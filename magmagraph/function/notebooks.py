"""Show nodes, graphs, plans and functions in notebooks."""

from __future__ import annotations

from typing import Any

from ..ir.graph import Graph, Node
from ..ir.html import details, preformatted, table_html
from ..ir.op import Effect, Kind
from ..ir.plan import Plan
from ..text.writing import Writer

__all__ = ["function_html", "graph_html"]

_VALUES = 1000  # elements of a variable that are shown


def graph_html(what: Any) -> str:
    """Return the picture of nodes or a graph; words where it is too large."""
    from ..inspect.show import show  # which most programs never need

    return show(what)._repr_html_()


def _node_html(node: Node) -> str:
    if node.op.kind is not Kind.LEAF:
        return graph_html(node)
    rows = [("", "name", "type", "made at"), (
        node.op.name, node.name or "", Writer().types(node.type), str(node.line or ""),
    )]  # fmt: skip
    shown = table_html(rows, left=range(4))
    value: Any = None
    if node.op.effect is Effect.STATE:
        value = node.value  # type: ignore[attr-defined]
    elif "value" in node.attrs:
        value = node.attrs["value"]
    if value is None or getattr(value, "size", 1) > _VALUES:
        return shown
    return shown + preformatted(str(value))


def _plan_html(plan: Plan) -> str:
    return preformatted(str(plan))


def function_html(function: Any, compiled: bool) -> str:
    """Return a function's inputs and outputs; of a compiled one also its passes and its plan."""
    head = preformatted(repr(function))
    if not compiled:
        return head + details("graph", graph_html(function.source_graph))
    return (
        head
        + details("passes", function.report._repr_html_())
        + details("plan", _plan_html(function.plan))
        + details("source graph", graph_html(function.source_graph))
        + details("optimized graph", graph_html(function.graph))
    )


Node._repr_html_ = _node_html  # type: ignore[attr-defined]
Graph._repr_html_ = graph_html  # type: ignore[attr-defined]
Plan._repr_html_ = _plan_html  # type: ignore[attr-defined]
