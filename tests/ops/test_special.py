"""Special functions over wide ranges, at their ends, and where a gradient is refused."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from interpreted import value

import magmagraph as mg
from magmagraph.codegen.functions.scalar import prelude
from magmagraph.dtypes import tolerance
from magmagraph.errors import DTypeError, GradientError, ShapeError
from magmagraph.ir.graph import Node
from magmagraph.ir.op import Op
from magmagraph.ops import TABLE
from magmagraph.ops.special.implicit import gamma_slope, log_gamma_slope

s = mg.special
FLOAT64 = np.dtype(np.float64)
STABLE = tolerance(FLOAT64, "stable")


def compiled(function: Callable[..., Node], *points: np.ndarray) -> np.ndarray:
    """Return values by generated kernels where there is a compiler."""
    nodes = [mg.input(f"x{i}", p.shape, p.dtype) for i, p in enumerate(points)]
    return np.asarray(mg.function(nodes, function(*nodes))(*points))


def interpreted(function: Callable[..., Node], *points: np.ndarray) -> np.ndarray:
    """Return values by array expressions."""
    nodes = [mg.input(f"x{i}", p.shape, p.dtype) for i, p in enumerate(points)]
    return value(function(*nodes), dict(zip(nodes, points, strict=True)))


def spread(rng: np.random.Generator, low: float, high: float, signs: bool = False) -> np.ndarray:
    """Return 400 numbers whose logarithms to base 10 are uniform, of both signs where asked."""
    numbers = 10.0 ** rng.uniform(low, high, 400)
    return np.where(rng.random(400) < 0.5, -numbers, numbers) if signs else numbers


# Relative errors of generated kernels, over ranges far wider than the samples'.


@pytest.mark.parametrize(
    ("name", "low", "high", "signs"),
    [
        ("i0", -8, 2.8, True),
        ("i0e", -8, 6, True),
        ("i1", -8, 2.8, True),
        ("i1e", -8, 6, True),
        ("k0", -8, 2.7, False),
        ("k0e", -8, 6, False),
        ("k1", -8, 2.7, False),
        ("k1e", -8, 6, False),
        ("erfcx", -8, 10, False),
        ("log_ndtr", -8, 4, False),
        ("gamma", -8, 2.2, False),
        ("rgamma", -8, 2.2, False),
        ("ellipkm1", -300, 1, False),
        ("exprel", -12, 2.8, True),
    ],
)
def test_kernels_keep_their_digits(
    name: str, low: float, high: float, signs: bool, rng: np.random.Generator
) -> None:
    x = spread(rng, low, high, signs)
    if name == "log_ndtr":
        x = -x
    expected = getattr(scipy.special, name)(x)
    assert STABLE.close(compiled(getattr(s, name), x), expected, 0.0)


@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1"])
def test_oscillating_kernels(name: str, rng: np.random.Generator) -> None:
    """Near zeros the error is that of the argument: it is taken of the amplitude."""
    x = spread(rng, -3, 3)
    expected = getattr(scipy.special, name)(x)
    amplitude = np.maximum(np.abs(expected), np.sqrt(2 / (np.pi * x)))
    result = compiled(getattr(s, name), x)
    assert (np.abs(result - expected) <= STABLE.relative * amplitude * np.maximum(x / 10, 1)).all()


def test_quantiles_invert(rng: np.random.Generator) -> None:
    y = np.concatenate([spread(rng, -300, -0.01), 2.0 - spread(rng, -15, -0.5)])
    x = compiled(s.erfcinv, y)
    # A relative error of x changes the logarithm of y by 2 x**2 as much.
    error = np.abs(scipy.special.erfc(x) / y - 1.0)
    assert (error <= STABLE.relative * np.maximum(1.0, 2 * x * x)).all()
    logarithms = -spread(rng, -15, 5)
    z = compiled(s.ndtri_exp, logarithms)
    back = scipy.special.log_ndtr(z)
    assert (np.abs(back / logarithms - 1.0) <= STABLE.relative * np.maximum(1.0, z * z)).all()
    ends = np.array([0.0, -np.inf, 1.0, np.nan])
    np.testing.assert_array_equal(compiled(s.ndtri_exp, ends), [np.inf, -np.inf, np.nan, np.nan])


@pytest.mark.parametrize("run", [compiled, interpreted])
def test_betaln_of_large_operands(run: Callable[..., Any], rng: np.random.Generator) -> None:
    """B(a, 1) is 1 / a, and B(a, 2) is 1 / (a (a + 1)); B(a, 1/2) tends to sqrt(pi / a)."""
    a = spread(rng, 0, 12)
    ones = np.ones_like(a)
    assert STABLE.close(run(s.betaln, a, ones), -np.log(a), 0.0)
    assert STABLE.close(run(s.betaln, 2 * ones, a), -np.log(a) - np.log1p(a), 0.0)
    large = 1e14 * a
    assert STABLE.close(run(s.betaln, large, ones / 2), 0.5 * np.log(np.pi / large), 0.0)
    poles = np.array([-2.0, -2.0, 0.0, -1.0]), np.array([2.0, 5.0, 3.0, 0.5])
    np.testing.assert_allclose(run(s.betaln, *poles), scipy.special.betaln(*poles))


def test_bessel_functions_at_infinity() -> None:
    ends = np.array([np.inf, -np.inf])
    for run in (compiled, interpreted):
        np.testing.assert_array_equal(run(s.i0, ends), [np.inf, np.inf])
        np.testing.assert_array_equal(run(s.i1, ends), [np.inf, -np.inf])
        np.testing.assert_array_equal(run(s.i0e, ends), [0.0, 0.0])


def kernels() -> list[tuple[str, int]]:
    """Return the functions of one or two operands that generated kernels compute."""
    names = []
    for name in s.__all__:
        record = TABLE.get(name)
        if (
            isinstance(record, Op)
            and record.scalar.expression is not None
            and record.tests.samples is not None
        ):
            names.append((name, len(record.tests.samples()[0].inputs)))
    return [(name, count) for name, count in names if count <= 2]


@pytest.mark.parametrize(("name", "count"), kernels())
def test_kernels_agree_with_array_expressions_at_the_ends(name: str, count: int) -> None:
    """Poles, infinities and NaN, in generated kernels and by SciPy."""
    ends = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.5, np.inf, -np.inf, np.nan])
    points = [ends] if count == 1 else [p.ravel() for p in np.meshgrid(ends, ends)]
    function = getattr(s, name)
    result, expected = compiled(function, *points), interpreted(function, *points)
    undecided = {"betaln", "rgamma", "zeta"}
    if name in undecided:  # where SciPy's own choice among limits is arbitrary
        finite = np.all(np.isfinite(points), axis=0)
        result, expected = result[finite], expected[finite]
    assert STABLE.close(result, expected, 1.0), (points, result, expected)


# Slopes that cancel if written plainly.


def slope_of(function: Callable[..., Node], x: np.ndarray) -> np.ndarray:
    node = mg.input("x", x.shape, x.dtype)
    return value(mg.grad(mg.sum(function(node)), node), {node: x})


def test_slopes_far_out_keep_their_digits() -> None:
    x = np.array([11.9, 12.1, 30.0, 1e3, 1e6])
    # By continued fractions of the tails: erfcx' = -2/sqrt(pi) (1 - sqrt(pi) x erfcx).
    series = [1 - 3 / (2 * t**2) + 15 / (4 * t**4) - 105 / (8 * t**6) for t in x]
    expected = -np.array(series) / (math.sqrt(math.pi) * x**2)
    np.testing.assert_allclose(slope_of(s.erfcx, x), expected, rtol=1e-6)
    np.testing.assert_allclose(slope_of(s.erfcx, x)[2:], expected[2:], rtol=1e-9)
    series = [1 + 3 / (2 * t**2) + 15 / (4 * t**4) + 105 / (8 * t**6) for t in x]
    expected = -np.array(series) / (2 * x**2)
    np.testing.assert_allclose(slope_of(s.dawsn, x)[2:], expected[2:], rtol=1e-9)
    np.testing.assert_allclose(slope_of(s.log_ndtr, -x), x + 1 / x, rtol=3e-4)
    np.testing.assert_allclose(slope_of(s.log_ndtr, -x)[4:], x[4:], rtol=1e-11)


def test_slopes_at_removable_points() -> None:
    zero = np.zeros(1)
    assert slope_of(s.i1, zero) == 0.5
    assert slope_of(s.j1, zero) == 0.5
    assert slope_of(s.exprel, zero) == 0.5
    assert slope_of(s.spence, np.ones(1)) == -1.0
    np.testing.assert_allclose(slope_of(s.ellipk, zero), math.pi / 8, rtol=1e-15)
    np.testing.assert_allclose(slope_of(s.ellipe, zero), -math.pi / 8, rtol=1e-15)
    np.testing.assert_allclose(
        slope_of(s.rgamma, np.array([0.0, -1.0, -2.0, -3.0])), [1.0, -1.0, 2.0, -6.0], rtol=1e-14
    )
    x = np.array([0.0, 0.0])
    y = mg.input("y", (2,), "float64")
    by_y = mg.grad(mg.sum(s.xlogy(x, y)), y)
    np.testing.assert_array_equal(value(by_y, {y: np.array([0.0, 2.0])}), [0.0, 0.0])


def test_series_of_the_elliptic_slope_meets_the_formula() -> None:
    """On both sides of the point where the second derivative changes its form."""

    def curvature(m: float) -> float:
        node = mg.input("m", (), "float64")
        first = mg.grad(s.ellipe(node), node)
        return float(value(mg.grad(first, node), {node: np.float64(m)}))

    for m in (0.01, -0.01):
        inner, outer = curvature(m * (1 - 1e-12)), curvature(m * (1 + 1e-12))
        np.testing.assert_allclose(inner, outer, rtol=1e-10)


# The derivative of the incomplete gamma functions in the shape.


def test_gammainc_in_the_shape(rng: np.random.Generator) -> None:
    a = np.concatenate([spread(rng, -2, 1.5), spread(rng, 1.5, 4)])
    x = scipy.special.gammaincinv(a, rng.uniform(0.02, 0.98, a.size))
    shape = mg.input("a", a.shape, "float64")
    lower = value(mg.grad(mg.sum(s.gammainc(shape, x)), shape), {shape: a})
    upper = value(mg.grad(mg.sum(s.gammaincc(shape, x)), shape), {shape: a})
    step = 1e-4 * np.maximum(a, 1e-2) ** 0.5 * np.minimum(a, 1.0) ** 0.5
    ranks = [scipy.special.gammainc(a + k * step, x) for k in (-2, -1, 1, 2)]
    difference = (ranks[0] - 8 * ranks[1] + 8 * ranks[2] - ranks[3]) / (12 * step)
    # Rounding of the differences: some eps over the step.
    np.testing.assert_allclose(lower, difference, rtol=1e-7, atol=1e-15 * np.max(8 / step))
    np.testing.assert_allclose(upper, -lower, rtol=1e-12)


@pytest.mark.parametrize("run", [compiled, interpreted])
def test_gamma_slope_of_shape_one(run: Callable[..., Any]) -> None:
    """The limits for small numbers, tiny shapes and huge ones."""
    # At a = 1 the slope of a small x is x (1 - euler - log x).
    y = np.array([-700.0, -300.0, -40.0])
    result = run(log_gamma_slope, np.ones(3), y)
    np.testing.assert_allclose(result, 1.0 - np.euler_gamma - y, rtol=1e-14)
    a = np.array([1e-12, 1e-12])
    small = run(log_gamma_slope, a, np.array([-1e12, -5e12]))
    np.testing.assert_allclose(small, np.array([1e24, 5e24]), rtol=1e-10)
    huge = np.array([1e6, 1e9])
    z = 1.5
    logarithm = np.log(huge) + np.log1p(z / np.sqrt(huge))
    # x is a + z sqrt(a) + (z**2 - 1) / 3 + ...: its slope is 1 + z / (2 sqrt(a)) + ...
    expected = (1 + z / (2 * np.sqrt(huge))) / np.exp(logarithm)
    np.testing.assert_allclose(run(log_gamma_slope, huge, logarithm), expected, rtol=2e-6)


def test_kernels_of_the_gamma_slope_are_the_array_expression(rng: np.random.Generator) -> None:
    a = spread(rng, -4, 6)
    y = np.log(scipy.special.gammaincinv(a, rng.uniform(0.001, 0.999, a.size)) + 1e-300)
    np.testing.assert_allclose(
        compiled(log_gamma_slope, a, y), interpreted(log_gamma_slope, a, y), rtol=1e-9
    )
    bad = np.array([-1.0, np.nan, 2.0]), np.array([0.0, 0.0, np.nan])
    assert np.isnan(compiled(log_gamma_slope, *bad)).all()
    assert float(value(gamma_slope(mg.constant(2.0), mg.constant(0.0)))) == 0.0


# What is refused.


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: s.betainc(p, 2.0, 0.3), "betainc: the derivative in a has no closed form"),
        (lambda p: s.betainc(2.0, p, 0.3), "betainc: the derivative in b has no closed form"),
        (lambda p: s.jv(p, 2.0), "jv: the derivative in v is not known in closed form"),
        (lambda p: s.expn(p, 2.0), "expn: the derivative in n does not exist: it is a count"),
        (lambda p: s.stdtr(p, 2.0), "stdtr: the derivative in df has no closed form"),
        (lambda p: s.hyp1f1(p, 2.0, 0.5), "hyp1f1: the derivative in a has no closed form"),
        (lambda p: mg.zeta(p, 2.0), "zeta: the derivative in the exponent has no closed form"),
    ],
)
def test_unknown_derivatives_are_refused(make: Callable[[Node], Node], text: str) -> None:
    p = mg.input("p", (), "float64")
    with pytest.raises(GradientError, match=text):
        mg.grad(make(p), p)


def test_unknown_derivatives_that_nobody_asks_for_are_none() -> None:
    """The shape may be a variable, as long as the gradient is taken in something else."""
    a, x = mg.input("a", (), "float64"), mg.input("x", (), "float64")
    slope = mg.grad(s.betainc(a, 1.0, x), x)
    point = {a: np.float64(3.0), x: np.float64(0.5)}
    np.testing.assert_allclose(value(slope, point), 0.75, rtol=1e-14)  # of x**3
    gradients = mg.grad(s.betainc(mg.stop_gradient(a * 2), 1.0, x) + a * x, [a, x])
    np.testing.assert_allclose(value(gradients[0], point), 0.5)


def test_second_derivative_in_the_shape_is_refused() -> None:
    a = mg.input("a", (), "float64")
    first = mg.grad(s.gammainc(a, 1.5), a)
    with pytest.raises(GradientError, match="derivative of a gamma variable in its shape"):
        mg.grad(first, a)


def test_wrong_operands() -> None:
    with pytest.raises(DTypeError, match="i0: an operand of dtype complex64"):
        s.i0(np.ones(2, np.complex64))
    with pytest.raises(TypeError, match="takes at most 1 positional argument, and 2 were"):
        s.i0(1.0, 2.0)
    with pytest.raises(ShapeError, match="gammainc: extents 3 and 4 do not broadcast"):
        s.gammainc(np.ones(3), np.ones(4))


def test_parameters_have_names() -> None:
    assert float(s.gammainc(a=2.0, x=1.0).eval()) == float(s.gammainc(2.0, 1.0).eval())
    assert s.i0([0, 1]).dtype == np.float32


# Names.


def test_names_are_those_of_the_top_level() -> None:
    assert s.gammaln is mg.lgamma
    assert s.psi is s.digamma is mg.digamma
    assert s.erf is mg.erf
    assert s.logsumexp is mg.logsumexp
    assert s.softmax is mg.softmax
    assert [name for name in s.__all__ if not hasattr(scipy.special, name)] == []


JAX = (
    *("beta", "betainc", "betaln", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn"),
    *("digamma", "polygamma", "multigammaln", "poch", "factorial", "zeta", "spence"),
    *("erf", "erfc", "erfcx", "erfinv", "ndtr", "log_ndtr", "ndtri", "fresnel", "sici"),
    *("entr", "kl_div", "rel_entr", "xlogy", "xlog1py", "logit", "expit"),
    *("exp1", "expi", "expn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "bessel_jn"),
    *("logsumexp", "softmax", "log_softmax"),
    *("bernoulli", "lpmn", "lpmn_values", "sph_harm", "sph_harm_y"),
)
WITHOUT = {
    "bernoulli": "a table of numbers, not a function of a node",
    "bessel_jn": "jv, of any order",
    "lpmn": "withdrawn by SciPy",
    "lpmn_values": "withdrawn by SciPy",
    "sph_harm": "complex",
    "sph_harm_y": "complex",
}


def test_functions_of_jax_are_here_or_have_a_reason() -> None:
    assert {name for name in JAX if name not in s.__all__} == set(WITHOUT)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler: install gcc")
def test_bessel_functions_of_cuda_have_all_digits(tmp_path: Path) -> None:
    """Compile what CUDA's kernels use for large arguments with the host's compiler."""
    names = ("j0", "j1", "y0", "y1")
    source = "#include <math.h>\n" + prelude(" ".join(f"mg_{name}_f64" for name in names))
    source += "".join(f"\ndouble {n}_of(double x) {{ return mg_{n}_f64(x); }}" for n in names)
    (tmp_path / "waves.c").write_text(source)
    library = tmp_path / "waves.so"
    options = ["-O2", "-w", "-D__CUDA_ARCH__=900", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(["gcc", *options, str(tmp_path / "waves.c"), "-lm"], check=True)
    points = np.concatenate([np.linspace(8.0, 25.0, 500), np.geomspace(25.0, 100.0, 500)])
    for name in names:
        function = getattr(ctypes.CDLL(str(library)), f"{name}_of")
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        expected = getattr(scipy.special, name)(points)
        error = np.abs([function(x) for x in points] - expected) * np.sqrt(points)
        assert np.max(error) < 5e-14, name  # SciPy rounds the phase
        assert function(np.inf) == 0.0
