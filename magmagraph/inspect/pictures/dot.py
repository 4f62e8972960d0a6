"""Graphs in the language of Graphviz, with the colours of the other pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...ir.graph import Node
from ...ir.lines import Group
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
    """Return a graph; groups are clusters, results are bold, updates dashed.

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
    groups: dict[Group, list[Node]] = {}
    for node, i in number.items():
        lines.append(f"  n{i} [{_look(node, node in returned, source, writer)}];")
        if node.line is not None and node.line.group is not None:
            groups.setdefault(node.line.group, []).append(node)
        for position, operand in enumerate(node.inputs):
            mark = f' [label="{position}"]' if len(node.inputs) > 1 else ""
            lines.append(f"  n{number[operand]} -> n{i}{mark};")
    for variable, value in updates:
        lines.append(
            f'  n{number[value]} -> n{number[variable]} '
            '[style="dashed", label="update", constraint="false"];'
        )
    lines += _clusters(groups, number)
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


def _clusters(groups: dict[Group, list[Node]], number: dict[Node, int]) -> list[str]:
    """Return a cluster for each group, those within inside of it."""
    ids: dict[Group, int] = {}
    inner: dict[Group | None, list[Group]] = {}
    for group in groups:
        for around in group.around():
            if around not in ids:
                ids[around] = len(ids)
                inner.setdefault(around.parent, []).append(around)

    def written(group: Group, indent: str) -> list[str]:
        lines = [f"{indent}subgraph cluster_{ids[group]} {{"]
        lines.append(f"{indent}  label={_quoted(group.name)};")
        for within in inner.get(group, ()):
            lines += written(within, indent + "  ")
        members = " ".join(f"n{number[node]};" for node in groups.get(group, ()))
        return [*lines, f"{indent}  {members}", f"{indent}}}"]

    return [line for group in inner.get(None, ()) for line in written(group, "  ")]


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
