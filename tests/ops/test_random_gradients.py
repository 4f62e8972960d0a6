"""Gradients of random numbers: the derivative of the number at fixed rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from interpreted import value
from test_random_distributions import COUNT, fixed_seed

import magmagraph as mg
from magmagraph.errors import GradientError

r = mg.random
pytestmark = pytest.mark.usefixtures(fixed_seed.__name__)


def slope_of_quantile(law: Callable[..., Any], x: np.ndarray, p: float, step: float) -> np.ndarray:
    """Return -(dF/dp) / (dF/dx) at numbers, by central differences of a distribution function."""
    rank = (law(p + step).cdf(x) - law(p - step).cdf(x)) / (2 * step)
    return np.asarray(-rank / law(p).pdf(x))


IMPLICIT: list[tuple[str, tuple[Any, ...], int, Callable[..., Any]]] = [
    ("gamma", (0.4,), 0, lambda a: scipy.stats.gamma(a)),
    ("gamma", (3.0,), 0, lambda a: scipy.stats.gamma(a)),
    ("gamma", (60.0,), 0, lambda a: scipy.stats.gamma(a)),
    ("chisquare", (5.0,), 0, lambda df: scipy.stats.chi2(df)),
    ("exponential", (2.0,), 0, lambda s: scipy.stats.expon(scale=s)),
    ("weibull", (0.7, 2.0), 0, lambda a: scipy.stats.weibull_min(a, scale=2.0)),
    ("pareto", (1.5, 2.0), 0, lambda a: scipy.stats.pareto(a, scale=2.0)),
    ("gumbel", (1.0, 2.0), 1, lambda s: scipy.stats.gumbel_r(1.0, s)),
    ("laplace", (1.0, 2.0), 0, lambda m: scipy.stats.laplace(m, 2.0)),
    ("logistic", (1.0, 2.0), 1, lambda s: scipy.stats.logistic(1.0, s)),
    ("cauchy", (1.0, 2.0), 1, lambda s: scipy.stats.cauchy(1.0, s)),
    ("lognormal", (0.5, 0.8), 1, lambda s: scipy.stats.lognorm(s, scale=np.exp(0.5))),
    ("triangular", (-1.0, 0.5, 3.0), 1, lambda m: scipy.stats.triang((m + 1) / 4, -1.0, 4.0)),
    ("truncated_normal", (-1.0, 2.0), 0, lambda a: scipy.stats.truncnorm(a, 2.0)),
    ("truncated_normal", (0.5, 1.5), 1, lambda b: scipy.stats.truncnorm(0.5, b)),
    (
        "truncated_normal",
        (0.5, np.inf, 0.2, 1.5),
        3,
        lambda s: scipy.stats.truncnorm(0.3 / s, np.inf, 0.2, s),
    ),
]


@pytest.mark.parametrize(("name", "parameters", "place", "law"), IMPLICIT)
def test_gradient_is_that_of_the_quantile(
    name: str, parameters: tuple[Any, ...], place: int, law: Callable[..., Any]
) -> None:
    p = mg.input("p", (50,), "float64")
    arguments = [p if i == place else each for i, each in enumerate(parameters)]
    numbers = getattr(r, name)((50,), *arguments)
    gradient = mg.grad(mg.sum(numbers), p)
    point = {p: np.full(50, parameters[place])}
    x, slope = value(numbers, point), value(gradient, point)
    expected = slope_of_quantile(law, x, parameters[place], 1e-5 * max(1.0, parameters[place]))
    # Differences of step h are good to h**2, and rounding by eps / h, of the rank over its density.
    np.testing.assert_allclose(slope, expected, rtol=2e-5, atol=1e-6 * np.abs(slope).max())
    assert np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("name", "parameters", "moment"),
    [
        ("gamma", (2.0,), 1.0),  # the mean is a
        ("beta", (2.0, 3.0), 3.0 / 25.0),  # a / (a + b)
        ("f", (4.0, 12.0), 0.0),  # dfd / (dfd - 2), whatever dfn is
        ("student_t", (9.0,), 0.0),
    ],
)
def test_mean_gradient_is_the_gradient_of_the_mean(
    name: str, parameters: tuple[Any, ...], moment: float
) -> None:
    p = mg.input("p", (), "float64")
    numbers = getattr(r, name)((COUNT,), p, *parameters[1:])
    each = mg.input("each", (COUNT,), "float64")
    gradient = mg.grad(mg.sum(getattr(r, name)((COUNT,), each, *parameters[1:])), each)
    slope = value(mg.grad(mg.mean(numbers), p), {p: np.float64(parameters[0])})
    slopes = value(gradient, {each: np.full(COUNT, parameters[0])})
    assert abs(slope - moment) < 5 * slopes.std() / np.sqrt(COUNT)


def test_slopes_of_tiny_and_huge_shapes_are_finite() -> None:
    a = mg.input("a", (4,), "float64")
    numbers = r.loggamma((1000, 4), a)
    point = {a: np.array([1e-8, 1e-3, 1e4, 1e10])}
    slopes = value(mg.grad(mg.sum(numbers), a), point)
    assert np.isfinite(slopes).all()
    # For a tiny shape log(x) is log(u) / a, with the slope -log(u) / a**2, of mean 1 / a**2.
    assert abs(slopes[0] / 1000 * 1e-16 - 1.0) < 5 / np.sqrt(1000)
    # For a huge one x is a + sqrt(a) z, so that the logarithm's slope is 1 / a.
    assert abs(slopes[3] / 1000 * 1e10 - 1.0) < 1e-4


def test_gradients_that_do_not_exist() -> None:
    p = mg.input("p", (), "float64")
    with pytest.raises(GradientError, match="no gradient reaches"):
        mg.grad(mg.sum(r.wald((5,), p, 2.0)), p)
    with pytest.raises(GradientError, match="no gradient reaches"):
        mg.grad(mg.sum(mg.cast(r.poisson((5,), p), "float64")), p)
    first = mg.grad(mg.sum(r.gamma((5,), p)), p)
    with pytest.raises(GradientError, match="derivative of a gamma variable in its shape"):
        mg.grad(first, p)
