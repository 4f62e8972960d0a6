"""Passes on graphs written as text: what they make of them, and why they leave some alone.

Every file of tests/golden/<pass>/ has a title and the parts ``before``, ``after`` and ``report``
(and ``options``, where some are set: ``distribute=batch/2`` is the dimension and the ranks). What
`memory` and `lower` decide shows in the plan: it is what comes after them. What passes decide when
sizes are known (options: ``n=100``) shows in the plan for a GPU that need not be here.
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
from magmagraph.passes.lowering.fuse_products import fuse_products
from magmagraph.passes.lowering.fuse_scans import fuse_scans
from magmagraph.passes.lowering.launches import launches
from magmagraph.passes.lowering.specialize import laid_out, with_sizes
from magmagraph.passes.lowering.stream import stream
from magmagraph.passes.pipeline import DEFAULT, Options
from magmagraph.passes.report import Record
from magmagraph.runtime.target import made_up
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

GOLDEN = Path(__file__).parent.parent / "golden"
AT_BINDING = ("fuse_products", "fuse_scans", "launches", "stream")  # they change plans with sizes
PASSES = [record.name for record in DEFAULT if record.name not in pipeline.AT_BINDING]
PASSES += AT_BINDING
FILES = sorted(file for name in PASSES for file in (GOLDEN / name).glob("*.txt"))
AS_PLAN = ("memory", "lower")  # run together, since only both give something that has a text
SHOWN = {  # module -> the pass that runs its example
    "attention": "attention",
    "simplify.simplify": "simplify",
    "simplify.constants": "simplify",
    "simplify.stable": "simplify",
    "distribute.single_rank": "simplify",
    "simplify.cancel": "simplify",
    "contract": "contract",
    "precision.precision": "precision",
    "shared_factors": "shared_factors",
    "layout.layout": "layout",
    "accumulate": "accumulate",
    "reduce_to_gemv": "reduce_to_gemv",
    "row_blocks": "row_blocks",
    "align_products": "align_products",
    "join_pieces": "join_pieces",
}
# Of examples that are not for a CPU.
DEVICES = dict.fromkeys(("shared_factors", "align_products"), "cuda:0")


def applied(name: str, text: str, options: Options) -> tuple[str, Record]:
    """Return the text of a pass's result on a graph given as text, and its record."""
    graph = load(text)
    assert isinstance(graph, Graph)
    if name in AT_BINDING:
        return bound(name, graph, options)
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


def bound(name: str, graph: Graph, options: Options) -> tuple[str, Record]:
    """Return the plan of a graph for sizes, up to a pass that changes it, and the pass's record."""
    first = next(i for i, record in enumerate(DEFAULT) if record.name == "contract")
    plan, _ = pipeline.run(graph, Trace(), passes=DEFAULT[first:], options=options)
    plan, target = with_sizes(plan, options.hints), options.target
    for decide in (fuse_products, fuse_scans, launches):
        notes = Record(decide.__name__)
        plan = decide(plan, target, notes)
        if decide.__name__ == name:
            return str(plan), notes
    notes = Record("stream")
    return str(stream(laid_out(plan, target.alignment, target.spread), target, notes)), notes


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
    for number in given.keys() & {"memory_limit", "micro_batches"}:
        given[number] = int(given[number])
    name = file.parent.name
    if name in AT_BINDING:
        sizes = {key: int(size) for key, size in given.items() if key.startswith("n")}
        target = made_up("cuda:0", threads=264, spread=1 << 20)
        given = {"hints": sizes, "target": target, "precision": given.get("precision", "float32")}
    options = Options.make(**given) if name in AT_BINDING else options_of(**given)
    after, record = applied(name, found["before"], options)
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
    if name not in (*AS_PLAN, *AT_BINDING, "distribute"):
        again, _ = applied(name, after, options_of(**given))
        assert again == after, "the pass changes its own result"


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_a_hit_and_a_refusal(name: str) -> None:
    found = [parts(f.read_text()) for f in FILES if f.parent.name == name]
    assert any(" x1" in part["report"] or part["before"] != part["after"] for part in found)
    # An order, or a form, is chosen; what is refused with loops is in test_launch_plans.py.
    if name not in ("schedule", "layout", "launches", "stream"):
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
    device = DEVICES.get(module, "cpu")
    options = options_of(device, reduce_to_gemv="always", precision="bfloat16")
    result, record = applied(SHOWN[module], before, options)
    assert result == dump(load(after))
    assert record.hits
