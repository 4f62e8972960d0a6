"""Claim: five epochs of MNIST, feeding included, take at most 0.9 of the best peer's time.

784-(528 sigmoid) x L-10 and SGD as in cpu_mlp.py, over 60,000 images in shuffled batches of 100.
A call is five epochs: shuffling, cutting batches and bringing them to the library all count. Each
library is fed as its users feed it: `f.run(mg.batches(...))`; for JAX and torch an index per batch
into arrays that they hold. The images are noise of MNIST's size.
"""

from __future__ import annotations

import functools
from typing import Any

import cpu_mlp
import numpy as np
import peers

EPOCHS = 5


def images_of(case: peers.Case) -> tuple[np.ndarray, np.ndarray]:
    """Return noise of MNIST's size: what the numbers are changes no time."""
    rng = np.random.default_rng(1)
    count = case["images"]
    images = rng.random((count, 784), dtype=np.float32)
    return images, rng.integers(0, 10, count).astype(np.int32)


def magmagraph(case: peers.Case) -> peers.Work:
    """`f.run` over `mg.batches`."""
    import magmagraph as mg

    step, _ = cpu_mlp.our_step(cpu_mlp.start(case)[0])
    images, labels = images_of(case)
    batches = mg.batches(images, labels, size=case["batch"], shuffle=True, seed=0)

    def call() -> None:
        for _ in range(EPOCHS):
            step.run(batches, keep="last")

    return peers.Work(call, dict)


def jax(case: peers.Case) -> peers.Work:
    """A jitted step that takes its rows from the data set, indexed by a permutation."""
    import jax
    import jax.numpy as jnp

    images, labels = (jnp.asarray(a) for a in images_of(case))
    batch = case["batch"]

    @functools.partial(jax.jit, donate_argnums=0)
    def step(parameters: Any, images: Any, labels: Any, rows: Any) -> Any:
        return cpu_mlp.jax_step(parameters, images[rows], labels[rows])

    state = [jnp.array(value) for value in cpu_mlp.start(case)[0]]
    rng = np.random.default_rng(0)

    def call() -> None:
        nonlocal state
        loss = None
        for _ in range(EPOCHS):
            order = rng.permutation(len(labels))
            for begin in range(0, len(order), batch):
                state, loss = step(state, images, labels, order[begin : begin + batch])
        jax.block_until_ready((state, loss))

    return peers.Work(call, dict)


def _torch(case: peers.Case, *, compiled: bool) -> peers.Work:
    import torch

    step, _ = cpu_mlp.torch_step(cpu_mlp.start(case)[0], compiled=compiled)
    images, labels = images_of(case)
    x, y = torch.from_numpy(images), torch.from_numpy(labels).long()

    def call() -> None:
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(y)).split(case["batch"]):
                step(x[rows], y[rows])

    return peers.Work(call, dict)


BENCHMARK = peers.Benchmark(
    name="cpu_epochs",
    claim="Five epochs of MNIST with feeding.",
    cases=[
        {"name": f"L={layers}", "layers": layers, "batch": 100, "images": 60_000}
        for layers in (1, 4)
    ],
    contenders={
        "magmagraph": magmagraph,
        "jax": jax,
        "torch": functools.partial(_torch, compiled=False),
        "torch.compile": functools.partial(_torch, compiled=True),
    },
    unit="s",
    rounds=3,
    seconds=0.0,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
