"""Graphs as text: one line per node, operands first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .graph import Graph, Node

_SHOWN = 8  # elements of a constant that are written out
_HIDDEN = frozenset(("key", "state", "dtype", "shape"))  # of leaves: the line shows their type


def dump(graph: Graph) -> str:
    """Return a graph as text.

    Every node has a number; leaves come where they are first read. The last lines give what is
    returned and which variables are renewed.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.graph import freeze
    >>> x = mg.input("x", shape=("batch", 3))
    >>> print(dump(freeze([x], [mg.add(x, x)])))
    %0 = input() : float32[batch, 3]  # x
    %1 = add(%0, %0) : float32[batch, 3]
    return %1
    """
    number = {node: i for i, node in enumerate(graph.nodes)}
    lines = [line(node, number) for node in graph.nodes]
    lines += [f"effect %{number[node]}" for node in graph.effects]
    if graph.outputs:
        lines.append("return " + ", ".join(f"%{number[node]}" for node in graph.outputs))
    lines += [f"update %{number[variable]} = %{number[v]}" for variable, v in graph.updates]
    return "\n".join(lines)


def line(node: Node, number: Mapping[Node, int]) -> str:
    """Return the line of one node."""
    parts = [f"%{number[operand]}" for operand in node.inputs]
    leaf = not node.inputs
    parts += [
        f"{name}={attribute(value)}"
        for name, value in node.attrs.items()
        if not (leaf and name in _HIDDEN)
    ]
    label = f"  # {node.name}" if node.name else ""
    return f"%{number[node]} = {node.op.name}({', '.join(parts)}) : {_types(node)}{label}"


def _types(node: Node) -> str:
    if isinstance(node.type, tuple):
        return "(" + ", ".join(map(repr, node.type)) + ")"
    return repr(node.type)


def attribute(value: Any) -> str:
    """Return an attribute as text; long constants are shortened."""
    if isinstance(value, np.ndarray):
        if value.size > _SHOWN:
            shown = ", ".join(str(v) for v in value.ravel()[:3].tolist())
            return f"[{shown}, ... {value.size} values]"
        return str(value.tolist())
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, tuple):
        return "(" + ", ".join(map(attribute, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, Graph):
        return "{" + "; ".join(dump(value).splitlines()) + "}"
    return repr(value)
