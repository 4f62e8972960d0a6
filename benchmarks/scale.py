"""Claim: graphs of 100,000 nodes go through every stage, from building to loading from a file;
each stage grows at most 13-fold from 10,000 to 100,000 nodes, and a compile keeps to its budget.

Each graph is taken through all stages in a fresh process, three times; the table has the least.
Kernels are left to the tiled runtime there, so that both sizes do the same work; the last rows
compile them within the default budget.
"""

from __future__ import annotations

import copy
import pickle
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import opening

SMALL, LARGE = 10_000, 100_000
REPEATS = 3
BOUND = 13.0


def build(kind: str, count: int) -> tuple[Any, Any]:
    """Return an input and the last of about `count` nodes, not counting constants."""
    import magmagraph as mg

    x = mg.var("x", shape=(16,))
    value = x
    if kind == "chain":
        for i in range(count // 2):
            value = mg.sin(value) * (1.0 + 1e-6 * i)
        return x, value
    rng = random.Random(7)
    pool = [x]
    unary = (mg.sin, mg.tanh, mg.sigmoid)
    while len(pool) < count // 2:
        left, right = rng.choice(pool[-50:]), rng.choice(pool[-50:])
        pool.append(rng.choice(unary)(left) if rng.random() < 0.5 else left * 0.5 + right * 0.5)
    value = pool[0]
    for other in pool[-50:]:
        value = value + other
    return x, value


def stages(kind: str, count: int) -> dict[str, float]:
    """Return the seconds of every stage for one graph."""
    import numpy as np

    import magmagraph as mg
    from magmagraph.text.reading import load
    from magmagraph.text.writing import dump

    taken: dict[str, float] = {}

    def stage(name: str, action: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = action()
        taken[name] = time.perf_counter() - began
        return result

    x, value = stage("build", lambda: build(kind, count))
    gradient = stage("differentiate", lambda: mg.grad(mg.sum(value), x))
    f = stage("freeze", lambda: mg.function([x], [value, gradient]))
    stage("compile", f.compile)
    feed = np.linspace(0.1, 0.9, 16, dtype=np.float32)
    stage("first run", lambda: f(feed))
    stage("run", lambda: f(feed))
    text = stage("print", lambda: dump(f.source_graph))
    stage("read back", lambda: load(text))
    stage("print the plan", lambda: str(f.plan))
    stage("explain", lambda: str(f.explain(value)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.magma"
        stage("save", lambda: f.save(path))
        stage("load", lambda: mg.load(path))
    pickled = stage("pickle", lambda: pickle.dumps(f))
    stage("unpickle", lambda: pickle.loads(pickled))
    stage("copy", lambda: copy.deepcopy(f))
    return taken


def budgeted(kind: str, count: int) -> dict[str, Any]:
    """Return how long a compile with kernels takes, and how many it made."""
    import magmagraph as mg

    x, value = build(kind, count)
    f = mg.function([x], [value, mg.grad(mg.sum(value), x)])
    began = time.perf_counter()
    f.compile()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "budget": mg.config.compile_budget,
        "kernels": f.report["kernels"].notes,
    }


def in_child(what: str, kind: str, count: int, compiler: str) -> dict[str, Any]:
    """Return what one of the functions above gives in a fresh process."""
    code = (
        f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import scale; "
        f"print(json.dumps(scale.{what}({kind!r}, {count})))"
    )
    with tempfile.TemporaryDirectory() as cache:
        place = {"MAGMAGRAPH_CACHE_DIR": cache, "MAGMAGRAPH_COMPILER": compiler}
        found: dict[str, Any] = common.in_child(code, place)
    return found


def main() -> None:
    opening.words(__doc__)
    cleared = common.clean_environment()
    results: dict[str, Any] = {}
    rows = []
    for kind in ("chain", "random"):
        samples = {
            count: [in_child("stages", kind, count, "off") for _ in range(REPEATS)]
            for count in (SMALL, LARGE)
        }
        results[kind] = {str(count): several for count, several in samples.items()}
        for name in samples[SMALL][0]:
            small, large = (min(s[name] for s in samples[n]) for n in (SMALL, LARGE))
            ratio = large / small
            mark = "" if ratio <= BOUND else f"  more than {BOUND:.0f}"
            rows.append((kind, name, f"{small:.3f}", f"{large:.3f}", f"{ratio:.1f}{mark}"))
        within = in_child("budgeted", kind, LARGE, "auto")
        results[kind]["compile with kernels"] = within
        rows.append(
            (kind, "compile, kernels too", "", f"{within['seconds']:.1f}",
             f"budget {within['budget']:.0f} s")
        )
    common.table(rows, ("graph", "stage", f"{SMALL:,} s", f"{LARGE:,} s", "ratio"))
    print(common.write("scale", results, cleared=cleared))


if __name__ == "__main__":
    main()
