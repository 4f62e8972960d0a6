"""Weights of torch and Hugging Face: names, transposes, files, and what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import magmagraph as mg


def network() -> mg.NeuralNetwork:
    return mg.NeuralNetwork(
        [mg.nn.Input((6,)), mg.nn.Dense(5, "relu", name="fc1"), mg.nn.LayerNorm(name="norm"),
         mg.nn.Dense(5, name="fc2"), mg.nn.Dense(3, name="head")], loss="mse",
    )  # fmt: skip


def state(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return a state dict as torch has it for the network above."""
    shapes = {"fc1.weight": (5, 6), "fc1.bias": (5,), "norm.weight": (5,), "norm.bias": (5,),
              "fc2.weight": (5, 5), "fc2.bias": (5,), "head.weight": (3, 5),
              "head.bias": (3,)}  # fmt: skip
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


def expected(tensors: Any, x: np.ndarray) -> np.ndarray:
    """Compute what torch's network gives."""
    h = np.maximum(x @ tensors["fc1.weight"].T + tensors["fc1.bias"], 0)
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
    h = h * tensors["norm.weight"] + tensors["norm.bias"]
    h = h @ tensors["fc2.weight"].T + tensors["fc2.bias"]
    return h @ tensors["head.weight"].T + tensors["head.bias"]


def assert_loaded(net: mg.NeuralNetwork, tensors: Any, rng: np.random.Generator) -> None:
    x = rng.normal(size=(4, 6)).astype(np.float32)
    np.testing.assert_allclose(net.predict(x), expected(tensors, x), rtol=1e-3, atol=1e-4)


def test_a_state_dict_is_transposed_and_says_so(rng: np.random.Generator) -> None:
    net, tensors = network(), state(rng)
    report = net.load_torch(tensors)
    assert_loaded(net, tensors, rng)
    assert report.transposed == ("fc1.kernel", "fc2.kernel", "head.kernel")
    assert str(report) == (
        "8 weights loaded, 3 of them transposed\n"
        "transposed: fc1.kernel, fc2.kernel, head.kernel"
    )
    assert list(net.state_dict()) == [
        "fc1.kernel", "fc1.bias", "norm.scale", "norm.offset", "fc2.kernel", "fc2.bias",
        "head.kernel", "head.bias",
    ]  # fmt: skip


def test_square_matrices_follow_the_others(rng: np.random.Generator) -> None:
    """GPT-2's files have matrices in the order that they have here."""
    net, tensors = network(), state(rng)
    turned = {k: v.T.copy() if v.ndim == 2 else v for k, v in tensors.items()}
    report = net.load_torch(turned)
    assert report.transposed == ()
    assert_loaded(net, tensors, rng)


def test_files_of_others(tmp_path: Path, rng: np.random.Generator) -> None:
    """Any order, bfloat16, several files with an index, a folder."""
    tensors = state(rng)
    short = {k: v.astype(ml_dtypes.bfloat16) for k, v in reversed(tensors.items())}
    save_file(short, tmp_path / "model.safetensors")
    for given in (tmp_path, str(tmp_path / "model.safetensors")):
        net = network()
        net.load_torch(given)
        assert_loaded(net, {k: v.astype(np.float32) for k, v in short.items()}, rng)
    names = list(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, tmp_path / file)
    weight_map = {name: file for file, held in parts.items() for name in held}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    for given in (tmp_path, index):
        net = network()
        net.load_torch(given)
        assert_loaded(net, tensors, rng)
    for name, text in (("../x.safetensors", "not in its folder"), ("none.bin", "cannot be")):
        index.write_text(json.dumps({"weight_map": {**weight_map, "head.bias": name}}))
        with pytest.raises(mg.DataError, match=text):
            network().load_torch(index)
    index.write_text("[]")
    with pytest.raises(mg.DataError, match="no table 'weight_map'"):
        network().load_torch(index)


def test_names_are_changed_and_parts_loaded(rng: np.random.Generator) -> None:
    tensors = state(rng)
    theirs = {f"model.{k}".replace("fc1", "layers.0"): v for k, v in tensors.items()}
    theirs["model.mask"] = np.zeros(3, np.float32)
    net = network()
    net.load_torch(theirs, rename={r"^model\.mask": None, r"^model\.": "", r"layers\.0": "fc1"})
    assert_loaded(net, tensors, rng)
    other = network()
    other.load_torch(theirs, rename=lambda name: None if "mask" in name else
                     name.removeprefix("model.").replace("layers.0", "fc1"))  # fmt: skip
    assert_loaded(other, tensors, rng)
    part = {k: v for k, v in tensors.items() if k.startswith("fc")}
    net = network()
    before = net.state_dict()
    report = net.load_torch({**part, "extra": np.zeros(1)}, strict=False)
    assert report.missing == ("norm.scale", "norm.offset", "head.kernel", "head.bias")
    assert report.unexpected == ("extra",)
    after = net.state_dict()
    np.testing.assert_array_equal(after["head.kernel"], before["head.kernel"])
    np.testing.assert_array_equal(after["fc1.kernel"], tensors["fc1.weight"].T)


def test_what_does_not_fit_changes_nothing(rng: np.random.Generator) -> None:
    net, tensors = network(), state(rng)
    before = net.state_dict()
    wrong = {**tensors, "head.bias": np.zeros(4, np.float32)}
    with pytest.raises(mg.DataError) as caught:
        net.load_torch(wrong)
    assert str(caught.value) == (
        "the state dict: head.bias gives float32[4] for the weight head.bias\n"
        "  expected: float32[3]"
    )
    del tensors["norm.bias"]
    with pytest.raises(mg.DataError) as caught:
        net.load_torch({**tensors, "bert.pooler": np.zeros(1)})
    assert str(caught.value) == (
        "the state dict does not fit the network:\n"
        "  it has no tensors for norm.offset\n"
        "  nothing is made of its tensors bert.pooler\n"
        "  expected: tensors for the 8 weights of `net.state_dict()`\n"
        "  try: rename={'old': 'new'}, or strict=False to load a part"
    )
    for path, array in net.state_dict().items():
        np.testing.assert_array_equal(array, before[path])
    with pytest.raises(mg.DataError, match="load_torch is given a int"):
        net.load_torch(3)
    with pytest.raises(mg.ConfigError, match="rename has"):
        net.load_torch(tensors, rename={"(": ""})
    with pytest.raises(mg.DataError, match="two tensors are renamed"):
        net.load_torch(tensors, rename=lambda name: "same")


def test_written_and_read(tmp_path: Path, rng: np.random.Generator) -> None:
    rows = mg.input("rows", ("batch", 5, 4))
    layers = [mg.nn.LSTM(3, return_sequences=True), mg.nn.GRU(4, return_sequences=True),
              mg.nn.MultiHeadAttention(2), mg.nn.RNN(2)]  # fmt: skip
    value = rows
    for layer in layers:
        value = layer(value)
    net = mg.Model(rows, value, loss="mse")
    x = rng.normal(size=(2, 5, 4)).astype(np.float32)
    result = net.predict(x)
    net.save_torch(tmp_path / "net.safetensors")
    for variable in net.trainable:
        variable.value = np.zeros(variable.shape, np.float32)
    assert not np.allclose(net.predict(x), result)
    net.load_torch(tmp_path / "net.safetensors")
    np.testing.assert_allclose(net.predict(x), result, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_filters(layout: str, rng: np.random.Generator) -> None:
    shape = (3, 6, 6) if layout == "NCHW" else (6, 6, 3)
    net = mg.NeuralNetwork(
        [mg.nn.Input(shape), mg.nn.Conv2D(4, 3, layout=layout, name="conv"),
         mg.nn.BatchNorm(axis=1 if layout == "NCHW" else -1, name="bn")], loss="mse",
    )  # fmt: skip
    weight = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    tensors = {"conv.weight": weight, "conv.bias": np.zeros(4, np.float32),
               "bn.weight": np.ones(4, np.float32), "bn.bias": np.zeros(4, np.float32),
               "bn.running_mean": np.ones(4, np.float32), "bn.running_var": np.ones(4, np.float32),
               "bn.num_batches_tracked": np.int64(3)}  # fmt: skip
    report = net.load_torch(tensors)
    assert report.transposed == (() if layout == "NCHW" else ("conv.kernel",))
    kernel = net.state_dict()["conv.kernel"]
    turned = kernel if layout == "NCHW" else kernel.transpose(3, 2, 0, 1)
    np.testing.assert_array_equal(turned, weight)


def test_modules_of_torch(tmp_path: Path, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Net(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 3, batch_first=True)
            self.gru = torch.nn.GRU(3, 8, batch_first=True)
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = torch.nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            x = self.gru(self.lstm(x)[0])[0]
            return self.head(self.attention(x, x, x)[0])

    module = Net()
    rows = mg.input("rows", ("batch", 5, 4))
    value = mg.nn.GRU(8, return_sequences=True, name="gru")(
        mg.nn.LSTM(3, return_sequences=True, name="lstm")(rows)
    )
    value = mg.nn.Dense(8, name="head")(mg.nn.MultiHeadAttention(2, name="attention")(value))
    net = mg.Model(rows, value, loss="mse")
    x = rng.normal(size=(2, 5, 4)).astype(np.float32)
    result = module(torch.from_numpy(x)).detach().numpy()
    torch.save(module.state_dict(), tmp_path / "net.pt")
    for given in (module, module.state_dict(), tmp_path / "net.pt"):
        net.load_torch(given)
        np.testing.assert_allclose(net.predict(x), result, rtol=1e-4, atol=1e-5)
    net.save_torch(tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    for name in ("lstm.weight_ih_l0", "gru.weight_hh_l0", "head.weight"):
        np.testing.assert_array_equal(back[name].numpy(), module.state_dict()[name].numpy())


def test_pickles_are_not_read_without_torch(tmp_path: Path, monkeypatch: Any) -> None:
    import sys

    (tmp_path / "net.pt").write_bytes(b"\x80\x04.")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(mg.MissingLibraryError, match="a pickle, which only torch reads"):
        network().load_torch(tmp_path / "net.pt")
    with pytest.raises(mg.MissingLibraryError, match="is written by torch"):
        network().save_torch(tmp_path / "out.pt")
