"""Random numbers as nodes: `mg.random`.

Every node made here has a stream of its own, its order since `seed`, and reads counter-based bits:
(seed, stream; step, element index). The step is a counter of the function that holds the node and
advances with each committed call, so that every call draws anew, and a program draws the same
numbers on every backend and number of threads.

A `key` says explicitly where a node takes its bits from: the same key gives the same numbers in
every call. `split` and `fold_in` make further keys of one.

Raw bits and what comes from them by exact operations (`uniform` in [0, 1), `bernoulli`, `randint`,
`permutation`, `rademacher`) are equal everywhere; other distributions are to rounding. Samplers
that reject take as many candidates as it needs until one is accepted, each from its own counter:
no number is biased by a limit on rounds.
"""

from __future__ import annotations

from typing import NoReturn

from .ops.random.basic import bernoulli, normal, permutation, randint, uniform
from .ops.random.bits import Key, fold_in, key, seed, split
from .ops.random.choice import (
    ball,
    categorical,
    choice,
    dirichlet,
    multivariate_normal,
    orthogonal,
    rademacher,
    sphere,
)
from .ops.random.count import binomial, geometric, multinomial, negative_binomial, poisson
from .ops.random.gamma import beta, chisquare, f, gamma, loggamma, student_t
from .ops.random.quantile import (
    cauchy,
    exponential,
    gumbel,
    half_normal,
    laplace,
    logistic,
    lognormal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull,
)
from .ops.random.rejection import logseries, vonmises, zipf

shuffle = permutation

__all__ = [
    "Key",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "half_normal",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "logseries",
    "multinomial",
    "multivariate_normal",
    "negative_binomial",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "seed",
    "shuffle",
    "sphere",
    "split",
    "student_t",
    "triangular",
    "truncated_normal",
    "uniform",
    "vonmises",
    "wald",
    "weibull",
    "zipf",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    from .help.spellings import missing

    raise missing(__name__, name)
