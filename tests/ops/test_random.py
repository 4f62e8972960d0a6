"""Random bits against published answers, in NumPy and in C; the distributions' statistics."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from interpreted import assert_close, value

import magmagraph as mg
from magmagraph.codegen.functions import philox as in_c
from magmagraph.errors import DTypeError, ShapeError
from magmagraph.ir.graph import Node, freeze, topological
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.random.basic import RANDOM_BITS, RANDOM_STEP
from magmagraph.ops.random.philox import bits, philox, stream_key
from magmagraph.text.reading import load

# D. E. Shaw Research's Random123 publishes these: counter, key, result.
KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# Chance alone passes a test of this level once in a million runs; the seeds are fixed anyway.
LEVEL = 1e-6


@pytest.fixture(autouse=True)
def fixed_seed() -> Any:
    """Let every test begin with the same streams."""
    mg.random.seed(20)
    yield
    mg.random.seed(0)


def at_step(node: Node, step: int) -> np.ndarray:
    """Return a node's value in a call of a function that has committed so many."""
    counter = mg.input("step", (), "int64")
    graph = freeze([counter], [node], leaves={RANDOM_STEP: counter})
    return np.asarray(evaluate(graph, {graph.inputs[0]: np.int64(step)})[graph.outputs[0]])


# Bits.


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: Any, key: Any, expected: Any) -> None:
    words = philox(np, tuple(np.array([c], np.uint64) for c in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word[0]) for word in words) == expected


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compile the C functions behind exported ones."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder: Path = tmp_path_factory.mktemp("philox")
    source = folder / "philox.c"
    source.write_text(
        in_c.SOURCE
        + """
void each32(uint32_t *out, uint32_t k0, uint32_t k1, int64_t step, uint64_t first, uint64_t n)
{ for (uint64_t i = 0; i < n; i++) out[i] = mg_random32(k0, k1, step, first + i); }
void each64(uint64_t *out, uint32_t k0, uint32_t k1, int64_t step, uint64_t first, uint64_t n)
{ for (uint64_t i = 0; i < n; i++) out[i] = mg_random64(k0, k1, step, first + i); }
void row32(uint32_t *out, uint32_t k0, uint32_t k1, int64_t step, uint64_t first, uint64_t n)
{ mg_random32_row(out, k0, k1, step, first, n); }
void row64(uint64_t *out, uint32_t k0, uint32_t k1, int64_t step, uint64_t first, uint64_t n)
{ mg_random64_row(out, k0, k1, step, first, n); }
"""
    )
    target = folder / "philox.so"
    flags = ["-O3", "-fopenmp-simd", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", target, source], check=True)
    return ctypes.CDLL(str(target))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("name", ["each", "row"])
@pytest.mark.parametrize("step", [0, 7, 2**40 + 3])
def test_c_gives_the_same_bits(library: ctypes.CDLL, name: str, width: int, step: int) -> None:
    dtype = np.dtype(f"uint{width}")
    key = stream_key(11, 5, 1)
    expected = bits(np, key, step, 203, dtype)
    function = getattr(library, f"{name}{width}")
    word = ctypes.c_uint32
    for first in (0, 1, 2, 3, 6):
        count = len(expected) - first
        result = np.zeros(count, dtype)
        function(
            ctypes.c_void_p(result.ctypes.data),
            word(key[0]),
            word(key[1]),
            ctypes.c_int64(step),
            ctypes.c_uint64(first),
            ctypes.c_uint64(count),
        )
        np.testing.assert_array_equal(result, expected[first:])


def test_c_counts_blocks_beyond_32_bits(library: ctypes.CDLL) -> None:
    first = 2**34 + 1  # of block 2**32
    results = np.zeros(1, np.uint32)
    key = (1, 2)
    library.each32(
        ctypes.c_void_p(results.ctypes.data),
        *(ctypes.c_uint32(k) for k in key),
        ctypes.c_int64(9),
        ctypes.c_uint64(first),
        ctypes.c_uint64(1),
    )
    counter = tuple(np.array([c], np.uint64) for c in (0, 1, 9, 0))
    assert int(results[0]) == int(philox(np, counter, key)[1][0])  # type: ignore[arg-type]


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_steps_and_positions_are_modulo_2_64(
    dtype: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text may begin anywhere: negative numbers are the same words on every backend."""
    monkeypatch.setattr(mg.config, "compiler", compiler)
    graph = load(
        "%0 = input() : int64[]\n%1 = input() : int64[]\n"
        f"%2 = random_bits(%0, %1, seed=1, stream=2, part=0, shape=(21,), dtype={dtype}) : "
        f"{dtype}[21]\nreturn %2"
    )
    f = mg.function(list(graph.inputs), graph.outputs[0])
    for step in (0, -1, -(2**63)):
        from_zero = f(step, 0)
        for first in (-1, -2, -7, -20):
            words = f(step, first)
            np.testing.assert_array_equal(words[-first:], from_zero[: 21 + first])
            key = stream_key(1, 2, 0)
            last = bits(np, key, step, -first, np.dtype(dtype), 2**64 + first)
            np.testing.assert_array_equal(words[:-first], last)
    assert len({f(step, first).tobytes() for step in (0, -1) for first in (0, -(2**63))}) == 4


def test_bits_do_not_depend_on_the_shape() -> None:
    flat = bits(np, (3, 4), 2, 60, np.dtype(np.uint32))
    np.testing.assert_array_equal(bits(np, (3, 4), 2, 13, np.dtype(np.uint32)), flat[:13])


# Streams and steps.


def test_streams_are_counted_from_the_seed() -> None:
    first, second = mg.random.uniform((4,)), mg.random.uniform((4,))
    assert not np.array_equal(value(first), value(second))
    mg.random.seed(20)
    again = mg.random.uniform((4,))
    np.testing.assert_array_equal(value(again), value(first))
    mg.random.seed(21)
    assert not np.array_equal(value(mg.random.uniform((4,))), value(first))


def test_equal_nodes_of_two_streams_stay_two() -> None:
    graph = freeze([], [mg.random.uniform((4,)), mg.random.uniform((4,))])
    assert sum(node.op is RANDOM_BITS for node in graph.nodes) == 2
    assert sum(node.op is RANDOM_STEP for node in graph.nodes) == 1


def test_every_step_draws_anew() -> None:
    node = mg.random.uniform((50,))
    steps = [at_step(node, step) for step in (0, 1, 2, 2**33)]
    assert len({array.tobytes() for array in steps}) == 4
    np.testing.assert_array_equal(at_step(node, 1), steps[1])


def test_a_gradient_reads_the_same_bits() -> None:
    x = mg.input("x", (100,), "float64")
    noise = mg.random.normal((100,), dtype="float64")
    gradient = mg.grad(mg.sum(x * noise), x)
    sources = {n for n in topological([gradient, noise]) if n.op is RANDOM_BITS}
    assert len(sources) == 2  # a normal number takes two
    data = {x: np.zeros(100)}
    np.testing.assert_array_equal(value(gradient, data), value(noise))


def test_seeds_that_are_refused() -> None:
    with pytest.raises(ShapeError, match="random.seed: -1 is out of range"):
        mg.random.seed(-1)
    with pytest.raises(DTypeError, match="random.seed: 'a' is not an int"):
        mg.random.seed("a")  # type: ignore[arg-type]
    mg.random.seed(2**64 - 1)
    mg.random.seed(None)


# Distributions.


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_uniform(dtype: str) -> None:
    draw = value(mg.random.uniform((20000,), dtype=dtype))
    assert draw.dtype.name == dtype
    numbers = draw.astype(np.float64)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    digits = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}[dtype]
    whole = np.ldexp(numbers, digits)
    np.testing.assert_array_equal(whole, np.floor(whole))
    # The numbers are the lower edges of cells of this width.
    centred = numbers + 0.5 * 2.0**-digits
    if digits > 11:
        assert scipy.stats.kstest(centred, "uniform").pvalue > LEVEL
    assert abs(centred.mean() - 0.5) < 5 * math.sqrt(1 / 12 / 20000)


def test_uniform_between_bounds() -> None:
    low = np.array([[0.0], [10.0]])
    draw = value(mg.random.uniform((2, 5000), low, low + 2.0))
    assert draw.dtype == np.float64
    assert scipy.stats.kstest(draw[1], "uniform", (10.0, 2.0)).pvalue > LEVEL
    assert scipy.stats.kstest(draw[0], "uniform", (0.0, 2.0)).pvalue > LEVEL


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_normal(dtype: str) -> None:
    numbers = value(mg.random.normal((50000,), dtype=dtype)).astype(np.float64)
    assert abs(numbers.mean()) < 5 / math.sqrt(50000)
    assert abs(numbers.var() - 1.0) < 5 * math.sqrt(2 / 50000)
    assert abs((numbers**4).mean() - 3.0) < 5 * math.sqrt(96 / 50000)
    if dtype != "bfloat16":
        assert scipy.stats.kstest(numbers, "norm").pvalue > LEVEL
        pairs = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
        assert abs(pairs) < 5 / math.sqrt(50000)


def test_normal_is_finite_at_the_ends_of_its_bits() -> None:
    """The smallest and the largest words still give finite numbers."""
    node = mg.random.normal((2,))
    words = [n for n in topological([node]) if n.op is RANDOM_BITS]
    graph = freeze([], [node])
    members = [n for n in graph.nodes if n.op is RANDOM_BITS]
    assert len(words) == len(members) == 2
    ends = np.array([0, 2**32 - 1], np.uint32)
    node_values = evaluate(graph, {}, override=dict.fromkeys(members, ends))
    result = node_values[graph.outputs[0]]
    assert np.isfinite(result).all()
    assert 6.0 < result[0] < 6.8


def test_a_negative_deviation_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"random.normal: std=-1\n  expected: a std of at least 0"):
        mg.random.normal((2,), std=-1)
    assert (value(mg.random.normal((3,), mean=2.0, std=0)) == 2.0).all()


def test_reparameterized_gradients() -> None:
    mean, std = mg.input("mean", (), "float64"), mg.input("std", (3,), "float64")
    draw = mg.random.normal((4, 3), mean, std)
    point = {mean: np.float64(0.5), std: np.array([1.0, 2.0, 3.0])}
    by_mean, by_std = mg.grad(mg.sum(draw), [mean, std])
    unit = (value(draw, point) - 0.5) / point[std]
    np.testing.assert_allclose(value(by_mean, point), 12.0)
    np.testing.assert_allclose(value(by_std, point), unit.sum(0), rtol=1e-12)
    low, high = mg.input("low", (), "float64"), mg.input("high", (), "float64")
    draws = mg.random.uniform((5,), low, high)
    ends = {low: np.float64(2.0), high: np.float64(4.0)}
    by_low, by_high = (value(g, ends) for g in mg.grad(mg.sum(draws), [low, high]))
    share = (value(draws, ends) - 2.0) / 2.0
    np.testing.assert_allclose([by_low, by_high], [(1 - share).sum(), share.sum()], rtol=1e-12)


def test_bernoulli() -> None:
    for p in (0.0, 0.1, 0.5, 1.0):
        draw = value(mg.random.bernoulli((20000,), p))
        assert draw.dtype == np.bool_
        assert abs(draw.mean() - p) <= 5 * math.sqrt(p * (1 - p) / 20000)
    chances = mg.input("p", (2, 1), "float64")
    draw = value(mg.random.bernoulli((2, 100), chances), {chances: np.array([[0.0], [1.0]])})
    np.testing.assert_array_equal(draw, np.repeat([[False], [True]], 100, axis=1))
    with pytest.raises(ShapeError, match=r"random.bernoulli: p=1.5 is not a probability"):
        mg.random.bernoulli((2,), 1.5)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 7, "int32"),
        (-3, 4, "int8"),
        (0, 256, "uint8"),
        (-(2**31), 2**31, "int32"),
        (-(2**63), 2**63, "int64"),
        (0, 2**64, "uint64"),
        (5, 5 + 3 * 2**40, "int64"),
    ],
)
def test_randint(low: int, high: int, dtype: str) -> None:
    draw = value(mg.random.randint((20000,), low, high, dtype))
    assert draw.dtype.name == dtype
    assert low <= int(draw.min()) <= int(draw.max()) < high
    span = high - low
    if span <= 256:
        counts = np.bincount(draw.astype(np.int64) - low, minlength=span)
        assert scipy.stats.chisquare(counts).pvalue > LEVEL
    else:
        share = (draw.astype(np.float64) - low) / span
        assert scipy.stats.kstest(share, "uniform").pvalue > LEVEL


def test_randint_scales_exactly() -> None:
    """The result is floor(word / 2**64 * span), which needs more than 64 bits on the way."""
    span = 2**32 - 5
    node = mg.random.randint((64,), 0, span, "uint64")
    graph = freeze([], [node])
    (source,) = (n for n in graph.nodes if n.op is RANDOM_BITS)
    result = evaluate(graph, {})
    words = [int(word) for word in result[source]]
    assert result[graph.outputs[0]].tolist() == [word * span >> 64 for word in words]


def test_randint_of_computed_bounds() -> None:
    x, high = mg.input("x", ("n",)), mg.input("high", (), "int32")
    node = mg.random.randint((1000,), -2, high)
    draw = value(node, {high: np.int32(3)})
    assert set(draw.tolist()) == {-2, -1, 0, 1, 2}
    rows = mg.random.randint((1000,), x.shape[0]) + mg.cast(mg.sum(x), "int32")
    assert set(value(rows, {x: np.zeros(3, np.float32)}).tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3, 3), ShapeError, r"random.randint: the range \[3, 3\) is empty"),
        ((0, 300, "uint8"), ShapeError, r"uint8 does not hold the range \[0, 300\)"),
        ((0, 3, "float32"), DTypeError, "random.randint: dtype=float32"),
        ((0.5, 3), DTypeError, "random.randint: a bound of dtype float32"),
    ],
)
def test_randint_refuses(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mg.random.randint((2,), *arguments)


def test_permutation() -> None:
    order = value(mg.random.permutation(1000))
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    fixed = np.mean([np.mean(value(mg.random.permutation(20)) == np.arange(20)) for _ in range(99)])
    assert fixed < 0.2  # one in twenty stays in its place, on average
    x = mg.input("x", (6, 2), "float64")
    data = np.arange(12.0).reshape(6, 2)
    shuffled = value(mg.random.permutation(x), {x: data})
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), data)
    node = mg.random.permutation("n")
    assert node.shape == ("n",)
    with pytest.raises(ShapeError, match="random.permutation: the operand has no axes"):
        mg.random.permutation(mg.constant(1.0))


def test_parameters_do_not_widen_the_shape() -> None:
    with pytest.raises(ShapeError, match=r"random.normal: parameters of shape \(3,\) do not fit"):
        mg.random.normal((), np.zeros(3))
    with pytest.raises(DTypeError, match="random.uniform: dtype=int32"):
        mg.random.uniform((3,), dtype="int32")


def test_named_shapes() -> None:
    x = mg.input("x", ("n", 3))
    noise = mg.random.normal(x.shape)
    assert noise.shape == ("n", 3)
    result = value(noise + 0.0 * x, {x: np.zeros((4, 3), np.float32)})
    assert result.shape == (4, 3)


EXACT = [
    lambda: mg.random.uniform((37, 3), dtype="float64"),
    lambda: mg.random.uniform((300, 1001)),
    lambda: mg.random.bernoulli((9, 11), 0.3),
    lambda: mg.random.randint((1001,), -5, 1000),
    lambda: mg.random.permutation(50),
]


def test_functions_draw_the_same_as_the_interpreter() -> None:
    """Bits and what comes from them exactly are equal; the others are to the tolerance table."""
    exact = [make() for make in EXACT]
    smooth = [mg.random.normal((333,)), mg.random.uniform((4, 5), -1.0, 3.0)]
    function = mg.function([], exact + smooth)
    for step in range(3):
        results = function()
        for node, array in zip(exact, results, strict=False):
            np.testing.assert_array_equal(array, at_step(node, step))
        for node, array in zip(smooth, results[len(exact) :], strict=True):
            assert_close(array, at_step(node, step), "float32", scale=7.0)


def test_a_shape_of_the_feeds() -> None:
    x = mg.input("x", ("n", 3))
    node = mg.random.bernoulli(x.shape, 0.5)
    function = mg.function([x], mg.where(node, x, 0.0))
    for step, rows in enumerate((2, 5)):
        ones = np.ones((rows, 3), np.float32)
        counter = mg.input("step", (), "int64")
        graph = freeze([x, counter], [node], leaves={RANDOM_STEP: counter})
        feeds = dict(zip(graph.inputs, (ones, np.int64(step)), strict=True))
        np.testing.assert_array_equal(function(ones), evaluate(graph, feeds)[graph.outputs[0]])


def test_functions_draw_anew_at_every_call() -> None:
    f = mg.function([], mg.random.uniform((8,)))
    first, second = f(), f()
    assert not np.array_equal(first, second)
