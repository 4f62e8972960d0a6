"""Products whose rows are made longer, and attention whose heads lie behind its rows, on a card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg

pytestmark = pytest.mark.gpu
ROWS, WIDTH = 512, 320


def step(classes: int, precision: str, device: str) -> tuple[list[Any], Any]:
    """Return results of a layer, a loss over many classes and their gradients."""
    x, w = mg.input("x", (ROWS, WIDTH)), mg.input("w", (classes, WIDTH))
    b, t = mg.input("b", (classes,)), mg.input("t", (ROWS,), "int32")
    logits = x @ mg.transpose(w) + b
    loss = mg.cross_entropy(logits, t) + 0.01 * mg.mean(mg.tanh(logits) @ w)
    outputs = [loss, mg.argmax(logits, -1), *mg.grad(loss, [x, w, b])]
    f = mg.function([x, w, b, t], outputs, device=device, precision=precision)
    return [x, w, b, t], f


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.parametrize("classes", [257, 1001, 50257])
def test_a_loss_over_an_odd_number_of_classes(
    classes: int, precision: str, rng: np.random.Generator
) -> None:
    inputs, f = step(classes, precision, "cuda")
    _, exact = step(classes, "float32", "cpu")
    scale = WIDTH**-0.5
    feeds = [np.asarray(scale * rng.standard_normal(x.type.shape), "f4") for x in inputs[:3]]
    feeds[0] /= scale
    feeds.append(rng.integers(0, classes, ROWS).astype("i4"))
    for _ in range(2):
        results, wanted = f(*feeds), exact(*feeds)
        assert f.report["align_products"].hits["rows on 16 bytes"] >= 3
        bound = {"float16": 4e-3, "bfloat16": 3e-2}[precision]
        np.testing.assert_allclose(results[0].get(), wanted[0], rtol=bound)
        assert np.mean(results[1].get() == wanted[1]) > 0.9
        for found, right in zip(results[2:], wanted[2:], strict=True):
            np.testing.assert_allclose(found.get(), right, rtol=0, atol=bound * abs(right).max())


@pytest.mark.parametrize(
    ("batch", "length", "heads", "width", "causal"),
    [(2, 256, 3, 64, True), (2, 333, 4, 32, False), (3, 197, 2, 16, True)],
)
def test_attention_of_heads_behind_rows(
    batch: int, length: int, heads: int, width: int, causal: bool, rng: np.random.Generator
) -> None:
    size = heads * width
    x = mg.input("x", (batch, length, size))
    weights = [mg.input(name, (size, size)) for name in "qkvo"]

    def split(y: Any) -> Any:
        return mg.swapaxes(mg.reshape(y, (batch, length, heads, width)), 1, 2)

    q, k, v = (split(x @ w) for w in weights[:3])
    rows = mg.scaled_dot_product_attention(q, k, v, causal=causal, algorithm="rows")
    y = mg.reshape(mg.swapaxes(rows, 1, 2), (batch, length, size)) @ weights[3]
    loss = mg.sum(y * y)
    outputs = [loss, *mg.grad(loss, [x, *weights])]
    f = mg.function([x, *weights], outputs, device="cuda", precision="bfloat16")
    g = mg.function([x, *weights], outputs, device="cpu")
    feeds = [np.asarray(rng.standard_normal(x.type.shape), "f4")]
    feeds += [np.asarray(size**-0.5 * rng.standard_normal((size, size)), "f4") for _ in weights]
    results, wanted = f(*feeds), g(*feeds)
    assert f.report["layout"].hits["heads behind rows"] == 1
    for found, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(found.get(), right, rtol=0, atol=0.02 * np.abs(right).max())
