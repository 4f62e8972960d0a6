"""Claim: the L = 4 training step compiles in 0.3 s with cold caches, 0.08 s warm; a new batch
size takes under 10 ms. Each number is of a fresh process; the import is measured apart."""

from __future__ import annotations

import statistics
import tempfile

import common
import opening

COMPILE = """
import json, sys, time
sys.path.insert(0, {folder!r})
import magmagraph as mg
import networks
step, parameters, optimizer = networks.training_step({layers})
feeds = networks.batch_of(100)
began = time.perf_counter()
step(*feeds)
first = time.perf_counter() - began
began = time.perf_counter()
step(*networks.batch_of(60))
other = time.perf_counter() - began
report = json.loads(step.report.to_json())
print(json.dumps({{"first": first, "new_size": other, "report": report}}))
"""

IMPORT = """
import json, time
began = time.perf_counter()
import numpy
middle = time.perf_counter()
import magmagraph
print(json.dumps({"numpy": middle - began, "magmagraph": time.perf_counter() - middle}))
"""


def main() -> None:
    opening.words(__doc__)
    cleared = common.clean_environment()
    folder = str(common.RESULTS.parent)
    results: dict[str, object] = {}
    rows = []
    for layers in (1, 4):
        code = COMPILE.format(folder=folder, layers=layers)
        cold = []
        warm = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as cache:
                place = {"MAGMAGRAPH_CACHE_DIR": cache}
                cold.append(common.in_child(code, place))
                warm.append(common.in_child(code, place))
        for name, samples in (("cold", cold), ("warm", warm)):
            first = [s["first"] for s in samples]
            other = [s["new_size"] for s in samples]
            passes = {
                record["pass"]: statistics.median(
                    r["milliseconds"] for s in samples for r in s["report"]
                    if r["pass"] == record["pass"]
                )
                for record in samples[0]["report"]
            }
            results[f"L={layers} {name}"] = {
                "first_call": first, "new_size": other, "passes_ms": passes
            }
            rows.append(
                (f"L={layers}, {name} caches", f"{statistics.median(first) * 1e3:.1f}",
                 f"{statistics.median(other) * 1e3:.2f}")
            )
            print({k: round(v, 1) for k, v in passes.items()})
    imports = [common.in_child(IMPORT) for _ in range(7)]
    results["import"] = imports
    common.table(rows, ("training step", "first call ms", "new batch size ms"))
    more = statistics.median(s["magmagraph"] for s in imports)
    print(f"import: {more * 1e3:.1f} ms more than numpy")
    print(common.write("compile_time", results, cleared=cleared))


if __name__ == "__main__":
    main()
