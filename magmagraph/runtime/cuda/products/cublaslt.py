"""Products through cuBLASLt: descriptors and the algorithm made once, one call a launch.

cuBLASLt counts columns first: a row-major ``C = A @ B`` is its ``C' = B' A'``, so that B is given
as its first operand, and a vector along the columns of the result is a bias of its rows. Which
algorithm runs is a measured choice, see `gemm`.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ....ir.fallback import Refused
from ..device import SCRATCH

__all__ = ["OwnKernel", "Product", "Shape", "available", "check_available", "why_unavailable"]

_DATA = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}


@functools.lru_cache(maxsize=1)
def why_unavailable() -> str | None:
    """Return why cuBLASLt cannot be used in this process, or None where it can."""
    try:
        from nvmath.bindings import cublasLt

        cublasLt.get_version()
    except Exception as error:  # missing packages and libraries raise whatever their loaders raise
        return f"{type(error).__name__}: {error}"
    return None


def available() -> bool:
    """Return whether the bindings of cuBLASLt and the library are installed."""
    return why_unavailable() is None


def check_available() -> None:
    """Raise `Refused` unless the library can be used."""
    reason = why_unavailable()
    if reason is not None:
        raise Refused(f"cuBLASLt cannot be used: {reason}")


@dataclass(frozen=True)
class Shape:
    """The key of a product: sizes, dtypes, flags, strides between matrices of a batch.

    Attributes
    ----------
    m, n, k
        Rows and columns of the result, and terms of each element.
    dtype, result
        Of the operands, and of the result; empty where that is the same.
    device_scalars
        Whether alpha and beta lie on the device.
    compute
        "tf32": float32 operands are rounded to 11 digits, for the tensor cores.
    epilogue
        What is done to an element before it is stored: "", "bias", "relu", "gelu" (the form with
        tanh), "relu_bias" or "gelu_bias". A bias has `n` elements of the result's dtype.
    """

    m: int
    n: int
    k: int
    dtype: str
    transpose_a: bool
    transpose_b: bool
    accumulate: bool
    device_scalars: bool
    batch: int = 1
    strides: tuple[int, int, int] = (0, 0, 0)
    compute: str = "float32"
    result: str = ""
    epilogue: str = ""

    @property
    def stored(self) -> str:
        """The dtype of the result."""
        return self.result or self.dtype


class OwnKernel(Protocol):
    """A kernel of this package that computes a product in place of the library."""

    def takes(self, a: int, b: int, out: int, bias: int, alpha: int) -> bool:
        """Return whether it computes this from these addresses; `alpha` is of a host's number."""
        ...

    def launch(
        self,
        a: int,
        b: int,
        c: int,
        out: int,
        alpha: int,
        beta: int,
        workspace: int,
        stream: int,
        bias: int = 0,
    ) -> None:
        """Compute ``out = f(a @ b + bias)``, given addresses."""
        ...


class Product:
    """One product, ready to be launched on any addresses of its shape.

    Parameters
    ----------
    device
        Where it runs.
    shape
        What it is.

    Attributes
    ----------
    algorithms
        What may compute it, a row of bytes each; there is none until one is proposed.
    chosen, microseconds
        The number of the algorithm, and what it was measured to take; 0 where nothing was.
    beside
        What the same product without an epilogue took in turn with it; 0 where there is none.
    own
        What computes it instead of the library, or None.
    """

    def __init__(self, device: Any, shape: Shape) -> None:
        from nvmath.bindings import cublas, cublasLt

        self.library = lt = cublasLt
        self.device, self.shape = device, shape
        self.handle = _handle(device.number)
        types = cublas.ComputeType
        compute = types.COMPUTE_64F if shape.dtype == "float64" else types.COMPUTE_32F
        if shape.compute == "tf32" and shape.dtype == "float32":
            compute = types.COMPUTE_32F_FAST_TF32
        scale = 1 if shape.dtype == "float64" else 0
        self.scalar = np.dtype(np.float64 if scale else np.float32)
        self.description = lt.matmul_desc_create(int(compute), scale)
        attribute = lt.MatmulDescAttribute
        self._set(attribute.TRANSA, ctypes.c_int32(int(shape.transpose_b)))
        self._set(attribute.TRANSB, ctypes.c_int32(int(shape.transpose_a)))
        if shape.device_scalars:
            self._set(attribute.POINTER_MODE, ctypes.c_int32(1))
        if shape.epilogue:
            name = shape.epilogue.upper()
            self._set(attribute.EPILOGUE, ctypes.c_int32(int(lt.Epilogue[name])))
        self.layouts = self._layouts()
        self.one = np.array([1], self.scalar)
        self.zero = np.array([0], self.scalar)
        self.algorithms = np.empty((0, 0), np.uint8)
        self.chosen, self.microseconds, self.beside = 0, 0.0, 0.0
        self.own: OwnKernel | None = None

    def _layouts(self) -> list[int]:
        """Return the layouts of B, A and the result."""
        lt, shape = self.library, self.shape
        kind, stored = _DATA[shape.dtype], _DATA[shape.stored]
        m, n, k = shape.m, shape.n, shape.k
        rows_b, columns_b = (n, k) if shape.transpose_b else (k, n)
        rows_a, columns_a = (k, m) if shape.transpose_a else (m, k)
        layouts = [
            lt.matrix_layout_create(kind, columns_b, rows_b, columns_b),
            lt.matrix_layout_create(kind, columns_a, rows_a, columns_a),
            lt.matrix_layout_create(stored, n, m, n),
        ]
        if shape.batch > 1:
            stride_a, stride_b, stride_c = shape.strides
            layout = lt.MatrixLayoutAttribute
            for handle, stride in zip(layouts, (stride_b, stride_a, stride_c), strict=True):
                count, apart = ctypes.c_int32(shape.batch), ctypes.c_int64(stride)
                lt.matrix_layout_set_attribute(
                    handle, int(layout.BATCH_COUNT), ctypes.addressof(count), 4
                )
                lt.matrix_layout_set_attribute(
                    handle, int(layout.STRIDED_BATCH_OFFSET), ctypes.addressof(apart), 8
                )
        return layouts

    def _set(self, attribute: Any, value: Any) -> None:
        self.library.matmul_desc_set_attribute(
            self.description, int(attribute), ctypes.addressof(value), ctypes.sizeof(value)
        )

    def launch(
        self,
        a: int,
        b: int,
        c: int,
        out: int,
        alpha: int,
        beta: int,
        workspace: int,
        stream: int,
        bias: int = 0,
    ) -> None:
        """Compute ``out = alpha * a @ b + beta * c``, given addresses; 0 for absent operands.

        With an epilogue `bias` is added to each row and the function applied. The descriptor is
        shared: calls of one product come one after the other.
        """
        if self.own is not None and self.own.takes(a, b, out, bias, alpha):
            self.own.launch(a, b, c, out, alpha, beta, workspace, stream, bias)
            return
        if bias:
            self._set(self.library.MatmulDescAttribute.BIAS_POINTER, ctypes.c_int64(bias))
        alpha = alpha or self.one.ctypes.data
        beta = beta or self.zero.ctypes.data
        layout_b, layout_a, layout_c = self.layouts
        self.library.matmul(
            self.handle, self.description, alpha, b, layout_b, a, layout_a, beta, c or out,
            layout_c, out, layout_c,
            self.algorithms.ctypes.data + self.chosen * self.algorithms.shape[1],
            workspace, SCRATCH, stream,
        )  # fmt: skip


@functools.cache
def _handle(number: int) -> int:
    from nvmath.bindings import cublasLt

    return int(cublasLt.create())
