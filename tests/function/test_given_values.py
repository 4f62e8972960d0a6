"""Feeds and new values that are converted: what is beyond the range of the dtype is told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import DTypeError, FeedError, PassError


@pytest.mark.parametrize(
    ("dtype", "given", "largest"),
    [
        ("float32", np.array([1.0, 1e300, -1e39]), r"1e\+300"),
        ("float16", np.array([1.0, 2.0, 1e6], np.float32), "1e\\+06"),
        ("complex64", np.array([1.0, 1e300j, 0.0]), r"0\+1e\+300j"),
    ],
)
def test_values_that_become_infinite_are_told(dtype: str, given: np.ndarray, largest: str) -> None:
    x = mg.input("pressure", (3,), dtype)
    f = mg.function([x], x)
    with np.errstate(all="ignore"):
        wanted = given.astype(dtype)
    text = (
        rf"input 'pressure' \({dtype}\[3\]\) is given {given.dtype.name} values beyond the range "
        rf"of {dtype}, such as {largest}: \d of 3 become infinite\n.*\n  try: scaled values"
    )
    with pytest.warns(RuntimeWarning, match=text):
        np.testing.assert_array_equal(f(given), wanted)
    w = mg.var("w", init=np.zeros(3, dtype))
    with pytest.warns(RuntimeWarning, match="variable 'w' is given"):
        w.value = given
    np.testing.assert_array_equal(w.value, wanted)


def test_values_in_range_and_infinities_warn_of_nothing() -> None:
    x = mg.input("x", ("n",))
    f = mg.function([x], x * 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in ([np.inf, -np.inf, np.nan], [3.4e38], [1e-300], []):
            found = f(np.array(given))
            np.testing.assert_array_equal(found, np.array(given).astype(np.float32))


@pytest.mark.parametrize(
    ("dtype", "given", "hint"),
    [
        ("int8", [1, 300], "dtype='int16' for what takes them: 300 is among them"),
        ("uint8", [1, -300], "dtype='int16' for what takes them: -300 is among them"),
        ("int32", [2**40, 0], f"dtype='int64' for what takes them: {2**40} is among them"),
        ("uint16", [2**16], "dtype='int32' for what takes them: 65536 is among them"),
    ],
)
def test_the_mend_of_large_integers_does_not_wrap_around(
    dtype: str, given: list[int], hint: str
) -> None:
    x = mg.input("x", ("n",), dtype)
    with pytest.raises(FeedError, match=hint):
        mg.function([x], x)(np.array(given))
    w = mg.var("w", init=np.zeros(len(given), dtype))
    with pytest.raises(DTypeError, match=hint):
        w.assign(np.array(given))


def test_passes_are_a_tuple() -> None:
    x = mg.input("x", ())
    passes: Any
    for passes in (3, "fuse"):
        with pytest.raises(PassError, match=f"passes={passes!r}\n  expected: a tuple"):
            mg.function([x], x, passes=passes)
    assert mg.function([x], x * 2, passes=list(mg.passes.default()))(2.0) == 4.0


def test_python_types_as_dtypes_follow_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, whole in (("float32", "complex64"), ("float64", "complex128")):
        monkeypatch.setattr(mg.config, "float_dtype", setting)
        for kind, wanted in ((float, setting), (complex, whole), (int, "int32"), (bool, "bool")):
            for given in (kind, kind.__name__):
                assert mg.zeros((2,), dtype=given).dtype == wanted
                assert mg.cast(1, given).dtype == wanted
                assert mg.input("x", (), given).dtype == wanted
        assert mg.zeros((2,), dtype="double").dtype == np.float64
        assert mg.zeros((2,), dtype=np.dtype(float)).dtype == np.float64
    monkeypatch.setattr(mg.config, "float_dtype", float)  # Python's own is of 64 bits
    assert mg.config.float_dtype == np.float64


def test_a_node_has_no_digits() -> None:
    x = mg.input("x", (2,))
    text = r"the format '.3f' of a node .*\n  try: f'\{node.eval\(\)"
    with pytest.raises(TypeError, match=text):
        f"{x:.3f}"
    assert f"{x}" == str(x)
