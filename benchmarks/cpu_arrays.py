"""Claim: array programs that scientists write take at most the best peer's time.

N-body accelerations, Black-Scholes prices with their sensitivities, steps of the heat equation on a
grid, and distances of points with a Gaussian kernel. float32, fresh results.
"""

from __future__ import annotations

from typing import Any

import near
import numpy as np
import peers
import programs


def bodies(xp: Any, x: Any, y: Any, z: Any, mass: Any) -> Any:
    """Accelerations of bodies that attract each other, softened."""
    dx, dy, dz = x[None, :] - x[:, None], y[None, :] - y[:, None], z[None, :] - z[:, None]
    squared = dx * dx + dy * dy + dz * dz + 0.01
    pull = mass[None, :] / (squared * xp.sqrt(squared))
    return tuple(xp.sum(pull * d, axis=1) for d in (dx, dy, dz))


def options(xp: Any, spot: Any, strike: Any, years: Any, rate: Any, sigma: Any) -> Any:
    """Prices of European calls and puts, and delta, by Black and Scholes (1973)."""
    deviation = sigma * xp.sqrt(years)
    d1 = (xp.log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / deviation
    d2 = d1 - deviation
    below1 = 0.5 * (1.0 + xp.erf(d1 * 0.70710678))
    below2 = 0.5 * (1.0 + xp.erf(d2 * 0.70710678))
    discounted = strike * xp.exp(-rate * years)
    call = spot * below1 - discounted * below2
    return call, call - spot + discounted, below1


def heat(xp: Any, u: Any) -> Any:
    """Ten explicit steps of the heat equation on a grid, its border one cell smaller each step."""
    for _ in range(10):
        centre = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u = centre + 0.2 * (around - 4.0 * centre)
    return u


def kernel_matrix(xp: Any, a: Any, b: Any) -> Any:
    """Gaussian kernel of two sets of points."""
    products = a @ b.T
    squares = xp.sum(a * a, axis=1)[:, None] + xp.sum(b * b, axis=1)[None, :] - 2.0 * products
    return xp.exp(-0.5 * squares)


def make(case: peers.Case) -> list[np.ndarray]:
    """Return the arrays of a case."""
    rng = np.random.default_rng(0)
    size, program = case["size"], case["program"]
    if program == "bodies":
        return [rng.random(size, dtype=np.float32) for _ in range(4)]
    if program == "options":
        bounds = ((80, 120), (80, 120), (0.2, 2), (0.01, 0.05), (0.1, 0.4))
        return [rng.uniform(a, b, size).astype(np.float32) for a, b in bounds]
    if program == "heat":
        return [rng.random((size, size), dtype=np.float32)]
    return [0.2 * rng.standard_normal((size, 32), dtype=np.float32) for _ in range(2)]


PROGRAMS = {"bodies": bodies, "options": options, "heat": heat, "kernel matrix": kernel_matrix}
SIZES = {
    "bodies": (1000, 4000),
    "options": (10_000, 1_000_000),
    "heat": (512, 2048),
    "kernel matrix": (1000, 4000),
}

BENCHMARK = peers.Benchmark(
    name="cpu_arrays",
    claim="Array programs that scientists write.",
    cases=[
        {"name": f"{name} {size}", "program": name, "size": size}
        for name in PROGRAMS
        for size in SIZES[name]
    ],
    contenders=programs.contenders(PROGRAMS, make),
    tolerance=2e-5,
    notes=(
        "bodies: y / (x sqrt(x)) is computed by vrsqrt14ps and a correction whose factor of 3/2 is "
        "left to the sums, squares are added up by fma, and what the root is taken of is computed "
        "four groups ahead: 6.4 cycles for sixteen pairs on one core at 4000, where 8.25 were "
        "(6.65 and 8.4 at 1000). 5.5 is what eleven products and fma take; torch.compile's root "
        "and quotient take 7.0. The two processors of this machine have units of their own: loops "
        "of fma, sums and roots take 1.00 to 1.01 of one's time on both at once. docs/design/004 "
        "tells what was tried."
    ),
    near=near.no_slower,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
