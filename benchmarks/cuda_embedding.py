"""Measure: one training step of an embedding on one GPU, beside torch's and array expressions.

8 sequences of 1,024 tokens out of 50,257, with 768 numbers each; the gradient of the whole table is
made. The tokens are distributed evenly, or half of them are one and the same. Before it is timed,
the table after a step is compared with NumPy's in float64. "expressions" are the same steps where
what reads and adds at positions runs as array expressions through CuPy, between captured graphs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import common
import numpy as np
import opening

ROWS, WIDTH, SHAPE = 50_257, 768, (8, 1024)
RATE, MOMENTUM = 0.5, 0.9
STEPS, REPEATS = 50, 7
MOST_ERROR = 1e-5  # of a number of the table, which has a standard deviation of 1


def tokens(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    made = rng.integers(0, ROWS, SHAPE).astype(np.int32)
    if kind == "half equal":
        made[:, ::2] = 7
    return made


def start() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((ROWS, WIDTH), np.float32)


def weights() -> np.ndarray:
    """Return what each number of the result counts in the loss."""
    return np.random.default_rng(5).standard_normal((*SHAPE, WIDTH), np.float32)


def wanted(kind: str) -> np.ndarray:
    """Return the table after a step, in float64."""
    table, ids = start().astype(np.float64), tokens(kind)
    gradient = np.zeros_like(table)
    np.add.at(gradient, ids.reshape(-1), (weights() * np.cos(table[ids])).reshape(-1, WIDTH))
    return table - RATE * gradient


def ours(kind: str) -> tuple[Callable[[], Any], Callable[[], np.ndarray]]:
    """Return what runs a step, and what returns the table."""
    import cupy

    import magmagraph as mg

    table, ids = mg.var("table", init=start()), mg.input("ids", SHAPE, "int32")
    above = mg.input("above", (*SHAPE, WIDTH))
    loss = mg.sum(mg.sin(mg.embedding(ids, table)) * above)
    step = mg.optimizer.SGD(RATE, momentum=MOMENTUM).step(
        loss, [table], [ids, above], [loss], device="cuda"
    )
    given = cupy.asarray(tokens(kind)), cupy.asarray(weights())
    return lambda: step(*given), lambda: table.value


def torchs(kind: str) -> tuple[Callable[[], Any], Callable[[], np.ndarray]]:
    import torch

    table = torch.tensor(start(), device="cuda", requires_grad=True)
    ids, above = torch.tensor(tokens(kind)).cuda().long(), torch.tensor(weights()).cuda()
    optimizer = torch.optim.SGD([table], lr=RATE, momentum=MOMENTUM, fused=True)

    def step() -> None:
        loss = (torch.nn.functional.embedding(ids, table).sin() * above).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step, lambda: table.detach().cpu().numpy()


def measured(make: Callable[[str], Any], kind: str) -> dict[str, float]:
    """Return milliseconds a step, and how far the first step is from float64."""
    import cupy

    step, value = make(kind)
    step()
    error = float(np.abs(value() - wanted(kind)).max())
    if not error <= MOST_ERROR * (1 + 1000 * (kind == "half equal")):
        raise SystemExit(f"{make.__name__}, {kind}: off by {error}")
    for _ in range(5):
        step()
    taken = []
    for _ in range(REPEATS):
        cupy.cuda.runtime.deviceSynchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        cupy.cuda.runtime.deviceSynchronize()
        taken.append((time.perf_counter() - began) / STEPS * 1e3)
    return {"median": statistics.median(taken), "least": min(taken), "largest": max(taken),
            "error": error}  # fmt: skip


def main() -> None:
    opening.words(__doc__, needs=("gpu", "torch"))
    import cuda_common

    from magmagraph.runtime.cuda.kernels import gathering, scattering

    results: dict[str, Any] = {}
    for kind in ("even", "half equal"):
        results[f"{kind}, ours"] = measured(ours, kind)
        with (
            mock.patch.object(gathering, "gathering", return_value=None),
            mock.patch.object(scattering, "scattering", return_value=None),
        ):
            results[f"{kind}, expressions"] = measured(ours, kind)
        results[f"{kind}, torch"] = measured(torchs, kind)
    lines = [(name, f"{r['median']:.3f}", f"{r['error']:.1e}") for name, r in results.items()]
    common.table(lines, ("step", "ms", "off by"))
    print(common.write("cuda_embedding", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
