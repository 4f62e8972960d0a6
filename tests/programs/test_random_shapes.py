"""Random programs over random shapes, called with several sizes: against the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from random_shapes import Sized, shaped_program

import magmagraph as mg
from magmagraph.config import config
from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.passes.pipeline import DEFAULT
from magmagraph.runtime.cpu import tiled

OPTIONAL = [record.name for record in DEFAULT if record.optional]


def interpreted(program: Sized, feeds: Sequence[np.ndarray]) -> tuple[list[Any], dict[Node, Any]]:
    """Return outputs and new values of variables, as things stand."""
    graph = freeze(program.inputs, program.outputs, list(program.updates.items()))
    values = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    new = [np.array(values[node]) for _, node in graph.updates]
    outputs = [np.array(values[node]) for node in graph.outputs]
    return outputs, dict(zip(program.updates, new, strict=True))


def check(program: Sized, dtype: str, label: str, **settings: Any) -> None:
    """Call a function twice for each list of feeds, and compare all that it gives and leaves."""
    table = tolerance(canonical(dtype), "reassoc")

    def close(found: Any, wanted: Any, what: str) -> None:
        assert found.shape == wanted.shape and found.dtype == wanted.dtype, f"{label}: {what}"
        scale = 1.0 + np.abs(wanted).max(initial=0.0)
        assert table.close(found, wanted, scale), f"{label}: {what} is {found}, not {wanted}"

    f = mg.function(program.inputs, program.outputs, program.updates, **settings)
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for number, feeds in enumerate([*program.feeds, program.feeds[0]]):
        before = {variable: variable.value for variable in program.updates}
        outputs, new = interpreted(program, feeds)
        first = f(*feeds)
        for place, (found, wanted) in enumerate(zip(first, outputs, strict=True)):
            close(found, wanted, f"output {place} of call {number}")
        left = {variable: variable.value for variable in program.updates}
        for place, variable in enumerate(program.updates):
            close(left[variable], new[variable], f"variable {place} after call {number}")
        bits = [found.tobytes() for found in first]
        for found in first:
            found[...] = 7.0  # they are the caller's
        _restore(before)
        again = f(*(np.asfortranarray(feed) for feed in feeds))
        assert [found.tobytes() for found in again] == bits, f"{label}: call {number} repeated"
        for variable, value in left.items():
            np.testing.assert_array_equal(variable.value, value, err_msg=label)
        held += [(found, found.copy()) for found in again]
    for found, copy in held:
        np.testing.assert_array_equal(found, copy, err_msg=f"{label}: an earlier call's result")


def _restore(values: Mapping[Node, np.ndarray]) -> None:
    for variable, value in values.items():
        variable.value = value  # type: ignore[attr-defined]


def groups(count: int, quick: int) -> list[Any]:
    """Return numbers of groups of seeds; `make test` runs the first ones."""
    slow = [pytest.param(group, marks=pytest.mark.slow) for group in range(quick, count)]
    return [*range(quick), *slow]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("group", groups(6, quick=1))
def test_tiles(group: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compiler", "off")
    for seed in range(20 * group, 20 * group + 20):
        check(shaped_program(seed, dtype=dtype), dtype, f"seed {seed}")


def test_results_over_many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is folded over all rows is a result as it is, beside what each tile writes."""
    monkeypatch.setattr(config, "compiler", "off")
    monkeypatch.setattr(tiled, "TILE_BYTES", 256)
    for seed in range(400, 412):
        program = shaped_program(seed)
        program.outputs += [mg.max(node, axis=0) for node in program.outputs if node.ndim]
        check(program, "float64", f"seed {seed}")


@pytest.mark.parametrize("skipped", OPTIONAL)
@pytest.mark.parametrize("group", groups(3, quick=1))
def test_without_a_pass(group: int, skipped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compiler", "off")
    for seed in range(200 + 5 * group, 205 + 5 * group):
        check(shaped_program(seed), "float64", f"seed {seed}", skip=(skipped,))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(300, 304))
def test_compiled(seed: int, dtype: str) -> None:
    check(shaped_program(seed, 30, dtype=dtype), dtype, f"seed {seed}")
