"""Nodes: what users hold.

A `Node` is immutable and made by calling an `Op`. Nodes are equal by identity, and each keeps the
user's line that made it.
"""

# ruff: noqa: D102  # declared methods have their docstrings where they are defined

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeAlias

import numpy as np

from .collection import collection_paused
from .dims import Constraint
from .errors import ArgumentError, ShapeError, message
from .op import _NODE, Line, Op
from .types import Extent, Shape, TypeLike


class _Fields:
    """What a node is made of, before it is one."""

    __slots__ = ("__weakref__", "attrs", "constraints", "inputs", "line", "name", "op", "type")

    op: Op
    inputs: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Any  # TypeLike; Any keeps rules readable: most operations have one result
    name: str | None
    line: Line | None
    constraints: tuple[Constraint, ...]


_FIXED = {
    "op": "mg.substitute(node, {old: new}) makes another",
    "inputs": "mg.substitute(node, {old: new}) makes another",
    "attrs": "mg.substitute(node, {old: new}) makes another",
    "type": "mg.cast(node, dtype) or mg.reshape(node, shape) makes another",
    "dtype": "mg.cast(node, dtype) makes another",
    "shape": "mg.reshape(node, shape) makes another",
}


_Axis: TypeAlias = int | Sequence[int] | None


class Element(Protocol):
    """Read or update some elements of a node; ``node.at[key]`` gives it."""

    def get(self, mode: str = "clip") -> Node: ...
    def set(self, values: Any, mode: str = "clip") -> Node: ...
    def add(self, values: Any, mode: str = "clip") -> Node: ...
    def subtract(self, values: Any, mode: str = "clip") -> Node: ...
    def multiply(self, values: Any, mode: str = "clip") -> Node: ...
    def divide(self, values: Any, mode: str = "clip") -> Node: ...
    def min(self, values: Any, mode: str = "clip") -> Node: ...
    def max(self, values: Any, mode: str = "clip") -> Node: ...


class Elements(Protocol):
    """Choose elements of a node by a key; ``node.at`` gives it."""

    def __getitem__(self, key: Any) -> Element: ...


class Node(_Fields):
    """A value of a symbolic graph: an operation applied to other nodes.

    Attributes
    ----------
    op, inputs, attrs
        The operation record, its operands, its keyword arguments (not to be changed).
    type
        A `Type`, or a tuple of them for operations with several results.
    name, line
        The user's name for it, which may be set, and the user's source line that made it.
    constraints
        Equalities between extents that can be checked at the call only.
    """

    __slots__ = ()

    __array_priority__ = 1000

    def __new__(
        cls,
        op: Op,
        inputs: tuple[Node, ...],
        attrs: Mapping[str, Any],
        type: TypeLike,
        name: str | None = None,
        line: Line | None = None,
        constraints: tuple[Constraint, ...] = (),
    ) -> Self:
        """Make a node of its parts; users call operations, which know the type."""
        made: Any = object.__new__(_Fields)  # which lets them be set: graphs are made of many nodes
        made.op = op
        made.inputs = inputs
        made.attrs = attrs
        made.type = type
        made.name = name
        made.line = line
        made.constraints = constraints
        made.__class__ = cls
        for watch in _watching:
            watch[id(made)] = made
        return made  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise AttributeError(
                message(f"{name!r} of a node is set, and nodes do not change", hint=_FIXED[name])
            )
        object.__setattr__(self, name, value)

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.type.dtype  # type: ignore[no-any-return]

    @property
    def shape(self) -> Shape:
        """The extents: ints, and `Dim` where named or anonymous."""
        return self.type.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.type.shape)

    @property
    def size(self) -> Extent:
        """Number of elements."""
        return self.type.size  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Node):
            return self is other
        raise ArgumentError(
            message(
                "== between nodes is identity (nodes are dictionary keys) and is not defined "
                f"against {type(other).__name__}",
                hint="mg.equal(a, b) compares values",
            )
        )

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = object.__hash__

    def _no_value(self, what: str, hint: str) -> NoReturn:
        raise ArgumentError(
            message(f"{what} of a node has no meaning: nothing has run yet", hint=hint)
        )

    def __bool__(self) -> bool:
        self._no_value("the truth value", "mg.where(condition, a, b), or node.eval() for the value")

    def __float__(self) -> float:
        self._no_value("float()", "node.eval() for the value")

    def __int__(self) -> int:
        self._no_value("int()", "node.eval() for the value")

    def __index__(self) -> int:
        self._no_value("an index made", "mg.take(x, node), or node.eval() for the value")

    def __complex__(self) -> complex:
        self._no_value("complex()", "node.eval() for the value")

    def __format__(self, spec: str) -> str:
        if spec:
            self._no_value(f"the format {spec!r}", "f'{node.eval():.3f}' for the value")
        return str(self)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value(
            "np.asarray()",
            "node.eval() for the value, or a function of magmagraph in NumPy's place",
        )

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            from .spellings import missing_of_node

            raise missing_of_node(self, name)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise ArgumentError(
            message(
                "a node cannot be written into: it is a value, not a buffer",
                hint="x.at[key].set(value), which makes a node; mg.where(mask, new, x); or "
                "variable.assign(array) for a variable",
            )
        )

    def __len__(self) -> int:
        if self.ndim == 0:
            raise ArgumentError(message("len() of a node without axes"))
        extent = self.shape[0]
        if type(extent) is not int:
            raise ShapeError(
                message(
                    f"len() of a node whose first extent is '{extent}', known only at the call",
                    hint="node.shape[0], which computes in shapes and as mg.extent(node.shape[0])",
                )
            )
        return extent

    def __iter__(self) -> Iterator[Node]:
        if self.ndim == 0:
            raise ArgumentError(message("iteration over a node without axes"))
        extent = self.shape[0]
        if type(extent) is not int:
            raise ShapeError(
                message(
                    f"iteration over the axis '{extent}', whose size is known only at the call",
                    need="an int extent",
                    hint="operations on the whole axis, or an int in the input's shape",
                )
            )
        return (self[i] for i in range(extent))

    def __contains__(self, value: Any) -> NoReturn:
        raise ArgumentError(
            message(
                "'in' of a node has no meaning: nothing has run yet",
                hint="mg.any(mg.equal(node, value)).eval()",
            )
        )

    def __pos__(self) -> Node:
        return self

    def __repr__(self) -> str:
        label = f"'{self.name}' " if self.name else ""
        return f"<{self.op.name} {label}{self.type!r}>"

    if TYPE_CHECKING:  # defined by function/evaluation.py (eval) and ops/operators.py

        def eval(self, feeds: Mapping[Any, Any] | None = None, /, **named: Any) -> Any: ...
        def __add__(self, other: Any) -> Node: ...
        def __radd__(self, other: Any) -> Node: ...
        def __sub__(self, other: Any) -> Node: ...
        def __rsub__(self, other: Any) -> Node: ...
        def __mul__(self, other: Any) -> Node: ...
        def __rmul__(self, other: Any) -> Node: ...
        def __truediv__(self, other: Any) -> Node: ...
        def __rtruediv__(self, other: Any) -> Node: ...
        def __floordiv__(self, other: Any) -> Node: ...
        def __rfloordiv__(self, other: Any) -> Node: ...
        def __mod__(self, other: Any) -> Node: ...
        def __rmod__(self, other: Any) -> Node: ...
        def __divmod__(self, other: Any) -> tuple[Node, Node]: ...
        def __rdivmod__(self, other: Any) -> tuple[Node, Node]: ...
        def __pow__(self, other: Any) -> Node: ...
        def __rpow__(self, other: Any) -> Node: ...
        def __neg__(self) -> Node: ...
        def __abs__(self) -> Node: ...
        def __round__(self, decimals: int = 0) -> Node: ...
        def __matmul__(self, other: Any) -> Node: ...
        def __rmatmul__(self, other: Any) -> Node: ...
        def __lt__(self, other: Any) -> Node: ...
        def __le__(self, other: Any) -> Node: ...
        def __gt__(self, other: Any) -> Node: ...
        def __ge__(self, other: Any) -> Node: ...
        def __and__(self, other: Any) -> Node: ...
        def __rand__(self, other: Any) -> Node: ...
        def __or__(self, other: Any) -> Node: ...
        def __ror__(self, other: Any) -> Node: ...
        def __xor__(self, other: Any) -> Node: ...
        def __rxor__(self, other: Any) -> Node: ...
        def __invert__(self) -> Node: ...
        def __lshift__(self, other: Any) -> Node: ...
        def __rlshift__(self, other: Any) -> Node: ...
        def __rshift__(self, other: Any) -> Node: ...
        def __rrshift__(self, other: Any) -> Node: ...
        def __array_ufunc__(
            self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
        ) -> Any: ...
        def __array_function__(
            self, function: Any, types: Any, arguments: tuple[Any, ...], named: dict[str, Any]
        ) -> Any: ...
        def __getitem__(self, key: Any) -> Node: ...
        @property
        def at(self) -> Elements: ...
        @property
        def real(self) -> Node: ...
        @property
        def imag(self) -> Node: ...
        def conj(self) -> Node: ...
        def __array_namespace__(self, *, api_version: str | None = None) -> Any: ...
        @property
        def mT(self) -> Node: ...
        @property
        def T(self) -> Node: ...
        def astype(self, dtype: Any) -> Node: ...
        def sum(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            dtype: Any = None,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def prod(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            dtype: Any = None,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def mean(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            dtype: Any = None,
            *,
            where: Any = True,
        ) -> Node: ...
        def var(
            self, axis: _Axis = None, ddof: Any = 0, keepdims: bool = False, **options: Any
        ) -> Node: ...
        def std(
            self, axis: _Axis = None, ddof: Any = 0, keepdims: bool = False, **options: Any
        ) -> Node: ...
        def max(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def min(
            self,
            axis: _Axis = None,
            keepdims: bool = False,
            *,
            initial: Any = None,
            where: Any = True,
        ) -> Node: ...
        def argmax(self, axis: _Axis = None, keepdims: bool = False) -> Node: ...
        def argmin(self, axis: _Axis = None, keepdims: bool = False) -> Node: ...
        def any(self, axis: _Axis = None, keepdims: bool = False, *, where: Any = True) -> Node: ...
        def all(self, axis: _Axis = None, keepdims: bool = False, *, where: Any = True) -> Node: ...
        def clip(
            self, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None
        ) -> Node: ...
        def round(self, decimals: int = 0) -> Node: ...
        def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Node: ...
        def transpose(self, *axes: Any) -> Node: ...
        def swapaxes(self, first: int, second: int) -> Node: ...
        def squeeze(self, axis: _Axis = None) -> Node: ...
        def ravel(self, order: str = "C") -> Node: ...
        def flatten(self, order: str = "C") -> Node: ...
        def dot(self, other: Any) -> Node: ...

    def __copy__(self) -> Node:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unflatten, _flatten([self]))

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        kinds, ops, counts, operands, attrs, *rest = _flatten([self])
        for i, held in enumerate(attrs):
            if held is not None and ("key" in held or "state" in held):
                attrs[i] = copy.deepcopy(held, memo)  # all others hold nothing that changes
        return _unflatten(kinds, ops, counts, operands, attrs, *rest)


_NODE.append(Node)

_watching: list[dict[int, Node]] = []


@contextmanager
def nodes_made() -> Iterator[dict[int, Node]]:
    """Give, by their ids, the nodes that are made while it is open.

    Nodes that another thread makes at that time are among them.
    """
    made: dict[int, Node] = {}
    _watching.append(made)
    try:
        yield made
    finally:
        _watching[:] = [other for other in _watching if other is not made]


class Key:
    """The identity of an input leaf, kept through pickling and freezing."""

    __slots__ = ("__weakref__", "name", "node", "serial")
    _serials = itertools.count()

    def __init__(self, name: str) -> None:
        self.name = name
        self.serial = next(Key._serials)
        self.node: weakref.ref[Node] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Key, (self.name,))


def topological(
    roots: Iterable[Node], stop: Callable[[Node], bool] | None = None
) -> list[Node]:
    """Return every node that the roots need, operands first, each once; no recursion.

    Nodes for which `stop` is true are listed but not entered.
    """
    order: list[Node] = []
    done: set[int] = set()
    stack: list[Node | None] = []
    pending: list[Node] = []
    for root in roots:
        if id(root) in done:
            continue
        stack.append(root)
        while stack:
            node = stack.pop()
            if node is None:
                finished = pending.pop()
                if id(finished) not in done:
                    done.add(id(finished))
                    order.append(finished)
                continue
            if id(node) in done:
                continue
            if not node.inputs or (stop is not None and stop(node)):
                done.add(id(node))
                order.append(node)
                continue
            stack.append(None)
            pending.append(node)
            for operand in reversed(node.inputs):
                if id(operand) not in done:
                    stack.append(operand)
    return order


_Columns = tuple[list[Any], ...]


def flatten(roots: Iterable[Node]) -> tuple[list[int], _Columns]:
    """Return nodes for pickling: their numbers, and all that they need as columns."""
    roots = list(roots)
    columns, number = _numbered(roots)
    return [number[id(root)] for root in roots], columns


def unflatten(numbers: list[int], columns: _Columns) -> list[Node]:
    """Return the nodes that `flatten` was given."""
    with collection_paused():
        nodes = _all_joined(*columns)
    return [nodes[i] for i in numbers]


def _flatten(roots: list[Node]) -> _Columns:
    return _numbered(roots)[0]


def _numbered(roots: list[Node]) -> tuple[_Columns, dict[int, int]]:
    """Return the nodes below the roots as columns, operands being numbers of nodes.

    Columns, because a record for each node would be one more object for each.
    """
    order = topological(roots)
    number = {id(node): i for i, node in enumerate(order)}
    columns = (
        [type(node) for node in order],
        [node.op for node in order],
        [len(node.inputs) for node in order],
        [number[id(operand)] for node in order for operand in node.inputs],
        [node.attrs or None for node in order],
        [node.type for node in order],
        [node.name for node in order],
        [node.line for node in order],
        [node.constraints for node in order],
    )
    return columns, number


def _unflatten(*columns: list[Any]) -> Node:
    with collection_paused():
        return _all_joined(*columns)[-1]


def _all_joined(
    kinds: list[type[Node]], ops: list[Op], counts: list[int], operands: list[int], *rest: list[Any]
) -> list[Node]:
    nodes: list[Node] = []
    taken = iter(operands)
    for kind, op, count, held, type_, name, line, constraints in zip(
        kinds, ops, counts, *rest, strict=True
    ):
        inputs = tuple([nodes[next(taken)] for _ in range(count)])
        attrs = {} if held is None else dict(held)
        owner = attrs.get("key", attrs.get("state"))
        known = owner.node() if owner is not None and owner.node is not None else None
        if known is None:
            known = kind(op, inputs, attrs, type_, name, line, constraints)
            if owner is not None:
                owner.node = weakref.ref(known)
        nodes.append(known)
    return nodes
