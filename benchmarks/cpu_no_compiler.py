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
    notes="A step of L = 1 without a compiler, both cores, us: products 513 of 650 (x @ W 258, new "
    "weights 218, the three small ones 37), the sigmoid 48, loss and softmax 60, the "
    "sigmoid's gradient 28; before 612 (with three passes over the weights), 419, 382 and "
    "219. A region is a list of ufuncs with their memory, products go to BLAS with scale and "
    "addend. In turn in one run, L = 1, 2, 4 with batch 100 and L = 2 with 1000: 1.07, 1.55, "
    "3.34, 10.3 ms, the code before 2.93, 5.66, 10.4, 17.2, compiled 0.83, 1.01, 2.05, 8.29. "
    "NumPy's loops run on one thread. Turns begin when the threads of the one before rest "
    "(resting.py): OpenBLAS's look for work for 0.1 s, and made the compiled step of L = 1 "
    "0.72 ms where it takes 0.45, so that ratios of earlier records were too small.",
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
