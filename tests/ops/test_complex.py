"""Complex numbers: dtypes, feeds, values through every pass, gradients and their convention."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreted import value
from table import PUBLIC, Record, is_float_array, leaves, rounded

import magmagraph as mg
from magmagraph.dtypes import can_feed, canonical, promote, tolerance, weak_dtype
from magmagraph.ir.graph import freeze
from magmagraph.ir.op import Kind
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

COMPLEX64, COMPLEX128 = canonical("complex64"), canonical("complex128")


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return complex numbers in a square around 0."""
    return rng.uniform(-1.5, 1.5, shape) + 1j * rng.uniform(-1.5, 1.5, shape)


def assert_close(actual: Any, expected: Any, numerics: str = "reassoc") -> None:
    """Compare by the tolerance table, in the dtype of the actual value."""
    actual = np.asarray(actual)
    assert actual.shape == np.shape(expected)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))))
    assert tolerance(actual.dtype, numerics).close(actual, expected, scale), (actual, expected)  # type: ignore[arg-type]


# Dtypes.


@pytest.mark.parametrize(
    ("names", "result"),
    [
        (("complex64", "float32"), "complex64"),
        (("complex64", "float64"), "complex128"),
        (("complex128", "float32"), "complex128"),
        (("complex64", "complex128"), "complex128"),
        (("complex64", "int64"), "complex64"),
        (("complex64", "bool"), "complex64"),
        (("complex64", "bfloat16"), "complex64"),
        (("int8", "float64", "complex64"), "complex128"),
        (("float16", "bfloat16", "complex64"), "complex64"),
    ],
)
def test_promotion(names: tuple[str, ...], result: str) -> None:
    dtypes = [canonical(name) for name in names]
    assert promote(*dtypes).name == result
    assert promote(*reversed(dtypes)).name == result


@pytest.mark.parametrize(
    ("other", "result"),
    [
        ("float32", "complex64"),
        ("float64", "complex128"),
        ("float16", "complex64"),
        ("int64", "complex64"),
        ("bool", "complex64"),
        ("complex128", "complex128"),
        ("complex64", "complex64"),
    ],
)
def test_a_python_complex_is_weak(other: str, result: str) -> None:
    assert weak_dtype(2.0j, canonical(other)).name == result
    assert (mg.input("x", (), other) * 2.0j).dtype == canonical(result)


def test_python_numbers_take_the_complex_dtype() -> None:
    x = mg.input("x", (2,), "complex128")
    assert {(x + 1).dtype, (x * 0.5).dtype, (2j - x).dtype} == {COMPLEX128}
    assert mg.constant([1j, 2.0]).dtype == COMPLEX64
    assert canonical(complex) == COMPLEX64


def test_real_feeds_become_complex_and_complex_ones_stay() -> None:
    x, r = mg.input("x", (2,), "complex64"), mg.input("r", (2,), "float32")
    double = mg.function([x], x * 2.0)
    assert_close(double(np.array([1.0 + 1.0j, 2.0])), [2.0 + 2.0j, 4.0])
    assert_close(double([1, 2.5]), [2.0, 5.0])
    assert_close(double(np.array([1.0, 2.5])), [2.0, 5.0])
    assert_close(double(np.array([1, 2])), [2.0, 4.0])
    with pytest.raises(mg.FeedError, match="does not hold exactly"):
        double(np.array([1, 2**24 + 1]))
    with pytest.raises(mg.FeedError, match="is fed float64, and strict_feeds is on"):
        mg.function([x], x * 2.0, strict_feeds=True)(np.ones(2))
    with pytest.raises(mg.FeedError, match="is fed complex128 values"):
        mg.function([r], r)(np.ones(2, dtype=complex))
    assert can_feed(np.dtype("float32"), COMPLEX64)


def test_variables_hold_complex_values(rng: np.random.Generator) -> None:
    start = draw(rng, 3)
    w = mg.var("w", init=start)
    step = mg.function([], [], updates={w: w * 1j})
    step()
    assert_close(w.value, start * 1j)
    w.value = start.astype(np.complex64)
    assert w.value.dtype == COMPLEX128
    w.value = np.ones(3)
    assert_close(w.value, np.ones(3))
    r = mg.var("r", init=np.ones(3))
    with pytest.raises(mg.DTypeError, match="the new value complex128"):
        r.value = start
    assert mg.var("z", shape=(2,), init=mg.init.ones(), dtype="complex64").value.dtype == COMPLEX64


@pytest.mark.parametrize(
    "make",
    [
        lambda: mg.constant(1j, dtype="float32"),
        lambda: mg.constant(np.array([1j]), dtype="int32"),
        lambda: mg.var("w", init=np.array([1j]), dtype="float64"),
        lambda: mg.cast(mg.constant([1j]), "float32"),
        lambda: mg.constant([1j]).astype("int32"),
    ],
)
def test_nothing_loses_an_imaginary_part(make: Callable[[], Any]) -> None:
    with pytest.raises(mg.DTypeError, match="complex"):
        make()


def test_texts_keep_every_bit() -> None:
    odd = np.array([0.1 - 0.0j, complex(np.nan, -np.inf), complex(-0.0, 1e-300), 1 / 3 + 1e300j])
    many = np.exp(1j * np.arange(20.0)).astype(np.complex64)
    x = mg.input("x", ("n", 4), "complex128")
    graph = freeze([x], [x + odd, mg.constant(many)])
    text = dump(graph)
    again = load(text)
    assert dump(again) == text
    constants = [node.attrs["value"] for node in again.nodes if "value" in node.attrs]
    assert sorted(v.tobytes() for v in constants) == sorted(v.tobytes() for v in (odd, many))


def test_archives_and_pickles_keep_complex_values(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    w = mg.var("w", init=draw(rng, 4).astype(np.complex64))
    x = mg.input("x", (4,), "complex64")
    function = mg.function([x], mg.exp(x) * w)
    feed = draw(rng, 4).astype(np.complex64)
    expected = function(feed)
    function.save(tmp_path / "f.mg")
    assert np.array_equal(mg.load(tmp_path / "f.mg")(feed), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(function))(feed), expected)


def test_non_contiguous_and_empty_feeds(rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 3), "complex128")
    function = mg.function([x], [mg.sum(x, axis=0), x.real, x.conj().T])
    feed = draw(rng, 3, 8)[:, ::2].T
    total, real, adjoint = function(feed)
    assert_close(total, feed.sum(0))
    assert_close(real, feed.real)
    assert_close(adjoint, feed.conj().T)
    total, real, adjoint = function(np.zeros((0, 3), complex))
    assert (total.tolist(), real.shape, adjoint.shape) == ([0j, 0j, 0j], (0, 3), (3, 0))


# What is refused.


def _real_only() -> list[str]:
    return [
        name
        for name, record in PUBLIC.items()
        if "complex64" not in record.dtypes
        and record.kind in (Kind.ELEMENTWISE, Kind.REDUCTION)
        and any(is_float_array(v) for s in record.tests.samples() for v in s.inputs)  # type: ignore[misc]
    ]


@pytest.mark.parametrize("name", _real_only())
def test_other_functions_refuse_complex_numbers(name: str) -> None:
    record: Record = PUBLIC[name]
    assert record.tests.samples is not None
    assert record.function is not None
    sample = next(s for s in record.tests.samples() if any(is_float_array(v) for v in s.inputs))
    nodes, _ = leaves(rounded(sample.inputs, COMPLEX64))
    with pytest.raises(mg.DTypeError):
        record.function(*nodes, **sample.attrs)


def test_the_refusal_says_what_to_do() -> None:
    z = mg.input("z", (2,), "complex64")
    with pytest.raises(mg.DTypeError) as caught:
        mg.maximum(z, 0.0)
    assert str(caught.value).splitlines()[:3] == [
        "maximum: an operand of dtype complex64",
        "  expected: a real one: maximum is not defined for complex numbers",
        "  try: mg.real(x), mg.imag(x) or mg.absolute(x)",
    ]


def test_parts_of_real_numbers_cost_nothing() -> None:
    x = mg.input("x", (3,))
    assert mg.real(x) is x
    assert mg.conj(x) is x
    assert mg.conj(mg.conj(mg.input("z", (3,), "complex64"))).op.name == "input"
    assert value(mg.imag(x), {x: np.ones(3, np.float32)}).tolist() == [0.0, 0.0, 0.0]


# Passes: rules for real numbers stay away from complex ones.

_Z, _W = mg.input("z", (6,), "complex128"), mg.input("w", (6,), "complex128")
_ON_CUTS = np.array([-2.0 + 0.0j, -2.0 - 0.0j, 3.0 + 0.0j, 2.0 + 2.0j, -1.0 - 1.0j, 0.5j])
_OTHERS = np.array([1.0 + 0.0j, -1.0 - 0.0j, 3.0 + 0.0j, 1.0 - 4.0j, 2.0 + 9.0j, 0.5j])
_INFINITE = np.array([np.inf + 1j, 1 + 1j * np.inf, np.nan + 0j, 2.0, -1j, 0.0])

EXPRESSIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "square root of a square": (
        lambda z, w: mg.sqrt(z * z), lambda z, w: np.sqrt(z * z), "square root of a square"
    ),
    "logarithm of an exponential": (
        lambda z, w: mg.log(mg.exp(z * 5.0)), lambda z, w: np.log(np.exp(z * 5.0)),
        "logarithm of an exponential",
    ),
    "square of absolute": (
        lambda z, w: mg.absolute(z) * mg.absolute(z), lambda z, w: np.abs(z) * np.abs(z),
        "square of absolute",
    ),
    "difference": (
        lambda z, w: mg.log(-(z - w)), lambda z, w: np.log(-(z - w)), "negative of a difference"
    ),
    "add 0": (lambda z, w: mg.sqrt(z + 0.0), lambda z, w: np.sqrt(z + 0.0), "add 0"),
    "from 0": (lambda z, w: mg.sqrt(0.0 - z), lambda z, w: np.sqrt(0.0 - z), "subtract from 0"),
    "times -1": (lambda z, w: mg.sqrt(z * -1.0), lambda z, w: np.sqrt(z * (-1 + 0j)),
                 "multiply by -1"),
    "negative factor": (
        lambda z, w: mg.log((-z) * w), lambda z, w: np.log((-z) * w), "negative factor"
    ),
    "log1p": (lambda z, w: mg.log(1.0 + z), lambda z, w: np.log(1.0 + z), "log1p"),
    "softplus": (
        lambda z, w: mg.log(1.0 + mg.exp(z)), lambda z, w: np.log(1.0 + np.exp(z)), "softplus"
    ),
    "sigmoid": (
        lambda z, w: 1.0 / (1.0 + mg.exp(-z)), lambda z, w: 1.0 / (1.0 + np.exp(-z)), "sigmoid"
    ),
    "softmax": (
        lambda z, w: mg.exp(z) / mg.sum(mg.exp(z)), lambda z, w: np.exp(z) / np.exp(z).sum(),
        "subtract the maximum before softmax",
    ),
    "logsumexp": (
        lambda z, w: mg.log(mg.sum(mg.exp(z))), lambda z, w: np.log(np.exp(z).sum()), "logsumexp"
    ),
    "length": (
        lambda z, w: mg.sqrt(mg.sum(z * z)), lambda z, w: np.sqrt((z * z).sum()),
        "scaled vector norm"
    ),
    "hypot": (
        lambda z, w: mg.sqrt(z * z + w * w), lambda z, w: np.sqrt(z * z + w * w), "hypot"
    ),
    "equal": (lambda z, w: mg.equal(z, z), lambda z, w: z == z, "equal to itself"),
    "power": (lambda z, w: mg.log(z**2 * w**3), lambda z, w: np.log(z * z * (w * w * w)), ""),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_rules_for_real_numbers_stay_away(name: str) -> None:
    build, reference, rule = EXPRESSIONS[name]
    function = mg.function([_Z, _W], build(_Z, _W))
    with np.errstate(all="ignore"):
        expected = reference(_ON_CUTS, _OTHERS)
    assert_close(function(_ON_CUTS, _OTHERS), expected)
    if rule:
        record = function.report["simplify"]
        assert rule not in record.hits
        assert any(refusal.rule == rule for refusal in record.refusals)


@pytest.mark.parametrize(
    ("build", "reference"),
    [
        (lambda z: z * 0.0, lambda z: z * np.zeros_like(z)),
        (lambda z: z + z, lambda z: z + z),
        (lambda z: z / 2.0, lambda z: z / np.full_like(z, 2.0)),
        (lambda z: mg.sum(mg.broadcast_to(z, (4, 6)), axis=0), lambda z: np.sum([z] * 4, axis=0)),
        (lambda z: mg.isfinite(z), np.isfinite),
        (lambda z: mg.equal(z, z), lambda z: z == z),
    ],
)
def test_values_that_are_not_finite_are_those_of_numpy(
    build: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    with np.errstate(all="ignore"):
        expected = reference(_INFINITE)
    assert_close(mg.function([_Z], build(_Z))(_INFINITE), expected)


_UNARY: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (mg.exp, np.exp),
    (mg.sin, np.sin),
    (mg.tanh, np.tanh),
    (mg.conj, np.conj),
    (mg.negative, np.negative),
    (mg.square, np.square),
    (lambda z: mg.sqrt(z * z + 2.5j), lambda z: np.sqrt(z * z + 2.5j)),
    (lambda z: mg.complex(z.imag, z.real), lambda z: z.imag + 1j * z.real),
    (lambda z: mg.absolute(z) * z, lambda z: np.abs(z) * z),
    (lambda z: mg.where(mg.greater(z.real, 0.1), z, 1j), lambda z: np.where(z.real > 0.1, z, 1j)),
    (lambda z: z - mg.mean(z, axis=1, keepdims=True), lambda z: z - z.mean(1, keepdims=True)),
    (lambda z: mg.transpose(z)[::-1], lambda z: z.T[::-1]),
    (lambda z: z / (mg.absolute(z) + 1.0), lambda z: z / (np.abs(z) + 1.0)),
    (lambda z: z**2, lambda z: z * z),
]
_BINARY: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (mg.add, np.add),
    (mg.subtract, np.subtract),
    (mg.multiply, np.multiply),
    (lambda z, w: -z * -w, lambda z, w: -z * -w),
    (lambda z, w: z @ mg.conj(w).T, lambda z, w: z @ w.conj().T),
    (lambda z, w: mg.einsum("ij,kj->ik", z, w), lambda z, w: np.einsum("ij,kj->ik", z, w)),
    (lambda z, w: mg.concatenate([z[:2], w[2:]]), lambda z, w: np.concatenate([z[:2], w[2:]])),
]


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("number", range(12))
def test_random_graphs_are_numpy(
    number: int, compiler: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passes, on programs that mix complex and real parts."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    inputs = [mg.input(name, (4, 4), "complex128") for name in "abc"]
    feeds = [draw(rng, 4, 4) for _ in inputs]
    pairs: list[tuple[mg.Node, np.ndarray]] = list(zip(inputs, feeds, strict=True))
    for _ in range(20):
        z, w = (pairs[int(rng.integers(len(pairs)))] for _ in range(2))
        if rng.uniform() < 0.6:
            ours, theirs = _UNARY[int(rng.integers(len(_UNARY)))]
            pair = ours(z[0]), theirs(z[1])
        else:
            ours, theirs = _BINARY[int(rng.integers(len(_BINARY)))]
            pair = ours(z[0], w[0]), theirs(z[1], w[1])
        if np.abs(pair[1]).max() < 20.0:
            pairs.append(pair)
    pairs.append((mg.sum(mg.absolute(pairs[-1][0])), np.sum(np.abs(pairs[-1][1]))))
    function = mg.function(inputs, [node for node, _ in pairs])
    for result, (_, expected) in zip(function(*feeds), pairs, strict=True):
        assert tolerance(COMPLEX128, "reassoc").close(result, expected, 1e4)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_run_in_the_library(dtype: str, rng: np.random.Generator) -> None:
    a, b, c = (draw(rng, *shape).astype(dtype) for shape in ((5, 7), (9, 7), (9, 4)))
    nodes = [mg.input(name, v.shape, dtype) for name, v in zip("abc", (a, b, c), strict=True)]
    x, y, z = nodes
    function = mg.function(nodes, [x @ mg.conj(y).T @ z, x @ y.T, mg.vdot(x, x), mg.dot(y.T, z)])
    all_expected = (a @ b.conj().T @ c, a @ b.T, np.vdot(a, a), b.T @ c)
    for result, expected in zip(function(a, b, c), all_expected, strict=True):
        assert result.dtype == np.dtype(dtype)
        assert_close(result, expected)
    assert sum(node.op.name == "gemm" for node in function.graph.nodes) == 4


# Gradients.


def test_the_gradient_descends(rng: np.random.Generator) -> None:
    """z - rate * gradient goes down: dL/dRe(z) + i dL/dIm(z), as in PyTorch."""
    target = draw(rng, 5)
    z = mg.var("z", init=draw(rng, 5))
    distance = mg.sum(mg.square(mg.absolute(z - target)))
    gradient = mg.grad(distance, z)
    assert gradient.dtype == COMPLEX128
    assert_close(gradient.eval(), 2.0 * (z.value - target))
    step = mg.function([], distance, updates={z: z - 0.25 * gradient})
    losses = [float(step()) for _ in range(60)]
    assert losses == sorted(losses, reverse=True)
    assert_close(z.value, target)


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (mg.exp, np.exp),
        (lambda z: z**3, lambda z: 3.0 * z**2),
        (lambda z: mg.log(z) * mg.sin(z), lambda z: np.sin(z) / z + np.log(z) * np.cos(z)),
        (mg.arccosh, lambda z: 1.0 / (np.sqrt(z - 1.0) * np.sqrt(z + 1.0))),
        (mg.arcsin, lambda z: 1.0 / np.sqrt(1.0 - z * z)),
    ],
)
def test_holomorphic_functions(
    function: Callable[..., Any], slope: Callable[..., Any], rng: np.random.Generator
) -> None:
    """The rule for a cotangent u is u * conj(f'(z)); forward mode gives f'(z) * t."""
    z = mg.input("z", (6,), "complex128")
    at, u, t = draw(rng, 6), draw(rng, 6), draw(rng, 6)
    backward = mg.vjp(function(z), z, mg.constant(u)).eval({z: at})
    assert_close(backward, u * np.conj(slope(at)))
    forward = mg.jvp(function(z), z, mg.constant(t)).eval({z: at})
    assert_close(forward, slope(at) * t)


@pytest.mark.parametrize(
    "function",
    [
        mg.conj,
        lambda z: mg.complex(mg.absolute(z), mg.angle(z)),
        lambda z: z * mg.conj(z) + mg.real(z) * 1j,
        lambda z: mg.fft.fft(mg.imag(z)),
    ],
)
def test_forward_mode_of_any_function_is_the_difference(
    function: Callable[..., Any], rng: np.random.Generator
) -> None:
    z = mg.input("z", (5,), "complex128")
    at, t = draw(rng, 5), draw(rng, 5)
    compiled = mg.function([z], function(z))
    result = mg.function([z], mg.jvp(function(z), z, mg.constant(t)))(at)
    step = 1e-6
    difference = (compiled(at + step * t) - compiled(at - step * t)) / (2.0 * step)
    assert np.abs(result - difference).max() < step


def test_both_modes_agree(rng: np.random.Generator) -> None:
    """Re(conj(u) . J t) is Re(conj(J* u) . t), whatever the function."""
    z = mg.input("z", (4,), "complex128")
    y = mg.fft.fft(mg.absolute(z)) * mg.conj(z) + mg.exp(z)
    at, u, t = draw(rng, 4), draw(rng, 4), draw(rng, 4)
    backward = mg.vjp(y, z, mg.constant(u)).eval({z: at})
    forward = mg.jvp(y, z, mg.constant(t)).eval({z: at})
    assert_close(np.vdot(u, forward).real, np.vdot(backward, t).real)


def test_a_real_operand_takes_the_real_part(rng: np.random.Generator) -> None:
    x = mg.input("x", (4,), "float64")
    turn = np.exp(1j * np.arange(4.0))
    report = mg.check_gradients(
        lambda x: mg.real(mg.sum(mg.exp(x * turn) * (1.0 + 2.0j))), rng.uniform(-1, 1, 4)
    )
    assert report.targets[0].compared == 4
    gradient = mg.grad(mg.sum(mg.absolute(x * turn)), x)
    assert gradient.dtype == np.float64
    assert_close(gradient.eval({x: np.array([1.0, -2.0, 3.0, -4.0])}), [1.0, -1.0, 1.0, -1.0])


def test_gradients_at_zero_are_zero() -> None:
    z = mg.var("z", init=np.zeros(2, complex))
    for make in (mg.absolute, mg.angle, lambda z: mg.norm(z, axis=0)):
        for order in (1, 2):
            slope: Any = mg.sum(make(z))
            for _ in range(order):
                slope = mg.grad(mg.real(mg.sum(slope)), z, unused="zeros")
            assert slope.eval().tolist() == [0.0, 0.0]


def test_users_rules_have_the_users_convention(rng: np.random.Generator) -> None:
    @mg.custom_gradient
    def cube(z: mg.Node) -> Any:
        return z**3, lambda u: u * mg.conj(3.0 * z**2)

    z = mg.input("z", (3,), "complex128")
    at = draw(rng, 3)
    own, usual = (
        mg.grad(mg.sum(mg.real(f(z) * (2.0 + 1.0j))), z).eval({z: at})
        for f in (cube, lambda z: z**3)
    )
    assert_close(own, usual)


def test_checkpoints_change_no_gradient(rng: np.random.Generator) -> None:
    z = mg.input("z", (3,), "complex128")
    at = draw(rng, 3)
    block = mg.checkpoint(lambda z: mg.exp(z) * mg.conj(z))
    saved, recomputed = (
        mg.grad(mg.sum(mg.absolute(f(z))), z).eval({z: at})
        for f in (lambda z: mg.exp(z) * mg.conj(z), block)
    )
    assert_close(saved, recomputed)


def test_a_complex_loss_is_refused() -> None:
    z = mg.input("z", (3,), "complex64")
    with pytest.raises(mg.GradientError, match=r"try: mg.real\(loss\)"):
        mg.grad(mg.sum(z), z)
    with pytest.raises(mg.GradientError, match="a matrix of complex derivatives"):
        mg.jacobian(mg.exp(z), z)
    x = mg.input("x", (3,))
    with pytest.raises(mg.GradientError, match="a float dtype, as its output has"):
        mg.vjp(mg.exp(x), x, mg.constant([1j, 1j, 1j]))


def test_check_gradients_finds_a_missing_conjugate(rng: np.random.Generator) -> None:
    @mg.custom_gradient
    def wrong(z: mg.Node) -> Any:
        return z * 1j, lambda u: u * 1j  # its rule is u * conj(1j)

    with pytest.raises(mg.GradientError, match="the central difference"):
        mg.check_gradients(wrong, draw(rng, 3))


PLANE = np.array(
    [3.0 + 4.0j, -1.5 - 0.25j, 2.0j, -0.7, 1e-200 + 1e-200j, 1e300 - 1e300j, 1.2e308 + 1.2e308j]
)


def test_sign_is_the_unit_of_the_direction() -> None:
    result = mg.sign(mg.constant(PLANE)).eval()
    np.testing.assert_allclose(np.abs(result), 1.0, rtol=1e-15)
    np.testing.assert_allclose(np.angle(result), np.angle(PLANE), rtol=1e-15)
    special = np.array([0.0, -0.0j, np.inf, complex(2.0, -np.inf), complex(np.nan, 1.0), 5e-324j])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(mg.sign(mg.constant(special)).eval(), np.sign(special))
        assert np.isnan(mg.sign(mg.constant(complex(np.inf, np.inf))).eval())
    x = mg.input("x", (2,), "complex128")
    slope = mg.grad(mg.sum(mg.real(mg.sign(x))), x)
    np.testing.assert_allclose(slope.eval({x: [0.0, 3.0 + 4.0j]}), [0.0, 0.128 - 0.096j])


def test_functions_of_the_plane_have_gradients() -> None:
    def loss(x: mg.Node) -> mg.Node:
        parts = [mg.sign(x), mg.exp2(x), mg.sigmoid(x), mg.cumprod(x), mg.cumprod(x, reverse=True)]
        return mg.sum(mg.stack([mg.sum(mg.real(p * (1.5 - 0.5j)) ** 2) for p in parts]))

    mg.check_gradients(loss, (PLANE[:4],))
    # A product over a zero: nothing is divided by it.
    mg.check_gradients(
        lambda x: mg.sum(mg.real(mg.cumprod(x) * (0.3 + 1.0j))), (np.array([1 + 1j, 0, 2 - 1j, 0]),)
    )


def test_powers_and_curves_do_not_overflow_on_the_way() -> None:
    points = np.array([complex(-np.inf, 1.0), complex(np.inf, 0.0), complex(3.0, -0.0), 1000.25])
    np.testing.assert_array_equal(
        mg.exp2(mg.constant(points)).eval(), [0.0, complex(np.inf, 0.0), 8.0, 2.0**1000.25]
    )
    far = np.array([-1000.0 + 1.0j, 1000.0 + 1.0j, -1e300 + 0.5j])
    np.testing.assert_array_equal(mg.sigmoid(mg.constant(far)).eval(), [0.0, 1.0, 0.0])


def test_unique_complex_numbers_are_numpys() -> None:
    nan = np.nan
    x = np.array([2 + 1j, 1 + 5j, 2 - 1j, 2 + 1j, complex(1, nan), nan * 1j, 1 + 5j, -3, nan])
    values, indices, inverse, counts = (
        node.eval() for node in mg.unique_all(mg.constant(x), size=7)
    )
    expected = np.unique_all(x)
    np.testing.assert_array_equal(values, expected.values)
    np.testing.assert_array_equal(indices, expected.indices)
    np.testing.assert_array_equal(inverse, expected.inverse_indices)
    np.testing.assert_array_equal(counts, expected.counts)
    one = mg.unique(mg.constant(x), size=5).eval()  # all NaN are one
    np.testing.assert_array_equal(one, np.unique(x))
    rows = np.array([[1 + 2j, 3], [1 + 1j, 9], [1 + 2j, 3], [0, 1j]])
    np.testing.assert_array_equal(
        mg.unique(mg.constant(rows), axis=0, size=3).eval(), np.unique(rows, axis=0)
    )
