"""Random programs of many domains, compiled in many ways: against NumPy and the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_arrays
import random_nested
import random_networks
from random_checks import Judge, gradients, interpreted_at, slope
from random_domains import DOMAINS, Case, case
from random_states import keeping
from random_streams import drawing
from random_ways import WAYS

import magmagraph as mg
from magmagraph.config import config
from magmagraph.dtypes import tolerance
from magmagraph.passes.pipeline import DEFAULT
from magmagraph.runtime.cpu.threads import set_threads
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

OPTIONAL = [record.name for record in DEFAULT if record.optional]
assert random_arrays and random_networks and random_nested  # they register domains and ways


@pytest.fixture(autouse=True)
def _tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(config, "compiler", "off")
    yield
    set_threads(None)


def _with_gradients(program: Case) -> list[mg.Node]:
    wrt = gradients(program)
    if not wrt:
        return []
    assert program.loss is not None
    return [program.loss, *mg.grad(program.loss, wrt, unused="zeros")]


def _skipped(rng: np.random.Generator) -> tuple[str, ...]:
    if rng.uniform() < 0.6:
        return ()
    return tuple(name for name in OPTIONAL if rng.uniform() < 0.5)


def _same_bits(found: Sequence[Any], wanted: Sequence[Any], label: str) -> None:
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), f"{label}, output {place}"


def _compiled(judge: Judge, dtype: str, label: str, rng: np.random.Generator) -> None:
    program, outputs = judge.cases[dtype], judge.outputs[dtype]
    set_threads(int(rng.integers(1, 3)))
    skip = _skipped(rng)
    f = mg.function(program.inputs, outputs, skip=skip)
    label = f"{label} {dtype} skip={skip}"
    first = f(*program.feeds)
    assert judge.judge(first, dtype) is None, f"{label}: {judge.judge(first, dtype)}"
    _same_bits(f(*(np.asfortranarray(feed) for feed in program.feeds)), first, label)
    assert str(f.report) and str(f.explain(outputs[0])) and mg.show(f).text()
    for graph in (f.source_graph, f.graph):
        text = dump(graph)
        assert dump(load(text)) == text, label


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DOMAINS)
def test_domains(name: str, seeds: range) -> None:
    """NumPy's values, central differences, and compiled functions in both precisions."""
    for seed in seeds:
        label = f"case({name!r}, {seed})"
        judge = Judge(lambda dtype, seed=seed: case(name, seed, dtype), _with_gradients)
        assert judge.against_numpy() is None, f"{label}: {judge.against_numpy()}"
        exact = judge.cases["float64"]
        wrt = gradients(exact)
        if wrt:
            wrong = slope(exact, judge.exact[-len(wrt) :], wrt, seed)
            assert wrong is None, f"{label}: {wrong}"
        for dtype in ("float32", "float64"):
            _compiled(judge, dtype, label, np.random.default_rng(seed))


def test_a_program_of_each_domain_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compiler", "auto")
    for name in ("mixed", "network"):
        judge = Judge(lambda dtype, name=name: case(name, 100, dtype, 4), _with_gradients)
        _compiled(judge, "float32", f"case({name!r}, 100)", np.random.default_rng(1))


@pytest.mark.parametrize("way", WAYS)
def test_ways(way: str) -> None:
    """The same program mapped, in loops and branches, recomputed, differentiated."""
    for seed in range(5):
        name = ("mixed", "order", "linalg", "network", "fft")[seed]
        rng = np.random.default_rng(seed)
        label = f"WAYS[{way!r}](case({name!r}, {seed}))"
        made = WAYS[way](case(name, seed, operations=4), rng)
        if made is None:
            continue
        f = mg.function(made.inputs, made.outputs, skip=_skipped(rng))
        found = f(*made.feeds)
        near = 3e-4 if way == "twice" else 1e-7  # differences of gradients know fewer digits
        for place, (got, wanted) in enumerate(zip(found, made.wanted, strict=True)):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype, f"{label}, {place}"
            np.testing.assert_allclose(got, wanted, near, near, err_msg=f"{label}, {place}")
        _same_bits(f(*made.feeds), found, label)


def test_streams() -> None:
    """Each call draws what the interpreter draws at its step; `run` draws what calls do."""
    for seed in range(12):
        dtype = ("float32", "float64")[seed % 2]
        program = drawing(seed, dtype, operations=5)
        outputs = [*program.outputs, *_with_gradients(program)]
        table = tolerance(np.dtype(dtype), "reassoc")
        f = mg.function(program.inputs, outputs, skip=_skipped(np.random.default_rng(seed)))
        again = mg.function(program.inputs, outputs)
        stacked = again.run([tuple(program.feeds)] * 2)
        for step in range(2):
            found = f(*program.feeds)
            wanted = interpreted_at(step, program.inputs, outputs, program.feeds)
            for place, (got, value) in enumerate(zip(found, wanted, strict=True)):
                scale = 100.0 * (1.0 + np.abs(value).max(initial=0.0))
                label = f"drawing({seed}, {dtype!r}), call {step}, output {place}"
                assert got.dtype == value.dtype and table.close(got, value, scale), label
                assert table.close(stacked[place][step], value, scale), f"{label} of run"


def test_states(tmp_path: Path) -> None:
    """Updates by calls, by `run` and by a function from a file are those without passes."""

    def called(seed: int, way: str, **options: Any) -> tuple[list[list[Any]], list[Any]]:
        made = keeping(seed)
        f = mg.function(made.inputs, made.outputs, made.updates, **options)
        if way == "run":
            stacked = f.run([tuple(feeds) for feeds in made.feeds])
            results = [[out[i] for out in stacked] for i in range(len(made.feeds))]
        else:
            if way == "file":
                f.save(tmp_path / "f.magma")
                f = mg.load(tmp_path / "f.magma")
            kept = [f(*feeds) for feeds in made.feeds]
            results = [[np.array(part) for part in found] for found in kept]
            for found in kept:
                for part in found:
                    part[...] = 7.0  # they are the caller's
        return results, [] if way == "file" else [node.value for node in made.held]

    for seed in range(10):
        plain, left = called(seed, "calls", skip=tuple(OPTIONAL))
        for way in ("calls", "run", "file"):
            found, values = called(seed, way)
            for call, (got, wanted) in enumerate(zip(found, plain, strict=True)):
                for place, (a, b) in enumerate(zip(got, wanted, strict=True)):
                    label = f"keeping({seed}) by {way}, call {call}, output {place}"
                    np.testing.assert_allclose(a, b, 1e-9, 1e-9, err_msg=label)
            for place, (a, b) in enumerate(zip(values, left, strict=False)):
                label = f"keeping({seed}) by {way}, variable {place}"
                np.testing.assert_allclose(a, b, 1e-9, 1e-9, err_msg=label)
