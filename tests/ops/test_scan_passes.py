"""Loops under passes, transforms and inspection."""

import numpy as np
import pytest
from interpreted import assert_close
from test_scan import BATCH, SIZE, TIME, recurrence, weights

import magmagraph as mg
from magmagraph.ir.graph import freeze, topological
from magmagraph.ops.control.loop import LOOP
from magmagraph.passes import pipeline
from magmagraph.text.writing import dump


class TestVmap:
    def test_over_rows_carry_and_reads(self, rng):
        variables = weights(rng)
        step = recurrence(*variables)
        x = mg.constant(rng.normal(size=(4, TIME, BATCH, SIZE)))
        h0 = mg.constant(rng.normal(size=(4, BATCH, SIZE)))
        scales = mg.constant(rng.normal(size=4))

        def one(x, h0, scale):
            last, ys = mg.scan(lambda h, row: step(h * scale, row), h0, x)
            loss = mg.sum(last) + mg.sum(ys["square"])
            return loss, mg.grad(loss, [x, h0, scale, variables[0]])

        loss, slopes = mg.vmap(one)(x, h0, scales)
        results = mg.function([], [loss, *slopes])()
        for i in range(4):
            alone, its = one(x[i], h0[i], scales[i])
            for whole, part in zip(results, mg.function([], [alone, *its])(), strict=True):
                assert_close(whole[i], part, scale=10.0)

    def test_gradient_of_the_mapped_loop(self, rng):
        a = mg.var("a", init=rng.normal(size=3))
        x = mg.constant(rng.normal(size=(3, 4)))

        def one(start, row):
            return mg.scan(lambda c, r: (mg.sin(c * r), c), start, row)[1]

        whole = mg.grad(mg.sum(mg.vmap(one)(a, x) ** 2), a).eval()
        for i in range(3):
            part = mg.grad(mg.sum(one(a[i], x[i]) ** 2), a).eval()
            assert_close(whole[i], part[i])

    def test_jacobian(self, rng):
        x = mg.var("x", init=rng.normal(size=4))
        _, ys = mg.scan(lambda c, row: (c * row, c + row), mg.constant(np.float64(1.0)), x)
        rows = mg.jacobian(ys, x, mode="reverse").eval()
        columns = mg.jacobian(ys, x, mode="forward").eval()
        expected = np.stack([mg.grad(ys[i], x).eval() for i in range(4)])
        assert_close(rows, expected)
        assert_close(columns, expected)


class TestPasses:
    def program(self, rng):
        variables = weights(rng)
        x = mg.input("x", (TIME, BATCH, SIZE), "float64")
        last, ys = mg.scan(recurrence(*variables), np.zeros((BATCH, SIZE)), x)
        loss = mg.sum(ys["h"] ** 2) + mg.sum(last)
        slopes = mg.grad(loss, list(variables))
        return x, variables, loss, slopes

    def test_the_interpreter_agrees_after_every_pass(self, rng):
        x, _, loss, slopes = self.program(rng)
        f = mg.function([x], [loss, *slopes])
        feed = rng.normal(size=(TIME, BATCH, SIZE))
        expected = f(feed)
        for _, _, graph in f.report.steps():
            if isinstance(graph, mg.ir.graph.Graph):
                results = mg.ir.interpret.evaluate(graph, {graph.inputs[0]: feed})
                for node, expected_value in zip(graph.outputs, expected, strict=True):
                    assert_close(results[node], expected_value, scale=10.0)

    def test_without_gradient_nothing_is_kept(self, rng):
        x, _, loss, _ = self.program(rng)
        f = mg.function([x], loss)
        (loop,) = [node for node in f.graph if node.op is LOOP]
        assert len(loop.attrs["body"].outputs) == 2  # the carry, and the rows of h
        assert "remove loop results that are never read" in f.report["simplify"].hits

    def test_products_of_all_rows_are_one(self, rng):
        x, _, loss, slopes = self.program(rng)
        f = mg.function([x], [loss, *slopes])
        hits = f.report["contract"].hits
        assert hits["move a product before the loop"] == 1
        assert hits["move a product after the loop"] == 1
        # x @ W before; dU, dW after; one product in each of the two loops.
        kernels = [step.kernel for step in f.plan.steps]
        assert kernels.count("gemm") == 3 and kernels.count("loop") == 2
        for node in f.graph:
            if node.op is LOOP:
                products = [n for n in node.attrs["body"] if n.op.kind == "contraction"]
                assert len(products) == 1

    @pytest.mark.parametrize("deep", [2, 3])
    def test_a_loss_and_its_gradient_share_the_forward_loops(self, deep, rng):
        """Results that the loss alone reads, and rows for the gradient, come from one loop."""
        matrices = [mg.var(f"w{i}", init=rng.normal(size=(3, 3)) / 2) for i in range(deep)]
        x = mg.input("x", ("time", 3), "float64")
        rows, loss = x, mg.constant(np.float64(0.0))
        for w in matrices:
            def step(h, row, w=w):
                h = mg.tanh(h @ w + row)
                return h, (h, mg.sum(h * mg.exp(h)))

            _, (rows, shares) = mg.scan(step, np.zeros(3), rows)
            loss = loss + mg.sum(shares)
        f = mg.function([x], [loss, *mg.grad(loss, matrices)])
        assert sum(node.op is LOOP for node in f.source_graph) == 2 * deep
        assert sum(node.op is LOOP for node in f.graph) == 2 * deep
        feed = rng.normal(size=(TIME, 3))
        assert f.check(feed).ok
        alone = mg.function([x], [loss, *mg.grad(loss, matrices)], skip=("simplify", "contract"))
        for one, other in zip(f(feed), alone(feed), strict=True):
            assert_close(one, other, scale=10.0)

    def test_bodies_are_functions_of_their_own(self, rng):
        x, _, loss, slopes = self.program(rng)
        f = mg.function([x], [loss, *slopes])
        forward, backward = f.bodies
        assert [step.kernel for step in forward.plan.steps].count("gemm") == 1
        assert "product to gemm" in backward.report["contract"].hits
        assert not forward.bodies

    def test_a_product_with_large_factors_stays(self, rng):
        """The factors of a sum of products would take more memory than is gained."""
        x = mg.input("x", (TIME, 40, 2), "float64")
        w = mg.var("w", init=rng.normal(size=(2, 2)))
        _, ys = mg.scan(
            lambda c, row: (mg.tanh(c @ w), mg.sum(c)), mg.constant(rng.normal(size=(40, 2))), x
        )
        f = mg.function([x], mg.grad(mg.sum(ys**2), w))
        assert any("much larger" in r.reason for r in f.report["contract"].refusals)
        mg.check_gradients(
            lambda w: mg.sum(mg.scan(
                lambda c, row: (mg.tanh(c @ w), mg.sum(c)), np.full((40, 2), 0.3), length=3
            )[1]), (rng.normal(size=(2, 2)),)
        )

    def test_idempotent(self, rng):
        x, _, loss, slopes = self.program(rng)
        passes = [p for p in pipeline.DEFAULT if p.name in ("simplify", "contract")]
        f = mg.function([x], [loss, *slopes])
        once, _ = pipeline.run(f.source_graph, f.trace, passes=passes)
        twice, _ = pipeline.run(once, f.trace, passes=passes)
        assert twice is once

    def test_without_compiler_and_check(self, rng, monkeypatch):
        x, _, loss, slopes = self.program(rng)
        feed = rng.normal(size=(TIME, BATCH, SIZE))
        f = mg.function([x], [loss, *slopes])
        expected = f(feed)
        assert f.check(feed).ok
        monkeypatch.setattr(mg.config, "compiler", "off")
        g = mg.function([x], [loss, *slopes])
        for one, other in zip(g(feed), expected, strict=True):
            assert_close(one, other, scale=10.0)

    def test_check_measures_bodies_in_float64(self, rng):
        """The reference is wide inside of the body, too: the float32 run has an error."""
        U = mg.var("U", init=rng.normal(size=(4, 4)).astype("float32") / 3)
        x = mg.input("x", (20, 4))
        _, ys = mg.scan(lambda h, row: (mg.tanh(h @ U + row), h), mg.zeros((4,)), x)
        checked = mg.function([x], mg.grad(mg.sum(ys * ys), U)).check(
            rng.normal(size=(20, 4)).astype("float32")
        )
        assert checked.ok and 0.0 < checked.errors["source"] < 1e-3

    def test_memory_counts_rows_and_the_arena_of_the_body(self, rng):
        sizes = []
        for time in (10, 1000):
            x = mg.input("x", (time, 4, 8))
            U = mg.var("U", init=rng.normal(size=(8, 8)).astype("float32"))
            _, ys = mg.scan(
                lambda h, row, U=U: (mg.tanh(h @ U + row), h), mg.zeros((4, 8)), x
            )
            memory = mg.function([x], mg.grad(mg.sum(ys * ys), U)).memory
            assert memory.bodies > 0
            sizes.append(memory.total)
        # Two rows at least are kept of each iteration, beside the feed.
        assert sizes[1] - sizes[0] >= 990 * 3 * (4 * 8 * 4)


def test_the_body_is_there_for_all_to_see():
    _, ys = mg.scan(lambda c, row: (c + row, c), 0.0, mg.constant([1.0, 2.0]))
    graph = freeze([], [ys])
    (loop,) = [node for node in topological(graph.outputs) if node.op is LOOP]
    assert "add" in dump(graph) and loop.attrs["carries"] == 1


def chain_in_a_loop():
    """Return two loops, one in the other, whose bodies are chains that are fused."""
    x = mg.input("x", ("t", 3, 4), "float64")

    def outer(h, row):
        h = mg.tanh(h + row) * 2.0 + 1.0
        inner = mg.while_loop(lambda v: mg.sum(v) < 40.0, lambda v: mg.exp(-v) + v + 0.5, h)
        return h, inner

    last, rows = mg.scan(outer, mg.zeros((3, 4), dtype="float64"), x)
    return x, [last, rows]


def steps_of(function):
    return [(len(body.plan.steps), steps_of(body)) for body in function.bodies]


def test_what_a_function_leaves_out_its_bodies_leave_out(rng):
    x, outputs = chain_in_a_loop()
    whole, without = (mg.function([x], outputs, skip=skip) for skip in ((), ("fuse",)))
    feed = rng.normal(size=(5, 3, 4))
    # One graph, in turn: neither takes the bodies that the other has compiled.
    for _ in range(2):
        for result, expected in zip(without(feed), whole(feed), strict=True):
            assert_close(result, expected)
    ((fused, ((inner, _),)),) = steps_of(whole)
    ((apart, ((inner_apart, _),)),) = steps_of(without)
    assert fused < apart and inner < inner_apart
    assert all("fuse" not in [p.name for p in body.passes] for body in without.bodies)
    assert without.memory.bodies > whole.memory.bodies


def test_an_ablation_sees_what_a_pass_does_in_a_body(rng):
    x, outputs = chain_in_a_loop()
    measured = mg.function([x], outputs).ablate(rng.normal(size=(5, 3, 4)), rounds=1)
    assert not measured["fuse"].same


def test_a_pass_of_ones_own_works_on_bodies_too():
    seen = []

    def look(graph, trace, options):
        seen.append(len(graph.nodes))
        return graph

    x, outputs = chain_in_a_loop()
    first, *rest = mg.passes.default()
    own = mg.passes.Pass("look", look, True, "stable", "to see bodies, too")
    f = mg.function([x], outputs, passes=[first, own, *rest])
    f(np.zeros((2, 3, 4)))
    assert len(seen) >= 3


def test_a_few_iterations_are_not_numbered_at_each_call() -> None:
    w, x = mg.var("w", init=np.eye(4, dtype=np.float32)), mg.var("x", shape=("n", 4))
    last, _ = mg.scan(lambda c, _: (mg.tanh(c @ w), None), x, None, length=3)
    f = mg.function([x], last)
    f(np.ones((2, 4), np.float32))
    assert [step.kernel for step in f.plan.steps] == ["loop"]
    total, _ = mg.scan(lambda c, _: (c + 1.0, None), mg.sum(x), None, length=x.shape[0])
    assert total.eval({x: np.zeros((3, 4))}) == 3.0
    many, _ = mg.scan(lambda c, _: (c + 1.0, None), 0.0, None, length=1000)
    assert many.eval() == 1000.0
