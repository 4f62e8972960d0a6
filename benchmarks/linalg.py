"""Claim: linear algebra takes at most the best peer's time; small matrices in batches 0.8 of it.

Systems, factorizations, least squares, eigenvalues and singular values with their vectors, and
gradients: 10,000 matrices of order 4 to 64, and single ones up to 8192; a Kalman filter of 200
steps with its gradient. ``--quick`` measures a part of them in float64. ``--brief`` measures a part
within six minutes: batches of order 4 and 16 and 512 alone, in float32 and float64, and one batch
in complex64; what ``--budget`` (unless given, 320 seconds) has no time for it names. ``--cuda``
measures all on a GPU. With ``--threads 1`` times are those of the processor, which other programs
on the machine do not change.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import common
import numpy as np
import peers

Results = Mapping[str, Any]

# operation -> what two libraries agree on, whatever the signs of vectors, of its results
PARTS: dict[str, Callable[..., list[Any]]] = {
    "solve": lambda x: [x],
    "inv": lambda x: [x],
    "cholesky": lambda x: [x],
    "slogdet": lambda sign, size: [size],
    "lu": lambda lu, *others: [lu],
    "qr": lambda q, r: [abs(r)],
    "lstsq": lambda x: [x],
    "eigh": lambda values, vectors: [values],
    "svd": lambda u, s, vh: [s],
}
ONE_THREAD = (
    "All had one thread, and their processor time was taken: other programs used the machine."
)
GRADIENTS = ("solve", "inv", "cholesky", "slogdet", "qr", "eigh", "svd")


def arrays(case: peers.Case) -> list[np.ndarray]:
    """Return the matrices of a case, and right-hand sides where it has some."""
    rng = np.random.default_rng(0)
    if case["op"] == "kalman":
        return [0.1 * rng.normal(size=(4, 4)) + 0.9 * np.eye(4), rng.normal(size=(200, 4))]
    n, batch, dtype = case["order"], case["batch"], np.dtype(case["dtype"])
    rows = 2 * n if case["op"] == "lstsq" else n
    lead = () if batch == 1 else (batch,)

    def draw(*sides: int) -> np.ndarray:
        made = rng.normal(size=(*lead, *sides))
        return made + 1j * rng.normal(size=made.shape) if dtype.kind == "c" else made

    a = draw(rows, n) / np.sqrt(n)
    if case["op"] in ("cholesky", "eigh"):
        a = a @ np.swapaxes(a, -1, -2).conj() + np.diag(1 + np.arange(n) / n)
    elif case["op"] in ("solve", "inv", "slogdet"):
        a = a + 2 * np.eye(n)
    found = [a.astype(dtype)]
    if case["op"] in ("solve", "lstsq"):
        found.append(draw(rows, 1).astype(dtype))
    return found


def scalar(op: str, found: Any) -> Any:
    """Return a smooth function of what an operation returns, the same for any signs."""
    if op == "slogdet":
        return found[1].sum()
    if op == "qr":
        return (found[1] ** 4).sum()
    if op == "eigh":
        return (found[0] ** 3).sum() + (found[1] ** 4).sum()
    if op == "svd":
        return (found[1] ** 3).sum() + (found[0] ** 4).sum()
    return (found * found).sum()


# A Kalman filter: the log-likelihood of observations under a transition matrix.


def kalman_step(xp: Any, linalg: Any, A: Any, state: Any, seen: Any) -> Any:
    """Predict, weigh what is seen, and correct; return the new state and the log-likelihood."""
    mean, covariance = state
    one = xp.eye(4, dtype=A.dtype)
    mean = A @ mean
    covariance = A @ covariance @ A.T + 0.1 * one
    innovation = seen - mean
    spread = covariance + 0.5 * one
    gain = linalg.solve(spread, covariance).T
    _, size = linalg.slogdet(spread)
    fit = (innovation * linalg.solve(spread, innovation[:, None])[:, 0]).sum()
    mean = mean + gain @ innovation
    covariance = covariance - gain @ covariance
    return (mean, covariance), -0.5 * (fit + size)


def _kalman_magmagraph() -> Callable[..., Any]:
    import magmagraph as mg

    A, seen = mg.var("A", shape=(4, 4), dtype="float64"), mg.var("y", (200, 4), "float64")

    def step(state: Any, y: Any) -> Any:
        return kalman_step(mg, mg.linalg, A, state, y)

    start = (mg.zeros((4,), "float64"), mg.eye(4, dtype="float64"))
    _, terms = mg.scan(step, start, seen)
    total = mg.sum(terms)
    return mg.function([A, seen], [total, mg.grad(total, A)])


def _kalman_jax() -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def total(A: Any, seen: Any) -> Any:
        start = (jnp.zeros(4, A.dtype), jnp.eye(4, dtype=A.dtype))
        step = lambda state, y: kalman_step(jnp, jnp.linalg, A, state, y)  # noqa: E731
        return jax.lax.scan(step, start, seen)[1].sum()

    return jax.jit(jax.value_and_grad(total))


# What each library does for a case.


def magmagraph(case: peers.Case) -> peers.Work:
    """`mg.function`, compiled once."""
    import magmagraph as mg

    given = arrays(case)
    if case["op"] == "kalman":
        function = _kalman_magmagraph()
        return _work(case, lambda: function(*given))
    linalg = mg.linalg
    nodes = [mg.var(f"x{i}", shape=a.shape, dtype=a.dtype) for i, a in enumerate(given)]
    op = {"lu": linalg.lu_factor, "lstsq": lambda a, b: linalg.lstsq(a, b)[0]}.get(case["op"])
    made = (op or getattr(linalg, case["op"]))(*nodes)
    if case["gradient"]:
        made = mg.grad(scalar(case["op"], made), nodes[0])
    several = isinstance(made, tuple)
    device = case.get("device", "cpu")
    function = mg.function(nodes, list(made) if several else made, device=device)
    if device != "cpu":
        import cupy

        given = [cupy.asarray(a) for a in given]
        wait = cupy.cuda.runtime.deviceSynchronize
        return _work(case, lambda: (function(*given), wait())[0])
    return _work(case, lambda: function(*given))


def numpy(case: peers.Case) -> peers.Work:
    """NumPy, and SciPy where it has no such function."""
    import scipy.linalg

    if case["gradient"] or case.get("device"):
        raise ModuleNotFoundError("it has none", name="gradients or devices")
    ops = {
        "lu": lambda a: scipy.linalg.lu_factor(a, check_finite=False),
        "lstsq": lambda a, b: np.linalg.lstsq(a, b)[0] if a.ndim == 2 else np.linalg.pinv(a) @ b,
    }
    op, given = ops.get(case["op"]) or getattr(np.linalg, case["op"]), arrays(case)
    return _work(case, lambda: op(*given))


def cupy(case: peers.Case) -> peers.Work:
    """CuPy, on a GPU."""
    import cupy as cp

    if case["gradient"] or not case.get("device"):
        raise ModuleNotFoundError("it has none", name="gradients")
    import cupyx.scipy.linalg

    ops = {
        "lu": cupyx.scipy.linalg.lu_factor,
        "lstsq": lambda a, b: cp.linalg.lstsq(a, b)[0] if a.ndim == 2 else cp.linalg.pinv(a) @ b,
    }
    op = ops.get(case["op"]) or getattr(cp.linalg, case["op"])
    given = [cp.asarray(a) for a in arrays(case)]
    wait = cp.cuda.runtime.deviceSynchronize
    return _work(case, lambda: (op(*given), wait())[0], cp.asnumpy)


def jax(case: peers.Case) -> peers.Work:
    """`jax.jit`."""
    import jax

    jax.config.update("jax_enable_x64", True)
    given = [jax.numpy.asarray(a) for a in arrays(case)]
    if case["op"] == "kalman":
        function = _kalman_jax()
    else:
        linalg = jax.numpy.linalg
        ops = {
            "lu": jax.scipy.linalg.lu_factor,
            "lstsq": lambda a, b: linalg.lstsq(a, b)[0],
            "svd": lambda a: linalg.svd(a, full_matrices=not case["gradient"]),
        }
        op = ops.get(case["op"]) or getattr(linalg, case["op"])
        if case["op"] == "lstsq" and given[0].ndim > 2:
            op = jax.vmap(ops["lstsq"])
        function = jax.jit(
            jax.grad(lambda *x: scalar(case["op"], op(*x))) if case["gradient"] else op
        )
    return _work(case, lambda: jax.block_until_ready(function(*given)))


def torch(case: peers.Case) -> peers.Work:
    """PyTorch, eager: its compiler calls the same functions."""
    import torch

    if case["op"] == "kalman":
        A, seen = map(torch.from_numpy, arrays(case))
        A.requires_grad_()

        def filtered() -> Any:
            state, total = (torch.zeros(4, dtype=A.dtype), torch.eye(4, dtype=A.dtype)), 0.0
            for y in seen:
                state, term = kalman_step(torch, torch.linalg, A, state, y)
                total = total + term
            return total.detach(), torch.autograd.grad(total, A)[0]

        return _work(case, filtered)
    device = case.get("device", "cpu")
    given = [torch.from_numpy(a).to(device) for a in arrays(case)]
    linalg = torch.linalg
    ops = {
        "lu": linalg.lu_factor,
        "lstsq": lambda a, b: linalg.lstsq(a, b)[0],
        "svd": lambda a: linalg.svd(a, full_matrices=not case["gradient"]),
    }
    op = ops.get(case["op"]) or getattr(linalg, case["op"])

    def call() -> Any:
        if not case["gradient"]:
            with torch.no_grad():
                found = op(*given)
        else:
            given[0].requires_grad_()
            (found,) = torch.autograd.grad(scalar(case["op"], op(*given)), given[0])
        if device != "cpu":
            torch.cuda.synchronize()
        return found

    return _work(case, call, lambda x: x.detach().cpu().numpy())


def _work(
    case: peers.Case, call: Callable[[], Any], array: Callable[[Any], Any] = np.asarray
) -> peers.Work:
    def results() -> Results:
        found = call()
        several = isinstance(found, (list, tuple))
        values = [array(x) for x in found] if several else [array(found)]
        if case["op"] != "kalman" and not case["gradient"]:
            values = PARTS[case["op"]](*values)
        return {f"r{i}": np.stack([v.real, v.imag]) if np.iscomplexobj(v) else v
                for i, v in enumerate(values)}  # fmt: skip

    return peers.Work(call, results)


BRIEF_SECONDS = 320  # of cases; the libraries begin before, and a picture is drawn after
ITERATED = ("qr", "lstsq", "eigh", "svd")  # each matrix takes many times its product


def cases(
    *, quick: bool = False, brief: bool = False, device: str | None = None
) -> list[peers.Case]:
    """Return the points of the benchmark."""
    found: list[peers.Case] = []

    def add(op: str, order: int, batch: int, dtype: str, gradient: bool = False) -> None:
        size = f"{batch} of {order}" if batch > 1 else str(order)
        name = f"{op}{', gradient' if gradient else ''}, {size}, {dtype}"
        found.append({"name": name, "op": op, "order": order, "batch": batch, "dtype": dtype,
                      "gradient": gradient, **({"device": device} if device else {})})

    if device is None:
        found.append({"name": "kalman, 200 steps, gradient", "op": "kalman", "gradient": True})
    if brief:
        for op in PARTS:
            for dtype in ("float64", "float32"):
                add(op, 4, 10_000, dtype)
                add(op, 16, 1000 if op in ITERATED else 10_000, dtype)
                add(op, 512, 1, dtype)
            if op in GRADIENTS:
                add(op, 16, 1000, "float64", gradient=True)
        for op in PARTS:  # last: it is the first to be left out
            add(op, 16, 1000, "complex64")
        return found
    orders = (4, 16, 64) if quick else (4, 8, 16, 32, 64)
    dtypes = ("float64",) if quick else ("float32", "float64", "complex64")
    for op in PARTS:
        for dtype in dtypes:
            for order in orders:
                add(op, order, 1000 if quick and order > 16 else 10_000, dtype)
            for order in (512, 1024) if quick else (256, 1024, 4096):
                add(op, order, 1, dtype)
        if op in GRADIENTS:
            for order, batch in ((4, 10_000), (16, 10_000), (512, 1)):
                add(op, order, 1000 if quick and batch > 1 else batch, "float64", gradient=True)
    if not quick:
        for op in ("solve", "cholesky", "lu"):
            add(op, 8192, 1, "float32")
    return found


def main() -> None:
    common.clean_environment()  # which begins anew, with all of these words
    words = ("--quick", "--brief", "--cuda")
    quick, brief, cuda = (word in sys.argv for word in words)
    sys.argv = [word for word in sys.argv if word not in words]
    if brief and not any(word.startswith("--budget") for word in sys.argv):
        sys.argv += ["--budget", str(BRIEF_SECONDS)]
    device = "cuda" if cuda else None
    alone = "--threads" in sys.argv and sys.argv[sys.argv.index("--threads") + 1] == "1"
    peers.main(
        peers.Benchmark(
            name="cuda_linalg" if cuda else "linalg",
            claim="Linear algebra, beside LAPACK, MKL and their callers.",
            cases=cases(quick=quick, brief=brief, device=device),
            contenders={f.__name__: f for f in (magmagraph, jax, torch, numpy, cupy)},
            rounds=3 if brief else 5,
            seconds=0.05 if brief else 0.15,
            tolerance=1e-2,
            notes=ONE_THREAD if alone else "",
            clock=time.process_time if alone else time.perf_counter,
        )
    )


if __name__ == "__main__":
    main()
