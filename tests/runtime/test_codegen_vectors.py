"""Rows that are written in vectors, with exponentials, and roots that need no division."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import regions
from regions import B, N, assert_close, compiled, make_body

import magmagraph as mg
from magmagraph.codegen.c.step import assemble, step_code
from magmagraph.codegen.functions.groups import GROUP_TYPES
from magmagraph.codegen.functions.rationals import RATIONALS
from magmagraph.codegen.functions.scalar import prelude
from magmagraph.dtypes import tolerance
from magmagraph.runtime.cpu import fused
from magmagraph.runtime.cpu.compiler import compile_library
from magmagraph.runtime.cpu.compilers import find_compiler
from magmagraph.runtime.cpu.fused import Kernels
from magmagraph.runtime.cpu.support import SUPPORT_HEADER, address_of

_FLOAT32 = np.dtype(np.float32)
_EXACT = tolerance(_FLOAT32, "exact")
_SMALLEST = float(np.finfo(np.float32).tiny)
_LARGEST = float(np.finfo(np.float32).max)
_SPECIAL = np.float32([0.0, np.inf, -np.inf, np.nan, -1.0, 1e-45, -1e-40, 2.0**-127, 4.0, 1e20])

_SOURCE = """
void over_root(int64_t n, const float *y, const float *x, float *out)
{
    for (int64_t i = 0; i < n; i += mg_lanes_f32)
        mg_group_store_f32(out + i,
            mg_group_over_root_f32(mg_group_load_f32(y + i), mg_group_load_f32(x + i)));
}
void over_root3(int64_t n, const float *y, const float *x, float *out)
{
    for (int64_t i = 0; i < n; i += mg_lanes_f32)
        mg_group_store_f32(out + i,
            mg_group_over_root3_f32(mg_group_load_f32(y + i), mg_group_load_f32(x + i) + 0.0f));
}
void part_root3(int64_t n, const float *y, const float *x, float *out)
{
    for (int64_t i = 0; i < n; i += mg_lanes_f32)
        mg_group_store_f32(out + i,
            mg_group_part_root3_f32(mg_group_load_f32(y + i), mg_group_load_f32(x + i) + 0.0f));
}
double left_root3(void) { return mg_left_root3_f32(); }
void blocks(int64_t n, const float *from, double *to)
{
    mg_group_f64 whole[2] = {{0}};
    for (int64_t i = 0; i < n; i += mg_lanes_f32) {
        mg_group_f32 part = mg_group_load_f32(from + i);
        mg_group_flush_f32(whole, &part);
        to[1] += mg_group_sum_f32(part);
    }
    to[0] = mg_group_total_f32(whole);
}
void rests(float *to, const float *from)
{
    for (int rest = 1; rest < mg_lanes_f32; rest++) {
        const mg_group_f32 x = mg_group_load_rest_f32(from, rest);
        mg_group_store_rest_f32(to, mg_group_rest_f32(x + 1.0f, rest), rest);
        to[mg_lanes_f32] = mg_group_sum_f32(x);
        to += mg_lanes_f32 + 1;
    }
}
void largest(const float *from, int rest, float *to)
{
    mg_group_i32 seen = {0};
    mg_group_f32 most = mg_group_all_f32(-INFINITY), least = mg_group_all_f32(INFINITY);
    if (rest) {
        most = mg_group_rest_or_f32(mg_group_load_rest_f32(from, rest), rest, most);
        least = mg_group_rest_or_f32(mg_group_load_rest_f32(from, rest), rest, least);
        seen = mg_group_seen_f32(mg_group_seen_f32(seen, most), least);
    } else for (int g = 0; g < 2; g++, from += mg_lanes_f32) {
        most = mg_group_larger_f32(mg_group_load_f32(from), most);
        least = mg_group_smaller_f32(mg_group_load_f32(from), least);
        seen = mg_group_seen_f32(seen, mg_group_load_f32(from));
    }
    to[0] = mg_group_maximum_f32(most, seen);
    to[1] = mg_group_minimum_f32(least, seen);
}
"""
for _name in ("exp", "exp_below", "exp_within"):
    _one = "expf" if _name == "exp" else _name.replace("exp", "mg_expf")
    _SOURCE += f"""
void of_{_name}(int64_t n, const float *x, float *one, float *group)
{{
    for (int64_t i = 0; i < n; i += mg_lanes_f32)
        mg_group_store_f32(group + i, mg_group_{_name}_f32(mg_group_load_f32(x + i)));
    for (int64_t i = 0; i < n; i++) one[i] = {_one}(x[i]);
}}
void of_{_name}_summed(int64_t n, const float *x, float *group)
{{
    for (int64_t i = 0; i < n; i += mg_lanes_f32)
        mg_group_store_f32(group + i, mg_group_{_name}_summed_f32(mg_group_load_f32(x + i)));
}}
"""
# Bytes of a group, and whether the instructions for it are known.
_KINDS = [(32, ""), (64, ""), (32, "#define MG_GROUP 0\n"), (64, "#define MG_GROUP 0\n")]


def _library(lane_bytes: int, known: str = "") -> ctypes.CDLL:
    head = f"#include <math.h>\n#define MG_LANE_BYTES {lane_bytes}\n{known}{SUPPORT_HEADER}"
    rationals = "".join(RATIONALS[name] for name in ("expf(", "mg_expf_below(", "mg_expf_within("))
    return compile_library(head + rationals + GROUP_TYPES + prelude(_SOURCE) + _SOURCE)


def _quotient(lane_bytes: int, name: str, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    found = np.empty_like(x)
    library = _library(lane_bytes)
    function = getattr(library, name)
    function(ctypes.c_int64(x.size), *(ctypes.c_void_p(address_of(a)) for a in (y, x, found)))
    if name != "part_root3":
        return found
    library.left_root3.restype = ctypes.c_double
    return found.astype(np.float64) * library.left_root3()  # as sums are


def _bits(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("lane_bytes", [32, 64])
@pytest.mark.parametrize(
    ("name", "exponent", "most"),
    [("over_root", 0.5, 2.0), ("over_root3", 1.5, 2.75), ("part_root3", 1.5, 3.5)],
)
def test_quotients_of_all_bit_patterns_are_within_their_units(
    name: str, exponent: float, most: float, lane_bytes: int, rng: np.random.Generator
) -> None:
    """NumPy's are within 1.5 and 2.4 of the last place; these within 1.7, 2.5 and 3.3."""
    x, y = np.abs(_bits(rng, 1 << 20)), _bits(rng, 1 << 20)
    found = _quotient(lane_bytes, name, y, x)
    with np.errstate(all="ignore"):
        wanted = y.astype(np.float64) / x.astype(np.float64) ** exponent
        below = np.sqrt(x) * (x if exponent == 1.5 else 1)
    # Of subnormal numerators and products not even NumPy's have all digits.
    sure = np.isfinite(wanted) & (np.abs(wanted) <= _LARGEST) & np.isfinite(below)
    sure &= (below >= _SMALLEST) & (np.abs(y) >= _SMALLEST)
    unit = np.spacing(np.maximum(np.abs(wanted[sure]), _SMALLEST).astype(np.float32))
    assert sure.sum() > x.size // 5
    assert (np.abs(found[sure] - wanted[sure]) / unit).max() < most


@pytest.mark.parametrize("lane_bytes", [32, 64])
@pytest.mark.parametrize("name", ["over_root", "over_root3", "part_root3"])
@pytest.mark.parametrize("above", [1.0, -3.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45])
def test_quotients_of_zeros_infinities_and_negatives_are_numpys(
    above: float, name: str, lane_bytes: int
) -> None:
    x = np.resize(np.append(_SPECIAL, np.float32(-0.0)), 32 * 11)
    y = np.full_like(x, above)
    with np.errstate(all="ignore"):
        wanted = y / (np.sqrt(x) if name == "over_root" else x * np.sqrt(x))
    # Where x sqrt(x) is 0 or infinite though x is neither, the quotient is the true one.
    given = np.full(x.shape, True) if name == "over_root" else (np.abs(x) >= 1e-25) | (x == 0)
    found = _quotient(lane_bytes, name, y, x)
    assert _EXACT.close(found[given], wanted[given])
    np.testing.assert_array_equal(np.signbit(found[x == 0]), np.signbit(wanted[x == 0]))


@pytest.mark.parametrize(("lane_bytes", "known"), _KINDS)
@pytest.mark.parametrize("name", ["exp", "exp_below", "exp_within"])
def test_exponentials_of_groups_have_the_bits_of_those_of_numbers(
    name: str, lane_bytes: int, known: str, rng: np.random.Generator
) -> None:
    x = np.concatenate([
        rng.uniform(-120, 120, 1 << 14).astype(np.float32), _bits(rng, 1 << 14),
        np.resize(np.append(_SPECIAL, np.float32([-0.0, 88.72, 88.73, -87.3, -103.9, -104.1])), 64),
    ])
    if name != "exp":
        x = -np.abs(x)
    one, group = np.empty_like(x), np.empty_like(x)
    function = getattr(_library(lane_bytes, known), f"of_{name}")
    function(ctypes.c_int64(x.size), *(ctypes.c_void_p(address_of(a)) for a in (x, one, group)))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(np.isnan(one), ~number)
    np.testing.assert_array_equal(np.isnan(group), ~number)
    np.testing.assert_array_equal(group[number].view(np.int32), one[number].view(np.int32))
    with np.errstate(all="ignore"):
        assert _EXACT.close(group, np.exp(x))


@pytest.mark.parametrize(("lane_bytes", "known"), _KINDS)
@pytest.mark.parametrize("name", ["exp", "exp_below", "exp_within"])
def test_exponentials_that_are_added_up_are_within_their_units(
    name: str, lane_bytes: int, known: str
) -> None:
    """Every 331st float32 up to 105 and infinity, both signs where the function takes them."""
    bits = np.arange(0, np.float32(105).view(np.uint32), 331, dtype=np.uint32)
    ends = np.float32([np.inf, np.nan, 0.0, 1e30, 3e38, 88.72, 88.73, 89.4, 1e-45, 103.9, 104.1])
    x = np.concatenate([bits.view(np.float32), ends])
    x = np.concatenate([-x, x]) if name == "exp" else -x
    x = np.append(x, np.zeros(-x.size % 16, np.float32))
    found = np.empty_like(x)
    function = getattr(_library(lane_bytes, known), f"of_{name}_summed")
    function(ctypes.c_int64(x.size), *(ctypes.c_void_p(address_of(a)) for a in (x, found)))
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.float64))
    number, large = ~np.isnan(x), wanted > _LARGEST
    np.testing.assert_array_equal(np.isnan(found), ~number)
    assert (found[x == 0] == 1).all()
    assert (found[large] == np.inf).all()
    sure = number & ~large
    unit = np.spacing(np.maximum(wanted[sure], _SMALLEST).astype(np.float32))
    assert (np.abs(found[sure] - wanted[sure]) / unit).max() < 1.1


@pytest.mark.parametrize(("lane_bytes", "known"), _KINDS)
def test_exponentials_that_are_added_up_within_rows_stay_positive(
    lane_bytes: int, known: str
) -> None:
    """In a row with an infinity the others are above zero: of them no sum is lost."""
    x = np.arange(0, 0x7F800001, 1 << 12, dtype=np.uint32).view(np.float32)
    x = np.append(x, np.full(-x.size % 16, np.inf, np.float32))
    found = np.empty_like(x)
    function = _library(lane_bytes, known).of_exp_within_summed
    function(ctypes.c_int64(x.size), *(ctypes.c_void_p(address_of(a)) for a in (x, found)))
    assert (found > 0).all()
    assert found[-1] == np.inf


@pytest.mark.parametrize(("lane_bytes", "known"), _KINDS)
def test_largest_and_smallest_elements_are_those_of_every_lane(
    lane_bytes: int, known: str, rng: np.random.Generator
) -> None:
    count = lane_bytes // 4
    library, found = _library(lane_bytes, known), np.empty(2, np.float32)

    def check(given: np.ndarray, rest: int) -> None:
        places = (ctypes.c_void_p(address_of(a)) for a in (given, found))
        library.largest(next(places), ctypes.c_int(rest), next(places))
        seen = given[: rest or None]
        np.testing.assert_array_equal(found, [seen.max(), seen.min()])

    for rest in range(count):
        for lane in range(rest or 2 * count):
            for value in (np.nan, -np.nan, np.inf, -np.inf, 5.0, -5.0):
                given = rng.uniform(-1, 1, 2 * count).astype(np.float32)
                given[rest or 2 * count :] = np.nan  # beyond the end
                given[lane] = value
                check(given, rest)
        for whole in (np.inf, -np.inf, 0.0):
            check(np.full(2 * count, whole, np.float32), rest)


@pytest.mark.parametrize("lane_bytes", [32, 64])
def test_rests_of_groups_touch_nothing_beyond(lane_bytes: int) -> None:
    count = lane_bytes // 4
    given = np.arange(1, count + 1, dtype=np.float32)
    found = np.full((count - 1, count + 1), -7, np.float32)
    _library(lane_bytes).rests(*(ctypes.c_void_p(address_of(a)) for a in (found, given)))
    for rest in range(1, count):
        row = found[rest - 1]
        np.testing.assert_array_equal(row[:rest], given[:rest] + 1)
        np.testing.assert_array_equal(row[rest:count], -7)
        assert row[count] == given[:rest].sum()


Program = Callable[[mg.Node, mg.Node], Any]
_PROGRAMS: Sequence[tuple[str, Program]] = [
    ("part_root3", lambda x, y: mg.sum(y / (x * mg.sqrt(x)), axis=1)),
    ("part_root3", lambda x, y: mg.sum(2.0 / (mg.sqrt(x) * x) * y, axis=1)),
    ("part_root3", lambda x, y: [mg.sum((q := y / (x * mg.sqrt(x))) * y, 1), mg.sum(q, 1)]),
    ("over_root3", lambda x, y: mg.sum(y / (x * mg.sqrt(x)) - y, axis=1)),
    ("over_root3", lambda x, y: mg.sum((q := y / (x * mg.sqrt(x))) * q, axis=1)),
    ("over_root3", lambda x, y: mg.sum(x / (x * mg.sqrt(x)) / (y * mg.sqrt(y)), axis=1)),
    ("over_root", lambda x, y: mg.sum(y / mg.sqrt(x), axis=1)),
    ("over_root", lambda x, y: mg.sum(mg.rsqrt(x) - y, axis=1)),
    ("fma", lambda x, y: mg.sum(x * y, axis=1)),
    ("fma", lambda x, y: mg.sum(mg.sqrt(x * x + (y * y + 0.5)), axis=1)),
    ("fma", lambda x, y: mg.sum(3.0 * (x - y), axis=1)),
    ("sum", lambda x, y: mg.sum((x - y) / (x + y), axis=1)),
    ("sqrt", lambda x, y: mg.sum(mg.sqrt(x) + y, axis=1)),
    ("exp_summed", lambda x, y: mg.sum(mg.exp(x - y) * y, axis=1)),
    ("exp_summed", lambda x, y: mg.sum(mg.exp(-0.5 * (x - y) * (x - y)) * y, axis=1)),
    ("exp_summed", lambda x, y: mg.sum(1.0 / (1.0 + mg.exp(-x)) - y, axis=1)),
    ("exp", lambda x, y: [mg.sum((e := mg.exp(x - y)), axis=1), mg.max(e, axis=1)]),
    ("maximum", lambda x, y: mg.max(x - 3.0 * y, axis=1)),
    ("minimum", lambda x, y: mg.min(mg.exp(-x) * y, axis=1)),
    ("exp_below", lambda x, y: mg.softmax(x - y, axis=1) * y),
    ("exp_below_summed", lambda x, y: mg.log_softmax(x - y, axis=1) * y),
    ("exp_within_summed", lambda x, y: mg.logsumexp(x * y, axis=1)),
    ("store_rest", lambda x, y: (x - mg.mean(x, 1, keepdims=True)) * y),
]


def _text(build: Callable[..., Any], operands: int = 2) -> str:
    return assemble([step_code((make_body([(B, N)] * operands, build),))])


@pytest.mark.parametrize(("function", "program"), _PROGRAMS)
def test_rows_of_arithmetic_are_in_vectors_and_right(
    function: str, program: Program, rng: np.random.Generator
) -> None:
    body = make_body([(B, N)] * 2, program)
    step = step_code((body,))
    assert step.vectors
    assert f"mg_group_{function}_f32(" in step.text()
    kernels = Kernels()
    kernels.build([(body,)])
    for columns in (1, 2, 7, 8, 15, 16, 17, 40, 1000, 1024, 1041, 2500):
        sizes = {"B": 5, "N": columns}
        arrays = [rng.random((5, columns), dtype=np.float32) + 0.25 for _ in range(2)]
        wanted = regions.interpreted(body, arrays, sizes)
        results = regions.empty_results(body, sizes)
        compiled([body], arrays, results, sizes, 2, kernels)
        assert_close(body, results, wanted, "reassoc", f"{columns} columns")


@pytest.mark.parametrize(
    "build",
    [
        lambda x, y: (mg.sum((q := y / mg.sqrt(x)), axis=1), q),
        lambda x, y: (mg.sum((q := y / mg.sqrt(x)), axis=1), mg.max(q, axis=1)),
        lambda x, y: mg.sum(mg.where(y / mg.sqrt(x) > 1.0, x, y), axis=1),
        lambda x, y: (mg.sum(y / (r := mg.sqrt(x)), axis=1), mg.sum(r, axis=1)),
    ],
    ids=["result", "maximum", "compared", "root used"],
)
def test_a_quotient_that_is_kept_or_compared_is_exact(build: Callable[..., Any]) -> None:
    """Another kernel may compute it again: it must have the same last bits."""
    assert "_root" not in _text(build)


def test_what_is_kept_or_compared_has_the_roundings_of_its_operations() -> None:
    for build in (
        lambda x, y: (mg.sum((z := x * x + 1.0), axis=1), z),
        lambda x, y: (mg.sum((z := x * x + 1.0), axis=1), mg.max(z, axis=1)),
        lambda x, y: (mg.sum(mg.sqrt((z := x * x) + 1.0), axis=1), mg.min(z, axis=1)),
    ):
        assert "mg_group_fma" not in _text(build)
    assert "mg_group_fma" in _text(lambda x, y: mg.sum(mg.sqrt(x * x + 1.0), axis=1))


def test_squares_and_positive_constants_are_added_beginning_with_these() -> None:
    def added(constant: float, last: Callable[[mg.Node, mg.Node], mg.Node]) -> int:
        text = _text(lambda x, y: mg.sum(mg.sqrt(x * x + last(x, y) + constant), axis=1))
        return max(line.count("mg_group_fma_f32(") for line in text.splitlines())

    assert added(0.5, lambda x, y: y * y) == 2
    assert added(-0.5, lambda x, y: y * y) == 1  # of the squares: what is left may be near zero
    assert added(0.5, lambda x, y: x * y) == 0


def test_a_factor_is_left_to_sums_of_products_alone() -> None:
    def left(build: Callable[..., Any]) -> bool:
        return "mg_left_root3_f32()" in _text(build)

    assert left(lambda x, y: mg.sum(x * (y / (x * mg.sqrt(x))) * 3.0, axis=1))
    assert not left(lambda x, y: mg.sum((y / (x * mg.sqrt(x))) * 3.0 + x, axis=1))
    assert not left(lambda x, y: mg.sum(mg.sqrt(y / (x * mg.sqrt(x))), axis=1))
    assert not left(lambda x, y: mg.sum(y / (y / (x * mg.sqrt(x))), axis=1))


_STAGED: Sequence[tuple[int, Program]] = [  # how many groups ahead; 0: each at once
    (4, lambda x, y: mg.sum(y / mg.sqrt((x - y) * (x - y) + 0.5), axis=1)),
    (4, lambda x, y: mg.sum(mg.exp(-0.5 * (x - y) * (x - y)) * x, axis=1)),
    (4, lambda x, y: [mg.sum(mg.exp((d := x * y - 0.5) * d), 1), mg.max(mg.exp(d * d) * y, 1)]),
    (2, lambda x, y: mg.sum(
        mg.exp((a := x + y) * (b := x - y) * (c := a * x) * (d := b * y) * (e := a * y))
        / (a + 3.0) / (b + 3.0) / (c + 3.0) / (d + 3.0) / (e + 3.0),
        axis=1,
    )),
    (0, lambda x, y: mg.sum(mg.exp(x - y), axis=1)),
    (0, lambda x, y: mg.sum((x - y) * (x - y) / (x + y), axis=1)),
    (0, lambda x, y: mg.exp((d := x * y - 0.5) * d) - mg.mean(x, axis=1, keepdims=True)),
]


@pytest.mark.parametrize(("ahead", "program"), _STAGED)
def test_what_is_before_a_long_chain_is_computed_groups_ahead(
    ahead: int, program: Program, rng: np.random.Generator
) -> None:
    body = make_body([(B, N)] * 2, program)
    step = step_code((body,))
    assert step.vectors
    found = set(re.findall(r"_ahead\[(\d)\]", step.text()))
    assert found == ({str(ahead)} if ahead else set())
    kernels = Kernels()
    kernels.build([(body,)])
    for columns in (1, 16, 31, 32, 48, 63, 64, 65, 128, 144, 1000, 1040, 1088, 1100, 3300):
        arrays = [rng.random((3, columns), dtype=np.float32) + 0.25 for _ in range(2)]
        sizes = {"B": 3, "N": columns}
        results = regions.empty_results(body, sizes)
        compiled([body], arrays, results, sizes, 2, kernels)
        wanted = regions.interpreted(body, arrays, sizes)
        assert_close(body, results, wanted, "reassoc", f"{columns} columns")


@pytest.mark.parametrize(("lane_bytes", "known"), _KINDS)
def test_blocks_are_added_up_in_double(
    lane_bytes: int, known: str, rng: np.random.Generator
) -> None:
    given, found = rng.random(1 << 10, dtype=np.float32), np.zeros(2)
    places = (ctypes.c_void_p(address_of(a)) for a in (given, found))
    _library(lane_bytes, known).blocks(ctypes.c_int64(given.size), *places)
    assert found[0] == pytest.approx(given.astype(np.float64).sum(), rel=1e-15)
    assert found[1] == 0  # a block begins anew


def test_only_a_root_of_what_may_be_negative_zero_is_guarded() -> None:
    guarded = _text(lambda x, y: mg.sum(y / (x * mg.sqrt(x)), axis=1))
    assert re.search(r"part_root3_f32\(\w+, \w+ \+ 0\.0f\)", guarded)
    positive = _text(lambda x, y: mg.sum(y / ((s := x * x + 0.5) * mg.sqrt(s)), axis=1))
    assert re.search(r"part_root3_f32\(\w+, add_\d+\)", positive)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: mg.sum(mg.tanh(x), axis=1),
        lambda x: mg.prod(x, axis=1),
        lambda x: mg.sum(mg.exp(x), axis=1) + mg.max(mg.tanh(x), axis=1),
        lambda x: mg.sum(mg.cast(x, "float64"), axis=1),
        lambda x: mg.sum(mg.where(x > 0, x, 0.0), axis=1),
    ],
)
def test_other_loops_are_left_to_the_compiler(build: Callable[..., Any]) -> None:
    assert not step_code((make_body([(B, N)], build),)).vectors


def test_kernels_in_vectors_take_a_lower_level(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []
    known = fused.compile_libraries

    def listening(
        sources: Sequence[str], levels: Sequence[str | None], **options: bool
    ) -> list[ctypes.CDLL]:
        found.extend(levels)
        return known(sources, levels, **options)

    monkeypatch.setattr(fused, "compile_libraries", listening)
    plain = make_body([(B, N)], lambda x: mg.sum(x * x + 0.25, axis=1))
    gcc = find_compiler().version.startswith("gcc") and platform.machine() == "x86_64"
    Kernels().build([(plain,)])
    for build in (
        lambda x: mg.softmax(x * 0.75, axis=1),
        lambda x: mg.sum(mg.tanh(x), axis=1),
        lambda x: mg.sum(mg.exp(x), axis=1),
        lambda x: x - mg.mean(x * 0.75, axis=1, keepdims=True),
    ):
        Kernels().build([(make_body([(B, N)], build),)])
    monkeypatch.setenv("MAGMAGRAPH_OPTIMIZATION", "-O3")
    Kernels().build([(plain,)])
    low = "1" if gcc else None
    assert found == [low, low, None, None, None, None]


def test_kernels_in_vectors_do_without_math_h() -> None:
    """The header takes the compiler a sixth of such a kernel's time."""
    assert "math.h" not in _text(lambda x: mg.softmax(x, axis=1), 1)
    assert "math.h" not in _text(lambda x, y: mg.sum(y / (x * mg.sqrt(x)), axis=1))
