"""Measure: copies of a tensor from each kind of memory to each other, by size.

    python benchmarks/cuda_copies.py

Kinds are those of `mg.Tensor`: of the host, of the device, managed (a mirror on each side), and the
driver's managed memory. A managed tensor was read on the device before, so that its values lie
there; the copy is complete when a result on its side could be read.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import common
import numpy as np
import opening

KINDS = ("host", "device", "managed", "cuda_managed")
SIZES = (4 * 2**10, 2**20, 64 * 2**20, 512 * 2**20)
REPEATS = 9


def read(tensor: Any, kind: str) -> None:
    """Bring the values to where a kind of memory is read."""
    if kind == "host":
        tensor.numpy()
    else:
        tensor.cupy()


def main() -> None:
    opening.words(__doc__, needs=("gpu",))
    import cuda_common
    import cupy

    import magmagraph as mg

    results, lines = [], []
    for size in SIZES:
        values = np.random.default_rng(0).random(size // 4, dtype=np.float32)
        for source in KINDS:
            for target in KINDS:
                here = mg.Tensor(values.shape, init=values, memory=source)
                there = mg.Tensor(values.shape, memory=target)
                taken = []
                for _ in range(REPEATS):
                    read(here, source)
                    cupy.cuda.runtime.deviceSynchronize()
                    began = time.perf_counter()
                    there.copy_from(here)
                    read(there, target)
                    cupy.cuda.runtime.deviceSynchronize()
                    taken.append(time.perf_counter() - began)
                if not np.array_equal(there.numpy(), values):
                    raise SystemExit(f"the copy from {source} to {target} differs")
                median = statistics.median(taken)
                results.append(
                    {"bytes": size, "from": source, "to": target, "seconds": median,
                     "least": min(taken), "largest": max(taken)}
                )  # fmt: skip
                lines.append(
                    (f"{size / 2**20:g} MiB", source, target, f"{median * 1e3:.3f}",
                     f"{size / median / 1e9:.2f}")
                )  # fmt: skip
    common.table(lines, ("size", "from", "to", "ms", "GB/s"))
    print(common.write("cuda_copies", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
