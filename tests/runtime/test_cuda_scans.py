"""The CUDA kernels of scans, run by threads of the host, against NumPy in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available
from emulated_steps import Compute, HostMemory, emulate_launches, leaves, step_of
from table import assert_agrees

import magmagraph as mg
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.codegen.cuda.scan_cuts import HOW
from magmagraph.codegen.cuda.scanning_code import WORDS, Scan, scan_source
from magmagraph.dtypes import canonical
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.kernels import scanning
from magmagraph.runtime.target import made_up

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")

OPS = {op.name: op for op in HOW}
# Rows of all lengths; columns; lines that several blocks share; nothing at all.
SHAPES = [
    ((300, 3), 1), ((1, 9001), 1), ((2, 1300, 3), 1), ((2, 70, 40), 1), ((900, 97), 0),
    ((0, 4), 1), ((4, 0), 1),
]  # fmt: skip
MORE = [
    ((1, 1), 1), ((3, 33), 1), ((5, 7), 1), ((2, 513), 1), ((2, 4096), 1), ((9001,), 0),
    ((3, 5, 31), 1),
    ((700, 32), 0), ((2, 3, 33), 1), ((1, 300), 0), ((40, 300), 1), ((3, 4099), 1),
]  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Compute:
    """Return what computes a scan of leaves by the kernels that a device would run."""
    launched = emulate_launches(monkeypatch, scanning)

    def compute(
        name: str, axis: int, reverse: bool, *arrays: np.ndarray, multiprocessors: int = 1
    ) -> np.ndarray:
        node = OPS[name](*leaves(*arrays), axis=axis, reverse=reverse)
        memory: Any = HostMemory(multiprocessors)
        step = step_of(memory, node, list(arrays), "scan")
        launch, _ = scanning.scanning(memory, step)
        launched.clear()
        launch.moved(lambda address: address)(SimpleNamespace(ptr=0))
        compute.launched = list(launched)  # type: ignore[attr-defined]
        return memory.read(step.outputs[0])

    return compute


def wanted(name: str, axis: int, reverse: bool, *arrays: np.ndarray) -> np.ndarray:
    wide = [a.astype("f8") if canonical(a.dtype).kind not in "iubc" else a for a in arrays]
    with np.errstate(all="ignore"):
        return np.asarray(OPS[name].evaluate(np, *wide, axis=axis, reverse=reverse))


def compared(
    run: Compute, name: str, axis: int, *arrays: np.ndarray, ways: tuple[bool, ...] = (False, True)
) -> None:
    """Compare a scan in both directions, and where several blocks share a line, with NumPy's."""
    for reverse in ways:
        exact = wanted(name, axis, reverse, *arrays)
        for multiprocessors in (1, 64):
            found = run(name, axis, reverse, *arrays, multiprocessors=multiprocessors)
            if OPS[name].numerics == "exact" or arrays[0].dtype.kind in "iub":
                np.testing.assert_array_equal(found.astype(exact.dtype), exact)
            else:
                finite = np.abs(exact[np.isfinite(exact)])
                assert_agrees(found, exact, "reassoc", max(1.0, float(finite.max(initial=0))))


def layouts(first: list[Any], more: list[Any]) -> Any:
    return pytest.mark.parametrize(
        ("shape", "axis"),
        [*first, *(pytest.param(*each, marks=pytest.mark.slow) for each in more)],
        ids=str,
    )


@layouts(SHAPES, MORE)
def test_sums_of_any_layout(
    shape: tuple[int, ...], axis: int, run: Compute, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape).astype("f4")
    compared(run, "cumsum", axis, x, ways=(shape[0] % 2 == 0,))


def test_few_long_lines_are_shared_by_blocks(run: Compute, rng: np.random.Generator) -> None:
    x = rng.standard_normal(20011).astype("f4")
    found = [run("cumsum", 0, False, x, multiprocessors=n) for n in (1, 2, 64)]
    assert len(run.launched) == 2  # type: ignore[attr-defined]
    assert_agrees(found[2], np.cumsum(x.astype("f8")), "reassoc", 100.0)
    again = run("cumsum", 0, False, x, multiprocessors=64)
    assert again.tobytes() == found[2].tobytes()


@layouts([((2, 1300, 3), 1)], [((3, 700), 1), ((300, 40), 0), ((7, 9), 1), ((1, 6000), 1)])
@pytest.mark.parametrize("name", sorted(OPS))
def test_all_scans(
    name: str, shape: tuple[int, ...], axis: int, run: Compute, rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape)
    if name == "cumprod":
        x = np.sign(x) * np.exp(0.01 * x)
    arrays = [x.astype("f4")]
    if name == "linear_recurrence":
        arrays = [np.tanh(x).astype("f4"), rng.standard_normal(shape).astype("f4")]
    compared(run, name, axis, *arrays, ways=(True,) if shape[0] == 2 else (False, True))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize(
    "dtype",
    ["int8", "float16",
     *(pytest.param(d, marks=pytest.mark.slow)
       for d in ("bfloat16", "float64", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                 "uint64"))],
)  # fmt: skip
def test_all_dtypes(name: str, dtype: str, run: Compute, rng: np.random.Generator) -> None:
    kind = canonical(dtype)
    if "int" in dtype:  # sums and products pass the range by far
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (3, 70), kind, endpoint=True)
    else:
        x = (1 + 0.01 * rng.standard_normal((3, 70))).astype(kind)
    compared(run, name, 1, x, ways=(False,))


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_dtypes_that_others_stand_for(
    dtype: str, run: Compute, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((3, 70, 2)) + (1j if dtype == "complex64" else 0)
    arrays = (x.real > 1 if dtype == "bool" else x).astype(dtype)
    compared(run, "cummax" if dtype == "bool" else "cumsum", 1, arrays, ways=(False,))


def test_nan_infinities_and_zeros(run: Compute) -> None:
    row = np.array([-0.0, -0.0, 1, -np.inf, 3, 3, np.inf, 2, np.nan, 5] + [1.0] * 100, "f4")
    x = np.stack([row, np.full(110, -np.inf, "f4"), row[::-1], np.full(110, np.inf, "f4")])
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        with np.errstate(all="ignore"):
            exact = wanted(name, 1, False, x)
            found = run(name, 1, False, x)
        if name == "cumlogsumexp":
            np.testing.assert_allclose(found, exact, 1e-5)
        else:
            np.testing.assert_array_equal(found, exact)
        assert np.signbit(found[0, 1]) == np.signbit(exact[0, 1]), name


def test_recurrences_through_infinite_factors(run: Compute) -> None:
    """Products of factors leave the range where the values themselves do not."""
    a, b = np.full((1, 500), 2.0, "f4"), np.zeros((1, 500), "f4")
    np.testing.assert_array_equal(run("linear_recurrence", 1, False, a, b), b)
    a[0, 0], b[0, 0], a[0, 200] = np.nan, 1e-30, 0.0
    b[0, 300] = 1.0
    a[0, 310:] = 0.5
    found = run("linear_recurrence", 1, False, a, b)
    np.testing.assert_allclose(found, wanted("linear_recurrence", 1, False, a, b), 1e-5, 1e-44)
    a[0, 250] = np.inf  # times what is zero there
    assert np.isnan(run("linear_recurrence", 1, False, a, b)[0, 250:]).all()


def family(node: mg.Node, device: str = "cuda") -> str:
    return made_up(device).family(node).name


def test_what_has_no_kernel() -> None:
    x, z = mg.input("x", ("n", 3)), mg.input("z", (4,), "complex64")
    assert family(mg.cumsum(x, 0)) == family(mg.cumsum(z)) == "scan"
    assert family(mg.linear_recurrence(0.5, x)) == family(mg.cumlogsumexp(x)) == "scan"
    assert family(mg.cumprod(z)) == family(mg.linear_recurrence(0.5, z)) == "array"
    assert family(mg.cumlogsumexp(x), "cpu") == "array"


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_the_kernels_compile(dtype: str) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    floats = ["logsumexp", "recurrence"] if "float" in dtype else []
    for how in ["add", "max", *floats]:
        for scan in (
            Scan(dtype, how, True, False, 256, 256, 8, 2),
            Scan(dtype, how, True, True, 1024, 32, 4, 1),
        ):  # fmt: skip
            text = complete(scan_source(scan), WORDS)
            assert compile_source(text, "90")[:4] == b"\x7fELF"
