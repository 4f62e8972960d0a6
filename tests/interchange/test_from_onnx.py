"""Models read by `mg.from_onnx`: calls, variables, training, control flow and errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import magmagraph as mg

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install magmagraph[onnx])")
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def value(name: str, shape: Any, element: int = FLOAT) -> Any:
    return onnx.helper.make_tensor_value_info(name, element, shape)


def model_of(
    nodes: list[Any], inputs: list[Any], outputs: list[str], held: dict[str, Any] | None = None,
    opset: int = 21, functions: Any = (),
) -> Any:  # fmt: skip
    """Return a model; its outputs say nothing of their shapes."""
    empty = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (held or {}).items()]
    graph = onnx.helper.make_graph(nodes, "made", inputs, empty, tensors)
    opsets = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("own", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def node(type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(type, inputs.split(), outputs.split(), f"{type}_node",
                                 **attributes)  # fmt: skip


def mlp(rng: np.random.Generator) -> tuple[Any, dict[str, np.ndarray]]:
    held = {
        "w": rng.normal(size=(4, 3)).astype(np.float32),
        "b": rng.normal(size=3).astype(np.float32),
        "half": np.float32(0.5),
    }
    nodes = [node("MatMul", "x w", "h"), node("Add", "h b", "s"), node("Mul", "s half", "y"),
             node("Relu", "y", "z")]  # fmt: skip
    return model_of(nodes, [value("x", ["batch", 4])], ["z", "s"], held), held


def test_calls_and_variables(rng: np.random.Generator) -> None:
    model, held = mlp(rng)
    f = mg.from_onnx(model)
    assert f.inputs[0].shape == ("batch", 4)
    for rows in (2, 5):
        x = rng.normal(size=(rows, 4)).astype(np.float32)
        s = x @ held["w"] + held["b"]
        for results in (f(x), f(x=x), f({"x": x})):
            assert isinstance(results, list)
            np.testing.assert_allclose(results[0], np.maximum(s * 0.5, 0), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(results[1], s, rtol=1e-5, atol=1e-6)
    assert set(f.variables) == {"w", "b"}  # numbers without axes are constants
    f.variables["b"].value = held["b"] + 1.0
    np.testing.assert_allclose(f(x)[1], s + 1.0, rtol=1e-5, atol=1e-6)


def test_a_file_and_its_bytes_give_the_same(tmp_path: Any, rng: np.random.Generator) -> None:
    model, _ = mlp(rng)
    onnx.save(model, tmp_path / "mlp.onnx")
    x = rng.normal(size=(2, 4)).astype(np.float32)
    expected = mg.from_onnx(model)(x)
    for given in (tmp_path / "mlp.onnx", str(tmp_path / "mlp.onnx"), model.SerializeToString()):
        np.testing.assert_array_equal(mg.from_onnx(given)(x)[0], expected[0])


def test_which_initializers_are_variables(rng: np.random.Generator) -> None:
    held = {name: np.ones(3, np.float32) for name in ("scale", "offset", "mean", "var")}
    model = model_of([node("BatchNormalization", "x scale offset mean var", "y")],
                     [value("x", ["n", 3, 2])], ["y"], held)  # fmt: skip
    assert set(mg.from_onnx(model).variables) == set(held)
    assert set(mg.from_onnx(model, trainable=True).variables) == {"scale", "offset"}
    assert set(mg.from_onnx(model, trainable=["scale"]).variables) == {"scale"}
    with pytest.raises(mg.OnnxError, match="trainable= names 'w', which is no input"):
        mg.from_onnx(model, trainable=["w"])


def test_a_network_trains(rng: np.random.Generator) -> None:
    model, held = mlp(rng)
    net = mg.from_onnx(model_of(list(model.graph.node[:2]), [value("x", ["batch", 4])], ["s"],
                                {k: held[k] for k in "wb"}),
                       as_network=True, loss="mse", optimizer=mg.optimizer.SGD(0.1))  # fmt: skip
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = x @ rng.normal(size=(4, 3)).astype(np.float32) - 1.0
    history = net.fit(x, y, epochs=60, batch_size=16, verbose=0)
    assert history["loss"][-1] < 1e-3 < history["loss"][0]
    assert set(net.weights()) == {"w", "b"}


def test_steps_of_an_optimizer_and_gradients(rng: np.random.Generator) -> None:
    model, held = mlp(rng)
    f = mg.from_onnx(model, trainable=True)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    gradient = mg.grad(mg.sum(f.outputs[1] ** 2), f.variables["w"])
    expected = 2 * x.T @ (x @ held["w"] + held["b"])
    found = mg.function(list(f.inputs), gradient)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------------- shapes


def test_shapes_are_computed_from_shapes(rng: np.random.Generator) -> None:
    """As exporters write a flatten, a mask of positions, and half of an axis."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "n", axis=0),
        node("Unsqueeze", "n first", "rows"),
        node("Concat", "rows minus", "flat", axis=0),
        node("Reshape", "x flat", "y"),
        node("Slice", "shape one two first", "second"),
        node("Div", "second two", "middle"),
        node("Slice", "x first middle one", "front"),
        node("Range", "zero n step", "places"),
    ]
    held = {"zero": np.int64(0), "first": np.array([0]), "minus": np.array([-1]),
            "one": np.array([1]), "two": np.array([2]), "step": np.int64(1)}  # fmt: skip
    f = mg.from_onnx(model_of(nodes, [value("x", ["n", "m", 3])], ["y", "front", "places"], held))
    assert f.outputs[0].shape[0] == "n"
    x = rng.normal(size=(2, 5, 3)).astype(np.float32)
    y, front, places = f(x)
    np.testing.assert_array_equal(y, x.reshape(2, -1))
    np.testing.assert_array_equal(front, x[:, :2])
    np.testing.assert_array_equal(places, [0, 1])


def test_inputs_that_decide_shapes_are_given() -> None:
    model = model_of([node("Reshape", "x shape", "y")],
                     [value("x", ["n", 6]), value("shape", [2], INT64)], ["y"])  # fmt: skip
    text = (
        r"Reshape 'Reshape_node': the shape of the result depends on the input 'shape'\n"
        r"  try: mg.from_onnx\(..., values={'shape': array}\)"
    )
    with pytest.raises(mg.OnnxError, match=text) as caught:
        mg.from_onnx(model)
    assert caught.value.inputs == ("shape",)
    f = mg.from_onnx(model, values={"shape": [-1, 3]})
    assert f(np.zeros((4, 6)))[0].shape == (8, 3)
    with pytest.raises(mg.OnnxError, match="values= names 's', which is no input"):
        mg.from_onnx(model, values={"s": [1]})


def test_shapes_of_inputs_are_given() -> None:
    unknown = onnx.helper.make_tensor_value_info("x", FLOAT, None)
    model = model_of([node("Add", "x z", "y")], [unknown, value("z", ["other", 2])], ["y"])
    with pytest.raises(mg.OnnxError, match="the input 'x' of the model has no declared shape"):
        mg.from_onnx(model)
    f = mg.from_onnx(model, shapes={"x": ("n", 2), "z": ("n", 2)})
    assert f(np.ones((3, 2)), np.ones((3, 2)))[0].shape == (3, 2)


# ---------------------------------------------------------------------- control flow


def test_branches_and_loops(rng: np.random.Generator) -> None:
    def graph(nodes: list[Any], inputs: list[Any], outputs: list[str]) -> Any:
        return onnx.helper.make_graph(
            nodes, "body", inputs, [onnx.helper.make_empty_tensor_value_info(o) for o in outputs]
        )

    double = graph([node("Add", "x x", "a")], [], ["a"])
    same = graph([node("Identity", "x", "a2")], [], ["a2"])
    body = graph(
        [node("Mul", "carry w", "next"), node("Identity", "go", "on"), node("Neg", "carry", "row")],
        [value("i", [], INT64), value("go", [], BOOL), value("carry", ["n", 3])],
        ["on", "next", "row"],
    )
    small = graph(
        [node("Add", "held held", "more"), node("ReduceSum", "more", "s", keepdims=0),
         node("Abs", "s", "size"), node("Less", "size most", "on2")],
        [value("i2", [], INT64), value("go2", [], BOOL), value("held", ["n", 3])], ["on2", "more"],
    )  # fmt: skip
    scanned = graph(
        [node("Add", "state column", "after"), node("Identity", "after", "shown")],
        [value("state", ["n"]), value("column", ["n"])], ["after", "shown"],
    )  # fmt: skip
    nodes = [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total none", "positive"),
        node("If", "positive", "chosen", then_branch=double, else_branch=same),
        node("Loop", "times yes x", "last rows", body=body),
        onnx.helper.make_node("Loop", ["", "yes", "x"], ["large"], "while", body=small),
        node("ReduceSum", "x axis", "start", keepdims=0),
        node("Scan", "start x", "end all", body=scanned, num_scan_inputs=1, scan_input_axes=[1],
             scan_output_axes=[1]),
    ]  # fmt: skip
    held = {"none": np.float32(0), "times": np.int64(3), "yes": np.bool_(True),
            "w": np.array([1.0, 2.0, 0.5], np.float32), "most": np.float32(100),
            "axis": np.array([1])}  # fmt: skip
    f = mg.from_onnx(
        model_of(nodes, [value("x", ["n", 3])], ["chosen", "last", "rows", "large", "all"], held)
    )
    for sign in (1, -1):
        x = (sign * np.abs(rng.normal(size=(2, 3))) + 0.01).astype(np.float32)
        chosen, last, rows, large, every = f(x)
        np.testing.assert_allclose(chosen, x * 2 if x.sum() > 0 else x)
        np.testing.assert_allclose(last, x * held["w"] ** 3, rtol=1e-5)
        powers = np.stack([-x * held["w"] ** k for k in range(3)])
        np.testing.assert_allclose(rows, powers, rtol=1e-5)
        expected = x + x
        while abs(expected.sum()) < 100:
            expected = expected + expected
        np.testing.assert_allclose(large, expected)
        np.testing.assert_allclose(every, x.sum(1, keepdims=True) + np.cumsum(x, 1), rtol=1e-5)


def test_sequences_are_lists(rng: np.random.Generator) -> None:
    nodes = [
        node("SplitToSequence", "x two", "s", axis=1),
        node("SequenceAt", "s one", "second"),
        node("SequenceInsert", "s x", "more"),
        node("ConcatFromSequence", "more", "joined", axis=1),
        node("SequenceLength", "more", "length"),
    ]
    held = {"two": np.int64(2), "one": np.int64(1)}
    f = mg.from_onnx(model_of(nodes, [value("x", ["n", 4])], ["s", "second", "joined", "length"],
                              held))  # fmt: skip
    x = rng.normal(size=(3, 4)).astype(np.float32)
    parts, second, joined, length = f(x)
    assert [part.shape for part in parts] == [(3, 2), (3, 2)]
    np.testing.assert_array_equal(second, x[:, 2:])
    np.testing.assert_array_equal(joined, np.concatenate([x, x], 1))
    assert length == 3


def test_functions_of_the_model(rng: np.random.Generator) -> None:
    """They are replaced by their bodies; attributes refer to those of the call."""
    inner = onnx.helper.make_node("LeakyRelu", ["a"], ["r"])
    inner.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT,
                                               ref_attr_name="slope"))  # fmt: skip
    function = onnx.helper.make_function(
        "own", "Twice", ["a"], ["b"], [inner, node("Add", "r r", "b")],
        [onnx.helper.make_opsetid("", 21)], ["slope"],
    )
    call = onnx.helper.make_node("Twice", ["x"], ["y"], domain="own", slope=0.25)
    f = mg.from_onnx(model_of([call], [value("x", ["n"])], ["y"], functions=[function]))
    np.testing.assert_allclose(f([-2.0, 3.0])[0], [-1.0, 6.0])


def test_quantized_weights(rng: np.random.Generator) -> None:
    """As quantizers write a product: quantized and dequantized operands."""
    weight = rng.integers(-128, 128, (4, 3)).astype(np.int8)
    held = {"sx": np.float32(0.05), "zx": np.uint8(128), "w": weight,
            "sw": np.array([0.1, 0.2, 0.3], np.float32), "zw": np.zeros(3, np.int8)}  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x sx zx", "q"), node("DequantizeLinear", "q sx zx", "d"),
        node("DequantizeLinear", "w sw zw", "dw", axis=1), node("MatMul", "d dw", "y"),
    ]  # fmt: skip
    f = mg.from_onnx(model_of(nodes, [value("x", ["n", 4])], ["q", "y"], held))
    x = rng.normal(size=(5, 4)).astype(np.float32)
    q, y = f(x)
    expected = np.clip(np.rint(x / np.float32(0.05)) + 128, 0, 255)
    np.testing.assert_array_equal(q, expected.astype(np.uint8))
    rounded = (expected - 128) * 0.05
    np.testing.assert_allclose(y, rounded @ (weight * held["sw"]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", range(13, 24))
def test_opsets(opset: int, rng: np.random.Generator) -> None:
    """Reductions, pieces and padding got their axes from attributes, then from operands."""
    mean = (
        node("ReduceMean", "x", "m", axes=[1]) if opset < 18 else node("ReduceMean", "x one", "m")
    )
    nodes = [
        mean, node("Softmax", "x", "p"), node("Split", "p", "a b", axis=1)
        if opset < 18 else node("Split", "p", "a b", axis=1, num_outputs=2),
        node("Pad", "m width", "w"),
    ]  # fmt: skip
    held = {"one": np.array([1]), "width": np.array([1, 0, 0, 2])}
    f = mg.from_onnx(model_of(nodes, [value("x", ["n", 4])], ["m", "a", "w"], held, opset))
    x = rng.normal(size=(3, 4)).astype(np.float32)
    m, a, w = f(x)
    np.testing.assert_allclose(m, x.mean(1, keepdims=True), rtol=1e-5, atol=1e-6)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(a, p[:, :2], rtol=1e-5)
    np.testing.assert_allclose(w, np.pad(m, ((1, 0), (0, 2))))


# ---------------------------------------------------------------------- errors


def test_unsupported_operators_are_named_at_once() -> None:
    branch = onnx.helper.make_graph([node("StringSplit", "x", "t u")], "b", [],
                                    [onnx.helper.make_empty_tensor_value_info("t")])  # fmt: skip
    nodes = [
        node("NonMaxSuppression", "x x", "a"), node("Other", "x", "b"),
        onnx.helper.make_node("Fused", ["x"], ["c"], "fused", domain="com.microsoft"),
        node("If", "x", "d", then_branch=branch, else_branch=branch), node("Tanh", "x", "e"),
    ]  # fmt: skip
    with pytest.raises(mg.OnnxError) as caught:
        mg.from_onnx(model_of(nodes, [value("x", ["n"])], ["a"]))
    assert str(caught.value) == (
        "the model holds 4 operators that are not supported:\n"
        "  NonMaxSuppression: 'NonMaxSuppression_node'\n"
        "  Other (no such operator in ai.onnx 21): 'Other_node'\n"
        "  Fused (no such operator in com.microsoft): 'fused'\n"
        "  StringSplit: 'StringSplit_node', 'StringSplit_node'\n"
        "  expected: operators that docs/onnx.md lists"
    )
    assert caught.value.operators == ("NonMaxSuppression", "Other", "Fused", "StringSplit")


@pytest.mark.parametrize(
    ("nodes", "inputs", "text"),
    [
        ([node("Add", "x missing", "y")], [value("x", [2])], "an operand of Add 'Add_node' is 'mi"),
        ([node("Add", "x z", "y")], [value("x", [2]), value("z", [3])],
         r"Add 'Add_node': add: .*2.*3"),
        ([node("Reshape", "x", "y")], [value("x", [2])], "it lacks operand 1"),
        ([node("Transpose", "x", "y", perm=[3])], [value("x", [2])], "Transpose 'Transpose_node'"),
        ([node("NonZero", "x", "y")], [value("x", [2])], "depends on the input 'x'"),
        ([node("Cast", "x", "y", to=99)], [value("x", [2])], "number 99 is no dtype here"),
        ([node("ConstantOfShape", "s", "y")], [value("s", ["k"], INT64)], "depends on the input"),
        ([node("Tanh", "x", "y")], [value("x", [2], onnx.TensorProto.STRING)], "is STRING"),
        ([node("Softmax", "x", "y")], [value("x", [2])], None),
    ],
)  # fmt: skip
def test_wrong_models(nodes: list[Any], inputs: list[Any], text: str | None) -> None:
    opset = 21 if text else 11
    text = text or r"Softmax \(of opset 11, from before opset 13\): 'Softmax_node'"
    with pytest.raises(mg.OnnxError) as caught:
        mg.from_onnx(model_of(nodes, inputs, ["y"], opset=opset))
    assert re.search(text, str(caught.value), re.DOTALL), str(caught.value)


def test_what_is_no_model() -> None:
    with pytest.raises(mg.OnnxError, match="from_onnx is given a int"):
        mg.from_onnx(3)
    with pytest.raises(mg.MissingFileError):
        mg.from_onnx("/no/such/model.onnx")
    with pytest.raises(mg.OnnxError, match="is of opset 99"):
        mg.from_onnx(model_of([], [], [], opset=99))


def test_older_models_are_converted() -> None:
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Squeeze", ["x"], ["a"], axes=[1]),  # an attribute before opset 13
         helper.make_node("Clip", ["a"], ["y"], min=-1.0, max=2.0)],  # before opset 11
        "g", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    (made,) = mg.from_onnx(model)(np.array([[-3.0], [0.5], [7.0]], np.float32))
    np.testing.assert_array_equal(made, np.array([-1.0, 0.5, 2.0], np.float32))
