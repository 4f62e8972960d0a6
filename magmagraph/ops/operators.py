"""Define the operators, indexing and methods of nodes and extents that need operations.

`Node` and `Dim` are in rooms below the operations. `Node` declares the methods that are defined
here, and importing this module adds them to the class. `Dim` computes with extents by itself; here
its operators learn to make a node where the other operand is no extent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, message
from ..ir.dims import Dim
from ..ir.graph import Node
from .convert import cast
from .elementwise import arithmetic, bits, comparison, complex_numbers, math, rounding, signs
from .indexing import keys
from .indexing.at_indexer import Places
from .linalg import traces
from .products import contraction
from .reduction import deviations, statistics
from .reduction import primitives as reduction
from .reduction.folding import Axis
from .shape import layout


class Operators:
    """Hold the methods that `Node` declares and this module adds to it."""

    __slots__ = ()

    # Arithmetic.

    def __add__(self, other: Any) -> Node:
        return arithmetic.add(self, other)

    def __radd__(self, other: Any) -> Node:
        return arithmetic.add(other, self)

    def __sub__(self, other: Any) -> Node:
        return arithmetic.subtract(self, other)

    def __rsub__(self, other: Any) -> Node:
        return arithmetic.subtract(other, self)

    def __mul__(self, other: Any) -> Node:
        return arithmetic.multiply(self, other)

    def __rmul__(self, other: Any) -> Node:
        return arithmetic.multiply(other, self)

    def __truediv__(self, other: Any) -> Node:
        return arithmetic.divide(self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return arithmetic.divide(other, self)

    def __floordiv__(self, other: Any) -> Node:
        return arithmetic.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Node:
        return arithmetic.floor_divide(other, self)

    def __mod__(self, other: Any) -> Node:
        return arithmetic.remainder(self, other)

    def __rmod__(self, other: Any) -> Node:
        return arithmetic.remainder(other, self)

    def __divmod__(self, other: Any) -> tuple[Node, Node]:
        return arithmetic.floor_divide(self, other), arithmetic.remainder(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Node, Node]:
        return arithmetic.floor_divide(other, self), arithmetic.remainder(other, self)

    def __pow__(self, other: Any) -> Node:
        return math.power(self, other)

    def __rpow__(self, other: Any) -> Node:
        return math.power(other, self)

    def __neg__(self) -> Node:
        return arithmetic.negative(self)

    def __abs__(self) -> Node:
        return signs.absolute(self)

    def __round__(self, decimals: int = 0) -> Node:
        return rounding.round(self, decimals)

    def __matmul__(self, other: Any) -> Node:
        return contraction.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Node:
        return contraction.matmul(other, self)

    # Comparisons of values. Within the package nodes are compared by identity: ir/identity.py.

    def __eq__(self, other: Any) -> Node:  # type: ignore[override]
        return comparison.equal(self, _comparable("==", other))

    def __ne__(self, other: Any) -> Node:  # type: ignore[override]
        return comparison.not_equal(self, _comparable("!=", other))

    def __lt__(self, other: Any) -> Node:
        return comparison.less(self, other)

    def __le__(self, other: Any) -> Node:
        return comparison.less_equal(self, other)

    def __gt__(self, other: Any) -> Node:
        return comparison.greater(self, other)

    def __ge__(self, other: Any) -> Node:
        return comparison.greater_equal(self, other)

    # Bits; of bools, logic.

    def __and__(self, other: Any) -> Node:
        return bits.bitwise_and(self, other)

    def __rand__(self, other: Any) -> Node:
        return bits.bitwise_and(other, self)

    def __or__(self, other: Any) -> Node:
        return bits.bitwise_or(self, other)

    def __ror__(self, other: Any) -> Node:
        return bits.bitwise_or(other, self)

    def __xor__(self, other: Any) -> Node:
        return bits.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> Node:
        return bits.bitwise_xor(other, self)

    def __invert__(self) -> Node:
        return bits.bitwise_not(self)

    def __lshift__(self, other: Any) -> Node:
        return bits.left_shift(self, other)

    def __rlshift__(self, other: Any) -> Node:
        return bits.left_shift(other, self)

    def __rshift__(self, other: Any) -> Node:
        return bits.right_shift(self, other)

    def __rrshift__(self, other: Any) -> Node:
        return bits.right_shift(other, self)

    # NumPy.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Answer NumPy's operators, which an array on the left asks; refuse its functions."""
        name = ufunc.__name__
        if options.get("out") is not None:
            raise ArgumentError(
                message(
                    f"np.{name}() would write a node's value into an array: nothing has run yet",
                    hint="array = array + node, say, which makes a node, not array += node",
                )
            )
        if name not in _OPERATORS or method != "__call__" or options:
            raise _no_function(f"np.{name}")
        package = sys.modules[_PACKAGE]
        if name == "divmod":
            return package.floor_divide(*inputs), package.remainder(*inputs)
        return getattr(package, name)(*inputs)

    def __array_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Answer what NumPy's functions ask of a shape; refuse the others."""
        name = function.__name__
        if function in (np.shape, np.ndim, np.size) and len(arguments) == 1 and not named:
            return getattr(arguments[0], name)
        raise _no_function(f"{function.__module__.replace('numpy', 'np')}.{name}")

    # Elements.

    def __getitem__(self, key: Any) -> Node:
        return keys.index(_node(self), key)

    @property
    def at(self) -> Places:
        """Places of elements: ``x.at[key].set(v)`` is `x` with new elements; see `mg.index_update`.

        Beside ``set`` there are ``add``, ``subtract``, ``multiply``, ``divide``, ``min``, ``max``,
        and ``get``.
        """
        return Places(_node(self))

    # Methods, after NumPy's.

    @property
    def real(self) -> Node:
        """The real part, `mg.real`."""
        return complex_numbers.real(self)

    @property
    def imag(self) -> Node:
        """The imaginary part, `mg.imag`."""
        return complex_numbers.imag(self)

    def conj(self) -> Node:
        """Take the complex conjugate, `mg.conj`."""
        return complex_numbers.conj(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return the namespace of the array API standard: `magmagraph` itself."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(
                message(
                    f"api_version={api_version!r} of the array API standard is not known here",
                    need="a version up to 2024.12",
                )
            )
        return sys.modules[_PACKAGE]

    @property
    def mT(self) -> Node:
        """The last two axes exchanged; see `mg.matrix_transpose`."""
        return traces.matrix_transpose(self)

    @property
    def T(self) -> Node:
        """The node with its axes in reverse order."""
        return layout.transpose(self)

    def astype(self, dtype: Any) -> Node:
        """Convert to another dtype; see `mg.cast`."""
        return cast(self, dtype)

    def sum(
        self,
        axis: Axis = None,
        keepdims: bool = False,
        dtype: Any = None,
        *,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        """Add the elements along axes; see `mg.sum`."""
        return reduction.sum(self, axis, keepdims, dtype, initial=initial, where=where)

    def prod(
        self,
        axis: Axis = None,
        keepdims: bool = False,
        dtype: Any = None,
        *,
        initial: Any = None,
        where: Any = True,
    ) -> Node:
        """Multiply the elements along axes; see `mg.prod`."""
        return reduction.prod(self, axis, keepdims, dtype, initial=initial, where=where)

    def mean(
        self, axis: Axis = None, keepdims: bool = False, dtype: Any = None, *, where: Any = True
    ) -> Node:
        """Average the elements along axes; see `mg.mean`."""
        return statistics.mean(self, axis, keepdims, dtype, where=where)

    def var(
        self, axis: Axis = None, ddof: Any = 0, keepdims: bool = False, **options: Any
    ) -> Node:
        """Average the squared deviations along axes; see `mg.variance`."""
        return deviations.variance(self, axis, ddof, keepdims, **options)

    def std(
        self, axis: Axis = None, ddof: Any = 0, keepdims: bool = False, **options: Any
    ) -> Node:
        """Take the standard deviation along axes; see `mg.std`."""
        return deviations.std(self, axis, ddof, keepdims, **options)

    def max(
        self, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = True
    ) -> Node:
        """Find the largest element along axes; see `mg.max`."""
        return reduction.max(self, axis, keepdims, initial=initial, where=where)

    def min(
        self, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = True
    ) -> Node:
        """Find the smallest element along axes; see `mg.min`."""
        return reduction.min(self, axis, keepdims, initial=initial, where=where)

    def argmax(self, axis: Axis = None, keepdims: bool = False) -> Node:
        """Find the position of the largest element along axes; see `mg.argmax`."""
        return reduction.argmax(self, axis, keepdims)

    def argmin(self, axis: Axis = None, keepdims: bool = False) -> Node:
        """Find the position of the smallest element along axes; see `mg.argmin`."""
        return reduction.argmin(self, axis, keepdims)

    def any(self, axis: Axis = None, keepdims: bool = False, *, where: Any = True) -> Node:
        """Tell whether any element along axes is true; see `mg.any`."""
        return reduction.any(self, axis, keepdims, where=where)

    def all(self, axis: Axis = None, keepdims: bool = False, *, where: Any = True) -> Node:
        """Tell whether every element along axes is true; see `mg.all`."""
        return reduction.all(self, axis, keepdims, where=where)

    def clip(
        self, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None
    ) -> Node:
        """Limit values to an interval; see `mg.clip`."""
        return comparison.clip(self, min, max, a_min=a_min, a_max=a_max)

    def round(self, decimals: int = 0) -> Node:
        """Round to a number of decimals; see `mg.round`."""
        return rounding.round(self, decimals)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Node:
        """Give the elements another shape; see `mg.reshape`."""
        return layout.reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)

    def transpose(self, *axes: Any) -> Node:
        """Reorder the axes, or reverse them; see `mg.transpose`."""
        if not axes or (len(axes) == 1 and axes[0] is None):
            return layout.transpose(self)
        return layout.transpose(self, axes[0] if isinstance(axes[0], (tuple, list)) else axes)

    def swapaxes(self, first: int, second: int) -> Node:
        """Exchange two axes; see `mg.swapaxes`."""
        return layout.swapaxes(self, first, second)

    def squeeze(self, axis: Axis = None) -> Node:
        """Drop axes of extent 1; see `mg.squeeze`."""
        return layout.squeeze(self, axis)

    def ravel(self, order: str = "C") -> Node:
        """Put all elements on one axis; see `mg.ravel`."""
        return layout.ravel(self, order)

    def flatten(self, order: str = "C") -> Node:
        """Put all elements on one axis; see `mg.ravel`."""
        return self.ravel(order)

    def dot(self, other: Any) -> Node:
        """Multiply as `mg.dot` does."""
        return contraction.dot(self, other)


_PACKAGE = __name__.partition(".")[0]
_OPERATORS = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "divmod", "power"),
        *("matmul", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    )
)


def _no_function(called: str) -> ArgumentError:
    """Say that a function of NumPy computes with values, and what to call in its place."""
    hint = "node.eval() for the value"
    # np.fft.fft is ours by the same path; a name alone may be of another function.
    *path, last = called.removeprefix("np.").split(".")
    place: Any = sys.modules[_PACKAGE]
    for part in path:
        place = getattr(place, part, None)
    if callable(getattr(place, last, None)):
        hint = f"mg.{'.'.join((*path, last))}(), which makes a node, or {hint}"
    return ArgumentError(
        message(f"{called}() computes with values, and a node has none: nothing has run", hint=hint)
    )


def _comparable(symbol: str, other: Any) -> Any:
    """Return the other side of ``==`` or ``!=``, which has to be values."""
    if other is None or isinstance(other, (str, bytes)):
        negation = " not" if symbol == "!=" else ""
        hint = f"node is{negation} None" if other is None else f"node.name {symbol} {other!r}"
        raise ArgumentError(
            message(
                f"node {symbol} {other!r}: {symbol} compares the values of a node, element by "
                "element",
                need="a node, an array or a number on the other side",
                hint=hint,
            )
        )
    return other


def _node(value: Any) -> Node:
    assert isinstance(value, Node)
    return value


def _add_methods() -> None:
    own = {"__module__", "__qualname__", "__slots__", "__doc__", "__dict__", "__weakref__"}
    own.add("__hash__")  # None here because of __eq__; a node has its own
    for name, member in vars(Operators).items():
        if name not in own:
            setattr(Node, name, member)


_add_methods()

if TYPE_CHECKING:

    class _AsDeclared(Operators, Node):  # type checkers compare the definitions with Node's
        __slots__ = ()


# What an extent computes with as the node `mg.extent(dim)`, where the result is no extent.
_NUMBERS = (Dim, int, float, np.ndarray, np.generic)
_Method = Callable[[Dim, Any], Any]


def _or_node(exact: _Method | None, operation: _Method) -> _Method:
    """Return an operator of `Dim` that makes a node where the exact one has no result."""

    def method(self: Dim, other: Any) -> Any:
        result = NotImplemented if exact is None else exact(self, other)
        if result is NotImplemented and isinstance(other, _NUMBERS):
            return operation(self, other)
        return result

    return method


def _power(base: Dim, exponent: Any) -> Node:
    return math.power(base, float(exponent) if isinstance(exponent, int) else exponent)


def _add_nodes_to_dims() -> None:
    operations: dict[str, _Method] = {
        "__add__": arithmetic.add,
        "__radd__": arithmetic.add,
        "__sub__": arithmetic.subtract,
        "__rsub__": lambda self, other: arithmetic.subtract(other, self),
        "__mul__": arithmetic.multiply,
        "__rmul__": arithmetic.multiply,
        "__truediv__": arithmetic.divide,
        "__rtruediv__": lambda self, other: arithmetic.divide(other, self),
        "__pow__": _power,
        "__rpow__": lambda self, other: math.power(other, self),
        "__floordiv__": arithmetic.floor_divide,
        "__rfloordiv__": lambda self, other: arithmetic.floor_divide(other, self),
        "__mod__": arithmetic.remainder,
        "__rmod__": lambda self, other: arithmetic.remainder(other, self),
    }
    for name, operation in operations.items():
        setattr(Dim, name, _or_node(vars(Dim).get(name), operation))


_add_nodes_to_dims()
