"""What plans, reports, memory and profiles print, and the C of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.inspect.profile import _by_file
from magmagraph.ir.graph import Node
from magmagraph.passes.report import WIDTH, Report


@pytest.fixture
def train() -> Any:
    x = mg.var("x", shape=("batch", 4))
    W = mg.var("W", shape=(4, 3), init=mg.init.constant(0.1))
    b = mg.var("b", shape=(3,), init=mg.init.zeros())
    loss = mg.mean((mg.sigmoid(x @ W + b) - 1.0) ** 2)
    return mg.optimizer.SGD(0.5).step(loss, [W, b], inputs=[x], outputs=loss)


def test_a_plan_prints_formulas_until_its_sizes_are_bound(train: Any) -> None:
    text = str(train.plan)
    assert "28*batch + 48" in text  # 4 bytes for each of batch * 4 + 4 * 3 + batch * 3
    assert "x @ W" in text
    products = [line for line in text.splitlines() if " gemm " in line]
    assert len(products) == 2
    assert products[1].endswith("+ W; in place")
    assert "x.T @" in products[1]
    train(np.zeros((6, 4)))
    bound = str(train.plan).splitlines()
    assert bound[0] == "batch = 6"
    assert f"arena {train.plan.arena} bytes" in bound[-1]
    assert repr(train.plan) == f"<plan of {len(train.plan.steps)} steps, batch=6>"


def test_a_plan_shows_the_commit_point_where_something_is_committed(train: Any) -> None:
    lines = str(train.plan).splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("-- commit")]
    numbers = [line.split()[0] for line in lines[1:at]]
    assert [n for n in numbers if n.isdigit()] == [str(i) for i in range(train.plan.commit)]
    x = mg.var("x", shape=(3,))
    assert "-- commit" not in str(mg.function([x], mg.exp(x)).plan)


def test_a_plan_names_an_extent_that_an_array_step_reads() -> None:
    x = mg.var("x", shape=("n",), dtype="complex64")
    function = mg.function([x], x / mg.extent(x.shape[0]))
    (line,) = [one for one in str(function.plan).splitlines() if " = cast" in one]
    assert line.endswith("= cast of n")


def test_each_slot_of_the_arena_has_a_row(train: Any) -> None:
    train(np.zeros((6, 4)))
    plan = train.plan
    arena = [slot for slot in plan.slots if slot.place.value == "arena"]
    rows = str(plan).split("\n\n")[1].splitlines()[1:-1]
    assert sorted(row.split()[0] for row in rows) == sorted(f"s{s.index}" for s in arena)
    offsets = [int(row.split()[2]) for row in rows]
    assert offsets == sorted(offsets)


def test_memory_prints_formulas_and_sizes(train: Any) -> None:
    lines = str(train.memory).splitlines()
    assert lines[0].split()[0] == "arena"
    assert "*batch" in lines[0]
    train(np.zeros((6, 4)))
    assert str(train.memory).splitlines()[-1].split() == [
        "total", str(train.memory.total), "bytes",
    ]


def test_the_report_says_which_updates_are_copied_and_why(train: Any) -> None:
    record = train.report["memory"]
    assert record.hits == {"update a variable in place": 2}
    assert record.refusals == []
    v = mg.var("v", init=np.zeros(3, np.float32))
    new = v + 1.0
    (refusal,) = mg.function([], new, updates={v: new}).report["memory"].refusals
    assert refusal.node == "variable 'v' : float32[3]"
    assert refusal.reason == "its new value is also returned"


def test_the_source_of_a_kernel_is_that_of_its_operations(train: Any) -> None:
    families = [step.kernel for step in train.plan.steps]
    source = train.source(families.index("fused"))
    assert "expf(-" in source
    assert source.count("static void") >= 1
    with pytest.raises(mg.PlanError) as raised:
        train.source(families.index("gemm"))
    assert str(raised.value) == (
        f"step {families.index('gemm')} is of the family gemm, for which no C is generated\n"
        "  expected: a fused step\n"
        "  try: print(f.plan) lists the steps"
    )


def _refusing() -> Report:
    report = Report()
    record = report.start("fuse")
    record.before = record.after = 3
    x = mg.var("x", shape=(2,))
    nodes: list[Node] = [mg.exp(x), mg.exp(x), mg.sin(x)]
    for node in nodes:
        record.refuse("join", node, "a reason that is told once for all of its places")
    record.hit("a rule with a name", 2)
    record.hit("another", 1)
    return report


def test_a_report_groups_refusals_by_their_reason() -> None:
    lines = str(_refusing()).splitlines()
    assert lines[1].split(maxsplit=3)[2:] == ["3", "a rule with a name x2, another, 3 refused"]
    assert lines[2] == "fuse: join refused: a reason that is told once for all of its places"
    assert lines[3].startswith("    exp : float32[2], made at ")
    assert lines[3].endswith(" (x2)")
    assert lines[4].startswith("    sin : float32[2], made at ")
    assert len(lines) == 5


def test_a_record_prints_as_its_part_of_the_report(train: Any) -> None:
    report = str(train.report).splitlines()
    for record in train.report:
        head, row, *rest = str(record).splitlines()
        assert head.split() == ["pass", "ms", "nodes", "rules"]
        assert row.split()[:2] in [line.split()[:2] for line in report]
        if record.refusals:
            assert rest[-1] in report


def test_a_report_keeps_within_its_width() -> None:
    report = _refusing()
    for i in range(30):
        report["fuse"].hit(f"rule number {i}", 2)
    lines = str(report).splitlines()
    assert max(len(line) for line in lines if "made at" not in line) <= WIDTH
    assert "\u00a0" not in str(report)
    assert not any(line.strip().startswith("x2") for line in lines)


def test_lines_are_grouped_by_file() -> None:
    given = ["/a/net.py:7", "/a/net.py:3", "/b/other.py:9"]
    assert _by_file(given) == ["net.py:3", "7", "other.py:9"]
    assert _by_file([]) == []


def test_a_setting_that_does_not_exist_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        mg.config.thread = 1  # type: ignore[attr-defined]


def test_a_model_shows_what_it_predicts() -> None:
    layers = [mg.nn.Input((4,)), mg.nn.Dense(3, activation="tanh"), mg.nn.Output(2)]
    net = mg.NeuralNetwork(layers, loss="cross_entropy")
    shown = mg.show(net)
    assert shown.text() == mg.show(net.outputs).text()
    assert shown.text().count("tanh(") == 1 and "<svg" in shown.svg()
    assert mg.to_networkx(net).number_of_nodes() == mg.to_networkx(net.outputs).number_of_nodes()
