"""The operators, indexing and methods of nodes, hung on `Node` when this module is imported.

They stand here and not in `graph.py` because they need the operations, which need nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..errors import ArgumentError, ShapeError, message
from ..graph import Node
from .convert import cast
from .elementwise import arithmetic, bits, comparison, complex_numbers, rounding
from .reduction import deviations, statistics
from .reduction import primitives as reduction
from .reduction.folding import Axis

if TYPE_CHECKING:
    from .indexing.places import Places


class Operators:
    """What a node can do beside being one; for type checkers a base of `Node`."""

    __slots__ = ()

    def eval(self, feeds: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        """Return the node's value, compiled at the first call.

        Parameters
        ----------
        feeds, named
            Values of the inputs it needs, ``{x: array}`` or by name.

        Examples
        --------
        >>> import magmagraph as mg
        >>> x = mg.var("x", shape=(2,))
        >>> (x + 1.0).eval({x: [1.0, 2.0]})
        array([2., 3.], dtype=float32)
        """
        from ..function.evaluation import evaluate_node

        return evaluate_node(self, feeds, named)

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
        return arithmetic.power(self, other)

    def __rpow__(self, other: Any) -> Node:
        return arithmetic.power(other, self)

    def __neg__(self) -> Node:
        return arithmetic.negative(self)

    def __pos__(self) -> Node:
        return _node(self)

    def __abs__(self) -> Node:
        return arithmetic.absolute(self)

    def __round__(self, decimals: int = 0) -> Node:
        return rounding.round(self, decimals)

    def __matmul__(self, other: Any) -> Node:
        from .products.contraction import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Node:
        from .products.contraction import matmul

        return matmul(other, self)

    # Comparisons of values; == and != are identity and stay with Node.

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
            raise _no_function(f"np.{name}", name)
        if name in ("equal", "not_equal"):
            return self == next((v for v in inputs if not isinstance(v, Node)), inputs[0])
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
        raise _no_function(f"{function.__module__.replace('numpy', 'np')}.{name}", name)

    # Elements.

    def __getitem__(self, key: Any) -> Node:
        from .shape.layout import index

        return index(_node(self), key)

    @property
    def at(self) -> Places:
        """Places of elements: ``x.at[key].set(v)`` is `x` with new elements; see `mg.index_update`.

        Beside ``set`` there are ``add``, ``subtract``, ``multiply``, ``divide``, ``min``, ``max``,
        and ``get``.
        """
        from .indexing.places import Places

        return Places(_node(self))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise ArgumentError(
            message(
                "a node cannot be written into: it is a value, not a buffer",
                hint="x.at[key].set(value), which makes a node; mg.where(mask, new, x); or "
                "variable.assign(array) for a variable",
            )
        )

    def __len__(self) -> int:
        node = _node(self)
        if node.ndim == 0:
            raise ArgumentError(message("len() of a node without axes"))
        extent = node.shape[0]
        if type(extent) is not int:
            raise ShapeError(
                message(
                    f"len() of a node whose first extent is '{extent}', known only at the call",
                    hint="node.shape[0], which computes in shapes and as mg.extent(node.shape[0])",
                )
            )
        return extent

    def __iter__(self) -> Iterator[Node]:
        node = _node(self)
        if node.ndim == 0:
            raise ArgumentError(message("iteration over a node without axes"))
        extent = node.shape[0]
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
        from .linalg.traces import matrix_transpose

        return matrix_transpose(self)

    @property
    def T(self) -> Node:
        """The node with its axes in reverse order."""
        from .shape.layout import transpose

        return transpose(self)

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
        from .shape.layout import reshape

        return reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)

    def transpose(self, *axes: Any) -> Node:
        """Reorder the axes, or reverse them; see `mg.transpose`."""
        from .shape.layout import transpose

        if not axes or (len(axes) == 1 and axes[0] is None):
            return transpose(self)
        return transpose(self, axes[0] if isinstance(axes[0], (tuple, list)) else axes)

    def swapaxes(self, first: int, second: int) -> Node:
        """Exchange two axes; see `mg.swapaxes`."""
        from .shape.layout import swapaxes

        return swapaxes(self, first, second)

    def squeeze(self, axis: Axis = None) -> Node:
        """Drop axes of extent 1; see `mg.squeeze`."""
        from .shape.layout import squeeze

        return squeeze(self, axis)

    def ravel(self, order: str = "C") -> Node:
        """Put all elements on one axis; see `mg.ravel`."""
        from .shape.layout import ravel

        return ravel(self, order)

    def flatten(self, order: str = "C") -> Node:
        """Put all elements on one axis; see `mg.ravel`."""
        return self.ravel(order)

    def dot(self, other: Any) -> Node:
        """Multiply as `mg.dot` does."""
        from .products.contraction import dot

        return dot(self, other)


_PACKAGE = __name__.partition(".")[0]
_OPERATORS = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "divmod", "power"),
        *("matmul", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    )
)


def _no_function(called: str, name: str) -> ArgumentError:
    """Say that a function of NumPy computes with values, and what to call in its place."""
    hint = "node.eval() for the value"
    if callable(getattr(sys.modules[_PACKAGE], name, None)):
        hint = f"mg.{name}(), which makes a node, or {hint}"
    return ArgumentError(
        message(f"{called}() computes with values, and a node has none: nothing has run", hint=hint)
    )


def _node(value: Any) -> Node:
    assert isinstance(value, Node)
    return value


def _hang() -> None:
    own = {"__module__", "__qualname__", "__slots__", "__doc__", "__dict__", "__weakref__"}
    for name, member in vars(Operators).items():
        if name not in own:
            setattr(Node, name, member)


_hang()
