"""The same training twice gives the same bits, and on another number of threads the same weights.

The counts of threads are those of this process: what a step shares out is decided when its
function is compiled, so that each training here compiles its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from reference_network import initial_parameters

import magmagraph as mg
from magmagraph.runtime.cpu.threads import set_threads

STEPS = 300
BATCH = 100


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    yield
    set_threads(None)


def trained(threads: int, sizes: Sequence[int], noise: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the weights after all steps, and the loss of every step."""
    set_threads(threads)
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(10, sizes[0]))
    labels = rng.integers(0, 10, (STEPS, BATCH)).astype(np.int32)
    images = (centres[labels] + rng.normal(size=(STEPS, BATCH, sizes[0]))).astype(np.float32)

    mg.random.seed(3)
    x = mg.var("x", shape=("batch", sizes[0]))
    target = mg.var("target", shape=("batch",), dtype="int32")
    weights = [mg.var(f"p{i}", init=p) for i, p in enumerate(initial_parameters(sizes, seed=2))]
    hidden = mg.dropout(x, 0.2) if noise else x
    for layer in range(0, len(weights), 2):
        hidden = hidden @ weights[layer] + weights[layer + 1]
        if layer < len(weights) - 2:
            hidden = mg.sigmoid(hidden)
    loss = mg.cross_entropy(hidden, target)
    optimizer = mg.optimizer.SGD(0.05, weight_decay=0.001)
    step = optimizer.step(loss, weights, inputs=[x, target], outputs=loss)
    losses = step.run(zip(images, labels, strict=True))
    return [weight.value for weight in weights], losses


@pytest.mark.parametrize(
    ("sizes", "noise"),
    [
        pytest.param((784, 528, 10), False, marks=pytest.mark.slow, id="seed network"),
        pytest.param((256, 96, 96, 10), True, id="dropout"),
    ],
)
def test_training_repeats(sizes: tuple[int, ...], noise: bool) -> None:
    runs = {count: [trained(count, sizes, noise) for _ in range(2)] for count in (1, 2)}
    for (first, losses), (second, again) in runs.values():
        assert losses.tobytes() == again.tobytes()
        for one, two in zip(first, second, strict=True):
            assert np.isfinite(one).all()
            assert one.tobytes() == two.tobytes()
    (alone, losses), (shared, others) = runs[1][0], runs[2][0]
    assert losses.shape == (STEPS,)
    assert losses[-20:].mean() < 0.5 * losses[:20].mean()
    # Sums are shared out differently: float32 rounding, carried on through all steps.
    np.testing.assert_allclose(losses, others, rtol=1e-5, atol=1e-6)
    for one, two in zip(alone, shared, strict=True):
        assert np.linalg.norm(one - two) < 1e-5 * np.linalg.norm(one)


COMPILED = """
import hashlib, sys
import numpy as np
import magmagraph as mg
padding = [object() for _ in range(int(sys.argv[1]))]  # other addresses, so other orders of sets
x = mg.var("x", shape=("batch", 20))
labels = mg.var("labels", shape=("batch",), dtype="int32")
value, parameters = x, []
for i, width in enumerate((16, 16, 10)):
    w = mg.var(f"w{i}", shape=(value.shape[1], width), init=mg.init.glorot_uniform(seed=i))
    b = mg.var(f"b{i}", shape=(width,), init=mg.init.zeros())
    parameters += [w, b]
    value = mg.layer_norm(mg.sigmoid(value @ w + b))
loss = mg.cross_entropy(value, labels)
step = mg.optimizer.Adam(0.1).step(loss, parameters, inputs=[x, labels], outputs=[loss])
step.compile({"batch": 30})
lines = [str(step.plan), str(step.report["fuse"].refusals)]
lines += [step.source(i) for i, s in enumerate(step.plan.steps) if s.kernel == "fused"]
print(hashlib.sha256("\\n".join(lines).encode()).hexdigest())
"""


def test_every_process_makes_the_same_plan_and_the_same_c() -> None:
    """Else a warm cache would not be found."""
    seen = set()
    for padding in (0, 1, 77, 1234, 50_001):
        result = subprocess.run(
            [sys.executable, "-c", COMPILED, str(padding)],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(padding)},
        )
        seen.add(result.stdout.strip())
    assert len(seen) == 1
