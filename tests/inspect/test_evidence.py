"""Evidence: who spoils accuracy, what a pass gains, what each step takes under its roofs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from random_graphs import random_program

import magmagraph as mg
from magmagraph.inspect import evidence as module
from magmagraph.inspect.ablate import Ablation, Ablations
from magmagraph.inspect.checking.noise import rounding
from magmagraph.inspect.evidence import evidence
from magmagraph.inspect.peaks import Peaks, peaks
from magmagraph.inspect.profile import profile
from magmagraph.ir.graph import Graph
from magmagraph.passes import Pass, pipeline
from magmagraph.passes.rewriting.rewrite import Rule, rewrite, rules_by_operation

measured_peaks = partial(peaks, compiled=mg.Function)

SINE = mg.sin(mg.constant(0.0)).op
EXP = mg.exp(mg.constant(0.0)).op


def program(**options: Any) -> tuple[mg.Function, dict[str, mg.Node], np.ndarray]:
    """Return a step with a sine and an exponential, its nodes, and a batch."""
    rng = np.random.default_rng(0)
    x = mg.var("x", shape=("batch", 6))
    w = mg.var("w", init=rng.normal(size=(6, 4)).astype(np.float32))
    wave = mg.sin(x @ w)
    power = mg.exp(wave * 0.5)
    loss = mg.mean(power)
    function = mg.function([x], loss, {w: w - 0.1 * mg.grad(loss, w)}, **options)
    nodes = {"x": x, "w": w, "wave": wave, "power": power, "loss": loss}
    return function, nodes, rng.normal(size=(5, 6)).astype(np.float32)


def with_pass(planted: Pass, after: str = "contract") -> tuple[Pass, ...]:
    """Return the pipeline with a pass more."""
    passes = list(mg.passes.default())
    at = [record.name for record in passes].index(after) + 1
    return (*passes[:at], planted, *passes[at:])


# ---------------------------------------------------------------------- check


def broken(op: Any, amount: float) -> Pass:
    """Return a pass with a rule that writes an operation as another one, by a wrong constant."""

    def shift(match: Any) -> Any:
        (operand,) = match.root.inputs
        if op is SINE:
            return mg.cos(operand - (np.pi / 2 + amount))
        return mg.expm1(operand) + (1.0 + amount)

    wrong = Rule("a wrong constant", (op,), shift)

    def run(graph: Graph, trace: Any, options: Any) -> Graph:
        return rewrite(graph, rules_by_operation([wrong]), trace, options, "planted")

    return Pass("planted", run, True, "stable", "to be caught")


@pytest.mark.parametrize("name", ["wave", "power"])
def test_check_names_the_broken_rule_and_its_node(name: str) -> None:
    op = SINE if name == "wave" else EXP
    function, nodes, batch = program(passes=with_pass(broken(op, 1e-3)))
    found = function.check(batch)
    blame = found.blame
    assert blame is not None
    assert (blame.name, blame.rule) == ("planted", "a wrong constant")
    assert nodes[name] in blame.sources
    assert found.errors["contract"] < 1e-5 < found.errors["planted"]
    told = json.loads(found.to_json())
    assert told["version"] == 1
    assert told["blame"]["rule"] == "a wrong constant"
    assert str(nodes[name].line) in told["blame"]["sources"][0]
    at_fault = found.pass_errors["planted"]
    assert max(at_fault.values()) > 1e-4


def test_check_of_a_broken_float64_rule() -> None:
    """The reference has the dtype of the program: its own error is zero."""
    x = mg.var("x", shape=(100,), dtype="float64")
    function = mg.function([x], mg.sum(mg.sin(x)), passes=with_pass(broken(SINE, 1e-6)))
    found = function.check(np.linspace(0.1, 1.0, 100))
    assert found.blame is not None
    assert found.blame.rule == "a wrong constant"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(5))
def test_check_blames_nobody_for_what_cancels(dtype: str, seed: int) -> None:
    """Results that are nothing but rounding: another order of a sum gives another result."""
    rng = np.random.default_rng(seed)
    x = mg.input("x", shape=(1000,), dtype=dtype)
    w = mg.var("w", init=rng.normal(size=(1000, 50)), dtype=dtype)
    centred = x - mg.mean(x)
    outputs = [
        mg.sum(centred),
        mg.sum(centred @ w) - mg.sum(mg.transpose(w) @ centred),
        mg.sum((x + 1.0) - x - 1.0),
        mg.sum(mg.softmax(x)) - 1.0,
    ]
    found = mg.function([x], outputs).check(rng.normal(size=1000).astype(dtype))
    assert found.ok, str(found)


@pytest.mark.parametrize("number", range(12, 15))
def test_random_float64_programs_check_out(number: int) -> None:
    drawn = random_program(number)
    function = mg.function(drawn.inputs, drawn.outputs, drawn.updates)
    assert function.check(*drawn.feeds).ok


def test_rounding_is_that_of_the_dtype_and_grows_where_terms_cancel() -> None:
    x = mg.input("x", shape=(50,), dtype="float64")
    well, ill = mg.exp(x), (x + 1e6) - 1e6
    function = mg.function([x], [well, ill])
    graph = function.source_graph
    feed = np.linspace(0.5, 1.0, 50)
    from magmagraph.inspect.checking.wide import evaluate_wide
    from magmagraph.ir.interpret import evaluate

    own = evaluate(graph, {graph.inputs[0]: feed}, {})
    fed = {graph.inputs[0]: feed}
    noise = rounding(graph, fed, {}, own, evaluate_wide(graph, fed, {}, own))
    first, second = (noise[root] for root in graph.outputs)
    eps = np.finfo(np.float64).eps
    assert 0.0 < first < 4 * eps
    assert 1e4 * eps < second < 1e7 * eps


# ---------------------------------------------------------------------- ablate


def test_ablate_shows_the_loss_of_a_slow_pass() -> None:
    """A pass that computes a large product again and again: without it the function is faster."""

    def slow(graph: Graph, trace: Any, options: Any) -> Graph:
        mapping = {}
        for node in graph.nodes:
            if node.op is SINE:
                wasted = mg.constant(np.zeros((300, 300), np.float32)) + node.inputs[0]
                for _ in range(4):
                    wasted = wasted @ wasted
                made = graph.interner.intern(node + 0.0 * wasted)
                trace.replace(node, made, "slow", "waste")
                mapping[node] = made
        return graph.substitute(mapping)

    x = mg.var("x", shape=(300, 300))
    passes = with_pass(Pass("slow", slow, True, "exact", "to be caught"), "layout")
    function = mg.function([x], mg.sum(mg.sin(x)), passes=passes)
    measured = function.ablate(np.ones((300, 300), np.float32), rounds=3)
    assert measured.losses == ["slow"] or "slow" in measured.losses
    row = measured["slow"]
    assert row.nanoseconds < measured.whole.nanoseconds
    assert row.low <= row.nanoseconds <= row.high
    assert row.steps < measured.whole.steps
    assert measured.verdict(row).startswith("costs ")
    assert "costs " in next(line for line in str(measured).splitlines() if line[:4] == "slow")
    told = json.loads(measured.to_json())
    assert (told["version"], told["rounds"]) == (1, 3)
    assert told["rows"][0]["name"] == "all passes"


def test_ablate_gives_no_verdict_within_the_spread() -> None:
    whole = Ablation("all passes", 100.0, 90.0, 110.0)
    near = Ablation("fuse", 115.0, 105.0, 130.0)
    far = Ablation("simplify", 250.0, 240.0, 270.0)
    failed = Ablation("layout", error="it failed")
    measured = Ablations((whole, near, far, failed), 9)
    assert [measured.verdict(row) for row in measured] == ["", "", "gains 2.50x", ""]
    assert measured.losses == []


def test_ablate_says_which_passes_change_nothing() -> None:
    """A clock may differ between two runs of one plan; that is no gain of the pass."""
    x = mg.var("x", shape=("n",))
    measured = mg.function([x], mg.exp(x) * 2.0).ablate(np.ones(10, np.float32), rounds=1)
    assert [row.name for row in measured if not row.same] == ["all passes", "fuse"]
    assert measured.verdict(measured["layout"]) == "changes nothing"
    noise = Ablation("layout", 900.0, 890.0, 910.0, same=True)
    assert Ablations((measured.whole, noise), 9).losses == []


# ---------------------------------------------------------------------- profile

ROOFS = Peaks("a machine", 10.0, {"float32": 100.0}, 50.0)


def test_profile_puts_steps_under_roofs() -> None:
    function, nodes, batch = program()
    seen: list[Any] = []

    def known(most: Any) -> Peaks:
        seen.append(dict(most))
        return ROOFS

    measured = profile(function, batch, peaks=known)
    assert list(seen[0]) == ["float32"]
    assert seen[0]["float32"] == max(step.gigaflops for step in measured)
    for step in measured:
        floor = max(step.bytes / 10.0, step.flops / 100.0, 50.0)
        assert step.roof == pytest.approx(floor / step.nanoseconds)
        assert step.bandwidth_share == pytest.approx(step.gigabytes_per_second / 10.0)
        assert step.flops_share == pytest.approx(step.gigaflops / 100.0)
        assert step.bound in ("bandwidth", "arithmetic", "latency", "kernel")
        assert (step.bound == "kernel") == (step.roof < 1 / 3)
        assert step.arithmetic == "float32"
    told = json.loads(measured.to_json())
    assert told["version"] == 1
    assert told["peaks"]["gigaflops"] == {"float32": 100.0}
    assert {"roof", "bound"} <= set(str(measured).splitlines()[0].split())
    assert nodes["w"].attrs["state"].version == 0


def test_profile_says_which_steps_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    function, _, batch = program()
    function(batch)
    bound = function._last
    timed = bound.run_timed
    # As on a device, where the launch of a product computes what reads it.
    monkeypatch.setattr(bound, "run_timed", lambda feeds: [0, *timed(feeds)[1:]], raising=False)
    first, *rest = profile(function, batch, peaks=lambda most: ROOFS)
    assert (first.bound, first.roof, first.bandwidth_share) == ("merged", None, None)
    assert first.gigabytes_per_second == first.gigaflops == 0.0
    assert rest and all(step.bound != "merged" and step.roof for step in rest)
    assert profile(function, batch).steps[0].bound == ""  # without roofs nothing is known


def test_profile_shares_times_out_to_nodes_and_lines() -> None:
    function, nodes, batch = program()
    measured = function.profile(batch)
    by_node = measured.by_node()
    assert sum(by_node.values()) == pytest.approx(measured.nanoseconds, rel=1e-6)
    lines = measured.by_line()
    assert sum(line.nanoseconds for line in lines) == pytest.approx(measured.nanoseconds, abs=10)
    assert [line.nanoseconds for line in lines] == sorted(
        (line.nanoseconds for line in lines), reverse=True
    )
    assert str(nodes["wave"].line) in [line.line for line in lines]
    assert len(measured.live) == len(measured)
    assert max(measured.live) <= function.plan.arena


class Store(dict[str, Any]):
    """Where measurements are kept."""

    def set(self, key: str, choice: Any) -> None:
        self[key] = choice


def test_peaks_are_measured_once_and_raised_by_what_is_faster(monkeypatch: Any) -> None:
    from magmagraph.inspect import peaks as own

    monkeypatch.setitem(own.COPIED, "cpu", 1 << 12)
    monkeypatch.setitem(own.PRODUCT, "cpu", 64)
    store = Store()
    first = measured_peaks("cpu", "mine", {"float32": 0.0}, store)
    assert first.gigabytes_per_second > 0
    assert first.gigaflops["float32"] > 0
    assert first.latency > 0
    assert all(key.endswith(" on mine") for key in store)

    def never(*args: Any) -> float:
        raise AssertionError("measured again")

    for name in ("_product", "_latency"):
        monkeypatch.setattr(own, name, never)
    monkeypatch.setattr(own._Streams, "rate", never)
    assert measured_peaks("cpu", "mine", {"float32": 0.0}, store) == first
    raised = measured_peaks("cpu", "mine", {"float32": 2 * first.gigaflops["float32"]}, store)
    assert raised.gigaflops["float32"] == pytest.approx(2 * first.gigaflops["float32"], abs=0.01)
    assert measured_peaks("cpu", "mine", {"float32": 0.0}, store) == raised
    with pytest.raises(AssertionError, match="measured again"):
        measured_peaks("cpu", "another", {"float32": 0.0}, store)


def test_profile_measures_peaks_where_tuning_is_on(monkeypatch: Any) -> None:
    from magmagraph.inspect import peaks as own

    monkeypatch.setitem(own.COPIED, "cpu", 1 << 12)
    monkeypatch.setitem(own.PRODUCT, "cpu", 64)
    function, _, batch = program()
    assert function.profile(batch).peaks is None
    monkeypatch.setattr(mg.config, "tuning", True)
    measured = function.profile(batch)
    assert measured.peaks is not None
    assert "thread" in measured.peaks.machine


# ---------------------------------------------------------------------- report


def test_the_report_has_every_hit_and_every_reason() -> None:
    x, w = mg.var("x", shape=("n", 3)), mg.var("w", init=np.ones((3, 2)))
    gradient = mg.grad(mg.sum(mg.tanh(x @ w)), w)
    function = mg.function([x], gradient, {w: w - 0.1 * gradient})
    told = json.loads(function.report.to_json())
    ran = [
        record.name for record in mg.passes.default() if record.name not in pipeline.AT_BINDING
    ]
    assert [record["pass"] for record in told] == [*ran, "kernels"]
    for record, own in zip(told, function.report, strict=True):
        assert record["hits"] == own.hits
        assert len(record["refusals"]) == len(own.refusals)
        for refusal in record["refusals"]:
            assert set(refusal) == {
                "rule", "node", "line", "reason", "group", "other", "obstacle",
            }
            assert refusal["rule"]
            assert refusal["reason"]
    refused = [refusal for record in told for refusal in record["refusals"]]
    assert refused, "nothing nearly matched"


def test_rewrites_are_those_that_the_report_counts() -> None:
    function, _, _ = program()
    found = list(module.rewrites(function))
    graphs = {name: (before, after) for name, before, after in function.report.steps()}
    for name in ("simplify", "contract"):
        counted = function.report[name].hits
        seen: dict[str, int] = {}
        for rewrite_ in found:
            if rewrite_["pass"] == name:
                seen[rewrite_["rule"]] = seen.get(rewrite_["rule"], 0) + 1
                before, after = graphs[name]
                if rewrite_["before"] is not None:
                    assert 0 <= rewrite_["before"] < len(before.nodes)
                if rewrite_["after"] is not None:
                    assert 0 <= rewrite_["after"] < len(after.nodes)
        assert set(counted) <= set(seen), name


# ---------------------------------------------------------------------- the dictionary


def test_evidence_is_plain_and_points_into_the_graphs(monkeypatch: Any) -> None:
    function, nodes, batch = program(passes=with_pass(broken(SINE, 1e-2)))
    found = evidence(function, batch, ablate=True)
    text = json.dumps(found, allow_nan=False)
    assert json.loads(text) == found
    assert (found["schema"], found["version"]) == ("magmagraph.evidence", 1)
    source = function.source_graph.nodes
    steps = found["profile"]["steps"]
    assert [step["step"] for step in steps] == list(range(len(function.plan.steps)))
    ends = [step["begin"] + step["nanoseconds"] for step in steps]
    assert [step["begin"] for step in steps] == [0, *ends[:-1]]
    assert all(0 <= i < len(source) for step in steps for i in step["source_nodes"])
    assert sum(row["nanoseconds"] for row in found["profile"]["nodes"]) == pytest.approx(
        ends[-1], abs=len(source)
    )
    blame = found["check"]["blame"]
    graphs = {name: after for name, _, after in function.report.steps()}
    assert blame["pass"] == "planted"
    assert graphs["planted"].nodes[blame["node"]].op.kind is not None
    assert source[blame["source_nodes"][0]].line == nodes["wave"].line
    assert {row["node"] for row in found["check"]["nodes"]} <= set(range(len(source)))
    planted = next(p for p in found["check"]["passes"] if p["pass"] == "planted")
    assert max(row["error"] for row in planted["nodes"]) > 1e-3
    assert planted["nodes"][0]["node"] < len(graphs["planted"].nodes)
    assert found["ablate"]["rows"][0]["name"] == "all passes"
    assert any(row["rule"] == "a wrong constant" for row in found["rewrites"])


def test_evidence_has_the_keys_that_are_written_down() -> None:
    function, _, batch = program(passes=with_pass(broken(SINE, 1e-2)))
    text = module.__doc__
    assert text is not None

    def known(values: Any) -> None:
        if isinstance(values, list):
            for value in values:
                known(value)
        elif isinstance(values, dict):
            for key, value in values.items():
                assert f"``{key}``" in text, key
                if key not in ("steps", "gigaflops"):  # as their own classes say
                    known(value)

    found = evidence(function, batch, ablate=True)
    for part in ("profile", "check", "ablate", "rewrites"):
        assert f"- ``{part}``" in text
        known(found[part])
    own = set(function.profile(batch).steps[0].as_dict()) - {"nodes"}
    assert set(found["profile"]["steps"][0]) == {*own, "source_nodes", "begin", "stream"}


def test_evidence_leaves_out_what_is_not_asked_for() -> None:
    function, _, batch = program()
    found = evidence(function, batch, profile=False, check=False)
    assert found["profile"] is found["check"] is found["ablate"] is None
    assert found["device"] == "cpu"


def test_an_infinite_error_is_a_word() -> None:
    def spoil(graph: Graph, trace: Any, options: Any) -> Graph:
        root = graph.outputs[0]
        made = graph.interner.intern(root * np.float32(np.nan))
        trace.replace(root, made, "spoil", "to nan")
        return graph.substitute({root: made})

    x = mg.var("x", shape=(3,))
    passes = with_pass(Pass("spoil", spoil, True, "exact", "to be caught"))
    found = mg.function([x], mg.exp(x), passes=passes).check([1.0, 2.0, 3.0])
    assert found.blame is not None
    assert json.loads(found.to_json())["blame"]["increase"] == "inf"
