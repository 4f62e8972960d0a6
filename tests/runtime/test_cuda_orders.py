"""CUDA kernels of regions that read in another order, at other places, or in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_emulator import available, run_region
from planned import options_of
from regions import arrays_for, assert_close, interpreted, make_body

import magmagraph as mg
from magmagraph.codegen.cuda import launch_config
from magmagraph.codegen.cuda.generated import kernels_of
from magmagraph.codegen.region.analysis import Refusal, Region, analyze
from magmagraph.ir.graph import Trace, freeze
from magmagraph.passes import pipeline

Build = Callable[..., Any]
B, N = mg.Dim("B"), mg.Dim("N")
T = mg.transpose


def five_points(u: Any) -> Any:
    middle = u[1:-1, 1:-1]
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * middle


def heat(u: Any) -> Any:
    return u + 0.1 * (
        mg.roll(u, 1, 0) + mg.roll(u, -1, 0) + mg.roll(u, 1, 1) + mg.roll(u, -1, 1) - 4 * u
    )


def blur(u: Any, mode: str = "constant") -> Any:
    n, m = u.shape
    p = mg.pad(u, 1, mode=mode)
    return sum(p[i : i + n, j : j + m] for i in range(3) for j in range(3)) / 9


def seven_points(u: Any) -> Any:
    inner = slice(1, -1)
    ends = [slice(2, None), slice(-2)]
    beside = [u[e, inner, inner] + u[inner, e, inner] + u[inner, inner, e] for e in ends]
    return beside[0] + beside[1] - 6 * u[inner, inner, inner]


def launched(body: Any, sizes: dict[str, int]) -> list[str]:
    """Return how the names of the kernels end that compute a body."""
    kernels = kernels_of(body)
    assert kernels is not None
    launches, _ = launch_config.launches_of(kernels, sizes, 264)
    return [launch.kernel.split("_")[1] for launch in launches]


QUICK: list[tuple[str, str, list[Any], Build, dict[str, int]]] = [
    ("transposed", "x4", [(96, 64), (64, 96), (96,)], lambda u, b, c: T(u) * 2 + b + c, {}),
    ("transposed odd", "x1", [(65, 33), (33, 65)], lambda u, b: T(u) * 2 + b, {}),
    ("written in both orders", "x4", [(40, 68), (68, 40)],
     lambda u, b: (T(u) + b, T(T(u) * b)), {}),
    ("batches", "x1", [(3, 17, B), (17,)], lambda u, b: T(u, (0, 2, 1)) + b, {"B": 31}),
    ("halves", "x8", [((64, 128), "bfloat16"), ((128, 64), "bfloat16")], lambda u, b: T(u) + b, {}),
    ("five points", "w1", [(100, 70)], five_points, {}),
    ("five points, named", "w1", [(B, N), (B, 1)], lambda u, b: five_points(u) + b[1:-1],
     {"B": 33, "N": 66}),
    ("seven points", "w1", [(20, 30, 40)], seven_points, {}),
    ("odd rows", "w1", [(61, 61), (61,), (61, 1)], lambda u, b, c: u * b + c, {}),
    ("differences", "w1", [(1003,)], lambda u: u[1:] - u[:-1], {}),
    ("rolls", "w1", [(64, 97)], heat, {}),
    ("pads", "w1", [(65, 96)], blur, {}),
    ("padded edges", "w1", [(65, 60)], lambda u: five_points(mg.pad(u, 1, mode="edge")), {}),
    ("joined", "w1", [(30, 64), (30, 31), (30, 1)],
     lambda a, b, c: mg.exp(mg.concatenate([a, b, c], 1)), {}),
]  # fmt: skip
MORE: list[tuple[str, str, list[Any], Build, dict[str, int]]] = [
    ("one row", "v", [(1, 40), (40, 1)], lambda u, b: T(u) + b, {}),
    ("doubles", "x2", [((64, 96), "float64"), ((96, 64), "float32")],
     lambda u, b: T(u) + mg.cast(b, "float64"), {}),
    ("bytes", "x8", [((64, 96), "uint8"), ((96, 64), "bool")], lambda u, b: mg.where(b, T(u), 3),
     {}),
    ("many transposed", "x4", [(64, 32)] * 20 + [(32, 64)],
     lambda *u: sum(T(x) for x in u[:20]) + u[20], {}),
    ("three orders", "x4", [(32, 20, 48), (48, 32, 20), (20, 48, 32)],
     lambda a, b, c: a + T(b, (1, 2, 0)) + T(c, (2, 0, 1)), {}),
    ("turned around", "x4", [(40, 3, 36), (36, 3, 40)], lambda u, b: T(u, (2, 1, 0)) + b, {}),
    ("slice of a transpose", "x1", [(70, 90), (80, 64)], lambda u, b: T(u[3:67, 5:85]) + b, {}),
    ("slices far apart", "w1", [(61, 71)], lambda p: p[:20] + p[41:] + p[1:21] * p[5:25], {}),
    ("slices with steps", "w1", [(60, 70), (70,), (29, 1)],
     lambda p, b, c: p[1:59:2, 3:] - p[0:57:2, :-3] * b[3:] + c, {}),
    ("flipped", "w1", [(60, 71)], lambda p: p[::-1] + p[:, ::-1], {}),
    ("positions", "w1", [(61, 71)],
     lambda p: (p[1:, 1:] + mg.cast(mg.arange(70), "float32"), p[:-1, 1:] * 2), {}),
    ("continued", "w1", [(65, 60)], lambda u: five_points(mg.pad(u, 1, mode="wrap")), {}),
    ("two rolls", "w1", [(64, 97)], lambda u: mg.roll(u, (3, -7), (0, 1)) * u, {}),
    ("three rolls", "w1", [(10, 32, 64)], lambda u: mg.roll(u, (3, -7, 5), (0, 1, 2)) * u, {}),
    ("stacked", "v1", [(10, 12)] * 3, lambda a, b, c: mg.stack([a, b, c], -1) * 2, {}),
    ("transposed pad", "", [(64, 65)],
     lambda u: T(mg.pad(u, ((1, 2), (3, 0)), constant_values=1.5))[2:] * 2, {}),
    ("padded transpose", "", [(64, 65)],
     lambda u: mg.pad(T(u), ((1, 2), (3, 0)))[2:, 1:] * 2, {}),
    ("pad of joined", "w1", [(33, 61), (35, 61)],
     lambda a, b: mg.pad(mg.concatenate([a, b]), ((1, 2), (3, 0))) * 2, {}),
    ("joined pads", "w1", [(33, 61), (35, 61)],
     lambda a, b: mg.concatenate([mg.pad(a, ((1, 2), (3, 0))), mg.pad(b, ((1, 2), (0, 3)))]) * 2,
     {}),
    ("padded halves", "w1", [((61, 62), "bfloat16")],
     lambda u: mg.roll(u, 5, 1) - mg.pad(u, ((0, 0), (1, 0)), constant_values=-3)[:, :-1], {}),
    ("rolled truths", "w1", [((61, 62), "int32"), ((61, 62), "bool")],
     lambda a, b: mg.where(mg.roll(b, 1, 0), mg.roll(a, 5, 1), -7), {}),
    ("padded repeats", "w1", [(64, 1), (64, 62)],
     lambda a, b: mg.pad(mg.broadcast_to(a, (64, 60)), ((0, 0), (1, 1))) * b, {}),
    ("sum of rolls", "v4", [(40, 52)], lambda u: mg.sum(mg.square(heat(u))), {}),
    ("row sums of rolls", "v", [(40, 50)], lambda u: mg.sum(mg.square(heat(u)), axis=1), {}),
    ("column sums of rolls", "d1", [(40, 50)], lambda u: mg.sum(mg.square(heat(u)), axis=0), {}),
    ("softmax of a roll", "k2", [(40, 50)], lambda u: mg.softmax(mg.roll(u, 1, 1), -1), {}),
]  # fmt: skip
for _sizes in ({"B": 33, "N": 17}, {"B": 2, "N": 64}, {"B": 1, "N": 1}, {"B": 0, "N": 5}):
    MORE += [
        ("named transpose", "", [(B, N), (N, B)], lambda u, b: T(u) * 2 + b, _sizes),
        ("named orders", "", [(B, 3, N), (B, 3, N)], lambda x, y: (x + y, T(x * y)), _sizes),
        ("named joined", "", [(B, N), (B, 1)], lambda g, b: mg.concatenate([g, b], 1) * 2, _sizes),
        ("named pad", "", [(B, N), (B, N)],
         lambda g, b: mg.pad(g, ((2, 0), (1, 3)))[:-2, 3:-1] + b, _sizes),
    ]  # fmt: skip


def _check(
    kind: str, operands: list[Any], build: Build, sizes: dict[str, int], descending: bool
) -> None:
    body = make_body(operands, build)
    kinds = launched(body, sizes)
    assert not kinds or kinds[0].startswith(kind), kinds
    arrays = arrays_for(np.random.default_rng(3), body, sizes)
    results = run_region(body, arrays, sizes, descending=descending)
    assert results is not None
    assert_close(body, results, interpreted(body, arrays, sizes), "stable", kind)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_config, "WINDOWS", 64)


emulated = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")


@emulated
@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(
    ("kind", "operands", "build", "sizes"), [c[1:] for c in QUICK], ids=[c[0] for c in QUICK]
)
def test_kernels_are_the_interpreter(
    kind: str, operands: list[Any], build: Build, sizes: dict[str, int]
) -> None:
    _check(kind, operands, build, sizes, descending=True)


@emulated
@pytest.mark.slow
@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("kind", "operands", "build", "sizes"), [c[1:] for c in MORE], ids=[c[0] for c in MORE]
)
def test_more_kernels_are_the_interpreter(
    kind: str, operands: list[Any], build: Build, sizes: dict[str, int], descending: bool
) -> None:
    _check(kind, operands, build, sizes, descending)


# ---- What goes into one kernel


def steps_of(outputs: Any, *inputs: Any, device: str = "cuda:0") -> list[str]:
    graph = freeze(inputs, outputs if isinstance(outputs, list) else [outputs])
    plan, _ = pipeline.run(graph, Trace(), options=options_of(device, threads=264))
    return [step.kernel for step in plan.steps]


@pytest.mark.parametrize(
    "build",
    [five_points, heat, blur, lambda u: T(u)[:, 1:] * 2, lambda u: mg.roll(u, 1, 0),
     lambda u: mg.pad(u, 1), lambda u: mg.mean(mg.square(heat(u)))],
    ids=["slices", "rolls", "pads", "transposed", "a roll", "a pad", "mean of rolls"],
)  # fmt: skip
def test_a_stencil_is_one_step(build: Build) -> None:
    u = mg.var("u", shape=(512, 640))
    assert steps_of(build(u), u) == ["fused"]


def test_gradients_of_stencils_pad_nothing() -> None:
    u = mg.var("u", shape=(512, 640))
    for build, count in ((five_points, 2), (heat, 2), (blur, 3)):
        found = steps_of(mg.grad(mg.sum(mg.square(build(u))), u), u)
        assert found == ["fused"] * count, build.__name__


def test_whole_arrays_are_copied_one_behind_the_other() -> None:
    a, b = mg.var("a", shape=(64, 512)), mg.var("b", shape=(64, 128))
    w = mg.var("w", shape=(640, 10))
    found = steps_of(mg.concatenate([mg.tanh(a), b], 1) @ w, a, b, w)
    assert found == ["fused", "join", "gemm"]


def test_plans_of_a_cpu_join_in_memory() -> None:
    u = mg.var("u", shape=(512, 640))
    assert "join" in steps_of(heat(u), u, device="cpu")


def test_parts_that_a_region_cannot_read() -> None:
    def reason(build: Build) -> str:
        verdict = analyze(make_body([(8, 8)], build))
        assert isinstance(verdict, Refusal)
        return verdict.reason

    assert "concatenate of a computed value" in reason(lambda u: mg.concatenate([u, u + 1]))
    assert "gaps, or are too many" in reason(lambda u: mg.concatenate([u[:1]] * 10))
    assert "gaps, or are too many" in reason(
        lambda u: mg.pad(mg.pad(u, 1), 1, constant_values=2)
    )


# ---- What a result may overwrite


@pytest.mark.parametrize(
    ("build", "pairs"),
    [
        (lambda u, b: T(u) + b, {(1, 0)}),
        (lambda u, b: mg.roll(u, 1, 0) + b, {(1, 0)}),
        (lambda u, b: mg.pad(u, 1)[2:, 1:-1] + b * mg.roll(b, 1, 1), set()),
        (lambda u, b: (T(u) + b, T(T(u) * b)), {(1, 0), (0, 1)}),
    ],
)
def test_moved_operands_are_not_overwritten(build: Build, pairs: set[tuple[int, int]]) -> None:
    region = analyze(make_body([(16, 16), (16, 16)], build))
    assert isinstance(region, Region)
    assert region.in_place == pairs
