"""ONNX's own node tests: their models and data, and what the models give here."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph.dtypes import finfo
from magmagraph.ir.interpret import evaluate

_READERS = {"sequence_type": ("SequenceProto", "to_list"),
            "optional_type": ("OptionalProto", "to_optional")}  # fmt: skip


# Modules whose cases take most of the time in which all are made.
_LONG = ("averagepool", "lppool", "maxpool")


@functools.cache
def cases(whole: bool = True) -> dict[str, Any]:
    """Return the node tests by name; all, or those that are made in a second or two."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cases' own arithmetic
        for module in pkgutil.walk_packages(node.__path__, f"{node.__name__}."):
            if whole or module.name.rpartition(".")[2] not in _LONG:
                importlib.import_module(module.name)
        return {case.name: case for case in node._NodeTestCases}


def data_of(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """Return the model of a case, and its inputs and outputs."""
    import onnx

    if case.model is not None:
        return case.model, [
            (list(map(_array, inputs)), list(map(_array, outputs)))
            for inputs, outputs in case.data_sets
        ]
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for place in sorted(folder.glob("test_data_set_*")):
        both = []
        for kind, declared in (("input", model.graph.input), ("output", model.graph.output)):
            both.append([_read(place / f"{kind}_{i}.pb", d) for i, d in enumerate(declared)])
        sets.append((both[0], both[1]))
    return model, sets


def _read(path: Path, declared: Any) -> Any:
    import onnx

    name, reader = _READERS.get(declared.type.WhichOneof("value"), ("TensorProto", "to_array"))
    proto = getattr(onnx, name)()
    proto.ParseFromString(path.read_bytes())
    return getattr(onnx.numpy_helper, reader)(proto)


def _array(value: Any) -> Any:
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return [_array(member) for member in value] if isinstance(value, (list, tuple)) else value


def compiled(function: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Return the results of a function."""
    return list(function(*arrays))


def interpreted(function: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Return the results of a function by the reference interpreter: nothing is compiled."""
    graph = function.source_graph
    by_node = evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
    outputs = iter(by_node[node] for node in graph.outputs)
    return [_like(output, outputs) for output in function.outputs]


def _like(output: Any, values: Any) -> Any:
    return [_like(o, values) for o in output] if isinstance(output, list) else next(values)


def check(case: Any, run: Callable[[Any, Sequence[np.ndarray]], list[Any]]) -> bool:
    """Compare what a model gives with what it should; return whether inputs decide shapes.

    Such inputs are given as ``values=``: those that the error names.
    """
    model, sets = data_of(case)
    names = [value.name for value in model.graph.input]
    needed: tuple[str, ...] = ()
    for inputs, outputs in sets:
        feeds = dict(zip(names, inputs, strict=True))
        while True:
            try:
                function = mg.from_onnx(model, values={name: feeds[name] for name in needed})
                break
            except mg.OnnxError as error:
                if not error.inputs or set(error.inputs) <= set(needed):
                    raise
                needed = (*needed, *error.inputs)
        arrays = [np.asarray(feeds[node.name], node.dtype) for node in function.inputs]
        results = run(function, arrays)
        assert len(results) == len(outputs)
        for result, expected in zip(results, outputs, strict=True):
            _compare(result, expected, case)
    return bool(needed)


def _compare(result: Any, expected: Any, case: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list)
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            _compare(one, other, case)
        return
    expected = np.asarray(expected)
    if expected.dtype.name.startswith(("float8", "float6", "float4", "int4", "int2", "uint4",
                                       "uint2")):  # fmt: skip
        expected = expected.astype(result.dtype)  # what carries them here
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    relative, absolute = case.rtol, case.atol
    if "dft" in case.name:  # each result is a sum of all elements
        absolute = max(absolute, 1e-6 * float(np.abs(expected).max()))
    if result.dtype.name in ("float16", "bfloat16"):
        # ONNX's tolerance may be less than a unit of the last place of 16 bits.
        unit = 2 * float(finfo(result.dtype).eps)
        relative, absolute = max(relative, unit), max(absolute, unit)
        result, expected = result.astype(np.float32), expected.astype(np.float32)
    if result.dtype.kind in "fc":
        np.testing.assert_allclose(result, expected, rtol=relative, atol=absolute)
    else:
        np.testing.assert_array_equal(result, expected)


