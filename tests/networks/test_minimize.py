"""Minimizations, their divergence, and what is saved of an optimizer."""

import copy
import pickle

import numpy as np
import pytest
from reference_rules import RULES, STEPS, Rule, close, loss_of, variables

import magmagraph as mg
from magmagraph.dtypes import canonical, tolerance

opt = mg.optimizer


class TestStateDict:
    @pytest.mark.parametrize("name", ["momentum", "Adam", "RMSProp, all options"])
    def test_continues_where_it_stopped(self, name):
        make, rule = RULES[name]
        v = variables()
        optimizer = make()
        step = optimizer.step(loss_of(v), v)
        for _ in range(4):
            step()
        saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
        again = {n: mg.var(n, init=held.value) for n, held in v.items()}
        other = make()
        other.load_state_dict(saved)
        step = other.step(loss_of(again), again)
        for _ in range(STEPS - 4):
            step()
        close(again, Rule(rule).run(), scale=1e4)

    @pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
    def test_optimizer_and_variables_copied_together(self, duplicate):
        """The copy goes its own way from the same point."""
        w = mg.var("w", init=np.float64(0.0))
        optimizer = opt.SGD(mg.schedule.step(1.0, every=2, factor=0.5), momentum=0.5)
        optimizer.step(-w, w)()
        other, copied = duplicate((optimizer, w))
        other.step(-copied, copied)()
        assert (w.value, copied.value) == (1.0, 1.0 + 1.5)
        optimizer.step(-w, w)()
        assert w.value == copied.value
        assert other.state_dict() == optimizer.state_dict()

    def test_names_are_the_same_in_each_run(self):
        names = []
        for _ in range(2):
            v = variables()
            optimizer = opt.Adam(mg.schedule.constant(0.1))
            optimizer.updates(loss_of(v), v)
            names.append(list(optimizer.state_dict()))
        assert names[0] == names[1]
        assert set(names[0]) == {"learning_rate", "step", "w/m", "w/v", "b/m", "b/v"}


class TestMinimize:
    def test_parabola(self):
        x = mg.var("x", init=5.0)
        result = opt.GradientDescent(0.05).minimize(x**2 + mg.constant(-2.0), [x], steps=100)
        right = 5 * 0.9**100
        assert tolerance(canonical("float32"), "reassoc").close(x.value, right, right)
        assert (result.steps, result.converged, len(result.history)) == (100, False, 101)
        assert result.history[0] == 23.0
        assert result.value == result.history[-1] == pytest.approx(-2.0)

    def test_stops_at_the_tolerance(self):
        x = mg.var("x", init=np.float64(5.0))
        result = opt.SGD(0.05).minimize(x**2, x, steps=1000, tol=1e-6)
        assert result.converged
        assert result.steps < 200
        assert abs(result.history[-2] - result.history[-3]) < 1e-6

    def test_feeds(self):
        x, y = mg.var("x", init=np.zeros(2)), mg.var("y", shape=("n",), dtype="float64")
        opt.SGD(0.5).minimize(mg.sum((x - y) ** 2), x, feeds={y: np.array([1.0, 2.0])}, steps=1)
        assert np.array_equal(x.value, [1.0, 2.0])

    def test_no_steps(self):
        x = mg.var("x", init=3.0)
        result = opt.SGD(0.5).minimize(x**2, x, steps=0)
        assert (result.value, result.steps, result.history) == (9.0, 0, (9.0,))

    def test_callback_stops(self):
        x, seen = mg.var("x", init=3.0), []

        def stop(step, loss):
            seen.append((step, loss))
            return step == 2

        assert opt.SGD(0.0).minimize(x**2, x, callback=stop).steps == 3
        assert seen == [(0, 9.0), (1, 9.0), (2, 9.0)]

    @pytest.mark.parametrize("rule", ["plain", "Adam"])
    def test_divergence_leaves_the_last_good_point(self, rule):
        """The loss is infinite from 2 on; the optimizer's own variables go back, too."""
        x = mg.var("x", init=np.float64(0.0))
        loss = -mg.where(x < 2.5, x, np.inf)
        optimizer = opt.SGD(1.0) if rule == "plain" else opt.Adam(1.0)
        with pytest.raises(mg.DivergedError) as caught:
            optimizer.minimize(loss, x, steps=50)
        name = type(optimizer).__name__
        assert caught.value.step == 3
        assert str(caught.value) == (
            f"{name}: the loss is -inf at step 3; the variables hold the point of the last "
            "finite loss\n  expected: finite losses\n"
            "  try: a smaller learning rate, or clip_norm="
        )
        assert x.value == pytest.approx(2.0)
        if rule == "Adam":
            assert optimizer.state["step"].value == 2

    def test_divergence_in_the_last_step(self):
        x = mg.var("x", init=np.float64(0.0))
        with pytest.raises(mg.DivergedError) as caught:
            opt.SGD(1.0).minimize(mg.where(x < 2.5, -x, np.nan), x, steps=3)
        assert caught.value.step == 3
        assert x.value == 2.0

    def test_divergence_at_the_start(self):
        x = mg.var("x", init=np.float64(-1.0))
        with pytest.raises(mg.DivergedError) as caught:
            opt.SGD(1.0).minimize(mg.log(x), x)
        assert caught.value.step == 0
        assert "the loss is nan at the point where it begins" in str(caught.value)
        assert "try: another start" in str(caught.value)
        assert x.value == -1.0

    def test_rosenbrock(self):
        x = mg.var("x", init=np.array([-1.2, 1.0]))
        a, b = mg.take(x, 0), mg.take(x, 1)
        loss = (1.0 - a) ** 2 + 100.0 * (b - a**2) ** 2
        opt.Adam(0.05).minimize(loss, x, steps=3000)
        assert x.value == pytest.approx([1.0, 1.0], abs=1e-3)


class TestScipy:
    def test_minimizes(self):
        scipy_optimize = pytest.importorskip("scipy.optimize")
        v = {"w": mg.var("w", init=np.zeros((2, 2))), "b": mg.var("b", init=np.float64(1.0))}
        target = np.array([[1.0, 2.0], [3.0, 4.0]])
        loss = mg.sum((v["w"] - target) ** 2) + (v["b"] + 3.0) ** 2
        fun, x0 = mg.scipy_objective(loss, v)
        assert np.array_equal(x0, [0.0, 0.0, 0.0, 0.0, 1.0])
        value, slope = fun(x0)
        assert value == 30.0 + 16.0
        assert np.array_equal(slope, [-2.0, -4.0, -6.0, -8.0, 8.0])
        result = scipy_optimize.minimize(fun, x0, jac=True)
        arrays = fun.unflatten(result.x)
        assert np.allclose(arrays["w"], target, atol=1e-5)
        fun.assign(result.x)
        assert v["b"].value == pytest.approx(-3.0)

    def test_second_derivatives_for_newton(self, rng):
        scipy_optimize = pytest.importorskip("scipy.optimize")
        v = {"w": mg.var("w", init=np.array([-1.2, 1.0])), "s": mg.var("s", init=np.eye(2) * 2)}
        scale = mg.var("scale", shape=(), dtype="float64")
        valley = scale * (v["w"][1] - v["w"][0] ** 2) ** 2 + (1.0 - v["w"][0]) ** 2
        loss = valley + mg.sum((v["s"] @ v["s"].T - np.eye(2)) ** 2) * (1.0 + v["w"][0] ** 2)
        fun = mg.scipy_objective(loss, v, {"scale": 100.0})
        point = rng.normal(size=6)
        matrix = np.stack([fun.hessp(point, unit) for unit in np.eye(6)])
        assert np.array_equal(fun.x0, point)  # it moves the variables, as a call does
        near = 1e-5
        differences = [(fun(point + near * u)[1] - fun(point - near * u)[1]) / (2 * near)
                       for u in np.eye(6)]
        assert np.abs(matrix - differences).max() < 1e-6 * np.abs(matrix).max()
        for method in ("Newton-CG", "trust-ncg"):
            found = scipy_optimize.minimize(
                fun, np.array([-1.2, 1.0, 2.0, 0.1, 0.0, 1.5]), jac=True, hessp=fun.hessp,
                method=method,
            )
            assert found.fun < 1e-6
        with pytest.raises(mg.GradientError, match="the vector has shape"):
            fun.hessp(point, np.zeros(5))

    def test_feeds_and_errors(self):
        w, x = mg.var("w", init=1.0), mg.var("x", shape=())
        fun = mg.scipy_objective(w * x, [w], {x: 5.0})
        assert fun(np.array([2.0])) == (10.0, np.array([5.0]))
        with pytest.raises(mg.GradientError, match="the vector has shape"):
            fun(np.zeros(3))
        with pytest.raises(mg.GradientError, match=r"scipy_objective: wrt\[0\] is 'x'"):
            mg.scipy_objective(w * x, [x])


def test_inputs_without_values():
    """An input of the loss that is not fed is named, before anything moves."""
    d, w = mg.var("d", shape=("n",)), mg.var("w", init=1.0)
    with pytest.raises(mg.FeedError, match="'d'.*not fed") as caught:
        mg.optimizer.SGD(0.1).minimize(mg.mean((d - w) ** 2), [w], steps=2)
    assert "feeds={d: array}" in str(caught.value)
    assert w.value == 1.0


@pytest.mark.parametrize(
    ("option", "value", "need"),
    [("steps", -1, "steps >= 0"), ("steps", 1.5, "an int"), ("steps", None, "an int"),
     ("tol", "x", "a number"), ("tol", -1.0, "tol >= 0")],
)  # fmt: skip
def test_steps_and_tolerances_that_mean_nothing(option, value, need):
    x = mg.var("x", init=5.0)
    with pytest.raises(mg.ConfigError, match=rf"minimize: {option}=.*\n  expected: .*{need}"):
        mg.optimizer.SGD(0.1).minimize(x * x, [x], **{option: value})
    assert x.value == 5.0


def test_feeds_by_name_and_what_names_no_input() -> None:
    w = mg.var("w", init=np.float64(0.0))
    x, other = mg.input("x", ("n",), "float64"), mg.input("other", (), "float64")
    loss = mg.mean((x - w) ** 2)
    rule = opt.SGD(0.25)
    by_name = rule.minimize(loss, [w], feeds={"x": [1.0, 3.0]}, steps=1)
    assert w.value == 1.0 and by_name.history == (5.0, 2.0)
    for feeds, said in (
        ([[1.0]], "feeds is a list"),
        ({"y": [1.0]}, "'y' names no one input of the loss"),
        ({"x": [1.0], x: [1.0]}, "or is fed twice"),
        ({3: [1.0], x: [1.0]}, "3 names no one input"),
        ({}, "the loss reads the input 'x'"),
    ):
        with pytest.raises(mg.FeedError, match=said):
            rule.minimize(loss, [w], feeds=feeds, steps=1)
        with pytest.raises(mg.FeedError, match=f"^scipy_objective: .*{said}"):
            mg.scipy_objective(loss, [w], feeds)
    assert mg.scipy_objective(loss, [w], {"x": [1.0, 3.0]})(np.zeros(1))[0] == 5.0
    w.value = 1.0
    twice = mg.mean((x - w) ** 2) + mg.mean(mg.input("x", (2,), "float64"))
    with pytest.raises(mg.FeedError, match="'x' names no one input"):
        rule.minimize(twice, [w], feeds={"x": [1.0, 3.0]}, steps=1)
    rule.minimize(loss, [w], feeds={x: [1.0], other: 1.0}, steps=1)
    assert w.value == 1.0


def test_limits_are_shown() -> None:
    assert repr(opt.SGD(0.1)).endswith("weight_decay=0.0)")
    shown = repr(opt.SGD(0.1, clip_norm=mg.constant(2.0), clip_value=1.0, accumulate=4))
    assert shown.endswith(
        "weight_decay=0.0, clip_value=1.0, clip_norm=<constant float32[]>, accumulate=4)"
    )
