"""Measure: solving in mixed precision against full precision, n = 256 to 2048, in float64.

For each problem, well conditioned (1e3) and beyond single precision (1e10, where the factor in low
precision is wasted): seconds, quotient, steps and errors of both. Sizes grow; results are written
after each, and a problem whose next size would pass its share of ten minutes ends there.
``--small`` runs sizes that show that it works.
"""

from __future__ import annotations

import os
import sys
import time

import common
import opening

SHARE = 30.0  # seconds of one problem and condition at one size
GROWTH = 8.0  # of the time from a size to the next, which is twice as large


def main() -> None:
    opening.words(__doc__, "--small", "--alone")
    cleared = common.clean_environment()
    alone = "--alone" in sys.argv
    clock = time.process_time if alone else time.perf_counter
    if alone:  # before BLAS is loaded, which counts cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    import numpy as np
    import scipy.linalg

    import magmagraph as mg

    small = "--small" in sys.argv
    sizes = (32, 64) if small else (256, 512, 1024, 2048)
    rng = np.random.default_rng(0)

    def orthogonal(rows: int, columns: int) -> np.ndarray:
        return np.linalg.qr(rng.normal(size=(rows, columns)))[0]

    def matrix(rows: int, columns: int, condition: float, positive: bool) -> np.ndarray:
        left = orthogonal(rows, columns)
        right = left if positive else orthogonal(columns, columns)
        made = (left * np.logspace(0.0, -np.log10(condition), columns)) @ right.T
        return 0.5 * (made + made.T) if positive else made

    def backward(A: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
        norm = np.abs(A).sum(1).max()
        return float(np.abs(b - A @ x).max() / (norm * np.abs(x).max() + np.abs(b).max()))

    linalg = mg.linalg
    # name -> mixed precision, full precision (of magmagraph), the peer (of SciPy), rows by columns
    problems = {
        "solve": (
            linalg.refined_solve, linalg.solve,
            lambda A, b: scipy.linalg.solve(A, b, check_finite=False),
        ),
        "solve, positive definite": (
            lambda A, b: linalg.refined_solve(A, b, assume="positive"),
            lambda A, b: linalg.cho_solve(linalg.cholesky(A), b),
            lambda A, b: scipy.linalg.solve(A, b, assume_a="pos", check_finite=False),
        ),
        "least squares": (
            linalg.refined_lstsq, linalg.lstsq,
            lambda A, b: scipy.linalg.lstsq(A, b, lapack_driver="gelsy", check_finite=False)[0],
        ),
        "eigenvalues": (
            lambda A, b: linalg.refined_eigh(A), lambda A, b: linalg.eigh(A),
            lambda A, b: scipy.linalg.eigh(A, check_finite=False),
        ),
    }
    results: dict[str, object] = {}
    rows = []
    left_out: list[str] = []
    facts_of_run = {"cleared": cleared, "left_out": left_out, "alone": alone}
    for name, (mixed, full, peer) in problems.items():
        for condition in (1e3, 1e10):
            took = 0.0
            for n in sizes:
                title = f"{name}, condition {condition:.0e}, n = {n}"
                if GROWTH * took > SHARE:
                    left_out.append(title)
                    continue
                began = clock()
                tall = 2 * n if name == "least squares" else n
                positive = name in ("solve, positive definite", "eigenvalues")
                A, b = matrix(tall, n, condition, positive), rng.normal(size=tall)
                a, c = mg.input("A", A.shape, "float64"), mg.input("b", b.shape, "float64")
                refined = mg.function([a, c], mixed(a, c))
                whole = full(a, c)
                plain = mg.function([a, c], whole[0] if name == "least squares" else whole)
                found = list(refined(A, b))
                once = clock() - began
                times = common.interleaved(
                    {
                        "refined": lambda f=refined, A=A, b=b: f(A, b),
                        "full": lambda f=plain, A=A, b=b: f(A, b),
                        "scipy": lambda f=peer, A=A, b=b: f(A, b),
                    },
                    rounds=3 if small or once > 1.0 else 7,
                    clock=clock,
                )
                error, steps, converged = found[-3:]
                facts = {
                    **times,
                    "error": float(error), "iterations": int(steps), "converged": bool(converged),
                    "full over refined": times["full"]["median"] / times["refined"]["median"],
                }  # fmt: skip
                if name.startswith("solve"):
                    facts["error of full precision"] = backward(A, np.asarray(plain(A, b)), b)
                results[title] = facts
                rows.append(
                    (
                        name, f"{condition:.0e}", n, f"{times['refined']['median'] * 1e3:.2f}",
                        f"{times['full']['median'] * 1e3:.2f}",
                        f"{times['scipy']['median'] * 1e3:.2f}",
                        f"{facts['full over refined']:.2f}", int(steps), f"{float(error):.1e}",
                    )
                )  # fmt: skip
                took = clock() - began
                if not small:
                    common.write("refined", results, **facts_of_run)
    common.table(
        rows,
        ("problem", "condition", "n", "refined ms", "full ms", "SciPy ms", "full/refined", "steps",
         "error"),
    )  # fmt: skip
    if not small:
        print(common.write("refined", results, **facts_of_run))


if __name__ == "__main__":
    main()
