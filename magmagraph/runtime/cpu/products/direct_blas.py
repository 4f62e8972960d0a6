"""Products that Python hands to BLAS itself, where no compiled step does.

NumPy's `matmul` knows neither scale nor addend: ``W - rate * (A.T @ B)`` takes three more passes
over W there. BLAS adds a product to what lies where its result goes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....codegen.steps import scaling_of, shape_of
from ....ir.plan import Step, Value
from ..memory import address_of
from .blas import CBLAS_32, CBLAS_64, find_blas

__all__ = ["straight_product"]

Array = np.ndarray[Any, Any]
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_ALPHA, _A, _B, _BETA, _C = 6, 7, 9, 11, 12  # places among the arguments of gemm
_REALS = {
    np.dtype(np.float32): ("sgemm", ctypes.c_float),
    np.dtype(np.float64): ("dgemm", ctypes.c_double),
}


@functools.lru_cache(maxsize=4)
def _gemm(dtype: np.dtype[Any]) -> tuple[Callable[..., None], int] | None:
    """Return gemm of a dtype, and the largest size that it takes; None where there is none."""
    blas = find_blas()
    if blas is None or dtype not in _REALS or blas.interface not in (CBLAS_64, CBLAS_32):
        return None
    name, real = _REALS[dtype]
    size: Any = ctypes.c_int64 if blas.interface == CBLAS_64 else ctypes.c_int
    matrix = (ctypes.c_void_p, size)
    kind = ctypes.CFUNCTYPE(
        None, *[ctypes.c_int] * 3, *[size] * 3, real, *matrix, *matrix, real, *matrix
    )
    return kind(blas.addresses[name]), (1 << (8 * ctypes.sizeof(size) - 1)) - 1


def straight_product(
    step: Step, fixed: Callable[[Value], Array | None], view: Callable[[Value], Array]
) -> Callable[[], None] | None:
    """Return what computes a product of two matrices, or None where BLAS is not to be asked.

    Parameters
    ----------
    step
        Of the family gemm, bound to sizes.
    fixed
        Returns the array of a value that is the same in all calls, else None.
    view
        Returns the array of a value in this call.
    """
    a, b = step.inputs[:2]
    out = step.outputs[0]
    attrs = step.node.attrs
    routine = _gemm(out.type.dtype)
    shapes = [shape_of(value.type) for value in (out, a, b)]
    if routine is None or attrs.get("compute") or any(len(shape) != 2 for shape in shapes):
        return None
    if any(value.type.dtype != out.type.dtype for value in step.inputs):
        return None
    gemm, largest = routine
    (m, n), left, right = shapes
    k = left[0] if attrs["transpose_a"] else left[1]
    # A vector is read, not packed: NumPy knows. Nothing times nothing is no product.
    if min(m, n) < 2 or k == 0 or max(m, n, k) > largest:
        return None
    alpha, c, beta = scaling_of(step, 2)
    flags = [_TRANSPOSED if attrs[name] else _PLAIN for name in ("transpose_a", "transpose_b")]
    arguments = [_ROW_MAJOR, *flags, m, n, k, 1.0, 0, left[1], 0, right[1], 0.0, 0, n]
    moving = []
    for place, value in ((_A, a), (_B, b), (_C, out)):
        array = fixed(value)
        if array is None:
            moving.append((place, value))
        else:
            arguments[place] = address_of(array)

    def now(value: Value) -> Callable[[], Array]:
        array = fixed(value)
        return functools.partial(view, value) if array is None else lambda: array

    scales = [(p, now(value)) for p, value in ((_ALPHA, alpha), (_BETA, beta)) if value is not None]
    target, addend = now(out), None if c is None else now(c)

    def run() -> None:
        for place, value in moving:
            arguments[place] = address_of(view(value))
        for place, scale in scales:
            arguments[place] = scale().item()
        if addend is not None and arguments[_BETA] != 0:
            before = addend()
            if address_of(before) != arguments[_C]:
                np.copyto(target(), before)
        gemm(*arguments)

    return run
