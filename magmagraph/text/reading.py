"""Graphs and plans from the text that `magmagraph.text.writing.dump` writes.

Every operation is made anew by its record, so that a text cannot say what no graph could be: a
type that its rule does not give, an operand that comes later, a constant whose elements do not fit
are errors, each with the number of its line.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dims
from ..attributes import LARGEST
from ..collection import collection_paused
from ..custom import OWN
from ..dims import Constraint
from ..dims.atoms import LongExtent
from ..errors import GraphError, MagmagraphError, ShapeError
from ..files.reading import Damaged
from ..graph import Graph, Key, Node
from ..op import Op
from ..ops import TABLE
from ..ops.leaf import INPUT, VARIABLE, Variable
from ..plan import KernelFamily
from ..types import Extent, Type, TypeLike
from ..values.state import State
from .rows import Row, Rows
from .writing import DTYPES, Code, decoded, digest, read_elements

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

    Parameters
    ----------
    text
        What `dump` wrote.
    data
        Arrays of long constants by digest, where the text does not hold them.
    values
        What the variables hold, in the order in which the text has them; zeros unless given.
    families
        Of a plan: the kernel families that its steps may be of.

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
        from .plan import load_plan

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

    Parameters
    ----------
    text, data, values
        As of `load`.
    place
        Name the place of the text in the file.

    Raises
    ------
    Damaged
        The text is damaged, or that of a plan; the message names the place and the line.
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
        super().__init__(text, error)
        self._given = dict(data or {})
        self._values: Iterator[np.ndarray] | None = None if values is None else iter(values)
        self._anonymous: dict[str, Extent] = {}
        self._extents: dict[str, Extent] = {}
        self._types: dict[str, Type] = {}
        self._bodies: set[tuple[int, int]] = set()  # line and number, of those that were read

    def graph(self, rows: Sequence[Row], what: str) -> Graph:
        """Return the graph of the rows of a text or a body."""
        from .graph import GraphReader  # it reads bodies with this class

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
