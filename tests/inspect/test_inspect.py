"""Looking at functions: exports, explanations, checks with blame, profiles."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from random_graphs import random_program

import magmagraph as mg
from magmagraph.errors import FeedError, GraphError
from magmagraph.ir.graph import Graph
from magmagraph.ir.identity import index_of, same_nodes
from magmagraph.passes import Pass
from magmagraph.text.writing import dump


def step(dtype: str = "float32", **options: Any) -> tuple[mg.Function, dict[str, mg.Node], Any]:
    """Return a training step, its nodes by name, and a batch."""
    rng = np.random.default_rng(0)
    x = mg.var("x", shape=("batch", 6), dtype=dtype)
    w = mg.var("W", init=rng.normal(size=(6, 4)), dtype=dtype)
    b = mg.var("b", init=np.zeros(4), dtype=dtype)
    product = x @ w
    hidden = mg.tanh(product + b)
    loss = mg.mean(hidden * mg.tanh(x @ w + b))
    grads = mg.grad(loss, {"W": w, "b": b})
    new = w - grads["W"] * 0.1
    function = mg.function([x], [loss], {w: new, b: b - grads["b"] * 0.1}, **options)
    nodes = {"x": x, "W": w, "b": b, "product": product, "hidden": hidden, "loss": loss, "new": new}
    return function, nodes, rng.normal(size=(5, 6)).astype(dtype)


# ---------------------------------------------------------------------- networkx


def test_networkx_has_every_node_and_operand() -> None:
    function, _nodes, _ = step()
    graph = mg.to_networkx(function.source_graph)
    assert isinstance(graph, networkx.MultiDiGraph)
    assert networkx.is_directed_acyclic_graph(graph)
    frozen = function.source_graph.nodes
    assert graph.number_of_nodes() == len(frozen)
    assert graph.number_of_edges() == sum(len(node.inputs) for node in frozen)
    for i, node in enumerate(frozen):
        attributes = graph.nodes[i]
        assert attributes["op"] == node.op.name
        assert attributes["kind"] == node.op.kind.value
        assert attributes["type"] == repr(node.type)
        assert attributes["dtype"] == node.dtype.name
        operands = sorted((d["operand"], u) for u, _, d in graph.in_edges(i, data=True))
        assert same_nodes([frozen[u] for _, u in operands], node.inputs)
    renewed = {i: d["updated_by"] for i, d in graph.nodes(data=True) if "updated_by" in d}
    assert {frozen[i].name for i in renewed} == {"W", "b"}
    assert all(graph.nodes[new]["update"] == i for i, new in renewed.items())
    assert [i for i, d in graph.nodes(data=True) if d.get("output") == 0] == [
        index_of(frozen, function.source_graph.outputs[0])
    ]


def test_networkx_takes_nodes_lists_dicts_and_functions() -> None:
    function, nodes, _ = step()
    one = mg.to_networkx(nodes["hidden"])
    assert mg.to_networkx([nodes["hidden"], nodes["product"]]).number_of_nodes() == len(one)
    assert mg.to_networkx({"a": [nodes["hidden"]]}).number_of_nodes() == len(one)
    assert mg.to_networkx(function).number_of_nodes() == len(function.graph)
    assert one.nodes[0]["shape"] == ("batch", 6)
    assert one.nodes[0]["line"].startswith(__file__)
    with pytest.raises(GraphError) as raised:
        mg.to_networkx(3)
    assert str(raised.value) == (
        "int holds no nodes\n  expected: a node, a list or dict of nodes, a function, or a graph"
    )


@pytest.mark.parametrize("count", [3_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_networkx_of_a_long_chain(count: int) -> None:
    node = mg.var("x", shape=(2,))
    for _ in range(count):
        node = mg.sin(node) * 1.5
    graph = mg.to_networkx(node)
    assert graph.number_of_edges() == 3 * count
    assert networkx.is_directed_acyclic_graph(graph)


# ---------------------------------------------------------------------- show


def test_show_of_nodes_functions_plans_and_records() -> None:
    function, nodes, _ = step()
    assert mg.show(nodes["hidden"]).text() == str(nodes["hidden"])
    assert str(mg.show(function)) == f"{dump(function.graph)}\n\n{dump(function.plan)}"
    assert mg.show(function.plan).text() == dump(function.plan)
    record = next(r for r in function.report if r.name == "contract")
    text = mg.show(record).text()
    assert text.startswith("before contract:\n%0 = ")
    assert "\nafter contract:\n" in text
    assert mg.show([nodes["x"], nodes["W"]]).text().count("\n\n") == 1
    with pytest.raises(GraphError, match="str holds no nodes"):
        mg.show("x")


def test_dot_text_names_every_node_and_line() -> None:
    function, _nodes, _ = step()
    shown = mg.show(function.source_graph)
    dot = shown.dot()
    assert dot.startswith("digraph magmagraph {")
    assert dot.endswith("}")
    edges = sum(len(node.inputs) for node in function.source_graph.nodes)
    assert dot.count(" -> ") == edges + 2  # and two updates
    assert dot.count("[label=") - dot.count('[label="0"]') - dot.count('[label="1"]') == len(
        function.source_graph
    )
    assert f"{Path(__file__).name}:" in dot
    assert f"{Path(__file__).name}:" not in mg.show(function.source_graph, source=False).dot()
    plan = mg.show(function.plan).dot()
    assert plan.count('shape="box"') == len(function.plan.steps)


def test_show_saves_by_suffix(tmp_path: Path) -> None:
    x = mg.var('a "quoted" name', shape=(2,))
    shown = mg.show(x * x)
    shown.save(tmp_path / "graph.txt")
    shown.save(tmp_path / "graph.dot")
    assert (tmp_path / "graph.txt").read_text() == shown.text() + "\n"
    assert (tmp_path / "graph.dot").read_text() == shown.dot() + "\n"
    assert 'label="input a \\"quoted\\" name' in shown.dot()
    shown.save(tmp_path / "graph.svg")
    shown.save(tmp_path / "graph.html")
    assert (tmp_path / "graph.svg").read_text() == shown.svg() + "\n"
    assert (tmp_path / "graph.html").read_text().startswith("<!doctype html>")
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(GraphError) as raised:
        shown.save(tmp_path / "graph.pdf")
    assert str(raised.value) == (
        "graph.pdf: there are no pictures of the form '.pdf'\n"
        "  expected: .txt, .dot, .svg, .html or .json\n"
        "  try: graph.html, which a browser opens"
    )
    with pytest.raises(GraphError, match="^graph: there are no files without a suffix"):
        shown.save(tmp_path / "graph")
    with pytest.raises(FileNotFoundError, match=r"cannot be written: there is no folder"):
        shown.save(tmp_path / "none" / "graph.svg")
    assert sorted(p.name for p in tmp_path.iterdir()) == before


# ---------------------------------------------------------------------- explain


def test_explain_follows_a_product_to_its_kernel() -> None:
    function, nodes, _ = step()
    found = function.explain(nodes["product"])
    assert len(found.sources) == 2  # the same product, written twice
    assert len(found.lines) == 2
    assert [stage.name for stage in found.stages][:1] == ["contract"]
    assert found.stages[0].nodes[0].op.name == "gemm"
    (use,) = found.kernels
    plan = function.plan
    assert plan.steps[use.step].kernel == use.family == "gemm"
    assert plan.steps[use.step].outputs[0].slot == use.slot
    assert not use.inside
    text = str(found)
    assert text.splitlines()[0] == "matmul : float32[batch, 4]"
    assert all(f"  made at {line}" in text for line in found.lines)
    assert "2 equal expressions, computed once" in text
    assert json.loads(found.to_json())["kernels"][0]["family"] == "gemm"


def test_explain_follows_an_update_into_its_variable() -> None:
    function, nodes, _ = step()
    found = function.explain(nodes["new"])
    assert "accumulate" in [stage.name for stage in found.stages]
    (use,) = found.kernels
    assert (use.family, use.place, use.in_place) == ("gemm", "state", True)
    slot = function.plan.slots[use.slot]
    assert slot.owner is nodes["W"].attrs["state"]
    assert "in place of an operand" in str(found)


def test_explain_follows_into_fused_kernels() -> None:
    function, nodes, _ = step()
    found = function.explain(nodes["hidden"])
    assert found.stages[-1].name == "fuse"
    assert found.kernels[0].family == "fused"
    assert found.kernels[0].inside
    body = function.plan.steps[found.kernels[0].step].node.attrs["body"]
    assert "tanh" in [node.op.name for node in body.nodes]


def test_explain_of_leaves_and_folded_and_dropped_nodes() -> None:
    x = mg.var("x", shape=(3,))
    known = mg.exp(mg.constant(1.0))
    gone = mg.negative(mg.negative(x))
    function = mg.function([x], [gone, x * known])
    assert str(function.explain(x)).endswith("plan: read from slot 0 (feed)")
    folded = function.explain(known)
    assert folded.stages[0].name == "simplify"
    assert folded.stages[0].text.startswith("folded into the constant 2.718")
    dropped = function.explain(gone.inputs[0])
    assert dropped.stages[0].text == (
        "eliminated ('negative of a negative' at negative : float32[3])"
    )
    assert not dropped.kernels
    other = mg.var("y", shape=(3,))
    with pytest.raises(GraphError, match="the function does not compute 'y' float32"):
        function.explain(other)
    with pytest.raises(GraphError, match="explain is given int"):
        function.explain(3)


@pytest.mark.parametrize("number", range(12))
def test_every_node_of_a_random_program_has_a_fate(number: int) -> None:
    program = random_program(number)
    function = mg.function(program.inputs, program.outputs, program.updates)
    steps = len(function.compile().plan.steps)
    for users in list(function.trace.sources.values()):
        for node in users:
            found = function.explain(node)
            ended = found.stages and not found.stages[-1].nodes
            assert found.kernels or found.memory or ended, str(found)
            assert all(0 <= use.step < steps for use in found.kernels)
    for node in program.outputs:
        found = function.explain(node)
        assert found.kernels or found.memory, str(found)


# ---------------------------------------------------------------------- check


def test_check_of_a_sound_function() -> None:
    function, nodes, batch = step()
    before = nodes["W"].value
    found = function.check(batch)
    assert found.ok, str(found)
    assert next(iter(found.errors)) == "source"
    assert list(found.errors)[-1] == "run"
    assert 0 < found.errors["source"] < 1e-5
    assert found.repairs == []
    assert found.not_finite is None
    assert str(found).endswith("\nok")
    assert json.loads(found.to_json())["ok"] is True
    np.testing.assert_array_equal(nodes["W"].value, before)
    assert nodes["W"].attrs["state"].version == 0
    with pytest.raises(FeedError):
        function.check()


@pytest.mark.parametrize("number", range(12))
def test_random_programs_check_out(number: int) -> None:
    program = random_program(number)
    function = mg.function(program.inputs, program.outputs, program.updates)
    found = function.check(*program.feeds)
    assert found.ok, str(found)


def _spoiling(factor: float) -> tuple[Pass, ...]:
    """Return the pipeline with a pass after contract that scales every tanh."""

    def spoil(graph: Graph, trace: Any, options: Any) -> Graph:
        mapping = {}
        for node in graph.nodes:
            if node.op is TANH:
                wrong = graph.interner.intern(node * np.float32(factor))
                trace.replace(node, wrong, "spoil", "scale the tangent")
                options.record.hit("scale the tangent")
                mapping[node] = wrong
        return graph.substitute(mapping)

    passes = list(mg.passes.default())
    at = [record.name for record in passes].index("contract") + 1
    passes.insert(at, Pass("spoil", spoil, True, "exact", "to be caught"))
    return tuple(passes)


TANH = mg.tanh(mg.constant(0.0)).op


def test_check_blames_the_pass_the_rule_and_the_node() -> None:
    function, nodes, batch = step(passes=_spoiling(1.01))
    found = function.check(batch)
    assert not found.ok
    blame = found.blame
    assert blame is not None
    assert (blame.name, blame.rule) == ("spoil", "scale the tangent")
    assert nodes["hidden"] in blame.sources
    assert blame.increase > 1e-3
    assert found.errors["contract"] < 1e-5 < found.errors["spoil"]
    text = str(found)
    assert "spoil is to blame: the rule 'scale the tangent' made" in text
    assert f"made at {nodes['hidden'].line}" in text


def test_check_passes_over_what_rounding_explains() -> None:
    function, _, batch = step(passes=_spoiling(1.0 + 2**-23))
    assert function.check(batch).ok


def test_check_blames_the_run(monkeypatch: Any) -> None:
    function, _, batch = step()
    function.check(batch)
    bound = function._specialize((batch.shape,))
    run = bound.run

    def wrong(feeds: Any, out: Any = None) -> Any:
        results = run(feeds, out)
        return [results[0] * 1.5, *results[1:]]

    monkeypatch.setattr(type(bound), "run", lambda self, feeds, out=None: wrong(feeds, out))
    found = function.check(batch)
    assert found.blame is not None
    assert found.blame.name == "run"
    assert found.blame.increase > 0.1


def test_check_lists_repairs() -> None:
    x = mg.var("x", shape=(None, 4))
    function = mg.function([x], mg.log(mg.softmax(x)))
    found = function.check([[1e4, -1e4, 0.0, 0.0]])
    assert found.ok, str(found)
    assert "simplify: 3 values of output 0 are finite now" in found.repairs
    assert found.not_finite is not None
    assert found.not_finite.op.name == "log"
    assert "not finite from finite operands: " in str(found)


def test_check_does_not_list_an_infinity_that_is_written() -> None:
    x = mg.var("x", shape=(None, 4))
    masked = mg.softmax(mg.where(x > 0.0, x, -np.inf))
    assert mg.function([x], masked).check([[1.0, -1.0, 2.0, 0.0]]).not_finite is None
    found = mg.function([x], masked).check([[-1.0, -1.0, -2.0, 0.0]])
    assert found.not_finite is None or found.not_finite.op.name != "constant"


def test_check_names_the_rule_of_a_repair() -> None:
    x = mg.var("x", shape=(3,))
    function = mg.function([x], x * mg.log(x))
    assert function.check([1.0, 2.0, 3.0]).repairs == []
    found = function.check([0.0, 1.0, 2.0])
    assert found.ok, str(found)
    assert found.repairs[0] == "simplify: 1 values of output 0 are finite now"
    assert found.repairs[1:] == function.report["simplify"].repairs
    assert len(found.repairs) == 2


def test_check_replays_decisions_and_random_values() -> None:
    x = mg.var("x", shape=(200,))
    nearly = mg.round(x * 3.0) + mg.sign(x) + mg.cast(x > 0.1, "float32")
    noise = mg.random.normal((200,))
    function = mg.function([x], [nearly, mg.argmax(x), noise, mg.sum(noise * nearly)])
    values = np.linspace(-1, 1, 200).astype(np.float32)
    values[::2] = np.float32(0.1)  # 0.1 in float32 is above 0.1 in float64
    found = function.check(values)
    assert found.ok, str(found)
    assert found.errors["source"] < 1e-5


def test_check_of_a_refused_run() -> None:
    x = mg.var("x", shape=(2,))
    function = mg.function([x], mg.log(x), nan="raise")
    found = function.check([0.0, 1.0])
    assert found.notes
    assert found.notes[0].startswith("the run was refused: output 0 holds 1 values")


# ---------------------------------------------------------------------- profile, ablate


def test_profile_has_a_row_for_every_step() -> None:
    function, nodes, batch = step()
    before = nodes["W"].value
    measured = function.profile(batch)
    plan = function.plan
    assert [row.kernel for row in measured] == [s.kernel for s in plan.steps]
    assert [row.bytes for row in measured] == [s.bytes for s in plan.steps]
    assert all(row.nanoseconds >= 0 for row in measured)
    assert measured.nanoseconds == sum(row.nanoseconds for row in measured) > 0
    product = function.explain(nodes["product"]).kernels[0].step
    assert nodes["product"] in measured.steps[product].nodes
    assert str(nodes["product"].line) in measured.steps[product].lines
    assert all(row.lines for row in measured), str(measured)
    lines = str(measured).splitlines()
    assert len(lines) == len(plan.steps) + 2
    rows = json.loads(measured.to_json())["steps"]
    assert [row["step"] for row in rows] == list(range(len(plan.steps)))
    np.testing.assert_array_equal(nodes["W"].value, before)
    assert nodes["W"].attrs["state"].version == 0


def test_ablate_leaves_every_optional_pass_out_once() -> None:
    function, nodes, batch = step()
    before = nodes["W"].value
    measured = function.ablate(batch, rounds=1)
    optional = [record.name for record in mg.passes.default() if record.optional]
    assert [row.name for row in measured] == ["all passes", *optional]
    assert measured.whole.steps == len(function.plan.steps)
    assert measured["fuse"].steps > measured.whole.steps
    assert all(row.nanoseconds > 0 and not row.error for row in measured)
    assert len(str(measured).splitlines()) == len(measured) + 1
    assert json.loads(measured.to_json())["rows"][0]["name"] == "all passes"
    np.testing.assert_array_equal(nodes["W"].value, before)
    assert nodes["W"].attrs["state"].version == 0
    with pytest.raises(KeyError, match="no pass 'none' was left out"):
        measured["none"]


def test_nothing_is_committed_where_a_look_fails(monkeypatch: Any) -> None:
    function, nodes, batch = step()
    function.compile()
    bound = function._specialize((batch.shape,))
    before = nodes["W"].value
    run = type(bound).run

    def interrupted(self: Any, feeds: Any, out: Any = None) -> Any:
        run(self, feeds, out)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(bound), "run", interrupted)
    for look in (function.check, function.ablate):
        with pytest.raises(KeyboardInterrupt):
            look(batch)
        np.testing.assert_array_equal(nodes["W"].value, before)


def test_looking_imports_nothing_early() -> None:
    import subprocess

    code = (
        "import sys, magmagraph; "
        "print([m for m in ('networkx', 'scipy', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_records_of_passes_are_data() -> None:
    function, _, _ = step()
    names = [record.name for record in function.passes]
    assert names == [record.name for record in mg.passes.default()]
    assert all(dataclasses.is_dataclass(record) for record in function.passes)
