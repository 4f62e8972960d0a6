"""Measure: from which size on a reduction, or a training step, is faster on a GPU than on the CPU.

Feeds come from the host and results go back to it, as where nothing else is on the device.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
import opening

COUNTS = tuple(1 << k for k in (8, 12, 16, 20, 22, 24))
WIDTHS = (16, 128, 1024)
BATCH = 100


def reduction(device: str, count: int) -> float:
    """Return the seconds of a call that adds up an array."""
    import magmagraph as mg

    x = mg.var("x", shape=(count,))
    f = mg.function([x], mg.sum(x), device=device)
    values = np.random.default_rng(0).standard_normal(count).astype("f4")
    found = float(f(values))
    if abs(found - values.sum(dtype="f8")) > 1e-5 * count**0.5:
        raise SystemExit(f"{device}: the sum of {count} is {found}")
    return common.timed(lambda: float(f(values)))["median"]


def step(device: str, width: int) -> float:
    """Return the seconds of a step of a network with one hidden layer, its loss read each time."""
    import magmagraph as mg

    x = mg.var("x", shape=(BATCH, 64))
    labels = mg.var("labels", shape=(BATCH,), dtype="int32")
    w = mg.var("w", init=mg.init.glorot_uniform(seed=1), shape=(64, width))
    v = mg.var("v", init=mg.init.glorot_uniform(seed=2), shape=(width, 10))
    loss = mg.cross_entropy(mg.sigmoid(x @ w) @ v, labels)
    updates = mg.optimizer.SGD(0.05).updates(loss, [w, v])
    f = mg.function([x, labels], loss, updates=updates, device=device)
    rng = np.random.default_rng(0)
    feeds = rng.standard_normal((BATCH, 64)).astype("f4"), rng.integers(0, 10, BATCH).astype("i4")
    return common.timed(lambda: float(f(*feeds)))["median"]


def both(measure: Any, sizes: tuple[int, ...]) -> list[dict[str, float]]:
    return [
        {"size": size, "cpu": measure("cpu", size), "cuda": measure("cuda", size)}
        for size in sizes
    ]


def main() -> None:
    opening.words(__doc__, needs=("gpu",))
    import cuda_common

    made = {"sum of elements": both(reduction, COUNTS), "step of hidden units": both(step, WIDTHS)}
    for name, rows in made.items():
        common.table(
            [(r["size"], f"{r['cpu'] * 1e6:.1f}", f"{r['cuda'] * 1e6:.1f}") for r in rows],
            (name, "CPU us", "GPU us"),
        )
    print(common.write("cuda_small", made, device=cuda_common.device_facts()))


if __name__ == "__main__":
    common.clean_environment()
    main()
