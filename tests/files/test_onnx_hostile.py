"""Models from strangers: damaged bytes, wrong sizes, files elsewhere, endless nesting."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.interchange.onnx import importer

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install magmagraph[onnx])")
FLOAT = onnx.TensorProto.FLOAT


def small(weight: Any, nodes: Any = None, functions: Any = ()) -> Any:
    """Return the model of a product with a weight."""
    helper = onnx.helper
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])] if nodes is None else nodes
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", FLOAT, ["n", 4])],
        [helper.make_empty_tensor_value_info("y")], [weight],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def weight() -> Any:
    return onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")


def external(location: str, **entries: Any) -> Any:
    tensor = onnx.TensorProto(name="w", dims=[4, 3], data_type=FLOAT,
                              data_location=onnx.TensorProto.EXTERNAL)  # fmt: skip
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(text))
    return tensor


def test_damaged_bytes(rng: np.random.Generator) -> None:
    """A changed byte gives a result or the library's error, and takes no time."""
    model = mg.to_onnx(mg.softmax(mg.tanh(mg.input("x", ("n", 4)) @ mg.var("w", init=np.eye(4)))))
    content = model.SerializeToString()
    for number in range(300):
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 4))):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        if number % 3 == 0:
            damaged = damaged[: rng.integers(len(damaged))]
        began = time.monotonic()
        with contextlib.suppress(mg.OnnxError):
            mg.from_onnx(bytes(damaged))
        assert time.monotonic() - began < 30


def test_names_are_texts() -> None:
    model = mg.to_onnx(mg.tanh(mg.input("odd_name", ("n", 4))))
    for word in (b"magmagraph", b"odd_name"):
        content = model.SerializeToString()
        assert word in content
        with pytest.raises(mg.OnnxError, match="no UTF-8 text"):
            mg.from_onnx(content.replace(word, b"\xb4" * len(word)))


def test_tensors_have_the_size_that_they_say() -> None:
    tensor = weight()
    for dims in ([1 << 40, 1 << 40], [4, -3], [5, 3], [1 << 20] * 3, [1] * 70):
        del tensor.dims[:]
        tensor.dims.extend(dims)
        with pytest.raises(mg.OnnxError):
            mg.from_onnx(small(tensor))


def test_external_data_is_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    values = np.arange(12, dtype=np.float32)
    (folder / "w.bin").write_bytes(bytes(8) + values.tobytes())
    (tmp_path / "outside.bin").write_bytes(values.tobytes())
    os.symlink(tmp_path / "outside.bin", folder / "link.bin")
    path = folder / "m.onnx"
    path.write_bytes(small(external("w.bin", offset=8, length=48)).SerializeToString())
    f = mg.from_onnx(path)
    np.testing.assert_array_equal(f.variables["w"].value, values.reshape(4, 3))
    absolute = str(tmp_path / "outside.bin")
    for location in ("../outside.bin", absolute, "link.bin", "..\\outside.bin"):
        path.write_bytes(small(external(location)).SerializeToString())
        with pytest.raises(mg.OnnxError, match="expected: a file in the model's folder"):
            mg.from_onnx(path)
    for entries in ({"offset": 100}, {"offset": -8}, {"length": 1 << 60}, {"length": "x"},
                    {"offset": 9}):  # fmt: skip
        path.write_bytes(small(external("w.bin", **entries)).SerializeToString())
        with pytest.raises(mg.OnnxError):
            mg.from_onnx(path)
    with pytest.raises(mg.MissingFileError):
        path.write_bytes(small(external("none.bin")).SerializeToString())
        mg.from_onnx(path)
    with pytest.raises(mg.OnnxError, match="where no folder is known"):
        mg.from_onnx(small(external("w.bin")).SerializeToString())


def test_functions_that_call_themselves_or_each_other_many_times(monkeypatch: Any) -> None:
    monkeypatch.setattr(importer, "_MOST_OPERATORS", 1000)
    helper, opsets = onnx.helper, [onnx.helper.make_opsetid("own", 1)]

    def call(name: str, given: str, made: str) -> Any:
        return helper.make_node(name, [given], [made], domain="own")

    endless = helper.make_function("own", "F", ["a"], ["b"], [call("F", "a", "b")], opsets)
    with pytest.raises(mg.OnnxError, match="nested deeper than 50 levels"):
        mg.from_onnx(small(weight(), [call("F", "x", "y")], [endless]))
    doubling = [
        helper.make_function("own", f"F{i}", ["a"], ["c"],
                             [call(f"F{i + 1}", "a", "b"), call(f"F{i + 1}", "b", "c")], opsets)
        for i in range(40)
    ]  # fmt: skip
    last = helper.make_function("own", "F40", ["a"], ["b"], [helper.make_node("Identity", ["a"],
                                ["b"])], [*opsets, helper.make_opsetid("", 21)])  # fmt: skip
    with pytest.raises(mg.OnnxError, match="applies more than .* operators"):
        mg.from_onnx(small(weight(), [call("F0", "x", "y")], [*doubling, last]))


def test_large_constants_are_not_computed_ahead() -> None:
    helper = onnx.helper
    size = onnx.numpy_helper.from_array(np.array([1 << 40]), "w")
    nodes = [helper.make_node("ConstantOfShape", ["w"], ["z"]),
             helper.make_node("Add", ["z", "z"], ["y"])]  # fmt: skip
    assert mg.from_onnx(small(size, nodes)).outputs[0].shape == (1 << 40,)
    ends = onnx.numpy_helper.from_array(np.array(1 << 40), "w")
    zero = onnx.numpy_helper.from_array(np.array(0))
    nodes = [helper.make_node("Constant", [], ["o"], value=zero),
             helper.make_node("Range", ["o", "w", "w"], ["q"]),
             helper.make_node("Range", ["o", "w", "w2"], ["y"])]  # fmt: skip
    step = helper.make_node("Constant", [], ["w2"], value_int=1)
    with pytest.raises(mg.OnnxError, match="numbers from 0 to 1099511627776 in steps of 1"):
        mg.from_onnx(small(ends, [step, *nodes]))


def test_a_mistake_of_a_rule_is_not_blamed_on_the_model(monkeypatch: Any) -> None:
    def failing(operator: Any) -> Any:
        return operator.nodes[7].shape[0] // 0

    monkeypatch.setitem(importer.OPERATORS, ("", "MatMul"), failing)
    with pytest.raises(mg.OnnxRuleError, match="rule for MatMul 'y' failed: IndexError") as caught:
        mg.from_onnx(small(weight()))
    assert "a mistake of magmagraph" in str(caught.value)
    assert "float32[n, 4]" in str(caught.value)
    # The same failure for a model that onnx refuses is the model's.
    wrong = onnx.numpy_helper.from_array(np.ones((5, 3), np.float32), "w")
    with pytest.raises(mg.OnnxError, match="does not take: .*[Ii]ncompatible dim") as caught:
        mg.from_onnx(small(wrong))
    assert not isinstance(caught.value, mg.OnnxRuleError)
    ints = onnx.numpy_helper.from_array(np.ones((4, 3), np.int32), "w")
    with pytest.raises(mg.OnnxError, match="operand 1 is int32, and another one float"):
        mg.from_onnx(small(ints))
    odd = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], nothing=1)
    with pytest.raises(mg.OnnxError, match="Unrecognized attribute: nothing"):
        mg.from_onnx(small(weight(), [odd]))
    monkeypatch.setattr(importer._Importer, "build", lambda self: {}["key"])
    with pytest.raises(mg.OnnxRuleError, match="could not be read: KeyError"):
        mg.from_onnx(mg.to_onnx(mg.tanh(mg.input("x", ("n", 4)))))
    with pytest.raises(mg.OnnxError, match="is damaged: .* is required but missing"):
        mg.from_onnx(small(weight()))  # whose output says no type


def test_damaged_attributes_and_operands(rng: np.random.Generator) -> None:
    """What is changed in the model's structure is an error of the model, and never of a rule."""
    x = mg.input("x", ("n", 3, 8, 8))
    kernel = mg.var("k", shape=(4, 3, 3, 3), init=mg.init.he_normal(seed=0))
    y = mg.concatenate([mg.relu(mg.conv2d(x, kernel, padding="same"))[:, ::2]] * 2, axis=1)
    content = mg.to_onnx(mg.mean(mg.sort(y, axis=1), axis=(2, 3))).SerializeToString()
    for _ in range(60):
        model = onnx.ModelProto.FromString(content)
        node = model.graph.node[int(rng.integers(len(model.graph.node)))]
        tensors = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT64]
        value = int(rng.choice([-1, 0, 2, 9, -7, 1 << 40]))
        if node.attribute and rng.integers(2):
            attribute = node.attribute[int(rng.integers(len(node.attribute)))]
            attribute.i = value
            attribute.ints[:] = [value for _ in attribute.ints]
        elif rng.integers(2):
            node.input[int(rng.integers(len(node.input)))] = "x"
        else:
            tensor = tensors[int(rng.integers(len(tensors)))]
            count = len(tensor.raw_data) // 8
            tensor.raw_data = np.full(count, value, np.int64).tobytes()
        try:
            mg.from_onnx(model.SerializeToString())
        except mg.OnnxRuleError:
            raise
        except mg.OnnxError:
            pass
