"""ONNX models: checked by onnx, run by onnxruntime, and equal to what runs here."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreted import values
from random_graphs import random_program
from table import (
    FIRST_OR_ALL,
    PUBLIC,
    flattened,
    leaves,
    mapped,
    results,
    rounded,
    sample_of,
    some_samples,
    together,
)

import magmagraph as mg
from magmagraph.dtypes import tolerance
from magmagraph.errors import GraphError, MagmagraphError
from magmagraph.ir.op import Sample
from magmagraph.ops import TABLE
from magmagraph.ops.control.observing import muted

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install magmagraph[onnx])")

FLOAT = np.dtype(np.float32)


def session(model: Any) -> Any:
    """Return a model as onnxruntime runs it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: Any, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model in onnxruntime, or in onnx's reference where there is no kernel for it."""
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        try:
            return list(session(model).run(None, feeds))
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            pass  # the standard has more types than the runtime has kernels
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

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def variants(sample: Sample) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the operands of a sample in each dtype that a program may export."""
    arrays = [v for v in flattened(sample.inputs) if isinstance(v, (np.ndarray, np.generic))]
    if any(array.dtype.kind == "c" for array in arrays):
        return
    if not arrays or any(array.dtype.kind == "f" for array in arrays):
        for dtype in ("float32", "float64", "float16"):
            yield dtype, rounded(sample.inputs, np.dtype(dtype))
        return
    for dtype in INTEGERS:
        if all((array.astype(dtype) == array).all() for array in arrays):
            yield dtype, mapped(
                sample.inputs,
                lambda v, to=dtype: v.astype(to) if isinstance(v, (np.ndarray, np.generic)) else v,
            )


def has_nan(operands: tuple[Any, ...]) -> bool:
    """Tell whether an operand holds NaN: ONNX does not say what comes of it."""
    return any(np.isnan(np.asarray(v, np.float64)).any() for v in flattened(operands)
               if isinstance(v, (np.ndarray, np.generic)))  # fmt: skip


@FIRST_OR_ALL
@pytest.mark.parametrize("names", together(PUBLIC, 40), ids=lambda names: f"{names[0]}-{names[-1]}")
def test_each_operation_in_each_dtype(names: list[str], which: str) -> None:
    """Exported, checked and run by onnxruntime as here; or refused, with the operations named."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    no_kernel = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
    for name in names:
        record = PUBLIC[name]
        for i in some_samples(record, which):
            _, sample = sample_of(name, i)
            for dtype, operands in variants(sample):
                nodes, feeds = leaves(operands)
                try:
                    made = results(record.function(*nodes, **sample.attrs))
                except MagmagraphError:  # not of this dtype
                    continue
                made = [node for node in made if isinstance(node, mg.Node)]
                where = f"{name}, sample {i}, {dtype}"
                try:
                    model = mg.to_onnx(made)  # checked in full
                except GraphError as error:
                    if not REFUSAL.search(str(error)):
                        raise
                    continue
                wanted = values(made, feeds)
                try:
                    given = session(model).run(None, _named(model, feeds))
                except no_kernel:  # the standard has it, and the runtime has not
                    if dtype not in ("float64", "uint64", "int64"):
                        raise
                    continue
                if has_nan(operands):
                    continue
                for node, ours, theirs in zip(made, wanted, given, strict=True):
                    try:
                        agree(node.dtype, theirs, ours, times=16.0)  # polynomials of its own
                    except AssertionError as error:
                        raise AssertionError(f"{where}: {error}") from None


REFUSAL = re.compile(r"no form in ONNX|is complex: |does not follow from the inputs|holds no nodes")


def _named(model: Any, feeds: dict[Any, Any]) -> dict[str, np.ndarray]:
    names = {value.name for value in model.graph.input}
    return {n.name: np.asarray(v, n.dtype) for n, v in feeds.items() if n.name in names}


@pytest.mark.parametrize("number", range(20))
def test_random_programs(number: int) -> None:
    drawn = random_program(number)
    outputs = list(drawn.outputs)
    model = mg.to_onnx(mg.function(drawn.inputs, outputs))
    wanted = values(outputs, dict(zip(drawn.inputs, drawn.feeds, strict=True)))
    named = {n.name: np.asarray(v, n.dtype) for n, v in zip(drawn.inputs, drawn.feeds, strict=True)}
    for node, ours, theirs in zip(outputs, wanted, run(model, named), strict=True):
        agree(node.dtype, theirs, ours, times=8.0)


# ---------------------------------------------------------------------- control


def test_loops_branches_and_layers(rng: np.random.Generator) -> None:
    x, c = mg.input("x", ("n", 3)), mg.input("c", (3,))
    which = mg.input("which", (), "int32")
    w = mg.variable("w", init=rng.normal(size=(3, 3)).astype(np.float32))

    def step(carry: mg.Node, row: mg.Node) -> tuple[mg.Node, mg.Node]:
        carry = mg.tanh(carry @ w + row)
        return carry, mg.sum(carry)

    last, rows = mg.scan(step, c, x)
    first, turned = mg.scan(step, c, x, reverse=True)
    choice = mg.cond(mg.sum(c) > 0, lambda a: a * 2, lambda a: -a @ w, c)
    one = mg.switch(which, [lambda a: a, lambda a: a * 2, mg.exp], c)
    count = mg.while_loop(
        lambda s: mg.sum(s[0]) < 100, lambda s: (s[0] * 2, s[1] + 1), (mg.absolute(c), 0)
    )
    bounded = mg.while_loop(lambda s: mg.sum(s) < 100, lambda s: s * 2, mg.absolute(c), 50)
    nested = mg.scan(
        lambda carry, row: (mg.cond(mg.sum(row) > 0, lambda: carry + row, lambda: carry),
                            mg.scan(lambda a, _: (a * 2, None), carry, length=3)[0]), c, x,
    )  # fmt: skip
    outputs = [
        last, rows, first, turned, mg.grad(mg.sum(rows**2), w), mg.grad(mg.sum(turned**2), x),
        choice, one, *count, bounded, mg.grad(mg.sum(bounded), c), *nested,
        mg.vmap(lambda r: mg.cond(mg.sum(r) > 0, lambda: r * 2, lambda: r))(x),
    ]  # fmt: skip
    for sign, number in ((1, -1), (-1, 1), (1, 7)):
        feeds = {x: rng.normal(size=(5, 3)).astype(np.float32), which: np.int32(number),
                 c: (sign * np.abs(rng.normal(size=3)) - 0.1).astype(np.float32)}  # fmt: skip
        assert_equal(outputs, feeds)
    rows_of = mg.input("rows", ("b", 6, 3))
    feed = rng.normal(size=(2, 6, 3)).astype(np.float32)
    for layer in (mg.nn.RNN(4), mg.nn.LSTM(4), mg.nn.GRU(4)):
        assert_equal(layer(rows_of), {rows_of: feed})


def test_updates_and_positions(rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 3))
    places = np.array([0, 0, 2])
    outputs = [
        x.at[1].add(2.0), x.at[places].add(x[:3]), x.at[places].set(x[1:4]), x.at[places].min(0.1),
        x.at[:, 1].multiply(3.0), *mg.nonzero(x > 0, size=8), mg.cumprod(x, axis=0),
        mg.take(x, np.array([9, -13]), axis=1, mode="wrap"),
        mg.take(x, [1, -1], axis=1, mode="wrap"),
        mg.cummax(x, axis=0, reverse=True), mg.cumlogsumexp(x, axis=1),
        mg.searchsorted(mg.sort(x[:, 0]), x[:, 1]), mg.fmod(x, 0.3),
    ]  # fmt: skip
    assert_equal(outputs, {x: rng.normal(size=(5, 3)).astype(np.float32)})


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_of_fourier(norm: str, rng: np.random.Generator) -> None:
    """Complex numbers inside of a program are pairs of real ones."""
    for n in (8, 7):
        x = mg.input("x", ("rows", n))
        spectrum = mg.fft.rfft(x, norm=norm)
        outputs = [
            mg.real(spectrum), mg.imag(mg.fft.fft(x, axis=0, norm=norm)), mg.absolute(spectrum),
            mg.absolute(mg.fft.ifft(x, norm=norm)), mg.absolute(mg.fft.fft2(x, norm=norm)),
            mg.fft.irfft(spectrum * (1.0 + 2.0j) / (spectrum + 9.0), n=n, norm=norm),
            mg.grad(mg.sum(mg.absolute(spectrum) ** 2), x),
        ]  # fmt: skip
        assert_equal(outputs, {x: rng.normal(size=(4, n)).astype(np.float32)})
        with pytest.raises(GraphError, match="the output 'output' is complex: .* by fft_half_spec"):
            mg.to_onnx(spectrum)


def test_dtypes_that_operators_lack_are_cast() -> None:
    for dtype in ("int8", "int16", "uint8"):
        x = mg.input("x", (3,), dtype)
        feed = np.array([1, 2, 3], dtype)
        model = assert_equal([x**2, mg.max(x), mg.cumprod(x), -x], {x: feed})
        assert "Cast" in {node.op_type for node in model.graph.node}


def test_integers_modulo_zero() -> None:
    x, y = mg.input("x", (3,), "int32"), mg.input("y", (3,), "int32")
    outputs = [x // y, x % y, mg.fmod(x, y), x // np.array([2, 0, 3])]
    assert_equal(outputs, {x: np.array([-7, 5, 9]), y: np.array([0, 3, -4])})


@pytest.mark.parametrize("dtype", INTEGERS[:-1])
def test_shifts_and_divisors_of_any_integers(dtype: str) -> None:
    """Shifts by the width or more, by negative counts, and of the lowest numbers, too."""
    lowest, highest = (int(v) for v in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    width = np.iinfo(dtype).bits
    x, y = mg.input("x", ("n", 1), dtype), mg.input("y", ("m",), dtype)
    numbers = np.array([lowest, lowest + 1, 0, 1, 6, 77, highest - 1, highest], dtype)
    signed = [-1, lowest] if lowest else [highest]
    counts = np.array([0, 1, width - 1, width, width + 1, *signed], dtype)
    outputs = [mg.left_shift(x, y), mg.right_shift(x, y), mg.gcd(x, y), mg.lcm(x, y)]
    assert_equal(outputs, {x: numbers[:, None], y: counts})
    assert_equal(outputs[2:], {x: numbers[:, None], y: numbers[::-1].copy()})
    assert_equal(outputs, {x: numbers[:0, None], y: counts})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_fractions_and_exponents_are_exact(dtype: str) -> None:
    info = np.finfo(dtype)
    powers = (2.0 ** np.arange(info.minexp - info.nmant, info.maxexp)).astype(dtype)
    near = [np.nextafter(powers, np.asarray(end, dtype)) for end in (0.0, np.inf)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -0.75], dtype)
    x = mg.input("x", ("n",), dtype)
    feed = np.concatenate([powers, -powers, *near, special])
    outputs = list(mg.frexp(x))
    for ours, theirs in zip(
        values(outputs, {x: feed}), run(mg.to_onnx(outputs), {"x": feed}), strict=True
    ):
        np.testing.assert_array_equal(theirs, ours)
        assert theirs.dtype == ours.dtype


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("function", [mg.convolve, mg.correlate])
def test_convolutions_of_signals(function: Any, mode: str, rng: np.random.Generator) -> None:
    for shape, window in (((7,), (4,)), ((5, 6), (2, 3)), ((3, 4, 5), (2, 1, 3))):
        named = tuple(f"n{axis}" for axis in range(len(shape)))
        x, v = mg.input("x", named), mg.input("v", window)
        pairs = function(mg.complex(x, x * 2.0 + 1.0), mg.complex(v, 1.0 - v), mode=mode)
        feeds = {n: rng.normal(size=s).astype(np.float32) for n, s in ((x, shape), (v, window))}
        assert_equal([function(x, v, mode=mode), mg.real(pairs), mg.imag(pairs)], feeds)
    both = mg.input("p", (3,)), mg.input("q", (5,))
    feeds = {n: rng.normal(size=n.shape).astype(np.float32) for n in both}
    assert_equal(function(*both, mode=mode), feeds)
    whole = mg.input("w", (3,), "int32")
    with pytest.raises(GraphError, match="^convolve has no form in ONNX here: Conv takes no int32"):
        mg.to_onnx(function(whole, whole, mode=mode))


@pytest.mark.parametrize("start", [0.5, 1.0, 1.5, np.nan, np.inf])
def test_fixed_points_end_at_the_same_step(start: float) -> None:
    a, s = mg.input("a", ("n",)), mg.input("s", ())
    root = mg.fixed_point(lambda x: (x + a / x) / 2.0, mg.ones_like(a))
    square = mg.fixed_point(
        lambda p: (p[0] * p[0], mg.cos(p[1])), (s, a), max_steps=30, tolerance=1e-3,
        unconverged="return",
    )  # fmt: skip
    outputs = [root.value, root.steps, mg.grad(mg.sum(root.value), a), *square.value, square.steps]
    feeds = {a: np.array([4.0, 2e4, 1e-4], np.float32), s: np.float32(start)}
    model = mg.to_onnx(outputs)
    for size in (3, 0):
        cut = {a: feeds[a][:size], s: np.asarray(feeds[s])}
        wanted = values(outputs, cut)
        given = run(model, {node.name: value for node, value in cut.items()})
        for node, ours, theirs in zip(outputs, wanted, given, strict=True):
            agree(node.dtype, theirs, ours, times=4.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_determinants_beyond_the_range_of_floats(dtype: str, rng: np.random.Generator) -> None:
    """Signs and logarithms are those of an elimination; ONNX's Det would be infinite, or 0."""
    a = mg.input("a", ("batch", "n", "n"), dtype)
    outputs = list(mg.linalg.slogdet(a))
    turned = np.stack([np.eye(4)[rows] for rows in ([1, 0, 2, 3], [3, 0, 1, 2], [3, 2, 1, 0])])
    singular = np.outer([1.0, 2.0, 3.0], [1.0, 1.0, 2.0])[None]
    for array in (
        rng.normal(size=(3, 5, 5)), 1e20 * rng.normal(size=(2, 40, 40)), turned, singular,
        1e-30 * rng.normal(size=(1, 3, 3)), np.zeros((2, 0, 0)), np.zeros((0, 2, 2)),
    ):  # fmt: skip
        assert_equal(outputs, {a: array.astype(dtype)})


def test_angles_of_complex_numbers() -> None:
    x, y = mg.input("x", ("n",)), mg.input("y", ("n",))
    parts = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, 1e30, 1e-40], np.float32)
    across, up = (part.ravel() for part in np.meshgrid(parts, parts))
    assert_equal(mg.angle(mg.complex(x, y)), {x: across, y: up})


# ---------------------------------------------------------------------- what is refused


def test_operations_without_a_form_are_listed() -> None:
    x = mg.var("x", shape=(3, 3))
    noise = mg.random.normal((3, 3))
    with pytest.raises(GraphError) as raised:
        mg.to_onnx([mg.linalg.cholesky(x), noise])
    text = str(raised.value)
    assert text.startswith("3 operations have no form in ONNX:\n  cholesky: float32[3, 3] by chol")
    assert "made at " + __file__ in text
    assert text.endswith("try: export the part that lies before or behind them")
    z = mg.var("z", shape=(2,), dtype="complex64")
    with pytest.raises(GraphError, match="^1 operation has no form in ONNX:\n  input of complex"):
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
    with pytest.raises(ImportError, match=r"try: pip install 'magmagraph\[onnx\]'"):
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
