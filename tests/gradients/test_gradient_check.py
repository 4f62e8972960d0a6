"""The comparison with central differences, on right and on wrong gradients."""

import numpy as np
import pytest

import magmagraph as mg


def test_right_gradients_of_a_function():
    point = (np.array([[0.3, -0.4], [0.5, 1.1]]), np.array([0.7, 0.9]))
    report = mg.check_gradients(lambda a, b: mg.tanh(a * b) + mg.exp(b), point)
    assert [(t.name, t.compared) for t in report.targets] == [("argument 0", 4), ("argument 1", 2)]
    assert report.error < 1e-8
    assert "argument 1: 2 of 2 elements" in str(report)


def test_node_in_float32_is_checked_in_float64(rng):
    x = mg.var("x", shape=("batch", 3))
    w = mg.var("w", init=rng.normal(size=3).astype(np.float32))
    n = mg.var("n", shape=("batch",), dtype="int32")
    loss = mg.mean(mg.sum(mg.sin(x * w), axis=1) * mg.cast(n, "float32"))
    report = mg.check_gradients(loss, {x: rng.normal(size=(4, 3)), n: np.arange(4)})
    assert {t.name for t in report.targets} == {"x", "w"}
    assert report.error < 1e-9


def test_compiled_functions_are_checked(rng):
    x = mg.var("x", shape=("n", 3))
    w = mg.var("w", init=np.ones((3, 2), np.float32))
    f = mg.function([x], mg.sum(mg.tanh(x @ w)), updates={w: w * 0.5})
    point = rng.normal(size=(4, 3))
    for given in (point, (point,), [point], {x: point}, {"x": point}):
        report = mg.check_gradients(f, given)
        assert [t.name for t in report.targets] == ["x", "w"]
        assert report.error < 1e-8
    assert [t.name for t in mg.check_gradients(f, point, wrt=[w]).targets] == ["w"]
    assert w.value[0, 0] == 1.0
    y = mg.var("y", shape=(3,))
    both = mg.function([x, y], {"loss": mg.sum(x * y)})
    assert mg.check_gradients(both, (point, point[0])).error < 1e-8
    with pytest.raises(mg.GradientError, match="1 values for 2 inputs"):
        mg.check_gradients(both, (point,))
    with pytest.raises(mg.GradientError, match="there is no input named 'z'"):
        mg.check_gradients(both, {"x": point, "z": point})
    with pytest.raises(mg.GradientError, match="the function has 2 outputs"):
        mg.check_gradients(mg.function([x], [x, x * 2]), point)


def test_values_of_variables_can_be_given():
    w = mg.var("w", init=0.0)
    report = mg.check_gradients(w**3, {w: 2.0})
    assert report.targets[0].gradient == pytest.approx(12.0)


def test_at_most_so_many_elements():
    report = mg.check_gradients(lambda x: mg.sum(x**2), np.linspace(0, 1, 100), elements=7)
    assert (report.targets[0].compared, report.targets[0].elements) == (7, 100)


@mg.custom_gradient
def wrong(x):
    return x**2, lambda cotangent: cotangent * 3.0 * x


def test_wrong_gradient_is_named():
    with pytest.raises(mg.GradientError) as caught:
        mg.check_gradients(lambda x: mg.sum(wrong(x) * np.array([0.0, 1.0])), np.array([5.0, 1.0]))
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(
        "check_gradients: the gradient of argument 0 at [1] is 3, the central difference 2"
    )
    assert rest[-1].startswith("  try: a point away from kinks")


def test_wrong_gradient_of_a_named_target():
    x = mg.var("x", shape=())
    with pytest.raises(mg.GradientError, match=r"the gradient of x at \[\] is 6"):
        mg.check_gradients(wrong(x), {x: 2.0})


def test_target_without_gradient_is_compared_with_zero():
    x = mg.var("x", init=1.0)
    with pytest.raises(mg.GradientError, match=r"gradient of x at \[\] is 0, .* difference 1"):
        mg.check_gradients(mg.stop_gradient(x) * 1.0, {}, wrt=[x])


def test_missing_value():
    x = mg.var("x", shape=())
    with pytest.raises(mg.GradientError) as caught:
        mg.check_gradients(x * 2.0, {})
    assert str(caught.value) == (
        "check_gradients: input 'x' has no value\n  expected: a value in point for every input"
    )


def test_integer_result():
    with pytest.raises(mg.GradientError, match="the result is int32"):
        mg.check_gradients(lambda x: mg.cast(x, "int32"), 1.0)
