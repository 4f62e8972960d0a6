"""The records of operations: small, read, compared by value, and pickled by name."""

from __future__ import annotations

import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.ir.op import (
    INEXACT,
    REAL,
    Composite,
    Kernel,
    Kind,
    Layout,
    Linalg,
    Op,
    Precision,
    Scalar,
    Tests,
)
from magmagraph.ops import TABLE

ROOT = Path(mg.__file__).parent
SMALL = (Scalar, Kernel, Layout, Linalg, Precision, Tests)
OPS = [record for record in TABLE.values() if isinstance(record, Op)]


def test_each_field_of_the_core_says_something_of_eight_operations() -> None:
    default = Op(name="", kind=Kind.LEAF, rule=lambda call: None, evaluate=lambda xp: None)
    for field in dataclasses.fields(Op):
        plain = getattr(default, field.name)
        count = sum(getattr(record, field.name) != plain for record in OPS)
        assert count >= 8, f"{field.name}: {count} records; a small record is the place for it"


@pytest.mark.parametrize("kind", [Op, Composite, *SMALL], ids=lambda kind: kind.__name__)
def test_each_field_is_read(kind: type) -> None:
    files = [
        *ROOT.rglob("*.py"),
        *ROOT.parent.glob("tests/**/*.py"),
        *ROOT.parent.glob("docs/*.py"),
    ]
    text = "\n".join(path.read_text() for path in files if path != Path(__file__))
    for field in dataclasses.fields(kind):
        group = rf"\.{kind.__name__.lower()}" if kind in SMALL else ""
        own = rf"\bself\.{field.name}\b|" if kind in SMALL else ""
        assert re.search(rf"{own}{group}\.{field.name}\b(?!=)", text), f"{field.name} is not read"


def test_a_small_record_has_a_default_for_every_field() -> None:
    for kind in SMALL:
        for field in dataclasses.fields(kind):
            assert getattr(kind(), field.name) == field.default


def test_dtypes_are_compared_by_value() -> None:
    def made(*dtypes: str) -> Op:
        return Op(
            name="moved",
            kind=Kind.LAYOUT,
            rule=lambda call, x: x,
            evaluate=lambda xp, x: x,
            dtypes=dtypes,
        )

    x = mg.constant(np.ones(2, np.complex64))
    for dtypes in (REAL, REAL[::-1]):
        with pytest.raises(mg.DTypeError, match="moved: an operand of dtype complex64"):
            made(*dtypes)(x)
    assert made(*INEXACT)(x).dtype == np.complex64


def test_what_moves_values_takes_all_dtypes() -> None:
    x = mg.constant(np.array([1 + 2j, 3 - 1j]))
    result = mg.cond(True, lambda v: v, lambda v: -v, x)
    np.testing.assert_array_equal(result.eval(), [1 + 2j, 3 - 1j])


def test_a_record_is_pickled_by_its_name() -> None:
    for record in (TABLE["add"], TABLE["loop"], TABLE["cholesky"]):
        text: Any = pickle.dumps(record)
        assert len(text) < 100 and record.name.encode() in text
        assert pickle.loads(text) is record
