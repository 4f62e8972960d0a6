"""ONNX models: checked by onnx, run by onnxruntime, and equal to what runs here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreted import values
from random_graphs import random_program
from table import PUBLIC, flattened, leaves, results, rounded, sample_of

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.errors import GraphError, MagmagraphError
from magmagraph.op import Op
from magmagraph.ops import TABLE
from magmagraph.ops.control.observing import muted

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install magmagraph[onnx])")

FLOAT = np.dtype(np.float32)


def run(model: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model in onnxruntime, or in onnx's reference where there is no kernel for it."""
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            pass  # the standard has more types than the runtime has kernels
        else:
            return list(session.run(None, feeds))
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, feeds))


def assert_equal(outputs: Any, feeds: dict[mg.Node, Any], model: Any = None) -> Any:
    """Compare every output of a model with that of a function; return the model."""
    nodes = outputs if isinstance(outputs, list) else [outputs]
    model = mg.to_onnx(nodes) if model is None else model
    wanted = values(nodes, feeds)
    named = {node.name: np.asarray(value, node.dtype) for node, value in feeds.items()}
    given = run(model, {k: v for k, v in named.items() if k in {i.name for i in model.graph.input}})
    for node, ours, theirs in zip(nodes, wanted, given, strict=True):
        agree(node.dtype, theirs, ours)
    return model


def agree(dtype: np.dtype, given: np.ndarray, wanted: np.ndarray, times: float = 1.0) -> None:
    """Compare with the tolerance of sums in another order."""
    assert given.shape == wanted.shape
    assert given.dtype == wanted.dtype
    if dtype.kind in "iub":
        np.testing.assert_array_equal(given, wanted)
        return
    row = tolerance(dtype, "reassoc")
    scale = float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=1.0))
    np.testing.assert_allclose(
        given, wanted, rtol=times * row.relative, atol=times * (row.absolute + row.relative * scale)
    )


# ---------------------------------------------------------------------- networks


def test_an_mlp_with_its_updates(tmp_path: Path, rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("batch", 20))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    w = mg.var("w", init=rng.normal(size=(20, 10)).astype(np.float32))
    b = mg.var("b", init=rng.normal(size=10).astype(np.float32))
    hidden = mg.gelu(x @ w + b)
    loss = mg.cross_entropy(hidden, labels)
    gradients = mg.grad(loss, [w, b])
    updates = {w: w - 0.1 * gradients[0], b: b - 0.1 * gradients[1]}
    function = mg.function([x, labels], {"loss": loss, "hidden": hidden}, updates, name="step")
    model = mg.to_onnx(function, tmp_path / "step.onnx")
    assert onnx.load(tmp_path / "step.onnx") == model
    assert model.ir_version == 10
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 21)]
    assert (model.graph.name, model.producer_name) == ("step", "magmagraph")
    assert [v.name for v in model.graph.input] == ["x", "labels"]
    first = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in first] == ["batch", 20]
    assert {"w", "b"} <= {tensor.name for tensor in model.graph.initializer}
    assert [v.name for v in model.graph.output][2:] == ["new(w)", "new(b)"]
    lines = {node.doc_string for node in model.graph.node if node.op_type == "MatMul"}
    assert any(line.startswith(__file__) for line in lines)
    for batch in (1, 7):
        feed = rng.normal(size=(batch, 20)).astype(np.float32)
        label = rng.integers(0, 10, batch).astype(np.int32)
        given = run(model, {"x": feed, "labels": label})
        held = w.value, b.value
        wanted = function(feed, label)
        for one, other in zip(given, [*wanted.values(), w.value, b.value], strict=True):
            agree(FLOAT, one, other)
        w.value, b.value = held


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolutional_network(layout: str, rng: np.random.Generator) -> None:
    last = layout == "NHWC"
    shape = ("batch", 12, 10, 3) if last else ("batch", 3, 12, 10)
    x = mg.var("x", shape=shape)
    weight = rng.normal(size=(3, 3, 3, 8) if last else (8, 3, 3, 3)).astype(np.float32)
    w = mg.var("w", init=weight)
    h = mg.conv2d(x, w, stride=2, padding=1, layout=layout)
    h = mg.relu(h)
    pooled = mg.max_pool2d(h, 2, layout=layout)
    averaged = mg.avg_pool2d(h, 2, layout=layout)
    flat = mg.reshape(pooled, (-1, 3 * 2 * 8))
    size = (2, *(2 if e == "batch" else e for e in shape[1:]))
    feed = rng.normal(size=size).astype(np.float32)
    assert_equal([h, pooled, averaged, flat, mg.mean(h, axis=0)], {x: feed})


def test_a_transposed_convolution(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=(2, 4, 5, 6))
    w = mg.var("w", init=rng.normal(size=(4, 3, 3, 3)).astype(np.float32))
    made = mg.conv_transpose(x, w, stride=2, padding=1)
    feed = rng.normal(size=(2, 4, 5, 6)).astype(np.float32)
    assert_equal(made, {x: feed})


@pytest.mark.parametrize("algorithm", ["full", "rows"])
def test_attention(algorithm: str, rng: np.random.Generator) -> None:
    q = mg.var("q", shape=("batch", 2, "length", 8))
    k = mg.var("k", shape=("batch", 2, "length", 8))
    made = mg.scaled_dot_product_attention(q, k, k, causal=True, algorithm=algorithm)
    feeds = [rng.normal(size=(3, 2, 5, 8)).astype(np.float32) for _ in range(2)]
    assert_equal(made, dict(zip([q, k], feeds, strict=True)))


def test_norms_softmax_and_reductions(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("batch", 4, 6))
    outputs = [
        mg.softmax(x), mg.log_softmax(x, axis=1), mg.logsumexp(x, axis=-1), mg.layer_norm(x),
        mg.mean(x), mg.variance(x, axis=(0, 2)), mg.max(x, axis=1, keepdims=True),
        mg.prod(x, axis=2), mg.argmax(x, axis=(1, 2)), mg.argmin(x, axis=0),
        mg.any(x > 1.0, axis=1), mg.all(x > -3.0, axis=2), mg.norm(x),
    ]  # fmt: skip
    assert_equal(outputs, {x: rng.normal(size=(3, 4, 6)).astype(np.float32)})


def test_indexing(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("n", 6))
    i = mg.var("i", shape=(4,), dtype="int64")
    outputs = [
        x[1:], x[:, ::-1], x[:, 4:1:-2], x[:, -1], x[..., None], mg.take(x, i, axis=0),
        mg.take(x, i, axis=1, mode="wrap"), mg.concatenate([x, x[1:]]), mg.one_hot(i, 7),
        mg.pad(x, ((1, 2), (0, 3))), mg.transpose(x),
        mg.cumsum(x, axis=1, reverse=True), mg.sort(x, axis=1), mg.argsort(x, axis=0),
        mg.grad(mg.sum(mg.take(x, i, axis=0) ** 2), x), mg.arange(x.shape[0]) * 2,
        mg.tril(x), mg.stack([x, x]), mg.mean(x, axis=0), mg.cast(x.shape[0], "float32"),
        mg.grad(mg.sum(mg.take(x, i, axis=1) ** 2), x), mg.grad(mg.sum(x[1::2, ::-3] ** 2), x),
        mg.grad(mg.sum(x[::-1, 1:5:2] ** 3), x),
    ]  # fmt: skip
    feed = rng.normal(size=(5, 6)).astype(np.float32)
    assert_equal(outputs, {x: feed, i: np.array([0, -1, 9, 2])})


def test_extents_are_computed_from_the_inputs(rng: np.random.Generator) -> None:
    x = mg.var("x", shape=("n", 3))
    y = mg.var("y", shape=(None, 3))
    n, m = x.shape[0], y.shape[0]
    outputs = [
        mg.reshape(x, (3 * n,))[::2], mg.concatenate([x, y]), mg.zeros((n * n, 2)) + 1.0,
        mg.cast(n // 2 + m, "float32"), x[: -(-n // 2)],
    ]
    feeds = {x: rng.normal(size=(5, 3)), y: rng.normal(size=(2, 3))}
    model = assert_equal(outputs, {k: v.astype(np.float32) for k, v in feeds.items()})
    shapes = [
        [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in model.graph.output
    ]
    assert shapes[2] == ["n**2", 2] or shapes[2] == ["n*n", 2]


def test_dtypes(rng: np.random.Generator) -> None:
    for dtype in ("float64", "float16", "int8", "int64", "uint8", "bool"):
        x = mg.var("x", shape=(3,), dtype=dtype)
        made = mg.where(x, mg.cast(2.0, "float32"), 1.0) if dtype == "bool" else x + x
        assert_equal(made, {x: np.array([0, 1, 2]).astype(dtype)})
    x = mg.var("x", shape=(3,))
    model = mg.to_onnx(mg.cast(x, "bfloat16"))
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16


def test_named_graphs_checkpoints_and_taps_are_written_out() -> None:
    x = mg.var("x", shape=(3,))
    square = mg.op_from_graph(lambda h: h * h)
    held = mg.checkpoint(lambda h: mg.sin(square(h)))(mg.debug.tap(x, print))
    with muted():
        model = assert_equal(mg.stop_gradient(held), {x: np.array([1.0, 2.0, 3.0])})
    assert [node.op_type for node in model.graph.node] == ["Mul", "Sin", "Identity"]


# ---------------------------------------------------------------------- every operation

WRITTEN = [
    (name, i)
    for name, record in PUBLIC.items()
    if isinstance(record, Op) and record.onnx
    for i in range(len(record.samples() if record.samples is not None else ()))
]


@pytest.mark.parametrize(("name", "i"), WRITTEN)
def test_each_sample_of_each_operation(name: str, i: int) -> None:
    """In float32; what onnxruntime leaves open (ties, NaN) is not compared."""
    record, sample = sample_of(name, i)
    operands = rounded(sample.inputs, FLOAT)
    if any(np.asarray(v).dtype.kind == "c" for v in flattened(operands)):
        pytest.skip("complex numbers have no form in ONNX")
    if "complex" in str(sample.attrs):
        pytest.skip("complex numbers have no form in ONNX")
    arrays = [np.asarray(v) for v in flattened(operands)]
    if any(a.dtype.kind == "f" and np.isnan(a.astype(float)).any() for a in arrays):
        pytest.skip("ONNX does not say what comes of NaN")
    if any(a.size == 0 for a in arrays):
        pytest.skip("runtimes differ in empty arrays")
    if name in ("floor_divide", "remainder") and arrays[1].dtype.kind in "iu" and 0 in arrays[1]:
        pytest.skip("ONNX does not say what comes of an integer divided by zero")
    nodes, feeds = leaves(operands)
    assert record.function is not None
    made = results(record.function(*nodes, **sample.attrs))
    try:
        model = mg.to_onnx(list(made))
    except GraphError as error:
        pytest.skip(str(error).splitlines()[0])
    wanted = values(list(made), feeds)
    given = run(model, _named(model, feeds))
    for node, ours, theirs in zip(made, wanted, given, strict=True):
        agree(node.dtype, theirs, ours, times=8.0)  # polynomials of another library


def _named(model: Any, feeds: dict[Any, Any]) -> dict[str, np.ndarray]:
    names = [value.name for value in model.graph.input]
    return {
        name: np.asarray(value, node.dtype)
        for name, (node, value) in zip(names, feeds.items(), strict=True)
    }


@pytest.mark.parametrize("number", range(20))
def test_random_programs(number: int) -> None:
    drawn = random_program(number)
    outputs = list(drawn.outputs)
    model = mg.to_onnx(mg.function(drawn.inputs, outputs))
    wanted = values(outputs, dict(zip(drawn.inputs, drawn.feeds, strict=True)))
    named = {n.name: np.asarray(v, n.dtype) for n, v in zip(drawn.inputs, drawn.feeds, strict=True)}
    for node, ours, theirs in zip(outputs, wanted, run(model, named), strict=True):
        agree(node.dtype, theirs, ours, times=8.0)


# ---------------------------------------------------------------------- what is refused


def test_operations_without_a_form_are_listed() -> None:
    x = mg.var("x", shape=(3, 3))
    noise = mg.random.normal((3, 3))
    with pytest.raises(GraphError) as raised:
        mg.to_onnx([mg.linalg.cholesky(x), noise])
    text = str(raised.value)
    assert text.startswith("4 operations have no form in ONNX:\n  cholesky: float32[3, 3] by chol")
    assert "made at " + __file__ in text
    assert text.endswith("mend: export the part that lies before or behind them")
    z = mg.var("z", shape=(2,), dtype="complex64")
    with pytest.raises(GraphError, match="^2 operations have no form in ONNX:\n  input of complex"):
        mg.to_onnx(z * z)
    with pytest.raises(GraphError, match="^int holds no nodes"):
        mg.to_onnx(3)


def test_attributes_without_a_form_are_refused() -> None:
    x = mg.var("x", shape=(1, 1, "n"))
    with pytest.raises(GraphError, match="^convolution has no form in ONNX here: padding that the"):
        mg.to_onnx(mg.conv1d(x, mg.ones((1, 1, 3)), stride=2))


def test_a_missing_library_is_named(monkeypatch: Any) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "onnx":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"mend: pip install 'magmagraph\[onnx\]'"):
        mg.to_onnx(mg.var("x", shape=(2,)) * 2.0)


def test_nothing_is_written_where_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(MagmagraphError):
        mg.to_onnx(mg.linalg.inv(mg.var("x", shape=(2, 2))), path)
    assert not path.exists()


def test_records_name_operators_of_the_standard() -> None:
    for name, record in TABLE.items():
        operator = getattr(record, "onnx", "")
        if isinstance(operator, str) and operator:
            assert onnx.defs.has(operator), (name, operator)
