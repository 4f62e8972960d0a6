"""Generated products: every way of cutting them, on factors of all kinds; and their epilogues."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import Any

import numpy as np
import pytest
from paper_device import bound_on_paper
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.codegen.cuda.products.chained_gemm import blocks_across
from magmagraph.codegen.cuda.products.cuts import SMALL, Configuration, cut_for, cut_of_rows
from magmagraph.codegen.cuda.products.merged import merge_of
from magmagraph.codegen.cuda.products.row_epilogue import RowEpilogue
from magmagraph.codegen.cuda.products.shapes import ProductShape, product_shape
from magmagraph.codegen.cuda.products.shapes import product_of as product_of_shape
from magmagraph.codegen.cuda.products.small_gemm import (
    SmallProduct,
    complete_source,
    plain_epilogue,
)
from magmagraph.ir.plan import Role
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.launching.launches import StepLaunches

WAYS = [
    *(
        cut
        for m, n, k in (
            (100, 528, 784), (100, 10, 528), (100, 528, 10), (528, 528, 100), (784, 528, 100)
        )
        if (cut := cut_for(m, n, k)) is not None
    ),
    Configuration(2, 2, (1, 1, 11), 3),
    Configuration(1, 4, (1, 1, 7), 5),
    Configuration(2, 4, (2, 2, 1), 2),
    Configuration(2, 4, (1, 1, 2), 1),
    Configuration(1, 1, (2, 1, 3), 2),
    Configuration(1, 2, (3, 2, 1), 3),
]
TRANSPOSES = list(itertools.product((False, True), repeat=2))
SIZES = [(100, 528, 784), (100, 528, 10), (33, 70, 301), (1, 1, 257), (64, 32, 256), (7, 130, 1000)]


def product_of(way: Configuration, flags: tuple[bool, bool], m: int, n: int, k: int) -> Any:
    a, b = flags
    wide_a, wide_b = (m if a else k) % 4 == 0, (k if b else n) % 4 == 0
    epilogue = plain_epilogue(False, False, way.items)
    return SmallProduct(way, a, b, wide_a, wide_b, epilogue, k <= way.reach)


@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize("wide", [True, False])
def test_products_compile_without_a_gpu(wide: bool, terms: int) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    made = [
        SmallProduct(way, a, b, wide, not wide, plain_epilogue(not wide, wide, way.items))
        for (a, b), way in zip(TRANSPOSES, WAYS[:: len(WAYS) // 4], strict=False)
        for way in [dataclasses.replace(way, terms=terms)]
    ]
    assert compile_source(complete_source(made), "90")[:4] == b"\x7fELF"


class Runner:
    """Runs a product on arrays of the host, with a result that was poisoned."""

    def __init__(self) -> None:
        from magmagraph.runtime.cuda.device import device_of
        from magmagraph.runtime.cuda.products.products import call_of, load

        self.device, self.load, self.call_of = device_of("cuda"), load, call_of
        self.functions: dict[str, int] = {}

    def __call__(
        self, way: Configuration, flags: tuple[bool, bool], a: np.ndarray, b: np.ndarray
    ) -> np.ndarray:
        cupy = self.device.cupy
        m, k = a.shape
        n = b.shape[1]
        product = product_of(way, flags, m, n, k)
        if product.name not in self.functions:
            (self.functions[product.name],) = self.load(self.device, [product])
        left = cupy.asarray(np.ascontiguousarray(a.T if flags[0] else a))
        right = cupy.asarray(np.ascontiguousarray(b.T if flags[1] else b))
        out = cupy.full((m + 1, n), np.nan, "f4")
        cupy.cuda.get_current_stream().synchronize()
        operands = [left.data.ptr, right.data.ptr, out.data.ptr, 0, 0, 0]
        shape = ProductShape(m, n, k, *flags)
        call = self.call_of(self.functions[product.name], product, shape, operands)
        call(self.device.stream)
        self.device.stream.synchronize()
        found = out.get()
        assert np.isnan(found[m]).all(), "a product wrote behind its result"
        return found[:m]


@pytest.fixture(scope="module")
def run() -> Runner:
    return Runner()


@pytest.mark.gpu
@pytest.mark.parametrize("flags", TRANSPOSES, ids=lambda f: "".join("NT"[t] for t in f))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_products_are_exact_products_rounded(
    way: Configuration, flags: tuple[bool, bool], run: Runner, rng: np.random.Generator
) -> None:
    for m, n, k in SIZES:
        a = rng.standard_normal((m, k)).astype("f4")
        b = rng.standard_normal((k, n)).astype("f4")
        wanted = a.astype("f8") @ b.astype("f8")
        found = run(way, flags, a, b)
        assert_agrees(found, wanted, "reassoc", magnitude(wanted))
        assert found.tobytes() == run(way, flags, a, b).tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("flags", TRANSPOSES, ids=lambda f: "".join("NT"[t] for t in f))
@pytest.mark.parametrize("way", WAYS[:: max(1, len(WAYS) // 6)], ids=lambda way: way.name)
def test_factors_that_are_not_finite(
    way: Configuration, flags: tuple[bool, bool], run: Runner, rng: np.random.Generator
) -> None:
    a = rng.standard_normal((70, 300)).astype("f4")
    b = rng.standard_normal((300, 40)).astype("f4")
    a[3, 5], a[10, 299], a[40, 7], a[41, 8] = np.inf, np.nan, -np.inf, 3e38
    b[6, 9], b[7, 11], b[12, 20], b[5, 30] = np.inf, 0, np.nan, 1e-40
    with np.errstate(all="ignore"):
        wanted = (a.astype("f8") @ b.astype("f8")).astype("f4")
    found = run(way, flags, a, b)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(found[infinite], wanted[infinite])
    whole = np.isfinite(wanted)
    whole[41] = False  # its largest term hides the others
    assert_agrees(found[whole], wanted[whole], "reassoc", magnitude(wanted[whole]))


H200 = mg.Target.made_up("h200")


def place(device: str) -> dict[str, Any]:
    """Return the options of a function for a device, or for one that is not here."""
    return {"target": H200} if device == "h200" else {"device": device}


def network(rows: int, width: int, inputs: int, device: str) -> tuple[Any, list[Any]]:
    """Return a step whose products have epilogues with a bias, a sigmoid and column sums."""
    x = mg.var("x", shape=(rows, inputs))
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(inputs, width))
    b = mg.var("b", init=mg.init.zeros(), shape=(width,))
    v = mg.var("v", init=mg.init.glorot_uniform(seed=2), shape=(width, width))
    c = mg.var("c", init=mg.init.zeros(), shape=(width,))
    u = mg.var("u", init=mg.init.glorot_uniform(seed=3), shape=(width, width))
    hidden = mg.sigmoid(mg.sigmoid(x @ w + b) @ v + c)
    loss = mg.mean((hidden @ u) ** 2)
    variables = [w, b, v, c, u]
    updates = mg.optimizer.SGD(0.1).updates(loss, variables)
    return mg.function([x], [loss, hidden], updates=updates, device=device), variables


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "width", "inputs"), [(100, 528, 784), (37, 301, 260), (64, 256, 512), (1, 257, 300)]
)
def test_epilogues_on_the_device_are_the_host(
    rows: int, width: int, inputs: int, rng: np.random.Generator, monkeypatch: Any
) -> None:
    monkeypatch.setattr(mg.config, "tuning", True)
    device, on_device = network(rows, width, inputs, "cuda")
    host, on_host = network(rows, width, inputs, "cpu")
    for _ in range(4):
        x = rng.standard_normal((rows, inputs)).astype("f4")
        for found, wanted in zip(device(x), host(x), strict=True):
            assert_agrees(found.get(), wanted, "reassoc", magnitude(wanted))
    for found, wanted in zip(on_device, on_host, strict=True):
        assert_agrees(found.value, wanted.value, "reassoc", magnitude(wanted.value))


def classifier(
    classes: int, inputs: int, device: str, loss: str = "cross_entropy"
) -> tuple[Any, list[Any]]:
    """Return a step whose last product is followed by a loss of its rows and their gradients."""
    x = mg.var("x", shape=("rows", inputs))
    labels = mg.var("labels", shape=("rows",), dtype="int32")
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(inputs, classes))
    b = mg.var("b", init=mg.init.zeros(), shape=(classes,))
    logits = x @ w + b
    if loss == "cross_entropy":
        outputs = [mg.cross_entropy(logits, labels)]
    else:  # what a row has one of, and what it has many of
        rows_of = mg.logsumexp(logits, axis=1), mg.softmax(logits), mg.max(logits, axis=1)
        outputs = [mg.mean(rows_of[0]), *rows_of[1:]]
    updates = mg.optimizer.SGD(0.1).updates(outputs[0], [w, b])
    return mg.function([x, labels], outputs, updates=updates, **place(device)), [w, b]


def test_losses_of_few_classes_are_computed_on_tiles_without_a_gpu() -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    f, _ = classifier(10, 300, "h200")
    plan = f.specialize((50, 300), (50,)).plan
    merge = merge_of(merged(plan)[0].parts, 90, alone=False)
    assert merge.rows
    # The reader renews the bias: it and its product run when nothing can fail any more.
    symbolic = f._compiled.plan
    (place,) = (i for i, step in enumerate(plan.steps) if step.role is Role.EPILOGUE)
    product = next(i for i, step in enumerate(symbolic.steps) if step.kernel == "gemm")
    assert plan.commit <= place and product < symbolic.commit
    cut = cut_of_rows(50, 10, 300)
    assert cut == merge.configuration and cut.columns >= 10
    epilogue = RowEpilogue(merge.kernels, merge.node, cut)
    shape = ProductShape(50, 10, 300, False, False)
    made = product_of_shape(shape, cut, epilogue.epilogue, 0)
    assert made.grid(50, 10) == (1, 4, 1) and epilogue.lines(50) == 4
    assert compile_source(complete_source([made]), "90")[:4] == b"\x7fELF"
    assert cut_of_rows(50, 33, 300) is None


@pytest.mark.gpu
@pytest.mark.parametrize("loss", ["cross_entropy", "others"])
@pytest.mark.parametrize(
    ("rows", "classes", "inputs"),
    [(100, 10, 528), (37, 32, 300), (64, 3, 260), (1, 2, 270), (20, 33, 300), (513, 17, 1000)],
)
def test_losses_on_the_device_are_the_host(
    rows: int, classes: int, inputs: int, loss: str, rng: np.random.Generator
) -> None:
    device, on_device = classifier(classes, inputs, "cuda", loss)
    host, on_host = classifier(classes, inputs, "cpu", loss)
    for _ in range(4):
        x = rng.standard_normal((rows, inputs)).astype("f4")
        labels = rng.integers(0, classes, rows).astype("i4")
        for found, wanted in zip(device(x, labels), host(x, labels), strict=True):
            assert_agrees(found.get(), wanted, "reassoc", magnitude(wanted))
    for found, wanted in zip(on_device, on_host, strict=True):
        assert_agrees(found.value, wanted.value, "reassoc", magnitude(wanted.value))


def behind_a_loss(
    rows: int,
    inputs: int,
    width: int,
    classes: int,
    device: str,
    frozen: bool = False,
    optimizer: Any = mg.optimizer.SGD,
) -> tuple[Any, list[Any]]:
    """Return a step whose loss is followed by a product with the weights before it."""
    x = mg.var("x", shape=(rows, inputs))
    labels = mg.var("labels", shape=(rows,), dtype="int32")
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(inputs, width))
    b = mg.var("b", init=mg.init.zeros(), shape=(width,))
    u = mg.var("u", init=mg.init.glorot_uniform(seed=2), shape=(width, classes))
    c = mg.var("c", init=mg.init.zeros(), shape=(classes,))
    loss = mg.cross_entropy(mg.sigmoid(x @ w + b) @ u + c, labels)
    variables = [w, b] if frozen else [w, b, u, c]
    updates = optimizer(0.01).updates(loss, variables)
    return mg.function([x, labels], loss, updates=updates, **place(device)), variables


def merged(plan: Any) -> list[Any]:
    """Return the launches of products with regions on their tiles."""
    return [step for step in plan.steps if step.role is Role.EPILOGUE]


def chained(plan: Any) -> list[Any]:
    """Return those that have a second product behind a loss."""
    return [step for step in merged(plan) if len(step.parts) == 4]


def launches_on_paper(f: Any) -> StepLaunches:
    """Return what makes the launches of a function's plan, on a device that is not here."""
    plan = f.plan
    return bound_on_paper(f._compiled.plan, plan, f._target())._make


# The second gives kernels many operands; with this eps small gradients are not all of one size.
OPTIMIZERS = [mg.optimizer.SGD, functools.partial(mg.optimizer.Adam, eps=1.0)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_loss_and_the_product_behind_it_are_one_kernel_without_a_gpu(optimizer: Any) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    f, _ = behind_a_loss(100, 784, 528, 10, "h200", optimizer=optimizer)
    (step,) = chained(f.specialize((100, 784), (100,)).plan)
    make = launches_on_paper(f).merged
    product, behind = make.product(step), make.merge(step).behind
    assert behind is not None
    assert (behind.shape.m, behind.shape.n, behind.shape.k) == (100, 528, 10)
    assert blocks_across(behind.shape) == 18  # the last writes the rows
    most = max(int(place) for place in re.findall(r"\bv\[(\d+)\]", product.source))
    assert most < product.words == (64 if optimizer is OPTIMIZERS[0] else 128)
    assert compile_source(complete_source([product]), "90")[:4] == b"\x7fELF"


def test_sums_of_a_product_behind_rows_have_memory_beside_those_of_the_rows() -> None:
    f, _ = behind_a_loss(100, 784, 528, 10, "h200")
    plan = f.specialize((100, 784), (100,)).plan
    (step,) = chained(plan)
    first, second = (plan.slots[slot] for slot in step.scratch)
    assert first.last > first.first and second.last > second.first
    assert first.offset + first.size <= second.offset or second.offset + second.size <= first.offset
    make = launches_on_paper(f)
    merge = make.merged.merge(step)
    readers = merge.reader, merge.behind.reader
    bodies = [make.fused.bodies(reader, on_tiles=True)[0] for reader in readers]
    # The kernels' last addresses.
    places = [make.memory.address[slot] for slot in step.scratch]
    assert [body.words[-1] for body in bodies] == places
    sizes = [merge.kernels, merge.behind.kernels]
    needed = [kernels.region.workspace(plan.threads) for kernels in sizes]
    assert needed == [first.size, second.size]


def test_a_product_stays_by_itself_where_its_reader_needs_what_the_rows_end_with() -> None:
    x = mg.var("x", shape=(100, 784))
    labels = mg.var("labels", shape=(100,), dtype="int32")
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(784, 528))
    u = mg.var("u", init=mg.init.glorot_uniform(seed=2), shape=(528, 10))
    hidden = mg.sigmoid(x @ w)
    logits = hidden @ u
    loss = mg.cross_entropy(logits, labels)
    rows = mg.grad(loss, logits)
    for scale, alone in ((1.0, False), (loss, True)):
        back = (rows @ mg.transpose(u)) * (1.0 - hidden * hidden) * scale
        f = mg.function([x, labels], [loss, back, mg.sum(rows, axis=0)], target=H200)
        assert merged(f.plan) and (not chained(f.plan)) == alone


def test_a_product_stays_by_itself_where_too_many_blocks_would_compute_rows() -> None:
    f, _ = behind_a_loss(300, 100, 528, 10, "h200")
    plan = f.specialize((300, 100), (300,)).plan
    assert merged(plan) and not chained(plan)
    reasons = [refusal.reason for refusal in f.report["fuse_products"].refusals]
    assert "more blocks than the device has multiprocessors would compute the rows again" in reasons


def large(f: Any) -> list[tuple[bool, int]]:
    """Return of each large product whether its reader is merged with it, and its tiles' rows."""
    make, found = launches_on_paper(f), []
    for step in f.plan.steps:
        shape = product_shape(step.parts[0] if step.role is Role.EPILOGUE else step)
        if shape is not None and shape.m * shape.n > SMALL:
            together = step.role is Role.EPILOGUE
            product = make.merged.product(step) if together else make._small(step)[0]
            found.append((together, product.configuration.rows))
    return found


def test_the_one_large_gradient_of_a_plan_has_small_blocks() -> None:
    for sizes, rows in (((784, 528, 10), [32]), ((784, 528, 528, 10), [48, 64])):
        f, _ = layered(100, sizes, "h200", precision="tf32")
        assert sorted(large(f)) == [(False, row) for row in rows]


def test_the_one_large_product_before_a_region_has_small_blocks() -> None:
    sizes = {"x": 784, "y": 528, "z": 528}
    x, y, z = (mg.var(name, shape=(100, size)) for name, size in sizes.items())
    one = mg.tanh(mg.transpose(x) @ y)
    options = {"precision": "tf32", "target": H200}
    f = mg.function([x, y], one, **options)
    g = mg.function([x, y, z], [one, mg.exp(mg.transpose(y) @ z)], **options)
    assert sorted(large(g)) == [(False, 48), (True, 64)]  # one step reads both
    assert large(f) == [(True, 32)]


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("rows", "inputs", "width", "classes"),
    [
        (100, 784, 528, 10), (37, 300, 260, 3), (5, 64, 1000, 32), (1, 300, 40, 2), (17, 50, 31, 8),
        (100, 300, 257, 16), (33, 260, 500, 17), (300, 100, 528, 10), (256, 100, 128, 10),
    ],
)
def test_products_behind_losses_are_the_host(
    rows: int,
    inputs: int,
    width: int,
    classes: int,
    frozen: bool,
    optimizer: Any,
    rng: np.random.Generator,
) -> None:
    device, on_device = behind_a_loss(rows, inputs, width, classes, "cuda", frozen, optimizer)
    host, on_host = behind_a_loss(rows, inputs, width, classes, "cpu", frozen, optimizer)
    for _ in range(4):
        x = rng.standard_normal((rows, inputs)).astype("f4")
        labels = rng.integers(0, classes, rows).astype("i4")
        found, wanted = device(x, labels), host(x, labels)
        assert_agrees(found.get(), wanted, "reassoc", magnitude(wanted))
    for found, wanted in zip(on_device, on_host, strict=True):
        assert_agrees(found.value, wanted.value, "reassoc", magnitude(wanted.value))


def layered(
    rows: int, sizes: tuple[int, ...], device: str, **options: Any
) -> tuple[Any, list[Any]]:
    """Return a step of a network with tanh between its layers, with a function's options."""
    x = mg.var("x", shape=(rows, sizes[0]))
    labels = mg.var("labels", shape=(rows,), dtype="int32")
    value, variables = x, []
    for layer, shape in enumerate(itertools.pairwise(sizes)):
        weights = mg.var(f"w{layer}", init=mg.init.glorot_uniform(seed=layer), shape=shape)
        bias = mg.var(f"b{layer}", init=mg.init.zeros(), shape=shape[1:])
        value = (mg.tanh(value) if layer else value) @ weights + bias
        variables += [weights, bias]
    loss = mg.cross_entropy(value, labels)
    updates = mg.optimizer.SGD(0.05).updates(loss, variables)
    return mg.function([x, labels], loss, updates=updates, **place(device), **options), variables


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "sizes"),
    # In these plans the sums of the rows and those behind them are given the same memory.
    [(256, (784, 1024, 128, 10)), (256, (300, 2000, 128, 10)), (100, (100, 128, 10))],
)
def test_sums_behind_losses_are_the_host(
    rows: int, sizes: tuple[int, ...], rng: np.random.Generator
) -> None:
    device, on_device = layered(rows, sizes, "cuda")
    host, on_host = layered(rows, sizes, "cpu")
    begun = [variable.value.copy() for variable in on_host]
    for _ in range(4):
        x = rng.standard_normal((rows, sizes[0])).astype("f4")
        labels = rng.integers(0, sizes[-1], rows).astype("i4")
        found, wanted = device(x, labels), host(x, labels)
        assert_agrees(found.get(), wanted, "reassoc", magnitude(wanted))
    for found, wanted, before in zip(on_device, on_host, begun, strict=True):
        changed = wanted.value - before
        assert np.linalg.norm(found.value - wanted.value) <= 1e-3 * np.linalg.norm(changed)
