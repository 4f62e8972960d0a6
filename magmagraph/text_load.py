"""Graphs and plans from the text that `magmagraph.text.dump` writes.

Every operation is made anew by its record, so that a text cannot say what no graph could be: a
type that its rule does not give, an operand that comes later, a constant whose elements do not fit
are errors, each with the number of its line.
"""

from __future__ import annotations

import ast
import json
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dims
from .dims import Constraint
from .errors import GraphError, MagmagraphError, message
from .graph import Graph, Interner, Key, Node
from .op import Call, Effect, Op
from .ops import TABLE
from .ops.leaf import INPUT, PARAMETER, VARIABLE, Variable
from .state import State
from .text import DTYPES, decoded, default_inputs, digest, read_elements
from .types import Extent, Type

_NODE = re.compile(r"%(\d+) = (\w+)\(")
_OPERAND = re.compile(r"%(\d+)")
_ATTRIBUTE = re.compile(r"(\w+)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)")
_TYPE = re.compile(r"(\w+)\[(.*)\]")
_ELIDED = re.compile(r"\[.*\.\.\. (\d+) values (@\w+)\]")
_CONSTRAINT = re.compile(r"(.+) (==|>=) (.+)")
_REQUIRE = re.compile(r"require (.+) at %(\d+)")
_UPDATE = re.compile(r"update %(\d+) = %(\d+)")
_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}


def load(
    text: str,
    *,
    data: Mapping[str, np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
) -> Any:
    """Return the graph or plan of a text.

    Parameters
    ----------
    text
        What `dump` wrote.
    data
        Arrays of long constants by digest, where the text does not hold them.
    values
        What the variables hold, in the order in which the text has them; zeros unless given.

    Returns
    -------
    Graph or Plan
        With inputs and variables of its own. Its dump is the same text.

    Raises
    ------
    GraphError, PlanError
        The text is truncated or damaged; the message has the line's number and what was expected.

    Examples
    --------
    >>> from magmagraph.text import dump
    >>> text = '''%0 = input() : float32[batch, 3]  # x
    ... %1 = exp(%0) : float32[batch, 3]
    ... return %1'''
    >>> graph = load(text)
    >>> graph.outputs
    (<exp float32[batch, 3]>,)
    >>> dump(graph) == text
    True
    """
    head = text.lstrip().split("\n", 1)[0]
    if head == "plan" or head.startswith("plan "):
        from .text_plan import load_plan

        return load_plan(text, data=data, values=values)
    reader = Reader(text, GraphError, data, values)
    return reader.graph(reader.rows(), "the text")


@dataclass(frozen=True)
class Row:
    """A line, and the bodies that are written inside of it.

    Attributes
    ----------
    number
        Of its first line in the text, from 1.
    text
        The line; ``{0}``, ``{1}``, ... stand for bodies.
    bodies
        The rows of each body.
    end
        Number of its last line.
    """

    number: int
    text: str
    bodies: tuple[tuple[Row, ...], ...]
    end: int


class Reader:
    """One text that is being read.

    Parameters
    ----------
    text
        The text.
    error
        The class of its errors.
    data, values
        As of `load`.
    """

    def __init__(
        self,
        text: str,
        error: type[MagmagraphError],
        data: Mapping[str, np.ndarray] | None = None,
        values: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.error = error
        self.line = 1
        self._lines = text.split("\n")
        self._given = dict(data or {})
        self._data: dict[str, tuple[int, str]] = {}
        self._values: Iterator[np.ndarray] | None = None if values is None else iter(values)
        self._anonymous: dict[str, Extent] = {}
        self._extents: dict[str, Extent] = {}
        self._types: dict[str, Type] = {}

    def wrong(self, what: str, need: str | None = None, line: int | None = None) -> MagmagraphError:
        """Make (not raise) an error about a line, the present one unless said."""
        return self.error(message(f"line {self.line if line is None else line}: {what}", need))

    # ------------------------------------------------------------------ rows

    def rows(self) -> list[Row]:
        """Return the rows of the text; lines of data are taken out."""
        rows: list[Row] = []
        at = 0
        while at < len(self._lines):
            row, at = self._row(at)
            if row is not None:
                rows.append(row)
        return rows

    def _row(self, at: int) -> tuple[Row | None, int]:
        """Return the row that begins at a position, and the position after it."""
        line = self._lines[at].strip()
        number = at + 1
        at += 1
        if not line or line[0] == "#":
            return None, at
        if line.startswith("data "):
            name, equals, content = line[5:].partition(" = ")
            if not equals:
                raise self.wrong(f"{line[:40]!r}", "data @digest = base64", number)
            self._data[name] = (number, content)
            return None, at
        if line[0] == "}":
            raise self.wrong("a body ends that did not begin", line=number)
        bodies: list[tuple[Row, ...]] = []
        pieces = [line]
        while pieces[-1].endswith("{"):
            inside: list[Row] = []
            while True:
                if at >= len(self._lines):
                    raise self.wrong(
                        f"the text ends inside the body that begins in line {number}",
                        "a line that starts with }",
                        len(self._lines),
                    )
                if self._lines[at].lstrip().startswith("}"):
                    break
                row, at = self._row(at)
                if row is not None:
                    inside.append(row)
            pieces[-1] += str(len(bodies))
            bodies.append(tuple(inside))
            pieces.append(self._lines[at].strip())
            at += 1
        return Row(number, "".join(pieces), tuple(bodies), at), at

    # ------------------------------------------------------------------ graphs

    def graph(self, rows: Sequence[Row], what: str) -> Graph:
        """Return the graph of the rows of a text or a body."""
        return _GraphReader(self, rows).read(what)

    # ------------------------------------------------------------------ parts of lines

    def extent(self, text: str) -> Extent:
        """Return an extent; anonymous dimensions are new ones."""
        found = self._extents.get(text)
        if found is None:
            try:
                found = dims.parse(text)
            except MagmagraphError:
                raise self.wrong(f"{text!r}", "an extent, as '2*batch + 1'") from None
            anonymous = [name for name in dims.names(found) if name[0] == "?"]
            if anonymous:
                for number in range(1 + max(int(name[1:]) for name in anonymous)):
                    if f"?{number}" not in self._anonymous:
                        self._anonymous[f"?{number}"] = dims.anonymous()
                found = dims.substitute(found, self._anonymous)
            self._extents[text] = found
        return found

    def type(self, text: str) -> Type:
        """Return a type, as ``float32[batch, 3]``."""
        found = self._types.get(text)
        if found is None:
            match = _TYPE.fullmatch(text)
            if match is None or match[1] not in DTYPES:
                raise self.wrong(f"{text!r}", "a type, as float32[batch, 3]")
            extents = tuple(map(self.extent, self.split(match[2])))
            found = self._types[text] = Type(DTYPES[match[1]], extents)
        return found

    def types(self, text: str) -> Any:
        """Return a type, or the tuple of those of several results."""
        if text.startswith("("):
            return tuple(map(self.type, self.split(text[1:-1])))
        return self.type(text)

    def constraint(self, text: str) -> Constraint:
        """Return a relation between extents."""
        match = _CONSTRAINT.fullmatch(text)
        if match is None:
            raise self.wrong(f"{text!r}", "a relation, as 'batch >= 1' or 'n == 2*m'")
        relation: Any = match[2]
        return Constraint(self.extent(match[1]), relation, self.extent(match[3]))

    def split(self, text: str, start: int = 0, end: str = "") -> list[str]:
        """Return the parts between commas that stand in no bracket and in no string.

        With `end`, the list ends at that bracket, and its position is the last part.
        """
        if not end and not any(c in text for c in "([{'\""):
            return [part.strip() for part in text.split(",") if part.strip()]
        parts: list[str] = []
        depth = 0
        begin = at = start
        while at < len(text):
            c = text[at]
            if c in "'\"":
                at += 1
                while at < len(text) and text[at] != c:
                    at += 2 if text[at] == "\\" else 1
            elif c in "([{":
                depth += 1
            elif c in ")]}":
                if depth == 0 and c == end:
                    break
                depth -= 1
            elif c == "," and depth == 0:
                parts.append(text[begin:at].strip())
                begin = at + 1
            at += 1
        if depth or (end and at >= len(text)):
            raise self.wrong(
                f"{text[start:][:60]!r} ends before a bracket is closed", end or "a closing bracket"
            )
        parts.append(text[begin:at].strip())
        if parts[-1] == "":
            parts.pop()
        return [*parts, str(at)] if end else parts

    def value(self, text: str, row: Row | None = None, type_: Type | None = None) -> Any:
        """Return an attribute; `type_` is that of the constant whose elements it is."""
        if type_ is not None:
            return self.elements(text, type_)
        if _NUMBER.fullmatch(text):
            return int(text)
        if text in _WORDS:
            return _WORDS[text]
        if text in DTYPES:
            return DTYPES[text]
        if _FLOAT.fullmatch(text):
            return float(text)
        if text[:1] in ("'", '"'):
            return self._string(text)
        if text.startswith("{") and text.endswith("}") and row is not None:
            return self._body(text, row)
        if text.startswith("array(") and text.endswith(")"):
            parts = self.split(text[6:-1])
            if len(parts) != 2:
                raise self.wrong(f"{text!r}", "array(type, elements)")
            return self.elements(parts[1], self.type(parts[0]))
        if text.startswith("(") and self.split(text, 1, ")")[-1] == str(len(text) - 1):
            parts = self.split(text[1:-1])
            if len(parts) == 1 and not text.endswith(",)"):
                return self.extent(parts[0])
            return tuple([self.value(part, row) for part in parts])
        if _TYPE.fullmatch(text):
            return self.type(text)
        return self.extent(text)

    def _string(self, text: str) -> str:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found = None
        if not isinstance(found, str):
            raise self.wrong(f"{text!r}", "a string in quotes")
        return found

    def _body(self, text: str, row: Row) -> Graph:
        index = text[1:-1]
        if not index.isdigit() or int(index) >= len(row.bodies):
            raise self.wrong(f"{text!r}", "a body: { at the end of the line, then its lines")
        body = self.graph(row.bodies[int(index)], f"the body that begins in line {row.number}")
        self.line = row.number
        return body

    def elements(self, text: str, type_: Type) -> np.ndarray:
        """Return the elements of a constant."""
        if not all(isinstance(extent, int) for extent in type_.shape):
            raise self.wrong(f"a constant of type {type_}", "a shape of ints")
        shape: tuple[int, ...] = type_.shape  # type: ignore[assignment]
        elided = _ELIDED.fullmatch(text)
        try:
            if elided is None:
                array = read_elements(text, type_.dtype, shape)
            else:
                array = self._long(elided[2], type_.dtype, shape)
        except (ValueError, KeyError, OverflowError):
            raise self.wrong(f"{text[:60]!r}", f"elements of a constant {type_}") from None
        array.flags.writeable = False
        return array

    def _long(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        if name in self._given:
            array = self._given[name]
        elif name in self._data:
            number, content = self._data[name]
            try:
                array = decoded(content, dtype, shape)
            except ValueError as error:
                raise self.wrong(
                    f"the data {name} are damaged: {error}",
                    f"base64 of {dtype.name} {list(shape)}",
                    number,
                ) from None
        else:
            raise self.wrong(
                f"the elements {name} of a constant are missing", f"a line 'data {name} = ...'"
            )
        if array.shape != shape or array.dtype != dtype or digest(array) != name:
            raise self.wrong(
                f"the data {name} are damaged: their digest is {digest(array)}",
                f"the elements of {dtype.name} {list(shape)} that were saved",
                self._data[name][0] if name in self._data else None,
            )
        return np.array(array)

    def record(self, name: str) -> Op:
        """Return the record of an operation."""
        op = TABLE.get(name)
        if not isinstance(op, Op):
            raise self.wrong(f"there is no operation {name!r}", "an operation of magmagraph")
        return op

    def name(self, text: str) -> str | None:
        """Return the name that a line ends with, None where it has none."""
        if not text:
            return None
        if not text.startswith("  # "):
            raise self.wrong(f"{text!r} at the end", "nothing, or '  # name'")
        if text[4:5] != '"':
            return text[4:]
        try:
            found = json.loads(text[4:])
        except ValueError:
            found = None
        if not isinstance(found, str):
            raise self.wrong(f"{text[4:]!r} at the end", "a name in double quotes")
        return found

    def leaf(self, op: Op, attrs: dict[str, Any], type_: Any, name: str | None) -> Node:
        """Return a leaf with what its line does not show: who it is, and its type."""
        if op is VARIABLE:
            attrs["state"] = self.state(name or "", type_)
        else:
            wanted = _keywords(op)
            if op is INPUT:
                attrs["key"] = Key(name or "")
            for word, known in (("dtype", type_.dtype), ("shape", type_.shape)):
                if word in wanted and word not in attrs:
                    attrs[word] = known
        return self.make(op, (), attrs, name)

    def state(self, name: str, type_: Any) -> State:
        """Return the buffer of the next variable."""
        value = None if self._values is None else next(self._values, None)
        if value is None:
            if not all(isinstance(extent, int) for extent in type_.shape):
                raise self.wrong(f"a variable of type {type_}", "a shape of ints")
            value = np.zeros(type_.shape, type_.dtype)
        if value.shape != type_.shape or value.dtype != type_.dtype:
            raise self.wrong(
                f"variable '{name}' is {type_}",
                f"the type of its value, {value.dtype.name}{list(value.shape)}",
            )
        return State(value, name)

    def make(self, op: Op, inputs: tuple[Node, ...], attrs: dict[str, Any], name: str | None) -> Node:
        """Apply an operation by its record; what its rule says against it is an error."""
        call = Call(op, inputs)
        try:
            type_ = op.rule(call, *[node.type for node in inputs], **attrs)
        except (MagmagraphError, TypeError, ValueError, IndexError, KeyError) as error:
            raise self.wrong(f"{op.name} refuses its operands: {error}") from None
        kind = Variable if op is VARIABLE else Node
        return kind(op, inputs, attrs, type_, name, None, tuple(call.constraints))


_known_keywords: dict[Op, frozenset[str]] = {}


def _keywords(op: Op) -> frozenset[str]:
    """Return the attributes that an operation's rule asks for by name."""
    found = _known_keywords.get(op)
    if found is None:
        code: Any = getattr(op.rule, "__code__", None)
        count = code.co_argcount + code.co_kwonlyargcount if code else 0
        found = frozenset(code.co_varnames[:count] if code else ())
        _known_keywords[op] = found
    return found


class _GraphReader:
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
        inputs = default_inputs(nodes) if self.inputs is None else self.inputs
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
                    raise reader.wrong(f"{row.text!r}", "require batch >= 1 at %0")
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
            array = wanted if not inputs and attribute[1] == "value" else None
            attrs[attribute[1]] = reader.value(attribute[2], row, array)
        named = reader.name(mark + name)
        if inputs:
            node = reader.make(op, tuple(inputs), attrs, named)
        else:
            node = reader.leaf(op, attrs, wanted, named)
        if node.type != wanted:
            raise reader.wrong(f"%{number} is {shown[3:]}", f"{node.type}, by the rule of {op.name}")
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
                raise self.reader.wrong(f"{text!r}", "nodes, as %0, %1")
            nodes.append(self._at(match[1]))
        return nodes

    def _return(self, text: str) -> None:
        if self.outputs is not None:
            raise self.reader.wrong("a second return", "one return line")
        self.outputs = self._list(text[len("return ") :])

    def _inputs(self, text: str) -> None:
        self.inputs = self._list(text[len("inputs ") :])

    def _effect(self, text: str) -> None:
        self.effects += self._list(text[len("effect ") :])

    def _schedule(self, text: str) -> None:
        self.scheduled = True

    def _update(self, text: str) -> None:
        match = _UPDATE.fullmatch(text)
        if match is None:
            raise self.reader.wrong(f"{text!r}", "update %0 = %1")
        variable, value = self._at(match[1]), self._at(match[2])
        if variable.op.effect is not Effect.STATE:
            raise self.reader.wrong(f"%{match[1]} is no variable", "update variable = new value")
        if variable.type != value.type:
            raise self.reader.wrong(f"the new value is {value.type}", f"{variable.type}")
        self.updates.append((variable, value))
