"""`precision="int8"`: which products change, what they cost, when weights are rounded again."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.errors import ConfigError, PassError

HALF = tolerance(np.dtype("float32"), "half").relative


class Network:
    """Two layers of weights, and a batch."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = mg.input("x", ("n", 64))
        self.W = mg.var("W", init=rng.standard_normal((64, 48)).astype("f4") / 8)
        self.V = mg.var("V", init=rng.standard_normal((32, 48)).astype("f4") / 8)
        self.b = mg.var("b", init=rng.standard_normal(48).astype("f4"))
        self.y = mg.gelu(self.x @ self.W + self.b) @ self.V.T
        self.rows = rng.standard_normal((9, 64)).astype("f4")

    def function(self, precision: str = "int8", **options: Any) -> mg.Function:
        return mg.function([self.x], self.y, precision=precision, device="cpu", **options)


@pytest.fixture
def network(rng: np.random.Generator) -> Network:
    return Network(rng)


def error(made: Any, right: Any) -> float:
    return float(np.abs(made - right).max() / np.abs(right).max())


def kernels(f: mg.Function) -> list[str]:
    return [step.kernel for step in f.plan.steps]


def rounded(array: np.ndarray, axis: int) -> np.ndarray:
    """Return an array in whole multiples of a 127th of its largest along an axis."""
    unit = np.abs(array).max(axis, keepdims=True) / np.float32(127)
    return np.rint(array / unit) * unit.astype("f8")


def test_a_product_is_that_of_rounded_factors(network: Network) -> None:
    f = mg.function([network.x], network.x @ network.W, precision="int8", device="cpu")
    wanted = rounded(network.rows, 1) @ rounded(network.W.value, 0)
    np.testing.assert_allclose(f(network.rows), wanted, rtol=0, atol=1e-5)
    assert kernels(f) == ["fused", "gemm_int8", "fused"]


def test_a_network_errs_as_the_report_and_the_check_say(network: Network) -> None:
    f, full = network.function(), network.function("float32")
    lost = error(f(network.rows), full(network.rows))
    assert 1e-4 < lost < HALF
    assert kernels(f).count("gemm_int8") == 2
    record = f.report["precision"]
    assert "'W in int8' has 3072 bytes in place of 12288" in str(record.notes)
    assert "product in int8 (rounds the weight by 0." in str(f.explain(network.y))
    found = f.check(network.rows)
    assert found.ok
    assert found.errors["precision"] == pytest.approx(lost, rel=0.01)
    assert sum("by matmul" in note and "errs by" in note for note in found.notes) == 2
    # Rows have scales of their own: a row's result does not depend on the others.
    alone = np.concatenate([f(row[None]) for row in network.rows])
    np.testing.assert_array_equal(alone, f(network.rows))


def test_weights_are_rounded_again_after_they_change(network: Network) -> None:
    f, full = network.function(), network.function("float32")
    f(network.rows)
    network.W.value = network.W.value * 3 - 0.5
    assert error(f(network.rows), full(network.rows)) < HALF
    loss = mg.mean(network.y * network.y)
    step = mg.optimizer.SGD(0.5).step(loss, [network.W, network.V], [network.x], device="cpu")
    for _ in range(2):
        step(network.rows)
        assert error(f(network.rows), full(network.rows)) < HALF
    other = network.function()  # shares the rounded weights
    states = [
        {id(node.attrs["state"]) for node in g.graph.variables if node.dtype == np.int8}
        for g in (f, other)
    ]
    assert states[0] == states[1]
    assert len(states[0]) == 2


def test_what_cannot_be_int8_says_why(network: Network) -> None:
    loss = mg.mean(network.y * network.y)
    updates = mg.optimizer.SGD(0.5).updates(loss, [network.W])
    f = mg.function([network.x], network.y, updates, precision="int8", device="cpu")
    f.compile({"n": 9})
    reasons = str(f.report["precision"].refusals)
    assert "each call updates a factor" in reasons
    assert "both factors change at each call" in reasons
    assert kernels(f).count("gemm_int8") == 2  # x @ V.T, and the cotangent times V
    image = mg.input("image", (1, 3, 8, 8))
    kernel = mg.var("k", shape=(4, 3, 3, 3), init=mg.init.he_normal(seed=0))
    g = mg.function([image], mg.conv2d(image, kernel), precision="int8", device="cpu").compile()
    assert "matrix products alone" in str(g.report["precision"].refusals)
    planned = mg.function([network.x], network.y, precision="int8",
                          target=mg.Target.made_up("h200")).compile({"n": 9})
    assert "run on the CPU" in str(planned.report["precision"].refusals)


def test_a_computed_weight_scaled_and_added(rng: np.random.Generator) -> None:
    x, w = mg.input("x", ("n", 40)), mg.var("w", init=rng.standard_normal((40, 20)).astype("f4"))
    scale = mg.var("scale", init=np.float32(0.3))
    c = mg.input("c", ("n", 20))
    y = (x @ (w * scale + 1.0)) * 0.5 + c
    f = mg.function([x, c], y, precision="int8", device="cpu")
    full = mg.function([x, c], y, device="cpu")
    feeds = [rng.standard_normal((7, size)).astype("f4") for size in (40, 20)]
    assert error(f(*feeds), full(*feeds)) < HALF
    scale.value = -2.0
    assert error(f(*feeds), full(*feeds)) < HALF
    assert "gemm_int8" in kernels(f)


def test_zeros_and_values_that_are_not_finite(network: Network) -> None:
    f = mg.function([network.x], network.x @ network.W, precision="int8", device="cpu")
    rows = network.rows.copy()
    rows[0], rows[1, 3], rows[2, 5] = 0, np.nan, np.inf
    made = f(rows)
    assert (made[0] == 0).all()
    assert np.isnan(made[1:3]).all()
    assert np.isfinite(made[3:]).all()
    network.W.value = np.where(np.arange(48) == 7, 0, network.W.value)
    assert (f(network.rows)[:, 7] == 0).all()
    assert f(np.zeros((0, 64), "f4")).shape == (0, 48)


def test_calibrated_ranges(network: Network, tmp_path: Path) -> None:
    f, full = network.function(), network.function("float32")
    before = kernels(f.compile({"n": 9}))
    assert f.calibrate(network.rows) is f
    made = f(network.rows)
    assert error(made, full(network.rows)) < HALF
    assert len(kernels(f)) == len(before)
    assert all("max" not in str(step.node) for step in f.plan.steps)
    f.save(tmp_path / "f.magma")
    for again in (mg.load(tmp_path / "f.magma"), pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        np.testing.assert_array_equal(again(network.rows), made)
    # Ranges grow: what was cut before is not any more.
    cut = error(f(network.rows * 5), full(network.rows * 5))
    f.calibrate(network.rows * 5)
    assert error(f(network.rows * 5), full(network.rows * 5)) < HALF < cut
    assert f.explain(network.y).stages


def test_calibrate_refuses(network: Network) -> None:
    with pytest.raises(ConfigError, match="calibrate of a function of precision 'float32'"):
        network.function("float32").calibrate(network.rows)
    with pytest.raises(ConfigError, match="without products of int8"):
        mg.function([network.x], network.x * 2, precision="int8").calibrate(network.rows)
    with pytest.raises(ConfigError, match="not finite"):
        network.function().calibrate(network.rows * np.nan)
    with pytest.raises(PassError, match="finite magnitudes"):
        network.function(options={"activation_ranges": [-1.0]})
    with pytest.raises(PassError, match="calibrated with 1 products of weights, and has 2"):
        network.function(options={"activation_ranges": [1.0]})(network.rows)


@pytest.mark.parametrize("calibrated", [False, True])
def test_exported_with_quantize_and_dequantize(network: Network, calibrated: bool) -> None:
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    f = network.function()
    made = f.calibrate(network.rows)(network.rows) if calibrated else f(network.rows)
    model = mg.to_onnx(f)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == 2
    assert kinds.count("DequantizeLinear") == 4
    held = {t.name: t.data_type for t in model.graph.initializer}
    assert held["W in int8"] == onnx.TensorProto.INT8
    assert "W" not in held
    (there,) = reference.ReferenceEvaluator(model).run(None, {"x": network.rows})
    np.testing.assert_allclose(there, made, rtol=1e-4, atol=1e-4 * np.abs(made).max())
    back = mg.from_onnx(model.SerializeToString())
    assert error(np.asarray(back(network.rows)).reshape(made.shape), made) < 1e-4


def test_exported_as_c_holds_int8(network: Network, tmp_path: Path) -> None:
    f = network.function()
    f.export(tmp_path / "net", sizes={"n": 9})
    values = (tmp_path / "net" / "net.safetensors").read_bytes()
    assert b'"I8"' in values
    assert len(values) < 4 * network.W.value.size  # of W alone in float32


def test_lower_precision_of_a_model(network: Network) -> None:
    layers = [mg.nn.Dense(32, activation="relu"), mg.nn.Dense(3)]
    net = mg.NeuralNetwork(layers, loss="mse", optimizer=mg.optimizer.SGD(0.1),
                           device="cpu", precision="int8")  # fmt: skip
    target = network.rows[:, :3].copy()
    net.fit(network.rows, target, epochs=2, verbose=0)
    made = net.predict(network.rows)
    h, right = network.rows, [w.variable.value for w in net.weights().values()]
    right = np.maximum(h @ right[0] + right[1], 0) @ right[2] + right[3]
    assert 1e-5 < error(made, right) < HALF
    assert made.shape == (9, 3)
