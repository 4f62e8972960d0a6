"""`mg.cond` and `mg.switch`: the branch taken, its gradient, and nothing of the others."""

import pickle

import numpy as np
import pytest
from interpreted import assert_close, value

import magmagraph as mg
from magmagraph.text.reading import load
from magmagraph.text.writing import dump


def test_the_branch_taken_alone_runs_and_is_differentiated():
    x = mg.input("x", (), "float64")
    y = mg.cond(x > 0.0, lambda: mg.log(x), lambda: x * 2.0)
    f = mg.function([x], [y, mg.grad(y, x), mg.hessian(y, x)])
    for point, expected in ((2.0, (np.log(2.0), 0.5, -0.25)), (-1.0, (-2.0, 2.0, 0.0)),
                            (0.0, (0.0, 2.0, 0.0))):
        for result, expected_value in zip(f(point), expected, strict=True):
            assert_close(result, expected_value)
        assert_close(value(y, {x: point}), expected[0])


def test_nan_of_the_other_branch_leaks_nowhere():
    """With `where` the gradient at 0 is NaN: 0 times infinity."""
    x = mg.var("x", init=np.zeros(3))
    leaking = mg.where(mg.sum(x) > 0.0, mg.sum(mg.sqrt(x)), mg.sum(x))
    assert np.isnan(mg.grad(leaking, x).eval()).all()
    for y in (
        mg.cond(mg.sum(x) > 0.0, lambda v: mg.sum(mg.sqrt(v)), mg.sum, x),
        mg.cond(mg.sum(x) > 0.0, lambda: mg.sum(mg.sqrt(x)), lambda: mg.sum(x)),
    ):
        assert mg.grad(y, x).eval().tolist() == [1.0, 1.0, 1.0]
        slope = mg.grad(y, x)
        assert mg.grad(mg.sum(slope), x, unused="zeros").eval().tolist() == [0.0, 0.0, 0.0]


def test_what_only_the_other_branch_needs_is_not_computed():
    """A factorization that would raise stands in the branch that is not taken."""
    A = mg.input("A", (2, 2), "float64")
    y = mg.cond(
        mg.linalg.det(A) > 0.0, lambda: mg.linalg.cholesky(A)[0, 0], lambda: mg.sum(A) * 0.0 - 1.0
    )
    f = mg.function([A], y)
    assert f(np.diag([4.0, 1.0])) == 2.0
    assert f(np.diag([4.0, -1.0])) == -1.0


def test_operands_closure_and_nested_results(rng):
    w = mg.var("w", init=rng.normal(size=3))
    p = mg.input("p", (), "bool")
    x = mg.input("x", (3,), "float64")
    outside = mg.exp(w)

    def one(v, scale):
        return {"a": v * w * scale, "b": (mg.sum(v) * outside,)}

    def two(v, scale):
        return {"a": outside + v, "b": (scale * v,)}

    parts = mg.cond(p, one, two, x, 2.0)
    loss = mg.sum(parts["a"] ** 2) + mg.sum(parts["b"][0])
    f = mg.function([p, x], [loss, *mg.grad(loss, [w, x])])
    feed = rng.normal(size=3)
    for flag, branch in ((True, one), (False, two)):
        plain = branch(x, 2.0)
        expected = mg.sum(plain["a"] ** 2) + mg.sum(plain["b"][0])
        g = mg.function([x], [expected, *mg.grad(expected, [w, x])])
        for result, expected_value in zip(f(flag, feed), g(feed), strict=True):
            assert_close(result, expected_value, scale=10.0)


def test_switch_clamps():
    k = mg.input("k", (), "int64")
    y = mg.switch(k, [lambda v: v, lambda v: v * 10.0, lambda v: v * 100.0], 1.5)
    f = mg.function([k], y)
    assert [float(f(i)) for i in (-(2**40), -1, 0, 1, 2, 3, 2**40)] == [
        1.5, 1.5, 1.5, 15.0, 150.0, 150.0, 150.0
    ]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64"])
def test_index_of_any_dtype(dtype):
    k = mg.input("k", (), dtype)
    f = mg.function([k], mg.switch(k, [lambda: 0.0, lambda: 1.0, lambda: 2.0]))
    top = np.iinfo(dtype).max
    assert [float(f(np.array(i, dtype))) for i in (0, 1, 2, top)] == [0.0, 1.0, 2.0, 2.0]
    if np.iinfo(dtype).min:
        assert f(np.array(-1, dtype)) == 0.0


def test_vmap_of_either_sort(rng):
    x = mg.constant(rng.normal(size=(5, 3)))
    p = mg.input("p", (), "bool")
    shared = mg.vmap(lambda row: mg.cond(p, mg.sum, mg.prod, row))(x)
    assert_close(shared.eval({p: True}), x.eval().sum(axis=1))
    assert_close(shared.eval({p: False}), x.eval().prod(axis=1))
    a = mg.var("a", init=np.array([4.0, -1.0, 0.0]))
    own = mg.vmap(lambda v: mg.cond(v > 0.0, mg.sqrt, lambda u: -u, v))(a)
    assert own.eval().tolist() == [2.0, 1.0, 0.0]
    assert mg.grad(mg.sum(own), a).eval().tolist() == [0.25, -1.0, -1.0]


def test_inside_of_a_scan_in_one_call(rng):
    """A branch in a loop is part of the loop's program."""
    x = rng.normal(size=12)
    w = mg.var("w", init=np.float64(0.5))

    def step(c, row):
        c = mg.cond(row > 0.0, lambda: c + row * w, lambda: c * w)
        return c, c

    last, ys = mg.scan(step, mg.constant(np.float64(0.0)), x)
    f = mg.function([], [last, ys, mg.grad(last, w)])
    results = f()
    c, d = 0.0, 0.0
    for i, row in enumerate(x):
        c, d = (c + row * 0.5, d + row) if row > 0 else (c * 0.5, d * 0.5 + c)
        assert_close(results[1][i], c)
    assert_close(results[2], d)


def test_forward_mode_and_jacobian():
    x = mg.var("x", init=np.array([1.0, 2.0]))
    y = mg.cond(x[0] > 0.0, lambda v: v**2, lambda v: v, x)
    assert_close(mg.jvp(y, x, np.array([1.0, 10.0])).eval(), [2.0, 40.0])
    assert_close(mg.jacobian(y, x).eval(), np.diag([2.0, 4.0]))


def test_random_in_branches():
    p = mg.input("p", (), "bool")
    y = mg.cond(p, lambda: mg.random.uniform((3,)), lambda: mg.random.uniform((3,)) + 10.0)
    f = mg.function([p], y)
    assert (f(True) < 1.0).all() and (f(False) >= 10.0).all()
    assert not np.array_equal(f(True), f(True))


def test_text_pickle_save(tmp_path):
    x = mg.input("x", (), "float64")
    y = mg.cond(x > 0.0, mg.log, lambda v: v * 2.0, x)
    f = mg.function([x], [y, mg.grad(y, x)])
    expected = f(3.0)
    f.save(tmp_path / "f.mg")
    for again in (pickle.loads(pickle.dumps(f)), mg.load(tmp_path / "f.mg")):
        assert again(3.0) == expected
    graph = load(dump(f.source_graph))
    results = mg.ir.interpret.evaluate(graph, {graph.inputs[0]: np.float64(3.0)})
    assert [results[node] for node in graph.outputs] == expected
    assert f.check(3.0).ok and f.check(-3.0).ok
    assert "branch" in str(f.plan)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: mg.cond(mg.zeros((2,)) > 0, lambda: 1.0, lambda: 2.0), mg.ShapeError,
         "cond: the predicate is"),
        (lambda: mg.cond(1.0, lambda: 1.0, lambda: 2.0), mg.DTypeError, "cond: the predicate is"),
        (lambda: mg.cond(True, lambda: 1.0, lambda: (1.0, 2.0)), mg.GraphError,
         "cond: false_function returned result[0], result[1], and true_function result"),
        (lambda: mg.cond(True, lambda: 1, lambda: 2.0), mg.DTypeError,
         "cond: result is float32[] of false_function, and int32[] of true_function"),
        (lambda: mg.cond(True, lambda: mg.zeros((2,)), lambda: mg.zeros((3,))), mg.ShapeError,
         "cond: result is float32[3] of false_function, and float32[2] of true_function"),
        (lambda: mg.switch(1.5, [lambda: 1.0]), mg.DTypeError, "switch: the index is"),
        (lambda: mg.switch(0, []), mg.GraphError, "switch: there are no branches"),
        (lambda: mg.switch(0, [lambda: ()]), mg.GraphError, "switch: branches[0] returned nothing"),
    ],
)
def test_what_is_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value).splitlines()[0]
    assert "expected" in str(caught.value)


def test_the_mend_of_shapes_that_differ_spreads_the_smaller_one():
    x = mg.var("x", shape=("n", 3))
    for sides in ((lambda: x, lambda: mg.sum(x)), (lambda: mg.sum(x), lambda: x)):
        with pytest.raises(mg.ShapeError, match=r"try: mg\.broadcast_to\(x, \(n, 3\)\)"):
            mg.cond(mg.sum(x) > 0, *sides)
