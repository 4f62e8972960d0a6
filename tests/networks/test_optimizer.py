"""Optimizers against their formulas in NumPy, and everything around the rules."""

import os
from pathlib import Path

import numpy as np
import pytest
from reference_rules import RULES, START, STEPS, TARGET, Rule, close, loss_of, slopes, variables

import magmagraph as mg

opt = mg.optimizer


@pytest.mark.parametrize("name", RULES)
def test_rule(name):
    make, rule = RULES[name]
    v = variables()
    step = make().step(loss_of(v), v)
    for _ in range(STEPS):
        step()
    close(v, Rule(rule).run(), scale=1e4 if name.startswith("RMSProp,") else 10.0)


@pytest.mark.parametrize("name", RULES)
def test_rule_in_float32(name):
    make, rule = RULES[name]
    v = {n: mg.var(n, init=a.astype(np.float32)) for n, a in START.items()}
    loss = mg.sum((v["w"] - TARGET.astype(np.float32)) ** 2) * 0.5 + 1.5 * v["b"] ** 2
    step = make().step(loss, v)
    for _ in range(STEPS):
        step()
    close(v, Rule(rule).run(), "float32", scale=1e3 if name.startswith("RMSProp,") else 10.0)


class TestLearningRate:
    def test_can_be_set_between_calls(self):
        x = mg.var("x", init=np.float64(8.0))
        optimizer = opt.SGD(0.25)
        step = optimizer.step(x**2, x)
        step()
        assert x.value == 4.0
        optimizer.learning_rate.value = 0.5
        step()
        assert x.value == 0.0

    def test_can_be_read_and_set_before_the_first_step(self):
        x = mg.var("x", init=8.0)
        optimizer = opt.SGD(0.5)
        assert optimizer.learning_rate.value == 0.5
        optimizer.learning_rate.value = 0.25
        optimizer.step(x**2, x)()
        assert x.value == 4.0

    def test_schedule(self):
        x = mg.var("x", init=np.float64(0.0))
        optimizer = opt.SGD(mg.schedule.step(1.0, every=2, factor=0.5))
        step = optimizer.step(-x, x)
        seen, rates = [], []
        for _ in range(6):
            rates.append(float(optimizer.learning_rate.value))
            step()
            seen.append(float(x.value))
        assert rates == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
        assert seen == list(np.cumsum(rates))
        assert optimizer.state["step"].value == 6

    def test_scheduled_rate_can_be_set_for_one_step(self):
        x = mg.var("x", init=np.float64(0.0))
        optimizer = opt.SGD(mg.schedule.constant(1.0))
        step = optimizer.step(-x, x)
        step()
        optimizer.learning_rate.value = 10.0
        step()
        step()
        assert x.value == 12.0

    def test_function_of_the_step(self):
        x = mg.var("x", init=np.float64(0.0))
        step = opt.SGD(lambda t: mg.cast(t, "float64") + 1.0).step(-x, x)
        for _ in range(4):
            step()
        assert x.value == 1 + 2 + 3 + 4

    def test_node(self):
        x, rate = mg.var("x", init=np.float64(0.0)), mg.var("rate", shape=(), dtype="float64")
        optimizer = opt.SGD(rate * 2.0)
        step = optimizer.step(-x, x, inputs=[rate])
        for r in (0.5, 0.25):
            step(np.float64(r))
        assert x.value == 1.5
        assert optimizer.learning_rate.value == 0.5

    def test_variable(self):
        x, rate = mg.var("x", init=np.float64(0.0)), mg.var("rate", init=np.float64(0.5))
        optimizer = opt.SGD(rate)
        assert optimizer.learning_rate is rate
        optimizer.step(-x, x)()
        assert x.value == 0.5

    def test_plateau(self):
        x = mg.var("x", init=np.float64(0.0))
        rate = mg.schedule.plateau(1.0, factor=0.5, patience=0)
        step = opt.SGD(rate).step(-x, x)
        step()
        rate.report(1.0)
        rate.report(1.0)
        step()
        assert x.value == 1.5

    @pytest.mark.parametrize(
        ("rate", "text"),
        [
            (
                "fast",
                "the learning rate is a str\n"
                "  expected: a number, a schedule, a function of the step, or a scalar node",
            ),
            (
                mg.constant([0.1, 0.2]),
                "the learning rate is a node of shape (2,)\n  expected: a scalar",
            ),
        ],
    )
    def test_bad_rate(self, rate, text):
        with pytest.raises(mg.ConfigError) as caught:
            opt.SGD(rate)
        assert str(caught.value) == text


class TestUpdates:
    def test_are_nodes_of_variables(self):
        v = variables()
        updates = opt.Adam(0.1).updates(loss_of(v), v)
        assert all(isinstance(target, mg.Variable) for target in updates)
        assert [target.name for target in updates] == [
            "w",
            "w/m",
            "w/v",
            "b",
            "b/m",
            "b/v",
            "step",
        ]
        assert all(target.type == value.type for target, value in updates.items())

    def test_plain_descent_has_the_form_that_accumulates_into_a_product(self):
        w = mg.var("w", init=1.0)
        updates = opt.SGD(0.1, weight_decay=0.5).updates(w * 2.0, [w])
        assert list(updates) == [w]
        new = updates[w]
        assert new.op.name == "subtract"
        kept, moved = new.inputs
        assert [kept.op.name, moved.op.name] == ["multiply", "multiply"]
        assert kept.inputs[0] is w
        assert kept.inputs[1].shape == ()
        assert [n.shape for n in moved.inputs] == [(), ()]

    def test_compose(self):
        """Several optimizers in one function."""
        a, b = mg.var("a", init=1.0), mg.var("b", init=1.0)
        loss = a * 2.0 + b * 3.0
        together = {**opt.SGD(0.5).updates(loss, a), **opt.SGD(0.25).updates(loss, b)}
        mg.function([], None, updates=together)()
        assert [a.value, b.value] == [0.0, 0.25]

    def test_from_own_gradients(self):
        w = mg.var("w", init=np.ones(2))
        mg.function([], None, updates=opt.SGD(0.5).apply_gradients({w: np.array([1.0, 2.0])}))()
        assert np.array_equal(w.value, [0.5, 0.0])

    def test_built_twice_share_their_state(self):
        w = mg.var("w", init=np.float64(0.0))
        optimizer = opt.SGD(1.0, momentum=0.5)
        first, second = (optimizer.step(-w, w) for _ in range(2))
        first()
        second()
        assert w.value == 1.0 + 1.5
        assert list(optimizer.state) == ["learning_rate", "w/velocity"]

    def test_further_updates_and_outputs(self):
        w, n = mg.var("w", init=2.0), mg.var("n", init=np.int64(0))
        step = opt.SGD(0.25).step(w**2, w, outputs={"loss": w**2}, updates={n: n + 1})
        assert step() == {"loss": 4.0}
        assert (w.value, n.value) == (1.0, 1)
        with pytest.raises(mg.UpdateError, match="variable 'w' is updated twice"):
            opt.SGD(0.25).step(w**2, w, updates={w: w * 2.0})

    def test_variables_of_one_name_are_told_apart(self):
        a, b = mg.var("w", init=1.0), mg.var("w", init=2.0)
        optimizer = opt.SGD(0.1, momentum=0.9)
        optimizer.updates(a * b, [a, b])
        assert list(optimizer.state) == ["learning_rate", "w/velocity", "w_1/velocity"]

    @pytest.mark.parametrize(
        ("wrt", "text"),
        [
            (lambda w, x: [w, w], "variable 'w' is given twice"),
            (lambda w, x: [w, 3.0], "wrt[1] is float"),
            (lambda w, x: {"x": x}, "wrt['x'] is 'x' float32[] by input"),
        ],
    )
    def test_targets_that_are_none(self, wrt, text):
        w, x = mg.var("w", init=1.0), mg.var("x", shape=())
        with pytest.raises(mg.UpdateError) as caught:
            opt.SGD(0.1).updates(w * x, wrt(w, x))
        assert str(caught.value).startswith(text)


class TestGroups:
    def test_have_their_own_settings(self):
        a, b, c = (mg.var(n, init=np.float64(1.0)) for n in "abc")
        optimizer = opt.SGD(0.1, weight_decay=0.5)
        step = optimizer.step(
            a + b + c,
            [
                {"wrt": [a]},
                {"wrt": {"b": b}, "weight_decay": 0.0},
                {"wrt": c, "learning_rate": 0.2},
            ],
        )
        step()
        found = [float(v.value) for v in (a, b, c)]
        assert found == pytest.approx([1 - 0.15, 1 - 0.1, 1 - 0.3], rel=1e-15)
        assert list(optimizer.state) == ["learning_rate", "learning_rate/c"]
        optimizer.state["learning_rate/c"].value = 0.0
        step()
        assert c.value == pytest.approx(0.7)

    def test_unknown_setting(self):
        a = mg.var("a", init=1.0)
        with pytest.raises(mg.ConfigError) as caught:
            opt.SGD(0.1).updates(a * 1.0, [{"wrt": a, "decay": 1.0}])
        assert str(caught.value) == (
            "a parameter group sets 'decay'\n"
            "  expected: learning_rate, momentum, nesterov, weight_decay"
        )

    def test_all_members_are_groups(self):
        a, b = mg.var("a", init=1.0), mg.var("b", init=1.0)
        with pytest.raises(mg.ConfigError, match="lacks the key 'wrt'"):
            opt.SGD(0.1).updates(a * b, [{"wrt": a}, b])


class TestClipping:
    def test_by_value(self):
        v = variables()
        opt.SGD(1.0, clip_value=1.0).step(loss_of(v), v)()
        gw, gb = slopes(START["w"], START["b"])
        close(v, {"w": START["w"] - np.clip(gw, -1, 1), "b": START["b"] - np.clip(gb, -1, 1)})

    @pytest.mark.parametrize("limit", [1.0, 100.0])
    def test_by_global_norm(self, limit):
        v = variables()
        opt.SGD(1.0, clip_norm=limit).step(loss_of(v), v)()
        gw, gb = slopes(START["w"], START["b"])
        norm = np.sqrt((gw**2).sum() + gb**2)
        factor = min(1.0, limit / norm)
        close(v, {"w": START["w"] - factor * gw, "b": START["b"] - factor * gb})

    def test_limits_are_positive(self):
        with pytest.raises(mg.ConfigError) as caught:
            opt.Adam(clip_norm=0.0)
        assert str(caught.value) == "clip_norm=0.0\n  expected: clip_norm > 0"


class TestAccumulation:
    def test_equals_the_mean_batch(self, rng):
        data = rng.normal(size=(6, 4))
        w = mg.var("w", init=np.zeros(4))
        x = mg.var("x", shape=("batch", 4), dtype="float64")
        loss = mg.mean(mg.sum((x - w) ** 2, axis=1))
        step = opt.Adam(0.1, accumulate=3).step(loss, w, inputs=[x])
        after = []
        for start in (0, 2, 4, 0, 2, 4):
            step(data[start : start + 2])
            after.append(w.value)
        whole = mg.var("w", init=np.zeros(4))
        full = opt.Adam(0.1).step(mg.mean(mg.sum((x - whole) ** 2, axis=1)), whole, inputs=[x])
        assert np.array_equal(after[1], np.zeros(4))
        full(data)
        close({"w": whole}, {"w": after[2]})
        assert np.array_equal(after[4], after[2])
        full(data)
        close({"w": whole}, {"w": after[5]})

    def test_number_of_calls(self):
        with pytest.raises(mg.ConfigError, match="accumulate=0"):
            opt.SGD(0.1, accumulate=0)


class TestCustom:
    def test_update_is_all_it_takes(self):
        class Lion(opt.Optimizer):
            def update(self, variable, gradient, state):
                m = state.zeros("m")
                state["m"] = 0.9 * m + 0.1 * gradient
                return variable - state.learning_rate * mg.sign(0.5 * m + 0.5 * gradient)

        w = mg.var("w", init=np.array([1.0, -1.0]))
        optimizer = Lion(0.25)
        step = optimizer.step(mg.sum(w**2), w)
        step()
        step()
        assert np.array_equal(w.value, [0.5, -0.5])
        assert optimizer.state["w/m"].value == pytest.approx([0.33, -0.33])

    def test_settings_and_step(self):
        class Counted(opt.Optimizer):
            def update(self, variable, gradient, state):
                bound = state.scalar("bound", state.options.first)
                state["bound"] = bound * 2.0
                return variable + state.step * bound

        w = mg.var("w", init=np.float64(0.0))
        step = Counted(0.1, first=3.0).step(w * 1.0, w)
        for _ in range(3):
            step()
        assert w.value == 1 * 3 + 2 * 6 + 3 * 12

    def test_result_has_the_type_of_the_variable(self):
        class Wrong(opt.Optimizer):
            def update(self, variable, gradient, state):
                return mg.sum(variable)

        class Nothing(opt.Optimizer):
            def update(self, variable, gradient, state):
                return None

        w = mg.var("w", init=np.ones(2, np.float32))
        with pytest.raises(mg.UpdateError) as caught:
            Wrong(0.1).updates(mg.sum(w), w)
        assert str(caught.value) == (
            "Wrong.update returned float32[] for 'w', which is float32[2]\n"
            "  expected: the variable's shape and dtype"
        )
        with pytest.raises(mg.UpdateError, match="Nothing.update returned NoneType for 'w'"):
            Nothing(0.1).updates(mg.sum(w), w)


def test_a_complex_variable_is_refused_with_what_to_do() -> None:
    w = mg.var("w", init=np.array([1.0 + 2.0j]))
    with pytest.raises(mg.UpdateError, match=r"complex128(.|\n)*mg\.complex\(real, imag\)"):
        mg.optimizer.SGD(0.1).updates(mg.sum(mg.absolute(w)), [w])


# Settings.


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (mg.optimizer.SGD, "momentum", 1.5),
        (mg.optimizer.SGD, "momentum", -0.1),
        (mg.optimizer.SGD, "weight_decay", -1.0),
        (mg.optimizer.AdaGrad, "initial", -1.0),
        (mg.optimizer.RMSProp, "decay", 1.0),
        (mg.optimizer.Adam, "beta1", 1.5),
        (mg.optimizer.Adam, "beta2", float("nan")),
        (mg.optimizer.AdamW, "eps", -1.0),
        (mg.optimizer.AdamW, "weight_decay", "0.1"),
        (mg.optimizer.LARS, "trust", float("inf")),
        (mg.optimizer.LAMB, "beta2", True),
    ],
)
def test_settings_out_of_range_are_refused(kind, setting, value):
    with pytest.raises(mg.ConfigError, match=f"{kind.__name__}: {setting}=.*\n  expected: at"):
        kind(0.1, **{setting: value})
    w = mg.var("w", init=1.0)
    with pytest.raises(mg.ConfigError, match=f"{kind.__name__}: {setting}="):
        kind(0.1).updates(w * w, [{"wrt": [w], setting: value}])
    kind(0.1, **{setting: np.float32(0.5)}).updates(w * w, [{"wrt": [w], setting: 0}])
    kind(0.1, **{setting: mg.constant(0.5)})


def test_settings_of_rules_of_ones_own_are_their_own_business():
    class Own(mg.optimizer.Optimizer):
        def update(self, variable, gradient, state):
            return variable - state.learning_rate * gradient

    assert Own(0.1, momentum=-3.0).settings == {"momentum": -3.0}


def test_clipped_gradients_keep_their_dtypes() -> None:
    """The norm is one of all, in the widest of their dtypes."""
    given = [mg.constant(np.array([3.0], name)) for name in ("float16", "float32", "float64")]
    clipped = mg.optimizer.clip_by_norm([*given, mg.constant(np.array([13.0]))], 7.0)
    assert [node.dtype for node in clipped] == [np.float16, np.float32, np.float64, np.float64]
    assert [float(node.eval().item()) for node in clipped] == [1.5, 1.5, 1.5, 6.5]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc of Linux")
def test_moments_take_memory_when_they_are_written() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    w = mg.var("w", init=np.ones((4096, 4096), "f4"))
    before = resident()
    step = mg.optimizer.Adam(0.1).step(mg.sum(w**2), [w], inputs=[])
    assert resident() - before < w.value.nbytes  # two moments of as many bytes each
    step()
    np.testing.assert_allclose(w.value[:2, :2], 0.9, rtol=1e-6)
