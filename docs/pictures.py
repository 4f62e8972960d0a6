"""Draw the pictures of the gallery and of the README: ``python docs/pictures.py``.

They are made from the code, so that they show what the compiler does today; a test holds them up
to date.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Measured choices would differ from machine to machine, and with them what pictures show.
os.environ["MAGMAGRAPH_TUNING"] = "0"

import magmagraph as mg
from magmagraph.inspect.pictures.geometry import draw
from magmagraph.inspect.pictures.scene import Scene, traced_group
from magmagraph.inspect.pictures.svg import picture
from magmagraph.ir.graph import Graph

HERE = Path(__file__).resolve().parent / "pictures"


def descent() -> Any:
    """Return a step of gradient descent on one layer."""
    x = mg.var("x", shape=("batch", 4))
    y = mg.var("y", shape=("batch", 3))
    W = mg.var("W", shape=(4, 3), init=mg.init.zeros())
    with mg.scope("model"):
        prediction = mg.sigmoid(x @ W)
    with mg.scope("loss"):
        loss = mg.mean((prediction - y) ** 2)
    with mg.scope("gradient and update"):
        return mg.optimizer.SGD(0.5).step(loss, [W], inputs=[x, y], outputs=loss)


def seed() -> Any:
    """Return the training step of the seed network, 784-528-10."""
    x = mg.var("x", shape=("batch", 784))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    W = mg.var("W", shape=(784, 528), init=mg.init.glorot_uniform(seed=0))
    b = mg.var("b", shape=(528,), init=mg.init.zeros())
    V = mg.var("V", shape=(528, 10), init=mg.init.glorot_uniform(seed=1))
    c = mg.var("c", shape=(10,), init=mg.init.zeros())
    loss = mg.cross_entropy(mg.sigmoid(x @ W + b) @ V + c, labels)
    optimizer = mg.optimizer.SGD(0.05, weight_decay=0.001)
    return optimizer.step(
        loss, [W, b, V, c], inputs=[x, labels], outputs=loss, name="training step"
    )


def attention() -> Any:
    """Return a block of self-attention with its normalization."""
    x = mg.var("x", shape=("batch", 64, 128))
    query, key, value, out = (
        mg.var(name, shape=(128, 128), init=mg.init.glorot_uniform(seed=i))
        for i, name in enumerate(("query", "key", "value", "out"))
    )

    def heads(values: Any) -> Any:
        return mg.transpose(mg.reshape(values, (x.shape[0], 64, 4, 32)), (0, 2, 1, 3))

    with mg.scope("block"):
        with mg.scope("norm"):
            centered = x - mg.mean(x, axis=-1, keepdims=True)
            normal = centered / mg.sqrt(mg.mean(centered**2, axis=-1, keepdims=True) + 1e-5)
        with mg.scope("attention"):
            q, k, v = (heads(normal @ weight) for weight in (query, key, value))
            weights = mg.softmax(q @ mg.transpose(k, (0, 1, 3, 2)) * 32**-0.5, axis=-1)
            joined = mg.transpose(weights @ v, (0, 2, 1, 3))
            result = x + mg.reshape(joined, (x.shape[0], 64, 128)) @ out
    return mg.function([x], result, name="attention block")


def softmax() -> Any:
    """Return a softmax and its entropy."""
    x = mg.var("x", shape=("rows", "columns"))
    p = mg.softmax(x, axis=1)
    return mg.function([x], -mg.sum(p * mg.log(p), axis=1))


def both(function: Any, title: str) -> str:
    """Return what was written beside what runs."""
    function.compile()
    group = traced_group(function.trace)
    before = _scene(function.source_graph, group)
    after = _scene(function.graph, group, before)
    drawings = [("what is written", draw(before.root)), ("what runs", draw(after.root))]
    return picture(drawings, source=False, title=title)


def _scene(graph: Graph, group: Callable[[Any], Any], like: Scene | None = None) -> Scene:
    nodes = list(dict.fromkeys((*graph.inputs, *graph.nodes)))
    hint = {} if like is None else like.places()
    return Scene(nodes, graph.outputs, graph.updates, hint, group)


def pictures() -> dict[str, str]:
    """Return the text of each picture by the name of its file."""
    block = attention()
    return {
        "seed-step.svg": both(descent(), "A step of gradient descent"),
        "seed-source.svg": mg.show(seed().source_graph, source=False).svg(),
        "seed-plan.svg": mg.show(seed(), source=False).svg(),
        "attention-source.svg": mg.show(block.source_graph, source=False).svg(),
        "attention-plan.svg": mg.show(block, source=False).svg(),
        "softmax.svg": both(softmax(), "The entropy of a softmax"),
    }


def main() -> None:
    """Write the pictures."""
    HERE.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (HERE / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
