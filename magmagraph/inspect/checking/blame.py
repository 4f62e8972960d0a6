"""Who made the first value that is not finite and reaches a result or a variable."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import MagmagraphError
from ...ir.graph import Graph, Node
from ...ir.html import Displayed
from ...ir.op import Kind, describe
from ...ops.control.observing import range_of
from ..values import latest
from .difference import is_finite, widest
from .running import Feeds, bind, run_once

_SPOILED = 5  # results that the text names
_QUICK = 5_000_000_000  # operations that the interpreter does in a second or so


@dataclass(frozen=True)
class Operand:
    """An operand of the node to blame.

    node: The user's node.
    range: Where its values lie, in words.
    value: The element at which the result is not finite, of elementwise operations; else None.
    """

    node: Node
    range: str
    value: complex | None = None


@dataclass(frozen=True)
class NonFinite(Displayed):
    """The node to blame for values that are not finite.

    node: The user's node; an input, a variable or a constant where these held them already.
    lines: The user's lines that made it.
    range: Where its values lie, in words.
    place: Index of the first element that is NaN or, where none is, infinite.
    operands: What it was given.
    forward: For a node of a gradient: the nearest node of the forward pass that it is made of.
    spoils: The results and variables that it makes not finite.
    """

    node: Node
    lines: tuple[str, ...]
    range: str
    place: tuple[int, ...]
    operands: tuple[Operand, ...]
    forward: Node | None
    spoils: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "node": describe(self.node),
            "operation": self.node.op.name,
            "lines": list(self.lines),
            "range": self.range,
            "place": list(self.place),
            "operands": [
                {"node": describe(part.node), "range": part.range,
                 "value": None if part.value is None else str(part.value)}
                for part in self.operands
            ],
            "forward": None if self.forward is None else describe(self.forward),
            "spoils": list(self.spoils),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return it as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def __str__(self) -> str:
        leaf = self.node.op.kind is Kind.LEAF
        verb = "holds" if leaf else "makes"
        scope = self.node.line.scope if self.node.line else ""
        place = f" in '{scope}'" if scope else ""
        lines = [f"{describe(self.node)}{place} {verb} the first value that is not finite"]
        lines.append(f"  its values: {self.range}, the first at {self.place}")
        for part in self.operands:
            at = "" if part.value is None else f", there {part.value:.6g}"
            lines.append(f"  operand: {describe(part.node)}, {part.range}{at}")
        if self.forward is not None:
            lines.append(f"  in the gradient of: {describe(self.forward)}")
        lines += [f"  equal at: {line}" for line in self.lines if line != str(self.node.line)]
        shown = ", ".join(self.spoils[:_SPOILED])
        more = f" and {len(self.spoils) - _SPOILED} more" if len(self.spoils) > _SPOILED else ""
        lines.append(f"  it reaches: {shown}{more}")
        return "\n".join(lines)


def blame(function: Any, *feeds: Any, **named: Any) -> NonFinite | None:
    """Return who made the first value that is not finite; see `magmagraph.checks.debug.blame`."""
    return _blame(function, bind(function, feeds, named))


def append_blame(function: Any, arrays: Sequence[Any], error: MagmagraphError) -> None:
    """Add to an error about values that are not finite who made the first, if that is quick."""
    blame: NonFinite | None = None
    with contextlib.suppress(MagmagraphError, MemoryError):  # the error itself must not be lost
        bound = bind(function, arrays, {})
        if sum(int(step.flops) for step in bound.bound.plan.steps) <= _QUICK:
            blame = _blame(function, bound)
    if blame is not None:
        error.args = (f"{error}\n  {str(blame).replace(chr(10), chr(10) + '  ')}", *error.args[1:])


def _blame(function: Any, feeds: Feeds) -> NonFinite | None:
    source: Graph = function.source_graph
    roots = [*source.outputs, *(value for _, value in source.updates)]
    labels = [
        *(f"output {i}" for i in range(len(source.outputs))),
        *(f"variable '{variable.name}'" for variable, _ in source.updates),
    ]
    results, refused = run_once(function, feeds)
    values = latest(function, feeds, source.nodes)
    bad = [
        (label, root)
        for i, (label, root) in enumerate(zip(labels, roots, strict=True))
        # A run that was refused gives nothing: then what the interpreter finds counts.
        if not is_finite(values[root] if refused else results[i]) and not is_finite(values[root])
    ]
    if not bad:
        return None
    reached = _reached([root for _, root in bad], values)
    guilty = _first(source, reached, values)
    spoils = tuple(label for label, root in bad if guilty in _reached([root], values))
    return _told(function, guilty, values, spoils)


def _reached(roots: Sequence[Node], values: Mapping[Node, Any]) -> set[Node]:
    """Return what leads to the roots through values that are not finite."""
    reached = set(roots)
    pending = list(roots)
    while pending:
        for operand in pending.pop().inputs:
            if operand not in reached and not is_finite(values[operand]):
                reached.add(operand)
                pending.append(operand)
    return reached


def _first(source: Graph, reached: set[Node], values: Mapping[Node, Any]) -> Node:
    """Return the first node, in the order of the graph, that makes what was not there."""
    written: Node | None = None
    for node in source.nodes:
        if node not in reached:
            continue
        if node.op.kind is Kind.LEAF:
            if "value" not in node.attrs:
                return node
            written = written or node  # an infinity that is written down may be meant
        elif all(is_finite(values[operand]) for operand in node.inputs) or (
            _has_nan(values[node]) and not any(_has_nan(values[o]) for o in node.inputs)
        ):
            return node
    assert written is not None, "what is not finite comes from somewhere"
    return written


def _has_nan(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_nan, value))
    array = np.asarray(value)
    return array.dtype.kind not in "iub" and bool(np.isnan(widest(array)).any())


def _told(
    function: Any, node: Node, values: Mapping[Node, Any], spoils: tuple[str, ...]
) -> NonFinite:
    sources = function.trace.sources
    value = values[node]
    parts = value if isinstance(value, tuple) else (value,)
    part = next((p for p in parts if _has_nan(p)), None)
    if part is None:
        part = next(p for p in parts if not is_finite(p))
    wide = widest(np.asarray(part))
    # Where there are NaNs, infinities beside them may be meant.
    wrong = np.isnan(wide) if _has_nan(part) else ~np.isfinite(wide)
    place = tuple(map(int, np.argwhere(wrong)[0]))
    users: list[Node] = sources.get(node) or [node]
    operands = tuple(
        Operand(
            (sources.get(operand) or [operand])[0],
            _range(values[operand]),
            _element(node, part, values[operand], place),
        )
        for operand in dict.fromkeys(node.inputs)
    )
    return NonFinite(
        node=users[0],
        lines=tuple(dict.fromkeys(str(user.line) for user in users if user.line)),
        range=_range(part),
        place=place,
        operands=operands,
        forward=_forward(function, node),
        spoils=spoils,
    )


def _range(value: Any) -> str:
    if isinstance(value, tuple):
        return "; ".join(map(range_of, value))
    return range_of(value)


def _element(node: Node, result: Any, operand: Any, place: tuple[int, ...]) -> complex | None:
    """Return an operand's element at a place of the result, where that is one element's doing."""
    if node.op.kind is not Kind.ELEMENTWISE or isinstance(operand, tuple):
        return None
    element = np.broadcast_to(np.asarray(operand), np.shape(result))[place]
    return complex(element) if np.iscomplexobj(element) else float(element)


def _forward(function: Any, node: Node) -> Node | None:
    """Return, for a node of a gradient, the nearest node below it of the same line forwards."""
    sources = function.trace.sources

    def user(member: Node) -> Node:
        source: Node = (sources.get(member) or [member])[0]
        return source

    line = user(node).line
    if line is None or line.group is None or not line.group.in_gradient:
        return None
    seen = {node}
    pending = [node]
    nearest: Node | None = None
    for member in pending:  # grows as it is walked
        for operand in member.inputs:
            if operand in seen:
                continue
            seen.add(operand)
            pending.append(operand)
            found = user(operand)
            operand_line = found.line
            if not operand.inputs or operand_line is None:
                continue
            if operand_line.group is not None and operand_line.group.in_gradient:
                continue
            if (operand_line.file, operand_line.number) == (line.file, line.number):
                return found
            nearest = found if nearest is None else nearest
    return nearest
