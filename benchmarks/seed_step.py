"""Measure: milliseconds a training step of the seed network, L = 1, 2, 4, 8, against its products.

The products alone through BLAS are what the kernels and the updates add to.
"""

from __future__ import annotations

import functools
import itertools

import common
import opening


def main() -> None:
    opening.words(__doc__)
    cleared = common.clean_environment()
    import networks
    import numpy as np

    results: dict[str, object] = {}
    rows = []
    for layers in (1, 2, 4, 8):
        step, _, _ = networks.training_step(layers)
        run = functools.partial(step, *networks.batch_of(100))
        run()
        rng = np.random.default_rng(0)
        sizes = [784, *[networks.WIDTH] * layers, 10]
        products = []
        for k, n in itertools.pairwise(sizes):
            a = rng.random((100, k), dtype=np.float32)
            b = rng.random((k, n), dtype=np.float32)
            d = rng.random((100, n), dtype=np.float32)
            products.append((a, b, np.empty((100, n), np.float32)))
            products.append((a.T, d, np.empty((k, n), np.float32)))
            if k != 784:
                products.append((d, b.T, np.empty((100, k), np.float32)))

        def multiply(products: list[tuple[np.ndarray, ...]] = products) -> None:
            for a, b, out in products:
                np.matmul(a, b, out=out)

        whole = common.timed(run, repeats=15, seconds=2.0)
        floor = common.timed(multiply, repeats=15, seconds=2.0)
        results[f"L={layers}"] = {
            "step": whole, "products": floor, "kernel_calls": len(step.plan.steps),
        }
        rows.append(
            (f"L={layers}", f"{whole['median'] * 1e3:.3f}", f"{floor['median'] * 1e3:.3f}",
             len(step.plan.steps))
        )
    common.table(rows, ("network", "step ms", "products alone ms", "kernel calls"))
    print(common.write("seed_step", results, cleared=cleared))


if __name__ == "__main__":
    main()
