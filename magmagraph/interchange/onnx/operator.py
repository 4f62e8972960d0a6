"""One operator of an ONNX model, as the rules of the table see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...errors import OnnxError, message
from ...ir.dims import Dim
from ...ir.graph import Node
from ...ir.types import Extent
from ...ops.convert import cast
from .files import dtype_of, element_of
from .values import Known

__all__ = ["Body", "Builder", "Operator", "Rule", "Value"]

Value = Any  # a Node, an array of strings, a list of values (a sequence), or None (an optional)


class Body(Protocol):
    """A graph inside of an operator."""

    #: How many inputs and outputs it has.
    inputs: int
    outputs: int

    def __call__(self, *values: Value) -> list[Value]:
        """Return the outputs for inputs, with the values of the graphs around it."""


class Builder(Protocol):
    """What rules use of the model that is read."""

    known: Known

    def unknown(self, node: Node) -> tuple[list[str], str]:
        """Return the inputs of the model that a value depends on, and why it is not known."""

    def array(self, array: np.ndarray) -> Value:
        """Return an array of one of ONNX's dtypes as a value."""

    def element(self, node: Node) -> int:
        """Return the element type of a node."""

    def carry(self, node: Node, element: int) -> Node:
        """Say that a node carries values of an element type that has no dtype here."""

    def carried(self, node: Node) -> int | None:
        """Return the element type that a node carries, where it has no dtype here."""


class Operator:
    """An operator with its operands.

    type, name: The operator, and the name of the node.
    since: The version of the operator: the opset in which it got the meaning that it has here.
    inputs: Its operands; None for those that are left out.
    outputs: How many results the model names; trailing ones may be missing.
    attributes: By name.
    """

    def __init__(
        self,
        build: Builder,
        type: str,
        name: str,
        since: int,
        inputs: Sequence[Value],
        outputs: int,
        attributes: Mapping[str, Any],
        body: Callable[[Any], Body],
    ) -> None:
        self.build = build
        self.type = type
        self.name = name
        self.since = since
        self.inputs = list(inputs)
        self.outputs = outputs
        self.attributes = attributes
        self._body = body

    # Operands.

    def has(self, index: int) -> bool:
        """Return whether an operand is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def node(self, index: int = 0) -> Node:
        """Return an operand that has to be a tensor."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if isinstance(value, Node):
            return value
        if value is None:
            raise self.refuse(f"it lacks operand {index}")
        what = "a sequence" if isinstance(value, list) else "strings"
        raise self.refuse(f"operand {index} is {what}, not a tensor of numbers")

    def optional(self, index: int) -> Node | None:
        """Return an operand that may be left out."""
        return self.node(index) if self.has(index) else None

    @property
    def nodes(self) -> list[Node]:
        """All operands, which are tensors."""
        return [self.node(index) for index in range(len(self.inputs))]

    def known(self, index: int) -> np.ndarray | None:
        """Return the value of an operand, None where it depends on what is fed."""
        return self.build.known.of(self.node(index))

    def array(self, index: int, what: str) -> np.ndarray:
        """Return the value of an operand that has to be known; an array of ints and `Dim`."""
        value = self.known(index)
        if value is None:
            raise self.depends(self.node(index), what)
        return value

    def extents(self, index: int, what: str = "the shape of the result") -> list[Extent]:
        """Return an operand that is a vector of whole numbers, or one number, as extents."""
        value = self.array(index, what)
        if value.dtype.kind == "f" and (value == np.floor(value)).all():
            value = value.astype(np.int64)
        if value.dtype.kind not in "iuO":
            raise self.refuse(f"operand {index} is {value.dtype.name}, not whole numbers")
        return [e if isinstance(e, Dim) else int(e) for e in value.reshape(-1)]

    def ints(self, index: int, what: str = "the shape of the result") -> list[int]:
        """Return an operand that is a vector of whole numbers, all of them known."""
        values = self.extents(index, what)
        integers = [value for value in values if isinstance(value, int)]
        if len(integers) != len(values):
            raise self.refuse(f"{what} depends on {values}, of which the call brings some")
        return integers

    def number(self, index: int, what: str) -> Any:
        """Return an operand that is one number, known."""
        value = self.array(index, what)
        if value.size != 1:
            raise self.refuse(f"{what} is a tensor of shape {value.shape}, not one number")
        return value.reshape(-1)[0].item() if value.dtype != object else value.reshape(-1)[0]

    def sequence(self, index: int) -> list[Value]:
        """Return an operand that is a sequence."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if not isinstance(value, list):
            raise self.refuse(f"operand {index} is not a sequence")
        return value

    # Attributes.

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def dtype(self, number: int) -> np.dtype:
        """Return the dtype of an element type."""
        dtype = dtype_of(number)
        if dtype is None:
            raise self.refuse(f"{element_of(number)} is no dtype here")
        return dtype

    def body(self, name: str) -> Body:
        """Return a graph that is an attribute."""
        if name not in self.attributes:
            raise self.refuse(f"it lacks the attribute {name!r}")
        return self._body(self.attributes[name])

    def axis(self, ndim: int, default: int = 0, name: str = "axis") -> int:
        """Return the attribute that is an axis, counted from the front."""
        return self.counted(self.get(name, default), ndim)

    def counted(self, axis: int, ndim: int) -> int:
        """Return an axis counted from the front."""
        axis = int(axis)
        if not -ndim <= axis < max(ndim, 1):
            raise self.refuse(f"axis {axis} of {ndim} axes")
        return axis + ndim if axis < 0 else axis

    # Results.

    def like(self, result: Node, operand: Node | None = None) -> Node:
        """Return a result in the dtype of an operand."""
        dtype = (self.node(0) if operand is None else operand).dtype
        return result if result.dtype == dtype else cast(result, dtype)

    def shape(self, *extents: Any) -> Node:
        """Return extents as a vector of int64."""
        return self.build.known.add(_vector(extents))

    def refuse(self, reason: str, hint: str | None = None) -> OnnxError:
        """Make (not raise) the error for an operator that cannot be brought."""
        return OnnxError(message(f"{self.type} {self.name!r}: {reason}", hint=hint))

    def depends(self, node: Node, what: str) -> OnnxError:
        """Make (not raise) the error where something has to be known that a call brings."""
        names, reason = self.build.unknown(node)
        hint = None
        if names:
            arguments = ", ".join(f"{name!r}: array" for name in names)
            hint = f"mg.from_onnx(..., values={{{arguments}}})"
        error = self.refuse(f"{what} depends on {reason}", hint)
        error.inputs = tuple(names)
        return error


def _vector(extents: Sequence[Extent]) -> np.ndarray:
    if any(isinstance(extent, Dim) for extent in extents):
        vector = np.empty(len(extents), object)
        vector[:] = list(extents)
        return vector
    return np.array(extents, np.int64).reshape(len(extents))


Rule = Callable[[Operator], Any]
