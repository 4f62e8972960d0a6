"""Python functions of arrays: traced, compiled, differentiated, as users of JAX write them."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import magmagraph as mg

X = np.arange(1.0, 5.0)


def test_a_function_of_arrays_runs_for_all_sizes_with_one_trace():
    seen = []

    @mg.jit(sizes="any")
    def f(x, y, *, scale=1.0):
        seen.append(x.shape)
        return x * y * scale, {"sums": [mg.sum(x), 3.0]}

    for size in (4, 7, 2):
        x = np.arange(float(size))
        product, rest = f(x, 2.0)
        np.testing.assert_array_equal(product, 2 * x)
        assert rest["sums"][0] == x.sum() and rest["sums"][1] == 3.0
    assert len(seen) == f.traces == 1
    f(np.arange(4, dtype=np.float32), 2.0)  # another dtype
    f(np.ones(1), 2.0)  # an extent of 1 broadcasts
    f(X, X[:1])
    assert f.traces == 4
    np.testing.assert_array_equal(f(X, 2.0, scale=3)[0], 6 * X)
    assert f.__name__ == "f" and f.function(X, 2.0).inputs[1].name == "y"


def test_sizes_that_python_needs_are_traced_one_by_one():
    @mg.jit(sizes="any")
    def total(x):
        found = 0.0
        for i in range(x.shape[0]):
            found = found + x[i]
        return found

    assert [total(np.ones(size)) for size in (3, 4, 3)] == [3.0, 4.0, 3.0]
    assert total.traces == 3  # one without a size, and one for each of two
    window = np.ones((1, 1, 3, 3), np.float32)
    assert mg.jit(mg.conv2d)(np.ones((1, 1, 5, 5), np.float32), window).shape == (1, 1, 3, 3)

    @mg.jit
    def by_size(x):
        return x * 2.0 if x.shape[0] == 3 else x

    assert by_size(np.ones(3))[0] == 2.0 and by_size(np.ones(4))[0] == 1.0


def test_python_values_are_given_as_they_are():
    @mg.jit(static=("axis", "times"))
    def f(x, axis, times=1, flag=False, kind="sum"):
        found = getattr(mg, kind)(x, axis)
        for _ in range(times):
            found = found * 2.0
        return -found if flag else found

    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(f(x, 1), 2 * x.sum(1))
    np.testing.assert_array_equal(f(x, (0, 1), times=3), 8 * x.sum())
    np.testing.assert_array_equal(f(x, axis=0, flag=True, kind="max"), -2 * x.max(0))
    assert f.traces == 3
    with pytest.raises(mg.ArgumentError, match="axis is list, which is not hashable"):
        f(x, [0])


def test_forms_numbers_and_lists_of_arguments():
    point = namedtuple("point", "a b")
    swapped = mg.jit(lambda p: point(p.b, p.a))(point(1.0, X))
    assert type(swapped) is point and swapped.b == 1.0
    lists = mg.jit(lambda parts: [part * 2.0 for part in parts])([X, X[:2]])
    assert [len(part) for part in lists] == [4, 2]
    assert mg.jit(lambda x: x * 2.0)([1, 2, 3]).tolist() == [2.0, 4.0, 6.0]
    # Numbers have the digits of the arrays beside them.
    scaled = mg.jit(lambda x, rate: x * rate)
    assert scaled(X, 0.1).tolist() == (X * 0.1).tolist()
    assert scaled(X.astype(np.float32), 0.1).dtype == np.float32
    assert scaled(X, 2**40)[0] == 2.0**40
    assert mg.jit(lambda z: z * 1j)(1j) == -1
    assert mg.jit(lambda x: None)(X) is None
    assert mg.jit(lambda m, x: mg.where(m, x, 0.0))(X > 2, X).tolist() == [0, 0, 3, 4]


def test_variables_methods_and_random_numbers():
    w = mg.var("w", init=3.0)
    scaled = mg.jit(lambda x: x * w)
    assert scaled(2.0) == 6.0
    w.assign(np.float32(5.0))
    assert scaled(2.0) == 10.0 and scaled.traces == 1
    draw = mg.jit(lambda s: s * mg.random.normal((2,)))
    assert draw(1.0).tolist() != draw(1.0).tolist()

    class Line:
        slope = 3.0

        @mg.jit
        def at(self, x):
            return self.slope * x

    assert Line().at(X).tolist() == (3 * X).tolist()
    net = mg.NeuralNetwork([mg.nn.Input((4,)), mg.nn.Dense(2)])
    np.testing.assert_allclose(mg.jit(net)(X[None].astype("f4")), net.predict(X[None]), rtol=1e-6)


def test_nodes_among_the_arguments_give_nodes():
    inner = mg.jit(lambda x: x + 1.0)
    outer = mg.jit(lambda x: inner(x) * 2.0)
    assert outer(X).tolist() == (2 * (X + 1)).tolist() and inner.traces == 0
    x = mg.var("x", init=X)
    assert inner(x).eval().tolist() == (X + 1).tolist()


def test_gradients_of_functions():
    def loss(params, x):
        return mg.sum((params["w"] * x + params["b"]) ** 2)

    params = {"w": np.full(4, 0.5), "b": 1.0}
    gradients = mg.grad(loss)(params, X)
    residual = 0.5 * X + 1
    np.testing.assert_allclose(gradients["w"], 2 * residual * X)
    np.testing.assert_allclose(gradients["b"], 2 * residual.sum())
    value, slopes = mg.value_and_grad(loss, (0, 1))(params, X)
    np.testing.assert_allclose(value, (residual**2).sum())
    np.testing.assert_allclose(slopes[1], residual)
    assert mg.grad(mg.grad(lambda x: x**3))(2.0) == 12.0
    assert mg.jit(mg.vmap(mg.grad(lambda x: x**2)))(X).tolist() == (2 * X).tolist()
    # A node that is given twice is two arguments.
    x = mg.var("x", init=X)
    assert mg.grad(lambda a, b: mg.sum(a * b))(x, x).eval().tolist() == X.tolist()
    step = mg.jit(lambda p: p - 0.1 * mg.grad(lambda q: mg.sum(q**2))(p))
    np.testing.assert_allclose(step(X), 0.8 * X)


@pytest.mark.parametrize(
    ("tried", "error", "said"),
    [
        (lambda: mg.jit(lambda x: x if mg.sum(x) > 0 else -x)(X), mg.ArgumentError, "mg.where"),
        (lambda: mg.jit(lambda x: float(x))(1.0), mg.ArgumentError, "float() of a node"),
        (lambda: mg.jit(lambda x: np.sin(x))(X), mg.ArgumentError, "mg.sin()"),
        (lambda: mg.jit(lambda x, axis: mg.sum(x, axis))(X, 0), mg.DTypeError, "axis"),
        (lambda: mg.jit(lambda x: "text")(X), mg.DTypeError, "'text'"),
        (lambda: mg.jit(lambda x, y: x + y)(X, X[:3]), mg.ShapeError, "extents 4 and 3"),
        (lambda: mg.jit(lambda x, y: x)(X), mg.ArgumentError, "missing a required argument: 'y'"),
        (lambda: mg.jit(lambda x: x)({1, 2}), mg.ArgumentError, "x is set"),
        (lambda: mg.jit(lambda x: x, static="y"), mg.ArgumentError, "arguments of <lambda>: x"),
        (lambda: mg.jit(lambda x: x, sizes="all"), mg.ConfigError, "'exact' or 'any'"),
        (lambda: mg.jit(lambda x: x, updates={}), mg.ArgumentError, "no argument 'updates'"),
        (lambda: mg.jit(mg.var("x", (2,))), mg.ArgumentError, "mg.function(inputs, outputs)"),
        (lambda: mg.function(lambda x: x), mg.ArgumentError, "try: mg.jit, of a Python function"),
        (lambda: mg.jacobian(lambda x: x), mg.ArgumentError, "mg.jit(lambda x: mg.jacobian("),
        (lambda: mg.grad(lambda x: x * 2.0)(X), mg.GradientError, "is not a scalar"),
        (lambda: mg.grad(lambda x: x, 3)(1.0), mg.ArgumentError, "of argument 3, and 1"),
        (lambda: mg.grad(lambda x: x, argnums=0), mg.ArgumentError, "try: wrt="),
        (lambda: mg.grad(mg.sum(mg.var("x", init=X))), mg.ArgumentError, "'wrt'"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_says_why(tried, error, said):
    with pytest.raises(error) as caught:
        tried()
    assert said in str(caught.value)


def test_an_error_within_the_function_says_that_it_is_traced():
    with pytest.raises(mg.ArgumentError) as caught:
        mg.jit(lambda x: x if x > 0 else -x)(1.0)
    assert "mg.jit calls <lambda> with nodes" in caught.value.__notes__[0]
