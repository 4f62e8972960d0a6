"""Claim: a Hessian-vector product of a logistic regression takes at most the best peer's time.

The loss of n points of d features with a quadratic penalty; H v without H. float32.
"""

from __future__ import annotations

from typing import Any

import near
import numpy as np
import peers


def start(case: peers.Case) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return points, signs, weights and the vector."""
    rng = np.random.default_rng(0)
    n, d = case["points"], case["features"]
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = np.sign(rng.standard_normal(n, dtype=np.float32))
    w, v = (rng.standard_normal(d, dtype=np.float32) / np.float32(np.sqrt(d)) for _ in range(2))
    return X, y, w, v


def magmagraph(case: peers.Case) -> peers.Work:
    """`mg.hvp`, compiled once."""
    import magmagraph as mg

    X, y, w, v = start(case)
    inputs = [mg.var(f"x{i}", shape=a.shape, dtype=a.dtype) for i, a in enumerate((X, y, w, v))]
    points, signs, weights, vector = inputs
    loss = mg.mean(mg.softplus(-signs * (points @ weights))) + 0.005 * mg.sum(weights * weights)
    function = mg.function(inputs, mg.hvp(loss, weights, vector))
    return peers.Work(lambda: function(X, y, w, v), lambda: {"hv": function(X, y, w, v)})


def jax(case: peers.Case) -> peers.Work:
    """Forward over reverse: a jvp of the gradient."""
    import jax
    import jax.numpy as jnp

    arrays = [jnp.asarray(a) for a in start(case)]

    @jax.jit
    def product(X: Any, y: Any, w: Any, v: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean(jax.nn.softplus(-y * (X @ w))) + 0.005 * jnp.sum(w * w)

        return jax.jvp(jax.grad(loss), (w,), (v,))[1]

    def call() -> Any:
        return jax.block_until_ready(product(*arrays))

    return peers.Work(call, lambda: {"hv": np.asarray(call())})


def torch(case: peers.Case) -> peers.Work:
    """Reverse over reverse, as `torch.autograd.functional.hvp` does it."""
    import torch
    from torch.nn import functional

    X, y, w, v = (torch.from_numpy(a) for a in start(case))

    def loss(w: Any) -> Any:
        return functional.softplus(-y * (X @ w)).mean() + 0.005 * (w * w).sum()

    def call() -> Any:
        return torch.autograd.functional.hvp(loss, w, v)[1]

    return peers.Work(call, lambda: {"hv": call().numpy()})


def pytensor(case: peers.Case) -> peers.Work:
    """`pushforward` of the gradient."""
    import pytensor
    import pytensor.tensor as pt

    arrays = start(case)
    pytensor.config.floatX = "float32"
    points, (signs, weights, vector) = pt.fmatrix("X"), pt.fvectors("y", "w", "v")
    half = np.float32(0.005)
    loss = pt.mean(pt.softplus(-signs * (points @ weights))) + half * pt.sum(weights * weights)
    gradient = pt.grad(loss, weights)
    made = pt.grad(pt.sum(gradient * vector), weights)
    function = pytensor.function([points, signs, weights, vector], made)
    return peers.Work(lambda: function(*arrays), lambda: {"hv": function(*arrays)})


def numpy(case: peers.Case) -> peers.Work:
    """The formula by hand."""
    X, y, w, v = start(case)

    def call() -> Any:
        share = 1.0 / (1.0 + np.exp(y * (X @ w)))
        return X.T @ (share * (1.0 - share) * (X @ v)) / np.float32(len(y)) + np.float32(0.01) * v

    return peers.Work(call, lambda: {"hv": call()})


BENCHMARK = peers.Benchmark(
    name="cpu_hvp",
    claim="Hessian-vector product of a logistic regression.",
    cases=[
        {"name": f"{points} x {features}", "points": points, "features": features}
        for points, features in ((1000, 100), (20_000, 500), (100_000, 50))
    ],
    contenders={
        "magmagraph": magmagraph,
        "jax": jax,
        "torch": torch,
        "pytensor": pytensor,
        "numpy": numpy,
    },
    tolerance=1e-4,
    near=near.no_slower,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
