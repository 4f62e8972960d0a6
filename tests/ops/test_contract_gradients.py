"""The public face, promise by promise: gradients and optimizers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import magmagraph as mg
from magmagraph.dtypes import tolerance

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def agree(actual: Any, expected: Any, dtype: np.dtype = FLOAT32) -> None:
    """Compare in the tolerance of a dtype."""
    assert tolerance(dtype, "reassoc").close(actual, expected), (actual, expected)


def pair() -> tuple[mg.Node, mg.Node, mg.Node]:
    """Return two float64 inputs and a loss of them."""
    x, y = (mg.var(name, shape=(3,), dtype="float64") for name in "xy")
    return x, y, mg.sum(mg.sin(x) * y**2)


X, Y = np.array([0.1, -0.4, 2.0]), np.array([1.5, 0.5, -1.0])


# Gradients.


def test_grad_has_the_form_of_its_targets() -> None:
    """A node, a list or a dict."""
    x, y, loss = pair()
    one = mg.grad(loss, x)
    several = mg.grad(loss, [x, y])
    by_name = mg.grad(loss, {"x": x, "rest": [y]})
    value, both = mg.value_and_grad(loss, [x, y])
    assert isinstance(one, mg.Node) and isinstance(several, list) and set(by_name) == {"x", "rest"}
    f = mg.function([x, y], {"one": one, "several": several, "named": by_name, "v": [value, both]})
    result = f(X, Y)
    dx, dy = np.cos(X) * Y**2, 2 * np.sin(X) * Y
    for gradient, expected in (
        (result["one"], dx), (result["several"][1], dy), (result["named"]["rest"][0], dy),
        (result["v"][0], (np.sin(X) * Y**2).sum()), (result["v"][1][0], dx),
    ):
        agree(gradient, expected, FLOAT64)


def test_a_gradient_is_a_graph() -> None:
    """It can be differentiated again, any number of times."""
    x = mg.var("x", shape=(), dtype="float64")
    y = mg.sin(x)
    derivatives = []
    for _ in range(5):
        derivatives.append(y)
        y = mg.grad(y, x)
    expected = [np.sin(0.7), np.cos(0.7), -np.sin(0.7), -np.cos(0.7), np.sin(0.7)]
    for value, right in zip(mg.function([x], derivatives)(0.7), expected, strict=True):
        agree(value, right, FLOAT64)


def test_products_with_the_jacobian() -> None:
    """vjp, jvp, jacobian and hessian agree with the mathematics."""
    x, y, loss = pair()
    z = mg.concatenate([mg.sin(x) * y, x[:1]])
    u = np.array([1.0, -2.0, 0.5, 3.0])
    v = np.array([0.2, 0.3, -0.7])
    whole = np.vstack([np.diag(np.cos(X) * Y), [1.0, 0.0, 0.0]])
    f = mg.function(
        [x, y],
        [
            mg.vjp(z, x, u), mg.jvp(z, x, v), mg.jacobian(z, x), mg.hessian(loss, x),
            mg.jacobian(z, [x, y])[1],
        ],
    )
    expected = [u @ whole, whole @ v, whole, np.diag(-np.sin(X) * Y**2),
                np.vstack([np.diag(np.sin(X)), np.zeros(3)])]
    for value, right in zip(f(X, Y), expected, strict=True):
        agree(value, right, FLOAT64)


def test_stop_checkpoint_and_custom_rules() -> None:
    """stop_gradient is constant, checkpoint changes nothing, a custom rule is used."""
    x, y, _ = pair()
    stopped = mg.grad(mg.sum(mg.stop_gradient(x) * x * y), x)
    hidden = mg.checkpoint(mg.exp(mg.sin(x)) * y, [x])
    again = mg.grad(mg.sum(hidden**2), x)

    @mg.custom_gradient
    def clipped(value: mg.Node) -> tuple[mg.Node, Any]:
        return value * 2, lambda cotangent: mg.clip(cotangent, -1, 1)

    custom = mg.grad(mg.sum(clipped(x) * y), x)
    f = mg.function([x, y], [stopped, again, custom])
    inner = np.exp(np.sin(X)) * Y
    for value, right in zip(
        f(X, Y), [X * Y, 2 * inner * inner * np.cos(X), Y.clip(-1, 1)], strict=True
    ):
        agree(value, right, FLOAT64)


def test_what_a_loss_does_not_depend_on() -> None:
    """GradientError names it, unless zeros are asked for."""
    x, y, _ = pair()
    with pytest.raises(mg.GradientError, match="'y'"):
        mg.grad(mg.sum(x), [x, y])
    zeros = mg.grad(mg.sum(x), [x, y], unused="zeros")[1]
    np.testing.assert_array_equal(mg.function([x, y], zeros)(X, Y), np.zeros(3))
    with pytest.raises(mg.GradientError, match="scalar"):
        mg.grad(x * y, x)


def test_kinks_and_ties() -> None:
    """The values of JAX: relu 0 at 0, |x| 1 at 0, ties of maximum halved, of max shared."""
    x = mg.var("x", shape=(3,))
    point = np.array([0.0, -1.0, 0.0], np.float32)
    nodes = [mg.relu(x), abs(x), mg.maximum(x, 0.0), mg.max(x)]
    results = mg.function([x], [mg.grad(mg.sum(node), x) for node in nodes])(point)
    for value, right in zip(
        results, [[0, 0, 0], [1, -1, 1], [0.5, 0, 0.5], [0.5, 0, 0.5]], strict=True
    ):
        agree(value, right)


def test_check_gradients() -> None:
    """Right rules pass; a wrong one is caught and named."""
    x, y, loss = pair()
    assert mg.check_gradients(loss, {x: X, y: Y}).error < 1
    mg.check_gradients(lambda a, b: mg.tanh(a @ b), [np.ones((2, 3)), np.ones((3, 2))])

    @mg.custom_gradient
    def wrong(value: mg.Node) -> tuple[mg.Node, Any]:
        return mg.sin(value), lambda cotangent: cotangent * mg.sin(value)

    with pytest.raises(mg.GradientError, match="the gradient of x"):
        mg.check_gradients(mg.sum(wrong(x)), {x: X})


def test_scipy_objective() -> None:
    """scipy.optimize finds the minimum of Rosenbrock's function, over two variables."""
    a = mg.var("a", init=np.float64(-1.2))
    b = mg.var("b", init=np.array([1.0]))
    loss = mg.sum(100 * (b - a**2) ** 2) + (1 - a) ** 2
    objective = mg.scipy_objective(loss, [a, b])
    np.testing.assert_array_equal(objective.x0, [-1.2, 1.0])
    minimum = optimize.minimize(objective, objective.x0, jac=True, method="BFGS")
    assert minimum.success
    np.testing.assert_allclose(minimum.x, [1.0, 1.0], rtol=np.sqrt(np.finfo(float).eps) * 1e3)
    value, slope = objective(objective.x0)
    exact, gradient = optimize.rosen(objective.x0), optimize.rosen_der(objective.x0)
    agree(value, exact, FLOAT64)
    agree(slope, gradient, FLOAT64)


# Optimizers.


def test_the_first_minimization() -> None:
    """From 5 by 0.05 along 2x, a hundred times: 5 * 0.9**100."""
    x = mg.var("x", init=5.0)
    result = mg.optimizer.GradientDescent(0.05).minimize(
        x**2 + mg.constant(-2.0), [x], steps=100
    )
    assert tolerance(FLOAT32, "reassoc").close(x.value, 5 * 0.9**100, 5 * 0.9**100)
    agree(result.value, -2.0)
    assert result.steps == 100 and not result.converged and len(result.history) == 101
    agree(result.history[:3], [23.0, 25 * 0.81 - 2, 25 * 0.81**2 - 2])


def test_minimize_until_nothing_changes() -> None:
    """tol ends the run early."""
    x = mg.var("x", init=5.0)
    result = mg.optimizer.GradientDescent(0.25).minimize(x**2, [x], steps=500, tol=1e-6)
    assert result.converged and result.steps < 50 and result.value < 1e-6


def test_divergence_keeps_the_last_finite_point() -> None:
    """A loss that turns infinite raises with the step."""
    x = mg.var("x", init=5.0)
    with pytest.raises(mg.DivergedError) as caught, np.errstate(all="ignore"):
        mg.optimizer.GradientDescent(10.0).minimize(x**4, [x], steps=100)
    assert caught.value.step > 0
    assert np.isfinite(x.value) and np.isfinite(float((x**4).eval()))
    with np.errstate(all="ignore"):
        after = np.float32(x.value) - np.float32(10) * 4 * np.float32(x.value) ** 3
        assert not np.isfinite(np.float32(after) ** 4)


def data() -> tuple[mg.Node, mg.Node, mg.Node, mg.Node, mg.Node]:
    """Return inputs, parameters and the loss of a linear regression."""
    x, t = mg.var("x", shape=("batch", 2)), mg.var("t", shape=("batch",))
    W, b = mg.var("W", init=np.zeros(2, np.float32)), mg.var("b", init=0.0)
    return x, t, W, b, mg.mean((x @ W + b - t) ** 2)


INPUT = np.random.default_rng(3).normal(size=(8, 2)).astype(np.float32)
TARGET = (INPUT @ [1.0, -2.0] + 0.5).astype(np.float32)

OPTIMIZERS = {
    "GradientDescent": lambda: mg.optimizer.GradientDescent(0.1),
    "SGD": lambda: mg.optimizer.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "AdaGrad": lambda: mg.optimizer.AdaGrad(0.5),
    "RMSProp": lambda: mg.optimizer.RMSProp(0.02),
    "Adam": lambda: mg.optimizer.Adam(0.1),
    "AdamW": lambda: mg.optimizer.AdamW(0.1, weight_decay=1e-4),
    "LARS": lambda: mg.optimizer.LARS(0.1, trust=0.5),
    "LAMB": lambda: mg.optimizer.LAMB(0.05),
    "clipped by value": lambda: mg.optimizer.SGD(0.1, clip_value=1.0),
    "clipped by norm": lambda: mg.optimizer.Adam(0.1, clip_norm=1.0),
    "step": lambda: mg.optimizer.SGD(mg.schedule.step(0.1, every=100, factor=0.5)),
    "exponential": lambda: mg.optimizer.SGD(mg.schedule.exponential(0.1, decay=0.99)),
    "cosine": lambda: mg.optimizer.SGD(mg.schedule.cosine(0.2, steps=200)),
    "warm-up": lambda: mg.optimizer.SGD(mg.schedule.warmup(10, mg.schedule.constant(0.1))),
    "a function": lambda: mg.optimizer.SGD(lambda step: 0.1 / mg.sqrt(1.0 + step / 100)),
    "a node": lambda: mg.optimizer.SGD(mg.constant(0.1)),
    "accumulating": lambda: mg.optimizer.SGD(0.2, accumulate=2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_learns(name: str) -> None:
    """One compiled update a call lowers the loss by a factor of ten or more."""
    x, t, W, b, loss = data()
    opt = OPTIMIZERS[name]()
    step = opt.step(loss, [W, b], inputs=[x, t], outputs=[loss])
    losses = [float(step(INPUT, TARGET)[0]) for _ in range(200)]
    assert losses[-1] < 0.1 * losses[0], losses[::20]
    assert np.isfinite(opt.learning_rate.value)


def test_updates_compose() -> None:
    """opt.updates is {variable: new value}, to put into a function of one's own."""
    x, t, W, b, loss = data()
    calls = mg.var("calls", init=0)
    updates = mg.optimizer.SGD(0.1).updates(loss, [W, b])
    assert {W, b} <= set(updates)
    f = mg.function([x, t], loss, updates={**updates, calls: calls + 1})
    f(INPUT, TARGET)
    slope = -2 * (INPUT * TARGET[:, None]).mean(axis=0)
    agree(W.value, -0.1 * slope)
    agree(b.value, 0.2 * TARGET.mean())
    assert calls.value == 1


def test_the_rate_is_a_variable() -> None:
    """It can be set between the calls of a compiled step."""
    x = mg.var("x", init=1.0)
    opt = mg.optimizer.GradientDescent(0.5)
    step = opt.step(x * 1.0, [x])
    step()
    agree(x.value, 0.5)
    opt.learning_rate.value = 0.25
    step()
    agree(x.value, 0.25)


def test_groups_have_rates_of_their_own() -> None:
    """Each group overrides the settings that it names."""
    a, b = mg.var("a", init=1.0), mg.var("b", init=1.0)
    opt = mg.optimizer.SGD(0.1)
    step = opt.step(a + b, [{"wrt": [a]}, {"wrt": [b], "learning_rate": 0.5}])
    step()
    agree([a.value, b.value], [0.9, 0.5])


def test_clipping_by_the_global_norm() -> None:
    """Gradients (3, 4) of norm 5 become of norm 1."""
    a, b = mg.var("a", init=0.0), mg.var("b", init=0.0)
    mg.optimizer.SGD(1.0, clip_norm=1.0).step(3 * a + 4 * b, [a, b])()
    agree([a.value, b.value], [-0.6, -0.8])
    mg.optimizer.SGD(1.0, clip_value=1.0).step(3 * a - 0.5 * b, [a, b])()
    agree([a.value, b.value], [-1.6, -0.3])


def test_a_custom_optimizer_is_one_method() -> None:
    """update(variable, gradient, state) -> new value, nodes in and nodes out."""

    class SignDescent(mg.optimizer.Optimizer):
        """Step by the sign of a decaying sum of gradients."""

        def update(self, variable: mg.Node, gradient: mg.Node, state: Any) -> mg.Node:
            total = state.zeros("total") * 0.5 + gradient
            state["total"] = total
            return variable - state.learning_rate * mg.sign(total)

    x = mg.var("x", init=3.0)
    result = SignDescent(0.5).minimize(x**2, [x], steps=6)
    agree(x.value, 0.0)
    assert result.steps == 6


def test_plateau_lowers_the_rate() -> None:
    """A metric that stops improving lowers the rate of a compiled step."""
    x = mg.var("x", init=1.0)
    rate = mg.schedule.plateau(0.5, factor=0.1, patience=1)
    opt = mg.optimizer.SGD(rate)
    step = opt.step(x * 1.0, [x])
    for metric in (1.0, 1.0, 1.0):
        rate.report(metric)
    agree(opt.learning_rate.value, 0.05)
    step()
    agree(x.value, 0.95)


@mg.custom_gradient
def doubled(x: mg.Node) -> Any:
    """Return the sign, with twice the cotangent as its gradient."""
    return mg.sign(x), lambda cotangent: cotangent * 2.0


def plain(x: mg.Node) -> Any:
    """Return the sign, with thrice the cotangent as its gradient."""
    return mg.sign(x), lambda cotangent: cotangent * 3.0


def test_custom_gradients_pickle_by_name() -> None:
    """The rule of a function of a module survives; another says why it cannot."""
    x = mg.var("x", init=np.array([-0.5, 2.0], np.float32))
    for function, factor in ((doubled, 2.0), (mg.custom_gradient(plain), 3.0)):
        restored, y = pickle.loads(pickle.dumps((x, function(function(x) * 5.0))))
        agree(mg.grad(mg.sum(y), restored).eval(), np.full(2, 5 * factor**2))

    def local(x: mg.Node) -> Any:
        return mg.sign(x), lambda cotangent: cotangent

    for function, name in ((local, local.__qualname__), (lambda x: local(x), "<lambda>")):
        node = mg.custom_gradient(function)(x)
        with pytest.raises(pickle.PicklingError) as caught:
            pickle.dumps(node)
        assert name in str(caught.value)
        assert str(caught.value).startswith("the gradient rule of ")
        assert str(caught.value).endswith(
            "\n  try: define it with def at the level of a module"
        )
        agree(copy.deepcopy(node).eval(), [-1.0, 1.0])
