"""A value of each type that attributes of operations have."""

from __future__ import annotations

from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph.ir.graph import Key, freeze
from magmagraph.ir.types import Type
from magmagraph.ir.values.state import State
from magmagraph.text.writing import Code

VALID: dict[str, Any] = {
    "int": 1, "Count": 1, "Positive": 1, "Step": 1, "Offset": 0, "Seed": 2**64 - 1, "Extent": 3,
    "Shape": (2, mg.Dim("n")), "bool": True, "float": 0.5, "Number": 1.5, "str": "a word",
    "np.dtype": np.dtype("float32"), "np.ndarray": np.ones(3), "Type": Type(np.dtype("int8"), ()),
    "State": State(np.zeros(2), "w"), "Key": Key("x"), "Code": Code("Rule"),
    "Graph": freeze([], [mg.constant(1.0)]), "None": None,
}  # fmt: skip


def example(expected: str) -> Any:
    """Return a value of a declared type."""
    first = expected.split(" | ")[0]
    if first.startswith("Literal["):
        return first[len("Literal[") :].split(",")[0].strip("[]'")
    if first.startswith("tuple["):
        inside = first[len("tuple[") : -1]
        if inside.endswith(", ..."):
            return (example(inside[: -len(", ...")]),)
        parts = ["tuple[str, ...]", "Positive"] if inside.startswith("tuple") else inside.split(",")
        return tuple(example(part.strip()) for part in parts)
    return VALID[first]
