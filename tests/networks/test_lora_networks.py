"""`net.lora`: any network adapted by products of low rank; freezing by path; files of adapters."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import nn
from magmagraph.dtypes import tolerance
from magmagraph.errors import ConfigError, DataError

ADAM = mg.optimizer.Adam
LIMIT = tolerance(np.dtype("float32"), "reassoc")


def close(made: Any, right: Any) -> None:
    assert LIMIT.close(made, right, max(1.0, float(np.abs(right).max())))


class Pair(nn.Layer):
    """A layer of the user's with layers in a list and a dict, and a matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [nn.Dense(6, "tanh"), nn.Dense(6)]
        self.named = {"gate": nn.Dense(6, "sigmoid")}

    def build(self, x: Any) -> None:  # type: ignore[override]
        self.own = self.weight("own", (6, 6))

    def call(self, x: Any, training: bool) -> Any:  # type: ignore[override]
        return self.parts[1](self.parts[0](x)) * self.named["gate"](x) @ self.own


def layers() -> mg.Model:
    return mg.NeuralNetwork(
        [nn.Input((5, 6)), nn.MultiHeadAttention(2, name="attention"), Pair(), nn.Dropout(0.1),
         nn.Flatten(), nn.BatchNorm(), nn.Dense(3)], loss="mse", optimizer=ADAM(0.01), device="cpu",
    )  # fmt: skip


def loose() -> mg.Model:
    """Return a network without layers: matrices that are also transposed, and a table."""
    rng = np.random.default_rng(0)
    x = mg.input("x", ("n", 5, 6))
    w, v, t = (mg.var(name, init=rng.standard_normal(shape).astype("f4") / 3)
               for name, shape in (("w", (6, 7)), ("v", (9, 7)), ("t", (3, 9))))  # fmt: skip
    h = mg.tanh(mg.tanh(x @ w) @ v.T) @ t.T
    return mg.Model(x, mg.mean(h, axis=1) + mg.sum(t[:, 0]), loss="mse", optimizer=ADAM(0.01),
                    device="cpu")  # fmt: skip


def imported() -> mg.Model:
    pytest.importorskip("onnx")
    net = mg.NeuralNetwork(
        [nn.Input((5, 6)), nn.Dense(8, "tanh"), nn.Flatten(), nn.Dense(3)], loss="mse"
    )
    return mg.from_onnx(mg.to_onnx(net).SerializeToString(), as_network=True, loss="mse",
                        optimizer=ADAM(0.01), device="cpu")  # fmt: skip


NETWORKS: list[Callable[[], mg.Model]] = [layers, loose, imported]


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return (
        rng.standard_normal((24, 5, 6)).astype("f4"), rng.standard_normal((24, 3)).astype("f4")
    )


@pytest.mark.parametrize("make", NETWORKS)
def test_only_adapters_train_and_are_merged(make: Any, data: Any, tmp_path: Path) -> None:
    x, y = data
    net = make()
    before = net.predict(x)
    held = {name: array.copy() for name, array in net.tensors().items()}
    tuned = net.lora(rank=2, alpha=4.0, optimizer=ADAM(0.02))
    np.testing.assert_array_equal(tuned.predict(x), before)
    names = {variable.name.rpartition(".")[2] for variable in tuned.trainable}
    assert names == {"down", "up"}
    history = tuned.fit(x, y, epochs=8, batch_size=8, verbose=0)
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    fixed = [n for n in held if "mean" not in n and "variance" not in n]
    for name in fixed:
        np.testing.assert_array_equal(net.tensors()[name], held[name], name)
    trained = tuned.predict(x)
    assert np.abs(trained - net.predict(x)).max() > 0.01

    # Of the file only matrices of low rank: another network of the same base takes them.
    tuned.save_lora(tmp_path / "a.safetensors")
    size = sum(v.value.nbytes for v in tuned.trainable)
    assert size < (tmp_path / "a.safetensors").stat().st_size < size + 5000
    other = net.lora(rank=2, alpha=4.0)
    other.load_lora(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(other.predict(x), trained)

    assert tuned.merge_lora() is net
    close(net.predict(x), trained)
    close(tuned.predict(x), trained)


def test_products_are_those_of_the_formula(rng: np.random.Generator) -> None:
    net = loose()
    tuned = net.lora(rank=3, where="v|t", alpha=6.0)
    for variable in tuned.trainable:
        variable.value = rng.standard_normal(variable.shape)
    low = {k: a.astype("f8") for k, a in tuned.state_dict().items()}
    assert sorted(low) == ["t", "t.down", "t.up", "v", "v.down", "v.up", "w"]
    base = {name: array.astype("f8") for name, array in net.tensors().items()}
    x = rng.standard_normal((4, 5, 6)).astype("f4")
    v = base["v"].T + 2.0 * low["v.down"] @ low["v.up"]
    t = base["t"].T + 2.0 * low["t.down"] @ low["t.up"]
    right = (np.tanh(np.tanh(x @ base["w"]) @ v) @ t).mean(1) + base["t"][:, 0].sum()
    close(tuned.predict(x), right)
    assert len(net.lora(rank=1).trainable) == 4  # t is read otherwise, too
    gradients = mg.grad(mg.sum(tuned.outputs[0]), tuned.trainable)
    f = mg.function(list(tuned.inputs), gradients, device="cpu")
    assert all(np.isfinite(g).all() and np.abs(g).max() > 0 for g in f(x))
    assert all(v.shape not in ((6, 7), (7, 9)) for v in f.graph.outputs)


def test_where_and_errors(tmp_path: Path, data: Any) -> None:
    net = layers()
    tuned = net.lora(rank=2, where=r"attention\.(query|value)\.kernel$")
    assert len(tuned.trainable) == 4
    assert len(net.lora(rank=2, where=lambda path: path.endswith("own")).trainable) == 2
    with pytest.raises(ConfigError, match=r"where='nothing' is in none of 9 paths"):
        net.lora(where="nothing")
    with pytest.raises(ConfigError, match="a regular expression"):
        net.lora(where="(")
    with pytest.raises(ConfigError, match="rank=0"):
        net.lora(rank=0)
    with pytest.raises(ConfigError, match="the network has no adapters"):
        net.save_lora(tmp_path / "x")
    with pytest.raises(ConfigError, match="without a product"):
        mg.NeuralNetwork([nn.Input((4,)), nn.Dropout(0.1)]).lora()
    with pytest.raises(ConfigError, match="not built yet"):
        mg.NeuralNetwork([nn.Dense(3)]).lora()
    path = tmp_path / "a.safetensors"
    tuned.save_lora(path)
    with pytest.raises(DataError, match="it lacks"):
        net.lora(rank=2).load_lora(path)
    with pytest.raises(DataError, match="is float32"):
        net.lora(rank=3, where=r"attention\.(query|value)\.kernel$").load_lora(path)
    with pytest.raises(DataError, match="the factor 1"):
        net.lora(rank=2, where=r"attention\.(query|value)\.kernel$", alpha=1.0).load_lora(path)
    with pytest.raises(DataError, match="another architecture|adapters"):
        net.load_weights(path)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_train_alone(again: Any, data: Any) -> None:
    x, y = data
    tuned = loose().lora(rank=2, optimizer=ADAM(0.02))
    before = tuned.predict(x)
    other = again(tuned)
    np.testing.assert_array_equal(other.predict(x), before)
    other.fit(x, y, epochs=3, verbose=0)
    assert np.abs(other.predict(x) - before).max() > 1e-4
    np.testing.assert_array_equal(tuned.predict(x), before)


@pytest.mark.slow
def test_an_adapted_language_model_generates(rng: np.random.Generator) -> None:
    lm = mg.NeuralNetwork(
        [nn.Input(("length",), "int32"), nn.LanguageModel(20, 16, heads=2, blocks=1, positions=32)],
        loss="cross_entropy", device="cpu",
    )  # fmt: skip
    tuned = lm.lora(rank=2)
    paths = [path for path in tuned.state_dict() if path.endswith(".down")]
    assert len(paths) == 6  # of a block, and not of the table, which makes the logits, too
    tuned.fit(np.stack([np.arange(12)] * 4), np.stack([np.arange(1, 13)] * 4), epochs=2, verbose=0)
    wanted = mg.generate(tuned, [3, 4, 5], 6, cache=False)
    tuned.merge_lora()
    np.testing.assert_array_equal(mg.generate(lm, [3, 4, 5], 6), wanted)


def test_weights_are_frozen_by_path(data: Any) -> None:
    x, y = data
    net = layers()
    count = len(net.trainable)
    paths = net.freeze(r"attention\.")
    assert len(paths) == 8
    assert len(net.trainable) == count - 8
    held = {path: array for path, array in net.state_dict().items() if path in paths}
    net.fit(x, y, epochs=2, verbose=0)
    for path, array in net.state_dict().items():
        if path in held:
            np.testing.assert_array_equal(array, held[path])
    assert len(copy.deepcopy(net).trainable) == count - 8
    assert set(net.unfreeze("query")) == {p for p in paths if "query" in p}
    net.fit(x, y, epochs=1, verbose=0)
    now = net.state_dict()
    changed = {path for path, array in held.items() if not np.array_equal(now[path], array)}
    assert changed == {p for p in paths if "query" in p}
    with pytest.raises(ConfigError, match="is in none of"):
        net.freeze("nothing")
    with pytest.raises(ConfigError, match="is in none of 6 paths"):
        net.unfreeze("own")
    net.freeze()
    with pytest.raises(ConfigError, match="no weight that can be trained"):
        net.fit(x, y, epochs=1, verbose=0)
