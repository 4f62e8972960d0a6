"""Leaves: inputs, variables, constants, extents as values, parameters of bodies."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from .. import init as initial
from ..config import config
from ..dtypes import (
    INT64,
    canonical,
    canonical_scalar,
    complex_dtype,
    is_bool,
    is_complex,
    is_float,
)
from ..errors import ArgumentError, DTypeError, GraphError, ShapeError, message
from ..ir import dims
from ..ir.dims import Dim
from ..ir.docstrings import documented
from ..ir.graph import Key, Node
from ..ir.lines import caller_line
from ..ir.op import Call, Effect, Kind, Op
from ..ir.types import Extent, Shape, Type
from ..ir.values.given import made_of_numbers, plain_array, unlike_numbers
from ..ir.values.held import HeldArray
from ..ir.values.state import State
from .rules import onnx_forms

ShapeLike = Extent | str | None | Sequence[Extent | str | None]
Initializer = Callable[[tuple[int, ...], np.dtype], np.ndarray]


def _declared(call: Call, *, dtype: np.dtype, shape: Shape, **attrs: Any) -> Type:
    return Type(dtype, shape)


def _state_type(call: Call, *, state: State) -> Type:
    return Type(state.data.dtype, state.data.shape)


def _constant_type(call: Call, *, value: np.ndarray) -> Type:
    return Type(value.dtype, value.shape)


def _no_evaluation(xp: Any, **attrs: Any) -> Any:
    raise GraphError("an input, a parameter or a variable is given a value, not evaluated")


INPUT = Op(
    name="input",
    kind=Kind.LEAF,
    doc="A value fed at the call.",
    rule=_declared,
    attributes={"key": "Key"},
    evaluate=_no_evaluation,
    no_gradient="a leaf",
)

VARIABLE = Op(
    name="variable",
    kind=Kind.LEAF,
    effect=Effect.STATE,
    doc="A value held between calls.",
    rule=_state_type,
    evaluate=_no_evaluation,
    no_gradient="a leaf",
)

PARAMETER = Op(
    name="parameter",
    kind=Kind.LEAF,
    doc="An operand of the node that holds the body graph; told apart by its index.",
    rule=_declared,
    attributes={"index": "Count"},
    evaluate=_no_evaluation,
    no_gradient="a leaf",
)

CONSTANT = Op(
    name="constant",
    kind=Kind.LEAF,
    doc="A value known when the graph is built.",
    rule=_constant_type,
    evaluate=lambda xp, *, value: xp.asarray(value),
    no_gradient="a leaf",
)

EXTENT = Op(
    name="extent",
    kind=Kind.LEAF,
    doc="The size of a named dimension as an int64 scalar.",
    rule=lambda call, *, dim: Type(np.dtype(np.int64), ()),
    attributes={"dim": "Extent"},
    evaluate=lambda xp, *, dim: xp.asarray(dim, dtype=np.int64),
    no_gradient="integer valued",
    onnx=onnx_forms.extent,
)


class Variable(Node):
    """A node that holds a value between calls."""

    __slots__ = ()

    @property
    def state(self) -> State:
        """The held value's buffer."""
        return cast(State, self.attrs["state"])

    @property
    def value(self) -> np.ndarray:
        """The held value, as a read-only copy; ``w.value = array`` writes it in place, checked.

        ``w.value += array`` writes as well. To write some elements, assign an array:
        ``array = w.value.copy()``, ``array[0] = 5.0``, ``w.value = array``.

        Examples
        --------
        >>> import magmagraph as mg
        >>> w = mg.var("w", init=[1.0, 2.0])
        >>> w.value[0] = 5.0
        Traceback (most recent call last):
        ValueError: this array is a copy of a variable's value: ...
        >>> w.value = [5.0, 2.0]
        >>> w.value += 1
        >>> w.value
        array([6., 3.], dtype=float32)
        """
        value = self.state.read().view(HeldArray)
        value.flags.writeable = False
        return value

    @value.setter
    def value(self, value: Any) -> None:
        self.state.write(value)

    def assign(self, value: Any) -> None:
        """Write `value`, of the same shape, into the variable in place.

        Raises
        ------
        ShapeError, DTypeError
            Where it does not fit; the variable keeps its value then.
        """
        self.state.write(value)


def _leaf(op: Op, owner: Any, attrs: dict[str, Any], type_: Type, name: str | None) -> Node:
    kind = Variable if op is VARIABLE else Node
    node = kind(op, (), attrs, type_, name, caller_line())
    owner.node = weakref.ref(node)
    return node


@documented
def input(name: str, shape: ShapeLike = (), dtype: Any = None) -> Node:
    """Make an input: a value that is fed at every call.

    name: Its name; feeds by name and error messages use it.
    shape: Extents: int, string (a named dimension), `Dim`, or None (anonymous). Default: a scalar.
    dtype: Element type; float32 (`mg.config.float_dtype`) unless said.
    returns (Node):

    >>> mg.input("x", shape=("batch", 784))
    <input 'x' float32[batch, 784]>
    """
    if not isinstance(name, str):
        raise ArgumentError(message(f"an input's name is a string, not {type(name).__name__}"))
    element = config.float_dtype if dtype is None else canonical(dtype)
    extents = dims.parse_shape(shape)
    attrs = {"key": Key(name), "dtype": element, "shape": extents}
    return _leaf(INPUT, attrs["key"], attrs, Type(element, extents), name)


@documented
def variable(
    name: str,
    shape: ShapeLike = None,
    init: Any = None,
    dtype: Any = None,
) -> Variable:
    """Make a variable: a value held between calls, which updates renew.

    name: Its name. Two variables are two, whatever their names.
    shape: Extents, all ints; may be left out where `init` is a value.
    init: A number or array (shape and dtype are its own unless said), or an initializer of
        `mg.init`, called as ``init(shape, dtype)``.
    dtype: Element type; for an initializer float32 (`mg.config.float_dtype`) unless said.
    raises ShapeError: Where the shape is missing, symbolic, or not that of the value.

    >>> mg.variable("s", init=5.0).value
    array(5., dtype=float32)
    """
    if init is None:
        raise ShapeError(
            message(
                f"variable '{name}' has no initial value",
                need="init=, a value or an initializer of mg.init",
                hint="mg.init.zeros(), or mg.input(...) for a value fed at the call",
            )
        )
    extents: tuple[int, ...] | None = None
    if shape is not None:
        parsed = dims.parse_shape(shape)
        symbolic = [extent for extent in parsed if not isinstance(extent, int)]
        if symbolic:
            raise ShapeError(
                message(
                    f"variable '{name}' has the symbolic extent {symbolic[0]}",
                    need="ints: a variable's buffer has a fixed size",
                )
            )
        extents = cast(tuple[int, ...], parsed)
    if callable(init) and not isinstance(init, Node):
        if extents is None:
            raise ShapeError(message(f"variable '{name}' has an initializer but no shape",
                                     hint="shape=(...)"))
        element = config.float_dtype if dtype is None else canonical(dtype)
        if init in [getattr(initial, kind) for kind in initial.__all__]:
            raise DTypeError(
                message(f"variable '{name}': init is the function mg.init.{init.__name__}",
                        need="the initializer that it returns", hint=f"mg.init.{init.__name__}()")
            )
        value = np.asarray(init(extents, element)).astype(element, copy=False)
    else:
        if isinstance(init, Node):
            raise DTypeError(
                message(f"variable '{name}': init is a node", need="a value",
                        hint="init=node.eval()")
            )
        if isinstance(init, str):
            raise DTypeError(
                message(f"variable '{name}': init is the text {init!r}",
                        need="a value or an initializer of mg.init",
                        hint=f"mg.init.{init}()" if init in initial.__all__ else None)
            )
        if dtype is not None:
            element = canonical(dtype)
        elif isinstance(init, np.ndarray):
            element = _element_of(init, init)
        else:
            element = constant(init).dtype  # numbers and lists of them are taken alike
        array = array_of(init, f"variable '{name}'")
        if not made_of_numbers(array):
            _element_of(init, array)
        _refuse_complex(f"variable '{name}'", array, element)
        value = array.astype(element, copy=False)  # the state has a copy of its own
        if extents is not None and value.shape != extents:
            if value.shape != ():
                raise ShapeError(
                    message(f"variable '{name}' has shape {extents}, its value {value.shape}")
                )
            value = np.broadcast_to(value, extents)
    if value.shape != (extents if extents is not None else value.shape):
        raise ShapeError(
            message(f"variable '{name}' has shape {extents}, its initializer made {value.shape}")
        )
    return variable_of(State(value, name), name)


def variable_of(state: State, name: str) -> Variable:
    """Make the variable that holds a state."""
    type_ = Type(state.data.dtype, state.data.shape)
    return cast(Variable, _leaf(VARIABLE, state, {"state": state}, type_, name))


_REAL = (int, float, bool)


def _refuse_complex(what: str, value: Any, dtype: np.dtype) -> None:
    """Raise where a real dtype is given complex values."""
    if type(value) in _REAL or is_complex(dtype) or is_bool(dtype) or not np.iscomplexobj(value):
        return
    raise DTypeError(
        message(
            f"{what} of dtype {dtype.name} is given complex values",
            need="a complex dtype, or real values",
            hint=f"dtype='{complex_dtype(dtype).name}', or value.real",
        )
    )


def holds_node(value: Any) -> bool:
    """Tell whether nested lists and tuples have a node among their members."""
    for member in value:
        if isinstance(member, Node):
            return True
        if isinstance(member, (list, tuple)) and holds_node(member):
            return True
    return False


def array_of(value: Any, what: str) -> np.ndarray:
    """Convert to an array; raise `DTypeError` for other values, `ShapeError` for ragged rows."""
    try:
        return plain_array(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        text = f"{what} cannot be made an array: {error}"
        if isinstance(value, (list, tuple)):
            raise ShapeError(message(text, need="rows of one length")) from None
        raise DTypeError(message(text)) from None


def real_array(what: str, value: Any) -> np.ndarray:
    """Return a value as an array of float64; a `DTypeError` where it is not real numbers."""
    array = array_of(value, what)
    if array.dtype.kind not in "buif" and not (array.dtype.kind == "V" and is_float(array.dtype)):
        raise DTypeError(message(f"{what} is of dtype {array.dtype}", need="real numbers"))
    return array.astype(np.float64)


def real_number(what: str, value: Any) -> float:
    """Return a value as a float; raise where it is not one real number."""
    array = real_array(what, value)
    if array.ndim:
        raise ShapeError(message(f"{what} has {array.ndim} axes", need="one number"))
    return float(array)


def _element_of(value: Any, array: np.ndarray) -> np.dtype:
    """Return the dtype of a value that was made an array, or raise where it holds no numbers."""
    try:
        return canonical(array.dtype)
    except DTypeError:
        what, hint = unlike_numbers(value, array)
        raise DTypeError(
            message(f"a constant is made of numbers, not of {what}", hint=hint)
        ) from None


def _read(value: Any, dtype: Any) -> tuple[Any, np.dtype]:
    """Return what NumPy makes the constant of, and its dtype; raise where it holds no numbers."""
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        natural = canonical_scalar(value, config.float_dtype) if dtype is None else canonical(dtype)
        return value, natural
    if isinstance(value, (list, tuple)) and holds_node(value):
        raise DTypeError(
            message(
                f"a {type(value).__name__} of nodes is not a constant",
                need="numbers or an array",
                hint="mg.stack([a, b]), or mg.asarray([[a, b], [c, d]])",
            )
        )
    if isinstance(value, (str, bytes)):
        raise DTypeError(
            message(
                f"the text {value!r} stands where a value is computed with",
                need="a node, a number or an array",
            )
        )
    array = array_of(value, "a constant")
    numbers = isinstance(value, (list, tuple))
    if dtype is not None:
        if not made_of_numbers(array):
            _element_of(value, array)
        return value if numbers else array, canonical(dtype)
    if numbers and array.dtype == np.float64:
        return array, config.float_dtype
    if numbers and array.dtype == np.complex128:
        return array, complex_dtype(config.float_dtype)
    if numbers and array.dtype == np.int64:
        narrow = array.astype(np.int32)
        return array, canonical(np.int32 if np.array_equal(narrow, array) else np.int64)
    return array, _element_of(value, array)


def natural_dtype(value: Any) -> np.dtype:
    """Return the dtype of the constant that `value`, no node, becomes where none is asked for."""
    return INT64 if isinstance(value, Dim) else _read(value, None)[1]


@documented
def constant(value: Any, dtype: Any = None, name: str | None = None) -> Node:
    """Make a constant of a number or an array (copied).

    Python floats, also in lists, become `mg.config.float_dtype`, complex numbers the complex dtype
    of that (complex64), ints int32 (int64 where they do not fit); arrays keep their dtype.

    value: A number, an array, or nested lists of numbers. A node is returned as it is.
    dtype: The dtype of the constant; by default the one described above.
    name: The name that printed graphs show.
    returns: Of the shape of `value`.
    raises DTypeError: If the value does not fit the dtype.

    >>> mg.constant(-2.0)
    <constant float32[]>
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, Dim):
        return extent(value)
    array, element = _read(value, dtype)
    _refuse_complex("a constant", value, element)
    try:
        copy = np.array(array, dtype=element, order="C")
    except (OverflowError, TypeError):  # bfloat16 refuses what has more than 64 bits as a type
        raise DTypeError(
            message(f"{value!r} does not fit {element.name}", hint="dtype='float64'")
        ) from None
    copy.flags.writeable = False
    return Node(CONSTANT, (), {"value": copy}, Type(element, copy.shape), name, caller_line())


@documented
def extent(dim: Extent | str) -> Node:
    """Return the size of a dimension as an int64 scalar node.

    dim (str, Dim or int): The name of a dimension, or an expression of dimensions.
    returns: A scalar.

    >>> mg.extent("batch")
    <extent int64[]>
    """
    value = dims.parse_shape((dim,))[0]
    if isinstance(value, int):
        return constant(value, dtype=np.int64)
    return EXTENT(dim=value)


def parameter(index: int, type_: Type) -> Node:
    """Return the leaf that stands for operand `index` in a body graph."""
    return PARAMETER(index=index, dtype=type_.dtype, shape=type_.shape)


RECORDS = (INPUT, VARIABLE, PARAMETER, CONSTANT, EXTENT)
