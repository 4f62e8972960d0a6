"""Rows that are brought into the cache ahead of their blocks: for which, how far, and that it is
right; launches that are queued one behind the other, which overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from regions import CASES, Case, arrays_for, assert_close, interpreted
from table import assert_agrees
from test_regions import run_on_device

import magmagraph as mg
from magmagraph.codegen.cuda import launch_config
from magmagraph.codegen.cuda.generated import kernels_of
from magmagraph.codegen.cuda.kernels import RegionKernels
from magmagraph.codegen.cuda.launch_config import LaunchConfig, lines_for
from magmagraph.runtime.cpu.kernel_args import bodies_of
from magmagraph.runtime.cuda.kernels.fused import Modules

ROW = 32 << 10  # bytes


def kernels(
    make: Callable[..., Any], shape: tuple[int, ...], dtype: str, *others: tuple[int, ...]
) -> RegionKernels:
    """Return the kernels of a function's one region."""
    shapes = (shape, *others)
    inputs = [mg.var(f"x{i}", shape=one, dtype=dtype) for i, one in enumerate(shapes)]
    f = mg.function(inputs, make(*inputs), device="cpu")
    ((body,),) = (bodies_of(step) for step in f.plan.steps if step.kernel == "fused")
    made = kernels_of(body)
    assert made is not None
    return made


def ahead(made: RegionKernels, lines: int = 264) -> tuple[int, list[int]]:
    """Return how many rows ahead one is brought, and how many bytes of each operand."""
    told = LaunchConfig(made, {}, lines_for(made, {}, lines))
    told.main()
    return told.rows_ahead(), [told.bytes_ahead(i) for i in range(len(made.region.accesses))]


def test_rows_from_memory_are_brought_ahead() -> None:
    wanted = launch_config.AHEAD * launch_config.MULTIPROCESSORS
    for make in (mg.layer_norm, mg.softmax, mg.log_softmax):
        assert ahead(kernels(make, (8192, 8192), "float32")) == (wanted // ROW, [ROW])
    narrow = ahead(kernels(mg.layer_norm, (8192, 8192), "bfloat16"))
    assert narrow == (2 * wanted // ROW, [ROW // 2])
    assert ahead(kernels(mg.softmax, (64, 128, 8192), "float32")) == (wanted // ROW, [ROW])


def test_what_lies_in_the_cache_or_apart_is_not() -> None:
    assert ahead(kernels(mg.layer_norm, (1000, 8192), "float32")) == (0, [ROW])
    read = kernels(lambda x: mg.logsumexp(x, axis=-1), (8192, 8192), "float32")
    assert ahead(read) == (0, [ROW])  # nothing as long is written
    view = kernels(lambda x: mg.softmax(x[:, :4096]), (8192, 8192), "float32")
    assert ahead(view) == (0, [0])
    assert ahead(kernels(mg.softmax, (8_000_000, 12), "float32"))[0] == 0  # rows share a warp


def test_rows_of_several_operands_count_together() -> None:
    shapes = (8192, 8192), (8192,)
    made = kernels(lambda x, y, s: mg.softmax(x * y + s), (8192, 8192), "float32", *shapes)
    rows, sizes = ahead(made)
    assert rows == launch_config.AHEAD * launch_config.MULTIPROCESSORS // (2 * ROW)
    assert sorted(sizes) == [0, ROW, ROW]


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [{"B": 300, "N": 128}, {"B": 67, "N": 2052}], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_with_rows_ahead_are_the_interpreter(
    case: Case, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    from magmagraph.runtime.cuda.device import device_of

    monkeypatch.setattr(launch_config, "FAR", 0)
    monkeypatch.setattr(launch_config, "AHEAD", 512)
    body = case.body()
    made = kernels_of(body)
    if min(sizes.values()) < case.least or made is None or not made.keeps:
        return
    arrays = arrays_for(rng, body, sizes, case.make)
    results = run_on_device(device_of("cuda"), Modules(device_of("cuda")), body, arrays, sizes, 264)
    if results is not None:
        with np.errstate(all="ignore"):
            wanted = interpreted(body, arrays, sizes)
        assert_close(body, results, wanted, case.numerics, f"{case.name} on cuda")


@pytest.mark.gpu
def test_large_rows(rng: np.random.Generator) -> None:
    """Rows of 78 MB in all, the last of which have none to bring."""
    given = rng.standard_normal((9500, 2052)).astype("f4")
    x = mg.var("x", shape=given.shape)
    f = mg.function([x], mg.layer_norm(x), device="cuda")
    wide = given.astype("f8")
    centred = wide - wide.mean(1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    for _ in range(2):
        assert_agrees(f(given).get(), wanted.astype("f4"), "reassoc", 10.0)


@pytest.mark.gpu
def test_what_is_queued_on_a_stream_that_captures(rng: np.random.Generator) -> None:
    given = rng.standard_normal((65536, 64)).astype("f4")
    x = mg.var("x", shape=given.shape)
    f = mg.function(
        [x], mg.tanh(mg.sum(x, axis=0)) * 2, device="cuda", options={"reduce_to_gemv": "never"}
    )
    first = f(given).get()
    bound = f._last
    stream = bound.device.cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(3):
            bound.queue(stream)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    assert f(given).get().tobytes() == first.tobytes()
    wanted = 2 * np.tanh(given.sum(0, dtype="f8"))
    assert_agrees(first, wanted.astype("f4"), "reassoc", 256.0)
