"""The CUDA kernels of sorts, run by threads of the host, against NumPy's stable ones."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available
from emulated_steps import Compute, HostMemory, emulate_launches, leaves, step_of

import magmagraph as mg
from magmagraph.codegen.cuda.ordering_code import (
    SEARCH_WORDS,
    SELECT_WORDS,
    WORDS,
    Searching,
    Selecting,
    order_source,
    search_source,
    select_source,
)
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.dtypes import canonical
from magmagraph.ops.indexing.sorting import ARGSORT, FIRST_ORDERED, SORT
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


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return what checks the first positions of an order, and returns the kernels launched."""
    launched = emulate_launches(monkeypatch, ordering)

    def check(
        x: np.ndarray, axis: int, count: int, processors: int = 1,
        ways: tuple[tuple[bool, bool], ...] = ((False, True), (True, False)),
    ) -> list[str]:  # fmt: skip
        launched.clear()
        wide = x.astype("f4") if x.dtype.itemsize == 2 and x.dtype.kind != "i" else x
        for largest, backward in ways:
            attrs = {"axis": axis, "largest": largest, "backward": backward}
            node = FIRST_ORDERED(*leaves(x), count=count, **attrs)
            memory: Any = HostMemory(processors)
            step = step_of(memory, node, [x], "order")
            launch, _ = ordering.ordering(memory, step)
            launch.moved(lambda address: address)(SimpleNamespace(ptr=0))
            line = np.flip(wide, axis) if largest != backward else wide
            order = np.argsort(line, axis=axis, kind="stable")
            order = x.shape[axis] - 1 - order if largest != backward else order
            order = np.flip(order, axis) if largest else order
            wanted = np.take(order, np.arange(count), axis=axis)
            np.testing.assert_array_equal(memory.read(step.outputs[0]), wanted)
        return [name.split("_")[0] + "_" + name.split("_")[-1] for name in launched]

    return check


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


def test_the_first_of_short_lines_of_columns_and_of_many(
    first: Callable[..., list[str]], rng: np.random.Generator
) -> None:
    """They are the beginning of a whole sort."""
    for shape, axis in (((1, 1), 1), ((7, 33), 1), ((2, 33, 3), 1), ((33, 5), 0)):
        x = rng.integers(0, 9, shape).astype("f4")
        x.flat[::7] = np.nan
        for count in sorted({1, min(7, shape[axis]), shape[axis]}):
            assert first(x, axis, count) == ["order_whole"] * 2
    long = rng.integers(0, 9, (1, 9001)).astype("f4")
    for count in (1025, 9001):
        assert set(first(long, 1, count)) == {"order_tile", "order_merge", "order_last"}
    for shape, count in (((0, 9000), 5), ((3, 0), 0), ((3, 9000), 0)):
        assert first(np.zeros(shape, "f4"), 1, count) == []


@pytest.mark.parametrize("line", ["mixed", "equal", "rising", "falling", "NaN", "close"])
def test_selection_from_long_lines(
    line: str, first: Callable[..., list[str]], rng: np.random.Generator
) -> None:
    """More elements may be equal, or equal in their first digits, than a block holds."""
    at = np.arange(2 * 9001, dtype="f4").reshape(2, 9001)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5], "f4")
    x = {
        "mixed": rng.choice(special, at.shape), "equal": 0 * at, "rising": at, "falling": -at,
        "NaN": np.where(at % 9000 < 5, at, np.float32(np.nan)),
        "close": (0x3F800000 + rng.permutation(at.astype("u4").ravel()) % 9001).reshape(at.shape)
        .astype("u4").view("f4"),
    }[line].astype("f4")  # fmt: skip
    ways = ((False, False), (True, False), (False, True), (True, True))
    for count in (1, 50, 1024):
        assert first(x, 1, count, ways=ways) == ["select_whole"] * 4


@pytest.mark.parametrize("line", ["normal", "equal"])
def test_few_long_lines_are_divided(
    line: str, first: Callable[..., list[str]], rng: np.random.Generator
) -> None:
    x = rng.standard_normal((1, 70_001)).astype("f4") if line == "normal" else np.ones((1, 70_001))
    for count in (1, 1000):
        assert first(x.astype("f4"), 1, count, 4) == ["select_part", "select_last"] * 2


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float64",
     *(pytest.param(d, marks=pytest.mark.slow)
       for d in ("bfloat16", "bool", "int8", "uint16", "int32", "uint32", "int64", "uint64"))],
)  # fmt: skip
def test_selection_of_any_dtype(
    dtype: str, first: Callable[..., list[str]], rng: np.random.Generator
) -> None:
    kind = canonical(dtype)
    if "int" in dtype:
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (2, 5003), kind, endpoint=True)
        x[1] = rng.choice(np.array([info.min, info.max, 0], kind), 5003)
    elif dtype == "bool":
        x = rng.random((2, 5003)) < 0.5
    else:
        x = rng.standard_normal((2, 5003)).astype(kind)
        x[:, :9] = np.nan, -np.inf, np.inf, -0.0, 0.0, -0.0, -np.nan, np.nan, 7
        x[1] = np.round(x[1].astype("f4")).astype(kind)
    assert first(x, 1, 60) == ["select_whole"] * 2
    if dtype == "int64":  # whose records are of two words
        x = rng.integers(0, 99, (1, 40_001))
        assert first(x, 1, 60, 4) == ["select_part", "select_last"] * 2


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
    first = mg.top_k(x, 2).indices
    for node in (mg.sort(x, 0), mg.argsort(x), first, mg.searchsorted(x[:, 0], x)):
        assert made_up("cuda").family(node).name == "order"
    assert made_up("cpu").family(mg.sort(x, 0)).name == "array"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_the_kernels_compile(dtype: str) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    for positions in (False, True):
        for count in (50, 50_000):
            text = order_source(ordering.ordering_of(dtype, positions, count))
            assert compile_source(complete(text, WORDS), "90")[:4] == b"\x7fELF"
    for parts in (False, True):
        text = select_source(Selecting(dtype, True, True, 256, parts))
        assert compile_source(complete(text, SELECT_WORDS), "90")[:4] == b"\x7fELF"
    text = search_source(Searching(dtype, True))
    assert compile_source(complete(text, SEARCH_WORDS), "90")[:4] == b"\x7fELF"
