"""Micro-batches: the same results as of the whole batch, in less memory; and what is refused."""

from __future__ import annotations

import dataclasses
import gc
import json
import tracemalloc
from xml.etree import ElementTree

import numpy as np
import pytest
from random_shapes import ShapedBuilder

import magmagraph as mg
from magmagraph.ir.graph import Trace
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.distribute.micro_batches import micro_batches
from magmagraph.passes.report import Record

WIDTH = 6


def cut(function, count):
    """Return the graph of a function in so many micro-batches, and the record of the pass."""
    entry = Record("micro_batches")
    options = dataclasses.replace(pipeline.Options.make(), micro_batches=count, record=entry)
    return micro_batches(function.source_graph, Trace(), options), entry


def leaf(name, *shape, dtype="float64"):
    return mg.var(name, shape=("batch", *shape), dtype=dtype)


def weight(name, *shape):
    seed = sum(map(ord, name))
    return mg.var(name, init=np.random.default_rng(seed).normal(size=shape) / 2)


def trained(loss, weights, inputs, outputs=None, **options):
    step = mg.optimizer.Adam(0.01)
    return step.step(loss, weights, inputs=inputs, outputs=outputs or [loss], **options)


def mean_loss():
    x, w, v = leaf("x", WIDTH), weight("w", WIDTH, WIDTH), weight("v", WIDTH, 3)
    out = mg.tanh(x @ w) @ v
    return trained(mg.mean(mg.square(out)), [w, v], [x])


def sum_loss():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, WIDTH)
    return trained(mg.sum(mg.square(mg.tanh(x @ w))), [w], [x])


def labels():
    x, y, w = leaf("x", WIDTH), leaf("y", dtype="int32"), weight("w", WIDTH, 4)
    loss = mg.losses.cross_entropy(x @ w, y)
    return trained(loss, [w], [x, y])


def weights_of_examples():
    x, s, w = leaf("x", WIDTH), leaf("s"), weight("w", WIDTH, 2)
    each = mg.mean(mg.square(mg.tanh(x @ w)), axis=1)
    return trained(mg.sum(each * s) / mg.sum(s), [w], [x, s])


def penalty():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    loss = mg.mean(mg.square(x @ w)) + 0.1 * mg.sum(mg.square(w))
    return trained(loss, [w], [x])


def several_outputs():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    out = mg.tanh(x @ w)
    loss = mg.mean(mg.square(out))
    outputs = [loss, out, mg.transpose(out), mg.max(out), mg.max(out, axis=1), mg.min(x, axis=0)]
    return trained(loss, [w], [x], outputs)


def dropout():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 8)
    out = mg.functional.dropout(mg.tanh(x @ w), 0.5)
    return trained(mg.mean(mg.square(out)), [w], [x], [mg.mean(mg.square(out)), out])


def clipped():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    loss = mg.mean(mg.square(mg.tanh(x @ w)))
    g = mg.grad(loss, w)
    new = w - 0.1 * g / mg.maximum(1.0, mg.sqrt(mg.sum(g * g)))
    return mg.function([x], [loss], {w: new})


PROGRAMS = [
    mean_loss, sum_loss, labels, weights_of_examples, penalty, several_outputs, dropout, clipped
]  # fmt: skip


def feeds_of(function, rows, rng):
    return [
        rng.integers(0, 4, (rows, *node.shape[1:])).astype(node.dtype)
        if node.dtype.kind == "i"
        else rng.uniform(0.2, 1.0, (rows, *node.shape[1:]))
        for node in function.source_graph.inputs
    ]


class TestValues:
    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
    @pytest.mark.parametrize("rows", [3, 12, 13])
    def test_the_whole_batch(self, program, rows, rng):
        """Compare outputs and new values in float64; 3 rows are fewer than the parts."""
        function = program()
        graph, entry = cut(function, 4)
        assert entry.hits == {"cut into micro-batches": 4}, entry.refusals
        graph.verify()
        feeds = dict(zip(graph.inputs, feeds_of(function, rows, rng), strict=True))
        expected = evaluate(function.source_graph, feeds)
        found = evaluate(graph, feeds)
        for old, new in zip(function.source_graph.roots, graph.roots, strict=True):
            np.testing.assert_allclose(found[new], expected[old], rtol=1e-11, atol=1e-13)


    def test_random_programs(self):
        """Cut each value of some programs, and a mean of it with gradients, or refuse to."""
        hits = 0
        for seed in (3, 15):
            build = ShapedBuilder(seed, "float64", 2)
            build.grow(14)
            for node in build.nodes[len(build.inputs) :]:
                mean = mg.mean(mg.tanh(node))
                for outputs in ([node], [mean, *mg.grad(mean, build.variables, unused="zeros")]):
                    function = mg.function(build.inputs, outputs)
                    graph, entry = cut(function, 3)
                    if not entry.hits:
                        assert graph is function.source_graph
                        continue
                    hits += 1
                    for sizes in build.sizes:
                        feeds = dict(zip(graph.inputs, build.fed(sizes), strict=True))
                        expected = evaluate(function.source_graph, feeds)
                        found = evaluate(graph, feeds)
                        for old, new in zip(
                            function.source_graph.roots, graph.roots, strict=True
                        ):
                            np.testing.assert_allclose(
                                found[new], expected[old], rtol=1e-9, atol=1e-11,
                                err_msg=f"seed {seed}, {node}",
                            )  # fmt: skip
        assert hits > 10


def normalized():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    h = x @ w
    h = (h - mg.mean(h, axis=0)) / mg.sqrt(mg.mean(mg.square(h), axis=0) + 1e-5)
    return trained(mg.mean(mg.tanh(h)), [w], [x])


def contrasted():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    h = x @ w
    return trained(mg.mean(mg.square(h @ mg.transpose(h))), [w], [x])


def sorted_rows():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    return trained(mg.mean(mg.sort(x @ w, axis=0)[:1]), [w], [x])


def product_of_rows():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    return mg.function([x], mg.prod(x @ w, axis=0))


def sum_in_a_branch():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    h = mg.cond(mg.sum(w) > 0.0, lambda a: a + mg.sum(a), lambda a: a * 2.0, x @ w)
    return mg.function([x], mg.max(h, axis=1))


def mask_of_weights():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    each = mg.mean(mg.square(x @ w), axis=1)
    mask = mg.cast(each > 0.2, "float64")
    return trained(mg.sum(each * mask) / mg.sum(mask), [w], [x])


def some_draws():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    drawn = mg.cast(mg.random.poisson(x.shape, 50.0), "float64")
    return trained(mg.mean(mg.square((x * drawn) @ w)), [w], [x])


def without_rows():
    x, w = leaf("x", WIDTH), weight("w", WIDTH, 3)
    return mg.function([x], mg.sum(mg.square(w)))


def without_a_batch():
    x, w = mg.var("x", shape=(8, WIDTH), dtype="float64"), weight("w", WIDTH, 3)
    return trained(mg.mean(mg.square(x @ w)), [w], [x])


class TestRefusals:
    @pytest.mark.parametrize(
        ("program", "reason"),
        [
            (normalized, "of the whole batch, such as a batch's statistics"),
            (contrasted, "also with those of other micro-batches"),
            (sorted_rows, "it works along axis 0"),
            (product_of_rows, "is not joined by a sum"),
            (sum_in_a_branch, "its body joins the rows of each micro-batch"),
            (mask_of_weights, "of the whole batch"),
            (some_draws, "its random numbers are not drawn row by row"),
            (without_rows, "no result depends on its rows"),
            (without_a_batch, "no input has a named dimension"),
        ],
        ids=lambda p: getattr(p, "__name__", ""),
    )
    def test_reasons(self, program, reason):
        function = program()
        graph, entry = cut(function, 4)
        assert graph is function.source_graph
        assert not entry.hits
        assert any(reason in refusal.reason for refusal in entry.refusals), entry.refusals
        assert not any(" rank" in refusal.reason for refusal in entry.refusals)

    def test_batch_normalization_is_named_in_the_error(self, rng):
        layers = [mg.nn.Input((16,)), mg.nn.Dense(64), mg.nn.BatchNorm(), mg.nn.Dense(1)]
        net = mg.NeuralNetwork(layers, loss="mse", optimizer=mg.optimizer.SGD(0.1))
        x, y = rng.normal(size=(512, 16)), rng.normal(size=(512, 1))
        with pytest.raises(mg.MemoryLimitError) as caught:
            net.fit(x, y, batch_size=512, memory_limit="150kB", verbose=0)
        assert "not cut into micro-batches: 'batch'" in str(caught.value)
        assert "such as a batch's statistics" in str(caught.value)


def chain(count=6, width=32, **options):
    x = leaf("x", width)
    weights, h = [], x
    for i in range(count):
        weights.append(weight(f"W{i}", width, width))
        h = mg.tanh(h @ weights[-1] / 4.0)
    return trained(mg.mean(mg.square(h)), weights, [x], **options), weights


def allocated():
    """Return the bytes of all arrays of NumPy's that there are."""
    gc.collect()
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(t.size for t in tracemalloc.take_snapshot().filter_traces([arrays]).traces)


class TestLimits:
    def test_training_fits_where_computing_again_is_not_enough(self, rng):
        plain, expected = chain()
        feed = rng.normal(size=(1001, 32))
        losses = [float(plain(feed)[0]) for _ in range(3)]
        limit = int(0.4 * plain.memory.total)
        alone, _ = chain(memory_limit=limit, skip=("micro_batches",))
        with pytest.raises(mg.MemoryLimitError):
            alone(feed)
        step, weights = chain(memory_limit=limit)
        np.testing.assert_allclose([float(step(feed)[0]) for _ in range(3)], losses, rtol=1e-12)
        for w, e in zip(weights, expected, strict=True):
            np.testing.assert_allclose(w.value, e.value, rtol=1e-9, atol=1e-12)
        assert step.memory.total <= limit
        record = step.report["micro_batches"]
        assert record.hits["cut into micro-batches"] in (2, 4, 8, 16)
        assert "less" in record.notes[0]
        assert "more work" in record.notes[0]

    def test_the_arrays_of_a_call_are_those_of_the_plan(self, rng):
        """Compare what the allocator saw with the prediction, arenas of bodies included."""
        plain, _ = chain()
        feed = rng.normal(size=(4001, 32))
        plain.specialize(feed.shape)
        step, _ = chain(memory_limit=int(0.3 * plain.memory.total))
        tracemalloc.start()
        before = allocated()
        step(feed)
        found = allocated() - before
        tracemalloc.stop()
        memory = step.memory
        assert memory.bodies > 0
        assert abs(found / (memory.arena + memory.bodies) - 1) < 0.02

    def test_other_sizes(self, rng):
        """Fewer rows than parts run with the same plan; more are planned anew."""
        plain, expected = chain(4, 8)
        limit = int(0.6 * plain.specialize((100, 8)).memory.total)
        step, weights = chain(4, 8, memory_limit=limit)
        for rows in (100, 1, 2, 97, 103):
            feed = rng.normal(size=(rows, 8))
            np.testing.assert_allclose(step(feed)[0], plain(feed)[0], rtol=1e-11)
            assert step.memory.total <= limit
        assert step.report["micro_batches"].hits
        for w, e in zip(weights, expected, strict=True):
            np.testing.assert_allclose(w.value, e.value, rtol=1e-9, atol=1e-12)

    def test_more_rows_fit(self):
        limited, _ = chain(4, 8, memory_limit="64KiB")
        without, _ = chain(4, 8, memory_limit="64KiB", skip=("micro_batches",))
        size = limited.largest("batch", "64KiB")
        assert size > 1.3 * without.largest("batch", "64KiB")
        limited.specialize((size, 8))
        assert limited.memory.total <= 64 << 10

    def test_what_fits_stays_as_it_is(self):
        step, _ = chain(2, 8, memory_limit="1GiB")
        plain, _ = chain(2, 8)
        for each in (step, plain):
            each.specialize((64, 8))
        assert str(step.plan) == str(plain.plan)

    def test_fit(self, rng):
        x, y = rng.normal(size=(600, 16)), rng.integers(0, 4, 600)
        histories = []
        for limit in (None, "400kB"):
            mg.random.seed(3)
            seeds = [mg.init.glorot_uniform(seed=i) for i in range(4)]
            dense = [mg.nn.Dense(64, "tanh", kernel_init=seed) for seed in seeds[:3]]
            last = mg.nn.Dense(4, kernel_init=seeds[3])
            net = mg.NeuralNetwork(
                [mg.nn.Input((16,)), *dense, mg.nn.Dropout(0.2), last],
                loss="cross_entropy", optimizer=mg.optimizer.SGD(0.1),
            )  # fmt: skip
            history = net.fit(x, y, batch_size=300, epochs=2, verbose=0, shuffle=False,
                              **({} if limit is None else {"memory_limit": limit}))
            histories.append(history["loss"])
        np.testing.assert_allclose(histories[1], histories[0], rtol=1e-5)


class TestPicture:
    def test_a_timeline_is_drawn(self, tmp_path):
        step, _ = chain(2, 8)
        timeline = step.specialize((64, 8)).memory.timeline()
        shown = mg.show(timeline)
        root = ElementTree.fromstring(shown.svg())
        titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
        assert len(titles) == len(timeline.moments)
        assert f"in step {timeline.peak}" in shown.svg()
        assert timeline.holders[0].what[:20] in shown.svg()
        assert json.loads(shown.json())["peak"] == timeline.peak
        shown.save(tmp_path / "memory.html")
        assert "<svg" in (tmp_path / "memory.html").read_text()
        with pytest.raises(mg.GraphError, match="no graph"):
            shown.save(tmp_path / "memory.dot")
