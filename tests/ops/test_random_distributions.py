"""Distributions against SciPy's, their gradients against quantiles', and what is refused."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
from interpreted import value

import magmagraph as mg
from magmagraph.errors import DTypeError, ShapeError
from magmagraph.ir.graph import Node
from magmagraph.runtime.cpu.threads import set_threads

# Chance alone fails a test of this level once in a million seeds; the seeds are fixed anyway.
LEVEL = 1e-6
COUNT = 40000

r = mg.random


@pytest.fixture(autouse=True)
def fixed_seed() -> Any:
    """Let every test begin with the same streams."""
    mg.random.seed(31)
    yield
    mg.random.seed(0)


PUBLIC = [name for name in r.__all__ if not inspect.isclass(getattr(r, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_runs(name: str) -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    function = getattr(r, name)
    (test,) = doctest.DocTestFinder(recurse=False).find(function, name, False, globs={})
    assert test.examples
    log: list[str] = []
    assert doctest.DocTestRunner(optionflags=flags).run(test, out=log.append).failed == 0, log


# Continuous distributions: Kolmogorov and Smirnov's test at 40000 numbers.

Case = tuple[str, tuple[Any, ...], Any]

CONTINUOUS: list[Case] = [
    ("exponential", (2.0,), scipy.stats.expon(scale=2.0)),
    ("laplace", (1.0, 2.0), scipy.stats.laplace(1.0, 2.0)),
    ("logistic", (1.0, 2.0), scipy.stats.logistic(1.0, 2.0)),
    ("gumbel", (1.0, 2.0), scipy.stats.gumbel_r(1.0, 2.0)),
    ("cauchy", (1.0, 2.0), scipy.stats.cauchy(1.0, 2.0)),
    ("half_normal", (2.0,), scipy.stats.halfnorm(scale=2.0)),
    ("lognormal", (0.5, 0.8), scipy.stats.lognorm(0.8, scale=np.exp(0.5))),
    ("rayleigh", (2.0,), scipy.stats.rayleigh(scale=2.0)),
    ("weibull", (0.7, 2.0), scipy.stats.weibull_min(0.7, scale=2.0)),
    ("pareto", (1.5, 2.0), scipy.stats.pareto(1.5, scale=2.0)),
    ("triangular", (-1.0, 0.5, 3.0), scipy.stats.triang(0.375, -1.0, 4.0)),
    ("triangular", (0.0, 0.0, 1.0), scipy.stats.triang(0.0, 0.0, 1.0)),
    ("wald", (2.0, 3.0), scipy.stats.invgauss(2.0 / 3.0, scale=3.0)),
    ("wald", (50.0, 0.5), scipy.stats.invgauss(100.0, scale=0.5)),
    ("truncated_normal", (-1.0, 2.0, 0.5, 1.5), scipy.stats.truncnorm(-1.0, 1.0, 0.5, 1.5)),
    ("truncated_normal", (-np.inf, 0.3), scipy.stats.truncnorm(-np.inf, 0.3)),
    ("truncated_normal", (8.0, np.inf), scipy.stats.truncnorm(8.0, np.inf)),
    ("truncated_normal", (-31.0, -30.0), scipy.stats.truncnorm(-31.0, -30.0)),
    ("gamma", (0.05,), scipy.stats.gamma(0.05)),
    ("gamma", (0.6, 3.0), scipy.stats.gamma(0.6, scale=3.0)),
    ("gamma", (1.0,), scipy.stats.gamma(1.0)),
    ("gamma", (4.5,), scipy.stats.gamma(4.5)),
    ("gamma", (1e6,), scipy.stats.gamma(1e6)),
    ("chisquare", (3.0,), scipy.stats.chi2(3.0)),
    ("beta", (0.4, 2.5), scipy.stats.beta(0.4, 2.5)),
    ("beta", (30.0, 20.0), scipy.stats.beta(30.0, 20.0)),
    ("vonmises", (0.0, 1e-3), scipy.stats.vonmises(1e-3)),
    ("vonmises", (0.0, 2.0), scipy.stats.vonmises(2.0)),
    ("vonmises", (0.5, 1e6), scipy.stats.vonmises(1e6, 0.5)),
    ("student_t", (2.5,), scipy.stats.t(2.5)),
    ("f", (3.0, 5.0), scipy.stats.f(3.0, 5.0)),
]


def draw(name: str, shape: Any, *parameters: Any, **options: Any) -> np.ndarray:
    """Return the numbers of a new node."""
    return value(getattr(r, name)(shape, *parameters, **options))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "parameters", "law"), CONTINUOUS)
def test_continuous(name: str, parameters: tuple[Any, ...], law: Any, dtype: str) -> None:
    numbers = draw(name, (COUNT,), *parameters, dtype=dtype)
    assert numbers.dtype == dtype
    assert np.isfinite(numbers).all()
    numbers = numbers.astype(np.float64)
    if dtype == "float32" and parameters[0] == 1e6:
        # These are multiples of 1/16 there, which a test of a continuous law must not see.
        numbers += np.random.default_rng(0).uniform(-1.0, 1.0, COUNT) / 32
    assert scipy.stats.kstest(numbers, law.cdf).pvalue > LEVEL
    neighbours = scipy.stats.rankdata(numbers)
    assert abs(np.corrcoef(neighbours[:-1], neighbours[1:])[0, 1]) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize("name", ["exponential", "laplace", "gumbel", "normal"])
def test_tails_have_their_digits(name: str) -> None:
    """In float32 the outermost of a million numbers still differ."""
    numbers = np.sort(draw(name, (1000000,), dtype="float32"))
    assert np.unique(numbers[:100]).size == 100
    assert np.unique(numbers[-100:]).size == 100


def test_bounds_hold() -> None:
    numbers = draw("truncated_normal", (COUNT,), 0.1, 0.1000001, dtype="float32")
    assert np.float32(0.1) <= numbers.min() <= numbers.max() <= np.float32(0.1000001)


# Counts: chi-square tests at 40000 numbers, over cells of at least 10 expected ones.


def chi_square(numbers: np.ndarray, law: Any) -> float:
    low, high = law.ppf(1e-4), law.ppf(1 - 1e-4)
    edges = np.unique(np.linspace(low, high, 60).astype(np.int64))
    bounds = np.concatenate([[-1.0], edges, [np.inf]])
    chances = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    counts, _ = np.histogram(numbers - 0.5, bounds)
    enough = chances * numbers.size >= 10
    observed = np.append(counts[enough], counts[~enough].sum())
    expected = np.append(chances[enough], chances[~enough].sum()) * numbers.size
    possible = expected > 0
    assert observed[~possible].sum() == 0
    return float(scipy.stats.chisquare(observed[possible], expected[possible]).pvalue)


COUNTS: list[Case] = [
    *(("poisson", (m,), scipy.stats.poisson(m)) for m in (1e-3, 0.7, 9.9, 10.0, 77.0, 1e5, 1e9)),
    *(
        ("binomial", (n, p), scipy.stats.binom(n, p))
        for n, p in ((1, 0.3), (9, 0.5), (30, 0.96), (100, 0.1), (90, 0.7), (10**6, 0.25))
    ),
    ("binomial", (10**9, 1e-8), scipy.stats.binom(10**9, 1e-8)),
    ("geometric", (0.2,), scipy.stats.geom(0.2)),
    ("geometric", (1e-5,), scipy.stats.geom(1e-5)),
    ("zipf", (3.0,), scipy.stats.zipf(3.0)),
    ("zipf", (1.7,), scipy.stats.zipf(1.7)),
    ("logseries", (0.3,), scipy.stats.logser(0.3)),
    ("logseries", (0.97,), scipy.stats.logser(0.97)),
    ("negative_binomial", (3.0, 0.2), scipy.stats.nbinom(3.0, 0.2)),
    ("negative_binomial", (0.4, 0.05), scipy.stats.nbinom(0.4, 0.05)),
]


@pytest.mark.parametrize(("name", "parameters", "law"), COUNTS)
def test_counts(name: str, parameters: tuple[Any, ...], law: Any) -> None:
    numbers = draw(name, (COUNT,), *parameters, dtype="int64")
    assert chi_square(numbers, law) > LEVEL


def test_counts_at_the_edges() -> None:
    assert not draw("poisson", (50,), 0.0).any()
    assert not draw("binomial", (50,), 0, 0.5).any()
    assert not draw("binomial", (50,), 9, 0.0).any()
    assert (draw("binomial", (50,), 9, 1.0) == 9).all()
    assert (draw("geometric", (50,), 1.0) == 1).all()
    assert not draw("negative_binomial", (50,), 2.0, 1.0).any()
    assert (draw("logseries", (50,), 0.0) == 1).all()
    assert draw("zipf", (500,), 1.01, dtype="int64").max() <= 2**53
    even = draw("vonmises", (COUNT,), 0.0, 0.0, dtype="float64")
    assert scipy.stats.kstest(even, "uniform", (-np.pi, 2 * np.pi)).pvalue > LEVEL
    whole = 2**53
    # These are normal laws to a millionth, and SciPy's own functions lose their digits there.
    far = draw("binomial", (COUNT,), whole, 0.5, dtype="int64")
    z = (far - whole / 2) / np.sqrt(whole / 4)
    assert scipy.stats.kstest(z, "norm").pvalue > LEVEL
    far = draw("poisson", (COUNT,), 1e13, dtype="int64")
    assert scipy.stats.kstest((far - 1e13) / np.sqrt(1e13), "norm").pvalue > LEVEL
    parameters = np.array([0.0, 3.0, 300.0])
    assert draw("poisson", (2, 3), parameters).shape == (2, 3)
    assert draw("poisson", None, parameters).shape == (3,)
    assert draw("poisson", (0, 3), parameters).shape == (0, 3)


def test_inverted_and_accepted_counts_meet() -> None:
    """On either side of the mean where the method changes, the laws are next to each other."""
    below = draw("poisson", (COUNT,), 10.0 - 1e-9)
    above = draw("poisson", (COUNT,), 10.0)
    tables = [np.bincount(np.minimum(each, 24), minlength=25)[2:] for each in (below, above)]
    assert scipy.stats.chi2_contingency(tables).pvalue > LEVEL


def test_multinomial() -> None:
    chances = np.array([0.1, 0.0, 0.6, 0.3])
    result = value(r.multinomial(30, chances, (COUNT,)))
    assert result.shape == (COUNT, 4)
    assert (result.sum(axis=1) == 30).all()
    assert not result[:, 1].any()
    for place in (0, 2, 3):
        assert chi_square(result[:, place], scipy.stats.binom(30, chances[place])) > LEVEL
    covariance = np.cov(result[:, 0], result[:, 2])[0, 1]
    assert abs(covariance + 30 * 0.06) < 5 * 3.0 / np.sqrt(COUNT) * 3
    trailing = value(r.multinomial(7, np.array([1.0, 0.0, 0.0]), (3,)))
    np.testing.assert_array_equal(trailing, [[7, 0, 0]] * 3)
    rows = value(r.multinomial(np.array([1, 2]), np.array([[1.0, 0.0], [0.0, 1.0]])))
    np.testing.assert_array_equal(rows, [[1, 0], [0, 2]])


# Gamma variables at the ends.


def test_logarithms_of_gamma_variables_do_not_underflow() -> None:
    tiny = 1e-4
    numbers = draw("loggamma", (COUNT,), tiny, dtype="float64")
    assert np.isfinite(numbers).all()
    assert numbers.min() < -30000
    # For tiny shapes the rank of x is x**a up to a few a.
    assert scipy.stats.kstest(np.exp(numbers * tiny), "uniform").pvalue > LEVEL
    both = value(r.dirichlet(np.full(3, 1e-3), (1000,)))
    np.testing.assert_allclose(both.sum(axis=1), 1.0, rtol=1e-12)
    assert np.isfinite(both).all()


def test_gamma_of_bad_shapes() -> None:
    shapes = np.array([-1.0, 0.0, np.inf, np.nan, 2.0])
    result = value(r.gamma(None, shapes))
    assert np.isnan(result[[0, 3]]).all()
    assert result[1] == 0.0
    assert result[2] == np.inf
    assert 0 < result[4] < np.inf


def test_dirichlet() -> None:
    alpha = np.array([0.5, 1.0, 2.5])
    result = value(r.dirichlet(alpha, (COUNT,)))
    for place, each in enumerate(alpha):
        law = scipy.stats.beta(each, alpha.sum() - each)
        assert scipy.stats.kstest(result[:, place], law.cdf).pvalue > LEVEL


# Keys.


def test_a_key_gives_the_same_numbers_in_every_call() -> None:
    key = r.key(5)
    fixed, free = r.uniform((6,), key=key), r.uniform((6,))
    function = mg.function([], [fixed, free])
    (a, b), (c, d) = function(), function()
    np.testing.assert_array_equal(a, c)
    assert not np.array_equal(b, d)
    np.testing.assert_array_equal(a, value(r.uniform((6,), key=key)))


def test_keys_are_told_apart() -> None:
    root = r.key(5)
    keys = [root, *r.split(root, 3), *r.split(r.split(root)[0]), r.key(6)]
    keys += [r.fold_in(root, i) for i in (0, 1, 2**40, -1)]
    assert len(set(keys)) == len(keys)
    assert r.split(root, 3)[0] == r.split(root, 2)[0]
    assert r.key(5) == root
    draws = {value(r.uniform((4,), key=each)).tobytes() for each in keys}
    assert len(draws) == len(keys)
    mg.random.seed(5)
    assert value(r.uniform((4,))).tobytes() not in draws


def test_a_node_is_folded_in() -> None:
    step = mg.input("step", (), "int32")
    other = mg.input("other", (), "int64")
    once = r.fold_in(r.key(0), step)
    twice = r.fold_in(once, other)
    function = mg.function([step, other], [r.uniform((3,), key=k) for k in (once, twice)])
    seen: dict[bytes, tuple[int, int, int]] = {}
    for i in range(3):
        for j in range(3):
            first, second = function(i, j)
            np.testing.assert_array_equal(first, function(i, 2 - j)[0])
            assert seen.setdefault(second.tobytes(), (1, i, j)) == (1, i, j)
    assert len(seen) == 9


EVERY: dict[str, Callable[..., Node]] = {
    "uniform": lambda key: r.uniform((40,), key=key),
    "normal": lambda key: r.normal((40,), key=key),
    "bernoulli": lambda key: r.bernoulli((40,), key=key),
    "randint": lambda key: r.randint((40,), 100, key=key),
    "permutation": lambda key: r.permutation(40, key=key),
    "rademacher": lambda key: r.rademacher((40,), key=key),
    "categorical": lambda key: r.categorical(np.zeros(9), (40,), key=key),
    "choice": lambda key: r.choice(90, (40,), replace=False, key=key),
    "multinomial": lambda key: r.multinomial(900, np.ones(4), (40,), key=key),
    "dirichlet": lambda key: r.dirichlet(np.ones(4), (40,), key=key),
    "multivariate_normal": lambda key: r.multivariate_normal(
        np.zeros(2), np.eye(2), (40,), key=key
    ),
    "orthogonal": lambda key: r.orthogonal(3, (4,), key=key),
    "sphere": lambda key: r.sphere(3, (4,), key=key),
    "ball": lambda key: r.ball(3, (4,), key=key),
    **{
        name: (lambda key, n=name, p=parameters: getattr(r, n)((40,), *p, key=key))
        for name, parameters, _ in (*CONTINUOUS, *COUNTS)
    },
    "loggamma": lambda key: r.loggamma((40,), 2.0, key=key),
}


def test_every_distribution_is_here() -> None:
    rest = {"Key", "fold_in", "key", "seed", "shuffle", "split"}
    assert set(EVERY) == set(r.__all__) - rest


@pytest.mark.parametrize("name", EVERY)
def test_every_distribution_takes_a_key(name: str) -> None:
    first, second = r.split(r.key(1))
    make = EVERY[name]
    result = value(make(first))
    np.testing.assert_array_equal(result, value(make(first)))
    assert not np.array_equal(result, value(make(second)))
    with pytest.raises(DTypeError, match=r"the key is of type int"):
        make(7)


# What draws by array expressions draws the same compiled, with however many threads.


@pytest.fixture
def threads_restored() -> Iterator[None]:
    yield
    set_threads(None)


@pytest.mark.usefixtures("threads_restored")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_functions_draw_what_the_interpreter_draws(
    threads: int, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    set_threads(threads)
    key = r.key(9)
    exact = [
        r.poisson((3001,), 20.0, key=key),
        r.binomial((3001,), 100, 0.3, key=key),
        r.gamma((3001,), 0.7, dtype="float64", key=key),
        r.rademacher((3001,), key=key),
        r.choice(3001, (77,), replace=False, key=key),
    ]
    close = [EVERY[name](key) for name, _, _ in CONTINUOUS]
    result = mg.function([], [*exact, *close])()
    for node, array in zip(exact, result, strict=False):
        np.testing.assert_array_equal(array, value(node))
    for node, array in zip(close, result[len(exact) :], strict=True):
        np.testing.assert_allclose(array, value(node), rtol=2e-5)


def test_named_extents_and_parameters() -> None:
    x = mg.input("x", ("n", 3), "float64")
    node = r.gamma(x.shape, mg.exp(x))
    assert node.shape == ("n", 3)
    function = mg.function([x], [node, r.poisson(x.shape, mg.exp(x)), r.gamma(None, mg.exp(x))])
    for rows in (2, 5):
        for array in function(np.zeros((rows, 3))):
            assert array.shape == (rows, 3)
    one = mg.function([x], mg.grad(mg.sum(node), x))(np.zeros((4, 3)))
    assert one.shape == (4, 3)


def test_mapped_parameters() -> None:
    shapes = np.array([0.5, 2.0, 30.0])
    result = mg.vmap(lambda a: r.gamma((COUNT,), a, dtype="float64"))(mg.constant(shapes)).eval()
    assert result.shape == (3, COUNT)
    for row, each in zip(result, shapes, strict=True):
        assert scipy.stats.kstest(row, scipy.stats.gamma(each).cdf).pvalue > LEVEL


# Wrong use.


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: r.gamma((2,), -1.0), ShapeError, "random.gamma: a=-1.0"),
        (lambda: r.exponential((2,), 0), ShapeError, "random.exponential: scale=0"),
        (lambda: r.binomial((2,), 3, 1.5), ShapeError, "random.binomial: p=1.5"),
        (lambda: r.poisson((2,), -2), ShapeError, "random.poisson: lam=-2"),
        (lambda: r.geometric((2,), 0.0), ShapeError, "random.geometric: p=0.0"),
        (
            lambda: r.gamma((2,), np.ones(3)),
            ShapeError,
            r"random_bits: extents 3 and 2 do not broadcast",
        ),
        (
            lambda: r.gamma((), np.ones(3)),
            ShapeError,
            r"random.gamma: parameters of shape \(3,\) do not fit shape \(\)",
        ),
        (lambda: r.gamma((2,), 1.0, dtype="int32"), DTypeError, "random.gamma: dtype=int32"),
        (lambda: r.poisson((2,), dtype="float32"), DTypeError, "random.poisson: dtype=float32"),
        (lambda: r.gamma((2,)), TypeError, "missing 1 required argument: 'a'"),
        (lambda: r.key(-1), ShapeError, "random.key: -1 is out of range"),
        (lambda: r.key("a"), DTypeError, "random.key: 'a' is not an int"),
        (lambda: r.split(3), DTypeError, "random.split: the key is of type int"),
        (lambda: r.split(r.key(0), 0), ShapeError, "random.split: num=0"),
        (lambda: r.fold_in(r.key(0), 0.5), DTypeError, "random.fold_in: data of dtype float32"),
        (
            lambda: r.fold_in(r.key(0), mg.arange(3)),
            ShapeError,
            r"random.fold_in: data of shape \(3,\)",
        ),
        (lambda: r.categorical(), ShapeError, "random.categorical: neither of logits and probs"),
        (lambda: r.categorical(1.0), ShapeError, "random.categorical: the classes have no axis"),
        (
            lambda: r.choice(3, (4,), replace=False),
            ShapeError,
            "random.choice: 4 of 3 positions, none twice",
        ),
        (lambda: r.choice(3, p=np.ones(2)), ShapeError, "extents of p and x differ: 2 and 3"),
        (lambda: r.choice(mg.constant(1.0)), ShapeError, "random.choice: the operand has no axes"),
        (lambda: r.multinomial(3, 0.5), ShapeError, r"random.multinomial: p of shape \(\)"),
        (lambda: r.dirichlet(1.0), ShapeError, "random.dirichlet: alpha has no axes"),
        (
            lambda: r.multivariate_normal(np.zeros(2), np.ones(2)),
            ShapeError,
            r"random.multivariate_normal: mean of shape \(2,\), cov of shape \(2,\)",
        ),
    ],
)
def test_wrong_use(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
