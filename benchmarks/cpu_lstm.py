"""Claim: loss and gradients of an LSTM take at most the best peer's time, and compile at once.

A layer over all positions of a sequence: its outputs' mean square, and the gradients of the three
weights. float32. `unrolled` is magmagraph without `scan`: a node for each operation of each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import peers


def start(case: peers.Case) -> tuple[np.ndarray, ...]:
    """Return the sequences (time, batch, features), and kernel, recurrent kernel and bias."""
    rng = np.random.default_rng(0)
    features, units = case["features"], case["units"]
    x = rng.standard_normal((case["time"], case["batch"], features), dtype=np.float32)
    kernel = rng.standard_normal((features, 4 * units), dtype=np.float32)
    recurrent = rng.standard_normal((units, 4 * units), dtype=np.float32)
    kernel /= np.float32(np.sqrt(features))
    recurrent /= np.float32(np.sqrt(units))
    return x, kernel, recurrent, np.zeros(4 * units, np.float32)


def _magmagraph(case: peers.Case, unrolled: bool) -> peers.Work:
    import magmagraph as mg

    x, *arrays = start(case)
    weights = [mg.var(f"w{i}", init=array) for i, array in enumerate(arrays)]
    kernel, recurrent, bias = weights
    sequence = mg.input("x", x.shape)

    def cell(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = mg.split(row @ kernel + h @ recurrent + bias, 4, axis=-1)
        c = mg.sigmoid(f) * c + mg.sigmoid(i) * mg.tanh(g)
        h = mg.sigmoid(o) * mg.tanh(c)
        return (h, c), h

    zeros = mg.zeros((case["batch"], case["units"]))
    if unrolled:
        state, rows = (zeros, zeros), []
        for t in range(case["time"]):
            state, row = cell(state, sequence[t])
            rows.append(row)
        outputs = mg.stack(rows)
    else:
        _, outputs = mg.scan(cell, (zeros, zeros), sequence)
    loss = mg.mean(outputs * outputs)
    function = mg.function([sequence], [loss, *mg.grad(loss, weights)])
    names = ("loss", "kernel", "recurrent", "bias")
    return peers.Work(
        lambda: function(x), lambda: dict(zip(names, function(x), strict=True))
    )


def magmagraph(case: peers.Case) -> peers.Work:
    """`mg.scan`: the cell is compiled once."""
    return _magmagraph(case, unrolled=False)


def unrolled(case: peers.Case) -> peers.Work:
    """The same steps, written out."""
    return _magmagraph(case, unrolled=True)


def jax(case: peers.Case) -> peers.Work:
    """`jax.lax.scan`, compiled."""
    import jax
    import jax.numpy as jnp

    x, *weights = (jnp.asarray(array) for array in start(case))

    def loss(weights: Any, x: Any) -> Any:
        kernel, recurrent, bias = weights

        def cell(state: Any, row: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(row @ kernel + h @ recurrent + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((case["batch"], case["units"]), jnp.float32)
        outputs = jax.lax.scan(cell, (zeros, zeros), x)[1]
        return jnp.mean(outputs * outputs)

    both = jax.jit(jax.value_and_grad(loss))

    def call() -> Any:
        return jax.block_until_ready(both(weights, x))

    def results() -> dict[str, np.ndarray]:
        value, slopes = call()
        names = ("kernel", "recurrent", "bias")
        return {"loss": np.asarray(value), **dict(zip(names, map(np.asarray, slopes), strict=True))}

    return peers.Work(call, results)


def torch(case: peers.Case) -> peers.Work:
    """`torch.nn.LSTM`, the library's own layer; its second bias is zero and stays."""
    import torch

    x, kernel, recurrent, bias = (torch.from_numpy(array) for array in start(case))
    layer = torch.nn.LSTM(case["features"], case["units"])
    with torch.no_grad():
        layer.weight_ih_l0.copy_(kernel.T)
        layer.weight_hh_l0.copy_(recurrent.T)
        layer.bias_ih_l0.copy_(bias)
        layer.bias_hh_l0.zero_()
    layer.bias_hh_l0.requires_grad_(False)

    def call() -> Any:
        layer.zero_grad(set_to_none=True)
        outputs, _ = layer(x)
        loss = (outputs * outputs).mean()
        loss.backward()
        return loss

    def results() -> dict[str, np.ndarray]:
        loss = call()
        slopes = (layer.weight_ih_l0.grad.T, layer.weight_hh_l0.grad.T, layer.bias_ih_l0.grad)
        names = ("kernel", "recurrent", "bias")
        found = {name: slope.numpy() for name, slope in zip(names, slopes, strict=True)}
        return {"loss": loss.detach().numpy(), **found}

    return peers.Work(call, results)


BENCHMARK = peers.Benchmark(
    name="cpu_lstm",
    claim="Loss and gradients of an LSTM over a sequence.",
    cases=[
        {
            "name": f"{time} steps, batch {batch}, {features} -> {units}",
            "time": time,
            "batch": batch,
            "features": features,
            "units": units,
        }
        for time, batch, features, units in (
            (100, 32, 64, 128),
            (100, 1, 8, 8),
            (50, 64, 128, 256),
        )
    ],
    contenders={"magmagraph": magmagraph, "jax": jax, "torch": torch, "unrolled": unrolled},
    floors=frozenset(("unrolled",)),
    tolerance=1e-3,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
