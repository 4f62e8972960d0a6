"""Kernels that read and add at computed positions, run by threads of the host, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available
from emulated_steps import HostMemory, emulate_launches, leaves, step_of
from table import assert_agrees

import magmagraph as mg
from magmagraph.codegen.cuda import group_sums_code, ordering_code
from magmagraph.codegen.cuda.counting_code import WORDS, Counting, counting_source
from magmagraph.codegen.cuda.gathering_code import Gathering, gathering_source
from magmagraph.codegen.cuda.group_sums_code import GroupSums, group_sums_source
from magmagraph.codegen.cuda.ordering_code import Sorting, sorting_source
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.codegen.cuda.scattering_code import Scattering, scattering_source
from magmagraph.ops.indexing.gathering import SCATTER_ADD, TAKE
from magmagraph.ops.indexing.updates import UPDATE
from magmagraph.ops.products.lowered import scatter_rows
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.kernels import (
    counting,
    gathering,
    group_sums,
    ordering,
    scattering,
)
from magmagraph.runtime.target import made_up

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")


def family(node: mg.Node, device: str = "cpu") -> str:
    """Return the name of the kernel family of a node on a device."""
    return made_up(device).family(node).name


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., np.ndarray]:
    """Return what computes a node of leaves by the kernels that a device would run."""
    emulate_launches(monkeypatch, counting, gathering, group_sums, ordering, scattering)

    def compute(
        node: mg.Node, arrays: list[np.ndarray], in_place: bool = False, multiprocessors: int = 64
    ) -> np.ndarray:
        memory = HostMemory(multiprocessors)
        step = step_of(memory, node, arrays, family(node, "cuda"), in_place)
        bounds: Any = memory
        call: Any
        if step.node.op is not TAKE:
            found = scattering.scattering(bounds, step)
            call = None if found is None else found[0]
        else:
            assert step.kernel == "indexed"
            call = gathering.gathering(bounds, step)
        assert call is not None
        call(SimpleNamespace(ptr=0))
        return memory.read(step.outputs[0])

    return compute


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    made = rng.integers(-100, 100, shape) + (0.5j if dtype.startswith("c") else 0.25)
    return made.astype(dtype)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128", "float16"])
@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((5, 8), 0, (7,)), ((3, 6, 5), 1, (2, 4)), ((9,), 0, (40,)), ((4, 3), -1, (0,)),
     ((2, 300, 16), 1, (70,))],
)  # fmt: skip
def test_elements_are_read_at_positions(
    shape: tuple[int, ...], axis: int, count: tuple[int, ...], dtype: str, mode: str,
    run: Callable[..., np.ndarray], rng: np.random.Generator,
) -> None:
    for kind in ("int32", "int64", "uint8", "int16"):
        x = numbers(rng, shape, dtype)
        low = 0 if kind == "uint8" else -2 * shape[axis]
        at = rng.integers(low, 2 * shape[axis], count).astype(kind)
        held, positions = leaves(x, at)
        node = mg.take(held, positions, axis=axis, mode=mode)
        assert node.op is TAKE
        wanted = TAKE.evaluate(np, x, at, **node.attrs)
        np.testing.assert_array_equal(run(node, [x, at]), wanted)


# Fewer positions than a piece has; pieces; tiles of positions, that are merged; all of them equal.
@pytest.mark.parametrize("extent", [1, 7, 5000])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 200, 1023, 1025, 2500, 5000])
def test_rows_are_added_at_positions(
    count: int, extent: int, run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    values = rng.standard_normal((count, 4)).astype("f4")
    at = rng.integers(0, extent, count).astype("i4")
    at[count // 3 : count // 2] = extent // 2
    node = SCATTER_ADD(*leaves(values, at), axis=0, extent=extent, mode="clip")
    wanted = np.zeros((extent, 4))
    np.add.at(wanted, at, values)
    found = run(node, [values, at])
    assert_agrees(found, wanted, "reassoc", max(1.0, float(np.abs(wanted).max())))
    assert run(node, [values, at]).tobytes() == found.tobytes()


@pytest.mark.parametrize("dtype", ["float64", "int8", "int64", "uint16", "complex64"])
@pytest.mark.parametrize("inside", [(), (3,), (4, 2)])
def test_rows_of_any_dtype_along_any_axis(
    dtype: str, inside: tuple[int, ...], run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    values = numbers(rng, (3, 5, 20, *inside), dtype)
    for mode in ("clip", "wrap"):
        at = rng.integers(-20, 20, (5, 20)).astype("i8")
        node = SCATTER_ADD(*leaves(values, at), axis=1, extent=9, mode=mode)
        wanted = SCATTER_ADD.evaluate(np, values, at, **node.attrs)
        assert_agrees(run(node, [values, at]), wanted, "reassoc", 1000.0)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_rows_are_added_to_what_is_there(
    scaled: bool, in_place: bool, run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    values, base = rng.standard_normal((300, 6)), rng.standard_normal((40, 6))
    at, factor = rng.integers(0, 40, 300).astype("i4"), np.array(-0.25)
    held = [values, at, factor, base] if scaled else [values, at, base]
    nodes = leaves(*held)
    node = scatter_rows(
        nodes[0], nodes[1], nodes[-1], alpha=nodes[2] if scaled else None, mode="clip"
    )
    wanted = base.copy()
    np.add.at(wanted, at, values * (factor if scaled else 1.0))
    assert_agrees(run(node, held, in_place), wanted, "reassoc", 10.0)
    x, positions, new = leaves(base, at, values)
    added = UPDATE(x, positions, new, how="add", mode="clip")
    if not scaled:
        assert_agrees(run(added, [base, at, values]), wanted, "reassoc", 10.0)


@pytest.mark.parametrize("how", ["set", "multiply", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint16", "int64"])
def test_rows_are_combined_with_what_is_there(
    dtype: str, how: str, run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    for extent, count, inside in ((7, 90, (3,)), (5000, 1500, (2,)), (1, 2100, ()), (4, 0, (2,))):
        base = numbers(rng, (extent, *inside), dtype)
        values = rng.integers(-2, 3, (count, *inside)).astype(dtype)
        if how == "multiply" and count > extent:  # no product leaves the range
            values[rng.random(values.shape) < 0.9] = 1
        if dtype.startswith("float") and how != "multiply":
            base[0] = np.nan
            values[-3:] = np.nan
        at = rng.integers(-1, extent + 1, count).astype("i4")
        node = UPDATE(*leaves(base, at, values), how=how, mode="clip")
        with np.errstate(invalid="ignore"):
            wanted = UPDATE.evaluate(np, base, at, values, **node.attrs).astype(dtype)
        found = run(node, [base, at, values])
        np.testing.assert_allclose(found, wanted, 1e-2 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_the_last_of_equal_positions_stays(
    dtype: str, run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    base, values = np.zeros((9, 2), dtype), (rng.integers(0, 2, (3000, 2)) > 0).astype(dtype)
    at = rng.integers(0, 9, 3000).astype("i8")
    node = UPDATE(*leaves(base, at, values), how="set", mode="clip")
    wanted = base.copy()
    wanted[at] = values
    np.testing.assert_array_equal(run(node, [base, at, values]), wanted)


# Rows of one column, of several turns of columns; all in one group, or groups without rows.
@pytest.mark.parametrize("inside", [(), pytest.param((3,), marks=pytest.mark.slow), (9, 4)])
@pytest.mark.parametrize("extent", [1, 7, 500])
def test_rows_are_added_up_in_few_groups(
    extent: int, inside: tuple[int, ...], run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    for count in (5, 5000):
        values = rng.standard_normal((count, *inside)).astype("f4")
        at = rng.integers(-extent, extent + 3, count).astype("i4")
        at[count // 3 : count // 2] = extent // 2
        many = 4 if count == 5000 else 1
        for mode in ("clip", "wrap"):
            node = SCATTER_ADD(*leaves(values, at), axis=0, extent=extent, mode=mode)
            wanted = SCATTER_ADD.evaluate(np, values.astype("f8"), at, **node.attrs)
            found = run(node, [values, at], multiprocessors=many)
            assert_agrees(found, wanted, "reassoc", max(1.0, float(np.abs(wanted).max())))
            assert run(node, [values, at], multiprocessors=many).tobytes() == found.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64"])
def test_rows_are_added_to_what_is_there_in_few_groups(
    dtype: str, run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    base, values = (rng.integers(-9, 9, (n, 2)).astype(dtype) for n in (40, 3000))
    at = rng.integers(0, 30, 3000).astype("i8")
    wanted = base.copy()
    np.add.at(wanted, at, values)
    node = UPDATE(*leaves(base, at, values), how="add", mode="clip")
    np.testing.assert_array_equal(run(node, [base, at, values], multiprocessors=3), wanted)
    if dtype == "float64":
        factor = np.array(-0.25)
        held = [values, at, factor, base]
        nodes = leaves(*held)
        scaled = scatter_rows(nodes[0], nodes[1], nodes[3], alpha=nodes[2], mode="clip")
        wanted = base.copy()
        np.add.at(wanted, at, -0.25 * values)
        for in_place in (False, True):
            found = run(scaled, held, in_place, multiprocessors=3)
            np.testing.assert_array_equal(found, wanted)


# Few results, with copies for lanes; as many as shared memory holds; more than that.
@pytest.mark.parametrize("extent", [3, 700, pytest.param(5000, marks=pytest.mark.slow), 20_000])
@pytest.mark.parametrize(
    "dtype",
    ["int64", *(pytest.param(d, marks=pytest.mark.slow) for d in ("int32", "uint32", "uint64"))],
)
def test_integers_are_added_in_any_order(
    dtype: str, extent: int, run: Callable[..., np.ndarray], rng: np.random.Generator
) -> None:
    info = np.iinfo(dtype)
    for count, inside in ((12_000, ()), (0, ()), (3000, (3,))):
        values = rng.integers(info.min, info.max, (count, *inside), dtype, endpoint=True)
        at = rng.integers(-extent, 2 * extent, count).astype("i4")
        for mode in ("clip", "wrap"):
            node = SCATTER_ADD(*leaves(values, at), axis=0, extent=extent, mode=mode)
            wanted = SCATTER_ADD.evaluate(np, values, at, **node.attrs)
            np.testing.assert_array_equal(run(node, [values, at]), wanted)
    base = rng.integers(0, 100, (extent, 3)).astype(dtype)
    node = UPDATE(*leaves(base, at, values), how="add", mode="clip")
    wanted = UPDATE.evaluate(np, base, at, values, **node.attrs)
    np.testing.assert_array_equal(run(node, [base, at, values]), wanted)


def test_what_has_no_kernel() -> None:
    x, at = leaves(np.zeros((4, 2), bool), np.zeros(3, "i4"))
    rows = mg.input("rows", (3, 2), "bool")
    assert family(SCATTER_ADD(rows, at, axis=0, extent=4, mode="clip"), "cuda") == "array"
    assert family(UPDATE(x, at, rows, how="add", mode="clip"), "cuda") == "array"
    assert family(UPDATE(x, at, rows, how="set", mode="clip"), "cuda") == "indexed"
    assert family(mg.take(x, at, axis=0), "cuda") == "indexed"
    assert family(UPDATE(x, at, rows, how="set", mode="clip")) == "indexed"  # on the host, too
    assert family(SCATTER_ADD(rows, at, axis=0, extent=4, mode="clip")) == "array"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint64"])
def test_the_kernels_compile(dtype: str) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    sums = (dtype if "float" in dtype else "float64", "int32_t", True, 8192, 8, 2, True, True)
    made = [
        (gathering_source(Gathering(16, "int32_t", True, False)), gathering.WORDS),
        (gathering_source(Gathering(1, "uint64_t", False, True)), gathering.WORDS),
        (sorting_source(Sorting("int32_t", False, 128, 128, True)), ordering_code.WORDS),
        (group_sums_source(GroupSums(*sums)), group_sums_code.WORDS),
        (counting_source(Counting(64, "int32_t", False, 4)), WORDS),
        (counting_source(Counting(32, "uint8_t", True, 0)), WORDS),
        (scattering_source(Scattering(dtype, 2, True, True)), scattering.SUM_WORDS),
        (scattering_source(Scattering(dtype, 1, False, False)), scattering.SUM_WORDS),
        (scattering_source(Scattering(dtype, 1, True, False, "max")), scattering.SUM_WORDS),
    ]
    for text, words in made:
        assert compile_source(complete(text, words), "90")[:4] == b"\x7fELF"
