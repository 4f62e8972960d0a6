"""`mg.scan`: values and derivatives of every order beside the same steps written out."""

import copy
import pickle

import numpy as np
import pytest
from interpreted import assert_close, values

import magmagraph as mg
from magmagraph.graph import freeze, topological
from magmagraph.ops.control.loop import LOOP
from magmagraph.passes import pipeline
from magmagraph.text.reading import load
from magmagraph.text.writing import dump

TIME, BATCH, SIZE = 5, 2, 3


def weights(rng, size=SIZE):
    """Return the variables of a small recurrence, in float64."""
    return (
        mg.var("U", init=rng.normal(size=(size, size)) / size),
        mg.var("W", init=rng.normal(size=(size, size)) / size),
        mg.var("b", init=rng.normal(size=size)),
    )


def recurrence(U, W, b):
    def step(h, row):
        h = mg.tanh(h @ U + row @ W + b)
        return h, {"h": h, "square": mg.sum(h * h, axis=-1)}

    return step


def written_out(step, init, x, reverse=False):
    """Return what scan does, one node for each step."""
    carry, rows = init, {}
    for t in reversed(range(TIME)) if reverse else range(TIME):
        carry, rows[t] = step(carry, x[t])
    keys = rows[0].keys()
    return carry, {k: mg.stack([rows[t][k] for t in range(TIME)]) for k in keys}


@pytest.mark.parametrize(
    ("checkpoint", "reverse"),
    [(False, False), (False, True), (True, False), (2, True), ("sqrt", False)],
)
def test_values_and_derivatives_beside_the_steps_written_out(rng, checkpoint, reverse):
    variables = weights(rng)
    step = recurrence(*variables)
    x = mg.input("x", (TIME, BATCH, SIZE), "float64")
    h0 = mg.input("h0", (BATCH, SIZE), "float64")
    feeds = (rng.normal(size=(TIME, BATCH, SIZE)), rng.normal(size=(BATCH, SIZE)))
    found = []
    for last, ys in (
        mg.scan(step, h0, x, reverse=reverse, checkpoint=checkpoint),
        written_out(step, h0, x, reverse),
    ):
        loss = mg.sum(last**3) + mg.sum(ys["square"] * mg.sin(ys["square"])) + mg.sum(ys["h"])
        slopes = mg.grad(loss, [*variables, x, h0])
        curved = mg.grad(
            mg.sum(slopes[0] ** 2) + mg.sum(mg.sin(slopes[3])), [variables[1], x, h0]
        )
        f = mg.function([x, h0], [last, ys["h"], ys["square"], loss, *slopes, *curved])
        fed = dict(zip([x, h0], feeds, strict=True))
        found.append((f(*feeds), values([loss, *slopes, *curved], fed)))
    (compiled, interpreted), (expected, _) = found
    for one, other in zip(compiled, expected, strict=True):
        assert_close(one, other, scale=np.max(np.abs(other)) + 1.0)
    for one, other in zip(interpreted, expected[3:], strict=True):
        assert_close(one, other, scale=np.max(np.abs(other)) + 1.0)


def test_forward_mode(rng):
    variables = weights(rng)
    step = recurrence(*variables)
    x = mg.constant(rng.normal(size=(TIME, BATCH, SIZE)))
    h0 = mg.constant(np.zeros((BATCH, SIZE)))
    direction = rng.normal(size=(SIZE, SIZE))
    one, other = (
        mg.jvp(mg.sum(ys["square"]), variables[0], direction).eval()
        for _, ys in (mg.scan(step, h0, x), written_out(step, h0, x))
    )
    assert_close(one, other)


def test_nested_carries_and_what_is_not_float(rng):
    """A tuple in a dict, an int that counts, a swap, and a part that never changes."""
    x = rng.normal(size=(4,))

    def step(carry, row):
        (a, b), n = carry["pair"], carry["n"]
        return {"pair": (b, a + row), "n": n + 1, "same": carry["same"]}, (n, a)

    init = {"pair": (mg.constant(np.float64(1.0)), mg.constant(np.float64(2.0))), "n": 0,
            "same": mg.constant([True, False])}
    last, (numbers, before) = mg.scan(step, init, x)
    f = mg.function([], {"last": last, "numbers": numbers, "before": before})
    found = f()
    a, b, seen = 1.0, 2.0, []
    for row in x:
        seen.append(a)
        a, b = b, a + row
    assert_close(found["last"]["pair"][0], a)
    assert_close(found["last"]["pair"][1], b)
    assert_close(found["before"], seen)
    assert found["last"]["n"] == 4 and found["numbers"].tolist() == [0, 1, 2, 3]
    assert found["last"]["same"].tolist() == [True, False]


def test_named_length_one_and_none(rng):
    """The length is a dimension of the call: the same compiled body serves all."""
    x = mg.input("x", ("time", "batch"), "float64")
    last, ys = mg.scan(lambda c, row: (c + row, c * row), mg.zeros(("batch",), "float64"), x)
    assert ys.shape == x.shape and last.shape == x.shape[1:]
    slope = mg.grad(mg.sum(ys), x)
    f = mg.function([x], [last, ys, slope])
    for time, batch in ((6, 2), (1, 3), (0, 4), (6, 2)):
        fed = rng.normal(size=(time, batch))
        found = f(fed)
        sums = np.cumsum(fed, axis=0) - fed
        assert_close(found[0], fed.sum(axis=0), scale=time + 1.0)
        assert_close(found[1], sums * fed, scale=time + 1.0)
        # y_t = x_t * sum_{s<t} x_s
        assert_close(found[2], fed.sum(axis=0) - fed, scale=time + 1.0)


def test_a_length_without_rows():
    powers, ys = mg.scan(lambda c, row: (c * 2.0, c), 1.0, length=10)
    assert mg.function([], [powers, ys])()[0] == 1024.0
    assert ys.eval().tolist() == [2.0**i for i in range(10)]
    n = mg.input("x", ("n",))
    last, _ = mg.scan(lambda c, row: (c + 1, None), 0, length=n.shape[0])
    assert last.eval({n: np.zeros(7)}) == 7


def test_no_carry_maps():
    x = mg.input("x", ("n", 2))
    carry, squares = mg.scan(lambda c, row: (None, row * row), None, x)
    assert carry is None
    assert squares.eval({x: [[1.0, 2.0], [3.0, 4.0]]}).tolist() == [[1.0, 4.0], [9.0, 16.0]]


def test_loops_in_loops(rng):
    """The inner loop's carries are rows of nothing; both are differentiated."""
    A = rng.normal(size=(3, 4))
    x = mg.input("x", (3, 4), "float64")
    scale = mg.var("scale", init=np.float64(0.7))

    def inner(c, element):
        return mg.sin(c * scale + element), c

    def outer(c, row):
        last, rows = mg.scan(inner, c, row)
        return last, mg.sum(rows)

    last, sums = mg.scan(outer, mg.constant(np.float64(0.0)), x)
    c, expected = mg.constant(np.float64(0.0)), []
    for i in range(3):
        rows = []
        for j in range(4):
            c, row = inner(c, x[i, j])
            rows.append(row)
        expected.append(sum(rows[1:], rows[0]))
    loss = mg.sum(sums**2) + last
    other = mg.sum(mg.stack(expected) ** 2) + c
    for one, two in ((loss, other), (mg.grad(loss, [x, scale]), mg.grad(other, [x, scale]))):
        for found, wanted in zip(
            mg.function([x], [one] if isinstance(one, mg.graph.Node) else one)(A),
            mg.function([x], [two] if isinstance(two, mg.graph.Node) else two)(A),
            strict=True,
        ):
            assert_close(found, wanted, scale=10.0)


class TestRandom:
    def test_each_iteration_draws_its_own(self):
        mg.random.seed(3)
        _, ys = mg.scan(lambda c, row: (c, mg.random.uniform((4,))), 0.0, length=6)
        f = mg.function([], ys)
        first, second = f(), f()
        everything = np.concatenate([first.ravel(), second.ravel()])
        assert np.unique(everything).size == everything.size
        mg.random.seed(3)
        _, again = mg.scan(lambda c, row: (c, mg.random.uniform((4,))), 0.0, length=6)
        assert np.array_equal(mg.function([], again)(), first)
        assert np.array_equal(values([again])[0], first)

    def test_nested_loops_draw_apart(self):
        def outer(c, row):
            return c, mg.scan(lambda d, r: (d, mg.random.uniform(())), 0.0, length=50)[1]

        _, ys = mg.scan(outer, 0.0, length=40)
        assert np.unique(mg.function([], ys)()).size > 0.99 * 2000  # of 2**24 numbers

    def test_a_key_draws_the_same_and_what_is_outside_is_drawn_once(self):
        key = mg.random.key(1)
        outside = mg.random.uniform(())

        def step(c, i):
            folded = mg.random.uniform((), key=mg.random.fold_in(key, i))
            return c, (mg.random.uniform((), key=key), outside + 0.0, folded)

        _, (keyed, held, folded) = mg.scan(step, 0.0, mg.arange(5))
        keyed, held, folded = mg.function([], [keyed, held, folded])()
        assert np.unique(keyed).size == 1 and np.unique(held).size == 1
        assert np.unique(folded).size == 5

    def test_the_gradient_sees_the_numbers_of_the_value(self):
        w = mg.var("w", init=np.float64(2.0))

        def step(c, row):
            noise = mg.random.normal((), dtype="float64")
            return c + w * noise, noise

        last, noises = mg.scan(step, mg.constant(np.float64(0.0)), length=8)
        slope, noise = mg.function([], [mg.grad(last, w), noises])()
        assert_close(slope, noise.sum())

    def test_examples_under_vmap_draw_apart(self):
        def one(x):
            return mg.scan(lambda c, row: (c + x, mg.random.uniform(())), 0.0 * x, length=4)[1]

        found = mg.vmap(one)(mg.constant([1.0, 2.0, 3.0])).eval()
        assert np.unique(found).size == 12


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
        found = mg.function([], [loss, *slopes])()
        for i in range(4):
            alone, its = one(x[i], h0[i], scales[i])
            for whole, part in zip(found, mg.function([], [alone, *its])(), strict=True):
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
        fed = rng.normal(size=(TIME, BATCH, SIZE))
        expected = f(fed)
        for _, _, graph in f.report.steps():
            if isinstance(graph, mg.graph.Graph):
                found = mg.interpret.evaluate(graph, {graph.inputs[0]: fed})
                for node, wanted in zip(graph.outputs, expected, strict=True):
                    assert_close(found[node], wanted, scale=10.0)

    def test_without_gradient_nothing_is_kept(self, rng):
        x, _, loss, _ = self.program(rng)
        f = mg.function([x], loss)
        (loop,) = [node for node in f.graph if node.op is LOOP]
        assert len(loop.attrs["body"].outputs) == 2  # the carry, and the rows of h
        assert "take away what a loop makes for nobody" in f.report["simplify"].hits

    def test_products_of_all_rows_are_one(self, rng):
        x, _, loss, slopes = self.program(rng)
        f = mg.function([x], [loss, *slopes])
        hits = f.report["contract"].hits
        assert hits["multiply all rows before the loop"] == 1
        assert hits["multiply once after the loop"] == 1
        # x @ W before; dU, dW after; one product in each of the two loops.
        kernels = [step.kernel for step in f.plan.steps]
        assert kernels.count("gemm") == 3 and kernels.count("loop") == 2
        for node in f.graph:
            if node.op is LOOP:
                products = [n for n in node.attrs["body"] if n.op.kind == "contraction"]
                assert len(products) == 1

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
        fed = rng.normal(size=(TIME, BATCH, SIZE))
        f = mg.function([x], [loss, *slopes])
        expected = f(fed)
        assert f.check(fed).ok
        monkeypatch.setattr(mg.config, "compiler", "off")
        g = mg.function([x], [loss, *slopes])
        for one, other in zip(g(fed), expected, strict=True):
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


class TestHandling:
    def program(self):
        x = mg.input("x", ("time", 2))
        w = mg.var("w", init=[[0.5, 0.1], [0.2, 0.3]])
        last, ys = mg.scan(lambda h, r: (mg.tanh(h @ w + r), h), mg.zeros((2,)), x)
        loss = mg.sum(last) + mg.sum(ys * ys)
        return x, w, mg.function([x], [loss, mg.grad(loss, w)], name="net")

    def test_text(self):
        _x, _, f = self.program()
        again = load(dump(f.source_graph), values=[np.array([[0.5, 0.1], [0.2, 0.3]], "f")])
        fed = np.ones((3, 2), np.float32)
        found = mg.interpret.evaluate(again, {again.inputs[0]: fed})
        for node, wanted in zip(again.outputs, f(fed), strict=True):
            assert_close(found[node], wanted, "float32")

    def test_save_pickle_and_copy(self, tmp_path):
        _, _, f = self.program()
        fed = np.ones((3, 2), np.float32)
        expected = f(fed)
        f.save(tmp_path / "f.mg")
        for again in (
            mg.load(tmp_path / "f.mg"), pickle.loads(pickle.dumps(f)), copy.deepcopy(f)
        ):
            for one, other in zip(again(fed), expected, strict=True):
                assert np.array_equal(one, other)

    def test_shown_and_explained(self):
        _, w, f = self.program()
        fed = np.ones((3, 2), np.float32)
        f(fed)
        assert "loop" in mg.show(f).text() and "loop" in str(f.plan)
        assert "loop" in str(f.profile(fed)) and str(f.ablate(fed))
        assert "slot" in str(f.explain(w))

    def test_one_loop_in_threads(self):
        from concurrent.futures import ThreadPoolExecutor

        x = mg.input("x", ("time",), "float64")
        _, ys = mg.scan(lambda c, row: (mg.sin(c + row), c), mg.constant(np.float64(0.0)), x)
        functions = [mg.function([x], ys), mg.function([x], ys + 0.0)]
        fed = [np.linspace(0, i + 1, 200) for i in range(4)]
        expected = [functions[0](each) for each in fed]
        with ThreadPoolExecutor(4) as pool:
            for i, found in pool.map(lambda i: (i, functions[i % 2](fed[i % 4])), range(40)):
                assert np.array_equal(found, expected[i % 4])


def test_a_body_in_python_runs_too(rng):
    """A step that only NumPy does (a sort) makes Python run the iterations."""
    x = rng.normal(size=(4, 6))

    def step(c, row):
        c = mg.sort(c + row)
        return c, c[0]

    last, ys = mg.scan(step, np.zeros(6), x)
    found = mg.function([], [last, ys])()
    c = np.zeros(6)
    for i, row in enumerate(x):
        c = np.sort(c + row)
        assert_close(found[1][i], c[0])
    assert_close(found[0], c)


def test_only_one_loop_stands_for_many_steps():
    _, ys = mg.scan(lambda c, row: (mg.sin(c) + 1.0, c), 0.0, length=10_000)
    f = mg.function([], ys)
    assert len(f.source_graph) < 10
    assert len(f.plan.steps) < 5
    assert f()[1] == 1.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mg.scan(lambda c, x: c, 0.0, length=3), mg.GraphError,
         "scan: the function returned Node"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0), mg.ShapeError,
         "scan: nothing tells the length"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, 1.0), mg.ShapeError, "scan: xs is a scalar"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, (np.zeros(3), np.zeros(4))), mg.ShapeError,
         "has 4 rows, and"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, np.zeros(3), length=2), mg.ShapeError,
         "has 3 rows, and length=2"),
        (lambda: mg.scan(lambda c, x: ((c, c), c), 0.0, length=3), mg.GraphError,
         "scan: the function returned carry[0], carry[1]"),
        (lambda: mg.scan(lambda c, x: ({"h": mg.cast(c["h"], "float64")}, c), {"h": 0.0},
                         length=3), mg.DTypeError,
         "scan: carry['h'] is float32[] in init, and comes back as float64[]"),
        (lambda: mg.scan(lambda c, x: (c + np.zeros(2, "f"), c), 0.0, length=3), mg.ShapeError,
         "scan: carry is float32[] in init, and comes back as float32[2]"),
        (lambda: mg.scan(lambda c, x: (None, None), None, length=3), mg.GraphError,
         "scan: there is neither a carry nor anything stacked"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, length=-1), mg.ShapeError, "scan: length=-1"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, length=2.5), mg.GraphError,
         "scan: length=2.5"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, length=3, checkpoint=0), mg.GraphError,
         "scan: checkpoint=0"),
        (lambda: mg.scan(lambda c, x: (c, c), 0.0, length="n", checkpoint="sqrt"), mg.GraphError,
         "scan: checkpoint='sqrt' of the length n"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value).splitlines()[0]
    assert "need" in str(caught.value) or "neither" in str(caught.value)


def test_updates_inside_are_refused():
    calls = mg.var("calls", init=0)

    def step(c, row):
        return mg.stateful(c + row, {calls: calls + 1}), None

    with pytest.raises(mg.GraphError, match="default updates inside the body"):
        mg.scan(step, 0.0, mg.constant([1.0, 2.0]))


def test_what_the_loss_does_not_depend_on():
    x, unused = mg.var("x", init=[1.0, 2.0]), mg.var("unused", init=1.0)
    last, ys = mg.scan(lambda c, row: ((c[0] + row, c[1] * 2.0), c[1]), (0.0, unused), x)
    with pytest.raises(mg.GradientError, match="depend on|no gradient reaches"):
        mg.grad(last[0], unused)
    assert mg.grad(mg.sum(ys), unused).eval() == 3.0


def test_constraints_of_the_body_hold_at_the_call():
    x, y = mg.input("x", ("t", "n")), mg.input("y", (3,))
    last, _ = mg.scan(lambda c, row: (c + mg.sum(row * y), None), 0.0, x)
    f = mg.function([x, y], last)
    assert f(np.ones((2, 3)), np.ones(3)) == 6.0
    with pytest.raises(mg.FeedError):
        f(np.ones((2, 4)), np.ones(3))


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
    given = rng.normal(size=(5, 3, 4))
    # One graph, in turn: neither takes the bodies that the other has compiled.
    for _ in range(2):
        for found, wanted in zip(without(given), whole(given), strict=True):
            assert_close(found, wanted)
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
