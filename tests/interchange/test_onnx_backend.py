"""ONNX's own tests of operators: each passes here, or is listed with the reason."""

from __future__ import annotations

import re
from typing import Any

import pytest
from onnx_cases import cases, check, compiled, interpreted
from onnx_left_out import LEFT_OUT, PASSED, TESTS, VERSION, WITH_VALUES, reason_of

import magmagraph as mg

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install magmagraph[onnx])")

_GROUPS = 40


def test_most_cases() -> None:
    """In the default run, without those that ONNX writes out as other operators."""
    left = re.compile(r"test_(cast|attention_4d).*|.*_expanded")
    for name, case in cases(whole=False).items():
        if reason_of(name) is None and not left.fullmatch(name):
            _check(case, interpreted)


def _check(case: Any, run: Any) -> bool:
    try:
        return check(case, run)
    except Exception as error:
        raise AssertionError(f"{case.name}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("group", range(_GROUPS))
def test_all_cases_compiled(group: int) -> None:
    names = [name for name in cases() if reason_of(name) is None]
    for name in names[group::_GROUPS]:
        _check(cases()[name], compiled)


@pytest.mark.slow
def test_the_counts_of_the_page() -> None:
    passing = [name for name in cases() if reason_of(name) is None]
    if onnx.__version__ != VERSION:
        pytest.skip(f"the page is about onnx {VERSION}, not {onnx.__version__}")
    assert (len(cases()), len(passing)) == (TESTS, PASSED)
    assert sum(_check(cases()[name], interpreted) for name in passing) == WITH_VALUES


@pytest.mark.slow
def test_what_is_left_out_fails() -> None:
    """A row that is not needed would hide the next mistake."""
    for name, case in cases().items():
        if reason_of(name) is not None:
            with pytest.raises((mg.OnnxError, AssertionError)):
                check(case, interpreted)
    used = {reason_of(name) for name in cases()}
    assert {reason for _, reason in LEFT_OUT} <= used
