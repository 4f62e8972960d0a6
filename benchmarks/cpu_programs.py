"""Measure: everyday programs on the CPU beside JAX's jit and torch.compile, as users write them.

Every program is written for each library in its own words, takes arrays and returns fresh ones. The
time is that of a call to its end, the median of rounds in which each library runs in turn; the
least of the rounds is kept too, as it shows less of what else the machine does. First calls
(tracing, compiling, running) are timed. Results are compared with the peers' within a tolerance; a
program that differs has no ratio. Loops of many steps are left out of torch.compile, which unrolls
them.

``python benchmarks/cpu_programs.py`` measures all; ``--only WORD`` those whose name or class holds
a word; ``--library NAME`` runs one library alone; ``--check`` runs them on small arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import side_by_side
from side_by_side import SAME, both, divided, integers, normal

PROGRAMS = side_by_side.Programs()
add = PROGRAMS.add


def with_scan(program: Any) -> dict[str, Any]:
    """Return the words of a program of `scan` for us and JAX; torch would unroll it."""
    return {
        "mg": lambda xp, *given: program(xp, xp.scan, *given),
        "jax": lambda xp, *given: program(xp, xp.jax.lax.scan, *given),
        "torch": None,
    }


def gradient(loss: Any, count: int, torch: Any = SAME) -> dict[str, Any]:
    """Return the words for the gradients of a loss by its last `count` operands."""

    def by_function(grad: Any, loss: Any, xp: Any, given: Any) -> Any:
        fixed, moving = given[:-count], given[-count:]
        return grad(lambda *w: loss(xp, *fixed, *w), tuple(range(count)))(*moving)

    torch_loss = loss if torch is SAME else torch
    words = {
        "mg": lambda xp, *given: xp.grad(loss(xp, *given), list(given[-count:])),
        "jax": lambda xp, *given: by_function(xp.jax.grad, loss, xp, given),
        "torch": None,
    }
    if torch is not None:
        words["torch"] = lambda xp, *given: by_function(xp.func.grad, torch_loss, xp, given)
    return words


# ---- Sums by group, counts


def _groups(rows: int, width: int, groups: int) -> Any:
    def make(rng: np.random.Generator, divisor: int) -> list[np.ndarray]:
        count = divided(rows, divisor)
        return [
            rng.standard_normal((count, width)).astype(np.float32),
            rng.integers(0, groups, count).astype(np.int32),
        ]

    return make


def _graph(nodes: int, edges: int, width: int) -> Any:
    def make(rng: np.random.Generator, divisor: int) -> list[np.ndarray]:
        count, ends = divided(nodes, divisor), divided(edges, divisor)
        return [
            rng.standard_normal((count, width)).astype(np.float32),
            (rng.standard_normal((width, width)) / math.sqrt(width)).astype(np.float32),
            rng.integers(0, count, ends).astype(np.int32),
            rng.integers(0, count, ends).astype(np.int32),
        ]

    return make


def _messages(xp: Any, x: Any, w: Any, source: Any, target: Any) -> Any:
    h = x @ w
    return xp.tanh(xp.zeros_like(h).at[target].add(h[source]))


def _torch_messages(xp: Any, x: Any, w: Any, source: Any, target: Any) -> Any:
    h = x @ w
    return xp.tanh(xp.zeros_like(h).index_add(0, target, h[source]))


def _group_means(xp: Any, x: Any, g: Any) -> Any:
    sums = xp.zeros((500, x.shape[1])).at[g].add(x)
    counts = xp.zeros((500,)).at[g].add(1.0)
    return sums / xp.maximum(counts, 1.0)[:, None]


def _torch_group_means(xp: Any, x: Any, g: Any) -> Any:
    sums = xp.zeros((500, x.shape[1])).index_add(0, g, x)
    counts = xp.bincount(g, minlength=500)
    return sums / xp.clamp(counts, min=1.0)[:, None]


add("messages along the edges of a graph", "groups", _graph(10_000, 100_000, 32), _messages,
    torch=_torch_messages)  # fmt: skip
add(
    "gradient of messages", "groups", _graph(5_000, 50_000, 64),
    lambda xp, x, w, s, t: xp.grad(xp.sum(_messages(xp, x, w, s, t) ** 2), [x, w]),
    lambda xp, x, w, s, t: xp.jax.grad(
        lambda x, w: xp.sum(_messages(xp, x, w, s, t) ** 2), (0, 1)
    )(x, w),
    lambda xp, x, w, s, t: xp.func.grad(
        lambda x, w: xp.sum(_torch_messages(xp, x, w, s, t) ** 2), (0, 1)
    )(x, w),
)  # fmt: skip
add("means of rows by group", "groups", _groups(200_000, 16, 500), _group_means,
    torch=_torch_group_means)  # fmt: skip
add(
    "largest of rows by group", "groups", _groups(100_000, 8, 500),
    lambda xp, x, g: xp.full((500, x.shape[1]), -9.0).at[g].max(x),
    torch=lambda xp, x, g: xp.full((500, x.shape[1]), -9.0).index_reduce(0, g, x, "amax"),
)  # fmt: skip
add(
    "weighted counts, 10^6 in 1000", "counts",
    both(normal((1_000_000,)), integers(1000, 1_000_000)),
    lambda xp, w, i: xp.bincount(i, weights=w, length=1000),
    torch=lambda xp, w, i: xp.bincount(i, weights=w, minlength=1000),
)  # fmt: skip
add(
    "histogram of 10^6 in 100", "counts", normal((1_000_000,)),
    lambda xp, x: xp.histogram(x, bins=100, range=(-3.0, 3.0))[0],
    torch=lambda xp, x: xp.histc(x, bins=100, min=-3.0, max=3.0),
)  # fmt: skip


def _joint_counts(xp: Any, x: Any, y: Any) -> Any:
    i = xp.clip(xp.floor((x + 4.0) * 4.0), 0.0, 31.0)
    j = xp.clip(xp.floor((y + 4.0) * 4.0), 0.0, 31.0)
    return xp.bincount((i * 32.0 + j).astype("int32"), length=1024)


def _torch_joint_counts(xp: Any, x: Any, y: Any) -> Any:
    i = xp.clamp(xp.floor((x + 4.0) * 4.0), 0.0, 31.0)
    j = xp.clamp(xp.floor((y + 4.0) * 4.0), 0.0, 31.0)
    return xp.bincount((i * 32.0 + j).int(), minlength=1024)


add("counts of pairs, 500000 in 32 x 32", "counts", normal((500_000,), (500_000,)), _joint_counts,
    torch=_torch_joint_counts)  # fmt: skip


def _lloyd(xp: Any, x: Any, c: Any) -> Any:
    distance = xp.sum(c * c, 1)[None, :] - 2.0 * (x @ xp.swapaxes(c, 0, 1))
    nearest = xp.argmin(distance, 1)
    sums = xp.zeros_like(c).at[nearest].add(x)
    counts = xp.zeros((c.shape[0],)).at[nearest].add(1.0)
    return sums / xp.maximum(counts, 1.0)[:, None]


def _torch_lloyd(xp: Any, x: Any, c: Any) -> Any:
    distance = xp.sum(c * c, 1)[None, :] - 2.0 * (x @ c.T)
    nearest = xp.argmin(distance, 1)
    sums = xp.zeros_like(c).index_add(0, nearest, x)
    counts = xp.bincount(nearest, minlength=c.shape[0])
    return sums / xp.clamp(counts, min=1.0)[:, None]


add("a step of k-means, 50000 x 8, 50 centres", "groups", normal((50_000, 8), (50, 8)), _lloyd,
    torch=_torch_lloyd)  # fmt: skip

# ---- Sorts

add(
    "the 20 largest of rows, 64 x 50000", "sorts", normal((64, 50_000)),
    lambda xp, x: xp.top_k(x, 20).values,
    lambda xp, x: xp.jax.lax.top_k(x, 20)[0],
    lambda xp, x: xp.topk(x, 20).values,
)  # fmt: skip


def _near(xp: Any, a: Any, b: Any) -> Any:
    return xp.sum(a * a, 1)[:, None] + xp.sum(b * b, 1)[None] - 2.0 * (a @ xp.swapaxes(b, 0, 1))


add(
    "the 10 nearest of 4000 points", "sorts", normal((1000, 16), (4000, 16)),
    lambda xp, a, b: xp.top_k(-_near(xp, a, b), 10).values,
    lambda xp, a, b: xp.jax.lax.top_k(-_near(xp, a, b), 10)[0],
    lambda xp, a, b: xp.topk(-_near(xp, a, b), 10).values,
)  # fmt: skip
add(
    "medians of rows, 4096 x 501", "sorts", normal((4096, 501)),
    lambda xp, x: xp.median(x, -1),
    torch=lambda xp, x: xp.median(x, -1).values,
)  # fmt: skip
add(
    "quantiles over axis 0, 10000 x 50", "sorts", normal((10_000, 50)),
    lambda xp, x: xp.quantile(x, (0.25, 0.75), 0),
    lambda xp, x: xp.quantile(x, xp.array((0.25, 0.75)), 0),
    lambda xp, x: xp.quantile(x, xp.tensor((0.25, 0.75)), 0),
)  # fmt: skip
add(
    "sort of 10^6", "sorts", normal((1_000_000,)),
    lambda xp, x: xp.sort(x, 0),
    torch=lambda xp, x: xp.sort(x, 0).values,
)  # fmt: skip
add("argsort of rows, 1000 x 1000", "sorts", normal((1000, 1000)),
    lambda xp, x: xp.argsort(x, -1))  # fmt: skip

# ---- Products with weights, statistics


def _newton(xp: Any, a: Any, y: Any, b: Any) -> Any:
    p = 1 / (1 + xp.exp(-(a @ b)))
    t = xp.swapaxes(a, 0, 1)
    hessian = t @ (a * (p * (1 - p))[:, None]) + 0.1 * xp.eye(a.shape[1])
    return b - xp.linalg.solve(hessian, t @ (p - y) + 0.1 * b)


add("a Newton step of logistic regression, 20000 x 50", "products",
    normal((20_000, 50), (20_000,), (50,)), _newton)  # fmt: skip


def _weighted(xp: Any, a: Any, w: Any, y: Any) -> Any:
    t = xp.swapaxes(a, 0, 1)
    weights = xp.exp(0.3 * w)[:, None]
    return xp.linalg.solve(t @ (weights * a), (t @ (weights * y[:, None]))[:, 0])


add("weighted least squares, 5000 x 200", "products", normal((5000, 200), (5000,), (5000,)),
    _weighted)  # fmt: skip


def _correlation(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, 0, keepdims=True)
    scaled = centred / xp.sqrt(xp.mean(centred * centred, 0, keepdims=True))
    return xp.swapaxes(scaled, 0, 1) @ scaled / x.shape[0]


add("correlations of 200 columns of 10000", "products", normal((10_000, 200)), _correlation)
add(
    "std over axis 0, 4096 x 1024", "sums", normal((4096, 1024)),
    lambda xp, x: xp.std(x, 0),
    torch=lambda xp, x: xp.std(x, 0, correction=0),
)  # fmt: skip
add(
    "standard scores of columns, 100000 x 20", "sums", normal((100_000, 20)),
    lambda xp, x: (x - xp.mean(x, 0)) / (xp.std(x, 0) + 1e-6),
    torch=lambda xp, x: (x - xp.mean(x, 0)) / (xp.std(x, 0, correction=0) + 1e-6),
)  # fmt: skip
add(
    "softmax cross-entropy rows, 2048 x 1000", "rows",
    both(normal((2048, 1000)), integers(60, 2048)),
    lambda xp, x, t: xp.mean(xp.logsumexp(x, -1) - xp.take_along_axis(x, t[:, None], -1)[:, 0]),
    jax=lambda xp, x, t: xp.mean(
        xp.jax.nn.logsumexp(x, -1) - xp.take_along_axis(x, t[:, None], -1)[:, 0]
    ),
    torch=lambda xp, x, t: xp.nn.functional.cross_entropy(x, t.long()),
)  # fmt: skip
add(
    "cumulative sums of products, 1000 x 2000", "scans", normal((1000, 2000), (1000, 2000)),
    lambda xp, x, y: xp.cumsum(x * y, 1),
)  # fmt: skip
add(
    "drawdown of prices, 500 x 2000", "scans", normal((500, 2000)),
    lambda xp, r: xp.max(xp.cummax(xp.cumsum(r, 1), 1) - xp.cumsum(r, 1), 1),
    lambda xp, r: xp.max(xp.jax.lax.cummax(xp.cumsum(r, 1), 1) - xp.cumsum(r, 1), 1),
    lambda xp, r: xp.amax(xp.cummax(xp.cumsum(r, 1), 1).values - xp.cumsum(r, 1), 1),
)  # fmt: skip

# ---- Loops


def _pendulums(xp: Any, scan: Any, q: Any, p: Any) -> Any:
    def small(state: Any, _: Any) -> tuple[Any, None]:
        q, p = state
        p = p - 0.01 * xp.sin(q)
        return (q + 0.01 * p, p), None

    def large(state: Any, _: Any) -> tuple[Any, Any]:
        state, _ = scan(small, state, None, length=20)
        return state, xp.mean(state[0])

    return scan(large, (q, p), None, length=100)[1]


add("two nested scans, 100 x 20 steps of 64 pendulums", "loops", normal((64,), (64,)),
    **with_scan(_pendulums))  # fmt: skip


def _relaxation(xp: Any, scan: Any, a: Any, b: Any) -> Any:
    def inner(x: Any, _: Any) -> tuple[Any, None]:
        return x - 0.1 * (a @ x - b), None

    def outer(x: Any, _: Any) -> tuple[Any, Any]:
        x, _ = scan(inner, x, None, length=10)
        return x / (1.0 + xp.sum(x * x)), xp.sum(x)

    return scan(outer, b, None, length=50)[1]


add(
    "two nested scans with products of 16 x 16", "loops",
    lambda rng, d: [
        (np.eye(16) + 0.1 * rng.standard_normal((16, 16))).astype(np.float32),
        rng.standard_normal(16).astype(np.float32),
    ],
    **with_scan(_relaxation),
)  # fmt: skip


def _predators(xp: Any, scan: Any, x: Any, y: Any) -> Any:
    def rate(x: Any, y: Any) -> tuple[Any, Any]:
        return x * (1.0 - 0.5 * y), y * (0.4 * x - 0.6)

    def step(state: Any, _: Any) -> tuple[Any, Any]:
        x, y = state
        a, b = rate(x, y)
        c, d = rate(x + 0.005 * a, y + 0.005 * b)
        e, f = rate(x + 0.005 * c, y + 0.005 * d)
        g, h = rate(x + 0.01 * e, y + 0.01 * f)
        x = x + 0.01 / 6 * (a + 2 * c + 2 * e + g)
        y = y + 0.01 / 6 * (b + 2 * d + 2 * f + h)
        return (x, y), xp.max(x)

    return scan(step, (xp.exp(0.2 * x), xp.exp(0.2 * y)), None, length=500)[1]


add("Runge-Kutta steps of 1000 pairs of animals, 500", "loops", normal((1000,), (1000,)),
    **with_scan(_predators))  # fmt: skip


def _rolled(xp: Any, u: Any) -> Any:
    moved = (xp.roll(u, s, a) for a in (0, 1) for s in (1, -1))
    return u + 0.1 * (sum(moved) - 4 * u)


add(
    "heat equation by rolls, 100 steps of 256 x 256", "loops", normal((256, 256)),
    **with_scan(
        lambda xp, scan, u: scan(lambda u, _: (_rolled(xp, u), None), u, None, length=100)[0]
    ),
)  # fmt: skip


def _mg_noisy(xp: Any, u: Any) -> Any:
    def step(u: Any, _: Any) -> tuple[Any, None]:
        return xp.tanh(_rolled(xp, u)) + 0.1 * xp.random.normal(u.shape), None

    return xp.scan(step, u, length=50)[0]


def _jax_noisy(xp: Any, u: Any) -> Any:
    random = xp.jax.random

    def step(u: Any, key: Any) -> tuple[Any, None]:
        return xp.tanh(_rolled(xp, u)) + 0.1 * random.normal(key, u.shape), None

    return xp.jax.lax.scan(step, u, random.split(random.key(0), 50))[0]


add("a noisy field by rolls, 50 steps of 128 x 128", "loops", normal((128, 128)), _mg_noisy,
    _jax_noisy, None, compare=False)  # fmt: skip


def _recurrent_loss(xp: Any, scan: Any, x: Any, w: Any, u: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = xp.tanh(x @ w + h @ u)
        return h, xp.sum(h)

    return xp.sum(scan(step, xp.zeros_like(x[0]), 0.3 * x)[1])


add(
    "gradient of a recurrent network, 50 steps", "loops",
    lambda rng, d: [
        rng.standard_normal((50, 32, 64)).astype(np.float32),
        *(0.1 * rng.standard_normal((2, 64, 64))).astype(np.float32),
    ],
    lambda xp, x, w, u: xp.grad(_recurrent_loss(xp, xp.scan, x, w, u), [w, u]),
    lambda xp, x, w, u: xp.jax.grad(
        lambda w, u: _recurrent_loss(xp, xp.jax.lax.scan, x, w, u), (0, 1)
    )(w, u),
    None,
)  # fmt: skip


def _conjugate(xp: Any, loop: Any, a: Any, b: Any) -> Any:
    def going(s: Any) -> Any:
        return xp.logical_and(s[4] < 100, s[3] > 1e-6)

    def step(s: Any) -> Any:
        x, r, p, rho, count = s
        q = a @ p
        alpha = rho / xp.sum(p * q)
        x, r = x + alpha * p, r - alpha * q
        new = xp.sum(r * r)
        return x, r, r + new / rho * p, new, count + 1

    return loop(going, step, (0.0 * b, b, b, xp.sum(b * b), xp.asarray(0)))[0]


def _positive_system(n: int) -> Any:
    def make(rng: np.random.Generator, divisor: int) -> list[np.ndarray]:
        extent = divided(n, divisor)
        a = rng.standard_normal((extent, extent))
        system = a @ a.T / extent + np.eye(extent)
        return [system.astype(np.float32), rng.standard_normal(extent).astype(np.float32)]

    return make


add(
    "conjugate gradients until they converge, 400", "loops", _positive_system(400),
    lambda xp, a, b: _conjugate(xp, xp.while_loop, a, b),
    lambda xp, a, b: _conjugate(xp, xp.jax.lax.while_loop, a, b),
    None,
)  # fmt: skip

# ---- Transforms

add(
    "filter in two dimensions by FFT, 512 x 512", "transforms",
    lambda rng, d: [
        (rng.standard_normal((512 // d, 512 // d)) + 1j * rng.standard_normal((512 // d, 512 // d)))
        .astype(np.complex64)
    ],
    lambda xp, x: xp.real(xp.fft.ifft2(xp.fft.fft2(x) * 0.5)),
)  # fmt: skip


def _poisson(xp: Any, f: Any, k: Any) -> Any:
    return xp.fft.irfftn(xp.fft.rfftn(f) / (1.0 + k), f.shape)


add(
    "Poisson's equation in three dimensions by FFT, 64", "transforms",
    lambda rng, d: [
        rng.standard_normal((64, 64, 64)).astype(np.float32),
        (sum(np.meshgrid(*(np.fft.fftfreq(64) ** 2,) * 3)) * 100)[:, :, :33].astype(np.float32),
    ],
    _poisson,
    torch=lambda xp, f, k: xp.fft.irfftn(xp.fft.rfftn(f) / (1.0 + k), s=f.shape),
)  # fmt: skip
add(
    "power spectra of 1000 signals of 1024", "transforms", normal((1000, 1024)),
    lambda xp, x: xp.mean(xp.abs(xp.fft.rfft(x)) ** 2, 0),
)  # fmt: skip

# ---- Small matrices

add("pseudo-inverses, 200 of 8 x 5", "linear algebra", normal((200, 8, 5)),
    lambda xp, a: xp.linalg.pinv(a))  # fmt: skip


def _positive(xp: Any, x: Any) -> Any:
    return x @ xp.swapaxes(x, -1, -2) + 6.0 * xp.eye(x.shape[-1])


add("solutions, 5000 of 6 x 6", "linear algebra", normal((5000, 6, 6), (5000, 6, 1)),
    lambda xp, a, b: xp.linalg.solve(_positive(xp, a), b))  # fmt: skip
add("20000 products of 4 x 4, and tanh", "linear algebra", normal((20_000, 4, 4), (20_000, 4, 4)),
    lambda xp, a, b: xp.tanh(a @ b) @ b)  # fmt: skip

# ---- Pairs, stencils


def _energy(xp: Any, p: Any) -> Any:
    d = p[:, None, :] - p[None, :, :]
    return -xp.sum(1 / xp.sqrt(xp.sum(d * d, -1) + 0.1))


add("n-body forces, 1000 points", "pairs", normal((1000, 3)), **gradient(_energy, 1))
add(
    "kernel matrix times vector, 2000", "pairs", normal((2000, 3), (2000, 3), (2000,)),
    lambda xp, a, b, v: xp.sum(xp.exp(-xp.sum((a[:, None] - b[None]) ** 2, -1)) * v, 1),
)  # fmt: skip


def _five_points(xp: Any, u: Any) -> Any:
    return u[1:-1, 1:-1] + 0.1 * (
        u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    )


add("five points by slices, 1024", "stencils", normal((1024, 1024)), _five_points)

# ---- Random numbers


def _payoff(xp: Any, spot: Any, z: Any) -> Any:
    return xp.mean(xp.maximum(spot[0] * xp.exp(0.2 * z - 0.02) - 1.0, xp.zeros_like(z)))


add(
    "price of an option by 10^6 draws", "random", normal((1,)),
    lambda xp, s: _payoff(xp, s, xp.random.normal((1_000_000,))),
    lambda xp, s: _payoff(xp, s, xp.jax.random.normal(xp.jax.random.key(0), (1_000_000,))),
    lambda xp, s: _payoff(xp, s, xp.randn(1_000_000)),
    compare=False,
)  # fmt: skip
add(
    "dropout and a sum of rows, 2048 x 1024", "random", normal((2048, 1024)),
    lambda xp, x: xp.sum(xp.where(xp.random.uniform(x.shape) < 0.9, xp.maximum(x, 0.0), 0.0), 1),
    lambda xp, x: xp.sum(
        xp.where(xp.jax.random.uniform(xp.jax.random.key(0), x.shape) < 0.9,
                 xp.maximum(x, 0.0), 0.0), 1
    ),
    lambda xp, x: xp.sum(xp.where(xp.rand(x.shape) < 0.9, xp.relu(x), 0.0), 1),
    compare=False,
)  # fmt: skip
add(
    "random walks and their extremes, 1000 x 1000", "random", normal((1000,)),
    lambda xp, x: xp.max(
        x[:, None] + xp.cumsum(2.0 * (xp.random.uniform((x.shape[0], 1000)) < 0.5) - 1.0, 1), 1
    ),
    lambda xp, x: xp.max(
        x[:, None] + xp.cumsum(
            2.0 * (xp.jax.random.uniform(xp.jax.random.key(0), (x.shape[0], 1000)) < 0.5) - 1.0, 1
        ), 1
    ),
    lambda xp, x: xp.amax(
        x[:, None] + xp.cumsum(2.0 * (xp.rand(x.shape[0], 1000) < 0.5) - 1.0, 1), 1
    ),
    compare=False,
)  # fmt: skip

# ---- Networks


def _loss(xp: Any, x: Any, a: Any, b: Any) -> Any:
    return xp.mean((xp.tanh(x @ (0.05 * a)) @ (0.05 * b)) ** 2)


add("gradients of a small network, 128 x 300", "networks",
    normal((128, 300), (300, 300), (300, 10)), **gradient(_loss, 2))  # fmt: skip
add(
    "rows of a table and their gradient", "networks",
    lambda rng, d: [integers(300, 20_000)(rng, d), *normal((5000, 64))(rng, d)],
    **gradient(lambda xp, i, w: xp.sum(xp.tanh(w[i])), 1),
)  # fmt: skip
add(
    "Hessian times vector, logistic, 10000 x 100", "gradients",
    normal((10_000, 100), (100,), (100,)),
    lambda xp, x, w, v: xp.hvp(xp.mean(xp.logaddexp(0.0, x @ w)), w, v),
    jax=lambda xp, x, w, v: xp.jax.jvp(
        xp.jax.grad(lambda w: xp.mean(xp.logaddexp(0.0, x @ w))), (w,), (v,)
    )[1],
    torch=lambda xp, x, w, v: xp.func.jvp(
        xp.func.grad(lambda w: xp.mean(xp.nn.functional.softplus(x @ w))), (w,), (v,)
    )[1],
)  # fmt: skip


if __name__ == "__main__":
    side_by_side.Suite(
        "cpu_programs", "Everyday programs on the CPU.", __doc__, PROGRAMS, device="cpu",
        environment={"JAX_PLATFORMS": "cpu"},
    ).main()  # fmt: skip
