"""Which way a product is computed: by the library or by a generated kernel, as measured."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...config import config
from ..cache import content_key, default_choices
from .compiler import compile_sources
from .gemm import Product, Shape, plan_product
from .small_gemm import (
    Configuration,
    SmallProduct,
    candidates,
    complete_source,
    plain_epilogue,
)

__all__ = ["Trial", "driver", "launcher", "load", "trial"]

_REPEATS = 20


class Trial(NamedTuple):
    """What was measured for one product, in microseconds.

    Attributes
    ----------
    library
        The library's time.
    generated
        The fastest generated kernel's, infinity where none was tried.
    configuration
        How that is cut.
    """

    library: float
    generated: float
    configuration: Configuration | None


@functools.cache
def trial(device: Any, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> Trial:
    """Return what a float32 product takes each way: measured now, or known from before."""
    ways = candidates(m, n, k)
    if not ways or not config.tuning:
        return Trial(0.0, float("inf"), None)
    key = content_key(
        "product", device.name, repr((m, n, k, transpose_a, transpose_b)),
        " ".join(way.name for way in ways),
    )
    choices = default_choices()
    known = choices.get(key)
    names = {way.name: way for way in ways}
    if isinstance(known, list) and len(known) == 3 and known[2] in names:
        return Trial(known[0], known[1], names[known[2]])
    found = _measured(device, ways, m, n, k, transpose_a, transpose_b)
    assert found.configuration is not None
    choices.set(key, [found.library, found.generated, found.configuration.name])
    return found


def _measured(
    device: Any,
    ways: Sequence[Configuration],
    m: int,
    n: int,
    k: int,
    transpose_a: bool,
    transpose_b: bool,
) -> Trial:
    cupy, stream = device.cupy, device.stream
    a, b = cupy.full(m * k, 0.5, "f4"), cupy.full(k * n, 0.5, "f4")
    out = cupy.empty(m * n, "f4")
    cupy.cuda.get_current_stream().synchronize()
    wide_a = (m if transpose_a else k) % 4 == 0
    wide_b = (k if transpose_b else n) % 4 == 0
    products = [
        SmallProduct(way, transpose_a, transpose_b, wide_a, wide_b, plain_epilogue(False, False))
        for way in ways
    ]
    functions = load(device, products)
    words = np.array([a.data.ptr, b.data.ptr, out.data.ptr, 0, 0, 0, m, n, k], np.int64)
    taken = [
        _seconds(device, launcher(function, product, m, n, words))
        for product, function in zip(products, functions, strict=True)
    ]
    shape = Shape(m, n, k, "float32", transpose_a, transpose_b, False, False)
    library: Product = plan_product(device, shape, device.scratch(stream), True)

    def call(on: Any) -> None:
        library.launch(
            a.data.ptr, b.data.ptr, 0, out.data.ptr, 0, 0, device.scratch(stream), on.ptr
        )

    best = min(range(len(ways)), key=taken.__getitem__)
    return Trial(_seconds(device, call), taken[best], ways[best])


def driver() -> Any:
    """Return the binding of the driver's calls."""
    from cupy_backends.cuda.api import driver as calls

    return calls


def load(device: Any, products: Sequence[SmallProduct]) -> list[int]:
    """Return the functions of generated products: compiled side by side, and loaded."""
    cubins = compile_sources([complete_source([p]) for p in products], device.architecture)
    functions = []
    for product, cubin in zip(products, cubins, strict=True):
        module = device.cupy.cuda.function.Module()
        module.load(cubin)
        function = module.get_function(product.name)
        _loaded.append((module, function))
        functions.append(function.ptr)
    return functions


_loaded: list[Any] = []  # modules live as long as the process: plans share their kernels


def launcher(
    function: int, product: SmallProduct, m: int, n: int, words: np.ndarray
) -> Callable[[Any], None]:
    """Return what launches a generated product with arguments that never change."""
    pointer = (ctypes.c_void_p * 1)(words.ctypes.data)
    gx, gy, gz = product.grid(m, n)
    threads = product.configuration.threads
    kernel = driver().launchKernel

    def run(stream: Any, words: np.ndarray = words) -> None:  # the launch reads the words
        kernel(function, gx, gy, gz, threads, 1, 1, 0, stream.ptr, ctypes.addressof(pointer), 0)

    return run


def _seconds(device: Any, launch: Callable[[Any], None]) -> float:
    """Return the microseconds of a launch among many in one graph."""
    cupy, stream = device.cupy, device.stream
    launch(stream)
    with stream:
        stream.begin_capture()
        for _ in range(_REPEATS):
            launch(stream)
        graph = stream.end_capture()
    graph.launch(stream)
    best = float("inf")
    for _ in range(5):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        best = min(best, float(cupy.cuda.get_elapsed_time(begin, end)) / _REPEATS * 1e3)
    return best
