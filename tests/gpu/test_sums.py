"""Sums over one axis of a matrix on a CUDA device: as a kernel, as a product, as measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg

pytestmark = pytest.mark.gpu

KERNELS = {"always": "gemv", "never": "fused"}


def summed(axis: int, shape: tuple[int, int], dtype: str, way: str) -> tuple[Any, Any]:
    x = mg.var("x", shape=shape, dtype=dtype)
    node = mg.sum(x, axis=axis)
    options = {"reduce_to_gemv": way}
    return mg.function([x], node, device="cuda", options=options), node


@pytest.mark.parametrize("way", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(100, 528), (3, 20001), (70000, 5)])
def test_either_way_can_be_forced(
    shape: tuple[int, int], axis: int, dtype: str, way: str, rng: np.random.Generator
) -> None:
    f, node = summed(axis, shape, dtype, way)
    given = rng.standard_normal(shape).astype(dtype)
    wanted = given.sum(axis, dtype="f8")
    for _ in range(3):
        assert_agrees(f(given).get(), wanted.astype(dtype), "reassoc", shape[axis] ** 0.5)
    assert {step.kernel.partition("_")[0] for step in f.plan.steps} == {KERNELS[way]}
    if way == "never":
        assert "reduce_to_gemv='never' was asked for" in str(f.explain(node))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_faster_is_measured_and_kept(
    axis: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: np.random.Generator
) -> None:
    from magmagraph.runtime.cache import default_choices

    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(mg.config, "tuning", True)
    f, node = summed(axis, (4096, 512), "float32", "measured")
    given = rng.standard_normal((4096, 512)).astype("f4")
    assert_agrees(f(given).get(), given.sum(axis, dtype="f8").astype("f4"), "reassoc", 64)
    key = f"reduce_to_gemv/float32/axis{axis}/13x10"
    kept = {k: v for k, v in default_choices().items().items() if k.endswith(key)}
    assert len(kept) == 1
    ((name, winner),) = kept.items()
    assert name != key  # it belongs to this kind of device
    kernels = {step.kernel.partition("_")[0] for step in f.plan.steps}
    assert kernels == {{"gemv": "gemv", "sum": "fused"}[winner]}
    assert f"{key}: {winner}" in f.report["reduce_to_gemv"].notes
    if winner == "sum":
        assert "a product with ones was not faster when measured" in str(f.explain(node))


@pytest.mark.parametrize(
    "shape", [(33, 4), (129, 1024), (300, 528), (513, 96), (70_001, 64), (66_000, 48), (70_000, 36)]
)
def test_short_rows_and_rows_that_are_left_over(
    shape: tuple[int, int], rng: np.random.Generator
) -> None:
    x = mg.var("x", shape=shape)
    outputs = [mg.sum(x, axis=0), mg.sum(x, axis=1), mg.softmax(x), mg.layer_norm(x)]
    functions = [
        mg.function([x], output, device="cuda", options={"reduce_to_gemv": "never"})
        for output in outputs
    ]
    given = rng.standard_normal(shape).astype("f4")
    exact = given.astype("f8")
    part = np.exp(exact - exact.max(1, keepdims=True))
    centred = exact - exact.mean(1, keepdims=True)
    right = [
        exact.sum(0), exact.sum(1), part / part.sum(1, keepdims=True),
        centred / np.sqrt(exact.var(1, keepdims=True) + 1e-5),
    ]  # fmt: skip
    for f, wanted, terms in zip(functions, right, (*shape, shape[1], shape[1]), strict=True):
        for _ in range(3):  # step by step, captured, replayed
            assert_agrees(f(given).get(), wanted.astype("f4"), "reassoc", terms**0.5)
