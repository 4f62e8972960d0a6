"""`mg.while_loop`: values, both modes of differentiation, and loops that run no step."""

import pickle

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.text.reading import load
from magmagraph.text.writing import dump


def grow(limit, factor=1.5):
    """Return condition and body of a loop that multiplies until a limit is passed."""
    return (lambda x: x < limit), (lambda x: x * factor)


def test_values_with_and_without_a_bound():
    x = mg.input("x", (), "float64")
    condition, body = grow(10.0)
    free = mg.while_loop(condition, body, x)
    bounded = mg.while_loop(condition, body, x, max_steps=100)
    short = mg.while_loop(condition, body, x, max_steps=2)
    f = mg.function([x], [free, bounded, short])
    for start in (0.1, 1.0, 9.99, 10.0, 50.0):
        expected = start
        steps = 0
        while expected < 10.0:
            expected, steps = expected * 1.5, steps + 1
        results = f(start)
        assert_close(results[0], expected)
        assert_close(results[1], expected)
        assert_close(results[2], start * 1.5 ** min(steps, 2))
        assert_close(value(free, {x: start}), expected)


def test_newton_by_dictionary():
    a = mg.var("a", init=np.float64(2.0))

    def step(state):
        new = (state["x"] + a / state["x"]) / 2.0
        return {"x": new, "change": mg.absolute(new - state["x"]), "steps": state["steps"] + 1}

    start = {"x": mg.constant(np.float64(1.0)), "change": mg.constant(np.float64(1.0)), "steps": 0}
    results = mg.while_loop(lambda s: s["change"] > 1e-12, step, start, max_steps=50)
    assert_close(results["x"].eval(), np.sqrt(2.0))
    assert results["steps"].eval() == 6
    # The steps that ran are differentiated; near the root that is the derivative of the root.
    assert_close(mg.grad(results["x"], a).eval(), 0.5 / np.sqrt(2.0))
    assert_close(mg.hessian(results["x"], a).eval(), -0.25 * 2.0**-1.5)


@pytest.mark.parametrize("start", [0.3, 2.0, 20.0])
def test_derivatives_of_the_steps_that_ran(start):
    """c + w + c sin(w c) / 5 until 5 is passed: none, one or several steps."""
    x, w = mg.input("x", (), "float64"), mg.var("w", init=np.float64(1.3))

    def body(c):
        return c * mg.sin(w * c) * 0.2 + c + w

    loop = mg.while_loop(lambda c: c < 5.0, body, x, max_steps=30)
    plain, steps = np.float64(start), 0
    while plain < 5.0:
        plain, steps = plain * np.sin(1.3 * plain) * 0.2 + plain + 1.3, steps + 1
    written = x
    for _ in range(steps):
        written = body(written)
    written = written + 0.0 * w
    targets = [x, w]
    one, two = ([*mg.grad(y**2, targets), *(mg.grad(s, w) for s in mg.grad(y**2, targets))]
                if steps else mg.grad(y**2, targets, unused="zeros")
                for y in (loop, written))
    results = mg.function([x], [loop, *one])(start)
    expected = mg.function([x], [written, *two])(start)
    for a, b in zip(results, expected, strict=True):
        assert_close(a, b, scale=np.abs(b) + 1.0)


def test_forward_mode_without_a_bound():
    x, w = mg.input("x", (3,), "float64"), mg.var("w", init=np.float64(0.9))

    def run(bound):
        return mg.while_loop(
            lambda c: mg.sum(c[0] * c[0]) > 0.1, lambda c: (mg.sin(c[0]) * w, c[1] + 1),
            (x, 0), max_steps=bound,
        )

    free, steps = run(None)
    bounded, _ = run(200)
    feeds = {x: np.array([1.0, -2.0, 0.5])}
    d, dw = np.array([0.3, 1.0, -1.0]), np.float64(1.0)
    assert_close(
        mg.jvp(free, [x, w], [mg.constant(d), mg.constant(dw)]).eval(feeds),
        mg.jvp(bounded, [x, w], [mg.constant(d), mg.constant(dw)]).eval(feeds),
    )
    assert steps.eval(feeds) > 5
    assert_close(mg.jacobian(free, x, mode="forward").eval(feeds),
                 mg.jacobian(bounded, x).eval(feeds))


def test_reverse_mode_without_a_bound_is_refused():
    x = mg.var("x", init=1.0)
    loop = mg.while_loop(*grow(10.0), x)
    with pytest.raises(mg.GradientError) as caught:
        mg.grad(loop, x)
    assert "while_loop without a bound" in str(caught.value)
    assert "max_steps=n" in str(caught.value) and "mg.jvp" in str(caught.value)


def test_steps_that_do_not_run_are_not_differentiated():
    """After the end the body would divide by zero: none of that reaches the gradient."""
    x = mg.var("x", init=np.float64(3.0))
    body = lambda c: (c[0] - 1.0, c[1] + 1.0 / c[0])  # noqa: E731
    _, total = mg.while_loop(
        lambda c: c[0] > 0.5, body, (x, mg.constant(np.float64(0.0))), max_steps=10
    )
    assert_close(total.eval(), 1 / 3 + 1 / 2 + 1)
    assert_close(mg.grad(total, x).eval(), -(1 / 9 + 1 / 4 + 1))
    assert_close(mg.hessian(total, x).eval(), 2 * (1 / 27 + 1 / 8 + 1))


def test_vmap_lets_each_example_stop_for_itself():
    starts = np.array([1, 7, 27, 97], np.int32)

    def collatz(n):
        return mg.while_loop(
            lambda c: c[0] > 1,
            lambda c: (mg.where(mg.equal(c[0] % 2, 0), c[0] // 2, 3 * c[0] + 1), c[1] + 1),
            (n, 0),
        )[1]

    assert mg.vmap(collatz)(mg.constant(starts)).eval().tolist() == [0, 16, 111, 118]

    def root(a):
        return mg.while_loop(
            lambda c: mg.absolute(c * c - a) > 1e-10, lambda c: (c + a / c) / 2.0, a, max_steps=30
        )

    a = mg.var("a", init=np.array([1.0, 2.0, 9.0]))
    roots = mg.vmap(root)(a)
    assert_close(roots.eval(), np.sqrt([1.0, 2.0, 9.0]), scale=100.0)
    slopes = mg.grad(mg.sum(roots), a).eval()
    each = [mg.grad(root(a[i]), a).eval()[i] for i in range(3)]
    assert_close(slopes, each)


def test_all_examples_stop_together():
    x = mg.constant(np.arange(6.0).reshape(3, 2))
    doubled = mg.vmap(lambda row: mg.while_loop(
        lambda c: c[1] < 3, lambda c: (c[0] * 2.0, c[1] + 1), (row, 0)
    )[0])(x)
    assert_close(doubled.eval(), np.arange(6.0).reshape(3, 2) * 8.0)


def test_random_steps_differ():
    mg.random.seed(5)
    tries, last = mg.while_loop(
        lambda c: c[1] < 0.9, lambda c: (c[0] + 1, mg.random.uniform(())), (0, 0.0)
    )
    f = mg.function([], [tries, last])
    counts = [int(f()[0]) for _ in range(20)]
    assert len(set(counts)) > 3 and min(counts) >= 1


def test_a_scan_inside_and_a_while_inside_of_a_scan():
    x = mg.constant(np.array([1.0, 2.0, 3.0]))
    w = mg.var("w", init=np.float64(2.0))

    def halve(c, row):
        small = mg.while_loop(lambda v: v > 1.0, lambda v: v / w, c + row, max_steps=20)
        return small, small

    _last, ys = mg.scan(halve, mg.constant(np.float64(0.0)), x)
    c, expected = 0.0, []
    for row in (1.0, 2.0, 3.0):
        c += row
        while c > 1.0:
            c /= 2.0
        expected.append(c)
    assert_close(ys.eval(), expected)
    mg.check_gradients(
        lambda w: mg.scan(
            lambda c, row: (mg.while_loop(lambda v: v > 1.1, lambda v: v / w, c + row,
                                          max_steps=20), None),
            mg.constant(np.float64(0.0)), x)[0],
        (np.float64(2.05),),
    )


def test_text_pickle_save(tmp_path):
    x = mg.input("x", (), "float64")
    free = mg.while_loop(*grow(10.0), x)
    slope = mg.grad(mg.while_loop(*grow(10.0), x, max_steps=9), x)
    f = mg.function([x], [free, slope])
    expected = f(0.7)
    f.save(tmp_path / "f.mg")
    for again in (pickle.loads(pickle.dumps(f)), mg.load(tmp_path / "f.mg")):
        assert again(0.7) == expected
    graph = load(dump(f.source_graph))
    results = mg.ir.interpret.evaluate(graph, {graph.inputs[0]: np.float64(0.7)})
    assert [results[node] for node in graph.outputs] == expected
    assert f.check(0.7).ok


def test_integer_and_bool_carries_are_exact():
    n = mg.input("n", (), "int64")
    node, odd = mg.while_loop(
        lambda c: c[0] > 0, lambda c: (c[0] - 1, mg.logical_not(c[1])), (n, False)
    )
    f = mg.function([n], [node, odd])
    for k in (0, 1, 4, 7):
        assert f(k)[1] == (k % 2 == 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mg.while_loop(lambda c: c, lambda c: c, 1.0), mg.GraphError,
         "while_loop: the condition returned"),
        (lambda: mg.while_loop(lambda c: c > 0, lambda c: c, mg.zeros((2,))), mg.GraphError,
         "while_loop: the condition returned"),
        (lambda: mg.while_loop(lambda c: c > 0, lambda c: (c, c), 1.0), mg.GraphError,
         "while_loop: the function returned carry[0], carry[1]"),
        (lambda: mg.while_loop(lambda c: c > 0, lambda c: mg.cast(c, "float64"), 1.0),
         mg.DTypeError, "while_loop: carry is float32[] in init, and comes back as float64[]"),
        (lambda: mg.while_loop(lambda c: c[0] is not c[1], lambda c: c, (0, 1)), mg.GraphError,
         "while_loop: the condition returned True, which is so at every step"),
        (lambda: mg.while_loop(lambda c: True, lambda c: c, ()), mg.GraphError,
         "while_loop: init is empty"),
        (lambda: mg.while_loop(lambda c: c > 0, lambda c: c, 1.0, max_steps=-1), mg.ShapeError,
         "while_loop: max_steps=-1"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value).splitlines()[0]
    assert "expected" in str(caught.value)


def test_many_steps_are_cheap():
    """A million steps in one call: no Python runs in between."""
    n = mg.while_loop(lambda c: c < 1_000_000, lambda c: c + 1, 0)
    assert mg.function([], n)() == 1_000_000


def test_values_of_the_interpreter():
    x = mg.var("x", init=np.float64(0.5))
    y = mg.while_loop(*grow(4.0), x, max_steps=12)
    assert_close(*values([mg.grad(y, x)]), 1.5**6)
