"""Where values lie: which updates are written in place, which are copied, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, values

import magmagraph as mg

ORDER = 6


def _variable(name: str, rng: np.random.Generator) -> Any:
    return mg.var(name, init=rng.normal(size=(ORDER, ORDER)), dtype="float64")


def _plus_one(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    return None, {a: a + 1.0}


def _returned(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    new = a + 1.0
    return new, {a: new}


def _swapped(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    return None, {a: b, b: a}


def _shared(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    new = mg.tanh(a)
    return None, {a: new, b: new}


def _turned(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    return None, {a: a[::-1] * 2.0}


def _failing(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    new = mg.tanh(a)
    return mg.linalg.eigvalsh(new + mg.swapaxes(new, 0, 1)), {a: new}


def _own_failing(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    return None, {a: mg.linalg.eigh(a + mg.swapaxes(a, 0, 1))[1]}


def _read_later(a: Any, b: Any) -> tuple[Any, dict[Any, Any]]:
    new = mg.tanh(a)
    return mg.matmul(new, a), {a: new}


LEAF = "its new value is an input, a constant or another variable"
FAILING = "a step that can fail comes after it"
CASES: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "in place": (_plus_one, []),
    "returned": (_returned, ["its new value is also returned"]),
    "swapped": (_swapped, [LEAF, LEAF]),
    "shared": (_shared, ["its new value also updates another variable"]),
    "turned": (_turned, ["its kernel reads the old value at other positions than it writes"]),
    "before a step that can fail": (_failing, [FAILING]),
    "by a step that can fail": (_own_failing, [FAILING]),
    "read later": (_read_later, ["gemm reads the old value after it"]),
}


@pytest.mark.parametrize("name", CASES)
def test_why_an_update_is_copied(name: str, rng: np.random.Generator) -> None:
    build, reasons = CASES[name]
    a, b = _variable("a", rng), _variable("b", rng)
    output, updates = build(a, b)
    f = mg.function([], output, updates=updates, device="cpu")
    record = f.report["memory"]
    assert [refusal.reason for refusal in record.refusals] == reasons
    assert sum(record.hits.values()) == len(updates) - len(reasons)
    results = [] if output is None else [output]
    wanted = [np.array(value) for value in values([*updates.values(), *results])]
    found = f()
    for variable, value in zip(updates, wanted, strict=False):
        assert_close(variable.value, value)
    if output is not None:
        assert_close(found, wanted[-1])


def test_values_that_are_looked_at_first_are_copied(rng: np.random.Generator) -> None:
    a = _variable("a", rng)
    f = mg.function([], None, updates={a: mg.log(a)}, nan="raise", device="cpu")
    before = np.array(a.value)
    with pytest.raises(mg.NonFiniteError):
        f()
    np.testing.assert_array_equal(a.value, before)
    (refusal,) = f.report["memory"].refusals
    assert refusal.reason == "nan='raise' checks the new values before any is written"
