"""Calls the records of the operation table with their samples: shared by its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import canonical, is_complex, is_float, tolerance
from magmagraph.ir.op import Composite, Kind, Op, Sample
from magmagraph.ops import TABLE

DTYPES = tuple(map(canonical, ("float64", "float32", "float16", "bfloat16")))
COMPLEX = tuple(map(canonical, ("complex128", "complex64")))
Record = Op | Composite
Case = TypeVar("Case")

# What users call. Random numbers have no samples and no reference: their tests are statistical.
PUBLIC: dict[str, Record] = {
    name: record
    for name, record in TABLE.items()
    if record.function is not None and record.kind is not Kind.RANDOM
}


def together(cases: Iterable[Case], count: int) -> list[list[Case]]:
    """Return cases in groups: the tests of one compile, since starting a compiler takes long."""
    all_cases = list(cases)
    return [all_cases[i : i + count] for i in range(0, len(all_cases), count)]


@contextmanager
def naming(*parts: Any) -> Iterator[None]:
    """Let a failure say which of a test's many cases it is of."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the case: {', '.join(map(str, parts))}")
        raise


def each_record(
    cases: Iterable[tuple[Any, ...]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make one test of all cases of a record: so many tests would take longer than their work.

    A failure names its case.
    """
    by_name: dict[str, list[tuple[Any, ...]]] = {}
    for case in cases:
        by_name.setdefault(case[0], []).append(case)

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.parametrize("name", by_name)
        def test(name: str) -> None:
            for case in by_name[name]:
                with naming(*case):
                    check(*case)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def dtypes_of(record: Record) -> tuple[np.dtype, ...]:
    """Return the float and complex dtypes that a record takes."""
    return tuple(dtype for dtype in (*DTYPES, *COMPLEX) if dtype.name in record.dtypes)


def samples(records: dict[str, Record] = PUBLIC) -> Iterator[tuple[str, int]]:
    """Name every sample of every record."""
    for name, record in records.items():
        for i in range(len(record.tests.samples() if record.tests.samples is not None else ())):
            yield name, i


def sample_of(name: str, i: int) -> tuple[Record, Sample]:
    """Return the record and its sample."""
    record = TABLE[name]
    assert record.tests.samples is not None
    return record, record.tests.samples()[i]


def some_samples(record: Record, which: str) -> list[int]:
    """Return the numbers of "all" samples, or of the "first" of each set of operands' dtypes."""
    numbers: dict[Any, int] = {}
    for i, sample in enumerate(record.tests.samples() if record.tests.samples is not None else ()):
        parts = flattened(sample.inputs)
        dtypes = frozenset(v.dtype for v in parts if isinstance(v, (np.ndarray, np.generic)))
        numbers.setdefault(dtypes if which == "first" else i, i)
    return list(numbers.values())


# `make test` takes the first sample of each record and dtype, `make test-all` all of them.
FIRST_OR_ALL = pytest.mark.parametrize(
    "which", ["first", pytest.param("all", marks=pytest.mark.slow)]
)


def is_float_array(value: Any) -> bool:
    """Tell whether a sample's operand is an array of floats."""
    return isinstance(value, (np.ndarray, np.generic)) and is_float(value.dtype)


def is_complex_array(value: Any) -> bool:
    """Tell whether a sample's operand is an array of complex numbers."""
    return isinstance(value, (np.ndarray, np.generic)) and is_complex(value.dtype)


def mapped(values: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Change every array among operands, also those inside lists."""
    return tuple(
        [change(v) for v in value] if isinstance(value, list) else change(value) for value in values
    )


def flattened(values: tuple[Any, ...]) -> list[Any]:
    """Return all operands, those inside lists too."""
    return [part for value in values for part in (value if isinstance(value, list) else [value])]


def rounded(operands: tuple[Any, ...], dtype: np.dtype) -> tuple[Any, ...]:
    """Return the operands with float arrays in a dtype; complex ones get an imaginary part."""

    def change(value: Any) -> Any:
        if is_complex_array(value):  # a sample for complex numbers only
            return value.astype(dtype) if is_complex(dtype) else value
        if not is_float_array(value):
            return value
        if not is_complex(dtype):
            return value.astype(dtype)
        phases = np.cos(np.arange(1.0, 1.0 + value.size)).reshape(value.shape)
        numbers = np.empty(value.shape, dtype=dtype)
        numbers.real, numbers.imag = value, 0.45 + 0.25 * phases  # away from cuts, poles and zeros
        return numbers

    return mapped(operands, change)


def widened(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operands in float64 or complex128: what the reference is given."""
    return mapped(
        operands,
        lambda v: v.astype(np.complex128) if is_complex_array(v)
        else v.astype(np.float64) if is_float_array(v) else v,
    )


def leaves(operands: tuple[Any, ...], label: str = "x") -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """Return inputs in the arrays' places, and what to feed them."""
    feeds: dict[Any, Any] = {}

    def leaf(value: Any) -> Any:
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        node = mg.input(f"{label}{len(feeds)}", value.shape, value.dtype)
        feeds[node] = value
        return node

    return mapped(operands, leaf), feeds


def awkward(array: Any) -> Any:
    """Return the same values in memory that is neither contiguous nor in NumPy's order."""
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return array
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    wide[...] = array.dtype.type(1)
    strided = np.asfortranarray(wide)[..., 1::2]
    strided[...] = array
    return strided


def results(value: Any) -> list[Any]:
    """Return one result or several as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def magnitude(*values: Any) -> float:
    """Return the largest finite absolute value among arrays, at least 1."""
    largest = 1.0
    for value in values:
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, (str, tuple)):  # names, and subscripts
                continue
            array = np.abs(part) if is_complex_array(part) else np.asarray(part, dtype=np.float64)
            finite = np.abs(array[np.isfinite(array)])
            largest = max(largest, float(np.max(finite, initial=0.0)))
    return largest


def assert_agrees(
    actual: Any, expected: Any, numerics: str, scale: float = 1.0, what: str = ""
) -> None:
    """Compare by the row of the tolerance table for the actual value's dtype."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (
        f"{what}: shapes {actual.shape} and {expected.shape} differ"
    )
    assert tolerance(actual.dtype, numerics).close(actual, expected, scale), (
        f"{what}: {actual!r} differs from {expected!r}"
    )
