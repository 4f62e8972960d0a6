"""Kernels that read and add at computed positions, run by threads of the host, against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available, emulated
from table import assert_agrees

import magmagraph as mg
from magmagraph.codegen.cuda.gathering_code import Gathering, gathering_source
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.codegen.cuda.scattering_code import (
    Scattering,
    Sorting,
    scattering_source,
    sorting_source,
)
from magmagraph.ops.indexing.gathering import SCATTER_ADD, TAKE
from magmagraph.ops.indexing.updates import UPDATE
from magmagraph.ops.products.lowered import scatter_rows
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.kernels import gathering, scattering
from magmagraph.runtime.cuda.launching import calls
from magmagraph.runtime.cuda.launching.streams import Touched
from magmagraph.runtime.target import made_up

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")


def family(node: mg.Node, device: str = "cpu") -> str:
    """Return the name of the kernel family of a node on a device."""
    return made_up(device).family(node).name



class Memory:
    """A device whose memory is the host's."""

    def __init__(self) -> None:
        self.held: list[np.ndarray] = []
        runtime = SimpleNamespace(
            memsetAsync=lambda to, value, count, stream: ctypes.memset(to, value, count),
            memcpyAsync=lambda to, start, count, *how: ctypes.memmove(to, start, count),
        )
        cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        self.device = SimpleNamespace(cupy=cupy, multiprocessors=1, number=0)

    def more(self, count: int) -> int:
        raw = np.full(count + 16, 0xA5, np.uint8)
        self.held.append(raw)
        return -(-raw.ctypes.data // 16) * 16

    def put(self, array: np.ndarray) -> int:
        at = self.more(array.nbytes)
        ctypes.memmove(at, np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return at

    def read(self, value: Any) -> np.ndarray:
        raw = ctypes.string_at(value.address, int(value.type.bytes))
        return np.frombuffer(raw, value.type.dtype).reshape(value.type.shape)

    def at(self, value: Any) -> int:
        return 0 if value is None else int(value.address)

    def touched(self, step: Any) -> Touched:
        return Touched((), ())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., np.ndarray]:
    """Return what computes a node of leaves by the kernels that a device would run."""
    functions: list[tuple[str, str, int]] = []

    def function_of(device: Any, name: str, text: str, words: int) -> int:
        functions.append((name, complete(text, words), words))
        return len(functions) - 1

    def launch(function: int, blocks: int, y: int, z: int, threads: int, *rest: Any) -> None:
        words = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))[0]
        name, source, count = functions[function]
        argument = ctypes.string_at(words, 8 * count)
        emulated(source).launch(name, blocks, threads, [(argument,)], descending=True)

    monkeypatch.setattr(gathering, "function_of", function_of)
    monkeypatch.setattr(scattering, "function_of", function_of)
    monkeypatch.setattr(calls, "driver", lambda: SimpleNamespace(launchKernel=launch))
    monkeypatch.setattr(calls, "_extended", lambda: None)

    def compute(node: mg.Node, arrays: list[np.ndarray], in_place: bool = False) -> np.ndarray:
        memory = Memory()
        inputs = [
            SimpleNamespace(type=operand.type, address=memory.put(array))
            for operand, array in zip(node.inputs, arrays, strict=True)
        ]
        out = inputs[-1].address if in_place else memory.more(int(node.type.bytes))
        step: Any = SimpleNamespace(
            node=node, inputs=inputs, kernel=family(node, "cuda"),
            outputs=[SimpleNamespace(type=node.type, address=out)],
        )
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


def leaves(*arrays: np.ndarray) -> list[mg.Node]:
    return [mg.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]


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
    made = [
        (gathering_source(Gathering(16, "int32_t", True, False)), gathering.WORDS),
        (gathering_source(Gathering(1, "uint64_t", False, True)), gathering.WORDS),
        (sorting_source(Sorting("int32_t", False)), scattering.SORT_WORDS),
        (scattering_source(Scattering(dtype, 2, True, True)), scattering.SUM_WORDS),
        (scattering_source(Scattering(dtype, 1, False, False)), scattering.SUM_WORDS),
        (scattering_source(Scattering(dtype, 1, True, False, "max")), scattering.SUM_WORDS),
    ]
    for text, words in made:
        assert compile_source(complete(text, words), "90")[:4] == b"\x7fELF"
