"""Names that the Python array API standard gives to what has another name here, and its inspection.

`mg` is a namespace of the standard (data-apis.org/array-api, version 2024.12) as far as a graph
without values can be one; docs/design/014-array-api.md lists where it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import canonical, finfo, iinfo, is_bool, is_complex, is_float, is_integer, is_unsigned
from ..dtypes import promote as _promote
from ..errors import DTypeError, ShapeError, message
from ..help.argument_errors import told
from ..help.public_names import PACKAGE
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.values.dlpack import as_array
from ..ops.convert import as_node, cast
from ..ops.elementwise.bits import bitwise_not, left_shift, right_shift
from ..ops.elementwise.math import arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh
from ..ops.leaf import holds_node, input, variable
from ..ops.reduction.deviations import variance
from ..ops.shape.arrange import reshape, transpose
from ..ops.shape.creation import zeros, zeros_like
from ..ops.shape.joining import concatenate, stack

__all__ = [
    "acos",
    "acosh",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "can_cast",
    "concat",
    "e",
    "empty",
    "empty_like",
    "finfo",
    "from_dlpack",
    "iinfo",
    "inf",
    "isdtype",
    "nan",
    "newaxis",
    "permute_dims",
    "pi",
    "result_type",
    "var",
]

acos, acosh, asin, asinh = arccos, arccosh, arcsin, arcsinh
atan, atan2, atanh = arctan, arctan2, arctanh
bitwise_invert, bitwise_left_shift, bitwise_right_shift = bitwise_not, left_shift, right_shift
concat = concatenate

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

# A graph has no memory that could be left as it is: what is empty is zeros.
empty, empty_like = zeros, zeros_like


@documented
def permute_dims(x: Any, axes: tuple[int, ...]) -> Node:
    """Reorder the axes: `mg.transpose`, with the order always given.

    x: Node or array.
    axes: For each axis of the result the axis of `x` that it is.

    >>> mg.permute_dims(mg.var("x", shape=("n", 2, 3)), (2, 0, 1)).shape
    (3, n, 2)
    """
    return transpose(x, axes)


@documented
def astype(x: Any, dtype: Any, *, copy: bool = True) -> Node:
    """Convert the elements to a dtype: `mg.cast`.

    x: Node or array.
    dtype: A dtype or its name.
    copy: Taken for the standard's sake: nodes share nothing that could be written.

    >>> mg.astype(mg.constant([1.5, -2.5]), "int32").eval()
    array([ 1, -2], dtype=int32)
    """
    return cast(x, dtype)


@documented
def asarray(value: Any, dtype: Any = None, *, copy: bool | None = None) -> Node:
    """Make a node of numbers, sequences and arrays; return a node as it is.

    value: Node, array, number, or nested lists and tuples of numbers or of nodes of one shape.
    dtype: Of the result; the value's own unless said.
    copy: Taken for the standard's sake: arrays are copied, nodes share nothing that could be
        written.
    raises ShapeError: If lists with nodes are not of one length each, or the nodes not of one
        shape.

    >>> mg.asarray([1, 2], dtype="float32").eval()
    array([1., 2.], dtype=float32)
    >>> angle = mg.var("angle", init=0.5)
    >>> mg.asarray([[mg.cos(angle), -mg.sin(angle)], [mg.sin(angle), mg.cos(angle)]])
    <reshape float32[2, 2]>
    """
    nested = isinstance(value, (list, tuple)) and holds_node(value)
    if nested:
        return _stacked(value, dtype)
    return as_node(value) if dtype is None else cast(value, dtype)


def _stacked(value: Any, dtype: Any) -> Node:
    """Return nested lists with nodes in them as one node: their members promote together.

    With a dtype, each member is cast to that.
    """
    members, outer = list(value), [len(value)]
    while members and any(isinstance(member, (list, tuple)) for member in members):
        lengths = {len(m) if isinstance(m, (list, tuple)) else None for m in members}
        if len(lengths) > 1:
            raise ShapeError(
                message(
                    "asarray: nested lists of unequal lengths or depths",
                    need="members of one length at each depth",
                    hint="mg.block joins arrays of several shapes",
                )
            )
        outer.append(len(members[0]))
        members = [inner for member in members for inner in member]
    flat = stack(members, dtype=dtype, casting="unsafe")
    return reshape(flat, (*outer, *flat.shape[1:]))


@documented
def from_dlpack(value: Any) -> Node:
    """Make a constant of an array of another library, through DLPack.

    value: An object with ``__dlpack__`` whose memory the host can read.
    raises DTypeError: If its elements are of a dtype that DLPack does not have, or its memory
        cannot be read.

    >>> import numpy as np
    >>> mg.from_dlpack(np.array([1.0, 2.0])).eval()
    array([1., 2.])
    """
    try:
        array = as_array(value)
    except (BufferError, RuntimeError, ValueError) as error:
        raise DTypeError(message(f"from_dlpack: {error}", need="numbers on the host")) from error
    return as_node(np.array(array))


@documented
def result_type(*operands: Any) -> np.dtype:
    """Return the dtype that operands have together.

    *operands: Nodes, arrays, dtypes, names of dtypes, and Python numbers, which are weak.
    returns (numpy.dtype):
    raises DTypeError: If there are only Python numbers, or nothing.

    >>> mg.result_type("float32", "int64", 2.0)
    dtype('float32')
    """
    from ..dtypes import weak_dtype

    weak = [o for o in operands if isinstance(o, (bool, int, float, complex))]
    strong = [
        o.dtype if isinstance(o, Node) else canonical(getattr(o, "dtype", o))
        for o in operands
        if not isinstance(o, (bool, int, float, complex))
    ]
    if not strong:
        raise DTypeError(
            message(
                "result_type: there is no operand with a dtype",
                need="at least one node, array or dtype",
            )
        )
    result = _promote(*strong)
    for value in weak:
        result = _promote(result, weak_dtype(value, result))
    return result


@documented
def can_cast(source: Any, target: Any) -> bool:
    """Tell whether one dtype may be converted to another by the rules of promotion.

    source: A node, an array, or a dtype.
    target: A dtype.

    >>> mg.can_cast("float32", "float64"), mg.can_cast("float64", "float32")
    (True, False)
    """
    source_dtype = canonical(getattr(source, "dtype", source))
    target_dtype = canonical(target)
    return _promote(source_dtype, target_dtype) == target_dtype


_KINDS: dict[str, Callable[[np.dtype], bool]] = {
    "bool": is_bool,
    "signed integer": lambda dtype: is_integer(dtype) and not is_unsigned(dtype),
    "unsigned integer": is_unsigned,
    "integral": is_integer,
    "real floating": is_float,
    "complex floating": is_complex,
    "numeric": lambda dtype: not is_bool(dtype),
}


@documented
def isdtype(dtype: Any, kind: Any) -> bool:
    """Tell whether a dtype is another, or of a kind.

    dtype: A dtype or its name.
    kind: A dtype; or "bool", "signed integer", "unsigned integer", "integral", "real floating",
        "complex floating", "numeric"; or a tuple of these.
    raises DTypeError: If there is no such kind.

    >>> mg.isdtype("bfloat16", "real floating"), mg.isdtype("int8", ("bool", "float32"))
    (True, False)
    """
    checked = canonical(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(checked, each) for each in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return bool(_KINDS[kind](checked))
    try:
        return bool(checked == canonical(kind))
    except DTypeError:
        raise DTypeError(
            message(f"isdtype: there is no kind {kind!r}", need=f"a dtype, or {', '.join(_KINDS)}")
        ) from None


class NamespaceInfo:
    """What the standard asks a namespace about itself: ``mg.__array_namespace_info__()``."""

    def capabilities(self) -> dict[str, Any]:
        """Return what depends on values: masks and unique values need ``size=`` here."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device of functions that name none."""
        return "cpu"

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes of Python's numbers."""
        from ..config import config

        real = canonical(config.float_dtype)
        return {
            "real floating": real,
            "complex floating": canonical("complex128" if real.itemsize == 8 else "complex64"),
            "integral": canonical("int32"),
            "indexing": canonical("int64"),
        }

    def devices(self) -> list[str]:
        """Return the devices that functions take by themselves; others are asked for by name."""
        return ["cpu"]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes, all or those of a kind."""
        from ..dtypes import SUPPORTED

        return {d.name: d for d in SUPPORTED if kind is None or isdtype(d, kind)}


def namespace_info() -> NamespaceInfo:
    """Return the namespace's answers about itself."""
    return NamespaceInfo()


# As users call them, so that a wrong argument of `var` names the function that does not take it.
_input = told(input, PACKAGE, "input")
_variable = told(variable, PACKAGE, "variable")
_variance = told(variance, PACKAGE, "variance")


@documented
def var(name: Any, *args: Any, **options: Any) -> Node:
    """Make an input or a variable; with a node or an array first, return its variance.

    name: A string: the name of a new input, or, with ``init=``, of a new variable (see `input` and
        `variable`). A node or an array: what `variance` takes.
    *args, **options: As those functions take them.

    >>> mg.var("x", shape=("batch", 3))
    <input 'x' float32[batch, 3]>
    >>> mg.var("s", init=5.0).value
    array(5., dtype=float32)
    >>> mg.var(mg.constant([1.0, 3.0])).eval()
    array(1., dtype=float32)
    """
    if not isinstance(name, str):
        node: Node = _variance(name, *args, **options)
    elif "init" in options:
        node = _variable(name, *args, **options)
    else:
        node = _input(name, *args, **options)
    return node
