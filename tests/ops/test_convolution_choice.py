"""Convolutions: which algorithm runs, what it takes, and that it stays within its memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned import options_of
from test_convolution import TILES, random_case

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.ops.convolution.primitives import LANES, algorithms, default_algorithm, scratch
from magmagraph.passes import pipeline
from magmagraph.runtime.cpu.convolution.convolution import convolution_step
from magmagraph.runtime.cpu.support import Program, address_of
from magmagraph.runtime.cpu.threads import get_threads, set_threads

GUARD = 4096


def test_memory_counts_the_workspace() -> None:
    x, w = mg.input("x", ("batch", 16, 20, 20)), mg.input("w", (16, 16, 3, 3))
    for algorithm in ("direct", "im2col", "winograd-2x2", "winograd-4x4"):
        function = mg.function([x, w], mg.conv2d(x, w, padding=1, algorithm=algorithm))
        function(np.ones((3, 16, 20, 20), np.float32), np.ones((16, 16, 3, 3), np.float32))
        steps = [s for s in function.plan.steps if s.kernel == "convolution"]
        assert len(steps) == 1
        scratch = function.plan.slots[steps[0].workspace]
        assert mg.dims.evaluate(scratch.size, {"batch": 3}) > 0


def test_pointwise_needs_no_patches() -> None:
    x, w = mg.input("x", (4, 16, 20, 20)), mg.input("w", (8, 16, 1, 1))
    function = mg.function([x, w], mg.conv2d(x, w, algorithm="im2col"))
    function(np.ones((4, 16, 20, 20), np.float32), np.ones((8, 16, 1, 1), np.float32))
    (step,) = function.plan.steps
    assert step.workspace is None or function.plan.slots[step.workspace].size <= 64 * LANES


def test_bias_and_activation_are_one_kernel() -> None:
    x, w = mg.input("x", ("batch", 2, 8, 8)), mg.input("w", (3, 2, 3, 3))
    bias = mg.input("bias", (3,))
    function = mg.function([x, w, bias], mg.relu(mg.conv2d(x, w, bias=bias, algorithm="direct")))
    ones = np.ones((1, 2, 8, 8), np.float32), np.ones((3, 2, 3, 3), np.float32)
    result = function(*ones, np.float32([-20, 0, 1]))
    assert [step.kernel for step in function.plan.steps] == ["convolution", "fused"]
    np.testing.assert_array_equal(result[0, :, 0, 0], [0.0, 18.0, 19.0])


def test_default_algorithm_depends_on_the_geometry() -> None:
    def chosen(*shape: int, **attrs: Any) -> str:
        x = mg.input("x", ("batch", shape[1] * attrs.get("groups", 1), 16, 16))
        return default_algorithm(mg.conv2d(x, mg.input("w", shape), **attrs))

    assert chosen(128, 128, 3, 3) == "winograd-2x2"
    assert chosen(128, 128, 3, 3, stride=2) == "im2col"
    assert chosen(64, 64, 3, 3) == chosen(64, 64, 3, 3, stride=2) == "direct"
    assert chosen(6, 3, 1, 1) == "im2col"
    assert chosen(32, 1, 3, 3, groups=32) == "direct"
    assert chosen(6, 1, 5, 5) == "direct"


def _planned_algorithms(node: mg.Node, leaves: list[mg.Node], **options: Any) -> list[str]:
    graph = freeze(leaves, [node])
    plan, _ = pipeline.run(graph, Trace(), options=options_of(**options))
    return [s.node.attrs["algorithm"] for s in plan.steps if "algorithm" in s.node.attrs]


def test_auto_asks_for_a_trial_of_what_can_do_it() -> None:
    """The key tells geometries apart, and classes of sizes; no trial where none may be made."""
    requests: dict[str, list[str]] = {}

    def choose(key: str, candidates: Mapping[str, Graph], sizes: Mapping[str, int]) -> str:
        requests[key] = list(candidates)
        return "im2col"

    x, w = mg.input("x", ("batch", 128, 20, 20)), mg.input("w", (128, 128, 3, 3))
    square, strided = mg.conv2d(x, w), mg.conv2d(x, w, stride=2)
    for node in (square, strided):
        assert _planned_algorithms(node, [x, w], choose=choose, tuning=True) == ["im2col"]
    first, second = requests.values()
    assert set(first) == {"direct", "im2col", "winograd-2x2"}
    assert set(second) == {"direct", "im2col"}
    for options in ({"tuning": False}, {"tuning": True, "deterministic": True}):
        count = len(requests)
        planned = _planned_algorithms(square, [x, w], choose=choose, **options)
        assert planned == [default_algorithm(square)]
        assert len(requests) == count
    fixed = mg.conv2d(x, w, algorithm="winograd-4x4")
    assert _planned_algorithms(fixed, [x, w], choose=choose) == ["winograd-4x4"]
    assert len(requests) == 2


@pytest.mark.parametrize("wide", [True, False])
def test_what_never_was_the_fastest_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    monkeypatch.setattr("magmagraph.ops.convolution.primitives.wide_vectors", lambda: wide)

    def tried(channels: int, results: int, **attrs: Any) -> list[tuple[str, ...]]:
        """Return what is tried forward, to the input and to the weights."""
        x, w = mg.input("x", (2, channels, 16, 16)), mg.input("w", (results, channels, 3, 3))
        y = mg.conv2d(x, w, **attrs)
        nodes = mg.function([x, w], [y, *mg.grad(mg.sum(y * y), [x, w])]).source_graph.nodes
        by_operation = {
            n.op.name: algorithms(n) for n in nodes if n.op.kernel.algorithms is not None
        }
        return [by_operation["convolution" + part] for part in ("", "_input", "_weight")]

    assert tried(8, 16) == tried(8, 16, stride=2) == [("direct",)] * 3
    assert tried(1, 16) == [("direct",), ("direct", "im2col"), ("direct",)]
    every = {"direct", "im2col", "winograd-2x2"}
    for tried_for in tried(64, 64):
        assert tried_for[0] == "direct"
        assert set(tried_for) == ({"direct"} if wide else every)
    for tried_for in tried(128, 128):
        assert tried_for[0] == "winograd-2x2"
        assert set(tried_for) == every


def test_trial_is_made_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(mg.config, "tuning", True)
    x, w = mg.input("x", ("batch", 2, 6, 6)), mg.input("w", (3, 2, 1, 1))
    function = mg.function([x, w], mg.conv2d(x, w))
    function(np.ones((2, 2, 6, 6), np.float32), np.ones((3, 2, 1, 1), np.float32))
    algorithms = [s.node.attrs["algorithm"] for s in function.plan.steps]
    assert algorithms[0] in ("direct", "im2col")
    notes = str(function.report) if hasattr(function, "report") else ""
    assert "algorithm/convolution/float32" in notes


def test_skipped_pass_leaves_the_choice_to_the_kernel() -> None:
    x, w = mg.input("x", (2, 3, 9, 9)), mg.input("w", (4, 3, 3, 3))
    node = mg.conv2d(x, w, padding=1)
    arrays = np.ones((2, 3, 9, 9), np.float32), np.ones((4, 3, 3, 3), np.float32)
    function = mg.function([x, w], node, skip=("layout",))
    np.testing.assert_array_equal(function(*arrays)[:, :, 1:-1, 1:-1], 27.0)
    (step,) = function.plan.steps
    assert step.node.attrs["algorithm"] == "auto"


@pytest.mark.parametrize("algorithm", ["direct", "im2col", "winograd-4x4"])
def test_sixteen_bit_floats_are_summed_in_float32(algorithm: str) -> None:
    x = mg.input("x", (1, 200, 6, 6), "float16")
    node = mg.conv2d(x, mg.cast(mg.ones((1, 200, 3, 3)), "float16"), algorithm=algorithm)
    result = mg.function([x], node)(np.ones((1, 200, 6, 6), np.float16))
    assert result.dtype == np.float16
    assert tolerance(np.dtype(np.float16), "reassoc").close(result, np.full((1, 1, 4, 4), 1800.0))


def test_threads_give_the_same(rng: np.random.Generator) -> None:
    """Shares are cut otherwise by more threads; sums over channels and taps are not."""
    x = rng.standard_normal((5, 12, 30, 30)).astype(np.float32)
    w = rng.standard_normal((18, 12, 3, 3)).astype(np.float32)
    left, right = mg.input("x", x.shape), mg.input("w", w.shape)
    before = get_threads()
    for algorithm in ("direct", "im2col", "winograd-2x2"):
        all_results = []
        for threads in (1, 2, 3):
            set_threads(threads)
            try:
                node = mg.conv2d(left, right, padding=1, algorithm=algorithm)
                outputs = [node, *mg.grad(mg.sum(node**2), [left, right])]
                all_results.append(mg.function([left, right], outputs)(x, w))
            finally:
                set_threads(before)
        for other in all_results[1:]:
            for a, b in zip(all_results[0], other, strict=True):
                scale = 16.0 * float(np.max(np.abs(a)))
                assert tolerance(np.dtype(np.float32), "reassoc").close(b, a, scale)


def _guarded(count: int, dtype: np.dtype, fill: float) -> tuple[np.ndarray, np.ndarray]:
    """Return memory and the part of it that may be used, with GUARD bytes on either side."""
    items = GUARD // dtype.itemsize
    whole = np.full(count + 2 * items, fill, dtype)
    return whole, whole[items : items + count]


@pytest.mark.parametrize("algorithm", ["direct", "im2col", *TILES])
@pytest.mark.parametrize("number", range(24))
def test_kernels_stay_within_their_memory(
    algorithm: str, number: int, rng: np.random.Generator
) -> None:
    """Nothing around results and scratch is written, and nothing that is read there matters."""
    square = algorithm in TILES
    case = random_case(rng, 2 if square else 1 + number % 3, square)
    dtype = np.dtype(np.float32 if number % 2 else np.float64)
    threads = 1 + number % 4
    x, w = (array.astype(dtype) for array in case.arguments)
    left, right = mg.input("x", x.shape, dtype), mg.input("w", w.shape, dtype)
    forward = mg.conv(left, right, algorithm=algorithm, **case.attrs)
    cotangent = mg.input("g", forward.shape, dtype)
    g = rng.standard_normal([int(e) for e in forward.shape]).astype(dtype)
    to_x, to_w = forward.op.gradient(forward, cotangent)
    for node, operands in ((forward, (x, w)), (to_x, (g, w)), (to_w, (x, g))):
        size = int(scratch(node, threads)) // dtype.itemsize
        guarded = [_guarded(array.size, dtype, np.nan) for array in operands]
        for (_, part), array in zip(guarded, operands, strict=True):
            part[:] = array.ravel()
        (room, space), (around, result) = (
            _guarded(n, dtype, np.nan) for n in (size, int(node.type.size))
        )
        addresses = [address_of(part) for _, part in guarded]
        step = convolution_step(
            node, {}, *addresses, address_of(result), address_of(space), space.nbytes, threads
        )
        Program([step], keep=(guarded, room, around)).run()
        items = GUARD // dtype.itemsize
        for whole in (room, around):
            assert np.isnan(whole[:items]).all()
            assert np.isnan(whole[-items:]).all()
        assert np.isfinite(result).all()
