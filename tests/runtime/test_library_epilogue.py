"""Which bodies behind a product a library computes in its call; no device is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.codegen.cuda.products.library_epilogue import LibraryEpilogue, library_epilogue
from magmagraph.ir.graph import Graph, Trace
from magmagraph.ir.plan import Plan, Role
from magmagraph.passes import pipeline
from magmagraph.passes.lowering.bind import bind
from magmagraph.runtime.cpu.kernel_args import bodies_of
from magmagraph.runtime.target import made_up

Form = Callable[[Any, Any], Any]


def planned(form: Form, precision: str, n: Any = 512) -> Plan:
    """Return the plan for a device of a form of a product and a bias, which a product reads."""
    x = mg.input("x", (n, 256))
    w = mg.var("w", shape=(256, 384), init=mg.init.zeros())
    last = mg.var("last", shape=(384, 64), init=mg.init.zeros())
    bias = mg.var("bias", shape=(384,), init=mg.init.zeros())
    f = mg.function([x], form(x @ w, bias) @ last, precision=precision)
    options = options_of(precision=precision, device="cuda", threads=132)
    plan, _ = pipeline.run(f.source_graph, Trace(), options=options)
    return plan


def found(form: Form, precision: str = "bfloat16") -> LibraryEpilogue | None:
    """Return the epilogue of the first product's reader."""
    steps = planned(form, precision).steps
    first = next(i for i, step in enumerate(steps) if step.kernel == "gemm")
    slot = steps[first].outputs[0].slot
    reader = next(s for s in steps[first + 1 :] if any(v.slot == slot for v in s.inputs))
    parameter = [v.slot for v in reader.inputs].index(slot)
    (body,) = bodies_of(reader)
    assert isinstance(body, Graph)
    return library_epilogue(body, parameter)


TAKEN: dict[str, Form] = {
    "bias": lambda z, b: z + b,
    "relu": lambda z, b: mg.relu(z),
    "relu_bias": lambda z, b: mg.relu(z + b),
    "gelu": lambda z, b: mg.gelu(z, approximate=True),
    "gelu_bias": lambda z, b: mg.gelu(b + z, approximate=True),
}
LEFT: dict[str, Form] = {
    "another function": lambda z, b: mg.sigmoid(z + b),
    "gelu in the other form": lambda z, b: mg.gelu(z),
    "a bias behind the function": lambda z, b: mg.relu(z) + b,
    "a factor": lambda z, b: mg.relu(z * 2.0 + b),
    "two functions": lambda z, b: mg.relu(mg.gelu(z, approximate=True)),
    "a bias along the rows": lambda z, b: mg.relu(z + mg.sum(z, axis=1, keepdims=True)),
    "a rounding of the user's": lambda z, b: mg.relu(mg.cast(mg.cast(z, "float16"), "float32")),
    "the product twice": lambda z, b: mg.relu(z + z),
}


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "tf32"])
@pytest.mark.parametrize("name", TAKEN)
def test_what_libraries_compute(name: str, precision: str) -> None:
    epilogue = found(TAKEN[name], precision)
    assert epilogue is not None
    assert epilogue.name == name
    assert (epilogue.bias is not None) == ("bias" in name)


@pytest.mark.parametrize("name", LEFT)
def test_what_they_do_not(name: str) -> None:
    assert found(LEFT[name]) is None


def test_a_reader_is_launched_with_its_product() -> None:
    symbolic = planned(TAKEN["relu_bias"], "bfloat16", "n")
    steps = bind(symbolic, {"n": 700}, made_up("cuda:0", threads=264)).steps
    (merged,) = [step for step in steps if step.role is Role.LIBRARY_EPILOGUE]
    product, reader = merged.parts
    assert product.outputs[0].type.dtype.itemsize == 2
    assert merged.outputs == reader.outputs
    # Its bias is converted before, in a step of its own.
    converted = steps[next(i for i, step in enumerate(steps) if step is merged) - 1]
    assert converted.outputs[0].slot in {value.slot for value in merged.inputs}


def test_dtypes_of_a_plan_are_the_devices() -> None:
    kernels = {step.kernel for step in planned(TAKEN["gelu_bias"], "float16").steps}
    assert "array" not in kernels, "half products run in the library"
    x = mg.input("x", (64, 64), dtype="float16")
    f = mg.function([x], x @ x)
    f(np.ones((64, 64), np.float16))
    assert [step.kernel for step in f.plan.steps] == ["gemm"], "and on the CPU in BLAS, widened"
