"""Graphs in the language of Graphviz, with the colours of the other pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...ir.graph import Node
from ...ir.op import Effect, Kind
from ...ir.plan import Place, Plan
from ...text.writing import Writer
from .palette import COLOURS, LIGHT, mixed
from .scene import line_of, style_of

_SHAPES = {Kind.LEAF: "ellipse", Kind.LOWERED: "box3d", Kind.REDUCTION: "invtrapezium"}


def graph_dot(
    nodes: Sequence[Node],
    outputs: Sequence[Node],
    updates: Sequence[tuple[Node, Node]],
    source: bool = True,
) -> str:
    """Return a graph; a user's scopes are clusters, results are bold, updates dashed.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> print(graph_dot([x], [x], []).splitlines()[0])
    digraph magmagraph {
    """
    number = {node: i for i, node in enumerate(nodes)}
    writer = Writer()
    returned = set(outputs)
    lines = ["digraph magmagraph {", '  node [fontname=monospace, style="filled"];']
    scopes: dict[str, list[Node]] = {}
    for node, i in number.items():
        lines.append(f"  n{i} [{_look(node, node in returned, source, writer)}];")
        if node.line is not None and node.line.scope:
            scopes.setdefault(node.line.scope, []).append(node)
        for position, operand in enumerate(node.inputs):
            mark = f' [label="{position}"]' if len(node.inputs) > 1 else ""
            lines.append(f"  n{number[operand]} -> n{i}{mark};")
    for variable, value in updates:
        lines.append(
            f'  n{number[value]} -> n{number[variable]} '
            '[style="dashed", label="update", constraint="false"];'
        )
    lines += _clusters(scopes, number)
    return "\n".join([*lines, "}"])


def _look(node: Node, returned: bool, source: bool, writer: Writer) -> str:
    parts = [node.op.name + (f" {node.name}" if node.name else ""), writer.types(node.type)]
    if source and node.line:
        parts.append(line_of(node))
    colour = COLOURS[style_of(node)]
    styles = ["filled", "bold"] if returned else ["filled"]
    twice = ', peripheries="2"' if node.op.effect is Effect.STATE else ""
    return (
        f'label={_quoted(chr(10).join(parts))}, shape="{_SHAPES.get(node.op.kind, "box")}", '
        f'style="{",".join(styles)}", color="{colour}", '
        f'fillcolor="{mixed(colour, LIGHT.paper, LIGHT.tint)}"{twice}'
    )


def _clusters(scopes: dict[str, list[Node]], number: dict[Node, int]) -> list[str]:
    """Return a cluster for each scope, those within inside of it."""
    paths = set(scopes)
    for path in scopes:
        while "/" in path:
            path = path.rpartition("/")[0]
            paths.add(path)
    ids = {path: i for i, path in enumerate(sorted(paths))}
    inner: dict[str, list[str]] = {}
    for path in ids:
        inner.setdefault(path.rpartition("/")[0], []).append(path)

    def written(path: str, indent: str) -> list[str]:
        lines = [f"{indent}subgraph cluster_{ids[path]} {{"]
        lines.append(f"{indent}  label={_quoted(path.rpartition('/')[2])};")
        for within in inner.get(path, ()):
            lines += written(within, indent + "  ")
        members = " ".join(f"n{number[node]};" for node in scopes.get(path, ()))
        return [*lines, f"{indent}  {members}", f"{indent}}}"]

    return [line for path in inner.get("", ()) for line in written(path, "  ")]


def plan_dot(plan: Plan) -> str:
    """Return a plan: steps, and the slots that they read and write."""
    lines = ["digraph plan {", "  node [fontname=monospace];"]
    for slot in plan.slots:
        if slot.place is Place.INSIDE:  # no memory: no step but the one that makes it has it
            continue
        label = _quoted(f"s{slot.index} {slot.place.value}\n{slot.size} bytes")
        lines.append(f'  s{slot.index} [label={label}, shape="ellipse"];')
    for i, step in enumerate(plan.steps):
        late = ', style="bold"' if i >= plan.commit else ""
        label = _quoted(f"{i} {step.kernel}\n{step.bytes} bytes")
        lines.append(f'  k{i} [label={label}, shape="box"{late}];')
        lines += [f"  s{slot} -> k{i};" for slot in dict.fromkeys(v.slot for v in step.inputs)]
        lines += [f"  k{i} -> s{value.slot};" for value in step.outputs]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
