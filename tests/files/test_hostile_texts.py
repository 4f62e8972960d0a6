"""Texts of graphs and plans from strangers: each is read, or refused by line, soon and in small."""

from __future__ import annotations

import hashlib
import json
import re
import resource
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutated_texts import mutated, texts, watched
from test_archive import rewritten

import magmagraph as mg
from magmagraph.errors import DataError, GraphError, PlanError, ShapeError
from magmagraph.ir.dims import parse
from magmagraph.ir.graph import freeze
from magmagraph.ir.values.state import State
from magmagraph.model import files
from magmagraph.runtime.families import FAMILIES
from magmagraph.text import reading
from magmagraph.text.writing import dump

load = partial(reading.load, families=FAMILIES)

HEAD = "%0 = input() : float32[3]  # x\n"
ROOM = 1 << 30  # bytes that reading may take beside what the process has


def refused(text: str, match: str, error: type[Exception] = GraphError) -> None:
    """Demand that a text is refused with a line, soon, in little memory and a short message."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with watched(), pytest.raises(error, match=match) as raised:
        load(text)
    assert str(raised.value).startswith("line ")
    assert len(str(raised.value)) < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM >> 10


LIMITS = {
    "an extent of 2^63": ("%0 = input() : float32[9223372036854775808]\nreturn %0", "elements"),
    "a number of 5000 digits": (f"%0 = input() : float32[{'9' * 5000}]\nreturn %0", "5000 digits"),
    "elements": ("%0 = input() : float32[4294967296, 4294967296]\nreturn %0", "too many elements"),
    "axes": (f"%0 = input() : float32[{'1, ' * 100}]\nreturn %0", "100 axes"),
    "an anonymous dimension": (
        "%0 = input() : float32[?9223372036854775807]\nreturn %0",
        r"the anonymous dimension \?9223372036854775807\n  expected: \?0 as the next one",
    ),
    "parentheses": (f"%0 = input() : float32[{'(' * 900}n{')' * 900}]\nreturn %0", "at most 50"),
    "a degree": (f"%0 = input() : float32[{'*'.join('n' * 400)}]\nreturn %0", "at most 64"),
    "terms": (
        f"%0 = input() : float32[{'*'.join(f'(a{i} + b{i})' for i in range(40))}]\nreturn %0",
        "at most 256 terms",
    ),
    "a quotient": (
        f"%0 = input() : float32[({'*'.join(['(n+1)'] * 60)})//(3*n*n-m)]\nreturn %0", "256 terms",
    ),
    "brackets": (
        HEAD + f"%1 = reshape(%0, shape={'(' * 5000}3{')' * 5000}) : float32[3]\nreturn %1",
        "too many brackets inside of each other\n  expected: at most 50",
    ),
    "bodies": (HEAD + "%1 = fused(%0, body={\n" * 5000, "too many bodies inside of each other"),
    "a body that is read twice": (
        HEAD + "%1 = fused_many(%0, %0, bodies=({0}, {\n%0 = parameter(index=0) : float32[3]\n"
        "return %0\n})) : (float32[3], float32[3])\nreturn %0",
        "a body: { at the end of the line",
    ),
    "a number": (HEAD + f"%1 = sum(%0, axes=({'1' * 30},)) : float32[]\nreturn %1", "30 digits"),
    "an int of 64 bits": (
        HEAD + f"%1 = sum(%0, axes=({2**63},)) : float32[]\nreturn %1",
        r"expected: tuple\[int, ...\]",
    ),
    "a string": (HEAD + "%1 = sum(%0, axes='a' * 9) : float32[]\nreturn %1", "a string in quotes"),
    "division by zero": ("%0 = input() : float32[n//(m - m)]\nreturn %0", "an extent"),
    "a number of a node": ("%" + "9" * 5000 + " = input() : float32[]\nreturn %0", "operation"),
    "two results of a leaf": ("%0 = iota(axis=0) : (int64[2], int64[2])\nreturn %0", "missing"),
    "a constant of two types": ("%0 = constant(value=1) : (int64[], int64[])\nreturn %0", "value="),
    "many elements": ("%0 = constant(value=[1]) : int64[1000000000000]\nreturn %0", "elements of"),
    "inputs that are none": (
        HEAD + "%1 = exp(%0) : float32[3]\ninputs %1\nreturn %1", "each input",
    ),
    "an input twice": (HEAD + "inputs %0, %0\nreturn %0", "each input"),
    "an effect that is none": (HEAD + "%1 = exp(%0) : float32[3]\neffect %1\nreturn %1", "effect"),
    "an attribute twice": (
        HEAD + "%1 = sum(%0, axes=(0,), axes=(0,)) : float32[]\nreturn %1", "axes is given twice",
    ),
    "rules": (HEAD + "%1 = add() : float32[3]\nreturn %1", "add refuses its operands"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_named_by_line(name: str) -> None:
    text, match = LIMITS[name]
    refused(text, match)


def test_variables_of_any_size_take_no_memory_before_they_are_written() -> None:
    text = "%0 = variable() : float32[1000000000]  # w\nreturn %0"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = load(text)
    assert graph.outputs[0].attrs["state"].held.shape == (1_000_000_000,)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM >> 10
    refused(text.replace("1000000000", "1000000000000000000"), "variable 'w' has 4,000,000")
    zeros = State.zeros((3, 5), np.dtype("float64"), "w").held
    assert zeros.ctypes.data % 64 == 0
    assert not zeros.any()


@pytest.mark.parametrize(
    "text",
    [
        "*".join(f"(a{i} + b{i})" for i in range(12)),
        "n*" * 80 + "n",
        "(" * 60 + "n" + ")" * 60,
        "9" * 25,
    ],
)
def test_long_extents_are_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="an extent has"):
        parse(text)


def test_minima_inside_minima_are_bounded() -> None:
    text = "n"
    for i in range(45):
        text = f"min(a{i}, {text})"
    with pytest.raises(ShapeError, match=r"an extent has \d+ characters\n  expected: at most 4000"):
        parse(text)


# ---------------------------------------------------------------------- changed texts


def read_or_refused(numbers: range) -> int:
    """Read changed texts, and return how many of them were still texts."""
    whole = 0
    for number in numbers:
        text = mutated(number)
        try:
            with watched():
                dump(load(text))
                whole += 1
        except (GraphError, PlanError) as error:
            problem = str(error)
            assert problem.startswith("line "), number
            assert len(problem) < 2000, number
    return whole


def test_unchanged_texts_come_back() -> None:
    assert len(texts()) > 10
    for text in texts():
        assert dump(load(text)) == text


@pytest.mark.parametrize("first", range(0, 1500, 500))
def test_changed_texts_are_read_or_refused_by_line(first: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_or_refused(range(first, first + 500)) > 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM >> 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 40_000, 5000))
def test_many_changed_texts_are_read_or_refused_by_line(first: int) -> None:
    assert read_or_refused(range(first, first + 5000)) > 50


# ---------------------------------------------------------------------- plans


def plan_text() -> str:
    """Return a bound plan with a region, a product, an arena, and scratch."""
    x = mg.input("x", (64, 32))
    w = mg.var("w", init=np.ones((32, 48), np.float32))
    hidden = mg.softmax(mg.tanh(x @ w) + 1.0, axis=1)
    sorted_ = mg.sort(hidden, axis=1)
    f = mg.function([x], [mg.sum(hidden * 2.0), sorted_ @ mg.transpose(w)])
    return str(dump(f.plan))


def lines_of(text: str, mark: str) -> list[str]:
    """Return the lines of a plan that hold a mark; some do."""
    found = [line for line in text.split("\n") if mark in line]
    assert found
    return found


def test_plans_keep_to_their_memory() -> None:
    text = plan_text()
    assert dump(load(text)) == text
    sized = lines_of(text, " = arena")
    for line in sized:
        small = re.sub(r": \d+ bytes", ": 4 bytes", line)
        far = re.sub(r", at \d+", ", at 1048576000", line)
        askew = re.sub(r", at \d+", ", at 7", line)
        changes = ((small, "has 4 bytes|bytes of scratch"), (far, "a place in the arena"))
        for other, match in (*changes, (askew, "multiple of 64")):
            if other != line:
                refused(text.replace(line, other), match, PlanError)
    arena = lines_of(text, "memory: arena")[0]
    refused(
        text.replace(arena, "memory: arena 0 bytes, largest live set 0 bytes"),
        "a place in the arena of 0 bytes", PlanError,
    )
    state = lines_of(text, " = state")[0]
    small = re.sub(r": \d+ bytes", ": 8 bytes", state)
    refused(text.replace(state, small), "has 8 bytes for", PlanError)


def test_plans_run_only_kernels_of_their_operations() -> None:
    text = plan_text()
    for line in lines_of(text, "step "):
        number, _, rest = line.partition(": ")
        kernel = rest.partition(" = ")[0]
        for other in ("gemm", "fused", "scatter", "loop", "wait", "pooling", "evil"):
            if other != kernel:
                changed = line.replace(f": {kernel} = ", f": {other} = ", 1)
                refused(text.replace(line, changed), f"by {other}|scratch|a body", PlanError)
        assert number.startswith("step ")


# ---------------------------------------------------------------------- archives and models

EVIL = '''*/
#include <stdlib.h>
static void __attribute__((constructor)) evil(void) { system("touch MARK"); }
/*'''


def test_an_archive_runs_no_code_of_its_text(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evil = EVIL.replace("MARK", str(mark))
    path = tmp_path / "f.magma"
    x = mg.input("x", (3,))
    f = mg.function([x], mg.tanh(mg.exp(x)) * 0.5)
    f(np.ones(3, np.float32))
    f.save(path)
    content = path.read_bytes()
    for change in (f"exp(%0, value={evil!r})", f"exp(%0, dim={evil!r})", f"exp(%0, key={evil!r})"):
        path.write_bytes(content)

        def replaced(members: dict[str, bytes], change: str = change) -> None:
            source = members["source.txt"].decode()
            assert "exp(%0)" in source
            members["source.txt"] = source.replace("exp(%0)", change).encode()
            manifest = json.loads(members["manifest.json"])
            members["manifest.json"] = json.dumps(_with_digests(manifest, members)).encode()

        rewritten(path, replaced)
        with pytest.raises(PlanError, match="there is no attribute"):
            mg.load(path)(np.ones(3, np.float32))
        assert not mark.exists()


def _with_digests(manifest: Any, members: dict[str, bytes]) -> Any:
    digests = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in members.items() if name != "manifest.json"
    }  # fmt: skip
    return {**manifest, "members": digests}


def test_a_model_runs_no_code_of_its_text(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "m.safetensors"
    x = mg.input("x", ("batch", 4))
    model = mg.Model(x, mg.nn.Dense(2)(mg.exp(x)))
    model.save(path)
    tensors, about = files.read(path)
    described = json.dumps(about)
    assert "exp(%0)" in described
    evil = json.dumps(f"exp(%0, value={EVIL.replace('MARK', str(mark))!r})")[1:-1]
    files.write(path, tensors, json.loads(described.replace("exp(%0)", evil)))
    with pytest.raises(DataError, match="there is no attribute value"):
        mg.Model.load(path).predict(np.ones((2, 4), np.float32))
    assert not mark.exists()


def test_names_of_a_graph_are_in_no_source() -> None:
    evil = EVIL.replace("MARK", "evil_mark")
    x = mg.input(evil, ("n", 3))
    w = mg.var(evil, init=np.ones(3, np.float32))
    graph = freeze([x], [mg.tanh(x * w)])
    again = load(dump(graph))
    f = mg.function(list(again.inputs), list(again.outputs))
    sources = [f.source(i) for i, step in enumerate(f.plan.steps) if step.kernel == "fused"]
    assert sources
    assert "evil" not in "".join(sources)
