"""Optimizers of matrices, with a search along a line, and around others, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance

opt = mg.optimizer
MATRIX = np.array([[1.0, -2.0, 0.5], [0.3, 0.8, -1.5]])
TARGET = np.arange(6.0).reshape(2, 3)


def close(found, wanted, dtype="float64", scale=100.0):
    assert tolerance(np.dtype(dtype), "reassoc").close(found, wanted, scale), (found, wanted)


def trained(optimizer, start, steps, loss=None):
    """Return a variable after some steps towards the target."""
    w = mg.var("w", init=start)
    loss = mg.sum((w - TARGET) ** 2) * 0.5 if loss is None else loss(w)
    step = optimizer.step(loss, [w])
    for _ in range(steps):
        step()
    return w


def test_adafactor_keeps_rows_and_columns():
    optimizer = opt.Adafactor(0.1, weight_decay=0.2)
    w = trained(optimizer, MATRIX, 5)
    p, rows, columns = MATRIX.copy(), np.zeros(2), np.zeros(3)
    for t in range(1, 6):
        g = p - TARGET
        b = 1 - t**-0.8
        rows = b * rows + (1 - b) * (g**2 + 1e-30).mean(1)
        columns = b * columns + (1 - b) * (g**2 + 1e-30).mean(0)
        u = g / np.sqrt(np.outer(rows, columns) / rows.mean())
        u /= max(1.0, np.sqrt((u**2).mean()))
        p = (1 - 0.1 * 0.2) * p - 0.1 * max(1e-3, np.sqrt((p**2).mean())) * u
    close(w.value, p)
    shapes = {name: held.value.shape for name, held in optimizer.state.items() if "/" in name}
    assert shapes == {"w/rows": (2,), "w/columns": (3,)}


def orthogonal(matrix, iterations=5):
    x = matrix / np.linalg.norm(matrix)
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_steps_by_orthogonal_matrices(nesterov):
    optimizer = opt.Muon(0.1, 0.9, nesterov, half=False, weight_decay=0.2)
    w = trained(optimizer, MATRIX, 4)
    p, velocity = MATRIX.copy(), np.zeros_like(MATRIX)
    for _ in range(4):
        g = p - TARGET
        velocity = 0.9 * velocity + g
        step = orthogonal(g + 0.9 * velocity if nesterov else velocity)
        p = (1 - 0.1 * 0.2) * p - 0.1 * 0.2 * np.sqrt(3.0) * step
    close(w.value, p)


def test_muon_takes_kernels_and_groups():
    kernel = np.random.default_rng(0).standard_normal((4, 3, 2, 2))
    w, v = mg.var("w", init=kernel), mg.var("v", init=kernel)
    optimizer = opt.Muon(1.0, 0.0, half=False)
    loss = 0.5 * mg.sum(w**2) + 0.5 * mg.sum(v**2)
    optimizer.step(loss, [{"wrt": [w]}, {"wrt": [v], "orthogonal": False}])()
    turned = orthogonal(kernel.reshape(4, 12)).reshape(kernel.shape)
    close(w.value, kernel - 0.2 * np.sqrt(12.0) * turned)
    close(v.value, kernel - kernel / (np.abs(kernel) + 1e-8))
    halves = mg.var("h", init=kernel.reshape(12, 4).astype("f4"))
    opt.Muon(1.0, 0.0).step(0.5 * mg.sum(halves**2), [halves])()
    step = (kernel.reshape(12, 4) - halves.value) / (0.2 * np.sqrt(12.0))
    sizes = np.linalg.svd(step, compute_uv=False)
    assert 0.6 < sizes.min() and sizes.max() < 1.3


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda: opt.NAdam(mg.schedule.cosine(0.5, 300)), 300),
        (lambda: opt.RAdam(mg.schedule.cosine(0.15, 600)), 600),
        (lambda: opt.Lion(mg.schedule.polynomial(0.05, 600), 0.9, 0.9), 600),
        (lambda: opt.Adafactor(mg.schedule.inverse_sqrt(0.1, 20)), 400),
        (lambda: opt.Muon(mg.schedule.polynomial(1.0, 300), half=False), 300),
        (lambda: opt.LBFGS(), 30),
        (lambda: opt.EMA(opt.Adam(mg.schedule.cosine(0.5, 300))), 300),
        (lambda: opt.SWA(opt.Adam(mg.schedule.cosine(0.5, 300))), 300),
        (lambda: opt.SAM(opt.Adam(mg.schedule.cosine(0.5, 300)), radius=1e-3), 300),
    ],
    ids=["NAdam", "RAdam", "Lion", "Adafactor", "Muon", "LBFGS", "EMA", "SWA", "SAM"],
)
def test_they_converge(make, steps):
    w = mg.var("w", init=MATRIX)
    loss = mg.sum((w - TARGET) ** 2 * np.array([[1.0, 2.0, 5.0]]) + mg.log(mg.cosh(w - TARGET)))
    result = make().minimize(loss, [w], steps=steps)
    assert result.value < 1e-4 * result.history[0]


class TestLBFGS:
    def test_the_direction_is_that_of_the_dense_formula(self):
        """Two steps, whose inverse Hessian is updated by the BFGS formula in NumPy."""
        weights = np.array([1.0, 3.0, 5.0])
        w = mg.var("w", init=np.array([1.0, -1.0, 0.5]))
        optimizer = opt.LBFGS(memory=5)
        step = optimizer.step(0.5 * mg.sum(w**2 * weights), [w])
        points = [w.value]
        for _ in range(3):
            step()
            points.append(w.value)
        slopes = [p * weights for p in points]
        first = -slopes[0] * min(1.0, 1.0 / np.abs(slopes[0]).sum())
        moved = points[1] - points[0]
        assert tolerance(np.dtype("f8"), "reassoc").close(
            moved / np.linalg.norm(moved), first / np.linalg.norm(first), 100.0
        )
        pairs = []
        for k in (1, 2):
            pairs.append((points[k] - points[k - 1], slopes[k] - slopes[k - 1]))
            s, y = pairs[-1]
            inverse = np.eye(3) * (s @ y) / (y @ y)
            for s, y in pairs:
                r = 1.0 / (s @ y)
                left = np.eye(3) - r * np.outer(s, y)
                inverse = left @ inverse @ left.T + r * np.outer(s, s)
            direction = -inverse @ slopes[k]
            moved = points[k + 1] - points[k]
            ratio = moved @ direction / (direction @ direction)
            assert ratio > 0
            close(moved, ratio * direction, scale=1e4)

    def test_steps_fulfil_the_wolfe_conditions(self):
        x = mg.var("x", init=np.array([-1.2, 1.0]))
        loss = 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2
        f = mg.function([], [loss, mg.grad(loss, x)])
        step = opt.LBFGS().step(loss, [x])
        for _ in range(45):
            value, slope = f()
            before = x.value
            step()
            after, new_slope = f()
            move = x.value - before
            assert after <= value + 1e-4 * (slope @ move) + 1e-15
            assert new_slope @ move >= 0.9 * (slope @ move) - 1e-12
        assert f()[0] < 1e-6

    def test_several_variables_of_two_dtypes_and_inputs(self, rng):
        a = rng.standard_normal((40, 3)).astype("f4")
        truth = rng.standard_normal(3).astype("f4")
        x, y = mg.var("x", shape=("rows", 3)), mg.var("y", shape=("rows",))
        w, b = mg.var("w", init=np.zeros(3, "f4")), mg.var("b", init=np.float64(0.0))
        loss = mg.mean((x @ w + mg.cast(b, "float32") - y) ** 2)
        step = opt.LBFGS().step(loss, {"w": w, "b": b}, inputs=[x, y], outputs=loss)
        for _ in range(15):
            last = step(a, a @ truth + 2.0)
        assert last < 1e-8 and w.value.dtype == np.float32 and b.value.dtype == np.float64
        close(w.value, truth, "float32")

    def test_a_point_beyond_the_domain_is_not_taken(self):
        x = mg.var("x", init=np.float64(3.0))
        result = opt.LBFGS(learning_rate=100.0).minimize(x - mg.log(x), [x], steps=20)
        assert abs(float(x.value) - 1.0) < 1e-6 and np.isfinite(result.history).all()

    def test_trains_a_network(self, rng):
        x = rng.standard_normal((50, 4)).astype("f4")
        net = mg.NeuralNetwork(
            [mg.nn.Input((4,)), mg.nn.Dense(6, "tanh"), mg.nn.Dense(1)],
            loss="mse", optimizer=opt.LBFGS(), device="cpu",
        )  # fmt: skip
        history = net.fit(x, np.sin(x[:, :1]), batch_size=50, epochs=25, shuffle=False)
        losses = history["loss"]
        assert losses == sorted(losses, reverse=True) and losses[-1] < 0.1 * losses[0]

    def test_bad_settings(self):
        with pytest.raises(mg.ConfigError, match="LBFGS: memory=0\n  expected: an int of at le"):
            opt.LBFGS(memory=0)
        with pytest.raises(mg.ConfigError, match=r"curvature=0.1\n  expected: 0 < decrease < cur"):
            opt.LBFGS(decrease=0.5, curvature=0.1)
        w, v = mg.var("w", init=1.0), mg.var("v", init=1.0)
        groups = [{"wrt": [w]}, {"wrt": [v], "learning_rate": 0.1}]
        with pytest.raises(mg.ConfigError, match="LBFGS: a parameter group has settings"):
            opt.LBFGS().updates(w * v, groups)


class TestAverages:
    def test_ema_follows_the_weights(self):
        optimizer = opt.EMA(opt.SGD(0.1, momentum=0.8), 0.7)
        w = mg.var("w", init=MATRIX)
        step = optimizer.step(0.5 * mg.sum((w - TARGET) ** 2), [w])
        p, v, average = MATRIX.copy(), 0.0, MATRIX.copy()
        for _ in range(6):
            step()
            v = 0.8 * v + (p - TARGET)
            p = p - 0.1 * v
            average = 0.7 * average + 0.3 * p
        close(w.value, p)
        close(optimizer.averages()[w], average)
        with optimizer.averaged() as averages:
            assert np.array_equal(w.value, averages[w])
        close(w.value, p)

    def test_swa_is_the_mean_of_some_steps(self):
        optimizer = opt.SWA(opt.SGD(0.1), start=2, every=3)
        w = mg.var("w", init=MATRIX)
        step = optimizer.step(0.5 * mg.sum((w - TARGET) ** 2), [w])
        points = []
        for _ in range(10):
            step()
            points.append(w.value)
        close(optimizer.averages()[w], np.mean([points[2], points[5], points[8]], 0))

    def test_the_rule_keeps_its_groups_schedules_and_accumulation(self):
        w, b = mg.var("w", init=np.float64(1.0)), mg.var("b", init=np.float64(1.0))
        inner = opt.SGD(mg.schedule.step(0.5, every=1, factor=0.5), weight_decay=0.2, accumulate=2)
        optimizer = opt.EMA(inner, 0.5)
        groups = [{"wrt": [w]}, {"wrt": [b], "weight_decay": 0.0}]
        step = optimizer.step(w + b, groups)
        for _ in range(4):
            step()
        p = q = a = 1.0
        for rate in (0.5, 0.25):
            p, q = (1 - rate * 0.2) * p - rate, q - rate
            a = 0.5 * a + 0.5 * p
        close([w.value, b.value, optimizer.averages()[w]], [p, q, a])
        with pytest.raises(mg.ConfigError, match="EMA: momentum=2.0"):
            optimizer.updates(w + b, [{"wrt": [w], "momentum": 2.0}, {"wrt": [b]}])

    def test_a_network_is_evaluated_with_averages(self, rng):
        x = rng.standard_normal((64, 3)).astype("f4")
        optimizer = opt.EMA(opt.SGD(0.1), 0.9)
        net = mg.NeuralNetwork(
            [mg.nn.Input((3,)), mg.nn.Dense(1)], loss="mse", optimizer=optimizer, device="cpu"
        )
        net.fit(x, x.sum(1, keepdims=True), epochs=2)
        plain = net.predict(x)
        with optimizer.averaged():
            averaged = net.predict(x)
        assert not np.array_equal(plain, averaged)
        assert np.array_equal(net.predict(x), plain)
        held = optimizer.state_dict()
        other = opt.EMA(opt.SGD(0.1), 0.9)
        other.load_state_dict(held)
        assert set(other.state_dict()) == set()  # waits for its variables

    def test_mistakes(self):
        with pytest.raises(mg.ConfigError, match="EMA is given float\n  expected: an optimizer"):
            opt.EMA(0.9)
        with pytest.raises(mg.ConfigError, match="has no rule for one variable"):
            opt.EMA(opt.LBFGS())
        with pytest.raises(mg.ConfigError, match="SWA: every=0\n  expected: an int of at least 1"):
            opt.SWA(opt.SGD(0.1), every=0)
        with pytest.raises(mg.ConfigError, match="EMA: average_decay=1.0"):
            opt.EMA(opt.SGD(0.1), 1.0)
        with pytest.raises(mg.ConfigError, match="there are no averages before the first step"):
            opt.EMA(opt.SGD(0.1)).averages()
        used = opt.SGD(0.1)
        w = mg.var("w", init=1.0)
        used.step(w * w, [w])
        with pytest.raises(mg.ConfigError, match="which has taken steps"):
            opt.SAM(used)


def test_sam_takes_the_gradient_uphill():
    optimizer = opt.SAM(opt.SGD(0.1, momentum=0.5), radius=0.3)
    w, b = mg.var("w", init=MATRIX), mg.var("b", init=np.float64(2.0))
    step = optimizer.step(0.25 * mg.sum((w - TARGET) ** 4) + b**2 * mg.sum(w), [w, b])
    p, q, v, u = MATRIX.copy(), 2.0, 0.0, 0.0

    def slopes(p, q):
        return (p - TARGET) ** 3 + q**2, 2 * q * p.sum()

    for _ in range(3):
        step()
        g, h = slopes(p, q)
        size = np.sqrt((g**2).sum() + h**2)
        g, h = slopes(p + 0.3 * g / size, q + 0.3 * h / size)
        v, u = 0.5 * v + g, 0.5 * u + h
        p, q = p - 0.1 * v, q - 0.1 * u
    close(w.value, p)
    close(b.value, q)


def test_averages_of_sam():
    optimizer = opt.EMA(opt.SAM(opt.SGD(0.25), radius=0.5), 0.5)
    w = mg.var("w", init=1.0)
    optimizer.step(w**2, [w])()
    assert (float(w.value), float(optimizer.averages()[w])) == (0.25, 0.625)


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (opt.Lion, "beta1", 1.0),
        (opt.NAdam, "momentum_decay", -1.0),
        (opt.RAdam, "eps", -1.0),
        (opt.Adafactor, "clip_update", float("inf")),
        (opt.Muon, "momentum", 1.0),
        (opt.Muon, "iterations", 0),
    ],
)
def test_settings_out_of_range_are_refused(kind, setting, value):
    with pytest.raises(mg.ConfigError, match=f"{kind.__name__}: {setting}=.*\n  expected: a"):
        kind(0.1, **{setting: value})
