"""Claim: without a C compiler a training step takes at most 3 times as long.

The seed network of `cpu_mlp.py`, its plan run by NumPy and BLAS, beside the same plan with compiled
kernels.
"""

from __future__ import annotations

import cpu_mlp
import peers

BENCHMARK = peers.Benchmark(
    name="cpu_no_compiler",
    claim="A step without a C compiler, beside one with it.",
    cases=[
        {"name": f"L={layers}, batch {batch}", "layers": layers, "batch": batch}
        for layers, batch in ((1, 100), (2, 100), (4, 100), (2, 1000))
    ],
    contenders={"no compiler": cpu_mlp.no_compiler, "compiled": cpu_mlp.magmagraph},
    seconds=0.1,
    notes="Steps of L = 1 without a compiler, one thread, ms: products 1.67 of 2.8 (the compiled "
    "step takes 0.9 in all, by tiles), the sigmoid's seven passes 0.45, the softmax's 35 calls on "
    "100 x 10 elements 0.43, the sigmoid's gradient 0.24. Products are computed in place, and what "
    "a region is bound to is kept: 3.8 before, 3.0 after. NumPy's loops run on one thread. "
    "On a host whose compiled step took 0.88 ms for L = 1 (0.64 some hours before) three runs came "
    "out at 2.6 to 4.7 for batch 100, the code of that morning at 2.9 to 4.0 in turn with it; some "
    "hours before 2.74 was the largest.",
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
