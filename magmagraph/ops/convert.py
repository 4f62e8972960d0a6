"""How Python values, arrays and nodes of different dtypes become operands of one dtype."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from ..config import config
from ..dims import Dim
from ..dtypes import (
    canonical,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    promote,
    weak_dtype,
)
from ..errors import DTypeError
from ..graph import Node
from ..op import INEXACT, BadSample, Call, Kind, Op, Sample
from ..types import Type
from .leaf import constant
from .rules import onnx_forms

_SCALARS = (bool, int, float, complex)


def _cast_type(call: Call, x: Type, *, dtype: np.dtype) -> Type:
    if is_complex(x.dtype) and (is_float(dtype) or is_integer(dtype)):
        raise call.dtype_error(
            f"{x.dtype.name} to {dtype.name} would lose the imaginary part",
            need="a complex dtype or bool",
            mend="mg.real(x), mg.imag(x) or mg.absolute(x)",
        )
    return Type(dtype, x.shape)


def _cast_gradient(node: Node, cotangent: Node) -> tuple[Node | None]:
    source = node.inputs[0]
    if not (is_inexact(source.dtype) and is_inexact(node.dtype)):
        return (None,)
    if is_complex(node.dtype) and not is_complex(source.dtype):
        from .elementwise.complex_numbers import real

        cotangent = real(cotangent)
    return (cast(cotangent, source.dtype),)


def cast(x: Any, dtype: Any) -> Node:
    """Convert `x` to another dtype, element by element.

    Floats to ints truncate toward zero; what is out of range becomes the nearest end of the range,
    and NaN becomes 0, on every device (NumPy's result depends on the processor). Ints to narrower
    ints keep the low bits; to bool, nonzero is true. The gradient is converted back (that of a
    float made complex is the real part); none flows through an integer.

    Parameters
    ----------
    x
        Node or array of any shape.
    dtype
        The wanted dtype.

    Raises
    ------
    DTypeError
        From complex to float or integer, which would lose the imaginary part.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.cast(mg.constant([1.7, -1.7]), "int32").eval()
    array([ 1, -1], dtype=int32)
    """
    node = as_node(x)
    wanted = canonical(dtype)
    return node if node.dtype == wanted else CAST(node, dtype=wanted)


def _converted(xp: Any, x: Any, *, dtype: np.dtype) -> Any:
    x = x if hasattr(x, "astype") else xp.asarray(x)
    if not (is_float(x.dtype) and is_integer(dtype)):
        return x.astype(dtype)
    if x.dtype.itemsize < 4:
        x = x.astype(np.float32)  # in which the ends of all ranges are finite
    ends = np.iinfo(dtype)
    low, high = float(ends.min), 2.0 * float(ends.max // 2 + 1)
    inside = xp.where((x > low) & (x < high), x, 0).astype(dtype)
    ended = xp.where(x >= high, dtype.type(ends.max), inside)
    return xp.where(x <= low, dtype.type(ends.min), ended)


CAST = Op(
    name="cast",
    kind=Kind.ELEMENTWISE,
    doc="Convert to another dtype.",
    rule=_cast_type,
    evaluate=_converted,
    scalar="a",  # generated kernels convert where the dtypes of operand and result differ
    gradient=_cast_gradient,
    sharding="linear",
    function=cast,
    dtypes=INEXACT,
    samples=lambda: [
        Sample((np.linspace(-2.0, 2.0, 6).reshape(2, 3),), {"dtype": "complex128"}),
        Sample((np.arange(3, dtype=np.int32),), {"dtype": "float32"}),
    ],
    bad_samples=lambda: [
        BadSample(
            (np.array([1.0 + 2.0j]),),
            DTypeError,
            "cast: complex128 to float32 would lose the imaginary part",
            {"dtype": "float32"},
        )
    ],
    reference=lambda x, dtype: np.asarray(x).astype(dtype),
    onnx=onnx_forms.cast,
)


def as_node(value: Any, like: np.dtype | None = None) -> Node:
    """Return `value` as a node; a Python scalar is weak and takes its dtype from `like`."""
    if isinstance(value, Node):
        return value
    if like is not None and type(value) in _SCALARS:
        return constant(value, dtype=weak_dtype(value, like, config.float_dtype))
    return constant(value)


def _own_dtype(value: Any) -> np.dtype:
    """Return the dtype of an operand that is no node and no Python scalar."""
    if not isinstance(value, (list, tuple, str, bytes)):
        with contextlib.suppress(DTypeError):  # of no numbers: `constant` says of what
            return canonical(np.asarray(value).dtype)
    return constant(value).dtype


def promoted(*values: Any) -> tuple[Node, ...]:
    """Return the operands as nodes of one dtype: promotion by the rules of the public API."""
    strong: list[np.dtype] = []
    weak: list[Any] = []
    sized = False
    for v in values:
        if isinstance(v, Node):
            strong.append(v.dtype)
        elif type(v) in _SCALARS:
            weak.append(v)
        elif type(v) is Dim:
            sized = True
        else:
            strong.append(_own_dtype(v))
    if not strong:
        nodes = [as_node(v) for v in values]
        common = promote(*[node.dtype for node in nodes])
    else:
        common = promote(*strong) if len(strong) > 1 else strong[0]
        for v in weak:
            common = promote(common, weak_dtype(v, common, config.float_dtype))
        nodes = [as_node(v, common) for v in values]
        if sized:
            common = promote(common, np.dtype(np.int64))
    return tuple([node if node.dtype == common else cast(node, common) for node in nodes])


RECORDS = (CAST,)
