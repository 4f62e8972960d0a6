"""Write the fused kernels of common programs, for wheels that are given away.

    python packaging/common_regions.py regions.json

`hatch_build.py` runs it where what magmagraph needs is installed (cibuildwheel's settings install
it first). The kernels are those of training steps and predictions of dense networks, with the usual
activations, losses and optimizers, and of functions such as softmax and layer_norm: what a program
of these shares with them runs compiled where there is no compiler. Sizes do not matter.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import magmagraph as mg
from magmagraph.codegen.c.step import StepCode, assemble, step_code
from magmagraph.codegen.steps import bodies_of
from magmagraph.ir.plan import Role
from magmagraph.runtime.cpu.support import SUPPORT_HEADER
from magmagraph.runtime.cpu.toolchain import portable_key

LEVEL = "2"
TOGETHER = 12  # kernels of a library
ACTIVATIONS = ("relu", "sigmoid", "tanh", "gelu", "silu")
DEPTHS = (0, 1, 2, 3, 4)
ROWS = ("batch", 20)


def networks() -> Iterator[mg.Function]:
    """Yield steps and predictions of dense networks."""
    optimizers = {
        "SGD": lambda: mg.optimizer.SGD(0.1),
        "decay": lambda: mg.optimizer.SGD(0.1, weight_decay=1e-3),
        "momentum": lambda: mg.optimizer.SGD(0.1, momentum=0.9),
        "Adam": lambda: mg.optimizer.Adam(1e-3),
        "AdamW": lambda: mg.optimizer.AdamW(1e-3),
    }
    for depth in DEPTHS:
        for name in ACTIVATIONS if depth else ("linear",):
            for loss in ("cross_entropy", "mse"):
                for make in optimizers.values():
                    yield from network(depth, name, loss, make())


def network(depth: int, activation: str, loss: str, optimizer: Any) -> Iterator[mg.Function]:
    """Yield the step of `Model.fit`, the one of `Optimizer.step`, and the predictions."""
    layers = [mg.nn.Dense(16, activation=activation) for _ in range(depth)]
    net = mg.NeuralNetwork(
        [mg.nn.Input((20,)), *layers, mg.nn.Dense(5)],
        loss=loss, optimizer=optimizer, device="cpu",
    )  # fmt: skip
    labels = mg.var("labels", shape=("batch", 5))
    if loss == "cross_entropy":
        labels = mg.var("labels", shape=("batch",), dtype="int32")
    x, y = net.inputs[0], net.outputs[0]
    value = getattr(mg, loss)(y, labels)
    weights = list(net.trainable)
    yield optimizer.step(value, weights, inputs=[x, labels], outputs=[value], device="cpu")
    yield net.step
    yield mg.function([x], y, device="cpu")


def functions() -> Iterator[mg.Function]:
    """Yield functions of one array."""
    for shape in (ROWS, ("batch", "columns")):
        yield from functions_of(mg.input("x", shape=shape))
    x = mg.input("x", shape=ROWS)
    scale = mg.var("scale", shape=(20,), init=mg.init.ones())
    offset = mg.var("offset", shape=(20,), init=mg.init.zeros())
    yield mg.function([x], mg.layer_norm(x, scale, offset), device="cpu")
    yield mg.function([x], mg.rms_norm(x, scale), device="cpu")
    other = mg.input("y", shape=ROWS)
    for made in (x + other, x - other, x * other, x / other, x + offset, x * scale):
        yield mg.function([x, other], [made], device="cpu")


def functions_of(x: Any) -> Iterator[mg.Function]:
    """Yield functions of one array without weights, whose columns are a number or a name."""
    for name in (*ACTIVATIONS, "exp", "log", "sqrt", "square", "softmax", "log_softmax", "abs"):
        yield mg.function([x], getattr(mg, name)(x), device="cpu")
    for axis in (None, 0, 1):
        for reduce in (mg.sum, mg.mean, mg.max, mg.min):
            yield mg.function([x], reduce(x, axis=axis), device="cpu")


def codes() -> list[StepCode]:
    """Return the kernels of all programs, each once."""
    mg.config.compiler = "off"  # plans alone are wanted
    mg.config.tuning = False
    found: dict[str, StepCode] = {}
    for function in (*functions(), *networks()):
        function.compile()
        for step in function.plan.steps:
            if step.role is Role.REGION:
                code = step_code(bodies_of(step))
                found.setdefault(code.key, code)
    return list(found.values())


def main() -> None:
    """Write libraries, and the keys of the kernels that are in each."""
    made = sorted(codes(), key=lambda code: len(code.text()))
    libraries = []
    for i in range(0, len(made), TOGETHER):
        part = made[i : i + TOGETHER]
        libraries.append(
            {
                "source": SUPPORT_HEADER + assemble(part),
                "level": LEVEL,
                "keys": [
                    portable_key("-O" + LEVEL, SUPPORT_HEADER + assemble([code])) for code in part
                ],
            }
        )
    Path(sys.argv[1]).write_text(json.dumps(libraries), encoding="utf-8")
    print(f"{len(made)} kernels of common programs")


if __name__ == "__main__":
    main()
