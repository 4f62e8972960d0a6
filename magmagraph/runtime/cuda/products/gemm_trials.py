"""Which algorithm of cuBLASLt computes a product: candidates, and their measured times.

Candidates come from the library's heuristic, asked with a large and with a small workspace (the
answers differ), and with the contracted axis shared out where the result has few tiles. They are
timed once for a device, shape and dtypes, in captured graphs; the winner is kept on disk.

Large products are bounded by the power of the device: what is multiplied then decides its clock.
On factors of one number the order of algorithms is another than on numbers that differ, and in the
first millisecond another than later. So factors are random, and the best few run in turn for a
while.
"""

from __future__ import annotations

import ctypes
import functools
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cache import content_key, default_choices

if TYPE_CHECKING:
    from .gemm import Product

__all__ = ["candidates", "tuned"]

_ASKED = (32 << 20, 1 << 20)
_CANDIDATES = 12
_SPLIT = 3  # so many of them are tried with the contracted axis in parts, too
_PARTS = (2, 4, 8)
_LONG = 512  # terms of a part
_TILE = 128 * 128  # elements: about what one multiprocessor makes of a result
_MULTIPROCESSORS = 132
_REPEATS = 20
_MICROSECONDS = 1000.0  # for the repeats of one measurement
_FINALISTS = 4  # are measured again, in turn
_ROUNDS = 11
_PATTERN = 65_521  # random numbers, again and again; a prime, so that rows differ
_DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
_ALGORITHM = 64  # bytes of a row of results that describe the algorithm


def candidates(product: Product, others: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Return algorithms for a product, a row of bytes each; the heuristic's first choice first.

    Parameters
    ----------
    product
        With its descriptor and layouts.
    others
        Algorithms of a similar product, of which those are taken that run this one, too.

    Raises
    ------
    RuntimeError
        There is none.
    """
    rows = [row for size in _ASKED for row in _proposed(product, size)]
    shape = product.shape
    tiles = shape.batch * -(-shape.m * shape.n // _TILE)
    if tiles < _MULTIPROCESSORS and shape.k >= 2 * _LONG and not shape.epilogue:
        rows += list(_in_parts(product, rows[:_SPLIT]))
    rows += [np.array(row) for row in others if _runs(product, np.array(row))]
    unique: dict[bytes, np.ndarray] = {}
    for row in rows:
        unique.setdefault(row[:_ALGORITHM].tobytes(), row)
    if not unique:
        raise RuntimeError(f"cuBLASLt has no algorithm for {shape}")
    return np.ascontiguousarray(np.stack(list(unique.values())))


def _proposed(product: Product, size: int) -> np.ndarray:
    """Return what the heuristic proposes for a workspace of so many bytes."""
    lt = product.library
    b, a, c = product.layouts
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
    try:
        lt.matmul_algo_get_heuristic(
            product.handle, product.description, b, a, c, c, preference, _CANDIDATES,
            results.ctypes.data, count.ctypes.data,
        )  # fmt: skip
    except Exception:  # the library raises where nothing fits
        count[0] = 0
    finally:
        lt.matmul_preference_destroy(preference)
    return results[: int(count[0])].view(np.uint8).reshape(-1, results.dtype.itemsize)


def _in_parts(product: Product, rows: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
    """Give algorithms with the contracted axis in parts, as far as the library allows it."""
    lt = product.library
    names = lt.MatmulAlgoConfigAttribute
    for row in rows:
        for parts in _PARTS:
            if product.shape.k < parts * _LONG:
                continue
            made = np.array(row)
            try:
                for name, number in ((names.SPLITK_NUM, parts), (names.REDUCTION_SCHEME, 2)):
                    value = ctypes.c_uint32(number)
                    lt.matmul_algo_config_set_attribute(
                        made.ctypes.data, int(name), ctypes.addressof(value), 4
                    )
            except Exception:  # it does not share out its work, or not so
                continue
            if _runs(product, made):
                yield made


def _runs(product: Product, row: np.ndarray) -> bool:
    """Return whether an algorithm computes a product in the workspace that there is."""
    lt = product.library
    b, a, c = product.layouts
    checked = np.zeros(1, lt.matmul_heuristic_result_dtype)
    try:
        lt.matmul_algo_check(
            product.handle, product.description, b, a, c, c, row.ctypes.data, checked.ctypes.data
        )
    except Exception:  # the library's way to say no
        return False
    return int(checked["workspace_size"][0]) <= _ASKED[0]


def tuned(product: Product, workspace: int) -> tuple[int, float]:
    """Return the number of the fastest algorithm and its microseconds: measured, or known."""
    key = content_key("cublaslt in turn", product.device.name, repr(product.shape), _version())
    choices = default_choices()
    known = choices.get(key)
    rows = [row[:_ALGORITHM].tobytes().hex() for row in product.algorithms]
    if isinstance(known, list) and len(known) == 2 and known[0] in rows:
        return rows.index(known[0]), float(known[1])
    chosen, taken = _fastest(product, workspace)
    choices.set(key, [rows[chosen], taken])
    return chosen, taken


def _fastest(product: Product, workspace: int) -> tuple[int, float]:
    cupy, shape, device = product.device.cupy, product.shape, product.device
    patterns: dict[str, Any] = {}

    def block(rows: int, columns: int, stride: int, dtype: str) -> Any:
        if dtype not in patterns:
            patterns[dtype] = cupy.asarray(_random(dtype))
        return _filled(cupy, patterns[dtype], rows * columns + stride * (shape.batch - 1))

    a = block(shape.m, shape.k, shape.strides[0], shape.dtype)
    b = block(shape.k, shape.n, shape.strides[1], shape.dtype)
    c = block(shape.m, shape.n, shape.strides[2], shape.stored)
    scalars = cupy.array([1, 0], product.scalar) if shape.device_scalars else None
    alpha = 0 if scalars is None else scalars.data.ptr
    beta = 0 if scalars is None else scalars.data.ptr + product.scalar.itemsize
    bias = block(1, shape.n, 0, shape.stored) if "bias" in shape.epilogue else None
    cupy.cuda.get_current_stream().synchronize()
    stream = device.stream

    def repeat(times: int) -> None:
        for _ in range(times):
            product.launch(
                a.data.ptr, b.data.ptr, 0, c.data.ptr, alpha, beta, workspace, stream.ptr,
                0 if bias is None else bias.data.ptr,
            )  # fmt: skip

    found: list[tuple[float, int, Callable[[], float]]] = []
    for number in range(len(product.algorithms)):
        product.chosen = number
        try:
            repeat(1)
            once = _microseconds(device, lambda: repeat(1))
            times = max(1, min(_REPEATS, int(_MICROSECONDS / max(once, 1.0))))
            with stream:
                stream.begin_capture()
                repeat(times)
                graph = stream.end_capture()

            def measure(graph: Any = graph, times: int = times) -> float:
                return _microseconds(device, lambda: graph.launch(stream)) / times

            found.append((min(measure() for _ in range(3)), number, measure))
        except Exception:  # an algorithm that does not run here is no candidate
            stream.synchronize()
    return _in_turn(found)


def _in_turn(found: Sequence[tuple[float, int, Callable[[], float]]]) -> tuple[int, float]:
    """Return the number of the fastest algorithm and its time, the best measured again in turn.

    Parameters
    ----------
    found
        For each its time, its number, and what measures it.
    """
    if not found:
        return 0, 0.0
    best = sorted(found, key=lambda one: one[:2])[:_FINALISTS]
    taken = [[measure() for _, _, measure in best] for _ in range(_ROUNDS)]
    medians = [statistics.median(times) for times in zip(*taken, strict=True)]
    least = min(medians)
    return best[medians.index(least)][1], least


def _random(dtype: str) -> np.ndarray:
    """Return random numbers of a dtype: their bytes, as numbers without a sign."""
    numbers = np.random.default_rng(0).standard_normal(_PATTERN)
    if dtype == "bfloat16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(dtype).view(f"u{np.dtype(dtype).itemsize}")


def _filled(cupy: Any, pattern: Any, count: int) -> Any:
    """Return an array of so many elements, filled by copies of a pattern and of what is there."""
    made = cupy.empty(count, pattern.dtype)
    size, there = pattern.itemsize, min(count, pattern.size)
    copy, stream = cupy.cuda.runtime.memcpyAsync, cupy.cuda.get_current_stream().ptr
    copy(made.data.ptr, pattern.data.ptr, there * size, _DEVICE_TO_DEVICE, stream)
    while there < count:
        more = min(there, count - there)
        copy(made.data.ptr + there * size, made.data.ptr, more * size, _DEVICE_TO_DEVICE, stream)
        there += more
    return made


def _microseconds(device: Any, launch: Any) -> float:
    """Return what the launches of a call take."""
    cupy, stream = device.cupy, device.stream
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record(stream)
    launch()
    end.record(stream)
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3


@functools.cache
def _version() -> str:
    from nvmath.bindings import cublasLt

    return str(cublasLt.get_version())
