"""Lanes of a vector, joined: for processors with vectors of 32 bytes and of 64."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.runtime.numpy.compiler import compile_library
from magmagraph.runtime.numpy.functions.scalar import prelude
from magmagraph.runtime.numpy.support import SUPPORT_HEADER, address_of

_SOURCE = """
int64_t lanes(void) {{ return mg_lanes_f{bits}; }}
{kind} joined_sum(const {kind} *part) {{ return mg_lanes_sum_f{bits}(part); }}
{kind} joined_max(const {kind} *part, const int{bits}_t *nan)
{{ return mg_lanes_maximum_f{bits}(part, nan); }}
{kind} joined_min(const {kind} *part, const int{bits}_t *nan)
{{ return mg_lanes_minimum_f{bits}(part, nan); }}
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
        some[lane] = 1
        assert np.isnan(library.joined_max(address_of(part), address_of(some)))
        assert np.isnan(library.joined_min(address_of(part), address_of(some)))
    for _ in range(20):
        part = rng.integers(-1000, 1000, count).astype(real)
        assert library.joined_sum(address_of(part)) == part.sum()
        assert library.joined_max(address_of(part), address_of(none)) == part.max()
        assert library.joined_min(address_of(part), address_of(none)) == part.min()


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
@pytest.mark.parametrize("columns", [1, 511, 512, 513, 1025, 16_384, 16_385, 40_000])
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
