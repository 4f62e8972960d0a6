"""Claim: elementwise chains run at 0.7 of the best peer's time, or at 1.2 of a copy's.

Chains of functions over 1e4 to 1e8 float32 numbers, fresh results and reused ones.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import peers
import programs


def gate(xp: Any, x: Any) -> Any:
    """A gate of a recurrent cell."""
    return xp.sigmoid(2.0 * x + 1.0) * xp.tanh(x) - 0.1 * x


def polynomial(xp: Any, x: Any) -> Any:
    """Arithmetic alone: as cheap as reading and writing."""
    return ((0.5 * x - 1.0) * x + 2.0) * x - 0.25


def mixed(xp: Any, x: Any) -> Any:
    """A chain of many functions."""
    y = xp.exp(-0.5 * x * x)
    z = xp.log1p(xp.abs(x)) + xp.sqrt(xp.abs(y) + 1.0)
    return xp.where(x > 0.0, y * z, y - z) + xp.sin(x)


def make(case: peers.Case) -> list[np.ndarray]:
    """Return the numbers of a case."""
    return [np.random.default_rng(0).standard_normal(case["size"], dtype=np.float32)]


PROGRAMS = {"gate": gate, "polynomial": polynomial, "mixed": mixed}

BENCHMARK = peers.Benchmark(
    name="cpu_elementwise",
    claim="Elementwise chains over float32 numbers.",
    cases=[
        {"name": f"{name} 1e{power}", "program": name, "size": 10**power}
        for name in PROGRAMS
        for power in ((4, 5, 6, 7, 8) if name == "gate" else (4, 6, 7))
    ],
    contenders={
        **programs.contenders(PROGRAMS, make),
        "copy": functools.partial(programs.copying, make),
    },
    floors=frozenset({"copy"}),
    tolerance=2e-6,
    notes=(
        "gate: 1.04 ns a number on one core in the cache, as the latency of its chain (exp, two "
        "divisions) allows; the copy is not what bounds it at 1e6."
    ),
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
