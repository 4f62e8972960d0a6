"""Claim: GPT-2 of 124M writes tokens on a CPU as fast as torch, and faster with weights in int8.

Random weights, the same for all. Greedy, from prompts of PROMPT tokens, as many new ones as are
asked for; torch's are those of transformers with a static cache, eager and compiled. Ways take
turns in each round, and the median of the rounds counts. Without torch or transformers ours run
alone.

    python benchmarks/gpt2_cpu.py [--tokens 16] [--rounds 3] [--batches 1 64] [--compile]

A step of one row reads every weight once: its bytes a second are put beside the machine's speed of
reading a large array.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np

PROMPT = 16


def published(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return random weights by the names of the published file."""
    width, found = 768, {}
    shapes = {"wte.weight": (50257, width), "wpe.weight": (1024, width)}
    for i in range(12):
        for name, shape in {
            "attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width),
            "mlp.c_fc": (width, 4 * width), "mlp.c_proj": (4 * width, width),
        }.items():  # fmt: skip
            shapes[f"h.{i}.{name}.weight"] = shape
            found[f"h.{i}.{name}.bias"] = np.zeros(shape[1], np.float32)
    for name in ("ln_f", *(f"h.{i}.ln_{j}" for i in range(12) for j in (1, 2))):
        found[f"{name}.weight"] = np.ones(width, np.float32)
        found[f"{name}.bias"] = np.zeros(width, np.float32)
    for name, shape in shapes.items():
        found[name] = 0.02 * rng.standard_normal(shape, dtype=np.float32)
    return found


def ours(weights: dict[str, np.ndarray], precision: str) -> Callable[[np.ndarray, int], Any]:
    """Return a function of prompts and a number of tokens, which returns all tokens."""
    import magmagraph as mg

    net = mg.NeuralNetwork(
        mg.nn.prebuilt.gpt2(), loss="cross_entropy", device="cpu", precision=precision
    )
    paths = net.members[-1].paths()
    for path, array in mg.nn.prebuilt.gpt2_weights(weights).items():
        paths[path].variable.value = array
    return lambda prompts, tokens: mg.generate(net, prompts, tokens)


def theirs(weights: dict[str, np.ndarray], compiled: bool) -> Callable[[np.ndarray, int], Any]:
    """Return the same of torch."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, StaticCache

    config = GPT2Config(attn_implementation="sdpa")
    model = GPT2LMHeadModel(config).eval()
    state = {f"transformer.{name}": torch.from_numpy(array) for name, array in weights.items()}
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state, strict=False)
    forward = torch.compile(model.forward, dynamic=False) if compiled else model.forward

    @torch.no_grad()
    def run(prompts: np.ndarray, tokens: int) -> np.ndarray:
        given = torch.from_numpy(prompts.astype(np.int64))
        cache = StaticCache(config=config, max_cache_len=64)
        found, place = [given], torch.arange(given.shape[1])
        step = given
        for i in range(tokens):
            call = model.forward if i == 0 else forward  # the prompt is not what is compiled
            logits = call(step, past_key_values=cache, cache_position=place, use_cache=True).logits
            step = logits[:, -1:].argmax(-1)
            found.append(step)
            place = place[-1:] + 1
        return torch.cat(found, 1).numpy()

    return run


def reading_speed() -> float:
    """Return the bytes a second at which a large array is added up, by all threads."""
    import magmagraph as mg

    x = mg.input("x", (1 << 26,))
    f = mg.function([x], mg.sum(x), device="cpu")
    held = np.ones(1 << 26, np.float32)
    f(held)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        f(held)
        seconds.append(time.perf_counter() - began)
    return held.nbytes / min(seconds)


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    weights = published(rng)
    ways: dict[str, Callable[[np.ndarray, int], Any]] = {
        "magmagraph": ours(weights, "float32"), "magmagraph, int8": ours(weights, "int8"),
    }  # fmt: skip
    try:
        ways["torch"] = theirs(weights, compiled=False)
        if arguments.compile:
            ways["torch.compile"] = theirs(weights, compiled=True)
    except ImportError as error:
        print(f"without torch: {error}")
    speed = reading_speed()
    results: dict[str, Any] = {"bytes a second, read": speed}
    for batch in arguments.batches:
        prompts = rng.integers(0, 50257, (batch, PROMPT)).astype(np.int32)
        written = {name: way(prompts, arguments.tokens) for name, way in ways.items()}
        first = written["magmagraph"]
        same = {n: float((np.asarray(w) == np.asarray(first)).mean()) for n, w in written.items()}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.rounds):
            for name, way in ways.items():
                taken = []
                for count in (1, arguments.tokens):  # the prompt's time is taken off
                    began = time.perf_counter()
                    way(prompts, count)
                    taken.append(time.perf_counter() - began)
                seconds[name].append((taken[1] - taken[0]) / (arguments.tokens - 1))
        row = {}
        for name, found in seconds.items():
            step = float(np.median(found))
            row[name] = {
                "tokens a second": batch / step, "seconds a step": step, "rounds": found,
                "share of equal tokens": same[name],
                "bytes of weights a second": (1 if "int8" in name else 4) * 124e6 / step,
            }  # fmt: skip
            print(f"batch {batch:3d}  {name:18s} {batch / step:9.2f} tokens/s, weights read at "
                  f"{row[name]['bytes of weights a second'] / speed:.2f} of the reading speed, "
                  f"{same[name]:.0%} equal")  # fmt: skip
        results[f"batch {batch}"] = row
    common.write("gpt2_cpu", results, tokens=arguments.tokens, prompt=PROMPT)


if __name__ == "__main__":
    common.clean_environment()
    main()
