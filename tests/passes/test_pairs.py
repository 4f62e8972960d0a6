"""Reductions of pairs of small arrays, as a GPU and a processor compute them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreted import values
from planned import options_of

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Trace, freeze
from magmagraph.passes.fuse import pairs
from magmagraph.passes.report import Record
from magmagraph.text.writing import dump

Program = Callable[[Any, Any, Any], Any]


def _apart(a: Any, b: Any) -> Any:
    d = a[:, None] - b[None]
    return mg.sum(d * d, -1)


def _forces(a: Any) -> Any:
    d = a[:, None] - a[None]
    return mg.grad(mg.sum(1.0 / mg.sqrt(mg.sum(d * d, -1) + 0.1)), a)


PROGRAMS: dict[str, Program] = {
    "kernel matrix times vector": lambda a, b, c: mg.sum(mg.exp(-_apart(a, b)) * b[:, 0], 1),
    "nearest": lambda a, b, c: mg.min(_apart(a, b), 1),
    "position of the nearest": lambda a, b, c: mg.argmin(_apart(a, b), 0),
    "forces": lambda a, b, c: _forces(a),
    "energy": lambda a, b, c: mg.sum(mg.exp(-_apart(a, b))),
    "largest difference": lambda a, b, c: mg.max(mg.max(mg.absolute(a[:, None] - b), -1), 0),
    "transposed": lambda a, b, c: mg.sum(mg.exp(-mg.transpose(_apart(a, b))), 0),
    "of batches": lambda a, b, c: mg.sum(
        mg.exp(-mg.sum((c[:, :, None] - c[:, None]) ** 2, -1)), 2
    ),
    "of parts": lambda a, b, c: mg.sum(mg.tanh(a[1:, None] - b[None, :-2])[..., 0] * 2.0, 1),
    "steps": lambda a, b, c: mg.sum(mg.tanh(a[::2, None, 1] * b[None, ::-1, 2]), 0),
}


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "LEAST", 1)
    monkeypatch.setattr(pairs, "TIMES", 4)


@pytest.mark.parametrize("many", [1, 1 << 30], ids=["a thread each", "shared"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_stay(
    name: str, many: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "MANY", many)
    leaves = [mg.input(n, s, "float64") for n, s in
              (("a", ("n", 3)), ("b", ("m", 3)), ("c", (2, "n", 3)))]  # fmt: skip
    feeds = [rng.standard_normal(s) for s in ((17, 3), (23, 3), (2, 17, 3))]
    made = PROGRAMS[name](*leaves)
    graph = freeze(leaves, [made])
    record = Record("fuse")
    options = replace(options_of("cuda:0"), record=record, hints={"n": 17, "m": 23})
    written = pairs.paired(graph, Trace(), options)
    assert written is not graph, record
    again = pairs.paired(written, Trace(), options)
    (found,) = values([written.outputs[0]], dict(zip(written.inputs, feeds, strict=True)))
    (same,) = values([again.outputs[0]], dict(zip(again.inputs, feeds, strict=True)))
    (wanted,) = values([made], dict(zip(leaves, feeds, strict=True)))
    np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)
    np.testing.assert_allclose(same, wanted, 1e-12, 1e-12)


def test_what_is_written() -> None:
    a, b = mg.input("a", (200, 2)), mg.input("b", (3000, 2))
    graph = freeze([a, b], [mg.min(_apart(a, b), 0)])
    written = pairs.paired(graph, Trace(), options_of("cuda:0"))
    lines = [line.split(" = ")[1].split(")")[0] for line in dump(written).splitlines()[2:-1]]
    assert [line.partition("(")[0] for line in lines] == [
        "slice", "transpose", "slice", "subtract", "multiply",
        "slice", "slice", "subtract", "multiply", "add", "min",
    ]  # fmt: skip
    assert written.outputs[0].inputs[0].shape == (200, 3000)  # the reduced axis comes first


def test_arrays_as_large_as_what_is_reduced_stay() -> None:
    x, b = mg.input("x", (50, 40)), mg.input("b", (40,))
    graph = freeze([x, b], [mg.sum(mg.tanh(x * b), 1)])
    record = Record("fuse")
    options = replace(options_of("cuda:0"), record=record)
    assert pairs.paired(graph, Trace(), options) is graph
    (refusal,) = record.refusals
    assert "as large as what is reduced" in refusal.reason


NOT_SHORT = ("of parts", "steps")  # programs that have no short axis


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_processor_reads_rows(name: str, rng: np.random.Generator) -> None:
    leaves = [mg.input("a", ("n", 3)), mg.input("b", ("m", 3)), mg.input("c", (2, "n", 3))]
    feeds = [rng.standard_normal(s).astype(np.float32) for s in ((17, 3), (23, 3), (2, 17, 3))]
    made = PROGRAMS[name](*leaves)
    record = Record("fuse")
    options = replace(options_of("cpu"), record=record, hints={"n": 17, "m": 23})
    graph = freeze(leaves, [made])
    assert (pairs.paired(graph, Trace(), options) is graph) == (name in NOT_SHORT), record
    f = mg.function(leaves, made)
    result = f(*feeds)
    doubles = [mg.input(x.name, x.shape, "float64") for x in leaves]
    exact = dict(zip(doubles, (feed.astype(float) for feed in feeds), strict=True))
    (expected,) = values([PROGRAMS[name](*doubles)], exact)
    close = tolerance(np.dtype("float32"), "reassoc").close
    assert close(result, expected.astype(result.dtype), scale=float(np.abs(expected).max()))


def test_what_a_processor_refuses() -> None:
    a, b = mg.input("a", (200, 2)), mg.input("b", (300, 2))
    large = mg.exp(-_apart(a, b))
    record = Record("fuse")
    options = replace(options_of("cpu"), record=record)
    graph = freeze([a, b], [mg.sum(large, 1), large @ b])
    assert pairs.paired(graph, Trace(), options) is graph
    a, b = mg.input("a", (200, 2), "float64"), mg.input("b", (300, 2), "float64")
    graph = freeze([a, b], [mg.sum(_apart(a, b), 1)])
    assert pairs.paired(graph, Trace(), options) is graph
    first, second = record.refusals
    assert first.reason == "something else reads the large values"
    assert second.reason == "a processor's vectors of a row are of float32"
