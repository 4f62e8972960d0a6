"""Claim: graphs of 100,000 nodes build, differentiate, compile, run, print; each stage grows at
most 13-fold from 10,000 to 100,000 nodes."""

from __future__ import annotations

import time

import common


def stages(kind: str, count: int) -> dict[str, float]:
    """Return the seconds of every stage for one graph."""
    import random

    import numpy as np

    import magmagraph as mg
    from magmagraph.text import dump

    taken: dict[str, float] = {}

    def clock(stage: str, began: float) -> float:
        now = time.perf_counter()
        taken[stage] = now - began
        return now

    x = mg.var("x", shape=(16,))
    now = time.perf_counter()
    if kind == "chain":
        value = x
        for i in range(count // 2):
            value = mg.sin(value) * (1.0 + 1e-6 * i)
    else:
        rng = random.Random(7)
        pool = [x]
        unary = (mg.sin, mg.tanh, mg.exp, mg.sigmoid)
        while len(pool) < count:
            left, right = rng.choice(pool[-50:]), rng.choice(pool[-50:])
            pool.append(rng.choice(unary)(left) if rng.random() < 0.5 else left * 0.5 + right * 0.5)
        value = pool[0]
        for other in pool[-50:]:
            value = value + other
    now = clock("build", now)
    gradient = mg.grad(mg.sum(value), x)
    now = clock("differentiate", now)
    f = mg.function([x], [value, gradient])
    now = clock("freeze", now)
    f.compile()
    now = clock("compile", now)
    array = np.linspace(0.1, 0.9, 16, dtype=np.float32)
    f(array)
    now = clock("first run", now)
    f(array)
    now = clock("run", now)
    dump(f.source_graph)
    clock("print", now)
    return taken


def main() -> None:
    cleared = common.clean_environment()
    results: dict[str, object] = {}
    rows = []
    for kind in ("chain", "random"):
        small = stages(kind, 10_000)
        large = stages(kind, 100_000)
        results[kind] = {"10000": small, "100000": large}
        for stage, seconds in large.items():
            rows.append(
                (kind, stage, f"{small[stage]:.3f}", f"{seconds:.3f}",
                 f"{seconds / max(small[stage], 1e-9):.1f}")
            )
    common.table(rows, ("graph", "stage", "10,000 s", "100,000 s", "ratio"))
    print(common.write("scale", results, cleared=cleared))


if __name__ == "__main__":
    main()
