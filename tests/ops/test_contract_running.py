"""The public face, promise by promise: compiling and running functions."""

from __future__ import annotations

import copy
import pickle
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance

FLOAT32 = np.dtype(np.float32)
BATCH = np.arange(6, dtype=np.float32).reshape(2, 3)


def agree(actual: Any, expected: Any) -> None:
    """Compare in the tolerance of float32."""
    assert tolerance(FLOAT32, "reassoc").close(actual, expected), (actual, expected)


def step() -> tuple[mg.Function, mg.Node, mg.Node, mg.Node]:
    """Return a training step ``f``, its inputs and its variable: the second snippet."""
    x = mg.var("x", shape=("batch", 3))
    t = mg.var("t", shape=("batch",))
    W = mg.var("W", init=np.array([1.0, -1.0, 0.5], np.float32))
    y = x @ W
    loss = mg.mean((y - t) ** 2)
    g = mg.grad(loss, W)
    f = mg.function([x, t], [y, loss], updates={W: W - 0.1 * g})
    return f, x, t, W


def test_the_second_snippet() -> None:
    """eval, function with updates, and the three ways to feed."""
    f, x, t, W = step()
    w = W.value.astype(np.float64)
    target = np.array([1.0, 2.0])
    y = mg.sigmoid(x)
    agree(y.eval({x: BATCH}), 1 / (1 + np.exp(-BATCH.astype(np.float64))))
    for call in (
        lambda: f(BATCH, target),
        lambda: f({x: BATCH, t: target}),
        lambda: f(x=BATCH, t=target),
        lambda: f(BATCH, t=target),
    ):
        out, loss = call()
        error = BATCH @ w - target
        agree(out, BATCH @ w)
        agree(loss, (error**2).mean())
        w = w - 0.1 * BATCH.T @ error
        agree(W.value, w)
        assert type(out) is np.ndarray and type(loss) is np.ndarray


def test_structures_of_outputs() -> None:
    """A node, lists, nested dicts, None and [] come back in their form."""
    x = mg.var("x", shape=(3,))
    v = mg.var("v", init=0.0)
    assert mg.function([x], x + 1)([1, 2, 3]).shape == (3,)
    result = mg.function([x], {"a": [x, x * 2], "b": {"c": mg.sum(x)}})([1.0, 2.0, 3.0])
    assert set(result) == {"a", "b"} and isinstance(result["a"], list)
    agree(result["a"][1], [2, 4, 6])
    agree(result["b"]["c"], 6)
    assert mg.function([x], None, updates={v: v + mg.sum(x)})([1, 2, 3]) is None
    assert mg.function([x], [], updates={v: v + mg.sum(x)})([1, 2, 3]) == []
    assert v.value == 12


def test_updates_land_together() -> None:
    """All see the values from before; a call that fails changes none."""
    x = mg.var("x", shape=())
    a, b = mg.var("a", init=1.0), mg.var("b", init=2.0)
    f = mg.function([x], a + b, updates={a: b * x, b: a + mg.log(x)}, nan="raise")
    assert f(1.0) == 3 and (a.value, b.value) == (2, 1)
    with pytest.raises(mg.NonFiniteError), np.errstate(all="ignore"):
        f(-1.0)
    assert (a.value, b.value) == (2, 1)


def test_new_sizes_specialize() -> None:
    """They reuse the kernels, and are listed with the dimension that caused them."""
    f, _, _, _ = step()
    f(BATCH, np.ones(2))
    f(np.ones((5, 3)), np.ones(5))
    f(BATCH, np.ones(2))
    assert len(f.specializations) == 2
    sizes = [sizes for sizes, _ in f.specializations]
    assert {"batch": 2} in sizes and {"batch": 5} in sizes
    assert any("batch" in cause for _, cause in f.specializations)


def test_what_a_function_shows() -> None:
    """Graphs, plan, steps with bytes, report and memory, before anything ran."""
    x = mg.var("x", shape=(4, 3))
    f = mg.function([x], mg.softmax(x), name="soft")
    assert isinstance(f.graph, mg.Graph) and isinstance(f.source_graph, mg.Graph)
    (only,) = f.plan.steps
    assert only.bytes == 2 * 4 * 3 * 4
    assert "simplify" in str(f.report) and "fuse" in str(f.report)
    assert f.memory.feeds == f.memory.results == 48
    assert f.memory.total >= 96
    assert "soft" in repr(f)
    assert "softmax" not in str(f.graph) and "fused" in str(f.graph)
    assert str(f.source_graph).splitlines()[-1].startswith("return %")


def test_saving_and_loading(tmp_path: Path) -> None:
    """An archive without pickle keeps graph, variables and values; damage is noticed."""
    f, _, _, W = step()
    f(BATCH, np.ones(2))
    path = tmp_path / "step.mgz"
    f.save(path)
    value_before = W.value
    loaded = mg.load(path)
    first, second = (loaded(BATCH, np.ones(2)) for _ in "ab")
    # A loaded function has variables of its own.
    np.testing.assert_array_equal(W.value, value_before)
    for values, expected in ((first, f(BATCH, np.ones(2))), (second, f(BATCH, np.ones(2)))):
        agree(values[0], expected[0])
        agree(values[1], expected[1])
    with zipfile.ZipFile(path) as archive:  # the generated kernels can be read there
        kernel_files = {name for name in archive.namelist() if name.startswith("kernels/")}
        fused = [i for i, s in enumerate(f.plan.steps) if s.kernel == "fused"]
        assert kernel_files == {f"kernels/{i}.c" for i in fused} and kernel_files
        assert archive.read(f"kernels/{fused[0]}.c").decode() == f.source(fused[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(mg.PlanError):
        mg.load(path)
    path.write_bytes(bytes(content[: len(content) // 3]))
    with pytest.raises(mg.PlanError):
        mg.load(path)


def test_running_many_batches() -> None:
    """f.run over batches or n times; stacked, or only the last; a partial batch at the end."""
    f, _, _, W = step()
    start = W.value
    X, Y = np.random.default_rng(0).normal(size=(10, 3)), np.arange(10.0)
    losses = []
    for begin in range(0, 10, 4):
        losses.append(f(X[begin : begin + 4], Y[begin : begin + 4])[1])
    after = W.value
    W.value = start
    _, last = f.run(mg.batches(X, Y, size=4, shuffle=False), keep="last")
    agree(last, losses[-1])
    agree(W.value, after)
    W.value = start
    outputs, stacked = f.run(3, (X[:4], Y[:4]))
    assert outputs.shape == (3, 4) and stacked.shape == (3,)
    assert stacked[0] > stacked[1] > stacked[2]
    ragged, loss = f.run(mg.batches(X, Y, size=4, shuffle=False))
    assert [len(part) for part in ragged] == [4, 4, 2] and loss.shape == (3,)
    assert len(mg.batches(X, Y, size=4, drop_last=True)) == 2
    seen = np.concatenate([y for _, y in mg.batches(X, Y, size=4, shuffle=True, seed=0)])
    np.testing.assert_array_equal(np.sort(seen), Y)
    mg.synchronize()


def test_threads_share_a_function() -> None:
    """Calls from several threads land one by one."""
    v = mg.var("v", init=np.zeros(1000))
    f = mg.function([], v[0] * 1.0, updates={v: v + 1.0})
    seen: list[float] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(float(f()) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(200)) and (v.value == 200).all()


def test_copies_and_pickles() -> None:
    """Nodes and functions pickle and deep-copy; a copy's variables are its own."""
    f, x, _, W = step()
    for twin in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        before = W.value
        first, loss = twin(BATCH, np.ones(2))
        agree(first, BATCH @ before)
        np.testing.assert_array_equal(W.value, before)
        assert twin(BATCH, np.ones(2))[1] != loss  # the twin's own variable has moved on
    y = mg.exp(x) * 2
    for node in (pickle.loads(pickle.dumps(y)), copy.deepcopy(y)):
        agree(node.eval(x=BATCH), 2 * np.exp(BATCH.astype(np.float64)))


def test_a_run_of_fewer_calls_than_none() -> None:
    """A negative number of calls is refused, and nothing runs."""
    count = mg.var("count", init=0)
    with pytest.raises(mg.ConfigError, match="0 calls or more"):
        mg.function([], count, updates={count: count + 1}).run(-1)
    assert count.value == 0


@pytest.mark.parametrize("batches", [None, 2.0])
def test_a_run_of_what_is_no_number_and_no_series(batches: Any) -> None:
    x = mg.var("x", shape=(3,))
    with pytest.raises(mg.ConfigError, match="a number of calls, or an iterable of feeds"):
        mg.function([x], x * 2.0).run(batches)


def test_inputs_are_any_series_of_nodes() -> None:
    x = mg.var("x", shape=(3,))
    f = mg.function((node for node in (x,)), x * 2.0)
    np.testing.assert_array_equal(f(np.ones(3)), [2, 2, 2])
    for wrong in (None, 3, "x"):
        with pytest.raises(mg.GraphError, match="expected: a list of inputs"):
            mg.function(wrong, x * 2.0)  # type: ignore[arg-type]


def test_an_update_whose_rows_are_known_at_the_call() -> None:
    """A name against an int is a constraint, which the call checks."""
    x = mg.var("x", shape=("batch", 3))
    W = mg.var("W", init=np.zeros((2, 3), np.float32))
    f = mg.function([x], None, updates={W: x * 2.0})
    f(BATCH)
    agree(W.value, 2 * BATCH)
    with pytest.raises(mg.FeedError, match="'the update of W' needs batch == 2, but batch is 4"):
        f(np.ones((4, 3)))
    agree(W.value, 2 * BATCH)
    for shape in (("rows", 4), (1, 3), (3,)):
        with pytest.raises(mg.UpdateError, match=r"expected: shape \(2, 3\)"):
            mg.function([y := mg.var("y", shape=shape)], None, updates={W: y})


def test_a_run_without_steps() -> None:
    """Empty stacks of the outputs' form; what nobody can know the extent of is an empty list."""
    x = mg.var("x", shape=("batch", 3))
    f = mg.function([x], {"rows": mg.sum(x, axis=1), "all": [mg.sum(x)]})
    results = f.run(0, BATCH)
    assert results["rows"].shape == (0, 2) and results["rows"].dtype == FLOAT32
    assert results["all"][0].shape == (0,)
    for feeds in ((BATCH,), {x: BATCH}, {"x": BATCH}):
        assert f.run(0, feeds)["rows"].shape == (0, 2)
    unknown = f.run([])
    assert unknown["rows"] == [] and unknown["all"][0].shape == (0,)
    assert f.run([], keep="last") is None
    assert mg.function([x], None).run([]) is None
    with pytest.raises(mg.FeedError, match="is fed an array of shape"):
        f.run(0, np.ones((2, 4)))


def test_source_of_a_step_that_is_not_there() -> None:
    """The number of a step is checked."""
    x = mg.var("x", shape=(3,))
    f = mg.function([x], mg.exp(x))
    for step in (1, -2, "0"):
        with pytest.raises(mg.PlanError) as caught:
            f.source(step)  # type: ignore[arg-type]
        assert str(caught.value) == (
            f"there is no step {step!r}\n"
            "  expected: a number from 0 to 0\n"
            "  try: print(f.plan) lists the steps"
        )


def test_a_report_is_shown() -> None:
    """mg.show takes the report itself, too."""
    x = mg.var("x", shape=(3,))
    f = mg.function([x], mg.exp(x))
    assert mg.show(f.report).text() == str(f.report)
    assert repr(mg.show([x, x])) == "<shown list of 2>"


# Seeing.


def test_looking_at_things(tmp_path: Path) -> None:
    """print, mg.show, mg.to_networkx, explain and check."""
    import networkx

    _, x, t, W = step()
    y = x @ W
    loss = mg.mean((y - t) ** 2)
    f = mg.function([x, t], [y, loss], updates={W: W - 0.1 * mg.grad(loss, W)})
    assert "matmul" in str(y)
    for subject in (y, [y, x], f, f.report.records[0]):
        picture = mg.show(subject)
        assert isinstance(picture.text(), str) and picture.dot().startswith("digraph")
    mg.show(f).save(tmp_path / "f.dot")
    mg.show(f).save(tmp_path / "f.txt")
    assert (tmp_path / "f.dot").read_text().startswith("digraph")
    graph = mg.to_networkx(f)
    assert isinstance(graph, networkx.MultiDiGraph) and len(graph) >= len(f.graph.nodes)
    assert networkx.is_directed_acyclic_graph(mg.to_networkx(y))
    assert "gem" in str(f.explain(y)), "a product ends as gemm or gemv"
    before = W.value
    text = str(f.check(BATCH, np.ones(2)))
    assert "simplify" in text and "fuse" in text
    np.testing.assert_array_equal(W.value, before)
