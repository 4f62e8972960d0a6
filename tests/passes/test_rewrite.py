"""The rewriting machinery: patterns, the driver and its budget, reports, the pipeline's errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.errors import PassError
from magmagraph.ir.graph import Graph, Node, Trace, freeze
from magmagraph.ops.elementwise.arithmetic import ADD, MULTIPLY, NEGATIVE
from magmagraph.ops.elementwise.math import EXP, SIN
from magmagraph.ops.leaf import constant
from magmagraph.ops.shape.arrange import RESHAPE
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import Options, Pass
from magmagraph.passes.report import Record
from magmagraph.passes.rewriting import rewrite
from magmagraph.passes.rewriting.pattern import P, attribute, constants, uniform, wildcards
from magmagraph.passes.rewriting.rewrite import Rule, rules_by_operation

x, y = wildcards("x y")
(k,) = constants("k")


def graph_of(*outputs: Node, inputs: tuple[Node, ...] = ()) -> Graph:
    return freeze(list(inputs), list(outputs))


def apply(graph: Graph, *rules: Rule, record: Record | None = None) -> Graph:
    options = options_of(record=Record("test") if record is None else record)
    return rewrite.rewrite(graph, rules_by_operation(rules), Trace(), options, "test")


def matches(pattern: object, node: Node) -> list[dict[str, object]]:
    graph = graph_of(node)
    assert hasattr(pattern, "match")
    return list(pattern.match(graph.outputs[0], {}))


@pytest.fixture
def a() -> Node:
    return mg.input("a", (3,))


# Patterns.


def test_operands_of_commutative_operations_match_in_either_order(a: Node) -> None:
    pattern = 1 + P.exp(x)
    assert len(matches(pattern, 1.0 + mg.exp(a))) == 1
    assert len(matches(pattern, mg.exp(a) + 1.0)) == 1
    assert matches(pattern, mg.exp(a) + 2.0) == []
    assert matches(P.subtract(1, P.exp(x)), mg.exp(a) - 1.0) == []


def test_a_wildcard_matches_the_same_node_wherever_it_stands(a: Node) -> None:
    b = mg.input("b", (3,))
    assert len(matches(x * P.log(x), mg.log(a) * a)) == 1
    assert matches(x * P.log(x), mg.log(a) * b) == []


def test_attributes_are_compared_or_bound(a: Node) -> None:
    m = mg.input("m", (3, 4))
    total = mg.sum(m, axis=1)
    assert len(matches(P.sum(x, axes=(1,)), total)) == 1
    assert matches(P.sum(x, axes=(0,)), total) == []
    (found,) = matches(P.sum(x, axes=attribute("where")), total)
    assert found["where"] == (1,)


def test_constants_match_by_value_whatever_their_shape() -> None:
    assert uniform(constant(np.full((2, 2), 3.0))) == 3.0
    assert uniform(constant(np.array([1.0, 2.0]))) is None
    assert uniform(constant(np.array(True))) is None
    assert uniform(mg.input("a")) is None


def test_an_unknown_operation_has_no_pattern() -> None:
    with pytest.raises(AttributeError, match="there is no operation 'no_such'"):
        P.no_such(x)


# The driver.

ADD_ZERO = Rule("add zero", x + 0, lambda m: m.x)


def test_same_graph_where_nothing_matches(a: Node) -> None:
    graph = graph_of(mg.exp(a))
    assert apply(graph, ADD_ZERO) is graph


def test_rules_apply_until_none_does_and_are_counted(a: Node) -> None:
    node = a
    for _ in range(5):
        node = mg.exp(node + 0.0)
    record = Record("test")
    after = apply(graph_of(node, inputs=(a,)), ADD_ZERO, record=record)
    assert len(after) == 6
    assert record.hits == {"add zero": 5}
    assert apply(after, ADD_ZERO) is after


def test_what_a_replacement_adds_is_rewritten_too(a: Node) -> None:
    rules = (
        Rule("exp to sin", P.exp(x), lambda m: SIN(ADD(m.x, constant(0.0)))),
        ADD_ZERO,
    )
    after = apply(graph_of(mg.exp(a), inputs=(a,)), *rules)
    assert [node.op for node in after.nodes] == [after.inputs[0].op, SIN]


def test_a_refusal_is_recorded_once_with_its_reason(a: Node) -> None:
    rule = Rule("never", P.exp(x), lambda m: m.x, check=lambda m: "it is never right")
    record = Record("test")
    refused = mg.exp(a)
    apply(graph_of(refused + 0.0, refused), rule, ADD_ZERO, record=record)
    assert [(r.rule, r.reason) for r in record.refusals] == [("never", "it is never right")]
    assert record.refusals[0].line.endswith(f"test_rewrite.py:{_line_of('refused = mg.exp(a)')}")


def _line_of(start: str) -> int:
    with open(__file__) as file:
        return next(i for i, text in enumerate(file, 1) if text.strip().startswith(start))


def test_a_replacement_of_another_type_is_an_error(a: Node) -> None:
    rule = Rule("wrong", P.exp(x), lambda m: RESHAPE(m.x, shape=(3, 1)))
    with pytest.raises(PassError, match=r"the rule 'wrong' gives float32\[3, 1\] for float32\[3\]"):
        apply(graph_of(mg.exp(a)), rule)


def test_rules_that_lead_back_are_found(a: Node) -> None:
    rules = (
        Rule("to sin", P.exp(x), lambda m: SIN(m.x)),
        Rule("to exp", P.sin(x), lambda m: EXP(m.x)),
    )
    with pytest.raises(PassError, match="the rule 'to exp' .* does not come to an end"):
        apply(graph_of(mg.exp(a)), *rules)


def test_a_rule_that_grows_without_end_uses_up_the_budget(a: Node) -> None:
    rule = Rule("grow", P.negative(x), lambda m: NEGATIVE(ADD(m.x, m.x)))
    with pytest.raises(PassError, match="the budget of rewrites is used up, .* rule 'grow'"):
        apply(graph_of(-a), rule)


def test_a_chain_of_rewrites_does_not_recurse(a: Node) -> None:
    node = a
    for _ in range(20_000):
        node = mg.exp(node) + 0.0
    after = apply(graph_of(node, inputs=(a,)), ADD_ZERO)
    assert len(after) == 20_001


def test_rules_see_how_often_a_node_is_read(a: Node) -> None:
    once = Rule(
        "read once", P.exp(P.sin(x).bind("inner")),
        lambda m: MULTIPLY(m.x, m.x),
        check=lambda m: None if m.reads(m.inner) == 1 else f"read {m.reads(m.inner)} times",
    )
    record = Record("test")
    inner = mg.sin(a)
    apply(graph_of(mg.exp(inner), inner), once, record=record)
    assert [r.reason for r in record.refusals] == ["read 2 times"]
    apply(graph_of(mg.exp(inner)), once, record=record)
    assert record.hits == {"read once": 1}


def test_the_trace_leads_back_to_the_users_nodes(a: Node) -> None:
    user = mg.exp(a)
    trace = Trace()
    graph = freeze([a], [user], trace=trace)
    rule = Rule("through", P.exp(x), lambda m: SIN(NEGATIVE(m.x)))
    after = rewrite.rewrite(graph, rules_by_operation([rule]), trace, options_of(), "test")
    sin = after.outputs[0]
    assert trace.origins(sin) == [user]
    assert trace.origins(sin.inputs[0]) == [user]
    assert trace.became[graph.outputs[0]] == [("test", "through", sin)]


# Reports.

PASSES = ["distribute", "attention", "micro_batches", "simplify"]


def report_of(a: Node) -> pipeline.Report:
    graph = graph_of(mg.exp(a) * 1.0 + 0.0, inputs=(a,))
    _, report = pipeline.run(graph, Trace(), passes=pipeline.DEFAULT[:4])
    return report


def test_a_report_is_equal_for_equal_input_and_prints(a: Node) -> None:
    one, other = report_of(a), report_of(a)
    one["simplify"].milliseconds += 1.0
    assert one == other
    text = str(one).splitlines()
    assert text[0].split() == ["pass", "ms", "nodes", "rules"]
    assert [line.split()[0] for line in text[1:]] == PASSES
    assert "add 0" in text[4]


def test_a_report_as_json_table_and_steps(a: Node) -> None:
    report = report_of(a)
    records = json.loads(report.to_json())
    assert [r["pass"] for r in records] == PASSES
    assert records[3]["hits"] == {"multiply by 1": 1, "add 0": 1}
    assert report.__rich__().row_count == 4
    steps = list(report.steps())
    assert [(name, len(before), len(after)) for name, before, after in steps] == [
        ("distribute", 6, 6),
        ("attention", 6, 6),
        ("micro_batches", 6, 6),
        ("simplify", 6, 2),
    ]
    text = f"no pass 'fuse' ran; these did: {', '.join(PASSES)}"
    with pytest.raises(KeyError, match=text):
        report["fuse"]


# The pipeline.


def test_the_pipeline_is_visible_and_says_why() -> None:
    names = [record.name for record in mg.passes.default()]
    assert names == [
        *PASSES, "contract", "precision", "shared_factors", "layout", "accumulate",
        "reduce_to_gemv", "row_blocks", "align_products", "join_pieces", "fuse", "recompute",
        "schedule", "memory", "lower", "specialize", "fuse_products", "fuse_scans", "launches",
        "stream",
    ]
    for record in mg.passes.default():
        assert record.reason
        assert record.numerics in ("exact", "stable", "reassoc", "half")
    assert [r.name for r in mg.passes.default(skip=("fuse",))] == [n for n in names if n != "fuse"]
    with pytest.raises(PassError, match="skip='fuse' is a string"):
        mg.passes.default(skip="fuse")


def renamed(graph: Graph, trace: Trace, options: object) -> Graph:
    """A pass as someone writes it first: the function alone."""
    return graph


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"skip": ("fusion",)},
            "skip names 'fusion', which is not a pass here\n  expected: one of distribute, "
            "attention, micro_batches, simplify, contract, precision, shared_factors, layout, "
            "accumulate, reduce_to_gemv, row_blocks, align_products, join_pieces, fuse, "
            "recompute, fuse_products, fuse_scans",
        ),
        (
            {"skip": ("memory",)},
            "the pass 'memory' cannot be skipped: nothing would run without it\n  expected: one of "
            "distribute, attention, micro_batches, simplify, contract, precision, "
            "shared_factors, layout, accumulate, reduce_to_gemv, row_blocks, align_products, "
            "join_pieces, fuse, recompute, fuse_products, fuse_scans",
        ),
        (
            {"passes": ("simplify",)},
            "'simplify' in passes= is not a pass\n  expected: Pass records\n"
            "  try: start from mg.passes.default()",
        ),
        (
            {"passes": (renamed,)},
            f"{renamed!r} in passes= is not a pass\n  expected: Pass records\n"
            "  try: mg.passes.Pass('renamed', function, True, 'exact', 'why here') of a function "
            "(graph, trace, options) -> graph; the others are mg.passes.default()",
        ),
        (
            {"passes": (mg.passes.Pass("mine", renamed, True, "fast", "first"),)},
            "the pass 'mine' has numerics='fast'\n"
            "  expected: one of exact, stable, reassoc, half: what it does to values",
        ),
        (
            {"passes": ()},
            "passes= lacks schedule, memory, lower: nothing would run without\n"
            "  try: start from mg.passes.default()",
        ),
    ],
)
def test_a_pipeline_that_cannot_be_had_is_refused(given: dict[str, object], text: str) -> None:
    a = mg.input("a", (3,))
    with pytest.raises(PassError) as caught:
        mg.function([a], a + 1.0, **given)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"speed": 1}, "there is no option 'speed'"),
        ({"reduce_to_gemv": "maybe"}, "reduce_to_gemv='maybe'"),
    ],
)
def test_options_are_checked(given: dict[str, object], text: str) -> None:
    with pytest.raises(PassError, match=text):
        options_of(**given)


def test_a_pass_that_fails_is_named_with_what_it_received(a: Node) -> None:
    def broken(graph: Graph, trace: Trace, options: Options) -> Graph:
        raise ZeroDivisionError("no reason")

    record = Pass("broken", broken, True, "exact", "a test")
    passes = [*pipeline.DEFAULT[:4], record]
    with pytest.raises(PassError) as caught:
        pipeline.run(graph_of(mg.exp(a), inputs=(a,)), Trace(), passes=passes)
    assert str(caught.value).splitlines() == [
        "the pass 'broken' failed: ZeroDivisionError: no reason",
        "  try: skip=('broken',) leaves it out, if it is optional",
        f"  passes before it: {', '.join(PASSES)}",
        "  it received:",
        "    %0 = input() : float32[3]  # a",
        "    %1 = exp(%0) : float32[3]",
        "    return %1",
    ]
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_pass_that_returns_nothing_is_named(a: Node) -> None:
    def forgets(graph: Graph, trace: Trace, options: Options) -> Any:
        graph.verify()

    record = Pass("forgets", forgets, True, "exact", "a test")
    with pytest.raises(PassError, match="the pass 'forgets' failed: it returned NoneType, not a"):
        pipeline.run(graph_of(mg.exp(a), inputs=(a,)), Trace(), passes=[record])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda g: g.replace(outputs=g.outputs[:1]), "it left 1 outputs of 2"),
        (lambda g: g.replace(outputs=(g.inputs[0], g.inputs[0])), "changed the type of output 1"),
        (
            lambda g: g.replace(updates=[(v, g.inputs[0]) for v, _ in g.updates]),
            "the update of .* has type float32\\[3\\]",
        ),
    ],
)
def test_a_pass_that_breaks_a_graph_is_found(
    a: Node, change: object, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(change)
    held = mg.variable("held", init=np.float32(1.0))
    graph = freeze([a], [mg.exp(a), mg.sum(a)], [(held, held * 2.0)])
    record = Pass("breaking", lambda g, trace, options: change(g), True, "exact", "a test")
    monkeypatch.setattr(mg.config, "verify", True)
    with pytest.raises(PassError, match=text):
        pipeline.run(graph, Trace(), passes=[record])


def test_skipped_passes_stand_in_the_report(a: Node) -> None:
    _, report = pipeline.run(
        graph_of(a + 0.0, inputs=(a,)), Trace(), passes=pipeline.DEFAULT[:4], skip=("simplify",)
    )
    assert report["simplify"].skipped
    assert "skipped" in str(report)


def test_a_users_pass_is_verified_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it loses would else be an error of a later pass, or of none."""
    monkeypatch.setattr(mg.config, "verify", False)

    def losing(graph: Graph, trace: Trace, options: object) -> Graph:
        return freeze(list(graph.inputs), [])

    a = mg.input("a", (3,))
    own = mg.passes.Pass("losing", losing, True, "exact", "to lose the outputs")
    f = mg.function([a], mg.exp(a), passes=(own, *mg.passes.default()))
    with pytest.raises(PassError, match="the pass 'losing' failed: it left 0 outputs of 1"):
        f(np.zeros(3, np.float32))
