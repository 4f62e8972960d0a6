"""Claim: what is known of matrices makes plans faster than the expressions as they are written.

Each expression runs in turn as rewritten, without the passes that rewrite it, and in NumPy as
written. ``--small`` runs sizes that show that it works.
"""

from __future__ import annotations

import itertools
import sys
from unittest import mock

import common
import opening


def main() -> None:
    opening.words(__doc__, "--small")
    cleared = common.clean_environment()
    import numpy as np

    import magmagraph as mg
    from magmagraph.passes import contract

    small = "--small" in sys.argv
    n = 80 if small else 1000
    rng = np.random.default_rng(0)
    inv, solve, det, slogdet = mg.linalg.inv, mg.linalg.solve, mg.linalg.det, mg.linalg.slogdet
    A, b = mg.input("A", (n, n), "float64"), mg.input("b", (n, 10), "float64")
    values = {A: rng.normal(size=(n, n)) / n**0.5 + 2.0 * np.eye(n), b: rng.normal(size=(n, 10))}
    widths = [30, 35, 15, 5, 10, 20, 25] if small else [900, 1050, 450, 150, 300, 600, 750]
    chain = [
        mg.input(f"C{i}", pair, "float64")
        for i, pair in enumerate(itertools.pairwise(widths))
    ]
    values |= {factor: rng.normal(size=factor.shape) for factor in chain}
    tall = mg.input("T", (2 * n, n), "float32")
    values[tall] = rng.normal(size=tall.shape).astype(np.float32)
    loss = mg.sum(solve(A, b) ** 2) + slogdet(A).logabsdet

    def product(*factors: object) -> object:
        result = factors[0]
        for factor in factors[1:]:
            result = result @ factor
        return result

    def written_gradient(A: np.ndarray, b: np.ndarray) -> list:
        x = np.linalg.solve(A, b)
        y = np.linalg.solve(A.T, 2.0 * x)
        total = (x**2).sum() + np.linalg.slogdet(A).logabsdet
        return [total, np.linalg.inv(A).T - y @ x.T]

    # name -> leaves, what is computed, NumPy as it is written
    cases = {
        "inv(A) @ b": ([A, b], inv(A) @ b, lambda A, b: np.linalg.inv(A) @ b),
        "chain of 6 matrices": (chain, product(*chain), product),
        "A.T @ A": ([tall], tall.T @ tall, lambda T: T.T @ T),
        "A.T @ A, as gemm": ([tall], tall.T @ tall, lambda T: T.T @ T.copy()),
        "det of a triangle": (
            [A], det(mg.where(_lower(mg, n), A, 0.0)), lambda A: np.linalg.det(np.tril(A)),
        ),
        "solve with a triangle": (
            [A, b], solve(mg.where(_lower(mg, n), A, 0.0), b),
            lambda A, b: np.linalg.solve(np.tril(A), b),
        ),
        "solve, slogdet and their gradient": (
            [A, b], [loss, mg.grad(loss, A)], written_gradient,
        ),
        "trace(A @ B)": (
            [A], mg.sum(mg.where(_diagonal(mg, n), A @ (A + 1.0), 0.0)),
            lambda A: np.trace(A @ (A + 1.0)),
        ),
    }  # fmt: skip
    results: dict[str, object] = {}
    rows = []
    for name, (leaves, node, numpy) in cases.items():
        feeds = [values[leaf] for leaf in leaves]
        rewritten = mg.function(leaves, node)
        if name.endswith("as gemm"):
            with mock.patch.object(contract, "SYRK_ORDER", 1 << 30):
                plain = mg.function(leaves, node)
                plain(*feeds)
        else:
            plain = mg.function(leaves, node, skip=("simplify", "contract"))
        one, other = rewritten(*feeds), plain(*feeds)
        for x, y in zip(_all(one), _all(other), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3 * float(np.abs(y).max()))
        times = common.interleaved(
            {
                "rewritten": lambda f=rewritten, v=feeds: f(*v),
                "as written": lambda f=plain, v=feeds: f(*v),
                "numpy": lambda f=numpy, v=feeds: f(*v),
            },
            rounds=3 if small else 15,
        )
        mine = times["rewritten"]["median"]
        results[name] = {
            **times,
            "as written over rewritten": times["as written"]["median"] / mine,
            "numpy over rewritten": times["numpy"]["median"] / mine,
            "steps": [step.node.op.name for step in rewritten.plan.steps],
        }
        rows.append(
            (
                name, f"{mine * 1e3:.3f}", f"{times['as written']['median'] * 1e3:.3f}",
                f"{times['numpy']['median'] * 1e3:.3f}",
                f"{times['as written']['median'] / mine:.2f}",
                f"{times['numpy']['median'] / mine:.2f}",
            )
        )  # fmt: skip
    common.table(
        rows, ("expression", "rewritten ms", "as written ms", "NumPy ms", "gain", "over NumPy")
    )
    if not small:
        print(common.write("structure", results, cleared=cleared, order=n))


def _lower(mg, n):
    return mg.greater_equal(mg.arange(n)[:, None], mg.arange(n)[None, :])


def _diagonal(mg, n):
    return mg.equal(mg.arange(n)[:, None], mg.arange(n)[None, :])


def _all(value):
    return value if isinstance(value, list) else [value]


if __name__ == "__main__":
    main()
