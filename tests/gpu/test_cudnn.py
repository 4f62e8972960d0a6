"""Convolutions, pooling and attention on the card: by the library, by our kernels, and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from table import assert_agrees, magnitude

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance

pytestmark = pytest.mark.gpu

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
# Input and weights (channels first), and how the window slides.
CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((4, 16, 14, 14), (32, 16, 3, 3), {"padding": 1}),
    ((4, 16, 15, 13), (24, 16, 3, 3), {"stride": 2, "padding": ((0, 1), (1, 2))}),
    ((4, 16, 14, 14), (32, 16, 1, 1), {"stride": 2}),
    ((2, 3, 33, 33), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((2, 16, 20, 20), (16, 16, 3, 3), {"padding": 2, "dilation": 2}),
    ((2, 16, 14, 14), (32, 8, 3, 3), {"padding": 1, "groups": 2}),
    ((2, 16, 14, 14), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    ((3, 8, 40), (16, 8, 5), {"stride": 2, "padding": 2}),
    ((2, 4, 6, 8, 8), (8, 4, 3, 3, 3), {"padding": 1}),
]
# Of images with few channels, whose weights' gradients are generated.
FEW_CHANNELS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((300, 1, 28, 28), (32, 1, 5, 5), {"padding": 2}),
    ((5, 3, 19, 41), (40, 3, 3, 5), {"padding": ((1, 0), (2, 2))}),
    ((3, 4, 33, 30), (70, 4, 7, 7), {"stride": (2, 1), "padding": 3}),
    ((2, 2, 9, 70), (16, 2, 2, 1), {"stride": (1, 3)}),
]
POOLS: list[tuple[Callable[..., mg.Node], dict[str, Any]]] = [
    (mg.max_pool2d, {"window": 3, "stride": 2, "padding": 1}),
    (mg.max_pool2d, {"window": (2, 3), "stride": 1, "dilation": 2}),
    (mg.max_pool2d, {"window": 2}),
    (mg.max_pool2d, {"window": (13, 2)}),
    (mg.avg_pool2d, {"window": 2}),
    (mg.avg_pool2d, {"window": (1, 2)}),
    (mg.avg_pool2d, {"window": 3, "stride": 2, "padding": 1}),
]


@pytest.fixture
def library() -> None:
    from magmagraph.runtime.cuda.library import cudnn

    if not cudnn.available():
        pytest.skip(f"no cuDNN: {cudnn.why_unavailable()}")


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return float64 numbers that a dtype has."""
    return array.astype(canonical(dtype)).astype("f8")


def with_gradients(
    build: Callable[[Sequence[mg.Node]], mg.Node], arrays: Sequence[np.ndarray], dtype: str,
    device: str, deterministic: bool = False,
) -> tuple[Any, tuple[int, ...]]:  # fmt: skip
    """Return a function of operands and a cotangent that gives a result and gradients."""
    wide = "float64" if dtype == "float64" else "float32"
    nodes = [mg.var(f"x{i}", shape=a.shape, dtype=dtype) for i, a in enumerate(arrays)]
    made = build(nodes)
    above = mg.var("above", shape=made.shape, dtype=dtype)
    total = mg.sum(mg.cast(made, wide) * mg.cast(above, wide))
    outputs = [made, *mg.grad(total, nodes)]
    f = mg.function([*nodes, above], outputs, device=device, deterministic=deterministic)
    return f, made.shape


def compare(
    build: Callable[[Sequence[mg.Node]], mg.Node], arrays: Sequence[np.ndarray], dtype: str,
    rng: np.random.Generator, interpreted: bool = False, deterministic: bool = True,
) -> None:  # fmt: skip
    """Compare a card's result and gradients with float64 on the CPU, call by call."""
    arrays = [rounded(a, dtype) for a in arrays]
    exact, shape = with_gradients(build, arrays, "float64", "cpu")
    f, _ = with_gradients(build, arrays, dtype, "cuda", deterministic)
    above = rounded(rng.standard_normal(shape), dtype)
    right = exact(*arrays, above)
    given = [a.astype(canonical(dtype)) for a in (*arrays, above)]
    calls = [[part.get() for part in f(*given)] for _ in range(3)]
    for again in calls[1:] if deterministic else ():  # run step by step, captured, replayed
        assert [a.tobytes() for a in again] == [a.tobytes() for a in calls[0]]
    numerics = "half" if canonical(dtype).itemsize == 2 else "reassoc"
    for found, wanted in zip(calls[0], right, strict=True):
        scale = np.sqrt(wanted.size) * magnitude(wanted)
        assert tolerance(found.dtype, numerics).close(
            np.asarray(found, "f8"), wanted, magnitude(wanted) if numerics == "half" else scale
        )
    kinds = {type(part).__name__ for part in (*f._last._before, *f._last._after)}
    assert ("Interpreted" in kinds) == interpreted


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("case", range(len(CONVOLUTIONS)))
def test_convolutions_and_their_gradients(
    case: int, last: bool, dtype: str, rng: np.random.Generator
) -> None:
    shape, window, options = CONVOLUTIONS[case]
    x, w = rng.standard_normal(shape), rng.standard_normal(window) / np.sqrt(np.prod(window[1:]))
    count = x.ndim - 2
    if last:
        x, w = np.moveaxis(x, 1, -1), w.transpose(*range(2, w.ndim), 1, 0)
    layout = LAYOUTS[count][last]
    compare(lambda n: mg.conv(*n, layout=layout, **options), [x, w], dtype, rng)


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("window", [(1, 2, 2), (3, 3), (2, 1)])
def test_padding_that_differs_in_front_and_behind(
    window: tuple[int, ...], last: bool, rng: np.random.Generator
) -> None:
    """Some engines of the library leave out what is padded behind alone."""
    count = len(window)
    x, w = rng.standard_normal((2, 1, *(4, 8, 3)[-count:])), rng.standard_normal((3, 1, *window))
    if last:
        x, w = np.moveaxis(x, 1, -1), w.transpose(*range(2, w.ndim), 1, 0)
    options = {
        "stride": (2, 2, 1)[-count:], "dilation": 2 if count == 3 else 1,
        "padding": ((0, 0), (0, 1), (1, 1))[-count:], "layout": LAYOUTS[count][last],
    }  # fmt: skip
    rows, shape = [], None
    for device in ("cpu", "cuda"):
        dtype = "float64" if device == "cpu" else "float32"
        f, shape = with_gradients(lambda n: mg.conv(*n, **options), [x, w], dtype, device)
        above = np.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape)
        rows.append([np.asarray(p if device == "cpu" else p.get()) for p in f(x, w, above)])
    for wanted, found in zip(*rows, strict=True):
        assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("case", range(len(FEW_CHANNELS)))
def test_generated_gradients_of_weights(
    case: int, last: bool, dtype: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magmagraph.runtime.cuda.kernels import few_channels

    monkeypatch.setattr(few_channels, "is_faster", lambda *_: True)
    launched = []
    launch = few_channels.launched
    monkeypatch.setattr(few_channels, "launched", lambda *a: launched.append(a) or launch(*a))
    shape, window, options = FEW_CHANNELS[case]
    x, w = rng.standard_normal(shape), rng.standard_normal(window)
    if last:
        x, w = np.moveaxis(x, 1, -1), w.transpose(2, 3, 1, 0)
    layout = LAYOUTS[2][last]
    compare(lambda n: mg.conv(*n, layout=layout, **options), [x, w], dtype, rng)
    assert launched


@pytest.mark.usefixtures("library")
def test_steps_that_need_much_workspace_share_one_block(rng: np.random.Generator) -> None:
    from magmagraph.runtime.cuda.device import SCRATCH
    from magmagraph.runtime.cuda.library import cudnn

    x, w = rng.standard_normal((256, 32, 14, 14)), rng.standard_normal((64, 32, 5, 5))
    f, shape = with_gradients(lambda n: mg.conv(*n, padding=2), [x, w], "float32", "cuda")
    given = [a.astype("f4") for a in (x, w, rng.standard_normal(shape))]
    first = [part.get() for part in f(*given)]
    start, end = f._last.memory.workspace
    graphs = [g for g in cudnn._graphs.values() if isinstance(g, cudnn.LibraryGraph)]
    large = [g for g in graphs if g.workspace > SCRATCH and g.key.image[0] == x.shape]
    assert large and end - start >= max(g.workspace for g in large)
    # Where there is no such block, plans that need less are chosen, of which each has its scratch.
    f, _ = with_gradients(lambda n: mg.conv(*n, padding=2), [x, w], "float32", "cuda")
    refused = []
    with pytest.MonkeyPatch.context() as patch:
        from magmagraph.errors import DeviceError
        from magmagraph.runtime.cuda.memory import PlanMemory

        share = PlanMemory.share_workspace

        def refuse(memory: PlanMemory, count: int) -> None:
            if not refused:
                refused.append(count)
                raise DeviceError("no room")
            share(memory, count)

        patch.setattr(PlanMemory, "share_workspace", refuse)
        second = [part.get() for part in f(*given)]
    assert refused and f._last.memory.workspace[1] - f._last.memory.workspace[0] < refused[0]
    for a, b in zip(first, second, strict=True):
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(a)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("case", range(len(POOLS)))
def test_pooling_and_its_gradients(
    case: int, last: bool, dtype: str, rng: np.random.Generator
) -> None:
    pool, options = POOLS[case]
    x = rng.standard_normal((2, 16, 13, 14))
    x[0, :, 3, 3] = x[0, :, 3, 4]  # elements that tie
    x = np.moveaxis(x, 1, -1) if last else x
    layout = LAYOUTS[2][last]
    compare(lambda n: pool(n[0], layout=layout, **options), [x], dtype, rng)


def test_the_first_nan_of_a_window_is_found() -> None:
    x = np.array([[[1.0, np.nan, 3.0, 2.0, np.nan, np.nan, -np.inf, -np.inf]]], "f4")
    node = mg.var("x", shape=x.shape)
    made = mg.max_pool1d(node, 2)
    f = mg.function([node], [made, mg.grad(mg.sum(made), node)], device="cuda")
    largest, gradient = (part.get() for part in f(x))
    np.testing.assert_array_equal(largest, [[[np.nan, 3.0, np.nan, -np.inf]]])
    np.testing.assert_array_equal(gradient, [[[0, 1, 1, 0, 1, 0, 1, 0]]])


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shared", [1, 4])
@pytest.mark.parametrize("deterministic", [True, False])
def test_attention_and_its_gradients(
    deterministic: bool, shared: int, causal: bool, dtype: str, rng: np.random.Generator
) -> None:
    q, k, v = (
        rng.standard_normal((2, heads, length, 64)) / 2
        for heads, length in ((8, 256), (8 // shared, 384), (8 // shared, 384))
    )
    compare(
        lambda n: mg.scaled_dot_product_attention(*n, causal=causal, algorithm="rows"),
        [q, k, v], dtype, rng, deterministic=deterministic,
    )  # fmt: skip


@pytest.mark.parametrize("algorithm", ["direct", "im2col", "winograd-2x2", "winograd-4x4", "fft"])
def test_algorithms_of_our_own_run_by_name(algorithm: str, rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 4, 12, 12)), rng.standard_normal((8, 4, 3, 3)) / 6
    compare(
        lambda n: mg.conv2d(*n, padding=1, algorithm=algorithm), [x, w], "float64", rng,
        interpreted=True,
    )  # fmt: skip


def test_everything_runs_without_the_library(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magmagraph.ir import fallback
    from magmagraph.runtime.cuda.library import cudnn

    monkeypatch.setattr(cudnn, "why_unavailable", lambda: "it is taken away")
    monkeypatch.setattr(fallback, "_warned", set())
    x, w = rng.standard_normal((2, 4, 12, 12)), rng.standard_normal((8, 4, 3, 3)) / 6
    with pytest.warns(mg.FallbackWarning, match="cuDNN cannot be used: it is taken away"):
        compare(lambda n: mg.conv2d(*n, padding=1), [x, w], "float32", rng, interpreted=True)


@pytest.mark.usefixtures("library")
def test_a_training_step_with_batch_norm_is_one_graph(rng: np.random.Generator) -> None:
    """A step of a small network in bfloat16 follows one in float64."""
    images = rng.standard_normal((64, 8, 8, 16)).astype("f4")

    def trained(device: str, half: str | None, steps: int = 3) -> tuple[Any, list[np.ndarray]]:
        draw = np.random.default_rng(5)
        v = mg.var("v", init=(draw.standard_normal((3, 3, 16, 32)) / 12).astype("f4"))
        w = mg.var("w", init=(draw.standard_normal((1, 1, 32, 32)) / 6).astype("f4"))
        scale = mg.var("scale", init=np.ones(32, "f4"))
        x = mg.var("x", shape=images.shape)
        parameters = [v, w, scale]
        left, right = (mg.cast(p, half) if half else p for p in (v, w))
        y = mg.conv2d(mg.cast(x, half) if half else x, left, padding=1, layout="NHWC")
        y = mg.relu(mg.batch_norm(y, scale, axis=-1))
        y = y + mg.conv2d(y, right, layout="NHWC")
        total = mg.global_avg_pool(mg.cast(y, "float32"), layout="NHWC")
        step = mg.optimizer.SGD(0.05).step(
            mg.mean(total * total), parameters, inputs=[x], outputs=[total], device=device
        )
        for _ in range(steps):
            step(images)
        return step, [np.array(p.value, "f8") for p in parameters]

    _, right = trained("cpu", None)
    step, found = trained("cuda", "bfloat16")
    parts = [*step._last._before, *step._last._after]
    assert [type(part).__name__ for part in parts] == ["Segment"]
    for a, b in zip(found, right, strict=True):
        assert_agrees(a.astype(canonical("bfloat16")), b, "half", magnitude(b))
