"""Element types: names, promotion, weak scalars, feeds, limits and the tolerance table."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magmagraph.dtypes import (
    FLOATS,
    SUPPORTED,
    accumulation_dtype,
    c_name,
    can_feed,
    canonical,
    canonical_scalar,
    complex_dtype,
    finfo,
    iinfo,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_unsigned,
    kind,
    promote,
    real_dtype,
    tolerance,
    weak_dtype,
)
from magmagraph.errors import DTypeError

BY_NAME = {dtype.name: dtype for dtype in SUPPORTED}


@pytest.mark.parametrize("dtype", SUPPORTED, ids=lambda dtype: dtype.name)
def test_every_spelling_of_a_dtype(dtype: np.dtype[Any]) -> None:
    assert canonical(dtype) == canonical(dtype.name) == canonical(dtype.type) == dtype
    assert canonical(dtype.newbyteorder("S")).isnative
    kinds = [is_complex(dtype), is_float(dtype), is_integer(dtype), is_bool(dtype)]
    assert kinds.count(True) == 1
    assert is_inexact(dtype) == (is_complex(dtype) or is_float(dtype))
    assert is_unsigned(dtype) == dtype.name.startswith("uint")
    assert kind(dtype) in ("complex", "float", "integer", "bool")
    assert np.zeros((), dtype).real.dtype == real_dtype(dtype)
    if is_complex(dtype):
        assert complex_dtype(dtype) == complex_dtype(real_dtype(dtype)) == dtype


def test_python_types_and_short_names() -> None:
    assert canonical(float) == np.float32
    assert canonical(float, np.dtype("float64")) == np.float64
    assert canonical(complex) == np.complex64
    assert canonical(complex, np.dtype("float64")) == np.complex128
    assert canonical(int) == np.int32
    assert canonical(bool) == np.bool_
    assert canonical("f4") == np.float32
    assert canonical(">i8") == np.int64
    assert canonical(ml_dtypes.bfloat16).name == "bfloat16"


@pytest.mark.parametrize("wrong", ["complex8", "float128x", "O", str, None, np.dtype("M8[s]"), 3])
def test_unknown_dtypes(wrong: Any) -> None:
    with pytest.raises(DTypeError) as caught:
        canonical(wrong)
    name = wrong.name if isinstance(wrong, np.dtype) else wrong
    assert str(caught.value) == (
        f"{name!r} is not a dtype that exists here\n"
        "  expected: one of complex128, complex64, float64, float32, float16, bfloat16, "
        "int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"
        + ("\n  try: the extents of a shape as one tuple" if wrong == 3 else "")
    )


@pytest.mark.parametrize("pair", list(product(BY_NAME, repeat=2)), ids="-".join)
def test_promotion_is_that_of_numpy_within_a_kind_and_the_floats_across(
    pair: tuple[str, str],
) -> None:
    left, right = BY_NAME[pair[0]], BY_NAME[pair[1]]
    result = promote(left, right)
    assert promote(right, left) == result
    kinds = {kind(left), kind(right)}
    if kinds in ({"float", "integer"}, {"complex", "integer"}):
        assert result == (right if is_integer(left) else left)
    elif "complex" in kinds and "bfloat16" in pair:
        assert result == (left if is_complex(left) else right)
    elif "bool" in kinds:
        assert result == (right if is_bool(left) else left)
    elif set(pair) == {"bfloat16", "float16"}:
        assert result == np.float32
    elif "bfloat16" in pair:
        assert result == (left if pair[1] == "bfloat16" else right)
    else:
        assert result == np.promote_types(left, right)


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        (("int64", "uint64", "float32"), "float32"),
        (("bfloat16", "float16", "float64"), "float64"),
        (("bool", "uint8", "int8"), "int16"),
        (("bool",), "bool"),
        (("bool", "bool", "bool"), "bool"),
    ],
)
def test_promotion_of_several_does_not_depend_on_the_order(
    operands: tuple[str, ...], result: str
) -> None:
    for order in permutations(operands):
        assert promote(*(BY_NAME[name] for name in order)).name == result


@pytest.mark.parametrize(
    ("value", "other", "result"),
    [
        (2.0, "float16", "float16"),
        (2.0, "bfloat16", "bfloat16"),
        (2.0, "float64", "float64"),
        (2.0, "int32", "float32"),
        (2.0, "bool", "float32"),
        (2, "float32", "float32"),
        (2, "uint8", "uint8"),
        (-128, "int8", "int8"),
        (2, "bool", "int32"),
        (2**40, "bool", "int64"),
        (True, "int8", "int8"),
        (True, "bool", "bool"),
        (True, "float16", "float16"),
        (float("inf"), "float32", "float32"),
    ],
)
def test_python_scalars_are_weak(value: Any, other: str, result: str) -> None:
    assert weak_dtype(value, BY_NAME[other]).name == result


def test_the_default_float_is_a_parameter() -> None:
    float64 = np.dtype("float64")
    assert weak_dtype(2.0, BY_NAME["int8"], float64) == float64
    assert canonical_scalar(2.0, float64) == float64


def test_scalars_alone() -> None:
    values = [True, 5, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63, 0.5]
    assert [canonical_scalar(value).name for value in values] == [
        "bool", "int32", "int32", "int64", "int32", "int64", "uint64", "float32",
    ]  # fmt: skip
    with pytest.raises(DTypeError, match=f"the int {2**64} does not fit any integer dtype"):
        canonical_scalar(2**64)


@pytest.mark.parametrize(("value", "other"), [(256, "uint8"), (-1, "uint32"), (128, "int8")])
def test_ints_that_do_not_fit(value: int, other: str) -> None:
    limits = np.iinfo(other)
    with pytest.raises(DTypeError) as caught:
        weak_dtype(value, BY_NAME[other])
    assert str(caught.value) == (
        f"the int {value} does not fit {other}\n"
        f"  expected: an int from {limits.min} to {limits.max}\n"
        f"  try: cast the {other} operand to a wider dtype, such as int32"
    )


@pytest.mark.parametrize("pair", list(product(BY_NAME, repeat=2)), ids="-".join)
def test_feeds_go_to_their_kind_or_a_higher_one(pair: tuple[str, str]) -> None:
    source, target = BY_NAME[pair[0]], BY_NAME[pair[1]]
    order = ("integer", "float", "complex")
    kinds = kind(source), kind(target)
    fits = kinds[0] == kinds[1]
    if "bool" not in kinds:
        fits = order.index(kinds[0]) <= order.index(kinds[1])
    for array in (np.ones(3, source), np.ones(0, source)):
        assert can_feed(array, target) == fits
        if fits:
            assert (array.astype(target) == array).all()
    if is_integer(source) and is_integer(target):
        assert can_feed(source, target) == np.can_cast(source, target)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([name for name in BY_NAME if "int" in name]),
)
def test_ints_feed_where_they_fit(value: int, name: str) -> None:
    limits = np.iinfo(name)
    array = np.array([0, value], np.int64)
    assert can_feed(array, BY_NAME[name]) == (limits.min <= value <= limits.max)


@given(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 62),
    st.sampled_from([name for name in BY_NAME if "float" in name or "complex" in name]),
)
def test_ints_feed_floats_where_these_are_equal(value: int, shift: int, name: str) -> None:
    value = value >> shift << shift  # some have few digits
    array = np.array([0, value], np.uint64 if value >= 2**63 else np.int64)
    target = real_dtype(BY_NAME[name])
    with np.errstate(over="ignore"):
        there = float(array.astype(target)[1].astype(np.float64))
    exact = np.isfinite(there) and int(there) == value
    assert can_feed(array, BY_NAME[name]) == exact


def test_ints_of_every_value_feed_by_their_dtype() -> None:
    floats = {target.name: target for target in FLOATS}
    for name, narrow, wide in (("float32", "int16", "int32"), ("float64", "uint32", "int64")):
        assert can_feed(np.dtype(narrow), floats[name])
        assert not can_feed(np.dtype(wide), floats[name])


def test_other_kinds_do_not_feed() -> None:
    assert not can_feed(np.array(["a"]), BY_NAME["float32"])
    assert not can_feed(np.array([1j]), BY_NAME["float32"])


def test_accumulation_holds_many_terms() -> None:
    for dtype in SUPPORTED:
        wide = accumulation_dtype(dtype)
        assert promote(dtype, wide) == wide
        assert wide.itemsize == (
            4
            if is_float(dtype) and dtype.itemsize < 4
            else dtype.itemsize
            if is_inexact(dtype)
            else 8
        )


def test_limits() -> None:
    for dtype in SUPPORTED:
        if is_float(dtype):
            eps = dtype.type(finfo(dtype).eps)
            one = dtype.type(1)
            assert one + eps > one
            assert one + eps / dtype.type(4) == one
        elif is_integer(dtype):
            assert int(dtype.type(iinfo(dtype).max)) == iinfo(dtype).max


def test_c_names_have_the_width_of_the_dtype() -> None:
    widths = {"double _Complex": 16, "float _Complex": 8, "double": 8, "float": 4}
    for dtype in SUPPORTED:
        name = c_name(dtype)
        bits = "".join(filter(str.isdigit, name))
        assert widths.get(name, int(bits or 0) // 8) == dtype.itemsize


def test_the_tolerance_table_widens_from_exact_to_half() -> None:
    for dtype in SUPPORTED:
        rows = [tolerance(dtype, row) for row in ("exact", "stable", "reassoc")]
        assert rows == [tolerance(real_dtype(dtype), row) for row in ("exact", "stable", "reassoc")]
        if not is_inexact(dtype):
            assert rows == [(0.0, 0.0)] * 3
            continue
        assert rows == sorted(rows)
        eps = float(finfo(dtype).eps)
        assert all(eps < row.relative < 1 for row in rows)
        assert tolerance(dtype, "half").relative > 2.0**-8
    with pytest.raises(DTypeError, match="'close' is not a row of the tolerance table"):
        tolerance(BY_NAME["float32"], "close")  # type: ignore[arg-type]


def test_closeness() -> None:
    row = tolerance(BY_NAME["float32"], "exact")
    eps = 2.0**-23
    assert row.close([1.0, np.nan, -np.inf], [1.0 + 8 * eps, np.nan, -np.inf])
    assert not row.close([1.0], [1.0 + 20 * eps])
    assert not row.close([np.inf], [-np.inf])
    assert not row.close([np.nan], [0.0])
    assert not row.close([0.0], [np.nan])
    assert not row.close([np.inf], [3e38])
    assert not row.close([1.0, 1.0], [1.0])


def test_closeness_of_complex_numbers() -> None:
    row = tolerance(BY_NAME["complex64"], "exact")
    eps = 2.0**-23
    assert row.close([3.0 + 4.0j, 1e-9j], [3.0 + (4.0 + 40 * eps) * 1j, 2e-9j])
    assert not row.close([3.0 + 4.0j], [3.0 + (4.0 + 60 * eps) * 1j])
    assert not row.close([1.0 + 0.0j], [1.0 + 1e-3j])
    assert not row.close([1.0], [1.0 + 1e-3j])
    assert row.close([complex(np.inf, 1.0)], [complex(np.inf, 1.0 + eps)])
    assert not row.close([complex(np.inf, 1.0)], [complex(np.inf, 2.0)])
    assert not row.close([complex(np.inf, 1.0)], [complex(1.0, np.inf)])
    assert row.close([complex(np.nan, 1.0)], [complex(np.nan, 1.0)])
    assert not row.close([complex(np.nan, 1.0)], [complex(1.0, np.nan)])
    assert not row.close([1.0 + 0.0j], [complex(1.0, np.nan)])
    assert not row.close([100 * eps], [0.0])
    assert row.close([100 * eps], [0.0], scale=100.0)
    assert tolerance(BY_NAME["int8"]).close([1, 2], [1, 2])
    assert not tolerance(BY_NAME["int8"]).close([1, 2], [1, 3])
