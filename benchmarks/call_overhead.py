"""Claim: a call of a compiled `x + 1` on 10 elements costs at most 5 microseconds."""

from __future__ import annotations

import common
import opening


def main() -> None:
    opening.words(__doc__)
    cleared = common.clean_environment()
    import numpy as np

    import magmagraph as mg

    x = mg.var("x", shape=(10,))
    w = mg.var("w", shape=(10,), init=mg.init.zeros())
    array = np.arange(10, dtype=np.float32)
    plain = mg.function([x], x + 1.0)
    update = mg.function([x], [x + 1.0], updates={w: w + x})
    named = mg.function([x], x + 1.0)
    cases = {
        "x + 1": lambda: plain(array),
        "x + 1, by name": lambda: named(x=array),
        "x + 1 and an update": lambda: update(array),
        "NumPy x + 1": lambda: array + 1.0,
    }
    results = {name: common.timed(case) for name, case in cases.items()}
    common.table(
        [
            (name, f"{r['median'] * 1e6:.2f}", f"{r['least'] * 1e6:.2f}")
            for name, r in results.items()
        ],
        ("call", "median us", "least us"),
    )
    print(common.write("call_overhead", results, cleared=cleared))


if __name__ == "__main__":
    main()
