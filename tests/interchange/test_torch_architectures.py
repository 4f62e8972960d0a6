"""Ten public architectures of PyTorch: exported, read, run and trained, equal to PyTorch."""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

torch = pytest.importorskip("torch", reason="torch is not installed")
MODELS = importlib.import_module("torch_models").MODELS  # it imports torch

CLOSE = 1e-4  # of the largest value


def made(name: str, rows: int) -> tuple[Any, tuple[Any, ...]]:
    """Return a module in evaluation mode, with running statistics of its own, and its inputs."""
    torch.manual_seed(0)
    build, draw = MODELS[name]
    module = build()
    for buffer in module.buffers():
        if buffer.dtype.is_floating_point:
            buffer.data = torch.rand_like(buffer) + 0.5
    return module.eval(), draw(rows)


def exported(module: Any, inputs: tuple[Any, ...], optimize: bool) -> bytes:
    """Return a module as ONNX, by torch's exporter."""
    if importlib.util.find_spec("onnxscript") is None:
        pytest.skip("onnxscript is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            program = torch.onnx.export(
                module, inputs, dynamo=True, verbose=False, optimize=optimize,
                dynamic_shapes=shapes_of(inputs),
            )  # fmt: skip
        finally:
            logging.disable(logging.NOTSET)
    buffer = io.BytesIO(program.model_proto.SerializeToString())
    return buffer.getvalue()


def shapes_of(inputs: tuple[Any, ...]) -> Any:
    batch = torch.export.Dim("batch")
    return tuple({0: batch} for _ in inputs)


def first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


def assert_equal(function: mg.Function, module: Any, draw: Any) -> None:
    """Compare values for other numbers of rows, and the gradients of all parameters, by name."""
    assert function.inputs[0].shape[0] == "batch"
    for rows in (3, 5):
        inputs = draw(rows)
        expected = module(*inputs)
        arrays = [value.numpy() for value in inputs]
        close(first(function(*arrays)), expected.detach().numpy())
    weights = torch.randn_like(expected)
    module.zero_grad()
    (expected * weights).sum().backward()
    parameters = dict(module.named_parameters())
    assert set(parameters) <= set(function.variables)
    loss = mg.sum(first(function.outputs) * weights.numpy())
    gradients = mg.grad(loss, [function.variables[name] for name in parameters])
    found = mg.function(list(function.inputs), gradients)(*arrays)
    for gradient, parameter in zip(found, parameters.values(), strict=True):
        close(gradient, parameter.grad.numpy())


def close(value: np.ndarray, expected: np.ndarray) -> None:
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=0, atol=CLOSE * max(np.abs(expected).max(), 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_as_onnx(name: str) -> None:
    module, inputs = made(name, 3)
    function = mg.from_onnx(exported(module, inputs, optimize=False), trainable=True)
    assert_equal(function, module, MODELS[name][1])
    folded = mg.from_onnx(exported(module, inputs, optimize=True))  # batch norms into filters
    close(first(folded(*(v.numpy() for v in inputs))), module(*inputs).detach().numpy())


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_from_torch(name: str) -> None:
    module, inputs = made(name, 3)
    assert_equal(
        mg.from_torch(module, inputs, dynamic_shapes=shapes_of(inputs)), module, MODELS[name][1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_fine_tuning(name: str) -> None:
    """A few epochs bring the network close to outputs that others have."""
    module, inputs = made(name, 8)
    model = exported(module, inputs, optimize=False)
    net = mg.from_onnx(
        model, as_network=True, loss="mse", optimizer=mg.optimizer.Adam(1e-2), seed=1
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.8)
        target = module(*inputs).numpy()
    arrays = [value.numpy() for value in inputs]
    history = net.fit(
        arrays if len(arrays) > 1 else arrays[0], target, epochs=30, batch_size=8, verbose=0
    )
    assert history["loss"][-1] < 0.5 * history["loss"][0]


def test_a_small_module(rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    x = torch.randn(2, 4)
    f = mg.from_torch(module, x, dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert list(f.variables) == ["0.weight", "0.bias"]
    assert f.inputs[0].shape == ("rows", 4)
    y = torch.randn(5, 4)
    np.testing.assert_allclose(f(y.numpy()), module(y).detach().numpy(), rtol=1e-5, atol=1e-6)
    net = mg.from_torch(module, x, as_network=True, loss="mse")
    assert set(net.weights()) == {"0.weight", "0.bias"}


def test_operators_that_are_not_known() -> None:
    class Module(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.svd(x)[1] + torch.special.bessel_j0(x[0])

    with pytest.raises(mg.GraphError, match=r"(?s)2 operators that are not supported:.*svd.*bess"):
        mg.from_torch(Module(), torch.randn(3, 3))
    with pytest.raises(mg.GraphError, match="from_torch is given a int"):
        mg.from_torch(3, None)
