"""ResNet-50 as a training step of operations: what a benchmark on a GPU measures.

K. He and others, "Deep residual learning for image recognition", CVPR 2016; the stride is in the
3x3 convolution of a block, as in the networks that others measure.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import magmagraph as mg

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EPSILON = 1e-5


class Network:
    """The network's variables and its logits.

    Parameters
    ----------
    channels_last
        Whether images and weights have their channels last.
    half
        The dtype of activations where casts are written out, None where a pass puts them in.
    stages
        Channels, blocks and stride of each stage.
    classes
        Results.
    seed
        Of the weights, which have He's variance.
    """

    def __init__(
        self,
        channels_last: bool = True,
        half: str | None = None,
        stages: tuple[tuple[int, int, int], ...] = STAGES,
        classes: int = 1000,
        seed: int = 0,
    ) -> None:
        self.last, self.half, self.stages, self.classes = channels_last, half, stages, classes
        self.layout = "NHWC" if channels_last else "NCHW"
        self.rng = np.random.default_rng(seed)
        self.parameters: list[Any] = []
        self.names: list[str] = []

    def _variable(self, name: str, value: np.ndarray) -> Any:
        made = mg.var(name, init=value.astype(np.float32))
        self.parameters.append(made)
        self.names.append(name)
        return made

    def _convolution(self, x: Any, name: str, outs: int, window: int, stride: int) -> Any:
        ins = x.shape[-1] if self.last else x.shape[1]
        scale = np.sqrt(2.0 / (outs * window * window))
        value = self.rng.standard_normal((outs, ins, window, window)) * scale
        w = self._variable(f"{name}.w", value.transpose(2, 3, 1, 0) if self.last else value)
        if self.half is not None:
            w = mg.cast(w, self.half)
        return mg.conv2d(
            x, w, stride=stride, padding=(window - 1) // 2, layout=self.layout
        )

    def _normalized(self, x: Any, name: str, relu: bool = True) -> Any:
        channels = x.shape[-1] if self.last else x.shape[1]
        scale = self._variable(f"{name}.scale", np.ones(channels))
        offset = self._variable(f"{name}.offset", np.zeros(channels))
        made = mg.batch_norm(x, scale, offset, eps=EPSILON, axis=-1 if self.last else 1)
        return mg.relu(made) if relu else made

    def _block(self, x: Any, name: str, width: int, stride: int) -> Any:
        channels = x.shape[-1] if self.last else x.shape[1]
        made = self._normalized(self._convolution(x, f"{name}.a", width, 1, 1), f"{name}.a")
        made = self._normalized(self._convolution(made, f"{name}.b", width, 3, stride), f"{name}.b")
        made = self._convolution(made, f"{name}.c", 4 * width, 1, 1)
        made = self._normalized(made, f"{name}.c", relu=False)
        if stride != 1 or channels != 4 * width:
            x = self._convolution(x, f"{name}.d", 4 * width, 1, stride)
            x = self._normalized(x, f"{name}.d", relu=False)
        return mg.relu(made + x)

    def logits(self, images: Any) -> Any:
        """Return the logits of images."""
        x = images if self.half is None else mg.cast(images, self.half)
        x = self._normalized(self._convolution(x, "first", 64, 7, 2), "first")
        x = mg.max_pool2d(x, 3, 2, padding=1, layout=self.layout)
        for stage, (width, blocks, stride) in enumerate(self.stages):
            for block in range(blocks):
                x = self._block(x, f"{stage}.{block}", width, stride if block == 0 else 1)
        x = mg.global_avg_pool(x, layout=self.layout)
        ins = x.shape[-1]
        value = self.rng.standard_normal((ins, self.classes)) / np.sqrt(ins)
        w, b = self._variable("dense.w", value), self._variable("dense.b", np.zeros(self.classes))
        if self.half is not None:
            return mg.cast(x @ mg.cast(w, self.half), "float32") + b
        return x @ w + b


def images_of(batch: int, size: int, channels_last: bool) -> Any:
    """Return the input of images."""
    shape = (batch, size, size, 3) if channels_last else (batch, 3, size, size)
    return mg.var("images", shape=shape)


def training_step(
    batch: int,
    size: int = 224,
    *,
    device: str = "cuda",
    precision: str = "float32",
    rate: float = 0.1,
    momentum: float = 0.9,
    decay: float = 1e-4,
    **network: Any,
) -> tuple[Any, Network]:
    """Return a compiled step of SGD with momentum, whose output is the loss, and the network."""
    made = Network(**network)
    images = images_of(batch, size, made.last)
    labels = mg.var("labels", shape=(batch,), dtype="int32")
    loss = mg.cross_entropy(made.logits(images), labels)
    optimizer = mg.optimizer.SGD(rate, momentum=momentum, weight_decay=decay)
    step = optimizer.step(
        loss, made.parameters, inputs=[images, labels], outputs=[loss],
        device=device, precision=precision,
    )
    return step, made
