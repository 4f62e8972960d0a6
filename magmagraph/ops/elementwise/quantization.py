"""Numbers as int8 in units of a scale, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import is_float, is_integer
from ...errors import DTypeError
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Kind, Op, Sample, Scalar, Tests
from ...ir.types import Type
from ..convert import as_node, cast
from ..rules import onnx_forms
from .arithmetic import divide, multiply
from .comparison import clip, where
from .family import REAL, floating_pair, misfits
from .rounding import isnan, rint

__all__ = ["dequantize", "quantize"]

_INT8 = np.dtype(np.int8)
_SCALE = np.array([[0.02], [0.01]])
_WHOLE = np.array([[-128, 5, 127], [0, -7, 9]], np.int8)


def _quantized_type(call: Call, x: Type, scale: Type) -> Type:
    if not is_float(x.dtype) or scale.dtype != x.dtype:
        raise call.dtype_error(
            f"operands of {x.dtype.name} and {scale.dtype.name}", need="one float dtype"
        )
    return Type(_INT8, call.broadcast(x.shape, scale.shape))


def _quantized(xp: Any, x: Any, scale: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = xp.rint(x / scale)
    whole = xp.where(xp.isnan(ratio), 0, xp.clip(ratio, -128, 127))
    return whole.astype(np.int8)


def _in_line(to: onnx_forms.Target, node: Node, scale: str) -> tuple[str, dict[str, int]] | None:
    """Return a scale as ONNX has it and the attribute of its axis; None where it has not.

    It is one number, or one for each position along an axis.
    """
    values, unit = node.inputs
    axes = [i - unit.ndim for i, extent in enumerate(unit.shape) if extent != 1]
    if node.shape != values.shape or len(axes) > 1 or unit.dtype.itemsize == 8:
        return None
    if unit.ndim == len(axes):
        line = scale
    else:
        line = to.add("Reshape", scale, to.constant(np.array([-1] if axes else [], np.int64)))
    return line, {"axis": axes[0] + values.ndim} if axes else {}


def _write_quantized(to: onnx_forms.Target, node: Node, x: str, scale: str) -> str:
    values, unit = node.inputs
    line_and_axis = _in_line(to, node, scale)
    zero = to.constant(np.zeros((), np.int8))  # says that the result is int8
    if line_and_axis is not None:
        line, axis = line_and_axis
        zeros = to.add("Expand", zero, to.add("Shape", line)) if axis else zero
        return to.add("QuantizeLinear", x, line, zeros, **axis)
    if values.dtype.itemsize == 8:  # of which there is no such operator
        ratio = rint(divide(values, unit))
        return to.node(cast(where(isnan(ratio), 0.0, clip(ratio, -128.0, 127.0)), _INT8))
    one = to.constant(values.dtype.type(1))
    return to.add("QuantizeLinear", to.add("Div", x, scale), one, zero)


def _write_dequantized(to: onnx_forms.Target, node: Node, x: str, scale: str) -> str:
    values, unit = node.inputs
    line_and_axis = _in_line(to, node, scale) if values.dtype == _INT8 else None
    if line_and_axis is not None:
        return to.add("DequantizeLinear", x, line_and_axis[0], **line_and_axis[1])
    return to.node(multiply(cast(values, unit.dtype), unit))


def quantize(x: Any, scale: Any) -> Node:
    """Round to multiples of a scale, as int8: ``rint(x / scale)``, from -128 to 127.

    Parameters
    ----------
    x
        Node or array of floats; ints become floats.
    scale
        The unit, broadcast against `x`: one number, or one for each row or channel.

    Returns
    -------
    Node
        Of the broadcast shape, int8. Halves go to the even neighbour, what is out of range to the
        nearest end, and NaN to 0. No gradient: piecewise constant.

    See Also
    --------
    dequantize : The inverse, up to rounding.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.quantize([0.5, -1.0, 9.0], 1 / 64).eval()
    array([ 32, -64, 127], dtype=int8)
    """
    return QUANTIZE(*floating_pair(x, scale))


QUANTIZE = Op(
    name="quantize",
    kind=Kind.ELEMENTWISE,
    doc="Round to multiples of a scale, as int8.",
    rule=_quantized_type,
    evaluate=_quantized,
    scalar=Scalar("$rint(a / b)"),  # the conversion to int8 saturates
    no_gradient="piecewise constant, so zero wherever it exists",
    function=quantize,
    numerics="exact",
    tests=Tests(
        samples=lambda: [Sample((REAL, _SCALE)), Sample((REAL, np.array(0.25)))],
        bad_samples=misfits("quantize"),
        reference=lambda x, scale: np.clip(np.rint(x / scale), -128, 127).astype(np.int8),
    ),
    onnx=_write_quantized,
)


def _dequantized_type(call: Call, x: Type, scale: Type) -> Type:
    if not is_integer(x.dtype):
        raise call.dtype_error(f"operand of {x.dtype.name}", need="integers")
    if not is_float(scale.dtype):
        raise call.dtype_error(f"a scale of {scale.dtype.name}", need="a float dtype")
    return Type(scale.dtype, call.broadcast(x.shape, scale.shape))


def dequantize(x: Any, scale: Any) -> Node:
    """Multiply integers by a scale: what `quantize` made of numbers, as floats.

    Parameters
    ----------
    x
        Node or array of integers.
    scale
        The unit, broadcast against `x`.

    Returns
    -------
    Node
        Of the broadcast shape and the dtype of the scale.

    Raises
    ------
    DTypeError
        If `x` holds no integers.

    See Also
    --------
    quantize : The inverse.

    Examples
    --------
    >>> import magmagraph as mg
    >>> mg.dequantize(mg.constant([32, -64]), 1 / 64).eval()
    array([ 0.5, -1. ], dtype=float32)
    """
    unit = as_node(scale)
    return DEQUANTIZE(as_node(x), unit if is_float(unit.dtype) else cast(unit, np.float32))


DEQUANTIZE = Op(
    name="dequantize",
    kind=Kind.ELEMENTWISE,
    doc="Multiply integers by a scale.",
    rule=_dequantized_type,
    evaluate=lambda xp, x, scale: x.astype(scale.dtype) * scale,
    scalar=Scalar("(T)a * b"),
    gradient=lambda node, cotangent: (
        None, multiply(cotangent, cast(node.inputs[0], cotangent.dtype))
    ),
    function=dequantize,
    numerics="exact",
    tests=Tests(
        samples=lambda: [Sample((_WHOLE, _SCALE)), Sample((_WHOLE, np.array(0.25)))],
        bad_samples=lambda: [
            BadSample((REAL, _SCALE), DTypeError, "dequantize: operand of float64")
        ],
        reference=lambda x, scale: x * scale,
    ),
    onnx=_write_dequantized,
)

RECORDS = (QUANTIZE, DEQUANTIZE)
