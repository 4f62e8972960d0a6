"""Large 16-bit products by kernels of our own: values, edges, captured graphs beside each other."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.runtime.cuda.device import device_of
from magmagraph.runtime.cuda.products import gemm
from magmagraph.runtime.cuda.products.wide import ARCHITECTURE, OneTileProduct, WideProduct

pytestmark = pytest.mark.gpu

SIZES = [
    (1024, 1152, 512), (1000, 1096, 520), (136, 264, 64), (8, 8, 8), (17408, 136, 72),
    (72, 200, 136),
]  # fmt: skip
DTYPES = ("float16", "bfloat16")
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "gelu": lambda v: v / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v**3))),
}
WAYS = [WideProduct, OneTileProduct]
UNWRITTEN = 0x7FFF  # a number that is none, in both dtypes


@pytest.fixture
def device() -> Any:
    made = device_of("cuda")
    if made.architecture != ARCHITECTURE:
        pytest.skip("these kernels are for another architecture")
    with made:
        yield made


class Case:
    """A product of random factors, with its result between rows that nothing may write to."""

    def __init__(self, device: Any, shape: gemm.Shape, rng: np.random.Generator) -> None:
        dtype, cupy = canonical(shape.dtype), device.cupy
        m, n, k = shape.m, shape.n, shape.k
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        b = (b.astype("f4") / k**0.5).astype(dtype)
        row = rng.standard_normal(n).astype(dtype)
        self.shape, self.device, self.numbers = shape, device, (a, b, row)
        given = a.T if shape.transpose_a else a, b.T if shape.transpose_b else b, row
        self.held = [cupy.asarray(np.ascontiguousarray(v).view("u2")) for v in given]
        self.made = cupy.full((m + 2, n), UNWRITTEN, "u2")
        cupy.cuda.get_current_stream().synchronize()

    def launch(self, product: Any, stream: Any, alpha: int = 0) -> None:
        a, b, row = (one.data.ptr for one in self.held)
        bias = row if "bias" in self.shape.epilogue else 0
        scratch = self.device.scratch(stream)
        product.launch(a, b, 0, self.made[1:].data.ptr, alpha, 0, scratch, stream.ptr, bias)

    def result(self) -> np.ndarray:
        held = self.made.get()
        assert (held[[0, -1]] == UNWRITTEN).all(), "rows beside the result were written"
        return np.asarray(held[1:-1].view(canonical(self.shape.dtype)).astype("f8"))

    def wanted(self) -> np.ndarray:
        a, b, row = (v.astype("f8") for v in self.numbers)
        name = self.shape.epilogue.removesuffix("bias").removesuffix("_")
        return FUNCTIONS[name](a @ b + (row if "bias" in self.shape.epilogue else 0.0))

    def check(self) -> None:
        """Compare with float64: only the rounding of the result may be seen."""
        wanted, made = self.wanted(), self.result()
        rounded = wanted.astype(canonical(self.shape.dtype)).astype("f8")
        assert np.linalg.norm(made - wanted) < 1.05 * np.linalg.norm(rounded - wanted)


def shape_of(size: tuple[int, int, int], dtype: str, epilogue: str = "", a: bool = False,
             b: bool = False) -> gemm.Shape:  # fmt: skip
    return gemm.Shape(*size, dtype, a, b, False, False, epilogue=epilogue)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=2)))
def test_products(
    way: Any, dtype: str, flags: tuple[bool, bool], device: Any, rng: np.random.Generator
) -> None:
    for size in SIZES:
        case = Case(device, shape_of(size, dtype, "", *flags), rng)
        case.launch(way(device, case.shape), device.stream)
        device.stream.synchronize()
        case.check()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", ["bias", "relu", "gelu", "relu_bias", "gelu_bias"])
def test_epilogues(
    way: Any, dtype: str, epilogue: str, device: Any, rng: np.random.Generator
) -> None:
    for size in SIZES:
        case = Case(device, shape_of(size, dtype, epilogue), rng)
        case.launch(way(device, case.shape), device.stream)
        device.stream.synchronize()
        case.check()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("epilogue", ["", "relu_bias", "gelu_bias"])
def test_numbers_that_are_not_finite(
    way: Any, epilogue: str, device: Any, rng: np.random.Generator
) -> None:
    case = Case(device, shape_of((256, 256, 128), "bfloat16", epilogue), rng)
    case.held[0][3, 5] = UNWRITTEN
    case.held[0][130, 7] = 0x7F80  # infinity
    device.cupy.cuda.get_current_stream().synchronize()
    case.launch(way(device, case.shape), device.stream)
    device.stream.synchronize()
    made, wanted = case.result(), case.wanted()
    assert np.isnan(made[3]).all()
    assert epilogue != "relu_bias" or (made[4:130] >= 0).all()
    sign = np.sign(case.numbers[1][7].astype("f8"))
    assert (made[130][sign > 0] == np.inf).all()
    others = np.delete(np.arange(256), [3, 130])
    assert_agrees(made[others], wanted[others], "half")


@pytest.mark.parametrize("way", WAYS)
def test_graphs_on_three_streams_end_and_are_right(
    way: Any, device: Any, rng: np.random.Generator
) -> None:
    """Each has a block for every multiprocessor, or more: they have to run with fewer, too."""
    cupy, runs = device.cupy, []
    for epilogue in ("", "gelu_bias", "relu_bias"):
        case = Case(device, shape_of((2048, 2056, 1032), "bfloat16", epilogue), rng)
        product, stream = way(device, case.shape), cupy.cuda.Stream(non_blocking=True)
        device.scratch(stream)
        with stream:
            stream.begin_capture()
            for _ in range(20):
                case.launch(product, stream)
            graph = stream.end_capture()
        runs.append((graph, stream, case))
    for _ in range(10):
        for graph, stream, _ in runs:
            graph.launch(stream)
    end = time.monotonic() + 20
    while not all(stream.done for _, stream, _ in runs):
        assert time.monotonic() < end, "products on three streams do not end"
        time.sleep(0.001)
    for *_, case in runs:
        case.check()


@pytest.mark.parametrize("asked", ["auto", "tiles", "blas"])
@pytest.mark.parametrize(
    ("rows", "columns", "kind"), [(2048, 2176, WideProduct), (896, 1032, OneTileProduct)]
)
def test_a_function_takes_what_is_asked_for(
    rows: int, columns: int, kind: Any, asked: str, device: Any, rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(mg.config, "products", asked)
    m, k, n = rows, 1024, columns
    a = rng.standard_normal((m, k)).astype("f4")
    b, last = ((rng.standard_normal(s) / s[0] ** 0.5).astype("f4") for s in ((k, n), (n, 64)))
    w, bias = mg.var("w", init=b), mg.var("bias", init=rng.standard_normal(n).astype("f4"))
    x = mg.input("x", a.shape)
    value = mg.gelu(x @ w + bias, approximate=True) @ mg.var("last", init=last)
    f = mg.function([x], value, device="cuda", precision="bfloat16")
    wanted = mg.function([x], value, device="cpu")(a)
    for _ in range(3):  # as it is first run, captured, and replayed
        assert_agrees(f(a).get(), wanted, "half", float(np.abs(wanted).max()))
    shape = shape_of((m, n, k), "bfloat16", "gelu_bias")
    product = gemm._products[device.number, shape, asked]
    if asked != "auto":
        assert type(product.own) is (kind if asked == "tiles" else type(None))


def test_what_the_kernel_does_not_compute_the_library_does(
    device: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "products", "tiles")
    case = Case(device, shape_of((256, 256, 128), "bfloat16"), rng)
    product = gemm.plan_product(device, case.shape, device.scratch(device.stream), False)
    alpha = np.array([2], "f4")
    case.launch(product, device.stream, alpha.ctypes.data)
    device.stream.synchronize()
    assert_agrees(case.result(), 2 * case.wanted(), "half", 2.0)
