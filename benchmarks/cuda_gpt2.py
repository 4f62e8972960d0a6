"""Measure: a training step of GPT-2 (124M) in bfloat16 on a GPU, beside torch.compile, and checked.

    python benchmarks/cuda_gpt2.py [--batch 16] [--length 1024] [--profile]

Both begin with the same weights and take the same steps of AdamW. Losses of the first steps may
differ by `CLOSE` at most: both round to bfloat16, at other places. Ways take turns. torch's network
has one product for queries, keys and values, as GPT-2's own code has, and the accuracy, which
`NeuralNetwork` counts in its step, is left out there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import opening

RATE = 3e-4
CLOSE = 2e-3  # of a loss
CHECKED = 4  # steps
HEADS, WIDTH, BLOCKS, VOCABULARY = 12, 768, 12, 50257


def batch_of(batch: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random tokens, and those that follow them."""
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (batch, length)).astype(np.int32)
    return tokens, np.roll(tokens, -1, 1)


class Ours:
    """A step, compiled when it is called first."""

    def __init__(self, batch: int, length: int) -> None:
        import cupy

        import magmagraph as mg

        self.cupy = cupy
        began = time.perf_counter()
        self.net = mg.NeuralNetwork(
            mg.nn.prebuilt.gpt2(length=length), loss="cross_entropy", device="cuda",
            optimizer=mg.optimizer.AdamW(RATE), precision="bfloat16",
        )  # fmt: skip
        self.weights = {
            path: np.array(part.variable.value)
            for path, part in self.net.members[-1].paths().items()
        }
        self.feeds = [cupy.asarray(array) for array in batch_of(batch, length)]
        self.built = time.perf_counter() - began
        self.f: Any = None

    def step(self) -> Any:
        """Take a step and return its loss, on the device."""
        if self.f is None:
            self.f = self.net.training_step(self.net._usual_labels(len(self.feeds[0])))
        result = self.f(*self.feeds)
        return result[0] if isinstance(result, (list, tuple)) else result

    def wait(self) -> None:
        """Wait for the device."""
        self.cupy.cuda.runtime.deviceSynchronize()


class Torch:
    """The same of torch.compile, with autocast."""

    def __init__(self, weights: dict[str, np.ndarray], batch: int, length: int) -> None:
        import torch
        import torch.nn.functional as F

        self.torch, self.compiled = torch, False
        held = {}
        for path, array in weights.items():
            if "attention.query" in path:
                parts = [weights[path.replace("query", name)] for name in ("query", "key", "value")]
                held[path.replace("query", "all")] = np.concatenate(parts, -1)
            elif "attention.key" not in path and "attention.value" not in path:
                held[path] = array
        # Rows of a kernel are outputs there, as in `torch.nn.Linear`: faster than columns.
        p = {
            path: torch.tensor(
                np.ascontiguousarray(array.T) if path.endswith("kernel") else array, device="cuda"
            ).requires_grad_()
            for path, array in held.items()
        }
        self.optimizer = torch.optim.AdamW(p.values(), RATE, fused=True)

        def normalized(x: Any, name: str) -> Any:
            return F.layer_norm(x, (WIDTH,), p[f"{name}.scale"], p[f"{name}.offset"])

        def dense(x: Any, name: str) -> Any:
            return F.linear(x, p[f"{name}.kernel"], p[f"{name}.bias"])

        def loss(tokens: Any, labels: Any) -> Any:
            h = F.embedding(tokens, p["embedding.table"]) + p["positions.table"][:length]
            for i in range(BLOCKS):
                a = dense(normalized(h, f"blocks.{i}.attention_norm"), f"blocks.{i}.attention.all")
                q, k, v = (
                    part.view(batch, length, HEADS, -1).transpose(1, 2)
                    for part in a.split(WIDTH, -1)
                )
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                a = a.transpose(1, 2).reshape(batch, length, WIDTH)
                h = h + dense(a, f"blocks.{i}.attention.output")
                a = normalized(h, f"blocks.{i}.feed_forward_norm")
                a = F.gelu(dense(a, f"blocks.{i}.feed_forward.expand"), approximate="tanh")
                h = h + dense(a, f"blocks.{i}.feed_forward.output")
            logits = normalized(h, "norm") @ p["embedding.table"].T
            return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

        tokens, labels = batch_of(batch, length)
        self.feeds = [torch.tensor(x.astype(np.int64), device="cuda") for x in (tokens, labels)]
        self.loss = torch.compile(loss)

    def step(self) -> Any:
        """Take a step and return its loss, on the device."""
        with self.torch.autocast("cuda", self.torch.bfloat16):
            loss = self.loss(*self.feeds)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def wait(self) -> None:
        """Wait for the device."""
        self.torch.cuda.synchronize()


def milliseconds(way: Any, count: int = 10) -> float:
    """Return the time of a step."""
    way.wait()
    began = time.perf_counter()
    for _ in range(count):
        way.step()
    way.wait()
    return (time.perf_counter() - began) / count * 1e3


def first(step: Callable[[], Any]) -> tuple[float, float]:
    """Return a first step's seconds, and its loss."""
    began = time.perf_counter()
    loss = float(step())
    return time.perf_counter() - began, loss


def used() -> int:
    """Return the bytes of the device's memory that are taken."""
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)


def main() -> None:
    """Check losses, take times in turns, and write them down."""
    parser = opening.parser(__doc__, "gpu", "torch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    opening.require("gpu", "torch")
    from cuda_common import device_facts

    ours = Ours(arguments.batch, arguments.length)
    before = used()
    seconds, loss = first(ours.step)
    losses = {"magmagraph": [loss, *(float(ours.step()) for _ in range(CHECKED - 1))]}
    memory = {"magmagraph": used() - before}
    peer = Torch(ours.weights, arguments.batch, arguments.length)
    peer.torch.cuda.reset_peak_memory_stats()
    theirs, loss = first(peer.step)
    losses["torch"] = [loss, *(float(peer.step()) for _ in range(CHECKED - 1))]
    memory["torch"] = peer.torch.cuda.max_memory_allocated()
    for one, other in zip(losses["magmagraph"], losses["torch"], strict=True):
        if abs(one - other) > CLOSE * other:
            raise SystemExit(f"the steps are wrong: losses {losses}")
    taken: dict[str, list[float]] = {"magmagraph": [], "torch": []}
    for _ in range(arguments.rounds):
        taken["magmagraph"].append(milliseconds(ours))
        taken["torch"].append(milliseconds(peer))
    times = {name: statistics.median(all_times) for name, all_times in taken.items()}
    results = {
        "milliseconds": times, "rounds": taken, "losses": losses, "bytes": memory,
        "first_seconds": {"magmagraph": ours.built + seconds, "torch": theirs},
        "ratio": times["magmagraph"] / times["torch"], "steps": len(ours.f.plan.steps),
    }  # fmt: skip
    for name, value in results.items():
        print(f"{name:14s} {value}")
    if arguments.profile:
        print(ours.f.profile(*ours.feeds))
    common.write(
        "cuda_gpt2", results, batch=arguments.batch, length=arguments.length,
        torch=peer.torch.__version__, **device_facts(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
