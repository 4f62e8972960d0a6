"""Random numbers as nodes: `mg.random`.

Every node made here has a stream of its own, its order since `seed`, and reads counter-based bits:
(seed, stream; step, element index). The step is a counter of the function that holds the node and
advances with each committed call, so that every call draws anew, and a program draws the same
numbers on every backend and number of threads.
"""

from __future__ import annotations

from .ops.random import bernoulli, normal, permutation, randint, seed, uniform

__all__ = ["bernoulli", "normal", "permutation", "randint", "seed", "uniform"]
