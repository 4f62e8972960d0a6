"""The pass `row_blocks`: losses of many classes without their logits, values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.ir.graph import Node
from magmagraph.passes import row_blocks

H200 = mg.Target.made_up("h200")


@pytest.fixture(autouse=True)
def small_products_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "LARGEST", 1 << 16)
    monkeypatch.setattr(row_blocks, "LEAST_ROWS", 1)


def compared(
    inputs: list[Node], outputs: list[Node], data: list[np.ndarray], **options: Any
) -> tuple[Any, Any]:
    """Return the function with and without the pass, after a comparison of what they compute."""
    both = tuple(
        mg.function(inputs, outputs, skip=skip, **options) for skip in ((), ("row_blocks",))
    )
    for ours, theirs in zip(both[0](*data), both[1](*data), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)
    return both


@pytest.mark.parametrize(
    "options",
    [{}, {"reduction": "sum"}, {"ignore_index": 3}, {"label_smoothing": 0.1}],
    ids=lambda options: next(iter(options), "mean"),
)
@pytest.mark.parametrize("shape", [(333,), (9, 37)], ids=str)
def test_cross_entropy_and_its_gradients(
    shape: tuple[int, ...], options: dict[str, Any], rng: np.random.Generator
) -> None:
    classes, width = 197, 5
    x, w, b = (
        mg.input(name, s, "float64")
        for name, s in (("x", (*shape, width)), ("w", (width, classes)), ("b", (classes,)))
    )
    labels = mg.input("labels", shape, "int32")
    loss = mg.cross_entropy(x @ w + b, labels, **options)
    outputs = [loss, *mg.grad(loss, [x, w, b])]
    data = [rng.normal(size=n.shape) for n in (x, w, b)] + [rng.integers(0, classes, shape)]
    data[-1] = data[-1].astype(np.int32)
    ours, theirs = compared([x, w, b, labels], outputs, data)
    assert ours.report["row_blocks"].hits == {row_blocks.RULE: 1}, ours.report["row_blocks"]
    if "ignore_index" not in options:  # its loss and its gradient share a kernel for two sums
        assert ours.memory.total < 0.7 * theirs.memory.total


def test_tied_weights_and_an_update(rng: np.random.Generator) -> None:
    """The matrix of the logits is the table of the embeddings, and is renewed in place."""
    start = rng.normal(size=(101, 4))
    found = []
    for skip in ((), ("row_blocks",)):
        table = mg.var("table", init=start)
        ids = mg.input("ids", (99,), "int32")
        loss = mg.cross_entropy(mg.take(table, ids, 0) @ mg.swapaxes(table, 0, 1), ids)
        step = mg.optimizer.SGD(0.5).step(loss, [table], inputs=[ids], outputs=[loss], skip=skip)
        values = [step(np.arange(99, dtype=np.int32)[::-1].copy()) for _ in range(3)]
        found.append((values, table.value, step))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12)
    assert found[0][2].report["row_blocks"].hits


def test_rows_that_wait_for_others_are_left_alone(rng: np.random.Generator) -> None:
    x, w = mg.input("x", (160, 3), "float64"), mg.input("w", (3, 64), "float64")
    y = mg.sin(x @ w)
    loss = mg.square(mg.sum(y))  # its gradient reads the sum of all
    ours, _ = compared(
        [x, w], [loss, mg.grad(loss, w)], [rng.normal(size=(160, 3)), rng.normal(size=(3, 64))]
    )
    assert not ours.report["row_blocks"].hits
    assert "all rows" in ours.report["row_blocks"].refusals[0].reason


def test_other_programs_than_losses(rng: np.random.Generator) -> None:
    """Distances of all pairs, and the nearest of each."""
    x, y = mg.input("x", (96, 4), "float64"), mg.input("y", (128, 4), "float64")
    squares = mg.sum(x * x, 1, keepdims=True) + mg.sum(y * y, 1) - 2.0 * (x @ mg.swapaxes(y, 0, 1))
    outputs = [mg.min(squares, 1), mg.sum(mg.exp(-squares), 0)]
    data = [rng.normal(size=(96, 4)), rng.normal(size=(128, 4))]
    ours, _ = compared([x, y], outputs, data)
    assert ours.report["row_blocks"].hits


def test_the_logits_of_a_plan_for_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "LARGEST", 128 << 20)
    x = mg.input("x", (8, 512, 64))
    labels = mg.input("labels", (8, 512), "int32")
    w = mg.var("w", shape=(64, 50257), init=mg.init.zeros())
    loss = mg.cross_entropy(x @ w, labels)
    adam = mg.optimizer.Adam(1e-3)
    sizes = []
    for skip in ((), ("row_blocks",)):
        step = adam.step(
            loss, [w], inputs=[x, labels], outputs=[loss, mg.grad(loss, x)], target=H200,
            precision="bfloat16", skip=skip,
        )  # fmt: skip
        step.specialize(x.shape, labels.shape)
        sizes.append(step.memory.categories()["activations"])
    logits = 4 * 8 * 512 * 50257
    assert sizes[1] - sizes[0] > logits
    assert sizes[0] < logits / 3


def test_rows_of_a_named_batch(rng: np.random.Generator) -> None:
    classes, width, length = 197, 5, 48
    x = mg.input("x", ("batch", length, width), "float64")
    w = mg.input("w", (width, classes), "float64")
    labels = mg.input("labels", ("batch", length), "int32")
    loss = mg.cross_entropy(x @ w, labels)
    outputs = [loss, *mg.grad(loss, [x, w])]

    def data(batch: int) -> list[np.ndarray]:
        rows = rng.normal(size=(batch, length, width))
        chosen = rng.integers(0, classes, (batch, length)).astype(np.int32)
        return [rows, rng.normal(size=(width, classes)), chosen]

    ours, theirs = compared([x, w, labels], outputs, data(7))
    assert ours.report["row_blocks"].hits == {row_blocks.RULE: 1}, ours.report["row_blocks"]
    for batch in (1, 3):  # the same blocks, of other sizes
        fed = data(batch)
        for one, other in zip(ours(*fed), theirs(*fed), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


def test_named_rows_are_cut_unevenly_where_they_must_be(rng: np.random.Generator) -> None:
    x, w = mg.input("x", ("rows", 5), "float64"), mg.input("w", (5, 197), "float64")
    labels = mg.input("labels", ("rows",), "int32")
    loss = mg.cross_entropy(x @ w, labels)
    outputs = [loss, *mg.grad(loss, [x, w])]

    def data(rows: int) -> list[np.ndarray]:
        chosen = rng.integers(0, 197, rows).astype(np.int32)
        return [rng.normal(size=(rows, 5)), rng.normal(size=(5, 197)), chosen]

    ours, theirs = compared([x, w, labels], outputs, data(331))
    assert ours.report["row_blocks"].hits == {row_blocks.RULE: 1}, ours.report["row_blocks"]
    assert ours.memory.total < 0.7 * theirs.memory.total
    for rows in (1, 2, 320):
        fed = data(rows)
        for one, other in zip(ours(*fed), theirs(*fed), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
