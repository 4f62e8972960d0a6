"""The walk through the code in docs/walkthrough.md: its names exist, and run in its order."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
WALK = PAGE[PAGE.index("ten stops\n") :]
STOPS = [
    (file, name, " ".join(text.split()))
    for file, name, text in re.findall(
        r"^\d+\. `(\S+\.py)`, `([\w.]+)`: ((?:.+\n)(?: +.+\n)*)", WALK, re.MULTILINE
    )
]


def _code(file: str, name: str) -> CodeType:
    """Return the code of a function that a stop names."""
    found: Any = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    code = found.__code__
    assert isinstance(code, CodeType)
    assert Path(code.co_filename) == ROOT / file
    return code


def test_ten_stops_of_three_sentences_at_most() -> None:
    assert len(STOPS) == 10
    for _, name, text in STOPS:
        assert len(re.findall(r"\.(?: |$)", text)) <= 3, name


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(magmagraph/[^`]+)`", WALK))))
def test_each_file_and_folder_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_each_other_name_exists() -> None:
    places = {
        "MATMUL": "ops.products.contraction",
        "Node": "ir.op",
        "Graph": "ir.graph",
        "Trace": "ir.graph",
        "Plan": "ir.plan",
        "schedule": "passes.lowering.schedule",
        "memory": "passes.lowering.memory",
        "specialize": "passes.lowering.specialize",
    }
    for name, module in places.items():
        assert f"`{name}`" in WALK
        assert hasattr(importlib.import_module(f"magmagraph.{module}"), name)
    assert "int64_t mg_run(" in (ROOT / "magmagraph/runtime/cpu/support.c").read_text()


@pytest.mark.skipif(mg.config.compiler == "off", reason="needs a C compiler")
def test_stops_are_in_the_order_in_which_they_run() -> None:
    stops = [_code(file, name) for file, name, _ in STOPS]
    order: list[CodeType] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in stops and frame.f_code not in order:
            order.append(frame.f_code)

    x = mg.var("x", ("batch", 4))
    weights = mg.var("W", init=np.ones((4, 8), np.float32))
    bias = mg.var("b", init=np.ones(8, np.float32))
    rows = np.ones((3, 4), np.float32)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = mg.function([x], x @ weights + bias)(rows)
    finally:
        sys.setprofile(before)
    assert [code.co_qualname for code in order] == [code.co_qualname for code in stops]
    np.testing.assert_array_equal(result, np.full((3, 8), 5.0))
