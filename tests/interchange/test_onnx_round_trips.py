"""What `mg.to_onnx` writes, `mg.from_onnx` reads: the values are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, values
from onnx_cases import interpreted
from random_graphs import random_program
from table import FIRST_OR_ALL, PUBLIC, leaves, results, rounded, sample_of, some_samples, together

import magmagraph as mg
from magmagraph.errors import GraphError, MagmagraphError

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install magmagraph[onnx])")


def assert_same(model: Any, nodes: list[mg.Node], feeds: dict[mg.Node, Any]) -> None:
    """Compare the values of nodes with those of their model."""
    back = mg.from_onnx(model)
    named = {node.name: np.asarray(value, node.dtype) for node, value in feeds.items()}
    found = interpreted(back, [named[node.name] for node in back.inputs])
    for result, expected in zip(found, values(nodes, feeds), strict=True):
        assert result.dtype == expected.dtype
        scale = np.max(np.abs(expected), where=np.isfinite(expected), initial=1.0)
        if expected.dtype.kind in "iub":
            np.testing.assert_array_equal(result, expected)
        else:
            assert_close(result, expected, expected.dtype.name, scale)


@FIRST_OR_ALL
@pytest.mark.parametrize("names", together(PUBLIC, 40), ids=lambda names: f"{names[0]}-{names[-1]}")
def test_each_operation(names: list[str], which: str) -> None:
    for name in names:
        record = PUBLIC[name]
        for i in some_samples(record, which):
            _, sample = sample_of(name, i)
            nodes, feeds = leaves(rounded(sample.inputs, np.dtype(np.float32)))
            try:
                made = results(record.function(*nodes, **sample.attrs))
                made = [node for node in made if isinstance(node, mg.Node)]
                model = mg.to_onnx(made)
            except (GraphError, MagmagraphError):  # tests/inspect/test_onnx.py says which
                continue
            kept = {n: v for n, v in feeds.items() if n.name in {x.name for x in model.graph.input}}
            try:
                assert_same(model, made, {**feeds, **kept})
            except Exception as error:
                raise AssertionError(f"{name}, sample {i}: {error}") from error


@pytest.mark.parametrize("number", range(12))
def test_random_programs(number: int) -> None:
    drawn = random_program(number)
    outputs = list(drawn.outputs)
    model = mg.to_onnx(mg.function(drawn.inputs, outputs))
    assert_same(model, outputs, dict(zip(drawn.inputs, drawn.feeds, strict=True)))


def test_a_network_with_its_variables(rng: np.random.Generator) -> None:
    net = mg.NeuralNetwork(
        [mg.nn.Input((3, 8, 8)), mg.nn.Conv2D(4, 3, activation="relu", layout="NCHW"),
         mg.nn.BatchNorm(axis=1), mg.nn.MaxPool2D(2, layout="NCHW"), mg.nn.Flatten(),
         mg.nn.Dense(5)], loss="cross_entropy",
    )  # fmt: skip
    x = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    back = mg.from_onnx(mg.to_onnx(net))
    np.testing.assert_allclose(back(x)[0], net.predict(x), rtol=1e-4, atol=1e-5)
    assert set(back.variables) <= {w.variable.name for w in net.weights().values()}
