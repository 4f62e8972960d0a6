"""`mg.scan`: values and derivatives of every order beside the same steps written out."""

import copy
import pickle

import numpy as np
import pytest
from interpreted import assert_close, values

import magmagraph as mg
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
    both = []
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
        feeds_by_node = dict(zip([x, h0], feeds, strict=True))
        both.append((f(*feeds), values([loss, *slopes, *curved], feeds_by_node)))
    (compiled, interpreted), (expected, _) = both
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
    results = f()
    a, b, seen = 1.0, 2.0, []
    for row in x:
        seen.append(a)
        a, b = b, a + row
    assert_close(results["last"]["pair"][0], a)
    assert_close(results["last"]["pair"][1], b)
    assert_close(results["before"], seen)
    assert results["last"]["n"] == 4 and results["numbers"].tolist() == [0, 1, 2, 3]
    assert results["last"]["same"].tolist() == [True, False]


def test_named_length_one_and_none(rng):
    """The length is a dimension of the call: the same compiled body serves all."""
    x = mg.input("x", ("time", "batch"), "float64")
    last, ys = mg.scan(lambda c, row: (c + row, c * row), mg.zeros(("batch",), "float64"), x)
    assert ys.shape == x.shape and last.shape == x.shape[1:]
    slope = mg.grad(mg.sum(ys), x)
    f = mg.function([x], [last, ys, slope])
    for time, batch in ((6, 2), (1, 3), (0, 4), (6, 2)):
        feed = rng.normal(size=(time, batch))
        results = f(feed)
        sums = np.cumsum(feed, axis=0) - feed
        assert_close(results[0], feed.sum(axis=0), scale=time + 1.0)
        assert_close(results[1], sums * feed, scale=time + 1.0)
        # y_t = x_t * sum_{s<t} x_s
        assert_close(results[2], feed.sum(axis=0) - feed, scale=time + 1.0)


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
        for result, expected_value in zip(
            mg.function([x], [one] if isinstance(one, mg.ir.graph.Node) else one)(A),
            mg.function([x], [two] if isinstance(two, mg.ir.graph.Node) else two)(A),
            strict=True,
        ):
            assert_close(result, expected_value, scale=10.0)


class TestRandom:
    def test_each_iteration_draws_its_own(self):
        mg.random.seed(3)
        _, ys = mg.scan(lambda c, row: (c, mg.random.uniform((4,))), 0.0, length=6)
        f = mg.function([], ys)
        first, second = f(), f()
        all_draws = np.concatenate([first.ravel(), second.ravel()])
        assert np.unique(all_draws).size == all_draws.size
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

        _, (keyed, fixed, folded) = mg.scan(step, 0.0, mg.arange(5))
        keyed, fixed, folded = mg.function([], [keyed, fixed, folded])()
        assert np.unique(keyed).size == 1 and np.unique(fixed).size == 1
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

        result = mg.vmap(one)(mg.constant([1.0, 2.0, 3.0])).eval()
        assert np.unique(result).size == 12


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
        feed = np.ones((3, 2), np.float32)
        results = mg.ir.interpret.evaluate(again, {again.inputs[0]: feed})
        for node, expected in zip(again.outputs, f(feed), strict=True):
            assert_close(results[node], expected, "float32")

    def test_save_pickle_and_copy(self, tmp_path):
        _, _, f = self.program()
        feed = np.ones((3, 2), np.float32)
        expected = f(feed)
        f.save(tmp_path / "f.mg")
        for again in (
            mg.load(tmp_path / "f.mg"), pickle.loads(pickle.dumps(f)), copy.deepcopy(f)
        ):
            for one, other in zip(again(feed), expected, strict=True):
                assert np.array_equal(one, other)

    def test_shown_and_explained(self):
        _, w, f = self.program()
        feed = np.ones((3, 2), np.float32)
        f(feed)
        assert "loop" in mg.show(f).text() and "loop" in str(f.plan)
        assert "loop" in str(f.profile(feed)) and str(f.ablate(feed))
        assert "slot" in str(f.explain(w))

    def test_one_loop_in_threads(self):
        from concurrent.futures import ThreadPoolExecutor

        x = mg.input("x", ("time",), "float64")
        _, ys = mg.scan(lambda c, row: (mg.sin(c + row), c), mg.constant(np.float64(0.0)), x)
        functions = [mg.function([x], ys), mg.function([x], ys + 0.0)]
        feeds = [np.linspace(0, i + 1, 200) for i in range(4)]
        expected = [functions[0](each) for each in feeds]
        with ThreadPoolExecutor(4) as pool:
            for i, result in pool.map(lambda i: (i, functions[i % 2](feeds[i % 4])), range(40)):
                assert np.array_equal(result, expected[i % 4])


def test_a_body_in_python_runs_too(rng):
    """A step that only NumPy does (a sort) makes Python run the iterations."""
    x = rng.normal(size=(4, 6))

    def step(c, row):
        c = mg.sort(c + row)
        return c, c[0]

    last, ys = mg.scan(step, np.zeros(6), x)
    results = mg.function([], [last, ys])()
    c = np.zeros(6)
    for i, row in enumerate(x):
        c = np.sort(c + row)
        assert_close(results[1][i], c[0])
    assert_close(results[0], c)


@pytest.mark.parametrize("compiler", ["off", "auto"])
def test_draws_of_each_iteration(compiler, monkeypatch):
    monkeypatch.setattr(mg.config, "compiler", compiler)
    mg.random.seed(4)
    x = mg.input("x", (4, 5))

    def step(carry, row):
        carry = carry + mg.random.uniform((5,)) + mg.dropout(row, 0.5)
        return carry, carry

    _, rows = mg.scan(step, mg.zeros((5,)), x)
    result = np.diff(mg.function([x], rows)(np.zeros((4, 5))), axis=0)
    assert len(np.unique(result.round(5))) == result.size  # every iteration draws anew
    assert (result >= 0.0).all()
    assert (result < 1.0).all()


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
    assert "expected" in str(caught.value) or "neither" in str(caught.value)


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
