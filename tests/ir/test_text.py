"""Graphs and plans as text, and back to the same text."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from planned import options_of
from random_graphs import random_program
from table import PUBLIC, each_record, leaves, results, sample_of, samples

import magmagraph as mg
from magmagraph.dtypes import SUPPORTED
from magmagraph.errors import GraphError, MagmagraphError, PlanError
from magmagraph.function.feeds import bind_sizes
from magmagraph.ir import interpret
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.passes import pipeline
from magmagraph.passes.lowering import specialize
from magmagraph.runtime.families import FAMILIES
from magmagraph.text import reading
from magmagraph.text.writing import Writer, dump

load = partial(reading.load, families=FAMILIES)


def program() -> tuple[Graph, Trace]:
    """Return a graph with dims of all sorts, constants, updates, requirements."""
    x = mg.input("x", shape=("batch", 6))
    y = mg.input("y", shape=(None, 6))
    labels = mg.input("labels", shape=("batch",), dtype="int64")
    w = mg.var("W", init=np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))
    table = mg.constant(np.linspace(0, 1, 24).reshape(6, 4).astype(np.float32))
    hidden = mg.tanh(x @ (w + table) + 0.1)
    loss = mg.cross_entropy(hidden, labels)
    joined_rows = mg.concatenate([x, y])[1:] * np.float32([1.5, -0.0, np.nan, np.inf, 1e-30, 0.1])
    trace = Trace()
    graph = freeze(
        [x, y, labels],
        [loss, joined_rows, mg.argmax(hidden, axis=1)],
        [(w, w - 0.1 * mg.grad(loss, w))],
        trace=trace,
    )
    return graph, trace


def same_text(what: Any) -> Any:
    """Load the dump of something and return it, its dump being equal."""
    text = dump(what)
    again = load(text)
    assert dump(again) == text
    return again


def test_a_graph_comes_back_as_the_same_text_and_computes_the_same() -> None:
    graph, _ = program()
    again = same_text(graph)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(5, 6)), rng.normal(size=(2, 6)), rng.integers(0, 4, 5)]
    values = [node.attrs["state"].data for node in graph.variables]
    loaded = load(dump(graph), values=values)
    old = interpret.evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
    new = interpret.evaluate(loaded, dict(zip(loaded.inputs, arrays, strict=True)))
    for a, b in zip(graph.roots, loaded.roots, strict=True):
        np.testing.assert_array_equal(old[a], new[b])
    assert all((v.attrs["state"].data == 0).all() for v in again.variables)
    again.verify()


def test_every_graph_and_plan_of_a_compile_comes_back() -> None:
    graph, trace = program()
    plan, report = pipeline.run(graph, trace, options=options_of())
    for _, before, after in report.steps():
        same_text(before)
        same_text(after)
    sizes = bind_sizes(graph.inputs, [(5, 6), (2, 6), (5,)], graph.constraints)
    bound = specialize.specialize(plan, sizes)
    again = same_text(bound)
    assert again.arena == bound.arena
    assert [s.inputs for s in again.steps] == [s.inputs for s in bound.steps]
    assert [s.outputs for s in again.steps] == [s.outputs for s in bound.steps]
    assert "in place" in dump(bound)


def test_a_plan_says_whether_results_may_differ_from_run_to_run() -> None:
    graph, trace = program()
    for deterministic in (False, True):
        options = options_of(deterministic=deterministic)
        plan, _ = pipeline.run(graph, trace, options=options)
        assert ("deterministic" in dump(plan).splitlines()) == deterministic
        assert same_text(plan).deterministic == deterministic


@pytest.mark.parametrize("number", range(25))
def test_random_programs_come_back_after_every_pass(number: int) -> None:
    random = random_program(number)
    graph, trace = random.freeze()
    _, report = pipeline.run(graph, trace, options=options_of())
    for _, _, after in report.steps():
        same_text(after)


@each_record(samples())
def test_every_operation_comes_back(name: str, i: int) -> None:
    record, sample = sample_of(name, i)
    operands, feeds = leaves(sample.inputs)
    nodes = results(record.function(*operands, **sample.attrs))  # type: ignore[misc]
    same_text(freeze(list(feeds), [node for node in nodes if isinstance(node, mg.Node)]))
    assert name in PUBLIC


def test_a_loaded_plan_runs() -> None:
    graph, trace = program()
    plan, _ = pipeline.run(graph, trace, options=options_of())
    values = [node.attrs["state"].data.copy() for node in graph.variables]
    rng = np.random.default_rng(1)
    arrays = [
        rng.normal(size=(5, 6)).astype(np.float32),
        rng.normal(size=(2, 6)).astype(np.float32),
        rng.integers(0, 4, 5),
    ]
    from magmagraph.runtime.execute import prepare

    def run(plan: Any) -> list[Any]:
        names = [node.shape for node in graph.inputs] if plan is original else again_shapes
        solved = mg.dims.solve(names, [array.shape for array in arrays])
        prepared = prepare(plan)
        return prepared.bind(specialize.specialize(plan, dict(solved))).run(arrays)

    original = plan
    loaded = load(dump(plan), values=values)
    again_shapes = [node.shape for node in load(dump(graph)).inputs]
    # Extents without a name are new ones in a loaded plan: its feeds say which.
    again_shapes[1] = (_anonymous(loaded), 6)
    for old, new in zip(run(original), run(loaded), strict=True):
        np.testing.assert_array_equal(old, new)


def _anonymous(plan: Any) -> Any:
    for step in plan.steps:
        for value in step.inputs:
            for extent in value.type.shape:
                if isinstance(extent, mg.Dim) and extent.anonymous:
                    return extent
    raise AssertionError("the plan has no anonymous extent")


def test_texts_do_not_depend_on_what_was_made_before() -> None:
    first = dump(program()[0])
    for _ in range(120):  # numbers of anonymous dims get more digits
        mg.input("unused", shape=(None,))
    assert dump(program()[0]) == first
    assert "?0" in first
    assert "?1" not in first


@pytest.mark.parametrize("dtype", SUPPORTED, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 2), (2, 2), (4, 5)], ids=str)
def test_constants_keep_every_bit(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    count = int(np.prod(shape))
    if dtype == np.bool_:
        value = rng.integers(0, 2, count).astype(bool).reshape(shape)
    else:
        raw = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
        value = np.frombuffer(raw.tobytes(), dtype=dtype).reshape(shape)
    graph = freeze([], [mg.constant(value, dtype=dtype)])
    again = same_text(graph).outputs[0].attrs["value"]
    assert again.dtype == dtype
    assert again.shape == shape
    assert again.tobytes() == value.tobytes()


def test_constants_print_in_their_shortest_form() -> None:
    text = dump(freeze([], [mg.constant(0.1), mg.constant([[True], [False]], dtype="bool")]))
    assert text.splitlines()[:2] == [
        "%0 = constant(value=0.1) : float32[]",
        "%1 = constant(value=[[True], [False]]) : bool[2, 1]",
    ]


def test_long_constants_may_stand_beside_the_text() -> None:
    graph, _ = program()
    text = dump(graph, data=False)
    assert "\ndata @" not in text
    with pytest.raises(GraphError, match=r"line \d+: the elements @\w+ of a constant are missing"):
        load(text)
    writer = Writer()
    assert "\n".join(writer.graph(graph)) == text
    assert dump(load(text, data=writer.data)) == dump(graph)


@pytest.mark.parametrize("name", ["x", "two words", ' "quoted', "# mark", "new\nline", "{", "é"])
def test_names_come_back(name: str) -> None:
    graph = freeze([x := mg.input(name, shape=(2,))], [x + 1.0])
    assert same_text(graph).inputs[0].name == name


def test_unused_and_repeated_inputs_keep_their_places() -> None:
    a, b, c = (mg.input(name, shape=(2,)) for name in "abc")
    again = same_text(freeze([c, a, b], [b * a, b, b]))
    assert [node.name for node in again.inputs] == ["c", "a", "b"]


def test_requirements_are_written_and_read() -> None:
    x, y = mg.input("x", shape=("n", 2)), mg.input("y", shape=(None, 2))
    graph = freeze([x, y], [x + y])
    assert "require n == ?0 at %2" in dump(graph) or "require ?0 == n at %2" in dump(graph)
    assert len(same_text(graph).constraints) == 1


def test_code_in_attributes_is_named() -> None:
    x = mg.input("x", shape=(3,))
    rule = mg.custom_gradient(lambda x: (mg.exp(x), lambda ct: ct * 2.0))
    graph = freeze([x], [rule(x), mg.checkpoint(mg.sin)(x)])
    again = same_text(graph)
    value = np.float32([1.0, 2.0, 3.0])
    values = interpret.evaluate(again, {again.inputs[0]: value})
    np.testing.assert_array_equal(values[again.outputs[0]], np.exp(value))
    with pytest.raises(GraphError, match="is code, which the text of a graph only names"):
        mg.grad(mg.sum(again.outputs[0]), again.inputs[0])


def test_dims_named_like_dtypes_are_told_apart() -> None:
    n = mg.Dim("float32")
    graph = freeze([x := mg.input("x", shape=("float32", 2))], [mg.reshape(x, (n * 2,)), x + n])
    assert "(float32)" in dump(graph)
    same_text(graph)


# ---------------------------------------------------------------------- print(node)


def test_print_shows_the_expression() -> None:
    x = mg.input("x", shape=("batch", 3))
    assert str(mg.exp(x) * x) == (
        "%0 = input() : float32[batch, 3]  # x\n"
        "%1 = exp(%0) : float32[batch, 3]\n"
        "%2 = multiply(%1, %0) : float32[batch, 3]"
    )
    assert repr(mg.exp(x) * x) == "<multiply float32[batch, 3]>"


def test_print_elides_the_middle() -> None:
    node = mg.input("x", shape=(3,))
    for _ in range(500):
        node = mg.sin(node)
    lines = str(node).splitlines()
    assert len(lines) == 201
    assert lines[100] == "... 301 more ..."
    assert lines[-1] == "%500 = sin(%499) : float32[3]"


@pytest.mark.parametrize("length", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_chains_are_written_and_read(length: int) -> None:
    node = x = mg.input("x", shape=("n",))
    for _ in range(length // 2):
        node = mg.sin(node) * 1.01
    graph = freeze([x], [node])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        same_text(graph)
        assert len(str(node)) < 20_000
    finally:
        sys.setrecursionlimit(limit)


# ---------------------------------------------------------------------- damage

TEXT = """%0 = input() : float32[batch, 3]  # x
%1 = exp(%0) : float32[batch, 3]
return %1"""


DAMAGE = [
    ("", "line 1: the text ends before it returns anything\n  expected: a return line"),
    (TEXT[:-10], "line 2: the text ends before it returns anything\n  expected: a return line"),
    (
        TEXT.replace("return %1", "return %0"),
        "line 2: nothing that is returned needs %1\n  expected: a whole text: is its end cut off?",
    ),
    (
        TEXT.replace("exp(%0)", "exp(%7)"),
        "line 2: %7 is not defined\n  expected: an operand of an earlier line",
    ),
    (
        TEXT.replace("exp", "exq"),
        "line 2: there is no operation 'exq'\n  expected: an operation of magmagraph",
    ),
    (
        TEXT.replace("exp(%0) : float32[batch, 3]", "exp(%0) : float32[batch, 4]"),
        "line 2: %1 is float32[batch, 4]\n  expected: float32[batch, 3], by the rule of exp",
    ),
    (
        TEXT.replace("exp(%0) :", "exp(%0"),
        "line 2: '%0 float32[batch, 3]' ends before a bracket is closed\n  expected: )",
    ),
    (
        TEXT.replace("float32[batch, 3]  # x", "float33[batch, 3]"),
        "line 1: 'float33[batch, 3]'\n  expected: a type, as float32[batch, 3]",
    ),
    (
        TEXT.replace("batch, 3]  # x", "batch +, 3]"),
        "line 1: 'batch +'\n  expected: an extent, as '2*batch + 1'",
    ),
    (
        TEXT.replace("%1 = exp", "%0 = exp"),
        "line 2: %0 is defined twice\n  expected: a new number",
    ),
    (
        TEXT + "\nupdate %0 = %1",
        "line 4: %0 is no variable\n  expected: update variable = new value",
    ),
    (
        TEXT + "\nretire %1",
        "line 4: 'retire %1'\n  expected: '%0 = operation(...) : type', or one of return, update, "
        "effect, inputs, scheduled, require",
    ),
]


@pytest.mark.parametrize(("text", "expected"), DAMAGE, ids=[str(i) for i in range(len(DAMAGE))])
def test_damaged_text_is_refused_by_line(text: str, expected: str) -> None:
    with pytest.raises(GraphError) as raised:
        load(text)
    assert str(raised.value) == expected


def test_damaged_data_are_refused_by_line() -> None:
    text = dump(freeze([], [mg.constant(np.arange(20.0))]))
    lines = text.splitlines()
    lines[-1] = lines[-1].replace("AAAAAAAA", "AAAAAAAB", 1)
    with pytest.raises(GraphError, match=r"^line 3: the data @\w+ are damaged: their digest is @"):
        load("\n".join(lines))
    lines[-1] = lines[-1][:-9]
    with pytest.raises(GraphError, match=r"^line 3: the data @\w+ are damaged"):
        load("\n".join(lines))


def test_truncated_texts_are_refused_at_every_line() -> None:
    graph, trace = program()
    plan, report = pipeline.run(graph, trace, options=options_of())
    sizes = bind_sizes(graph.inputs, [(5, 6), (2, 6), (5,)], graph.constraints)
    for what, error in (
        (graph, GraphError),
        (report.graph, GraphError),
        (specialize.specialize(plan, sizes), PlanError),
    ):
        lines = dump(what).splitlines()
        for end in range(1, len(lines)):
            with pytest.raises(error, match=r"line \d+: "):
                load("\n".join(lines[:end]))


def test_damage_of_any_kind_never_escapes_as_another_error(rng: np.random.Generator) -> None:
    graph, trace = program()
    plan, report = pipeline.run(graph, trace, options=options_of())
    for text in (dump(graph), dump(report.graph), dump(plan)):
        for _ in range(150):
            at, count = int(rng.integers(len(text))), int(rng.integers(1, 6))
            piece = "".join(rng.choice(list("%(){}[],=: 0a'\"\n"), int(rng.integers(0, 3))))
            message = _refusal(text[:at] + piece + text[at + count :])
            assert message.startswith("line "), message


def _refusal(text: str) -> str:
    try:
        load(text)
    except MagmagraphError as error:
        return str(error)
    return "line for line a graph: the damage fell on a name, a number or white space"


PLAN_DAMAGE = [
    ("plan", "line 1: the plan ends before its memory line\n  expected: memory: ..."),
    (
        "plan\ns0 = shelf : 4 bytes, steps 0 to 1",
        "line 2: 's0 = shelf : 4 bytes, steps 0 to 1'\n  expected: s0 = place : n bytes, "
        "steps a to b, with a place of feed, state, constant, result, arena, inside",
    ),
    (
        "plan\ncommit\nfetch s3 float32[]\nmemory: sizes not bound",
        "line 3: s3 is not a slot\n  expected: one of the 0 above",
    ),
    (
        "plan\nmemory: sizes not bound",
        "line 2: the plan has no commit point\n  expected: a line 'commit'",
    ),
    ("plan\nsizes batch=many", "line 2: 'batch=many'\n  expected: a size, as batch=100"),
]


@pytest.mark.parametrize(("text", "expected"), PLAN_DAMAGE, ids=[str(i) for i in range(5)])
def test_damaged_plans_are_refused_by_line(text: str, expected: str) -> None:
    with pytest.raises(PlanError) as raised:
        load(text)
    assert str(raised.value) == expected


def test_only_graphs_and_plans_have_a_text() -> None:
    with pytest.raises(GraphError) as raised:
        dump(3)
    assert str(raised.value) == (
        "dump is given int\n  expected: a graph, a plan or a function"
    )
