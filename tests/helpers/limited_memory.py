"""Call a step of products under limits of memory; it works, or raises and changes nothing.

Run by the tests in a process of its own: ``python limited_memory.py KIBIBYTES`` sets the limit to
so much more than the process has when the step is bound, and prints what came of the call.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

import magmagraph as mg


def main(more: int) -> None:
    rng = np.random.default_rng(0)
    x = mg.input("x", shape=(300, 400))
    weights = [
        mg.var(f"W{i}", init=rng.standard_normal(shape).astype(np.float32) * 0.01)
        for i, shape in enumerate(((400, 350), (350, 300)))
    ]
    loss = mg.mean(mg.square(mg.tanh(x @ weights[0]) @ weights[1]))
    step = mg.optimizer.SGD(0.1).step(loss, weights, inputs=[x])
    step.specialize((300, 400))
    feed = np.ones((300, 400), np.float32)
    before = [weight.value for weight in weights]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more * 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        step(feed)
        ended = "right"
    except MemoryError:
        ended = "refused"
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    changed = [bool((a != b.value).any()) for a, b in zip(before, weights, strict=True)]
    assert changed == [ended == "right"] * 2, changed
    print(ended)


if __name__ == "__main__":
    main(int(sys.argv[1]))
