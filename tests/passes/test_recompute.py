"""Limits of memory: what is computed again, what a call takes, and the largest size that fits."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes import recompute as under_test


def layers(count=12, width=32, **options):
    """Return a training step of a chain of layers, and its weights."""
    x = mg.var("x", shape=("batch", width))
    weights, h = [], x
    for i in range(count):
        w = mg.var(f"W{i}", shape=(width, width), init=mg.init.glorot_uniform(seed=i))
        weights.append(w)
        h = mg.tanh(h @ w)
    loss = mg.mean(mg.square(h))
    adam = mg.optimizer.Adam(0.01)
    return adam.step(loss, weights, inputs=[x], outputs=[loss], **options), weights


class TestChoices:
    def test_the_least_cost_of_chains(self, rng):
        """Compare with all choices of what is kept."""
        for _ in range(20):
            count = int(rng.integers(1, 9))
            sizes = rng.integers(1, 9, count) * 64
            costs = rng.integers(1, 9, count).astype(float)
            values = [
                under_test._Kept((), int(s), float(c)) for s, c in zip(sizes, costs, strict=True)
            ]
            choices = [*under_test._curve(values), (int(sizes.sum()), 0.0, tuple(range(count)))]
            for budget in range(0, int(sizes.sum()) + 64, 64):
                within = [cost for size, cost, _ in choices if size <= budget]
                expected = [
                    cost
                    for many in range(count + 1)
                    for kept in itertools.combinations(range(count), many)
                    for size, cost in [self.of(sizes, costs, kept)]
                    if size <= budget
                ]
                assert min(within, default=None) == min(expected, default=None)

    def of(self, sizes, costs, kept):
        """Return the bytes and the cost of a choice, counted plainly."""
        before, segment, alive = 0, 0, [0]
        for i, size in enumerate(sizes):
            before += size if i in kept else 0
            segment = 0 if i in kept else segment + size
            alive += [before, before + segment]
        return max(alive), sum(c for i, c in enumerate(costs) if i not in kept)


def random_graph(rng, steps=14, rows=32):
    """Return a graph of steps of several operations, each of which reads earlier ones."""
    x = mg.var("x", shape=(rows, rows))
    w = mg.var("w", init=rng.normal(size=(rows, rows)).astype(np.float32))
    values = [mg.sort(x, axis=0)]
    for _ in range(steps):
        recent = values[-1] if rng.random() < 0.7 else values[rng.integers(len(values))]
        other = values[rng.integers(len(values))]
        made = [
            lambda a, b: mg.sort(a, axis=1),
            lambda a, b: a @ w,
            lambda a, b: mg.tanh(a @ b),
            lambda a, b: mg.cumsum(a, axis=0) / 8.0,
            lambda a, b: a + mg.sort(b, axis=0),
        ]
        values.append(made[rng.integers(len(made))](recent, other))
    picked = [values[-1], mg.sum(values[1] * values[-2])]
    return mg.function([x], picked, {w: w - 0.1 * values[len(values) // 2]}, device="cpu")


def test_random_programs_keep_their_values():
    """Whatever the limit, values are those of the graph without it; many programs shrink."""
    lowered = 0
    names = [record.name for record in pipeline.DEFAULT]
    at = names.index("recompute")
    for seed in range(30):
        rng = np.random.default_rng(seed)
        function = random_graph(rng)
        source, trace = function.source_graph, function.trace
        options = options_of()
        given, _ = pipeline.run(source, trace, passes=pipeline.DEFAULT[:at], options=options)
        limited = dataclasses.replace(options, memory_limit=1)
        passes = [pipeline.DEFAULT[at]]
        after, report = pipeline.run(given, trace, passes=passes, options=limited)
        lowered += bool(report["recompute"].hits)
        feeds = {given.inputs[0]: rng.normal(size=(32, 32)).astype(np.float32)}
        one, other = evaluate(given, feeds), evaluate(after, feeds)
        for a, b in zip(given.roots, after.roots, strict=True):
            np.testing.assert_array_equal(one[a], other[b])
    assert lowered >= 5


class TestLimits:
    def test_what_is_computed_again_fits_and_has_the_same_bits(self, rng):
        plain, weights = layers()
        values = [w.value for w in weights]
        feed = rng.normal(size=(512, 32)).astype(np.float32)
        expected = [plain(feed)[0] for _ in range(2)]
        after = [w.value for w in weights]
        whole = plain.memory.total
        for part in (0.85, 0.6):
            limit = int(part * whole)
            step, again = layers(memory_limit=limit)
            for w, value in zip(again, values, strict=True):
                w.value = value
            assert [step(feed)[0] for _ in range(2)] == expected
            for w, value in zip(again, after, strict=True):
                assert w.value.tobytes() == value.tobytes()
            assert step.memory.total <= limit
            assert step.bounds[0]._arena.nbytes == step.memory.arena  # as it is allocated
            record = step.report["recompute"]
            assert record.hits["computed again"]
            assert "more work" in record.notes[0]

    def test_what_fits_stays_as_it_is(self):
        plain, _ = layers(4)
        limited, _ = layers(4, memory_limit="1GiB")
        for step in (plain, limited):
            step.specialize((64, 32))
        assert str(limited.plan) == str(plain.plan)
        assert not limited.report["recompute"].hits

    def test_what_does_not_fit_is_refused_before_anything_runs(self):
        step, weights = layers(memory_limit="300KiB")
        before = weights[0].value
        with pytest.raises(mg.MemoryLimitError) as caught:
            step(np.ones((512, 32), np.float32))
        text = str(caught.value)
        assert "with batch = 512, and memory_limit is 300.0 KiB" in text
        for category in ("parameters", "optimizer", "activations", "feeds", "results"):
            assert f"\n    {category}" in text
        assert "test_recompute.py" in text
        assert "f.largest('batch'" in text
        assert isinstance(caught.value, MemoryError)
        assert weights[0].value.tobytes() == before.tobytes()
        size = step.largest("batch", "300KiB")
        assert 0 < size < 512
        step(np.ones((size, 32), np.float32))
        assert step.memory.total <= 300 << 10

    def test_new_sizes_are_planned_anew(self):
        step, _ = layers(memory_limit="1MiB")
        step.specialize((64, 32))
        assert not step.report["recompute"].hits
        step.specialize((512, 32))
        assert step.report["recompute"].hits
        step.specialize((64, 32))
        assert [sizes["batch"] for sizes, _ in step.specializations] == [512, 64]

    @pytest.mark.parametrize("limit", ["", "8", "1.5kB", 2.5e9, "2 GiB"])
    def test_limits_are_bytes(self, limit):
        x = mg.var("x", shape=(4,))
        if limit == "":
            with pytest.raises(mg.ConfigError, match="memory_limit=''"):
                mg.function([x], x + 1.0, memory_limit=limit)
        else:
            mg.function([x], x + 1.0, memory_limit=limit)

    @pytest.mark.parametrize("limit", [0, -3, "8 bananas", True, float("nan"), [8]])
    def test_wrong_limits(self, limit):
        x = mg.var("x", shape=(4,))
        with pytest.raises(mg.ConfigError, match="expected: bytes"):
            mg.function([x], x + 1.0, memory_limit=limit)

    def test_it_is_saved(self, tmp_path):
        step, _ = layers(2, memory_limit="1MiB")
        step.save(tmp_path / "step.mg")
        with pytest.raises(mg.MemoryLimitError, match=r"memory_limit is 1\.0 MiB"):
            mg.load(tmp_path / "step.mg")(np.ones((40_000, 32), np.float32))

    def test_fit(self, rng):
        net = mg.NeuralNetwork(
            [mg.nn.Input((32,)), *[mg.nn.Dense(64, activation="tanh") for _ in range(4)],
             mg.nn.Dense(1)], loss="mse", optimizer=mg.optimizer.SGD(0.1),
        )  # fmt: skip
        x, y = rng.normal(size=(512, 32)), rng.normal(size=(512, 1))
        with pytest.raises(mg.MemoryLimitError, match="made at"):
            net.fit(x, y, batch_size=512, memory_limit="200kB", verbose=0)
        net.fit(x, y, batch_size=512, memory_limit="100MB", verbose=0)


class TestLargest:
    def test_the_largest_size(self):
        step, _ = layers(6)
        limit = 1 << 20
        size = step.largest("batch", limit)
        assert step.specialize((size, 32)).memory.total <= limit
        assert step.specialize((size + 1, 32)).memory.total > limit

    def test_more_fits_where_values_are_computed_again(self):
        plain, _ = layers(8, 8)
        limited, _ = layers(8, 8, memory_limit="64KiB")
        size = limited.largest("batch", "64KiB")
        assert size > 1.5 * plain.largest("batch", "64KiB")
        limited.specialize((size, 8))
        assert limited.memory.total <= 64 << 10

    def test_nothing_fits(self):
        step, _ = layers(2)
        assert step.largest("batch", 100) == 0

    def test_wrong_questions(self):
        step, _ = layers(2)
        with pytest.raises(mg.FeedError, match="there is no dimension 'rows'"):
            step.largest("rows", "1MiB")
        x = mg.var("x", shape=("n", "m"))
        f = mg.function([x], mg.exp(x))
        with pytest.raises(mg.FeedError, match="the size of m is not known"):
            f.largest("n", "1MiB")
        assert f.largest("n", "1MiB", {"m": 4}) == (1 << 20) // 32
        f(np.zeros((3, 8), np.float32))
        assert f.largest("n", "1MiB") == (1 << 20) // 64


class TestTimeline:
    def test_categories_add_up(self):
        step, _ = layers(4)
        step.specialize((64, 32))
        memory = step.memory
        found = memory.categories()
        assert sum(found.values()) == memory.total
        assert found["parameters"] == 4 * 32 * 32 * 4
        assert found["optimizer"] == memory.variables - found["parameters"] > found["parameters"]
        assert found["feeds"] == 64 * 32 * 4

    def test_holders_are_what_is_alive(self):
        step, _ = layers(4)
        step.specialize((64, 32))
        found = step.memory.timeline()
        assert len(found.moments) == len(step.plan.steps)
        peak = found.moments[found.peak]
        assert sum(holder.bytes for holder in found.holders) == peak.live
        assert peak.live == max(moment.live for moment in found.moments) == step.plan.largest_live
        assert found.total == step.memory.total
        assert any("tanh, made at" in holder.what for holder in found.holders)
        assert f"alive in step {found.peak}:" in str(found)
        assert found.as_dict()["peak"] == found.peak

    def test_without_sizes(self):
        step, _ = layers(2)
        step.compile()
        with pytest.raises(mg.PlanError, match=r"f\.specialize"):
            step.memory.timeline()
