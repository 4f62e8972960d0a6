"""`mg.show`: a node, a function or a pass record as an object that prints and saves itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import GraphError, message
from ..graph import Graph, Node
from ..op import Effect, Kind
from ..plan import Plan
from ..text import Writer, dump, write_node
from .networkx import members

_LATER = (".svg", ".html")
_SHAPES = {Kind.LEAF: "ellipse", Kind.LOWERED: "box3d", Kind.REDUCTION: "invtrapezium"}


class Shown:
    """Something to look at.

    Parameters
    ----------
    what
        As of `show`.
    source
        Whether the user's lines are shown.
    """

    def __init__(self, what: Any, source: bool = True) -> None:
        self._what = what
        self._source = source
        if not _is_record(what) and not isinstance(what, Plan):
            members(what)  # raises where it holds no nodes

    def text(self) -> str:
        """Return it as text: of a function, its graph and then its plan."""
        what = self._what
        if hasattr(what, "records"):
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
        what = self._what
        if _is_record(what):
            before, after = what.graphs
            what = after if isinstance(after, Graph) else before
        if isinstance(what, Plan):
            return _plan_dot(what)
        return _dot(what, self._source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, in the form that its suffix names: ``.txt`` or ``.dot``.

        Raises
        ------
        GraphError
            There is no form of that suffix.
        """
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix == ".txt":
            content = self.text()
        elif suffix == ".dot":
            content = self.dot()
        else:
            form = f"pictures of the form {suffix!r}" if suffix else "files without a suffix"
            what = f"{form} are not there yet" if suffix in _LATER else f"there are no {form}"
            raise GraphError(
                message(
                    f"{target.name}: {what}",
                    need=".txt or .dot",
                    mend=f"{target.stem}.dot, which Graphviz turns into a picture",
                )
            )
        from ..data.files import replace_file  # needed by few: `magmagraph.data` loads late

        with replace_file(target) as file:
            file.write_text(content + "\n", encoding="utf-8")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        kind = type(self._what).__name__.lower()
        size = f" of {len(self._what)}" if isinstance(self._what, (list, tuple, dict)) else ""
        return f"<shown {kind}{size}>"


def show(what: Any, source: bool = True) -> Shown:
    """Return something to look at.

    Parameters
    ----------
    what : Node, list or dict of nodes, Function, Graph, Plan, or `f.report` or a record of it
        What to show.
    source
        Whether pictures name the user's source lines.

    Returns
    -------
    Shown
        An object with ``text()``, ``dot()`` and ``save(path)``; it prints as its text.

    Raises
    ------
    GraphError
        It holds no nodes.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> print(mg.show(x * x).text())
    %0 = input() : float32[3]  # x
    %1 = multiply(%0, %0) : float32[3]
    """
    return Shown(what, source)


def _is_record(what: Any) -> bool:
    graphs = getattr(what, "graphs", None)
    return isinstance(graphs, tuple) and len(graphs) == 2


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _dot(what: Any, source: bool) -> str:
    nodes, outputs, updates = members(what)
    number = {node: i for i, node in enumerate(nodes)}
    writer = Writer()
    returned = set(outputs)
    lines = ["digraph magmagraph {", "  node [fontname=monospace];"]
    for node, i in number.items():
        parts = [node.op.name + (f" {node.name}" if node.name else ""), writer.types(node.type)]
        if source and node.line:
            parts.append(f"{Path(node.line.file).name}:{node.line.number}")
        shape = _SHAPES.get(node.op.kind, "box")
        style = ', style="bold"' if node in returned else ""
        if node.op.effect is Effect.STATE:
            style += ', peripheries="2"'
        label = _quoted("\n".join(parts))
        lines.append(f'  n{i} [label={label}, shape="{shape}"{style}];')
        for position, operand in enumerate(node.inputs):
            mark = f' [label="{position}"]' if len(node.inputs) > 1 else ""
            lines.append(f"  n{number[operand]} -> n{i}{mark};")
    for variable, value in updates:
        lines.append(
            f'  n{number[value]} -> n{number[variable]} '
            '[style="dashed", label="update", constraint="false"];'
        )
    return "\n".join([*lines, "}"])


def _plan_dot(plan: Plan) -> str:
    lines = ["digraph plan {", "  node [fontname=monospace];"]
    for slot in plan.slots:
        label = _quoted(f"s{slot.index} {slot.place.value}\n{slot.size} bytes")
        lines.append(f'  s{slot.index} [label={label}, shape="ellipse"];')
    for i, step in enumerate(plan.steps):
        late = ', style="bold"' if i >= plan.commit else ""
        label = _quoted(f"{i} {step.kernel}\n{step.bytes} bytes")
        lines.append(f'  k{i} [label={label}, shape="box"{late}];')
        lines += [f"  s{slot} -> k{i};" for slot in dict.fromkeys(v.slot for v in step.inputs)]
        lines += [f"  k{i} -> s{value.slot};" for value in step.outputs]
    return "\n".join([*lines, "}"])
