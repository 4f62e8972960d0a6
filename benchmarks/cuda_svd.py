"""Measure: singular value decompositions against size, on the CPU and on a GPU.

The paper's question of when a decomposition is worth the device. Products of the parts are
compared with the matrix first; feeds are where the function runs, results stay there.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
import opening

ORDERS = (32, 64, 128, 256, 512, 1024)
LIMIT = 3e-5  # of the product of the parts, float32


def seconds(device: str, a: Any, wait: Any) -> tuple[float, float]:
    """Return the median seconds of a call, and the error of the parts' product."""
    import magmagraph as mg

    x = mg.var("x", shape=a.shape)
    decomposed = mg.function([x], list(mg.linalg.svd(x, full_matrices=False)), device=device)

    def call() -> Any:
        made = decomposed(a)
        wait()
        return made

    left, values, right = call()
    error = float(abs((left * values) @ right - a).max()) / float(abs(a).max())
    if not error < LIMIT:
        raise SystemExit(f"{device}, {a.shape}: error {error}")
    taken = common.timed(call, repeats=3, seconds=0.3)
    return taken["median"], error


def main() -> None:
    opening.words(__doc__, needs=("gpu",))
    import cuda_common
    import cupy

    rng = np.random.default_rng(0)
    rows = []
    for order in ORDERS:
        a = rng.standard_normal((order, order)).astype("f4")
        on_device = cupy.asarray(a)
        cpu, _ = seconds("cpu", a, lambda: None)
        gpu, error = seconds("cuda", on_device, cupy.cuda.runtime.deviceSynchronize)
        rows.append({"order": order, "cpu": cpu, "cuda": gpu, "error": error})
    common.table(
        [(r["order"], f"{r['cpu'] * 1e3:.2f}", f"{r['cuda'] * 1e3:.2f}") for r in rows],
        ("order", "CPU ms", "GPU ms"),
    )
    print(common.write("cuda_svd", rows, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
