"""Every pass keeps values, comes to rest, and reports the same for the same graph."""

from __future__ import annotations

import numpy as np
import pytest
from planned import options_of
from random_graphs import random_program

from magmagraph.dtypes import canonical, tolerance
from magmagraph.ir.graph import Graph, Trace
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import AT_BINDING, DEFAULT, Options, Pass

TO_PLAN = ("memory", "lower", *AT_BINDING)
GRAPH_PASSES = [record for record in DEFAULT if record.name not in TO_PLAN]
SEEDS = range(30)


def ahead_of(name: str) -> list[Pass]:
    """Return the passes before one, which its input has gone through."""
    names = [record.name for record in DEFAULT]
    return list(DEFAULT[: names.index(name)])


def prepared(
    seed: int, name: str, options: Options
) -> tuple[Graph, Graph, Trace, list[np.ndarray]]:
    """Return a random source graph, and the graph that a pass receives."""
    program = random_program(seed)
    source, trace = program.freeze()
    given, _ = pipeline.run(source, trace, passes=ahead_of(name), options=options)
    return source, given, trace, program.feeds


def results(graph: Graph, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """Return the values of outputs and updates."""
    values = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    return [np.asarray(values[root]) for root in graph.roots]


def assert_equal(one: Graph, other: Graph, feeds: list[np.ndarray], seed: int, name: str) -> None:
    """Compare all results by the tolerance table."""
    table = tolerance(canonical("float64"), "reassoc")
    for position, (a, b) in enumerate(
        zip(results(one, feeds), results(other, feeds), strict=True)
    ):
        assert table.close(b, a, scale=1.0 + np.abs(a).max(initial=0.0)), (
            f"seed {seed}: pass {name} changed result {position} from {a} to {b}"
        )


@pytest.mark.parametrize("record", GRAPH_PASSES, ids=lambda record: record.name)
def test_values_are_kept(record: Pass) -> None:
    options = options_of(reduce_to_gemv="always")
    for seed in SEEDS:
        _, given, trace, feeds = prepared(seed, record.name, options)
        after, _ = pipeline.run(given, trace, passes=[record], options=options)
        assert_equal(given, after, feeds, seed, record.name)


@pytest.mark.parametrize(
    "record",
    [record for record in GRAPH_PASSES if record.name not in ("fuse", "schedule")],
    ids=lambda record: record.name,
)
def test_a_pass_applied_to_its_result_returns_it(record: Pass) -> None:
    options = options_of(reduce_to_gemv="always")
    for seed in SEEDS:
        _, given, trace, _ = prepared(seed, record.name, options)
        once, _ = pipeline.run(given, trace, passes=[record], options=options)
        twice, report = pipeline.run(once, trace, passes=[record], options=options)
        assert twice is once, f"seed {seed}: {report}"


def test_all_passes_together_keep_values() -> None:
    options = options_of()
    names = [record.name for record in DEFAULT]
    upto_schedule = DEFAULT[: names.index("memory")]
    for seed in range(100, 140):
        program = random_program(seed, operations=30)
        source, trace = program.freeze()
        after, _ = pipeline.run(source, trace, passes=upto_schedule, options=options)
        assert_equal(source, after, program.feeds, seed, "all")


def test_equal_input_gives_an_equal_report() -> None:
    reports = []
    for _ in range(2):
        graph, trace = random_program(7).freeze()
        _, report = pipeline.run(graph, trace, options=options_of())
        reports.append(report)
    assert reports[0] == reports[1]
    assert str(reports[0]).count("\n") > len(reports[0]) - 1


def test_types_of_results_are_kept() -> None:
    for seed in SEEDS:
        source, given, trace, _ = prepared(seed, "fuse", options_of())
        assert [root.type for root in source.roots] == [root.type for root in given.roots]
        assert all(trace.origins(node) for node in given.outputs)
