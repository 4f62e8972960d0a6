"""Rates as functions of the step, against their formulas in NumPy."""

import pickle

import numpy as np
import pytest
from interpreted import assert_close, value

import magmagraph as mg

STEPS = (0, 1, 3, 4, 5, 9, 10, 11, 20, 35, 1000)
S = mg.schedule



def _part_of_cycle(t, period, growth):
    while t >= period:
        t, period = t - period, period * growth
    return t / period


def _one_cycle(t, steps, rise, low, high, end):
    peak = rise * steps - 1
    if t <= peak:
        return high + (low - high) * (1 + np.cos(np.pi * t / peak)) / 2
    return end + (high - end) * (1 + np.cos(np.pi * (t - peak) / (steps - 1 - peak))) / 2


FORMULAS = {
    "constant": (S.constant(0.3), lambda t: 0.3),
    "step": (S.step(0.5, every=4, factor=0.3), lambda t: 0.5 * 0.3 ** (t // 4)),
    "exponential": (S.exponential(0.5, 0.9, every=3), lambda t: 0.5 * 0.9 ** (t / 3)),
    "cosine": (
        S.cosine(0.8, steps=20, final=0.1),
        lambda t: 0.1 + 0.7 * (1 + np.cos(np.pi * min(t, 20) / 20)) / 2,
    ),
    "cosine_restarts": (
        S.cosine_restarts(0.8, 5, shrink=0.9, final=0.1),
        lambda t: 0.1 + (0.8 * 0.9 ** (t // 5) - 0.1) * (1 + np.cos(np.pi * (t % 5) / 5)) / 2,
    ),
    "cosine_restarts, longer ones": (
        S.cosine_restarts(0.8, 5, growth=2),
        lambda t: 0.8 * (1 + np.cos(np.pi * _part_of_cycle(t, 5, 2))) / 2,
    ),
    "one_cycle": (
        S.one_cycle(0.8, 20, rise=0.25, start=0.1, final=0.01),
        lambda t: _one_cycle(min(t, 19), 20, 0.25, 0.08, 0.8, 0.0008),
    ),
    "inverse_sqrt": (S.inverse_sqrt(0.8, 10), lambda t: 0.8 * np.sqrt(10 / max(t, 10))),
    "polynomial": (
        S.polynomial(0.8, 20, exponent=3.0, final=0.1),
        lambda t: 0.1 + 0.7 * (1 - min(t, 20) / 20) ** 3,
    ),
    "warmup": (
        S.warmup(5, S.exponential(0.4, 0.5), start=0.1),
        lambda t: 0.1 + 0.3 * t / 5 if t < 5 else 0.4 * 0.5 ** (t - 5),
    ),
    "warmup to a number": (S.warmup(10, 0.4), lambda t: 0.4 * min(t, 10) / 10),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    schedule, formula = FORMULAS[name]
    found = [schedule.at(t) for t in STEPS]
    assert_close(found, [formula(t) for t in STEPS], "float32")


@pytest.mark.parametrize("name", FORMULAS)
def test_is_a_scalar_node_of_the_step(name):
    schedule, formula = FORMULAS[name]
    step = mg.var("step", shape=(), dtype="int64")
    node = schedule(step)
    assert (node.shape, node.dtype) == ((), np.float32)
    assert_close(value(node, {step: 7}), formula(7), "float32")


@pytest.mark.parametrize("name", FORMULAS)
def test_prints_and_pickles(name):
    schedule, _ = FORMULAS[name]
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert repr(S.step(0.5, every=4, factor=0.25)) == "Step(rate=0.5, every=4, factor=0.25)"


def test_own_function():
    assert S.at(lambda step: mg.cast(step, "float32") * 0.5, 3) == 1.5


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: S.step(0.1, every=0), "step: every=0\n  expected: every > 0"),
        (lambda: S.exponential(0.1, -1.0), "exponential: decay=-1.0\n  expected: decay > 0"),
        (lambda: S.cosine(0.1, steps=0), "cosine: steps=0\n  expected: steps > 0"),
        (lambda: S.warmup(0, 0.1), "warmup: steps=0\n  expected: steps > 0"),
        (
            lambda: S.cosine_restarts(0.1, 5, growth=1.5),
            "cosine_restarts: growth=1.5\n  expected: an int",
        ),
        (
            lambda: S.cosine_restarts(0.1, 5, shrink=0.0),
            "cosine_restarts: shrink=0.0\n  expected: shrink > 0",
        ),
        (lambda: S.one_cycle(0.1, 0), "one_cycle: steps=0\n  expected: steps > 0"),
        (lambda: S.one_cycle(0.1, 9, rise=1.0), "one_cycle: rise=1.0\n  expected: 0 < rise < 1"),
        (lambda: S.inverse_sqrt(0.1, 0), "inverse_sqrt: hold=0\n  expected: hold > 0"),
        (
            lambda: S.polynomial(0.1, 9, exponent=-1),
            "polynomial: exponent=-1\n  expected: exponent > 0",
        ),
        (lambda: S.plateau(0.1, mode="low"), "plateau: mode='low'\n  expected: 'min' or 'max'"),
        (lambda: S.plateau(0.1, factor=2), "plateau: factor=2\n  expected: 0 < factor < 1"),
    ],
)
def test_bad_settings(build, text):
    with pytest.raises(mg.ConfigError) as caught:
        build()
    assert str(caught.value) == text


def test_cycles_begin_where_they_should():
    rate = S.cosine_restarts(1.0, 7, growth=3)
    begins = [7 * (3**n - 1) // 2 for n in range(12)]
    assert [rate.at(t) for t in begins] == [1.0] * 12
    assert all(rate.at(t - 1) < 0.1 for t in begins[1:])


class TestPlateau:
    def test_waits_then_lowers(self):
        rate = S.plateau(1.0, factor=0.5, patience=2)
        lowered = [rate.report(m) for m in (3.0, 2.0, 2.0, 2.5, 2.1, 1.0, 1.0, 1.0, 1.0)]
        assert lowered == [False] * 4 + [True] + [False] * 3 + [True]
        assert (rate.rate, rate.best) == (0.25, 1.0)

    def test_larger_is_better(self):
        rate = S.plateau(1.0, factor=0.5, patience=0, mode="max")
        assert [rate.report(m) for m in (0.1, 0.2, 0.2)] == [False, False, True]

    def test_small_improvements_do_not_count(self):
        rate = S.plateau(1.0, factor=0.5, patience=0, threshold=0.1)
        assert [rate.report(m) for m in (1.0, 0.95)] == [False, True]

    def test_cooldown_and_minimum(self):
        rate = S.plateau(1.0, factor=0.1, patience=0, cooldown=2, minimum=0.05)
        assert [rate.report(1.0) for _ in range(8)] == [
            False,
            True,
            False,
            False,
            True,
            False,
            False,
            False,
        ]
        assert rate.rate == pytest.approx(0.05)

    def test_nan_is_no_improvement(self):
        rate = S.plateau(1.0, factor=0.5, patience=0)
        assert [rate.report(m) for m in (float("nan"), 1.0)] == [True, False]
        assert rate.best == 1.0

    def test_saves_and_restores(self):
        rate = S.plateau(1.0, factor=0.5, patience=1)
        for metric in (1.0, 2.0):
            rate.report(metric)
        other = S.plateau(9.0, factor=0.5, patience=1)
        other.load_state_dict(rate.state_dict())
        assert other.report(2.0)
        assert other.rate == 0.5
