"""Measure: everyday programs on a GPU beside JAX's jit and torch.compile, compiled as users would.

Every program is written for each library in its own words, takes arrays that are on the device and
returns fresh ones. The time is that of a call among many queued ones, to the end of the last: the
larger of what the host and the device need. First calls (tracing, compiling, running) are timed
too. Results are compared with the peers' within a tolerance; a program that differs has no ratio.

``python benchmarks/cuda_programs.py`` measures all; ``--only WORD`` those whose name or class holds
a word; ``--library NAME`` runs one library alone; ``--check`` runs them on small arrays, on the CPU
where there is no GPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import side_by_side
from side_by_side import both, integers, normal

PROGRAMS = side_by_side.Programs()
add = PROGRAMS.add

# ---- Elementwise work and rows


def _rms_gate(xp: Any, x: Any, gate: Any, w: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, -1, keepdims=True) + 1e-6) * w * gate


add("x + 1 of 10", "calls", normal((10,)), lambda xp, x: x + 1)
add(
    "swish of a sum, 64 x 256",
    "calls",
    normal((64, 100), (100,)),
    lambda xp, x, b: (x + b) / (1 + xp.exp(-x - b)),
)
add(
    "rms norm x gate, 16384 x 4096",
    "rows",
    normal((16384, 4096), (16384, 4096), (4096,)),
    _rms_gate,
)
add(
    "polynomial and clip, 2^26",
    "elementwise",
    normal((1 << 26,)),
    lambda xp, x: xp.clip(((0.3 * x + 0.7) * x - 1.1) * x + 0.2, -2.0, 2.0),
    torch=lambda xp, x: xp.clamp(((0.3 * x + 0.7) * x - 1.1) * x + 0.2, -2.0, 2.0),
)
add(
    "softmax cross-entropy rows, 8192 x 10000",
    "rows",
    both(normal((8192, 10000)), integers(600, 8192)),
    lambda xp, x, t: xp.mean(xp.logsumexp(x, -1) - xp.take_along_axis(x, t[:, None], -1)[:, 0]),
    jax=lambda xp, x, t: xp.mean(
        xp.jax.nn.logsumexp(x, -1) - xp.take_along_axis(x, t[:, None], -1)[:, 0]
    ),
    torch=lambda xp, x, t: xp.nn.functional.cross_entropy(x, t.long()),
)
add(
    "layer norm and gelu, 65536 x 333",
    "rows",
    normal((65536, 333)),
    lambda xp, x: xp.gelu(
        (x - xp.mean(x, -1, keepdims=True)) / xp.sqrt(xp.var(x, -1, keepdims=True) + 1e-5)
    ),
    jax=lambda xp, x: xp.jax.nn.gelu(
        (x - xp.mean(x, -1, keepdims=True)) / xp.sqrt(xp.var(x, -1, keepdims=True) + 1e-5), False
    ),
    torch=lambda xp, x: xp.nn.functional.gelu(xp.nn.functional.layer_norm(x, x.shape[-1:])),
)
add(
    "gradient of a robust loss, 2^24",
    "gradients",
    normal((1 << 24,), (1 << 24,)),
    lambda xp, x, y: xp.grad(xp.mean(xp.log1p((x - y) ** 2)), x),
    jax=lambda xp, x, y: xp.jax.grad(lambda x: xp.mean(xp.log1p((x - y) ** 2)))(x),
    torch=lambda xp, x, y: xp.func.grad(lambda x: xp.mean(xp.log1p((x - y) ** 2)))(x),
)

# ---- Orders of axes, sums over axes

add(
    "transpose(u) * 2 + b, 8192",
    "transposes",
    normal((8192, 8192), (8192, 8192)),
    lambda xp, u, b: xp.transpose(u) * 2 + b,
    torch=lambda xp, u, b: u.T * 2 + b,
)
add(
    "channels last to first, 64 x 128 x 128 x 64",
    "transposes",
    normal((64, 128, 128, 64), (64,)),
    lambda xp, x, b: xp.transpose(x + b, (0, 3, 1, 2)),
    torch=lambda xp, x, b: (x + b).permute(0, 3, 1, 2).contiguous(),
)
add(
    "symmetric part, 4096",
    "transposes",
    normal((4096, 4096)),
    lambda xp, a: 0.5 * (a + xp.transpose(a)),
    torch=lambda xp, a: 0.5 * (a + a.T),
)
add(
    "std over axis 0, 8192",
    "sums",
    normal((8192, 8192)),
    lambda xp, x: xp.std(x, 0),
    torch=lambda xp, x: xp.std(x, 0, correction=0),
)
add(
    "means over axes 0 and 2, 64 x 256 x 56 x 56",
    "sums",
    normal((64, 256, 56, 56)),
    lambda xp, x: xp.mean(x * x, (0, 2, 3)),
)
add(
    "sums over axis 1, 256 x 1000 x 256",
    "sums",
    normal((256, 1000, 256)),
    lambda xp, x: xp.sum(xp.exp(-x * x), 1),
)
add(
    "row sums and column sums at once, 4096",
    "sums",
    normal((4096, 4096)),
    lambda xp, x: (xp.sum(x * x, 0), xp.sum(x * x, 1)),
)
add("argmax of rows, 8192", "sums", normal((8192, 8192)), lambda xp, x: xp.argmax(x, -1))
add("argmin over axis 0, 8192", "sums", normal((8192, 8192)), lambda xp, x: xp.argmin(x, 0))

# ---- Slices, rolls, pads


def _five_points(xp: Any, u: Any) -> Any:
    return u[1:-1, 1:-1] + 0.1 * (
        u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    )


def _rolled(xp: Any, u: Any) -> Any:
    moved = (xp.roll(u, s, a) for a in (0, 1) for s in (1, -1))
    return u + 0.1 * (sum(moved) - 4 * u)


def _blur(xp: Any, x: Any) -> Any:
    padded = xp.pad(x, ((1, 1), (1, 1)))
    n, m = x.shape
    return sum(padded[i : i + n, j : j + m] for i in range(3) for j in range(3)) / 9


add("five points by slices, 4096", "stencils", normal((4096, 4096)), _five_points)
add("five points by rolls, 4096", "stencils", normal((4096, 4096)), _rolled)
add(
    "blur by pad and slices, 4096",
    "stencils",
    normal((4096, 4096)),
    _blur,
    torch=lambda xp, x: _blur(_Padded(xp), x),
)
add(
    "differences and their norm, 2^24",
    "stencils",
    normal((1 << 24,)),
    lambda xp, x: xp.sum((x[1:] - x[:-1]) ** 2),
)

# ---- Scans along an axis, sorts, counts

add(
    "cumsum of an expression, rows, 4096",
    "scans",
    normal((4096, 4096), (4096, 4096)),
    lambda xp, x, y: xp.cumsum(x * y, 1),
)
add("cumsum over axis 0, 4096", "scans", normal((4096, 4096)), lambda xp, x: xp.cumsum(x, 0))
add(
    "running maximum, 1000 x 20000",
    "scans",
    normal((1000, 20000)),
    lambda xp, x: xp.cummax(x, 1),
    jax=lambda xp, x: xp.jax.lax.cummax(x, 1),
    torch=lambda xp, x: xp.cummax(x, 1).values,
)
add("cumsum of 2^24", "scans", normal((1 << 24,)), lambda xp, x: xp.cumsum(x, 0))
add(
    "sort of rows, 1024 x 4096",
    "sorts",
    normal((1024, 4096)),
    lambda xp, x: xp.sort(x, -1),
    torch=lambda xp, x: xp.sort(x, -1).values,
)
add("argsort of rows, 4096 x 300", "sorts", normal((4096, 300)), lambda xp, x: xp.argsort(x, -1))
add(
    "sort of 2^20",
    "sorts",
    normal((1 << 20,)),
    lambda xp, x: xp.sort(x, 0),
    torch=lambda xp, x: xp.sort(x, 0).values,
)
add(
    "the 50 largest of rows, 256 x 50000",
    "sorts",
    normal((256, 50000)),
    lambda xp, x: xp.top_k(x, 50).values,
    jax=lambda xp, x: xp.jax.lax.top_k(x, 50)[0],
    torch=lambda xp, x: xp.topk(x, 50).values,
)
add(
    "medians of rows, 4096 x 501",
    "sorts",
    normal((4096, 501)),
    lambda xp, x: xp.median(x, -1),
    torch=lambda xp, x: xp.median(x, -1).values,
)
add(
    "count of 10^7 in 1000",
    "counts",
    lambda rng, d: [rng.integers(0, 1000, 10_000_000 // d).astype(np.int32)],
    lambda xp, x: xp.bincount(x, length=1000),
    jax=lambda xp, x: xp.bincount(x, length=1000),
    torch=lambda xp, x: xp.bincount(x, minlength=1000),
)
add(
    "sums of rows by group, 10^6 x 32 in 1000",
    "counts",
    lambda rng, d: [
        rng.standard_normal((1_000_000 // d, 32)).astype(np.float32),
        rng.integers(0, 1000, 1_000_000 // d).astype(np.int32),
    ],
    lambda xp, x, g: xp.zeros((1000, 32)).at[g].add(x),
    torch=lambda xp, x, g: xp.zeros((1000, 32), device=x.device).index_add(0, g, x),
)
add(
    "rows of a table and their gradient",
    "counts",
    both(normal((32000, 256)), integers(1000, 65536)),
    lambda xp, w, i: xp.grad(xp.sum(xp.tanh(w[i])), w),
    jax=lambda xp, w, i: xp.jax.grad(lambda w: xp.sum(xp.tanh(w[i])))(w),
    torch=lambda xp, w, i: xp.func.grad(lambda w: xp.sum(xp.tanh(w[i])))(w),
)

# ---- Pairs, products


def _energy(xp: Any, p: Any) -> Any:
    d = p[:, None, :] - p[None, :, :]
    return -xp.sum(1 / xp.sqrt(xp.sum(d * d, -1) + 0.1))


add(
    "n-body forces, 4096 points",
    "pairs",
    normal((4096, 3)),
    lambda xp, p: xp.grad(_energy(xp, p), p),
    jax=lambda xp, p: xp.jax.grad(lambda p: _energy(xp, p))(p),
    torch=lambda xp, p: xp.func.grad(lambda p: _energy(xp, p))(p),
)
add(
    "nearest of 4096 points, 8 numbers each",
    "pairs",
    normal((8192, 8), (4096, 8)),
    lambda xp, a, b: xp.min(xp.sum((a[:, None] - b[None]) ** 2, -1), 1),
    torch=lambda xp, a, b: xp.amin(xp.sum((a[:, None] - b[None]) ** 2, -1), 1),
)
add(
    "kernel matrix times vector, 8192",
    "pairs",
    normal((8192, 3), (8192, 3), (8192,)),
    lambda xp, a, b, v: xp.sum(xp.exp(-xp.sum((a[:, None] - b[None]) ** 2, -1)) * v, 1),
)
add(
    "10^5 products of 4 x 4",
    "small products",
    normal((100_000, 4, 4), (100_000, 4, 4)),
    lambda xp, a, b: a @ b,
)
add(
    "4096 products of 16 x 16 and tanh",
    "small products",
    normal((4096, 16, 16), (4096, 16, 16)),
    lambda xp, a, b: xp.tanh(a @ b) @ b,
)
add(
    "product, bias, gelu, product, 4096",
    "products",
    normal((4096, 1024), (1024, 4096), (4096,), (4096, 1024)),
    lambda xp, x, a, b, c: xp.gelu(x @ a + b) @ c,
    jax=lambda xp, x, a, b, c: xp.jax.nn.gelu(x @ a + b, False) @ c,
    torch=lambda xp, x, a, b, c: xp.nn.functional.gelu(x @ a + b) @ c,
)

# ---- Loops


def _mg_heat(xp: Any, u: Any) -> Any:
    return xp.scan(lambda u, _: (_rolled(xp, u), None), u, length=100)[0]


def _jax_heat(xp: Any, u: Any) -> Any:
    return xp.jax.lax.scan(lambda u, _: (_rolled(xp, u), None), u, length=100)[0]


def _torch_heat(xp: Any, u: Any) -> Any:
    for _ in range(100):
        u = _rolled(xp, u)
    return u


def _power(scan: Any, xp: Any, a: Any, x: Any) -> Any:
    def step(x: Any, _: Any) -> tuple[Any, None]:
        y = a @ x
        return y / xp.sqrt(xp.sum(y * y)), None

    return scan(step, x, length=200)[0]


def _torch_scan(step: Any, x: Any, length: int) -> Any:
    for _ in range(length):
        x, _ = step(x, None)
    return x, None


def _recurrent(scan: Any, xp: Any, x: Any, w: Any, u: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = xp.tanh(x @ w + h @ u)
        return h, xp.sum(h)

    return xp.sum(scan(step, xp.zeros_like(x[0]), x)[1])


add(
    "heat equation, 100 steps of 1024",
    "loops",
    normal((1024, 1024)),
    _mg_heat,
    _jax_heat,
    _torch_heat,
)
add(
    "power iteration, 200 steps of 512",
    "loops",
    normal((512, 512), (512,)),
    lambda xp, a, x: _power(xp.scan, xp, a, x),
    jax=lambda xp, a, x: _power(xp.jax.lax.scan, xp, a, x),
    torch=lambda xp, a, x: _power(_torch_scan, xp, a, x),
)
add(
    "gradient of a recurrent network, 100 steps",
    "loops",
    normal((100, 64, 256), (256, 256), (256, 256)),
    lambda xp, x, w, u: xp.grad(_recurrent(xp.scan, xp, 0.1 * x, 0.1 * w, 0.1 * u), [w, u]),
    jax=lambda xp, x, w, u: xp.jax.grad(
        lambda w, u: _recurrent(xp.jax.lax.scan, xp, 0.1 * x, 0.1 * w, 0.1 * u), (0, 1)
    )(w, u),
    torch=None,
)
add(
    "Newton's method until it converges, 2^16",
    "loops",
    normal((1 << 16,)),
    lambda xp, x: xp.while_loop(
        lambda s: xp.logical_and(s[1] < 100, xp.max(xp.abs(s[0] ** 3 - 2)) > 1e-4),
        lambda s: (s[0] - (s[0] ** 3 - 2) / (3 * s[0] ** 2), s[1] + 1),
        (xp.abs(x) + 1.0, xp.asarray(0)),
    )[0],
    jax=lambda xp, x: xp.jax.lax.while_loop(
        lambda s: xp.logical_and(s[1] < 100, xp.max(xp.abs(s[0] ** 3 - 2)) > 1e-4),
        lambda s: (s[0] - (s[0] ** 3 - 2) / (3 * s[0] ** 2), s[1] + 1),
        (xp.abs(x) + 1.0, 0),
    )[0],
    torch=None,
)

# ---- Random numbers, linear algebra, transforms

add(
    "pi by 10^7 random points",
    "random",
    normal((2,)),
    lambda xp, x: xp.mean(
        xp.random.uniform((10_000_000,), key=xp.random.key(0)) ** 2
        + xp.random.uniform((10_000_000,), key=xp.random.key(1)) ** 2
        < 1.0 + 0.0 * x[0]
    ),
    jax=lambda xp, x: xp.mean(
        xp.jax.random.uniform(xp.jax.random.key(0), (10_000_000,)) ** 2
        + xp.jax.random.uniform(xp.jax.random.key(1), (10_000_000,)) ** 2
        < 1.0 + 0.0 * x[0]
    ),
    torch=lambda xp, x: xp.mean(
        (
            xp.rand(10_000_000, device=x.device) ** 2 + xp.rand(10_000_000, device=x.device) ** 2
            < 1.0 + 0.0 * x[0]
        ).float()
    ),
    compare=False,
)
add(
    "noise through tanh, 4096",
    "random",
    normal((4096, 4096)),
    lambda xp, x: xp.tanh(x + 0.1 * xp.random.normal(x.shape, key=xp.random.key(0))),
    jax=lambda xp, x: xp.tanh(x + 0.1 * xp.jax.random.normal(xp.jax.random.key(0), x.shape)),
    torch=lambda xp, x: xp.tanh(x + 0.1 * xp.randn_like(x)),
    compare=False,
)


def _positive(xp: Any, x: Any) -> Any:
    n = x.shape[-1]
    return x @ xp.swapaxes(x, -1, -2) + n * xp.eye(n)


def _log_determinants(xp: Any, x: Any) -> Any:
    factor = xp.linalg.cholesky(_positive(xp, x))
    return 2 * xp.sum(xp.log(xp.diagonal(factor, axis1=-2, axis2=-1)), -1)


def _torch_log_determinants(xp: Any, x: Any) -> Any:
    n = x.shape[-1]
    factor = xp.linalg.cholesky(x @ x.mT + n * xp.eye(n, device=x.device))
    return 2 * xp.sum(xp.log(xp.diagonal(factor, dim1=-2, dim2=-1)), -1)


add(
    "Cholesky and log-determinant, 512 of 64",
    "linear algebra",
    normal((512, 64, 64)),
    _log_determinants,
    torch=_torch_log_determinants,
)
add(
    "solutions, 10^4 of 6 x 6",
    "linear algebra",
    normal((10_000, 6, 6), (10_000, 6, 1)),
    lambda xp, a, b: xp.linalg.solve(_positive(xp, a), b),
    torch=lambda xp, a, b: xp.linalg.solve(a @ a.mT + 6 * xp.eye(6, device=a.device), b),
)
add(
    "least squares by QR, 20000 x 64",
    "linear algebra",
    normal((20_000, 64), (20_000,)),
    lambda xp, a, b: xp.linalg.solve(xp.swapaxes(a, 0, 1) @ a, xp.swapaxes(a, 0, 1) @ b),
)
add(
    "fft2, filter, ifft2, 4096",
    "transforms",
    normal((2048, 2048)),
    lambda xp, x: xp.real(xp.fft.ifft2(xp.fft.fft2(x) * 0.5)),
    torch=lambda xp, x: xp.fft.ifft2(xp.fft.fft2(x) * 0.5).real,
)


# ---- Networks


def _attention(xp: Any, softmax: Any, q: Any, k: Any, v: Any) -> Any:
    n = q.shape[-2]
    scores = q @ xp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    seen = xp.arange(n)[:, None] >= xp.arange(n)[None, :]
    return softmax(xp.where(seen, scores, -1e9), -1) @ v


def _torch_attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    return xp.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


HEADS = ((8, 12, 1000, 64),) * 3
add(
    "causal attention by hand, 8 x 12 x 1000",
    "attention",
    normal(*HEADS),
    lambda xp, q, k, v: _attention(xp, xp.softmax, q, k, v),
    jax=lambda xp, q, k, v: _attention(xp, xp.jax.nn.softmax, q, k, v),
    torch=_torch_attention,
)
add(
    "its gradient",
    "attention",
    normal(*HEADS),
    lambda xp, q, k, v: xp.grad(xp.sum(_attention(xp, xp.softmax, q, k, v) ** 2), [q, k, v]),
    jax=lambda xp, q, k, v: xp.jax.grad(
        lambda q, k, v: xp.sum(_attention(xp, xp.jax.nn.softmax, q, k, v) ** 2), (0, 1, 2)
    )(q, k, v),
    torch=lambda xp, q, k, v: xp.func.grad(
        lambda q, k, v: xp.sum(_torch_attention(xp, q, k, v) ** 2), (0, 1, 2)
    )(q, k, v),
)


def _network_loss(xp: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.mean((xp.tanh(xp.tanh(x @ (0.05 * a)) @ (0.05 * b)) @ (0.05 * c)) ** 2)


add(
    "gradients of a small network, 256 x 512",
    "networks",
    normal((256, 784), (784, 512), (512, 512), (512, 10)),
    lambda xp, x, *w: xp.grad(_network_loss(xp, x, *w), list(w)),
    jax=lambda xp, x, *w: xp.jax.grad(lambda *w: _network_loss(xp, x, *w), (0, 1, 2))(*w),
    torch=lambda xp, x, *w: xp.func.grad(lambda *w: _network_loss(xp, x, *w), (0, 1, 2))(*w),
)
add(
    "Hessian times vector, logistic, 20000 x 500",
    "gradients",
    normal((20_000, 500), (500,), (500,)),
    lambda xp, x, w, v: xp.hvp(xp.mean(xp.logaddexp(0.0, x @ w)), w, v),
    jax=lambda xp, x, w, v: xp.jax.jvp(
        xp.jax.grad(lambda w: xp.mean(xp.logaddexp(0.0, x @ w))), (w,), (v,)
    )[1],
    torch=lambda xp, x, w, v: xp.func.jvp(
        xp.func.grad(lambda w: xp.mean(xp.nn.functional.softplus(x @ w))), (w,), (v,)
    )[1],
)


class _Padded:
    """torch with NumPy's pad of a matrix by zeros."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def pad(self, x: Any, width: Any) -> Any:
        (top, bottom), (left, right) = width
        return self._torch.nn.functional.pad(x, (left, right, top, bottom))


def main() -> None:
    """Measure, print the table and write the results."""

    def facts() -> dict[str, Any]:
        import cuda_common

        return {"device": cuda_common.device_facts()}

    side_by_side.Suite(
        "cuda_programs", "Everyday programs on a GPU.", __doc__, PROGRAMS, device="cuda",
        environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, facts=facts,
    ).main()  # fmt: skip


if __name__ == "__main__":
    main()
