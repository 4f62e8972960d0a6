"""Random classes, choices, permutations, directions and matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
from interpreted import value
from test_random_distributions import COUNT, LEVEL, fixed_seed

import magmagraph as mg
from magmagraph.errors import LinAlgError

r = mg.random
pytestmark = pytest.mark.usefixtures(fixed_seed.__name__)


def test_categorical() -> None:
    chances = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.log(chances) + 100.0
    for result in (
        value(r.categorical(logits, (COUNT,))),
        value(r.categorical(probs=5 * chances, shape=(COUNT,))),
    ):
        counts = np.bincount(result, minlength=4)
        assert counts[1] == 0
        possible = chances > 0
        assert scipy.stats.chisquare(counts[possible], chances[possible] * COUNT).pvalue > LEVEL
    rows = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    np.testing.assert_array_equal(value(r.categorical(rows, (3, 2))), [[0, 1]] * 3)
    np.testing.assert_array_equal(value(r.categorical(rows, axis=0)), [0, 1])


def test_choice() -> None:
    x = np.arange(10.0, 16.0).reshape(3, 2)
    result = value(r.choice(x, (4, 5)))
    assert result.shape == (4, 5, 2)
    assert set(map(tuple, result.reshape(-1, 2).tolist())) <= set(map(tuple, x.tolist()))
    every = value(r.choice(x, (2,), replace=False, axis=1))
    np.testing.assert_array_equal(np.sort(every, axis=1), x)
    counts = np.bincount(value(r.choice(5, (COUNT,))), minlength=5)
    assert scipy.stats.chisquare(counts).pvalue > LEVEL


def test_choice_without_replacement_is_one_after_the_other() -> None:
    chances = np.array([0.5, 0.3, 0.2])
    runs = [value(r.choice(3, (2,), replace=False, p=chances)) for _ in range(3000)]
    counts = np.bincount([3 * int(a) + int(b) for a, b in runs], minlength=9)
    expected = [
        0.0 if a == b else chances[a] * chances[b] / (1 - chances[a])
        for a in range(3)
        for b in range(3)
    ]
    possible = np.array(expected) > 0
    assert not counts[~possible].any()
    assert (
        scipy.stats.chisquare(counts[possible], np.array(expected)[possible] * 3000).pvalue > LEVEL
    )


def test_permutation_along_an_axis() -> None:
    data = np.arange(24.0).reshape(4, 6)
    x = mg.input("x", (4, 6), "float64")
    together = value(r.permutation(x, axis=1), {x: data})
    np.testing.assert_array_equal(np.sort(together, axis=1), data)
    np.testing.assert_array_equal(together - together[:1], np.arange(4)[:, None] * 6.0 + 0 * data)
    apart = value(r.shuffle(x, axis=1, independent=True), {x: data})
    np.testing.assert_array_equal(np.sort(apart, axis=1), data)
    assert (apart % 6 != apart[:1] % 6).any()


def test_directions_and_matrices() -> None:
    points = value(r.sphere(3, (COUNT,), dtype="float64"))
    assert scipy.stats.kstest(points[:, 0], "uniform", (-1.0, 2.0)).pvalue > LEVEL  # Archimedes
    inside = value(r.ball(3, (COUNT,), dtype="float64"))
    volume = ((inside**2).sum(axis=1)) ** 1.5
    assert scipy.stats.kstest(volume, "uniform").pvalue > LEVEL
    turns = value(r.orthogonal(2, (COUNT,), dtype="float64"))
    angle = np.arctan2(turns[:, 0, 0], turns[:, 0, 1])
    assert scipy.stats.kstest(angle, "uniform", (-np.pi, 2 * np.pi)).pvalue > LEVEL
    assert abs(np.mean(np.linalg.det(turns) > 0) - 0.5) < 5 * 0.5 / np.sqrt(COUNT)


def test_multivariate_normal() -> None:
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    center = np.array([1.0, -1.0])
    result = value(r.multivariate_normal(center, covariance, (COUNT,)))
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (result - center).T)
    for row in whitened:
        assert scipy.stats.kstest(row, "norm").pvalue > LEVEL
    assert abs(np.corrcoef(whitened)[0, 1]) < 5 / np.sqrt(COUNT)
    batch = value(r.multivariate_normal(np.zeros((3, 2)), np.stack([covariance] * 3)))
    assert batch.shape == (3, 2)
    with pytest.raises(LinAlgError, match="not positive definite"):
        r.multivariate_normal(center, -covariance).eval()
