"""Graphs and plans from the text that `magmagraph.text.writing.dump` writes.

Every operation is built again by its record, so that a text cannot say what no graph could be: a
type that its rule does not give, an operand that comes later, a constant whose elements do not fit
are errors, each with the number of its line.
"""

from __future__ import annotations

import ast
import json
import math
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..codegen.region.analysis import Region, analyze
from ..errors import GraphError, MagmagraphError, PlanError, ShapeError
from ..files.reading import Damaged
from ..functional.custom import OWN
from ..ir import dims
from ..ir.attributes import LARGEST
from ..ir.collection import collection_paused
from ..ir.dims import Constraint
from ..ir.dims.algebra import LongExtent
from ..ir.graph import Graph, Interner, Key, Node
from ..ir.op import Effect, Kind, Op
from ..ir.plan import WHOLE, KernelFamily, Place, Plan, Role, Slot, Step, Value
from ..ir.types import Extent, Type, TypeLike
from ..ir.values.state import State
from ..ops import TABLE
from ..ops.leaf import INPUT, PARAMETER, VARIABLE, Variable, parameter
from .rows import Row, Rows
from .writing import (
    DTYPES,
    SYMBOLIC,
    Code,
    bound_type,
    decoded,
    default_inputs,
    digest,
    read_elements,
)

_DIGITS = 20  # of an int: a seed has so many
_SKIPPED = 1000  # anonymous dimensions whose lines someone took out
_AXES = 64  # as many as NumPy's arrays have
_NUMBER = re.compile(r"-?\d+", re.ASCII)
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_UNNAMED = re.compile(r"\?(\d+)")
_FLOAT = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)")
_TYPE = re.compile(r"(\w+)\[(.*)\]")
_ELIDED = re.compile(r"\[.*\.\.\. (\d+) values (@\w+)\]")
_CODE = re.compile(r"<\w+>")
_CONSTRAINT = re.compile(r"(.+) (==|>=) (.+)")
_WORDS: dict[str, Any] = {"True": True, "False": False, "None": None}


def load(
    text: str,
    *,
    data: Mapping[str, np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
    families: Sequence[KernelFamily] = (),
) -> Any:
    """Return the graph or plan of a text.

    text: What `dump` wrote.
    data: Arrays of long constants by digest, where the text does not hold them.
    values: What the variables hold, in the order in which the text has them; zeros unless given.
    families: Of a plan: the kernel families that its steps may be of.
    returns (Graph or Plan): With inputs and variables of its own. Its dump is the same text.
    raises GraphError, PlanError: The text is truncated or damaged; the message has the line's
        number and what was expected.

    Examples
    --------
    >>> from magmagraph.text.writing import dump
    >>> text = '''%0 = input() : float32[batch, 3]  # x
    ... %1 = exp(%0) : float32[batch, 3]
    ... return %1'''
    >>> graph = load(text)
    >>> graph.outputs
    (<exp float32[batch, 3]>,)
    >>> dump(graph) == text
    True
    """
    if _begins_plan(text):
        return load_plan(text, families, data=data, values=values)
    with collection_paused():
        reader = Reader(text, GraphError, data, values)
        with reader.guarded():
            return reader.graph(reader.rows(), "the text")


def _begins_plan(text: str) -> bool:
    head = text.lstrip().split("\n", 1)[0]
    return head == "plan" or head.startswith("plan ")


def load_graph(
    text: str,
    place: str,
    *,
    data: Mapping[str, np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
) -> Graph:
    """Return the graph of a text in a file that is not trusted.

    text, data, values: As of `load`.
    place: Name the place of the text in the file.
    raises Damaged: The text is damaged, or that of a plan; the message names the place and the
        line.
    """
    if _begins_plan(text):
        raise Damaged(f"{place}: line 1: the text is that of a plan, and not of a graph")
    try:
        graph: Graph = load(text, data=data, values=values)
    except GraphError as error:
        raise Damaged(f"{place}: {error}") from error
    return graph


class Reader(Rows):
    """One text that is being read.

    text: The text.
    error: The class of its errors.
    data, values: As of `load`.
    """

    def __init__(
        self,
        text: str,
        error: type[MagmagraphError],
        data: Mapping[str, np.ndarray] | None = None,
        values: Sequence[np.ndarray] | None = None,
    ) -> None:
        super().__init__(text, error)
        self._given = dict(data or {})
        self._values: Iterator[np.ndarray] | None = None if values is None else iter(values)
        self._anonymous: dict[str, Extent] = {}
        self._extents: dict[str, Extent] = {}
        self._types: dict[str, Type] = {}
        self._bodies: set[tuple[int, int]] = set()  # line and number, of those that were read

    def graph(self, rows: Sequence[Row], what: str) -> Graph:
        """Return the graph of the rows of a text or a body."""
        return GraphReader(self, rows).read(what)

    # ------------------------------------------------------------------ parts of lines

    def extent(self, text: str) -> Extent:
        """Return an extent; anonymous dimensions are new ones."""
        found = self._extents.get(text)
        if found is None:
            try:
                self._number_anonymous(text)
                found = dims.substitute(dims.parse(text), self._anonymous)
            except LongExtent as error:
                raise self.wrong(str(error)) from None
            except (ShapeError, ArithmeticError, RecursionError, TypeError) as error:
                raise self.wrong(f"{text[:60]!r}", "an extent, as '2*batch + 1'") from error
            self._extents[text] = found
        return found

    def _number_anonymous(self, text: str) -> None:
        """Make the anonymous dimensions of an extent; those that a text skips are made, too."""
        numbers = [int(digits[:_DIGITS]) for digits in _UNNAMED.findall(text)]
        known, highest = len(self._anonymous), max(numbers, default=-1)
        if highest > known + _SKIPPED:
            raise self.wrong(f"the anonymous dimension ?{highest}", f"?{known} as the next one")
        for number in range(known, 1 + highest):
            self._anonymous[f"?{number}"] = dims.anonymous()

    def type(self, text: str) -> Type:
        """Return a type, as ``float32[batch, 3]``."""
        found = self._types.get(text)
        if found is None:
            match = _TYPE.fullmatch(text)
            if match is None or match[1] not in DTYPES:
                raise self.wrong(f"{text[:60]!r}", "a type, as float32[batch, 3]")
            extents = tuple(map(self.extent, self.split(match[2])))
            known = [extent for extent in extents if isinstance(extent, int)]
            if len(extents) > _AXES:
                raise self.wrong(f"a type of {len(extents)} axes", f"at most {_AXES}")
            if any(extent < 0 for extent in known):
                raise self.wrong(f"{text[:60]!r}", "extents of at least 0")
            if math.prod(filter(None, known)) * DTYPES[match[1]].itemsize > LARGEST:
                raise self.wrong(f"{text[:60]!r} has too many elements", f"{LARGEST} bytes")
            found = self._types[text] = Type(DTYPES[match[1]], extents)
        return found

    def types(self, text: str) -> TypeLike:
        """Return a type, or the tuple of those of several results."""
        if text.startswith("("):
            return tuple(map(self.type, self.split(text[1:-1])))
        return self.type(text)

    def shown(self, extent: Extent) -> str:
        """Return the beginning of an extent's text."""
        return str(extent)[:60]

    def constraint(self, text: str) -> Constraint:
        """Return a relation between extents."""
        match = _CONSTRAINT.fullmatch(text)
        if match is None:
            raise self.wrong(f"{text[:60]!r}", "a relation, as 'batch >= 1' or 'n == 2*m'")
        relation: Any = match[2]
        return Constraint(self.extent(match[1]), relation, self.extent(match[3]))

    def value(self, text: str, row: Row | None = None, type_: Type | None = None) -> Any:
        """Return an attribute; `type_` is that of the constant whose elements it is."""
        if type_ is not None:
            return self.elements(text, type_)
        if _NUMBER.fullmatch(text):
            if len(text) > _DIGITS:
                raise self.wrong(f"a number of {len(text)} digits", f"at most {_DIGITS}")
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
                raise self.wrong(f"{text[:60]!r}", "array(type, elements)")
            return self.elements(parts[1], self.type(parts[0]))
        if text.startswith("(") and self.split(text, 1, ")")[-1] == str(len(text) - 1):
            parts = self.split(text[1:-1])
            if len(parts) == 1 and not text.endswith(",)"):
                return self.extent(parts[0])
            return tuple([self.value(part, row) for part in parts])
        if _TYPE.fullmatch(text):
            return self.type(text)
        if _CODE.fullmatch(text):
            return Code(text[1:-1])
        return self.extent(text)

    def _string(self, text: str) -> str:
        try:
            found = ast.literal_eval(text) if _STRING.fullmatch(text) else None
        except (ValueError, SyntaxError):
            found = None
        if not isinstance(found, str):
            raise self.wrong(f"{text[:60]!r}", "a string in quotes")
        return found

    def _body(self, text: str, row: Row) -> Graph:
        index = text[1:-1]
        place = (row.number, int(index) if index.isdecimal() and len(index) < 9 else -1)
        if not 0 <= place[1] < len(row.bodies) or place in self._bodies:
            raise self.wrong(f"{text[:60]!r}", "a body: { at the end of the line, then its lines")
        self._bodies.add(place)
        body = self.graph(row.bodies[place[1]], f"the body that begins in line {row.number}")
        self.line = row.number
        return body

    def elements(self, text: str, type_: Type) -> np.ndarray:
        """Return the elements of a constant."""
        if not all(isinstance(extent, int) for extent in type_.shape):
            raise self.wrong(f"a constant of type {type_}", "a shape of ints")
        shape: tuple[int, ...] = type_.shape  # type: ignore[assignment]
        elided = _ELIDED.fullmatch(text)
        if elided is not None:
            array = self._long(elided[2], type_.dtype, shape)
        else:
            try:
                array = read_elements(text, type_.dtype, shape)
            except (ValueError, KeyError, OverflowError):
                raise self.wrong(f"{text[:60]!r}", f"elements of a constant {type_}") from None
        array.flags.writeable = False
        return array

    def _long(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        if name in self._given:
            array = self._given[name]
        elif name in self.data:
            number, content = self.data[name]
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
                self.data[name][0] if name in self.data else None,
            )
        return np.array(array)

    def record(self, name: str) -> Op:
        """Return the record of an operation."""
        op = TABLE.get(name, OWN.get(name))
        if not isinstance(op, Op):
            own = "an mg.Operation whose module is imported before"
            need = own if "." in name else "an operation of magmagraph"
            raise self.wrong(f"there is no operation {name[:60]!r}", need)
        return op

    def name(self, text: str) -> str | None:
        """Return the name that a line ends with, None where it has none."""
        if not text:
            return None
        if not text.startswith("  # "):
            raise self.wrong(f"{text[:60]!r} at the end", "nothing, or '  # name'")
        if text[4:5] != '"':
            return text[4:]
        try:
            found = json.loads(text[4:])
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, str):
            raise self.wrong(f"{text[4:64]!r} at the end", "a name in double quotes")
        return found

    def leaf(self, op: Op, attrs: dict[str, Any], type_: TypeLike, name: str | None) -> Node:
        """Return a leaf with what its line does not show: who it is, and its type."""
        if isinstance(type_, tuple):
            return self.make(op, (), attrs, name)
        if op is VARIABLE:
            attrs["state"] = self.state(name or "", type_)
        else:
            if op is INPUT:
                attrs["key"] = Key(name or "")
            for word in ("dtype", "shape"):
                if word in op.schema.attributes and word not in attrs:
                    attrs[word] = getattr(type_, word)
        return self.make(op, (), attrs, name)

    def state(self, name: str, type_: Type) -> State:
        """Return the buffer of the next variable."""
        value = None if self._values is None else next(self._values, None)
        if value is None and self._values is not None:
            raise self.wrong(f"variable '{name}' has no value", "a value for each variable")
        if value is None:
            if not all(isinstance(extent, int) for extent in type_.shape):
                raise self.wrong(f"a variable of type {type_}", "a shape of ints")
            try:
                return State.zeros(type_.concrete({}), type_.dtype, name)
            except MemoryError:
                raise self.wrong(f"variable '{name}' has {type_.bytes:,} bytes", "memory") from None
        if value.shape != type_.shape or value.dtype != type_.dtype:
            raise self.wrong(
                f"variable '{name}' is {type_}",
                f"the type of its value, {value.dtype.name}{list(value.shape)}",
            )
        return State(value, name)

    def make(
        self, op: Op, inputs: tuple[Node, ...], attrs: dict[str, Any], name: str | None
    ) -> Node:
        """Apply an operation by its record; what its rule says against it is an error."""
        try:
            op.check_attributes(attrs)
            type_, constraints = op.infer(inputs, attrs)
        except MagmagraphError as error:
            raise self.wrong(f"{op.name} refuses its operands: {str(error)[:1000]}") from None
        except Exception as error:  # a rule is written for the operands that functions give it
            raise self.wrong(
                f"{op.name} refuses its operands: {type(error).__name__}: {str(error)[:80]}"
            ) from error
        kind = Variable if op is VARIABLE else Node
        return kind(op, inputs, attrs, type_, name, None, constraints)


# ---------------------------------------------------------------------- graphs

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


# ---------------------------------------------------------------------- plans

# Each has one part of any length, so that none takes more than linear time.
_SLOT = re.compile(r"s(\d{1,9}) = (\w+)(?: (.*))?", re.DOTALL)
_ROOM = re.compile(r"(.+) bytes, steps (-?\d{1,9}) to (-?\d{1,9})(?:, at (\d{1,18}))?")
_STEP = re.compile(r"step (\d{1,9}): (\w+) = ([\w.]+)\(")
_COSTS = re.compile(
    r"(?P<flops>.+) flops(?:, workspace s(?P<workspace>\d{1,9}))?"
    r"(?P<fails>, can fail)?(?P<shared>, in place s\d+(?: s\d+)*)?"
    r"(?:, cost (?P<cost>\d{1,9}(?:\.\d{1,20})?))?(?P<follows>, follows)?"
    r"(?:, stream (?P<stream>\d{1,9}))?(?:, after (?P<waits>\d{1,9}(?: \d{1,9})*))?"
)
_LAUNCH = re.compile(r"step \d{1,9}: \w+ -> ")
_VALUE = re.compile(r"s(\d{1,9}) (.+)", re.DOTALL)
_SIZE = re.compile(r"(\S+)=(\d{1,18})")
_MEMORY = re.compile(r"memory: arena (\d{1,18}) bytes, largest live set (\d{1,18}) bytes")
_REQUIRE_BY = re.compile(r"require (.+) by ([\w.]+)")
_INDEX = re.compile(r"[0-9]{1,9}")
_ALIGNMENT = 64  # of places in the arena


@dataclass
class _Parts:
    """The parts of a plan read so far, and the families that its steps may have."""

    families: Mapping[str, KernelFamily]
    sizes: dict[str, int] | None = None
    guard: bool = False
    deterministic: bool = False
    choices: dict[str, str] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    fetches: list[Value] = field(default_factory=list)
    constraints: list[Any] = field(default_factory=list)
    commit: int | None = None
    arena: int | None = None
    live: int | None = None
    ended: bool = False


def load_plan(
    text: str,
    families: Sequence[KernelFamily],
    *,
    data: Mapping[str, np.ndarray] | None = None,
    values: Sequence[np.ndarray] | None = None,
) -> Plan:
    """Return the plan of a text whose steps are of some families; see `load`."""
    reader = Reader(text, PlanError, data, values)
    parts = _Parts({family.name: family for family in families})
    with reader.guarded():
        rows = reader.rows()
        for row in rows:
            reader.line = row.number
            _read(row, reader, parts)
        _check_whole(parts, rows, reader)
    return Plan(
        steps=tuple(parts.steps),
        slots=tuple(parts.slots),
        fetches=tuple(parts.fetches),
        commit=len(parts.steps) if parts.commit is None else parts.commit,
        constraints=tuple(parts.constraints),
        sizes=parts.sizes,
        arena=parts.arena,
        largest_live=parts.live,
        choices=parts.choices,
        guard=parts.guard,
        deterministic=parts.deterministic,
    )


def _read(row: Row, reader: Reader, parts: _Parts) -> None:
    text = row.text
    word = text.partition(" ")[0]
    if parts.ended:
        raise reader.wrong(f"{text[:60]!r} after the memory line", "the end of the plan")
    if word == "plan":
        return
    if word == "sizes":
        _read_sizes(text, reader, parts)
    elif text == "guard":
        parts.guard = True
    elif text == "deterministic":
        parts.deterministic = True
    elif word == "choice":
        key, value = _pair(text[len("choice ") :], reader)
        parts.choices[key] = value
    elif word[0] == "s" and word[1:].isdigit():
        parts.slots.append(_read_slot(row, reader, len(parts.slots)))
    elif word == "step":
        parts.steps.append(_read_step(row, reader, parts))
    elif text == "commit":
        parts.commit = len(parts.steps)
    elif word == "require":
        _read_constraint(text, reader, parts)
    elif word == "fetch":
        parts.fetches.append(_value(text[len("fetch ") :], reader, parts)[0])
    elif word == "memory:":
        _read_memory(text, reader, parts)
    else:
        raise reader.wrong(f"{text[:60]!r}", "a slot, a step, commit, require, fetch or memory")


def _read_sizes(text: str, reader: Reader, parts: _Parts) -> None:
    parts.sizes = {}
    for word in text.split()[1:]:
        match = _SIZE.fullmatch(word)
        if match is None:
            raise reader.wrong(f"{word[:60]!r}", "a size, as batch=100")
        parts.sizes[str(reader.extent(match[1]))] = int(match[2])


def _pair(text: str, reader: Reader) -> tuple[str, str]:
    try:
        decoder = json.JSONDecoder()
        key, end = decoder.raw_decode(text)
        if text[end : end + 3] != " = ":
            raise ValueError
        value = json.loads(text[end + 3 :])
    except (ValueError, RecursionError):
        raise reader.wrong(f"{text[:60]!r}", '"key" = "value"') from None
    return str(key), str(value)


def _read_memory(text: str, reader: Reader, parts: _Parts) -> None:
    parts.ended = True
    if text == SYMBOLIC:
        return
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise reader.wrong(f"{text[:60]!r}", "memory: arena 64 bytes, largest live set 64 bytes")
    parts.arena, parts.live = int(match[1]), int(match[2])


def _read_constraint(text: str, reader: Reader, parts: _Parts) -> None:
    body, mark, name = text.partition("  # ")
    match = _REQUIRE_BY.fullmatch(body)
    if match is None:
        raise reader.wrong(f"{text[:60]!r}", "require batch >= 1 by operation")
    constraint = reader.constraint(match[1])
    # A plan keeps of this node only what a message says of it: its operation and its name.
    node = Node(
        reader.record(match[2]), (), {}, Type(np.dtype(np.bool_), ()), reader.name(mark + name)
    )
    parts.constraints.append((constraint, node))


def _name_and_rest(text: str, reader: Reader) -> tuple[str, str]:
    try:
        name, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        name, end = None, 0
    if not isinstance(name, str):
        raise reader.wrong(f"{text[:60]!r}", "a name in double quotes")
    return name, text[end:].strip()


def _read_slot(row: Row, reader: Reader, index: int) -> Slot:
    text, _, end = row.text.rpartition(" : ")
    match, room = _SLOT.fullmatch(text), _ROOM.fullmatch(end)
    known = match is not None and match[2] in [p.value for p in Place]
    if match is None or room is None or int(match[1]) != index or not known:
        places = ", ".join(place.value for place in Place)
        raise reader.wrong(
            f"{row.text[:60]!r}",
            f"s{index} = place : n bytes, steps a to b, with a place of {places}",
        )
    place, shown = Place(match[2]), match[3] or ""
    owner: Any = None
    type_: Type | None = None
    size: Extent = reader.extent(room[1])
    if place is Place.FEED:
        owner = Key(_name_and_rest(shown, reader)[0])
    elif place is Place.STATE:
        name, rest = _name_and_rest(shown, reader)
        type_ = reader.type(rest)
        owner = reader.state(name, type_)
    elif place is Place.CONSTANT:
        owner = reader.graph([Row(row.number, shown, (), row.end), _returned(row)], "it").outputs[0]
        if owner.op.kind is not Kind.LEAF or "key" in owner.attrs or "state" in owner.attrs:
            raise reader.wrong(f"a constant by {owner.op.name}", "a leaf with a value")
        type_ = owner.type
    elif place is Place.RESULT:
        if _INDEX.fullmatch(shown) is None:
            raise reader.wrong(f"result {shown[:60]!r}", "the number of an output")
        owner = int(shown)
    offset = None if room[4] is None else int(room[4])
    slot = Slot(index, place, size, owner, int(room[2]), int(room[3]), offset)
    if type_ is not None:
        _check_room(slot, type_, reader)
    if isinstance(size, int) and not 0 <= size <= LARGEST:
        raise reader.wrong(f"s{index} has {size} bytes", f"0 to {LARGEST}")
    return slot


def _check_room(slot: Slot, type_: Type, reader: Reader) -> None:
    """Raise unless a slot is as large as its value."""
    if dims.lower(slot.size - type_.bytes) < 0:
        raise reader.wrong(
            f"s{slot.index} has {reader.shown(slot.size)} bytes for {type_}",
            f"at least {reader.shown(type_.bytes)}",
        )


def _check_whole(parts: _Parts, rows: Sequence[Row], reader: Reader) -> None:
    """Raise unless the plan is complete, and every slot is inside of the arena."""
    if not parts.ended:
        reader.line = rows[-1].end if rows else 1
        raise reader.wrong("the plan ends before its memory line", "memory: ...")
    if parts.commit is None:
        raise reader.wrong("the plan has no commit point", "a line 'commit'")
    if parts.arena is None:
        return
    for slot in parts.slots:
        if slot.place is not Place.ARENA:
            continue
        if slot.offset is None or slot.offset % _ALIGNMENT or not isinstance(slot.size, int):
            raise reader.wrong(f"s{slot.index} has no place", f"a multiple of {_ALIGNMENT}")
        if slot.offset + slot.size > parts.arena:
            raise reader.wrong(
                f"s{slot.index} ends at byte {slot.offset + slot.size}",
                f"a place in the arena of {parts.arena} bytes",
            )


def _returned(row: Row) -> Row:
    return Row(row.number, "return %0", (), row.end)


def _value(text: str, reader: Reader, parts: _Parts) -> tuple[Value, Type]:
    """Return a value in its slot, and its type before sizes were bound."""
    match = _VALUE.fullmatch(text)
    if match is None:
        raise reader.wrong(f"{text[:60]!r}", "a value, as s0 float32[3]")
    if int(match[1]) >= len(parts.slots):
        raise reader.wrong(f"s{match[1]} is not a slot", f"one of the {len(parts.slots)} above")
    type_ = reader.type(match[2])
    try:
        value = Value(int(match[1]), bound_type(type_, parts.sizes))
    except ValueError as error:
        raise reader.wrong(f"{match[2][:60]}: {error}", "sizes of its dimensions") from None
    _check_room(parts.slots[value.slot], value.type, reader)
    return value, type_


def _read_step(row: Row, reader: Reader, parts: _Parts) -> Step:
    text = row.text
    match = _STEP.match(text)
    if _LAUNCH.match(text):
        raise reader.wrong(
            "a launch of several steps is not read back", "a plan before it was bound to sizes"
        )
    if match is None or int(match[1]) != len(parts.steps):
        raise reader.wrong(f"{text[:60]!r}", f"step {len(parts.steps)}: kernel = operation(...)")
    *words, end = reader.split(text, match.end(), ")")
    arrow, bar, tail = text[int(end) + 1 :].rpartition(" | ")
    moved, _, tail = tail.partition(" bytes, ")
    costs = _COSTS.fullmatch(tail)
    if not bar or costs is None or not arrow.startswith(" -> "):
        raise reader.wrong(
            f"{text[int(end) + 1 :][:80]!r} after the operation", "-> values | n bytes, n flops"
        )
    values: list[tuple[Value, Type]] = []
    attrs: dict[str, Any] = {}
    for word in words:
        name, equals, shown = word.partition("=")
        if equals and name.isidentifier():
            if name in attrs:
                raise reader.wrong(f"{name[:40]} is given twice", "one value")
            attrs[name] = reader.value(shown, row)
        else:
            values.append(_value(word, reader, parts))
    made = [_value(word, reader, parts) for word in reader.split(arrow[4:])]
    leaves = tuple(parameter(i, type_) for i, (_, type_) in enumerate(values))
    family = parts.families.get(match[2])
    if family is not None and family.role is Role.COPY:
        if len(leaves) != 1:
            raise reader.wrong(f"a copy of {len(leaves)} values", "one value")
        node = leaves[0]
    elif leaves:
        node = reader.make(reader.record(match[3]), leaves, attrs, None)
    else:
        op = reader.record(match[3])
        if op.kind is Kind.LEAF or len(made) != 1:
            raise reader.wrong(f"a step that runs {op.name}", "an operation, and what it makes")
        node = reader.leaf(op, attrs, made[0][1], None)
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    if tuple(type_ for _, type_ in made) != types:
        raise reader.wrong(
            f"it makes {', '.join(str(t) for _, t in made)}", ", ".join(map(str, types))
        )
    scratch = None if costs["workspace"] is None else int(costs["workspace"])
    if family is None or not _may_run(family, node):
        able = [each.name for each in parts.families.values() if _may_run(each, node)]
        need = f"one of {', '.join(sorted(able))}"
        raise reader.wrong(f"{node.op.name} by {match[2][:40]}", need)
    _check_scratch(family, node, scratch, reader, parts)
    return Step(
        family=family,
        node=node,
        inputs=tuple(value for value, _ in values),
        outputs=tuple(value for value, _ in made),
        bytes=reader.extent(moved),
        flops=reader.extent(costs["flops"]),
        workspace=scratch,
        can_fail=costs["fails"] is not None,
        cost=WHOLE if costs["cost"] is None else float(costs["cost"]),
        follows=costs["follows"] is not None,
        stream=None if costs["stream"] is None else int(costs["stream"]),
        waits=_waits(costs["waits"], reader, parts),
    )


def _waits(text: str | None, reader: Reader, parts: _Parts) -> tuple[int, ...]:
    """Return the earlier steps that a step waits for."""
    waits = tuple(int(word) for word in (text or "").split())
    if any(number >= len(parts.steps) for number in waits):
        raise reader.wrong(f"it waits for the steps {text}", "steps before it")
    return waits


def _may_run(family: KernelFamily, node: Node) -> bool:
    """Return whether a family runs a node on some device."""
    if family.role is Role.COPY:
        return not node.inputs
    if family.role is Role.WAIT:
        return node.op.kind is Kind.COLLECTIVE
    devices = ("cpu", "cuda")
    return family.takes(node) and any(family.refusal(node, d) is None for d in devices)


def _check_scratch(
    family: KernelFamily, node: Node, workspace: int | None, reader: Reader, parts: _Parts
) -> None:
    """Raise unless a step has the scratch memory that it needs."""
    op = node.op
    moves = family.role in (Role.COPY, Role.WAIT)
    if workspace is not None and (
        workspace >= len(parts.slots) or parts.slots[workspace].place is not Place.ARENA
    ):
        raise reader.wrong(f"the workspace s{workspace}", "a slot of the arena")
    size: Extent = 0
    if family.role is Role.REGION:
        size = _fused_scratch(node, reader)
    elif not moves and op.kernel.workspace is not None:
        size = op.kernel.workspace(*[operand.type for operand in node.inputs], **node.attrs)
    elif not moves and family.role is not Role.EXPRESSION and op.kernel.scratch is not None:
        size = op.kernel.scratch(node, 1)
    if parts.sizes is not None:
        size = dims.evaluate(size, parts.sizes)
    if isinstance(size, int) and size == 0:
        return
    room = 0 if workspace is None else parts.slots[workspace].size
    if dims.lower(room - size) < 0:
        raise reader.wrong(
            f"{op.name} has {reader.shown(room)} bytes of scratch",
            f"at least {reader.shown(size)}",
        )


def _fused_scratch(node: Node, reader: Reader) -> Extent:
    """Return the scratch of generated loops in one thread."""
    size: Extent = 0
    for body in node.attrs.get("bodies", (node.attrs.get("body"),)):
        region = analyze(body)
        if not isinstance(region, Region):
            raise reader.wrong(f"a body that is not one loop: {region}", "one that a plan holds")
        size = size + region.workspace(1)
    return size
