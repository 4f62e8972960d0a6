"""The CUDA kernels of sorts, run by threads of the host, against NumPy's stable ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available
from emulated_steps import Compute, HostMemory, emulate_launches, leaves, step_of

import magmagraph as mg
from magmagraph.codegen.cuda.ordering_code import (
    SEARCH_WORDS,
    WORDS,
    Searching,
    order_source,
    search_source,
)
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.dtypes import canonical
from magmagraph.ops.indexing.sorting import ARGSORT, SORT
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.kernels import ordering
from magmagraph.runtime.target import made_up

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")

# Lines of one thread, of a warp, of a block, of several tiles; along other axes; nothing at all.
SHAPES = [
    ((200, 5), 1), ((7, 33), 1), ((3, 1000), 1), ((1, 20_011), 1), ((2, 50, 3), 1), ((0, 4), 1),
    ((4, 0), 1),
]  # fmt: skip
MORE = [
    ((1, 1), 1), ((129, 8), 1), ((3, 9), 1), ((2, 4096), 1), ((2, 4097), 1), ((1, 8192), 1),
    ((8193, 2), 0), ((40, 300), 0), ((3, 301, 2), 1), ((1, 40_000), 1),
]  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Compute:
    """Return what sorts an array by the kernels that a device would run."""
    emulate_launches(monkeypatch, ordering)

    def compute(op: Any, x: np.ndarray, axis: int) -> np.ndarray:
        node = op(*leaves(x), axis=axis)
        memory: Any = HostMemory()
        step = step_of(memory, node, [x], "order")
        launch, _ = ordering.ordering(memory, step)
        launch.moved(lambda address: address)(SimpleNamespace(ptr=0))
        return memory.read(step.outputs[0])

    return compute


def compared(run: Compute, x: np.ndarray, axis: int) -> None:
    """Compare both results with NumPy's."""
    wide = x.astype("f4") if x.dtype.kind == "V" else x
    order = np.argsort(wide, axis=axis, kind="stable")
    np.testing.assert_array_equal(run(ARGSORT, x, axis), order)
    found = run(SORT, x, axis)
    np.testing.assert_array_equal(found.astype(wide.dtype), np.sort(wide, axis=axis))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [*SHAPES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)],
    ids=str,
)
def test_any_layout(
    shape: tuple[int, ...], axis: int, run: Compute, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape).astype("f4")
    x[rng.random(shape) < 0.3] = 0.5  # ties
    compared(run, x, axis)


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float64", "int8",
     *(pytest.param(d, marks=pytest.mark.slow)
       for d in ("bfloat16", "bool", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                 "uint64"))],
)  # fmt: skip
def test_any_dtype(dtype: str, run: Compute, rng: np.random.Generator) -> None:
    kind = canonical(dtype)
    for count in (70, 2100) if dtype == "float64" else (70,):
        if dtype == "bool":
            x = rng.random((2, count)) < 0.5
        elif "int" in dtype:
            info = np.iinfo(kind)
            x = rng.integers(info.min, info.max, (2, count), kind, endpoint=True)
            x[0, :5] = info.max, info.min, info.max, 0, 0
        else:
            x = np.round(rng.standard_normal((2, count)), 1).astype(kind)
            x[0, :8] = np.nan, -np.inf, np.inf, -0.0, 0.0, -0.0, -np.nan, np.nan
        compared(run, x, 1)


def test_lines_of_several_tiles_with_nan_and_ties(run: Compute, rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, (2, 20_011)).astype("f4")
    x[rng.random(x.shape) < 0.1] = np.nan
    compared(run, x, 1)
    compared(run, np.zeros((1, 20_011), "f4"), 1)
    compared(run, np.arange(20_011, dtype="f4")[None, ::-1].copy(), 1)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "uint64"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_a_sorted_line(
    dtype: str, side: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    emulate_launches(monkeypatch, ordering)
    for count in (0, 1, 33):
        line = np.sort(rng.integers(0, 9, count).astype(dtype))
        values = rng.integers(0, 11, (700, 2)).astype(dtype)
        if dtype.startswith("float"):
            line[2 * count // 3 :] = np.nan
            values[:4, 0] = np.nan, -0.0, np.inf, -np.inf
        node = mg.searchsorted(*leaves(line, values), side=side)
        memory: Any = HostMemory()
        step = step_of(memory, node, [line, values], "order")
        ordering.searching(memory, step)(SimpleNamespace(ptr=0))
        found = memory.read(step.outputs[0])
        np.testing.assert_array_equal(found, np.searchsorted(line, values, side))


def test_what_kernels_sort() -> None:
    x = mg.input("x", ("n", 3))
    for node in (mg.sort(x, 0), mg.argsort(x), mg.searchsorted(x[:, 0], x)):
        assert made_up("cuda").family(node).name == "order"
    assert made_up("cpu").family(mg.sort(x, 0)).name == "array"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_the_kernels_compile(dtype: str) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    for positions in (False, True):
        for count in (50, 50_000):
            text = order_source(ordering.ordering_of(dtype, positions, count))
            assert compile_source(complete(text, WORDS), "90")[:4] == b"\x7fELF"
    text = search_source(Searching(dtype, True))
    assert compile_source(complete(text, SEARCH_WORDS), "90")[:4] == b"\x7fELF"
