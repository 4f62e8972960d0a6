"""Products through cuBLASLt: descriptors and the algorithm made once, one call a launch.

cuBLASLt counts columns first: a row-major ``C = A @ B`` is its ``C' = B' A'``, so that B is given
as its first operand. Algorithms come from the library's heuristic, asked with a large and with a
small workspace (the answers differ), and are timed once for a device, shape and dtype; the winner
is kept on disk.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cache import content_key, default_choices
from .device import SCRATCH

__all__ = ["Product", "available", "plan_product"]

_ASKED = (32 << 20, 1 << 20)
_CANDIDATES = 8
_REPEATS = 20

_DATA = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}


@functools.lru_cache(maxsize=1)
def available() -> bool:
    """Return whether the bindings of cuBLASLt are installed."""
    try:
        from nvmath.bindings import cublasLt

        return bool(cublasLt.get_version() > 0)
    except Exception:  # missing packages and libraries raise whatever their loaders raise
        return False


@dataclass(frozen=True)
class Shape:
    """What a product is: sizes, flags, strides between the matrices of a batch."""

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


class Product:
    """One product, ready to be launched on any addresses of its shape.

    Parameters
    ----------
    device
        Where it runs.
    shape
        What it is.
    """

    def __init__(self, device: Any, shape: Shape) -> None:
        from nvmath.bindings import cublas, cublasLt

        self._library = lt = cublasLt
        self.device, self.shape = device, shape
        self.handle = _handle(device.number)
        kind = _DATA[shape.dtype]
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
        m, n, k = shape.m, shape.n, shape.k
        rows_b, columns_b = (n, k) if shape.transpose_b else (k, n)
        rows_a, columns_a = (k, m) if shape.transpose_a else (m, k)
        self.layouts = [
            lt.matrix_layout_create(kind, columns_b, rows_b, columns_b),
            lt.matrix_layout_create(kind, columns_a, rows_a, columns_a),
            lt.matrix_layout_create(kind, n, m, n),
        ]
        if shape.batch > 1:
            stride_a, stride_b, stride_c = shape.strides
            layout = lt.MatrixLayoutAttribute
            for handle, stride in zip(
                self.layouts, (stride_b, stride_a, stride_c), strict=True
            ):
                count, apart = ctypes.c_int32(shape.batch), ctypes.c_int64(stride)
                lt.matrix_layout_set_attribute(
                    handle, int(layout.BATCH_COUNT), ctypes.addressof(count), 4
                )
                lt.matrix_layout_set_attribute(
                    handle, int(layout.STRIDED_BATCH_OFFSET), ctypes.addressof(apart), 8
                )
        self.one = np.array([1], self.scalar)
        self.zero = np.array([0], self.scalar)
        self.algorithms = self._candidates()
        self.chosen = 0

    def _set(self, attribute: Any, value: Any) -> None:
        self._library.matmul_desc_set_attribute(
            self.description, int(attribute), ctypes.addressof(value), ctypes.sizeof(value)
        )

    def _candidates(self) -> np.ndarray:
        """Return what the heuristic proposes, with a large and with a small workspace."""
        lt = self._library
        found = []
        b, a, c = self.layouts
        for size in _ASKED:
            preference = lt.matmul_preference_create()
            value = ctypes.c_uint64(size)
            lt.matmul_preference_set_attribute(
                preference,
                int(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES),
                ctypes.addressof(value),
                8,
            )
            results = np.zeros(_CANDIDATES, lt.matmul_heuristic_result_dtype)
            count = np.zeros(1, np.int32)
            lt.matmul_algo_get_heuristic(
                self.handle, self.description, b, a, c, c, preference, _CANDIDATES,
                results.ctypes.data, count.ctypes.data,
            )
            lt.matmul_preference_destroy(preference)
            found.append(results[: int(count[0])])
        raw = np.concatenate(found).view(np.uint8).reshape(-1, found[0].dtype.itemsize)
        unique: dict[bytes, np.ndarray] = {}
        for row in raw:
            unique.setdefault(row[:64].tobytes(), row)
        return np.ascontiguousarray(np.stack(list(unique.values())))

    def launch(
        self, a: int, b: int, c: int, out: int, alpha: int, beta: int, workspace: int, stream: int
    ) -> None:
        """Compute ``out = alpha * a @ b + beta * c``, given addresses; 0 for what is not there."""
        alpha = alpha or self.one.ctypes.data
        beta = beta or self.zero.ctypes.data
        layout_b, layout_a, layout_c = self.layouts
        self._library.matmul(
            self.handle, self.description, alpha, b, layout_b, a, layout_a, beta, c or out,
            layout_c, out, layout_c,
            self.algorithms.ctypes.data + self.chosen * self.algorithms.shape[1],
            workspace, SCRATCH, stream,
        )

    def tune(self, workspace: int) -> None:
        """Time the candidates on scratch memory, or take the choice that is known."""
        key = content_key("cublaslt", self.device.name, repr(self.shape), _version())
        choices = default_choices()
        known = choices.get(key)
        rows = [row[:64].tobytes().hex() for row in self.algorithms]
        if known in rows:
            self.chosen = rows.index(known)
            return
        if len(rows) > 1:
            self.chosen = self._fastest(workspace)
        choices.set(key, rows[self.chosen])

    def _fastest(self, workspace: int) -> int:
        cupy, shape = self.device.cupy, self.shape
        itemsize = {"float64": 8, "float32": 4}.get(shape.dtype, 2)

        def block(rows: int, columns: int, stride: int) -> Any:
            count = rows * columns + stride * (shape.batch - 1)
            return cupy.full(count * itemsize, 0x3C, "u1")

        a = block(shape.m, shape.k, shape.strides[0])
        b = block(shape.k, shape.n, shape.strides[1])
        c = block(shape.m, shape.n, shape.strides[2])
        scalars = cupy.array([1, 0], self.scalar) if shape.device_scalars else None
        alpha = 0 if scalars is None else scalars.data.ptr
        beta = 0 if scalars is None else scalars.data.ptr + self.scalar.itemsize
        cupy.cuda.get_current_stream().synchronize()
        stream = self.device.stream
        best, winner = float("inf"), 0
        for number in range(len(self.algorithms)):
            self.chosen = number

            def repeat() -> None:
                for _ in range(_REPEATS):
                    self.launch(
                        a.data.ptr, b.data.ptr, 0, c.data.ptr, alpha, beta, workspace, stream.ptr
                    )

            try:
                repeat()
                with stream:
                    stream.begin_capture()
                    repeat()
                    graph = stream.end_capture()
                taken = min(self._seconds(graph) for _ in range(3))
            except Exception:  # an algorithm that does not run here is no candidate
                stream.synchronize()
                continue
            if taken < best:
                best, winner = taken, number
        return winner

    def _seconds(self, graph: Any) -> float:
        cupy, stream = self.device.cupy, self.device.stream
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end))


@functools.cache
def _handle(number: int) -> int:
    from nvmath.bindings import cublasLt

    return int(cublasLt.create())


@functools.cache
def _version() -> str:
    from nvmath.bindings import cublasLt

    return str(cublasLt.get_version())


_products: dict[tuple[int, Shape], Product] = {}


def plan_product(device: Any, shape: Shape, workspace: int, tuning: bool) -> Product:
    """Return the product of a shape, made and tuned once a process."""
    key = (device.number, shape)
    if key not in _products:
        product = Product(device, shape)
        if tuning:
            product.tune(workspace)
        _products[key] = product
    return _products[key]
