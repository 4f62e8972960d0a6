"""Claim: training on MNIST takes at most 0.8 of the time of Keras on torch for the same network.

An epoch of `fit` over the first 6,000 images (of MNIST in MAGMAGRAPH_DATA, or normal numbers) in
batches of 100, in the same order, SGD with momentum; Keras on its torch backend, and, as the peer
tensorflow, on TensorFlow (channels last, which its convolutions on a CPU need). Compared: the
weights after an epoch from the same weights; the rate is small, for else a unit that rounding
turns on or off decides (NumPy in float32 is then 2e-3 of a bias from float64, where these began
with 0). There is no record for TensorFlow yet, and no claim about it.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import peers

ROWS, BATCH, RATE, MOMENTUM = 6000, 100, 0.001, 0.9


def data(case: peers.Case) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels, the same for both."""
    shape = (1, 28, 28) if case["convolutions"] else (784,)
    folder = Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / "mnist"
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        rng = np.random.default_rng(0)
        return 0.3 * rng.standard_normal((ROWS, *shape), np.float32), rng.integers(0, 10, ROWS)
    read = []
    for name, header in (("images-idx3", 16), ("labels-idx1", 8)):
        with gzip.open(folder / f"train-{name}-ubyte.gz") as file:
            read.append(np.frombuffer(file.read(), np.uint8, offset=header))
    images = read[0].reshape(-1, *shape)[:ROWS] / np.float32(255)
    return images.astype(np.float32), read[1][:ROWS].astype(np.int64)


def weights(case: peers.Case) -> list[np.ndarray]:
    """Return kernels and biases in turn; kernels of convolutions as (results, channels, 5, 5)."""
    rng = np.random.default_rng(1)
    shapes: list[tuple[int, ...]] = [(784, 512), (512, 512), (512, 10)]
    if case["convolutions"]:
        shapes = [(16, 1, 5, 5), (32, 16, 5, 5), (512, 128), (128, 10)]
    found = []
    for shape in shapes:
        fan = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        found.append(rng.normal(0.0, np.sqrt(2.0 / fan), shape).astype(np.float32))
        # Not 0: beside biases that are but their first changes, such a unit would be much.
        found.append(rng.normal(0.0, 0.1, shape[0 if len(shape) == 4 else 1]).astype(np.float32))
    return found


def magmagraph(case: peers.Case) -> peers.Work:
    """`mg.NeuralNetwork.fit`."""
    import magmagraph as mg

    nn = mg.nn
    x, y = data(case)
    values = weights(case)

    def build() -> Any:
        if case["convolutions"]:
            layers = [
                nn.Input((1, 28, 28)),
                nn.Conv2D(16, 5, "relu"),
                nn.MaxPool2D(2),
                nn.Conv2D(32, 5, "relu"),
                nn.MaxPool2D(2),
                nn.Flatten(),
                nn.Dense(128, "relu"),
                nn.Output(10),
            ]
        else:
            layers = [nn.Input((784,)), nn.Dense(512, "relu"), nn.Dense(512, "relu"), nn.Output(10)]
        net = mg.NeuralNetwork(
            layers, loss="cross_entropy", optimizer=mg.optimizer.SGD(RATE, momentum=MOMENTUM)
        )
        for variable, value in zip(net.trainable, values, strict=True):
            variable.value = value
        return net

    def train(net: Any) -> Any:
        net.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, progress=False)
        return net

    timed = build()
    return peers.Work(
        lambda: train(timed),
        lambda: {f"w{i}": v.value for i, v in enumerate(train(build()).trainable)},
    )


def keras(case: peers.Case) -> peers.Work:
    """`keras.Sequential.fit` on PyTorch."""
    return _of_keras(case, "torch", channels_last=False)


def tensorflow(case: peers.Case) -> peers.Work:
    """`keras.Sequential.fit` on TensorFlow."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow  # noqa: F401 (where it is missing, the peer is)

    return _of_keras(case, "tensorflow", channels_last=True)


def _of_keras(case: peers.Case, backend: str, channels_last: bool) -> peers.Work:
    os.environ["KERAS_BACKEND"] = backend
    import keras

    x, y = data(case)
    values = weights(case)
    layers = keras.layers
    last = channels_last and case["convolutions"]
    if last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))

    def build() -> Any:
        if case["convolutions"]:
            first = {"data_format": "channels_last" if last else "channels_first"}
            members = [
                keras.Input(x.shape[1:]),
                layers.Conv2D(16, 5, activation="relu", **first),
                layers.MaxPooling2D(2, **first),
                layers.Conv2D(32, 5, activation="relu", **first),
                layers.MaxPooling2D(2, **first),
                layers.Flatten(data_format="channels_last"),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        else:
            members = [
                keras.Input((784,)),
                layers.Dense(512, activation="relu"),
                layers.Dense(512, activation="relu"),
                layers.Dense(10),
            ]
        net = keras.Sequential(members)
        net.compile(
            optimizer=keras.optimizers.SGD(RATE, momentum=MOMENTUM),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        net.set_weights([_turned(value, last) for value in values])
        return net

    def train(net: Any) -> Any:
        net.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
        return net

    timed = build()
    return peers.Work(
        lambda: train(timed),
        lambda: {f"w{i}": _back(v, last) for i, v in enumerate(train(build()).get_weights())},
    )


def _turned(value: np.ndarray, last: bool) -> np.ndarray:
    """Return a weight in Keras' order; of features (32, 4, 4) that are flat, channels go last."""
    if last and value.shape == (512, 128):
        return value.reshape(32, 16, 128).transpose(1, 0, 2).reshape(512, 128)
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value


def _back(value: np.ndarray, last: bool) -> np.ndarray:
    if last and value.shape == (512, 128):
        return value.reshape(16, 32, 128).transpose(1, 0, 2).reshape(512, 128)
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value


BENCHMARK = peers.Benchmark(
    name="keras_mnist",
    claim="An epoch over 6,000 images: fit compared with Keras on torch and on TensorFlow.",
    cases=[
        {"name": "two dense layers of 512", "convolutions": False},
        {"name": "two convolutions", "convolutions": True},
    ],
    contenders={"magmagraph": magmagraph, "keras": keras, "tensorflow": tensorflow},
    tolerance=1e-3,
    rounds=3,
    seconds=0.1,
)

if __name__ == "__main__":
    peers.main(BENCHMARK)
