"""Products of int8 with sums in int32, which only passes make."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.graph import Node
from ...ir.op import Call, Kind, Op, Precision
from ...ir.types import Extent, Type
from ..convert import cast
from ..rules import onnx_forms
from ..shape.arrange import transpose
from .contraction import matmul

_INT8, _INT32 = np.dtype(np.int8), np.dtype(np.int32)
MOST_TERMS = (2**31 - 1) // 128**2  # of a sum that int32 holds, whatever the factors are


def _product_type(call: Call, a: Type, b: Type) -> Type:
    if a.dtype != _INT8 or b.dtype != _INT8:
        raise call.dtype_error(f"operands of {a.dtype.name} and {b.dtype.name}", need="int8")
    if a.ndim < 1 or b.ndim != 2:
        raise call.shape_error(f"operands {a} and {b}", need="(..., terms) and (columns, terms)")
    call.unify(a.shape[-1], b.shape[-1], "the contracted extents")
    return Type(_INT32, (*a.shape[:-1], b.shape[0]))


def _product(xp: Any, a: Any, b: Any) -> Any:
    # In float64, where sums below 2**53 are exact and BLAS multiplies.
    wide = xp.matmul(a.astype(np.float64), b.astype(np.float64).T)
    return wide.astype(np.int32)


def _flops(a: Type, b: Type) -> Extent:
    return a.size * b.shape[0] * 2


def _written(node: Node) -> Node:
    a, b = node.inputs
    return matmul(cast(a, _INT32), transpose(cast(b, _INT32)))


INT8_GEMM = Op(
    name="int8_gemm",
    kind=Kind.LOWERED,
    doc="a @ b.T of int8, with sums in int32.",
    rule=_product_type,
    evaluate=_product,
    flops=_flops,
    no_gradient="made by passes, after gradients are taken",
    numerics="exact",
    precision=Precision("keep"),
    onnx=onnx_forms.rewritten(_written),
)

RECORDS = (INT8_GEMM,)
