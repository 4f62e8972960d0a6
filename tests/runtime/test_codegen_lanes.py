"""Lanes of a vector, joined: for processors with vectors of 32 bytes and of 64."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.functions.scalar import prelude
from magmagraph.runtime.cpu.compiler import compile_library
from magmagraph.runtime.cpu.support import SUPPORT_HEADER, address_of

_SOURCE = """
int64_t lanes(void) {{ return mg_lanes_f{bits}; }}
{kind} joined_sum(const {kind} *part) {{ return mg_lanes_sum_f{bits}(part); }}
{kind} joined_max(const {kind} *part, const int{bits}_t *seen)
{{ return mg_lanes_maximum_f{bits}(part, seen); }}
{kind} joined_min(const {kind} *part, const int{bits}_t *seen)
{{ return mg_lanes_minimum_f{bits}(part, seen); }}
void flush(double *whole, {kind} *part, int first) {{ mg_lanes_flush_f{bits}(whole, part, first); }}
double total(const double *whole) {{ return mg_lanes_total_f{bits}(whole); }}
int64_t seen({kind} *value) {{ return mg_lanes_seen_f{bits}(0, *value); }}
"""


def _library(lane_bytes: int, bits: int) -> ctypes.CDLL:
    kind = {32: "float", 64: "double"}[bits]
    source = _SOURCE.format(bits=bits, kind=kind)
    head = f"#include <math.h>\n#define MG_LANE_BYTES {lane_bytes}\n"
    library = compile_library(head + SUPPORT_HEADER + prelude(source) + source)
    for name in ("sum", "max", "min"):
        function = getattr(library, f"joined_{name}")
        function.restype = {32: ctypes.c_float, 64: ctypes.c_double}[bits]
        function.argtypes = [ctypes.c_void_p] * (1 if name == "sum" else 2)
    library.flush.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    library.total.argtypes = library.seen.argtypes = [ctypes.c_void_p]
    library.total.restype, library.seen.restype = ctypes.c_double, ctypes.c_int64
    return library


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("lane_bytes", [32, 64])
def test_every_lane_counts_once(lane_bytes: int, bits: int, rng: np.random.Generator) -> None:
    library = _library(lane_bytes, bits)
    count = lane_bytes * 8 // bits
    assert library.lanes() == count
    real, whole = np.dtype(f"float{bits}"), np.dtype(f"int{bits}")
    for lane in range(count):
        part = np.zeros(count, real)
        part[lane] = 3.0
        none = np.zeros(count, whole)
        assert library.joined_sum(address_of(part)) == 3.0
        assert library.joined_max(address_of(part), address_of(none)) == 3.0
        assert library.joined_min(address_of(-part), address_of(none)) == -3.0
        some = none.copy()
        some[lane] = np.array(np.inf, real).view(whole) + 1
        assert np.isnan(library.joined_max(address_of(part), address_of(some)))
        assert np.isnan(library.joined_min(address_of(part), address_of(some)))
    for _ in range(20):
        part = rng.integers(-1000, 1000, count).astype(real)
        assert library.joined_sum(address_of(part)) == part.sum()
        assert library.joined_max(address_of(part), address_of(none)) == part.max()
        assert library.joined_min(address_of(part), address_of(none)) == part.min()


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("lane_bytes", [32, 64])
def test_blocks_go_into_doubles_and_begin_anew(lane_bytes: int, bits: int) -> None:
    library = _library(lane_bytes, bits)
    count = lane_bytes * 8 // bits
    part = np.arange(1, count + 1).astype(f"float{bits}")
    whole = np.full(count, np.nan)  # what lay there before the first block does not count
    for block in range(3):
        library.flush(address_of(whole), address_of(part), block == 0)
        np.testing.assert_array_equal(part, 0)
        part += 2**-20 if block == 0 else 2.0**24  # digits that a float has not side by side
    wanted = np.arange(1, count + 1) + 2**-20 + 2.0**24
    np.testing.assert_array_equal(whole, wanted)
    assert library.total(address_of(whole)) == wanted.sum()


@pytest.mark.parametrize("bits", [32, 64])
def test_nan_of_either_sign_is_above_infinity(bits: int) -> None:
    library, real = _library(32, bits), np.dtype(f"float{bits}")
    top = int(np.array(np.inf, real).view(f"int{bits}"))
    for value in (0.0, -0.0, -1.0, np.finfo(real).max, np.inf, -np.inf):
        assert library.seen(address_of(np.array([value], real))) <= top
    for value in (np.nan, -np.nan):
        assert library.seen(address_of(np.array([value], real))) > top


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [2, 7, 16, 17, 100, 600])
def test_nan_and_infinity_reach_the_ends_of_a_row(columns: int, dtype: str) -> None:
    """At each place of a row, in the rest as in the groups; of either sign, and rows of nothing."""
    value = np.zeros((columns, columns), dtype)
    kinds = (np.nan, -np.nan, np.inf, -np.inf)
    x = mg.var("x", shape=("rows", columns), dtype=dtype)
    f = mg.function([x], [mg.max(x, axis=1), mg.min(x, axis=1), mg.softmax(x, axis=1)])
    for kind in kinds:
        np.fill_diagonal(value, kind)
        high, low, shares = f(value)
        np.testing.assert_array_equal(high, value.max(axis=1))
        np.testing.assert_array_equal(low, value.min(axis=1))
        wanted = value.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            wanted = np.exp((value - wanted).astype(np.float64))
            wanted /= wanted.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(shares, wanted, rtol=4e-6)
    lowest = f(np.full((3, columns), -np.inf, dtype))
    np.testing.assert_array_equal(lowest[0], -np.inf)
    assert np.isnan(lowest[2]).all()
    assert f(np.zeros((0, columns), dtype))[0].shape == (0,)


def test_groups_fill_the_vectors_of_the_processor() -> None:
    """Half vectors took up to 2.8 times as long: the header asks the compiler what there is."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        pytest.skip("the system does not tell the processor's features")
    library = compile_library(SUPPORT_HEADER + "int64_t lanes(void) { return mg_lanes_f32; }\n")
    assert library.lanes() == (16 if re.search(r"\bavx512f\b", flags) else 8)


@pytest.mark.parametrize("columns", [511, 512, 513, 5000])
def test_rows_of_several_blocks_are_added_up_whole(columns: int, rng: np.random.Generator) -> None:
    value = rng.random((3, columns), dtype=np.float32)
    x = mg.var("x", shape=value.shape)
    f = mg.function([x], mg.sum(x, axis=1), options={"reduce_to_gemv": "never"})
    np.testing.assert_allclose(f(value), value.sum(axis=1, dtype=np.float64), rtol=2e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 511, 512, 513, 1023, 1024, 1025, 1040, 2048, 2049, 40_000])
def test_every_element_of_every_block_counts_once(
    columns: int, dtype: str, rng: np.random.Generator
) -> None:
    """Sums of whole numbers are exact: at the edges of blocks, and of what some blocks make."""
    value = rng.integers(-8, 9, (3, columns)).astype(dtype)
    x = mg.var("x", shape=value.shape, dtype=value.dtype)
    results = [mg.sum(x, axis=1), mg.sum(x * x, axis=1), mg.max(x, axis=1)]
    found = mg.function([x], results, options={"reduce_to_gemv": "never"})(value)
    for got, want in zip(found, (value.sum(1), (value * value).sum(1), value.max(1)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_long_row_is_added_up_as_exactly_as_by_pairs(rng: np.random.Generator) -> None:
    value = rng.random((1, 1 << 21), dtype=np.float32)
    x = mg.var("x", shape=value.shape)
    f = mg.function([x], mg.sum(x, axis=1), options={"reduce_to_gemv": "never"})
    np.testing.assert_allclose(f(value), value.sum(axis=1, dtype=np.float64), rtol=2e-7)
