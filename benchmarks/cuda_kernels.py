"""Measure: generated kernels on a GPU beside torch, torch.compile, JAX, CuPy, gemv and a copy.

Times are those of a call among many in one CUDA graph. Results are compared with float64 first.
Where memory is the bound, calls take turns with two arrays: with one, a part of it would be in the
cache from the call before.
JAX makes a graph of its own program: there, each sum also adds a zero that depends on the last one,
so that none is left out. ``python benchmarks/cuda_kernels.py sums`` measures one part, or
``streams``, or ``rows`` of few elements.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import common
import opening

SUMS = ((100, 528), (1024, 1024), (4096, 4096), (65536, 64), (16384, 16384))
SUMMED = ("torch", "gemv", "cupy", "jax")  # beside ours
SHORT = (3, 10, 31, 32, 33, 64, 100)  # elements of a row
ROWS = 65536
LIMITS = {"float32": 1e-5, "float16": 2e-3}  # of the error, where rows are short
COUNT = 20
CALLS = 10


def mine(make: Callable[..., Any], *sets: tuple[Any, ...]) -> tuple[Any, float]:
    """Return the result of a function on the device for the first arrays, and its microseconds."""
    import cuda_common

    import magmagraph as mg

    results, bound = [], []
    for arrays in sets:
        inputs = [mg.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
        function = mg.function(inputs, make(*inputs), device="cuda")
        for _ in range(2):
            result = function(*arrays)
        results.append(result)
        bound.append(function._last)
    stream = bound[0].stream

    def calls() -> None:
        for one in bound:
            one.queue(stream)

    return results[0], cuda_common.in_graph(stream, calls, COUNT) / len(sets)


def error(found: Any, wanted: Any) -> float:
    import cupy

    return float(cupy.linalg.norm((found - wanted).ravel()) / cupy.linalg.norm(wanted.ravel()))


def gemv(x: Any, axis: int) -> float:
    """Return the microseconds of a product with ones by cuBLASLt."""
    import cuda_common
    import cupy

    from magmagraph.runtime.cuda.device import device_of
    from magmagraph.runtime.cuda.products import gemm

    device = device_of("cuda")
    m, n = x.shape
    rows, inner = (n, m) if axis == 0 else (m, n)
    shape = gemm.Shape(rows, 1, inner, "float32", axis == 0, False, False, False)
    product = gemm.plan_product(device, shape, device.scratch(device.stream), True)
    ones, out = cupy.ones(inner, "f4"), cupy.empty(rows, "f4")
    scratch, stream = device.scratch(device.stream), device.stream
    return cuda_common.in_graph(
        stream,
        lambda: product.launch(
            x.data.ptr, ones.data.ptr, 0, out.data.ptr, 0, 0, scratch, stream.ptr
        ),
        COUNT,
    )


def cupy_sum(x: Any, axis: int) -> float | None:
    """Return the microseconds of CuPy's sum, None where it cannot be captured."""
    import cuda_common
    import cupy

    out = cupy.empty(x.shape[1 - axis], "f4")
    stream = cupy.cuda.Stream(non_blocking=True)
    try:
        return cuda_common.in_graph(stream, lambda: cupy.sum(x, axis=axis, out=out), COUNT)
    except Exception as reason:  # whatever a capture refuses
        print(f"cupy.sum is not captured: {reason}")
        return None


def jax_sum(x: Any, axis: int) -> float | None:
    """Return the microseconds of JAX's sum, None where JAX is not there."""
    try:
        import jax
    except ImportError:
        return None

    def chained(array: Any, zero: Any) -> Any:
        out = array.sum(axis)
        for _ in range(COUNT - 1):
            out = (array + out[0] * zero).sum(axis)
        return out

    run = jax.jit(chained)
    array, zero = jax.dlpack.from_dlpack(x), jax.numpy.float32(0)
    run(array, zero).block_until_ready()

    def calls() -> None:
        for _ in range(CALLS):
            last = run(array, zero)
        last.block_until_ready()

    return common.timed(calls, seconds=0.1)["median"] / (CALLS * COUNT) * 1e6


def sums(torch: Any, rng: Any) -> list[dict[str, Any]]:
    import cuda_common

    import magmagraph as mg

    rows = []
    for shape in SUMS:
        x = rng.standard_normal(shape, dtype="f4")
        for axis in (0, 1):
            found, taken = mine(lambda v, axis=axis: mg.sum(v, axis=axis), (x,))
            wrong = error(found, x.astype("f8").sum(axis))
            if wrong > 1e-5:
                raise SystemExit(f"sum of {shape} along {axis}: error {wrong}")
            t = torch.from_dlpack(x)
            rows.append({
                "shape": shape, "axis": axis, "magmagraph": taken, "error": wrong,
                "torch": cuda_common.torch_in_graph(
                    torch, lambda t=t, axis=axis: t.sum(axis), COUNT
                ),
                "gemv": gemv(x, axis), "cupy": cupy_sum(x, axis), "jax": jax_sum(x, axis),
            })
    return rows


def short_rows(torch: Any, rng: Any) -> list[dict[str, Any]]:
    """Rows of few elements, beside torch's own kernels."""
    import cuda_common
    import cupy

    import magmagraph as mg

    functional = torch.nn.functional
    made = []
    for columns, dtype in ((columns, dtype) for columns in SHORT for dtype in LIMITS):
        sets = [(rng.standard_normal((ROWS, columns), dtype="f4").astype(dtype),) for _ in "12"]
        tensors = [torch.from_dlpack(x) for (x,) in sets]
        wide = sets[0][0].astype("f8")
        part = cupy.exp(wide - wide.max(1, keepdims=True))
        centred = wide - wide.mean(1, keepdims=True)
        cases: list[tuple[str, Any, Any, Any]] = [
            ("sum", lambda v: mg.sum(v, axis=1), lambda t: t.sum(1), wide.sum(1)),
            ("softmax", mg.softmax, lambda t: torch.softmax(t, -1),
             part / part.sum(1, keepdims=True)),
            ("layer_norm", mg.layer_norm,
             lambda t: functional.layer_norm(t, t.shape[1:]),
             centred / cupy.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)),
        ]
        for name, ours, other, wanted in cases:
            found, taken = mine(ours, *sets)
            wrong = error(found.astype("f8"), wanted)
            if wrong > LIMITS[dtype]:
                raise SystemExit(f"{name} of rows of {columns} {dtype}: error {wrong}")
            theirs = cuda_common.torch_in_graph(
                torch, lambda other=other, tensors=tensors: [other(t) for t in tensors], COUNT
            )
            made.append({
                "name": name, "columns": columns, "dtype": dtype, "error": wrong,
                "magmagraph": taken, "torch": theirs / len(tensors),
            })
    return made


def streams(torch: Any, rng: Any) -> list[dict[str, Any]]:
    """Kernels that memory bounds."""
    import cupy

    import magmagraph as mg

    functional = torch.nn.functional
    x = rng.standard_normal((8192, 8192), dtype="f4")
    labels = rng.integers(0, 8192, 8192).astype("int32")
    chain = rng.standard_normal((1 << 28,), dtype="f4")
    wide = x.astype("f8")
    top = wide.max(1, keepdims=True)
    part = cupy.exp(wide - top)
    log = top[:, 0] + cupy.log(part.sum(1))
    centred = wide - wide.mean(1, keepdims=True)
    cases: list[tuple[str, int, Any, Any, Any, tuple[Any, ...]]] = [
        ("softmax", 2, mg.softmax, lambda t: torch.softmax(t, -1),
         part / part.sum(1, keepdims=True), (x,)),
        ("layer_norm", 2, mg.layer_norm, lambda t: functional.layer_norm(t, (8192,)),
         centred / cupy.sqrt((centred**2).mean(1, keepdims=True) + 1e-5), (x,)),
        ("logsumexp", 1, lambda v: mg.logsumexp(v, axis=-1), lambda t: torch.logsumexp(t, -1),
         log, (x,)),
        ("cross_entropy", 1, mg.cross_entropy,
         lambda t, i: functional.cross_entropy(t, i),
         (log - wide[cupy.arange(8192), labels]).mean(), (x, labels)),
        ("cross_entropy and gradient", 2,
         lambda v, i: (lambda loss: [loss, mg.grad(loss, v)])(mg.cross_entropy(v, i)),
         loss_and_gradient(torch), [
             (log - wide[cupy.arange(8192), labels]).mean(),
             (part / part.sum(1, keepdims=True) - one_hot(labels, 8192)) / 8192,
         ], (x, labels)),
        ("chain 2^28", 2, lambda v: mg.sigmoid(2 * v + 1) * mg.tanh(v) - 0.1 * v,
         lambda t: torch.sigmoid(2 * t + 1) * torch.tanh(t) - 0.1 * t, None, (chain,)),
    ]
    return [beside(torch, *case) for case in cases]


def one_hot(labels: Any, classes: int) -> Any:
    import cupy

    made = cupy.zeros((labels.size, classes))
    made[cupy.arange(labels.size), labels] = 1
    return made


def loss_and_gradient(torch: Any) -> Any:
    """Return what torch computes a cross-entropy and its gradient with, in one compiled graph."""

    def run(t: Any, i: Any) -> Any:
        log = torch.log_softmax(t, -1)
        loss = -log.gather(1, i[:, None]).mean()
        ones = torch.nn.functional.one_hot(i, t.shape[1]).to(t.dtype)
        return loss, (log.exp() - ones) / t.shape[0]

    return run


def beside(
    torch: Any, name: str, moved: int, make: Any, other: Any, wanted: Any, arrays: tuple[Any, ...]
) -> dict[str, Any]:
    """Return one function's times: ours, torch's, torch.compile's, and a copy's of its bytes."""
    import cuda_common
    import cupy

    sets = [arrays, (arrays[0][::-1].copy(), *arrays[1:])]
    found, taken = mine(make, *sets)
    if wanted is None:
        v = arrays[0][: 1 << 24].astype("f8")
        wanted = cupy.tanh(v) / (1 + cupy.exp(-(2 * v + 1))) - 0.1 * v
        found = found[: 1 << 24]
    if not isinstance(wanted, list):
        found, wanted = [found], [wanted]
    wrong = max(error(f, w) for f, w in zip(found, wanted, strict=True))
    if wrong > 1e-5:
        raise SystemExit(f"{name}: error {wrong}")
    tensors = [[torch.from_dlpack(a) for a in some] for some in sets]
    tensors = [[t.long() if t.dtype == torch.int32 else t for t in some] for some in tensors]
    compiled = torch.compile(other)
    pairs = [(cupy.empty_like(some[0]), some[0]) for some in sets]
    stream = cupy.cuda.Stream(non_blocking=True)

    def copies() -> None:
        for target, source in 3 * pairs:
            cupy.cuda.runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, target.nbytes, 3, stream.ptr
            )

    def theirs(run: Callable[..., Any]) -> float:
        calls = cuda_common.torch_in_graph(torch, lambda: [run(*some) for some in tensors], 3)
        return calls / len(sets)

    return {
        "name": name,
        "bytes": arrays[0].nbytes * moved,
        "error": wrong,
        "magmagraph": taken,
        "torch": theirs(other),
        "torch.compile": theirs(compiled),
        "copy": cuda_common.microseconds(stream, copies, 3 * len(pairs)) * moved / 2,
    }


def notes(results: dict[str, Any]) -> list[str]:
    """Return what is behind: the best of all kernels, or nine tenths of a copy, by how much."""
    found = []
    for row in results["sums"]:
        kinds = [k for k in SUMMED if row[k] is not None]
        best = min(kinds, key=lambda k: row[k])
        ours = row["magmagraph"]
        if ours > max(1.05 * row[best], row[best] + 0.3):
            found.append(
                f"sum of {row['shape']} along {row['axis']}: {ours:.2f} us, {best} {row[best]:.2f}"
            )
    for row in results["streams"]:
        ours, other = row["magmagraph"], row["torch.compile"]
        if ours > min(other, row["copy"] / 0.9):
            found.append(
                f"{row['name']}: {ours:.1f} us, torch.compile {other:.1f}, copy {row['copy']:.1f}"
            )
    return found


def main() -> None:
    opening.words(__doc__, "streams", "rows", "sums", needs=("gpu", "torch"))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import cuda_common
    import cupy
    import torch

    rng = cupy.random.default_rng(0)
    facts = cuda_common.device_facts()
    results = {"sums": [], "streams": [], **common.written("cuda_kernels")}
    parts = sys.argv[1:] or ["streams", "rows", "sums"]
    if "streams" in parts:
        results["streams"] = streams(torch, rng)
        show_streams(results["streams"])
        common.write("cuda_kernels", results, device=facts, notes=notes(results))
    if "rows" in parts:
        results["rows"] = short_rows(torch, rng)
        show_rows(results["rows"])
    if "sums" in parts:
        results["sums"] = sums(torch, rng)
        show_sums(results["sums"])
    print(common.write("cuda_kernels", results, device=facts, notes=notes(results)))


def show_streams(rows: list[dict[str, Any]]) -> None:
    kinds = ("magmagraph", "torch", "torch.compile", "copy")
    common.table(
        [
            (r["name"], *(f"{r['bytes'] / r[k] / 1e6:.2f}" for k in kinds),
             *(f"{r[k]:.1f}" for k in kinds))
            for r in rows
        ],
        ("kernel", "TB/s", *kinds[1:], "us", *kinds[1:]),
    )


def show_rows(rows: list[dict[str, Any]]) -> None:
    kinds = ("magmagraph", "torch")
    common.table(
        [
            (f"{r['name']} {ROWS} x {r['columns']} {r['dtype']}",
             *(f"{r[k]:.2f}" for k in kinds))
            for r in rows
        ],
        ("rows", "us", *kinds[1:]),
    )


def show_sums(rows: list[dict[str, Any]]) -> None:
    kinds = ("magmagraph", *SUMMED)
    common.table(
        [
            (f"{r['shape']}, {r['axis']}",
             *("-" if r[k] is None else f"{r[k]:.1f}" for k in kinds))
            for r in rows
        ],
        ("sum, axis", "us", *kinds[1:]),
    )


if __name__ == "__main__":
    main()
