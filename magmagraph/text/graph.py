"""One graph, or one body, from the rows of a text."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dims import Constraint
from ..graph import Graph, Interner, Node
from ..op import Effect
from ..ops.leaf import PARAMETER
from ..types import Type
from .reading import Reader
from .rows import Row
from .writing import default_inputs

_NODE = re.compile(r"%(\d{1,18}) = ([\w.]+)\(")
_OPERAND = re.compile(r"%(\d{1,18})")
_ATTRIBUTE = re.compile(r"(\w+)=(.*)", re.DOTALL)
_REQUIRE = re.compile(r"require (.+) at %(\d{1,18})")
_UPDATE = re.compile(r"update %(\d{1,18}) = %(\d{1,18})")


class GraphReader:
    """The rows of one graph that is being read."""

    def __init__(self, reader: Reader, rows: Sequence[Row]) -> None:
        self.reader = reader
        self.rows = rows
        self.nodes: dict[int, Node] = {}
        self.interner = Interner()
        self.inputs: list[Node] | None = None
        self.outputs: list[Node] | None = None
        self.updates: list[tuple[Node, Node]] = []
        self.effects: list[Node] = []
        self.scheduled = False

    def read(self, what: str) -> Graph:
        """Return the graph."""
        reader = self.reader
        last = 1
        required = self._required()
        words: dict[str, Callable[[str], None]] = {
            "return": self._return,
            "update": self._update,
            "effect": self._effect,
            "inputs": self._inputs,
            "scheduled": self._schedule,
            "require": lambda text: None,
        }
        for row in self.rows:
            reader.line = row.number
            last = row.end
            if row.text[0] == "%":
                self._node(row, required)
                continue
            word = row.text.partition(" ")[0]
            if word not in words:
                raise reader.wrong(
                    f"{row.text[:60]!r}",
                    "'%0 = operation(...) : type', or one of " + ", ".join(words),
                )
            words[word](row.text)
        if self.outputs is None:
            raise reader.wrong(f"{what} ends before it returns anything", "a return line", last)
        nodes = tuple(self.nodes.values())
        leaves = default_inputs(nodes)
        inputs = leaves if self.inputs is None else self.inputs
        if sorted(map(id, inputs)) != sorted(map(id, leaves)):
            raise reader.wrong(
                f"{what} has the inputs {', '.join(map(repr, inputs[:4]))}",
                "each input and each parameter once, and nothing else",
                last,
            )
        if all(node.op is PARAMETER for node in inputs) and self.inputs is None:
            inputs.sort(key=lambda node: int(node.attrs["index"]))
        graph = Graph(
            tuple(inputs),
            tuple(self.outputs),
            tuple(self.updates),
            self.interner,
            tuple(self.effects),
            nodes if self.scheduled else None,
        )
        self._check_reached(graph)
        return graph

    def _required(self) -> dict[int, list[Constraint]]:
        """Return the relations that the rows ask of each node."""
        reader = self.reader
        required: dict[int, list[Constraint]] = {}
        for row in self.rows:
            if row.text.startswith("require "):
                reader.line = row.number
                match = _REQUIRE.fullmatch(row.text)
                if match is None:
                    raise reader.wrong(f"{row.text[:60]!r}", "require batch >= 1 at %0")
                required.setdefault(int(match[2]), []).append(reader.constraint(match[1]))
        return required

    def _check_reached(self, graph: Graph) -> None:
        if self.scheduled or len(graph.nodes) == len(self.nodes):
            return
        reached = set(graph.nodes)
        for row in self.rows:
            match = _NODE.match(row.text)
            if match is not None and self.nodes[int(match[1])] not in reached:
                raise self.reader.wrong(
                    f"nothing that is returned needs %{match[1]}",
                    "a whole text: is its end cut off?",
                    row.number,
                )

    # ------------------------------------------------------------------ rows

    def _node(self, row: Row, required: Mapping[int, list[Constraint]]) -> None:
        reader = self.reader
        text = row.text
        match = _NODE.match(text)
        if match is None:
            raise reader.wrong(f"{text[:60]!r}", "%0 = operation(...) : type")
        number = int(match[1])
        if number in self.nodes:
            raise reader.wrong(f"%{number} is defined twice", "a new number")
        op = reader.record(match[2])
        *parts, end = reader.split(text, match.end(), ")")
        rest = text[int(end) + 1 :]
        shown, mark, name = rest.partition("  # ")
        if not shown.startswith(" : "):
            raise reader.wrong(f"{rest[:60]!r} after the operation", "' : ' and a type")
        wanted = reader.types(shown[3:])
        inputs: list[Node] = []
        attrs: dict[str, Any] = {}
        for part in parts:
            operand = _OPERAND.fullmatch(part)
            if operand is not None:
                inputs.append(self._at(operand[1]))
                continue
            attribute = _ATTRIBUTE.fullmatch(part)
            if attribute is None:
                raise reader.wrong(f"{part[:60]!r}", "an operand as %0, or name=value")
            if attribute[1] in attrs:
                raise reader.wrong(f"{attribute[1][:40]} is given twice", "one value")
            elements = not inputs and attribute[1] == "value" and isinstance(wanted, Type)
            attrs[attribute[1]] = reader.value(
                attribute[2], row, wanted if elements and isinstance(wanted, Type) else None
            )
        named = reader.name(mark + name)
        if inputs:
            node = reader.make(op, tuple(inputs), attrs, named)
        else:
            node = reader.leaf(op, attrs, wanted, named)
        if node.type != wanted:
            raise reader.wrong(
                f"%{number} is {shown[3:]}", f"{node.type}, by the rule of {op.name}"
            )
        extra = [c for c in required.get(number, ()) if c not in node.constraints]
        if extra:
            node.constraints = (*node.constraints, *extra)
        self.nodes[number] = self._member(node)

    def _member(self, node: Node) -> Node:
        member = self.interner.make(node, node.inputs)
        owner = node.attrs.get("key", node.attrs.get("state"))
        if owner is not None:
            owner.node = weakref.ref(member)
        return member

    def _at(self, number: str) -> Node:
        node = self.nodes.get(int(number))
        if node is None:
            raise self.reader.wrong(f"%{number} is not defined", "an operand of an earlier line")
        return node

    def _list(self, text: str) -> list[Node]:
        nodes: list[Node] = []
        for part in text.split(",") if text else ():
            match = _OPERAND.fullmatch(part.strip())
            if match is None:
                raise self.reader.wrong(f"{text[:60]!r}", "nodes, as %0, %1")
            nodes.append(self._at(match[1]))
        return nodes

    def _return(self, text: str) -> None:
        if self.outputs is not None:
            raise self.reader.wrong("a second return", "one return line")
        self.outputs = self._list(text[len("return ") :])

    def _inputs(self, text: str) -> None:
        self.inputs = self._list(text[len("inputs ") :])

    def _effect(self, text: str) -> None:
        nodes = self._list(text[len("effect ") :])
        if any(node.op.effect is not Effect.ORDERED for node in nodes):
            raise self.reader.wrong(f"{text[:60]!r}", "operations that run for their effect")
        self.effects += nodes

    def _schedule(self, text: str) -> None:
        self.scheduled = True

    def _update(self, text: str) -> None:
        match = _UPDATE.fullmatch(text)
        if match is None:
            raise self.reader.wrong(f"{text[:60]!r}", "update %0 = %1")
        variable, value = self._at(match[1]), self._at(match[2])
        if variable.op.effect is not Effect.STATE:
            raise self.reader.wrong(f"%{match[1]} is no variable", "update variable = new value")
        if variable.type != value.type:
            raise self.reader.wrong(f"the new value is {value.type}", f"{variable.type}")
        if any(variable is other for other, _ in self.updates):
            raise self.reader.wrong(f"%{match[1]} is updated twice", "one new value")
        self.updates.append((variable, value))
