"""Graphs as text: one line per node, operands first; `magmagraph.text.reading` reads it back.

The text holds all that a graph is made of: operations, attributes to the last bit, bodies of
fused nodes, requirements on extents, the schedule. What variables hold is not part of it.
Extents without a name are numbered in the order in which the text comes to them, so that equal
graphs have equal texts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..dtypes import SUPPORTED
from ..errors import GraphError, message
from ..ir import dims
from ..ir.collection import collection_paused
from ..ir.dims import Dim
from ..ir.dims.algebra import atom_dim
from ..ir.docstrings import documented
from ..ir.graph import Graph, Node, topological
from ..ir.identity import same_nodes
from ..ir.plan import WHOLE, Place, Plan, Role, Slot, Step
from ..ir.types import Extent, Type
from ..ops.leaf import PARAMETER

SHOWN = 8  # elements of a constant that are written out
FIRST = 3  # elements that a longer one shows
PRINTED = 200  # lines of an expression that `print(node)` shows
DTYPES = {dtype.name: dtype for dtype in SUPPORTED}
_OWNERS = frozenset(("key", "state"))  # who a leaf is; a loaded one is its own
_SHOWN_BY_TYPE = ("dtype", "shape")  # of leaves, where they say what the line's type says
_WORDS = frozenset((*DTYPES, "True", "False", "None", "nan", "inf"))


@collection_paused()
@documented
def dump(what: Any, *, data: bool = True) -> str:
    """Return a graph or a plan as text that `load` reads back.

    what (Graph, Plan or Function): Of a function, its optimized graph is written.
    data: Whether the elements of long constants follow at the end. Without them `load` has to be
        given the arrays.
    returns (str): A line per node (or per step and slot), then what is returned.

    >>> from magmagraph.ir.graph import freeze
    >>> x = mg.input("x", shape=("batch", 3))
    >>> print(dump(freeze([x], [mg.add(x, x)])))
    %0 = input() : float32[batch, 3]  # x
    %1 = add(%0, %0) : float32[batch, 3]
    return %1
    """
    if isinstance(what, Plan):
        return dump_plan(what, data=data)
    graph = what if isinstance(what, Graph) else getattr(what, "graph", None)
    if not isinstance(graph, Graph):
        raise GraphError(
            message(f"dump is given {type(what).__name__}", need="a graph, a plan or a function")
        )
    writer = Writer()
    lines = writer.graph(graph)
    return "\n".join([*lines, *writer.data_lines()] if data else lines)


@collection_paused()
def write_node(node: Node, shown: int = PRINTED) -> str:
    """Return the expression below a node as text, elided in the middle where it is long.

    Examples
    --------
    >>> import magmagraph as mg
    >>> x = mg.input("x", shape=(3,))
    >>> print(mg.sum(x * x))
    %0 = input() : float32[3]  # x
    %1 = multiply(%0, %0) : float32[3]
    %2 = sum(%1, axes=(0,)) : float32[]
    """
    order = topological([node])
    number = {n: i for i, n in enumerate(order)}
    writer = Writer()
    if len(order) <= shown:
        return "\n".join(writer.line(n, number) for n in order)
    half = shown // 2
    lines = [writer.line(n, number) for n in order[:half]]
    lines.append(f"... {len(order) - 2 * half} more ...")
    return "\n".join([*lines, *(writer.line(n, number) for n in order[-half:])])


Node.__str__ = write_node  # type: ignore[assignment]
Graph.__str__ = lambda self: dump(self)  # type: ignore[method-assign]


class Code:
    """A placeholder in a loaded graph for an attribute that is code, which a text only names.

    Graphs with one run: only the gradient of a custom gradient needs its code.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise GraphError(
            message(
                f"{self.name} is code, which the text of a graph only names",
                hint="take gradients before a graph is written",
            )
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `GraphError`: the code is not here."""
        return self.__getattr__("call")


class Writer:
    """One text in the making: which extents and which data it has come to.

    data: Digest -> array, of the constants that are too long for their line.
    """

    def __init__(self) -> None:
        self.data: dict[str, np.ndarray] = {}
        self._anonymous: dict[str, Extent] = {}
        self._types: dict[Type, str] = {}

    # ------------------------------------------------------------------ lines

    def graph(self, graph: Graph) -> list[str]:
        """Return the lines of a graph."""
        leaves = (*graph.inputs, *(variable for variable, _ in graph.updates))
        nodes = graph.nodes
        if graph.order is not None:
            known = set(nodes)
            nodes = (*(n for n in dict.fromkeys(leaves) if n not in known), *nodes)
        number = {node: i for i, node in enumerate(nodes)}
        lines = [self.line(node, number) for node in nodes]
        if graph.order is not None:
            lines.append("scheduled")
        if not same_nodes(graph.inputs, default_inputs(nodes)):
            lines.append("inputs" + _listed(graph.inputs, number))
        for node in nodes:
            lines += [f"require {self.constraint(c)} at %{number[node]}" for c in node.constraints]
        lines += [f"effect %{number[node]}" for node in graph.effects]
        lines += [f"update %{number[variable]} = %{number[v]}" for variable, v in graph.updates]
        lines.append("return" + _listed(graph.outputs, number))
        return lines

    def line(self, node: Node, number: Mapping[Node, int]) -> str:
        """Return the line of one node (several, where it holds a body)."""
        operands = [f"%{number[operand]}" for operand in node.inputs]
        call = self.call(node, operands)
        return f"%{number[node]} = {call} : {self.types(node.type)}{label(node.name)}"

    def call(self, node: Node, operands: Sequence[str]) -> str:
        """Return the operation with its operands' texts and its attributes."""
        parts = list(operands)
        attrs = node.attrs
        if attrs:
            leaf = not node.inputs
            for name, value in attrs.items():
                if leaf and (name in _OWNERS or _is_typed(node, name, value)):
                    continue
                parts.append(f"{name}={self.attribute(value, node if leaf else None)}")
        return f"{node.op.name}({', '.join(parts)})"

    def data_lines(self) -> list[str]:
        """Return the lines that hold the elements of long constants."""
        return [f"data {digest} = {encoded(array)}" for digest, array in self.data.items()]

    # ------------------------------------------------------------------ parts of lines

    def types(self, type_: Any) -> str:
        """Return one type, or those of several results in parentheses."""
        if isinstance(type_, tuple):
            return "(" + ", ".join(map(self.type, type_)) + ")"
        return self.type(type_)

    def type(self, type_: Type) -> str:
        """Return a type as text."""
        text = self._types.get(type_)
        if text is None:
            text = f"{type_.dtype.name}[{', '.join(map(self.extent, type_.shape))}]"
            self._types[type_] = text
        return text

    def extent(self, extent: Extent) -> str:
        """Return an extent as text, its anonymous dimensions under their new numbers."""
        if not isinstance(extent, Dim):
            return str(extent)
        found = [name for name in dims.names(extent) if name[0] == "?"]
        if not found:
            return str(extent)
        # By number where several come up at once: loading makes new ones in the same order.
        for name in sorted(found, key=lambda n: int(n[1:])):
            if name not in self._anonymous:
                self._anonymous[name] = atom_dim(f"?{len(self._anonymous)}")
        return str(dims.substitute(extent, self._anonymous))

    def constraint(self, constraint: dims.Constraint) -> str:
        """Return a relation between extents."""
        left, right = self.extent(constraint.left), self.extent(constraint.right)
        return f"{left} {constraint.relation} {right}"

    def attribute(self, value: Any, leaf: Node | None = None) -> str:
        """Return an attribute as text; `leaf` is the node whose type an array has."""
        if isinstance(value, (str, bool, int, float)) or value is None:
            return repr(value if type(value) in _PLAIN else _plain(value))
        if isinstance(value, Dim):
            text = self.extent(value)
            return f"({text})" if text in _WORDS else text
        if isinstance(value, (tuple, list)):
            inside = ", ".join(map(self.attribute, value))
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, np.dtype):
            return value.name
        if isinstance(value, Type):
            return self.type(value)
        if isinstance(value, Graph):
            inner = [f"    {line}" for text in self.graph(value) for line in text.split("\n")]
            return "\n".join(["{", *inner, "}"])
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            if leaf is not None and leaf.type == Type(array.dtype, array.shape):
                return self._elements(array)
            return f"array({self.type(Type(array.dtype, array.shape))}, {self._elements(array)})"
        return f"<{value.name if isinstance(value, Code) else type(value).__name__}>"

    def _elements(self, array: np.ndarray) -> str:
        if array.size <= SHOWN:
            text = _written(array)
            if read_elements(text, array.dtype, array.shape).tobytes() == array.tobytes():
                return text
        name = digest(array)
        self.data[name] = array
        shown = "".join(f"{v!s}, " for v in array.ravel()[:FIRST])
        return f"[{shown}... {array.size} values {name}]"


_PLAIN = frozenset((str, bool, int, float, type(None)))


def _plain(value: Any) -> Any:
    """Return the built-in value of a subclass (an enumeration's member)."""
    return next(kind(value) for kind in (str, bool, int, float) if isinstance(value, kind))


def _listed(nodes: Sequence[Node], number: Mapping[Node, int]) -> str:
    return " " + ", ".join(f"%{number[node]}" for node in nodes) if nodes else ""


def _is_typed(node: Node, name: str, value: Any) -> bool:
    """Return whether a leaf's attribute is what its type shows."""
    if name not in _SHOWN_BY_TYPE or isinstance(node.type, tuple):
        return False
    return bool(value == (node.type.dtype if name == "dtype" else node.type.shape))


def default_inputs(nodes: Sequence[Node]) -> list[Node]:
    """Return the inputs that a text has which does not list them: its leaves to be fed."""
    return [node for node in nodes if node.op is PARAMETER or "key" in node.attrs]


_BARE = re.compile(r'[^\s"](?:.*[^\s{])?')


def label(name: str | None) -> str:
    """Return the end of a line that gives a name; quoted where it could be misread."""
    if not name:
        return ""
    plain = name.isprintable() and _BARE.fullmatch(name) is not None and not name.endswith("{")
    return f"  # {name}" if plain else f"  # {json.dumps(name)}"


# ---------------------------------------------------------------------- elements


def _written(array: np.ndarray) -> str:
    """Return the elements as nested lists, each in the shortest form that reads back."""
    texts = [str(v) for v in array.ravel()]
    if array.ndim == 0:
        return texts[0]
    for axis in range(array.ndim - 1, 0, -1):
        extent = array.shape[axis]
        texts = [
            f"[{', '.join(texts[i * extent : (i + 1) * extent])}]"
            for i in range(math.prod(array.shape[:axis]))
        ]
    return f"[{', '.join(texts)}]"


def read_elements(text: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of what `dump` wrote for a short constant."""
    words = re.sub(r"[\[\],]", " ", text).split()
    if dtype == np.bool_:
        values: list[Any] = [_TRUTH[word] for word in words]
    elif dtype.kind in "iu":
        values = [int(word) for word in words]
    elif dtype.kind == "c":
        values = [complex(word) for word in words]
    else:
        values = [float(word) for word in words]
    return np.array(values, dtype=dtype).reshape(shape)


_TRUTH = {"True": True, "False": False}


def _little(array: np.ndarray) -> bytes:
    """Return the elements in C order, the low byte first."""
    swap = sys.byteorder == "big" and array.dtype.itemsize > 1
    return (array.byteswap() if swap else array).tobytes()


def digest(array: np.ndarray) -> str:
    """Return the name under which a text refers to an array."""
    content = hashlib.sha256(f"{array.dtype.name}{array.shape}".encode())
    content.update(_little(np.ascontiguousarray(array)))
    return "@" + content.hexdigest()[:16]


def encoded(array: np.ndarray) -> str:
    """Return the elements as base64."""
    return base64.b64encode(_little(np.ascontiguousarray(array))).decode("ascii")


def decoded(text: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array of what `encoded` wrote; raise ValueError where it is not one."""
    raw = base64.b64decode(text, validate=True)
    array = np.frombuffer(raw, dtype=dtype)
    if sys.byteorder == "big" and dtype.itemsize > 1:
        array = array.byteswap()
    return array.reshape(shape)


# ---------------------------------------------------------------------- plans
#
# The operation of a step is written with the types of its operands, symbolic where they are, so
# that a loaded plan holds whole steps: a backend can run it.

SYMBOLIC = "memory: sizes not bound"


def dump_plan(plan: Plan, *, data: bool = True) -> str:
    """Return a plan as text; see `magmagraph.text.writing.dump`."""
    writer = Writer()
    sizes = plan.sizes
    lines = ["plan"]
    if sizes is not None:
        shown = [f"{writer.extent(atom_dim(name))}={size}" for name, size in sizes.items()]
        lines.append(" ".join(["sizes", *shown]))
    if plan.guard:
        lines.append("guard")
    if plan.deterministic:
        lines.append("deterministic")
    lines += [f"choice {json.dumps(k)} = {json.dumps(v)}" for k, v in plan.choices.items()]
    lines += [_slot(slot, writer) for slot in plan.slots]
    for i, step in enumerate(plan.steps):
        if i == plan.commit:
            lines.append("commit")
        lines.append(f"step {i}: {_step(step, plan, writer)}")
    if plan.commit >= len(plan.steps):
        lines.append("commit")
    for constraint, node in plan.constraints:
        lines.append(f"require {writer.constraint(constraint)} by {node.op.name}{label(node.name)}")
    lines += [f"fetch s{value.slot} {writer.type(value.type)}" for value in plan.fetches]
    if plan.arena is None:
        lines.append(SYMBOLIC)
    else:
        lines.append(
            f"memory: arena {plan.arena} bytes, largest live set {plan.largest_live or 0} bytes"
        )
    return "\n".join([*lines, *writer.data_lines()] if data else lines)


def _slot(slot: Slot, writer: Writer) -> str:
    owner = slot.owner
    if slot.place is Place.FEED:
        shown = f" {json.dumps(owner.name)}"
    elif slot.place is Place.STATE:
        type_ = Type(owner.data.dtype, owner.data.shape)
        shown = f" {json.dumps(owner.name)} {writer.type(type_)}"
    elif slot.place is Place.CONSTANT:
        shown = f" {writer.line(owner, {owner: 0})}"
    elif slot.place is Place.RESULT:
        shown = f" {owner}"
    else:
        shown = ""
    where = "" if slot.offset is None else f", at {slot.offset}"
    return (
        f"s{slot.index} = {slot.place.value}{shown} : {writer.extent(slot.size)} bytes, "
        f"steps {slot.first} to {slot.last}{where}"
    )


def bound_type(type_: Type, sizes: Mapping[str, int] | None) -> Type:
    """Return a type with its extents under sizes, where there are any."""
    return type_ if sizes is None else Type(type_.dtype, type_.concrete(dict(sizes)))


def _step(step: Step, plan: Plan, writer: Writer) -> str:
    if step.parts:
        return _launch(step, plan, writer)
    node = step.node
    if step.role is Role.COPY:
        symbolic: list[Type] = [node.type]
        results: list[Type] = [node.type]
    else:
        symbolic = [operand.type for operand in node.inputs]
        results = list(node.type) if isinstance(node.type, tuple) else [node.type]
    operands = [
        f"s{v.slot} {writer.type(t if bound_type(t, plan.sizes) == v.type else v.type)}"
        for v, t in zip(step.inputs, symbolic, strict=True)
    ]
    copied = step.role is Role.COPY
    call = f"{step.kernel}({operands[0]})" if copied else writer.call(node, operands)
    made = ", ".join(
        f"s{v.slot} {writer.type(t if bound_type(t, plan.sizes) == v.type else v.type)}"
        for v, t in zip(step.outputs, results, strict=True)
    )
    return f"{step.kernel} = {call} -> {made} | {_costs(step, writer)}"


def _launch(step: Step, plan: Plan, writer: Writer) -> str:
    """Return a launch that computes several steps, or a part of one, with a line for each."""
    made = ", ".join(f"s{v.slot} {writer.type(v.type)}" for v in step.outputs)
    text = f"{step.kernel} -> {made} | {_costs(step, writer)}"
    if step.role is Role.ENDING:  # its parts are those of the launch before it
        return f"{text}, part {step.piece}"
    lines = [_step(part, plan, writer) for part in step.parts]
    return "\n".join([text, *(f"    {line}" for line in lines)])


def _costs(step: Step, writer: Writer) -> str:
    """Return what a step costs, how it uses memory, and where it is launched."""
    costs = f"{writer.extent(step.bytes)} bytes, {writer.extent(step.flops)} flops"
    if step.workspace is not None:
        costs += f", workspace s{step.workspace}"
    if step.can_fail:
        costs += ", can fail"
    read = {value.slot for value in step.inputs}
    shared = [f"s{value.slot}" for value in step.outputs if value.slot in read]
    if shared and step.role is not Role.COPY:
        costs += f", in place {' '.join(shared)}"
    if step.cost != WHOLE:
        costs += f", cost {step.cost!r}"
    if step.follows:
        costs += ", follows"
    if step.stream is not None:
        costs += f", stream {step.stream}"
    if step.waits:
        costs += f", after {' '.join(map(str, step.waits))}"
    return costs
