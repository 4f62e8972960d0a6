"""Passes on graphs written as text: what they make of them, and why they leave some alone.

Every file of tests/golden/<pass>/ has a title and the parts ``before``, ``after`` and ``report``
(and ``options``, where some are set: ``distribute=batch/2`` is the dimension and the ranks). What
`memory` and `lower` decide shows in the plan: it is what comes after them.
``MAGMAGRAPH_GOLDEN=write`` writes the last two anew: look at the difference before it is kept. The
examples in the docstrings of the passes are held to the same.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from planned import options_of

from magmagraph.distributed.strategies import Facts
from magmagraph.errors import ShardingError
from magmagraph.ir.graph import Graph, Trace
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT, Options
from magmagraph.passes.report import Record
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

GOLDEN = Path(__file__).parent.parent / "golden"
PASSES = [record.name for record in DEFAULT if record.name not in pipeline.AT_BINDING]
FILES = sorted(file for name in PASSES for file in (GOLDEN / name).glob("*.txt"))
AS_PLAN = ("memory", "lower")  # run together, since only both give something that has a text
SHOWN = {  # module -> the pass that runs its example
    "simplify.simplify": "simplify",
    "simplify.constants": "simplify",
    "simplify.stable": "simplify",
    "distribute.single_rank": "simplify",
    "simplify.cancel": "simplify",
    "contract": "contract",
    "precision.precision": "precision",
    "layout.layout": "layout",
    "accumulate": "accumulate",
    "reduce_to_gemv": "reduce_to_gemv",
}


def applied(name: str, text: str, options: Options) -> tuple[str, Record]:
    """Return the text of a pass's result on a graph given as text, and its record."""
    graph = load(text)
    assert isinstance(graph, Graph)
    names = AS_PLAN if name in AS_PLAN else (name,)
    passes = [record for record in DEFAULT if record.name in names]
    try:
        after, report = pipeline.run(graph, Trace(), passes=passes, options=options)
    except ShardingError as error:  # the refusal of `distribute`
        record = Record(name)
        record.refuse("program", graph.outputs[0], str(error))
        return "", record
    if isinstance(after, Graph):
        return dump(after), report[name]
    for step in after.steps if name == "lower" else ():
        report[name].hit(f"{step.kernel} for {step.node.op.name}")
        if step.refused:
            report[name].refuse(step.refused_by, step.node, step.refused)
    return str(after), report[name]


def described(record: Record) -> str:
    """Return a record's rules, refusals and repairs as lines."""
    lines = [f"{rule} x{count}" for rule, count in record.hits.items()]
    lines += [f"refused: {r.rule} for {r.node}: {r.reason}" for r in record.refusals]
    lines += [f"repair: {text}" for text in record.repairs]
    return "\n".join(lines) or "nothing"


def parts(text: str) -> dict[str, str]:
    """Return the parts of a golden file by name."""
    title, *rest = re.split(r"^--- (\w+)\n", text, flags=re.MULTILINE)
    found = {"title": title.strip()}
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        found[name] = body.strip()
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_golden_file(file: Path) -> None:
    found = parts(file.read_text())
    given: dict[str, Any] = dict(line.split("=") for line in found.get("options", "").split())
    if "distribute" in given:
        dim, _, ranks = given["distribute"].partition("/")
        given["distribute"] = Facts(dim, ("data",), int(ranks))
    if "memory_limit" in given:
        given["memory_limit"] = int(given["memory_limit"])
    name = file.parent.name
    after, record = applied(name, found["before"], options_of(**given))
    report = described(record)
    if os.environ.get("MAGMAGRAPH_GOLDEN") == "write":
        text = f"{found['title']}\n"
        if "options" in found:
            text += f"--- options\n{found['options']}\n"
        text += f"--- before\n{found['before']}\n--- after\n{after}\n--- report\n{report}\n"
        file.write_text(text)
    else:
        assert after == found["after"]
        assert report == found["report"]
    if name not in (*AS_PLAN, "distribute"):
        again, _ = applied(name, after, options_of(**given))
        assert again == after, "the pass changes its own result"


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_a_hit_and_a_refusal(name: str) -> None:
    found = [parts(f.read_text()) for f in FILES if f.parent.name == name]
    assert any(" x1" in part["report"] or part["before"] != part["after"] for part in found)
    if name not in ("schedule", "layout"):  # an order, or a form, is chosen; nothing is refused
        assert any("refused: " in part["report"] for part in found)


def blocks(docstring: str) -> list[str]:
    """Return the indented blocks of a docstring; a deeper line goes on with the one before it."""
    found: list[list[str]] = []
    for line in docstring.splitlines():
        if line.startswith("        ") and found:
            found[-1][-1] += " " + line.strip()
        elif line.startswith("    "):
            if not found or found[-1] == []:
                found.append([])
            found[-1].append(line.strip())
        elif line.strip() and found and found[-1]:
            found.append([])
    return ["\n".join(block) for block in found if block]


@pytest.mark.parametrize("module", SHOWN)
def test_example_of_a_docstring(module: str) -> None:
    found = importlib.import_module(f"magmagraph.passes.{module}")
    before, after = blocks(found.__doc__ or "")
    options = options_of(reduce_to_gemv="always", precision="bfloat16")
    result, record = applied(SHOWN[module], before, options)
    assert result == dump(load(after))
    assert record.hits
