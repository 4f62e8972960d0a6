"""Generated C against the reference interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest
import regions
from regions import CASES, SIZES, B, Case, N, assert_close, compiled, make_body

import magmagraph as mg
from magmagraph.codegen.c.step import assemble, step_code
from magmagraph.codegen.region import analysis as mg_region
from magmagraph.dtypes import tolerance
from magmagraph.runtime.cpu.fused import Kernels, kernel_key, step_key
from magmagraph.runtime.cpu.support import Program, address_of


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """All kernels of this file's cases, compiled in one go."""
    made = Kernels()
    made.build([(case.body(),) for case in CASES])
    return made


_SIZES = [
    SIZES,
    {"B": 1, "N": 1},
    {"B": 1, "N": 5000},
    {"B": 300, "N": 7},
    {"B": 40, "N": 300},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_agrees_with_the_interpreter(
    case: Case, kernels: Kernels, rng: np.random.Generator
) -> None:
    body = case.body()
    for sizes in _SIZES:
        if min(sizes.values()) < case.least:
            continue
        arrays = regions.arrays_for(rng, body, sizes, case.make)
        wanted = regions.interpreted(body, arrays, sizes)
        for threads in (1, 2, 5):
            results = regions.empty_results(body, sizes)
            compiled([body], arrays, results, sizes, threads, kernels)
            assert_close(body, results, wanted, case.numerics, f"{sizes}, {threads} threads")


def test_zero_extents(kernels: Kernels, rng: np.random.Generator) -> None:
    ran = 0
    for case in CASES:
        body = case.body()
        for sizes in ({"B": 0, "N": 7}, {"B": 5, "N": 0}, {"B": 0, "N": 0}):
            try:
                arrays = regions.arrays_for(rng, body, sizes, case.make)
                wanted = regions.interpreted(body, arrays, sizes)
            except Exception:
                continue  # a slice of nothing has no such shape
            results = regions.empty_results(body, sizes)
            compiled([body], arrays, results, sizes, 2, kernels)
            assert_close(body, results, wanted, case.numerics, f"{case.name}, {sizes}")
            ran += 1
    assert ran > 2 * len(CASES)


def test_results_may_lie_in_operands(kernels: Kernels, rng: np.random.Generator) -> None:
    pairs = 0
    for case in CASES:
        body = case.body()
        for parameter, output in sorted(regions.region_of(body).in_place):
            arrays = regions.arrays_for(rng, body, SIZES, case.make)
            wanted = regions.interpreted(body, arrays, SIZES)
            results = regions.empty_results(body, SIZES)
            results[output] = arrays[parameter].reshape(wanted[output].shape)
            compiled([body], arrays, results, SIZES, 2, kernels)
            assert_close(body, results, wanted, case.numerics, f"{case.name}, {output} in place")
            pairs += 1
    assert pairs > 30


def test_adam_writes_every_state_in_place(kernels: Kernels, rng: np.random.Generator) -> None:
    body = next(case for case in CASES if case.name == "adam").body()
    assert regions.region_of(body).in_place >= {(0, 0), (2, 1), (3, 2)}
    sizes = {"N": 10_001}
    arrays = regions.arrays_for(rng, body, sizes)
    wanted = regions.interpreted(body, [array.copy() for array in arrays], sizes)
    results = [arrays[0], arrays[2], arrays[3]]
    compiled([body], arrays, results, sizes, 2, kernels)
    assert_close(body, results, wanted, "stable", "in place")


def test_sums_of_many_terms_are_accurate(rng: np.random.Generator) -> None:
    body = make_body([(N,)], lambda x: mg.sum(x))
    columns = make_body([(N, 3)], lambda x: mg.sum(x, axis=0))
    rows = make_body([(3, N)], lambda x: mg.sum(x, axis=1))
    size = 3_000_001
    data = rng.random(size).astype(np.float32)
    exact = data.astype(np.float64).sum()
    for each, array in ((body, data), (columns, np.repeat(data[:, None], 3, 1)), (rows, data)):
        operand = array if each is not rows else np.stack([data] * 3)
        results = regions.empty_results(each, {"N": size})
        compiled([each], [operand], results, {"N": size}, 2)
        error = np.abs(results[0].astype(np.float64) - exact) / exact
        assert (error < np.finfo(np.float32).eps).all()


def test_several_bodies_in_one_launch(rng: np.random.Generator) -> None:
    adam = next(case for case in CASES if case.name == "adam")
    chosen = [adam, adam, *(c for c in CASES if c.name in ("bias update", "softmax", "total"))]
    for scale in (1, 40):
        sizes = {"B": 5, "N": 41 * scale}
        bodies = [case.body() for case in chosen]
        sets = [regions.arrays_for(rng, body, sizes) for body in bodies]
        wanted = [regions.interpreted(b, a, sizes) for b, a in zip(bodies, sets, strict=True)]
        for threads in (1, 2, 7):
            results = [regions.empty_results(body, sizes) for body in bodies]
            compiled(
                bodies, [a for s in sets for a in s], [r for s in results for r in s],
                sizes, threads,
            )
            for case, body, got, expected in zip(chosen, bodies, results, wanted, strict=True):
                assert_close(body, got, expected, case.numerics, f"{case.name}, {threads} threads")


def test_bodies_of_different_sizes_share_the_work(rng: np.random.Generator) -> None:
    bodies = [make_body([(n,), (n,)], lambda w, g: w - 0.1 * g) for n in (1, 200_000, 3, 0, 77_777)]
    operands = [a for body in bodies for a in regions.arrays_for(rng, body, {})]
    for threads in (1, 2, 3):
        results = [r for body in bodies for r in regions.empty_results(body, {})]
        compiled(bodies, operands, results, {}, threads)
        for i, result in enumerate(results):
            step = np.float32(0.1) * operands[2 * i + 1]
            np.testing.assert_array_equal(result, operands[2 * i] - step)


def test_one_structure_is_one_kernel() -> None:
    def build(x: mg.Node) -> mg.Node:
        return mg.exp(x) * 2.0

    key = kernel_key(make_body([(B, N)], build))
    assert kernel_key(make_body([(3, 4)], build)) == key
    assert kernel_key(make_body([(mg.Dim("other"),)], build)) == key
    assert kernel_key(make_body([(B, N)], lambda x: mg.exp(x) * 3.0)) != key
    assert kernel_key(make_body([((B, N), "float64")], build)) != key
    assert kernel_key(make_body([(B, N)], lambda x: mg.exp(x[::2]) * 2.0)) != key
    body = make_body([(N,)], build)
    assert step_key((body,)) != step_key((body, body))


def test_operands_that_no_kernel_reads_have_their_place(rng: np.random.Generator) -> None:
    """Equal texts of bodies with more operands are other kernels: results lie behind these."""
    bodies = [
        make_body([(N,)], lambda x: x * 2.0),
        make_body([(N,), (N,)], lambda x, unread: x * 2.0),
    ]
    assert [len(body.inputs) for body in bodies] == [1, 2]
    kernels = Kernels()
    kernels.build([(body,) for body in bodies])
    rows = rng.normal(size=50).astype(np.float32)
    for body in bodies:
        function, numbers = kernels.bind((body,), {"N": 50}, 1)
        given = [address_of(rows)] * len(body.inputs)
        result = np.zeros_like(rows)
        Program([(function, [*given, address_of(result), 0, *numbers])]).run()
        np.testing.assert_array_equal(result, 2 * rows)


def test_kernels_are_built_once() -> None:
    made = Kernels()
    small, large = (make_body([(n, 4)], lambda x: mg.tanh(x) + 0.25) for n in (2, 9))
    made.build([(small,), (large,)])
    made.build([(small,)])
    assert len(made) == len(made.sources) == 1
    assert made.bind((small,), {}, 1)[0] == made.bind((large,), {}, 1)[0]


def test_source_shows_its_work() -> None:
    body = make_body([(B, N)], regions.softmax)
    text = assemble([step_code((body,))])
    assert "3 passes over a row" in text
    assert "exp_4 = exp(subtract_3)   float32[i0, i1]" in text
    assert "result 0 is divide_7" in text
    assert "const mg_group_f32 exp_4 = mg_group_exp_below_f32(subtract_3);" in text
    last = text.partition("/* pass 3 */")[2]
    assert "saved0" in last
    # Kept for the last pass, not computed again.
    assert "group_exp" not in last.partition("fused_")[0]
    functions = text.partition("static void")[2].partition("fused_")[0]
    assert "13" not in re.sub(r"rows_[0-9a-f]{16}", "rows", functions)  # a name is a hash


def test_only_needed_helpers_are_in_the_source() -> None:
    plain = assemble([step_code((make_body([(N,)], lambda x: x + x),))])
    half = assemble([step_code((make_body([((N,), "float16")], lambda x: x + x),))])
    assert "mg_half_to_float" not in plain
    assert half.count("static inline float mg_half_to_float") == 1
    assert "mg_brain" not in half


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_survives_the_conversion(dtype: str) -> None:
    def build(x: mg.Node, y: mg.Node) -> tuple[mg.Node, mg.Node]:
        return mg.cast(x, "float32") + 0.0 * y, mg.cast(y, dtype)

    every = np.arange(1 << 16, dtype=np.uint16)
    body = make_body([((N,), dtype), ((N,), "float32")], build)
    halves = every.view(body.inputs[0].dtype)
    wide = (every.astype(np.uint32) << 16 | every * np.uint32(40503) % 65536).view(np.float32)
    results = regions.empty_results(body, {"N": 1 << 16})
    zeros = np.zeros(1 << 16, np.float32)
    compiled([body], [halves, zeros], results, {"N": 1 << 16}, 1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(results[0], halves.astype(np.float32))
    compiled([body], [halves, wide], results, {"N": 1 << 16}, 1)
    with np.errstate(all="ignore"):
        expected = wide.astype(halves.dtype)
    number = ~np.isnan(wide)
    np.testing.assert_array_equal(
        results[1].view(np.uint16)[number], expected.view(np.uint16)[number]
    )
    assert np.isnan(results[1].astype(np.float32)[~number]).all()


# ---- Random bodies

_UNARY = (mg.tanh, mg.sigmoid, mg.negative, mg.square, mg.absolute, lambda x: 0.5 * x + 0.25)
_BINARY = (mg.add, mg.subtract, mg.multiply, mg.maximum, mg.minimum)
_READS = (  # operands' shapes, and what is read of them
    ((B, N, 3), lambda x: x),
    ((N, 3), lambda x: x),
    ((3,), lambda x: x),
    ((B, 1, 1), lambda x: x),
    ((N, 1), lambda x: x),
    ((B, N, 1), lambda x: x),
    ((), lambda x: x),
    ((3, B, N), lambda x: mg.transpose(x, (1, 2, 0))),
    ((3, N), lambda x: mg.transpose(x)[::-1]),
    ((B, N, 7), lambda x: x[:, :, 5::-2]),
    ((4, N, B), lambda x: mg.transpose(x[1:])),
)


def random_case(rng: np.random.Generator) -> Case:
    """Return a random body around one iteration space, with reductions of two kinds."""
    reads = [_READS[0], *(_READS[i] for i in rng.integers(0, len(_READS), 3))]
    plan = rng.integers(0, 1 << 30, 80)

    def build(*leaves: mg.Node) -> list[mg.Node]:
        at = iter(plan)
        values = [read(leaf) for (_, read), leaf in zip(reads, leaves, strict=True)]
        axis = (-1, 1, (1, 2), (0, 1))[next(at) % 4]
        for _ in range(int(next(at)) % 8 + 3):
            kind = next(at) % 6
            x = values[next(at) % len(values)]
            if kind < 2:
                values.append(_UNARY[next(at) % len(_UNARY)](x))
            elif kind < 5:
                y = values[next(at) % len(values)]
                values.append(_BINARY[next(at) % len(_BINARY)](x, y))
            else:
                full = values[0] + x
                fold = (mg.mean, mg.max, mg.sum)[next(at) % 3]
                values.append(mg.tanh(fold(mg.tanh(full), axis=axis, keepdims=True)))
        whole = values[0]
        for value in values[len(leaves) :]:
            whole = whole + value
        outputs = [whole]
        if next(at) % 2:
            outputs.append(mg.sum(whole * 0.125, axis=(0, 2, (0, 1, 2))[next(at) % 3]))
        if next(at) % 3 == 0:
            outputs.append(mg.transpose(whole * 2.0, (1, 0, 2)))
        return outputs

    return Case("random", tuple(shape for shape, _ in reads), build)


@pytest.mark.parametrize("group", range(4))
def test_random_bodies(group: int, rng: np.random.Generator) -> None:
    made: list[tuple[Case, mg.Graph]] = []
    refused = 0
    for _ in range(12):
        case = random_case(rng)
        body = case.body()
        if isinstance(mg_region.analyze(body), mg_region.Refusal):
            refused += 1
        else:
            made.append((case, body))
    assert refused <= 6
    kernels = Kernels()
    kernels.build([(body,) for _, body in made])
    for case, body in made:
        for sizes in ({"B": 4, "N": 6}, {"B": 30, "N": 33}):
            arrays = regions.arrays_for(rng, body, sizes)
            wanted = regions.interpreted(body, arrays, sizes)
            for threads in (1, 3):
                results = regions.empty_results(body, sizes)
                compiled([body], arrays, results, sizes, threads, kernels)
                assert_close(body, results, wanted, case.numerics, f"{sizes}")
            results = regions.empty_results(body, sizes)
            regions.in_tiles(body, arrays, results, sizes)
            assert_close(body, results, wanted, case.numerics, f"{sizes}, tiles")
            for parameter, output in sorted(regions.region_of(body).in_place):
                operands = [array.copy() for array in arrays]
                results[output] = operands[parameter].reshape(wanted[output].shape)
                compiled([body], operands, results, sizes, 3, kernels)
                assert_close(body, results, wanted, case.numerics, f"{sizes}, in place")
                results[output] = np.empty_like(wanted[output])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [2, 3, 7, 8, 9, 100, 255, 257, 1031])
def test_rows_of_every_length_fold_whole(
    dtype: str, columns: int, rng: np.random.Generator
) -> None:
    """The last group of lanes: what lies behind a row is neither read nor written."""
    x = mg.var("x", shape=(None, columns), dtype=dtype)
    largest = mg.max(x, axis=1)
    f = mg.function([x], [mg.softmax(x, axis=1), largest, mg.min(x * x, axis=1), mg.sum(x * x)])
    value = rng.standard_normal((5, columns)).astype(dtype)
    value[3] = -np.inf
    value[3, -1] = 1.0
    value[4, rng.integers(columns)] = -np.nan  # its sign bit set: the smallest of integers
    value[2] = -value[2] ** 2
    shares, highest, lowest, total = f(value)
    wide = value.astype(np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    close = tolerance(value.dtype, "exact").close
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(np.isnan(shares), np.isnan(expected))
    assert close(np.nan_to_num(shares), np.nan_to_num(expected), 1.0)
    np.testing.assert_array_equal(highest, value.max(axis=1))
    np.testing.assert_array_equal(lowest, (value * value).min(axis=1))
    assert np.isnan(total)
    squares = np.sum(wide[:3] ** 2)
    assert close(f(value[:3])[3], squares, squares)
