"""Programs as newcomers write them, which once gave a wrong answer in silence."""

from __future__ import annotations

import numpy as np

import magmagraph as mg


def test_accuracy_by_equality(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("batch", 4))
    y = mg.var("y", shape=("batch",), dtype="int32")
    logits = x @ mg.var("w", init=rng.standard_normal((4, 3)).astype("float32"))
    accuracy = mg.function([x, y], mg.mean(logits.argmax(1) == y))
    features = rng.standard_normal((50, 4)).astype("float32")
    predicted = mg.function([x], logits.argmax(1))(features)
    labels = np.where(np.arange(50) < 20, predicted, (predicted + 1) % 3).astype("int32")
    np.testing.assert_allclose(accuracy(features, labels), 0.4, rtol=1e-6)
