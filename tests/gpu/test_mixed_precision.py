"""Products of tf32 and 16-bit operands on the card: values, epilogues, steps with scaled losses."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.dtypes import canonical

pytestmark = pytest.mark.gpu

LOWER = ("tf32", "bfloat16", "float16")
SIZES = [(64, 96, 128), (33, 70, 301), (100, 528, 784), (512, 768, 1024), (1, 40, 65)]


def operands(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((m, k)).astype("f4"), rng.standard_normal((k, n)).astype("f4")


@pytest.mark.parametrize("precision", LOWER)
@pytest.mark.parametrize("flags", list(itertools.product((False, True), repeat=2)))
def test_products(precision: str, flags: tuple[bool, bool], rng: np.random.Generator) -> None:
    for m, n, k in SIZES:
        a, b = operands(rng, m, n, k)
        x = mg.input("x", a.T.shape if flags[0] else a.shape)
        y = mg.input("y", b.T.shape if flags[1] else b.shape)
        product = (x.T if flags[0] else x) @ (y.T if flags[1] else y)
        f = mg.function([x, y], product, device="cuda", precision=precision)
        given = [np.ascontiguousarray(v.T) if t else v for v, t in zip((a, b), flags, strict=True)]
        wanted = a.astype("f8") @ b.astype("f8")
        for _ in range(3):  # as it is first run, captured, and replayed
            assert_agrees(f(*given).get(), wanted, "half", k**0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_16_bit_inputs(dtype: str, rng: np.random.Generator) -> None:
    for m, n, k in SIZES:
        a, b = (v.astype(canonical(dtype)) for v in operands(rng, m, n, k))
        x, y = mg.input("x", a.shape, dtype=dtype), mg.input("y", b.shape, dtype=dtype)
        made = mg.function([x, y], mg.cast(x @ y, "float32"), device="cuda")(a, b).get()
        assert_agrees(made, a.astype("f8") @ b.astype("f8"), "half", k**0.5)


@pytest.mark.parametrize("precision", LOWER)
def test_batches(precision: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((5, 40, 65)).astype("f4")
    b = rng.standard_normal((5, 65, 48)).astype("f4")
    x, y, z = mg.input("x", a.shape), mg.input("y", b.shape), mg.input("z", b.shape[1:])
    f = mg.function([x, y, z], [x @ y, x @ z], device="cuda", precision=precision)
    for made, other in zip(f(a, b, b[0]), (b, b[0]), strict=True):
        assert_agrees(made.get(), a.astype("f8") @ other.astype("f8"), "half", 8.0)


def network(precision: str, device: str, seed: int = 0, **options: Any) -> tuple[Any, list[Any]]:
    """Return a step of a network wide enough for tensor cores, and its variables."""
    x, labels = mg.input("x", ("n", 256)), mg.input("labels", ("n",), dtype="int32")
    sizes = (256, 512, 384, 10)
    variables: list[Any] = []
    value: Any = x
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        init = mg.init.glorot_uniform(seed=seed + layer)
        variables.append(mg.var(f"W{layer}", shape=(rows, columns), init=init))
        variables.append(mg.var(f"b{layer}", shape=(columns,), init=mg.init.zeros()))
        value = value @ variables[-2] + variables[-1]
        value = value if columns == 10 else mg.relu(value)
    loss = mg.cross_entropy(value, labels)
    step = mg.optimizer.SGD(0.1).step(
        loss, variables, [x, labels], [loss], device=device, precision=precision, **options
    )
    return step, variables


@pytest.mark.parametrize("precision", LOWER)
def test_a_step_agrees_with_the_cpu(precision: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((640, 256)).astype("f4")
    labels = rng.integers(0, 10, 640).astype("i4")
    device, ours = network(precision, "cuda")
    host, wanted = network("float32", "cpu")
    before = [v.value for v in wanted]
    for _ in range(4):
        (loss,) = device(x, labels)
        (right,) = host(x, labels)
        assert_agrees(loss.get(), right, "half")
    for made, right, old in zip(ours, wanted, before, strict=True):
        change = np.linalg.norm(right.value - old)
        assert np.linalg.norm(made.value - right.value) < 0.05 * change


ACTIVATIONS = {
    "bias": lambda v: v,
    "relu_bias": mg.relu,
    "gelu_bias": lambda v: mg.gelu(v, approximate=True),
}


@pytest.mark.parametrize("precision", LOWER)
@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_epilogues(precision: str, name: str, rng: np.random.Generator) -> None:
    a, b = operands(rng, 1024, 768, 512)
    row = rng.standard_normal(768).astype("f4")
    last = rng.standard_normal((768, 64)).astype("f4")
    w = mg.var("w", init=b)
    bias = mg.var("bias", init=row)
    x = mg.input("x", a.shape)
    value = ACTIVATIONS[name](x @ w + bias) @ mg.var("last", init=last)
    f = mg.function([x], value, device="cuda", precision=precision)
    wanted = mg.function([x], value, device="cpu")(a)
    for _ in range(3):
        assert_agrees(f(a).get(), wanted, "half", float(np.abs(wanted).max()))
    bias.value = row + 5.0  # the library reads a copy in 16 bits: it must be a fresh one
    wanted = mg.function([x], value, device="cpu")(a)
    assert_agrees(f(a).get(), wanted, "half", float(np.abs(wanted).max()))


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_the_library_computes_what_follows(name: str) -> None:
    from magmagraph.runtime.cuda.products import gemm

    x = mg.input("x", (2048, 1024))
    w, bias = (mg.var(n, init=mg.init.normal(seed=1), shape=s)
               for n, s in (("w", (1024, 2048)), ("bias", (2048,))))
    last = mg.var("last", init=mg.init.normal(seed=2), shape=(2048, 2048))
    value = ACTIVATIONS[name](x @ w + bias) @ last
    f = mg.function([x], value, device="cuda", precision="bfloat16")
    f(np.ones((2048, 1024), "f4"))
    assert any(shape.epilogue == name for _, shape, _ in gemm._products), "no call had an epilogue"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_on_three_streams_end_and_are_those_of_one(
    dtype: str, rng: np.random.Generator
) -> None:
    """Each counts its tiles in the scratch memory of its stream, while the others run beside it."""
    cupy = pytest.importorskip("cupy")
    from magmagraph.runtime.cuda.device import device_of
    from magmagraph.runtime.cuda.products import gemm

    device, size = device_of("cuda"), 2048
    shapes = ((size, size), (size, size), (size,))
    numbers = [rng.standard_normal(shape).astype("f4") for shape in shapes]
    if dtype == "float16":
        a, b, bias = (cupy.asarray(one.astype("f2")) for one in numbers)
    else:  # the upper half of a float32
        a, b, bias = (cupy.asarray((one.view("u4") >> 16).astype("u2")) for one in numbers)
    runs = []
    for epilogue in ("", "gelu_bias", "relu_bias"):
        shape = gemm.Shape(size, size, size, dtype, False, False, False, False, epilogue=epilogue)
        product = gemm.plan_product(device, shape, device.scratch(device.stream), True)
        stream, out = cupy.cuda.Stream(non_blocking=True), cupy.zeros((size, size), "u2")

        def queue(product: Any = product, stream: Any = stream, out: Any = out) -> None:
            product.launch(
                a.data.ptr, b.data.ptr, 0, out.data.ptr, 0, 0, device.scratch(stream), stream.ptr,
                bias.data.ptr if product.shape.epilogue else 0,
            )  # fmt: skip

        cupy.cuda.get_current_stream().synchronize()  # its zeros and copies have been written
        queue()
        stream.synchronize()
        alone = out.copy()
        out.fill(0)
        cupy.cuda.get_current_stream().synchronize()
        with stream:
            stream.begin_capture()
            for _ in range(20):
                queue()
            graph = stream.end_capture()
        runs.append((graph, stream, out, alone))
    for _ in range(20):
        for graph, stream, _, _ in runs:
            graph.launch(stream)
    end = time.monotonic() + 20
    while not all(stream.done for _, stream, _, _ in runs):
        assert time.monotonic() < end, "products on three streams do not end"
        time.sleep(0.001)
    for _, _, out, alone in runs:
        assert bool((out == alone).all()) and bool(alone.any())


def test_an_overflow_skips_all_updates(rng: np.random.Generator) -> None:
    step, variables = network("float16", "cuda")
    x = rng.standard_normal((64, 256)).astype("f4")
    labels = rng.integers(0, 10, 64).astype("i4")
    step(x, labels)
    before = [v.value for v in variables]
    step.loss_scale.scale.value = 2.0**40  # no seed of this size fits
    step(x, labels)
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.value, old)
    assert step.loss_scale.scale.value == 2.0**39
    assert step.loss_scale.skipped.value == 1
    step.loss_scale.scale.value = 1024.0
    step(x, labels)
    assert all(np.any(v.value != old) for v, old in zip(variables, before, strict=True))
