"""Which algorithm of cuBLASLt computes a product: candidates, and their measured times.

Candidates come from the library's heuristic, asked with a large and with a small workspace (the
answers differ), and with the contracted axis shared out where the result has few tiles. Products of
16-bit numbers have more: what `gemm_kernels` makes of the fastest of these. They are timed once for
a device, shape and dtypes, in captured graphs; the winner is kept on disk.

Large products are bounded by the power of the device: what is multiplied then decides its clock.
On factors of one number the order of algorithms is another than on numbers that differ, and in the
first millisecond another than later. So factors are random, and the best few run in turn for a
while.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....ir.fallback import Refused
from ...cache import content_key, default_choices
from .cublaslt import Product, Shape
from .gemm_kernels import ASKED, refusals, runs, varied, varies, with_options
from .wide import WideProduct

__all__ = ["candidates", "in_turn_with", "tuned"]

_Measured = tuple[float, int, Callable[[], float]]  # microseconds, number, measures them again

_CANDIDATES = 12
_SPLIT = 3  # so many of them are tried with the contracted axis in parts, too
_PARTS = (2, 4, 8)
_LONG = 512  # terms of a part
_TILE = 128 * 128  # elements: about what one multiprocessor makes of a result
_MULTIPROCESSORS = 132
_REPEATS = 20
_MICROSECONDS = 1000.0  # for the repeats of one measurement
_LASTING = 4000.0  # the same where clocks are to have settled
_LOOK = 200.0  # the same where there are many to look at
_FINALISTS = 4  # are measured again, in turn
_MORE = 6  # as many of the kernels that are not proposed
_ROUNDS = 11
_PLAIN = -1  # the number of the product without its epilogue
_PATTERN = 65_521  # random numbers, again and again; a prime, so that rows differ
_DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 2, 3  # cudaMemcpyKind
_ALGORITHM = 64  # bytes of a row of results that describe the algorithm
_APART = 1 / 64  # of the largest element: no rounding of the same sums moves another by more
_SAMPLE = 61  # rows apart, of which results are compared: each tile has some
_UNWRITTEN = 255  # a byte of a number that is none


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
    Refused
        There is none.
    """
    rows = [row for size in ASKED for row in _proposed(product, size)]
    shape = product.shape
    tiles = shape.batch * -(-shape.m * shape.n // _TILE)
    if tiles < _MULTIPROCESSORS and shape.k >= 2 * _LONG and not shape.epilogue:
        rows += list(_in_parts(product, rows[:_SPLIT]))
    rows += [np.array(row) for row in others if runs(product, np.array(row))]
    if not rows:
        raise Refused(f"cuBLASLt has no algorithm for {_in_words(shape)}")
    return _unique(rows)


def _in_words(shape: Shape) -> str:
    """Return the description of a product, without its sizes."""
    parts = [f"{shape.dtype} products", f"to {shape.stored}", f"with {shape.epilogue}"]
    return " ".join(parts[: 2 + bool(shape.epilogue)])


def _unique(rows: Iterable[np.ndarray]) -> np.ndarray:
    """Return the rows of different algorithms, in order, as one array."""
    first: dict[bytes, np.ndarray] = {}
    for row in rows:
        first.setdefault(row[:_ALGORITHM].tobytes(), row)
    return np.ascontiguousarray(np.stack(list(first.values())))


def _proposed(product: Product, size: int) -> np.ndarray:
    """Return the heuristic's proposals for a workspace of so many bytes."""
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
    except refusals(product):  # where nothing fits
        count[0] = 0
    finally:
        lt.matmul_preference_destroy(preference)
    return results[: int(count[0])].view(np.uint8).reshape(-1, results.dtype.itemsize)


def _in_parts(product: Product, rows: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
    """Give algorithms with the contracted axis in parts, as far as the library allows it."""
    for row in rows:
        for parts in _PARTS:
            if product.shape.k < parts * _LONG:
                continue
            variant = with_options(product, row, SPLITK_NUM=parts, REDUCTION_SCHEME=2)
            if variant is not None and runs(product, variant):
                yield variant


def tuned(
    product: Product, workspace: int, plain: Product | None = None
) -> tuple[int, float, float]:
    """Return the number of the fastest algorithm and its microseconds: measured, or known.

    The product's algorithms may be more then.

    Parameters
    ----------
    product
        With its candidates.
    workspace
        Where they may write meanwhile.
    plain
        The same without its epilogue, tuned. What it takes in turn with this one is returned last,
        else 0: times of two trials are of two clocks.
    """
    key = content_key("cublaslt varied", product.device.name, repr(product.shape), _version())
    choices = default_choices()
    choice = choices.get(key)
    if isinstance(choice, list) and len(choice) == 3:
        number = _number(product, choice[0])
        if number is not None:
            return number, float(choice[1]), float(choice[2])
    chosen, taken, beside = _fastest(product, workspace, plain)
    choices.set(key, [product.algorithms[chosen][:_ALGORITHM].tobytes().hex(), taken, beside])
    return chosen, taken, beside


def _number(product: Product, name: Any) -> int | None:
    """Return the number of an algorithm that was chosen before, None where it does not run."""
    names = [row[:_ALGORITHM].tobytes().hex() for row in product.algorithms]
    if name in names:
        return names.index(name)
    if not varies(product.shape) or not isinstance(name, str) or len(name) != 2 * _ALGORITHM:
        return None
    row = np.zeros_like(product.algorithms[0])
    row[:_ALGORITHM] = np.frombuffer(bytes.fromhex(name), np.uint8)
    if not runs(product, row):
        return None
    product.algorithms = _unique([*product.algorithms, row])
    return len(names)


def _fastest(product: Product, workspace: int, plain: Product | None) -> tuple[int, float, float]:
    trial, proposed = _Trial(product, workspace), len(product.algorithms)
    measured = trial.measured(range(proposed), _MICROSECONDS)
    best = measured[:_FINALISTS]
    if measured and varies(product.shape):
        more = varied(product, [product.algorithms[number] for _, number, _ in measured])
        product.algorithms = _unique([*product.algorithms, *more])
        looks = trial.measured(range(proposed, len(product.algorithms)), _LOOK)[:_MORE]
        best += trial.measured([number for _, number, _ in looks], _MICROSECONDS)
    measures = {number: measure for _, number, measure in best}
    if best and plain is not None:
        for _, _, measure in trial.of(plain).measured([plain.chosen], _MICROSECONDS):
            measures[_PLAIN] = measure
    times = _in_turn(measures)
    beside = times.pop(_PLAIN, 0.0)
    for number, taken in times.items():
        if number < proposed or _agree(trial.rows(best[0][1]), trial.rows(number)):
            return number, taken, beside
    return 0, 0.0, 0.0


def in_turn_with(product: Product, other: WideProduct, workspace: int) -> tuple[float, float]:
    """Return the microseconds of a tuned product, and of what else computes it, in turn.

    They are 0 for what does not run, or has another result than the library.
    """
    trial = _Trial(product, workspace)
    ways = trial, trial.of(other)
    chosen = [way.product.chosen for way in ways]
    measures = {
        number: measure
        for number, way in enumerate(ways)
        for _, _, measure in way.measured([chosen[number]], _LASTING)
    }
    times = {0: 0.0, 1: 0.0} | _in_turn(measures)
    results = [way.rows(chosen[number]) for number, way in enumerate(ways) if number in measures]
    if len(results) < len(ways) or not _agree(*results):
        times[1] = 0.0
    return times[0], times[1]


class _Trial:
    """A product on random factors, as often as is asked for."""

    product: Product | WideProduct

    def __init__(self, product: Product, workspace: int) -> None:
        cupy, shape = product.device.cupy, product.shape
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
        self.product, self.device, self.stream = product, product.device, product.device.stream
        self.made = c
        self._held = (a, b, scalars, bias)  # the call has their addresses
        self._call = (
            a.data.ptr, b.data.ptr, 0, c.data.ptr, alpha, beta, workspace, self.stream.ptr,
            0 if bias is None else bias.data.ptr,
        )  # fmt: skip

    def of(self, product: Product | WideProduct) -> _Trial:
        """Return the trial of what else computes a product of these sizes, on the same factors."""
        trial = copy.copy(self)
        trial.product = product
        if "bias" not in product.shape.epilogue:  # the library refuses one that is not to be added
            trial._call = (*self._call[:-1], 0)
        return trial

    def repeat(self, times: int) -> None:
        """Launch the product's chosen algorithm."""
        for _ in range(times):
            self.product.launch(*self._call)

    def measured(self, numbers: Iterable[int], least: float) -> list[_Measured]:
        """Return the algorithms that run, in graphs of so many microseconds, the fastest first."""
        device, stream = self.device, self.stream
        timings: list[_Measured] = []
        for number in numbers:
            self.product.chosen = number
            try:
                self.repeat(1)
                once = _microseconds(device, lambda: self.repeat(1))
                times = max(1, min(_REPEATS, int(least / max(once, 1.0))))
                with stream:
                    stream.begin_capture()
                    self.repeat(times)
                    graph = stream.end_capture()

                def measure(graph: Any = graph, times: int = times) -> float:
                    return _microseconds(device, lambda: graph.launch(stream)) / times

                timings.append((min(measure() for _ in range(3)), number, measure))
            except refusals(self.product, RuntimeError):  # it does not run here: no candidate
                stream.synchronize()
        return sorted(timings, key=lambda one: one[:2])

    def rows(self, number: int) -> np.ndarray:
        """Return some rows of what an algorithm computes."""
        shape, result, at = self.product.shape, self.made, self.stream.ptr
        runtime, length = self.device.cupy.cuda.runtime, shape.n * result.itemsize
        self.product.chosen = number
        runtime.memsetAsync(result.data.ptr, _UNWRITTEN, result.nbytes, at)
        self.repeat(1)
        rows = np.empty((-(-shape.m // _SAMPLE), shape.n), result.dtype)
        for i, row in enumerate(rows):
            start = result.data.ptr + i * _SAMPLE * length
            runtime.memcpyAsync(row.ctypes.data, start, length, _DEVICE_TO_HOST, at)
        self.stream.synchronize()
        return _numbers(rows, shape.stored)


def _in_turn(measures: Mapping[int, Callable[[], float]]) -> dict[int, float]:
    """Return the times of algorithms by their numbers, measured in turn, the fastest first."""
    taken = [[measure() for measure in measures.values()] for _ in range(_ROUNDS)]
    medians = [statistics.median(times) for times in zip(*taken, strict=True)]
    times = dict(zip(measures, medians, strict=False))
    return dict(sorted(times.items(), key=lambda one: one[1]))


def _agree(first: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two results differ by rounding only; what was not written does not agree."""
    return bool(np.abs(other - first).max() <= _APART * np.abs(first).max())


def _numbers(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Return numbers from what holds their bytes."""
    if dtype == "bfloat16":
        raw, dtype = raw.astype(np.uint32) << 16, "float32"
    return raw.view(dtype).astype(np.float64)


def _random(dtype: str) -> np.ndarray:
    """Return random numbers of a dtype: their bytes, as numbers without a sign."""
    numbers = np.random.default_rng(0).standard_normal(_PATTERN)
    if dtype == "bfloat16":
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(dtype).view(f"u{np.dtype(dtype).itemsize}")


def _filled(cupy: Any, pattern: Any, count: int) -> Any:
    """Return an array of so many elements, filled by doubling copies of a pattern."""
    filled = cupy.empty(count, pattern.dtype)
    size, there = pattern.itemsize, min(count, pattern.size)
    copy, stream = cupy.cuda.runtime.memcpyAsync, cupy.cuda.get_current_stream().ptr
    copy(filled.data.ptr, pattern.data.ptr, there * size, _DEVICE_TO_DEVICE, stream)
    while there < count:
        more = min(there, count - there)
        copy(
            filled.data.ptr + there * size, filled.data.ptr, more * size, _DEVICE_TO_DEVICE, stream
        )
        there += more
    return filled


def _microseconds(device: Any, launch: Any) -> float:
    """Return the time of the launches of a call."""
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
