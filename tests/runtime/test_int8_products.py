"""Products of int8 as compiled steps: every size around the blocks, extreme values, threads."""

from __future__ import annotations

import re

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.ir.graph import freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.products.integer import INT8_GEMM
from magmagraph.runtime.cpu.products import int8
from magmagraph.runtime.cpu.support import (
    Program,
    address_of,
    function_address,
    load_kernels_together,
)

SIZES = [(m, n, k) for m in (1, 3, 4, 6) for n in (1, 4, 7) for k in (0, 1, 63, 64, 130)]


def product(entry: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.full((len(a), len(b)), 77, np.int32)
    cells = [address_of(out), address_of(a), address_of(b), len(a), len(b), a.shape[1]]
    Program([(entry, cells)]).run()
    return out


def plain() -> int:
    """Return the function as processors without the instruction run it."""
    source = re.sub(r"__builtin_cpu_supports\(\"\w+\"\)", "0", int8.int8_source())
    (library,) = load_kernels_together([source], [int8.LEVEL])
    return function_address(library, "mg_int8_gemm")


@pytest.mark.parametrize("way", ["as here", "plain"])
def test_sums_are_exact(way: str, rng: np.random.Generator) -> None:
    entry = plain() if way == "plain" else int8.int8_gemm_step(0, 0, 0, 0, 0, 0)[0]
    for m, n, k in (*SIZES, (70, 300, 500), (1000, 5, 33)):
        a = rng.integers(-128, 128, (m, k)).astype(np.int8)
        b = rng.integers(-128, 128, (n, k)).astype(np.int8)
        right = a.astype(np.int32) @ b.T.astype(np.int32)
        np.testing.assert_array_equal(product(entry, a, b), right, f"{m, n, k}")
    for left in (-128, 127):
        for right in (-128, 127):
            a, b = np.full((5, 4000), left, np.int8), np.full((9, 4000), right, np.int8)
            assert (product(entry, a, b) == 4000 * left * right).all()


@pytest.mark.parametrize("rows", [(3,), (2, 5), ()])
def test_a_step_of_a_plan_is_the_array_expression(
    rows: tuple[int, ...], rng: np.random.Generator
) -> None:
    x, w = mg.input("x", (*rows, 40), "int8"), mg.input("w", (6, 40), "int8")
    made = INT8_GEMM(x, w)
    f = mg.function([x, w], made, device="cpu")
    feeds = [rng.integers(-128, 128, node.shape).astype(np.int8) for node in (x, w)]
    graph = freeze([x, w], [made])
    values = evaluate(graph, dict(zip(graph.inputs, feeds, strict=True)))
    np.testing.assert_array_equal(f(*feeds), values[graph.outputs[0]])
    assert [step.kernel for step in f.plan.steps] == ["gemm_int8"]


def test_other_dtypes_and_shapes_are_refused() -> None:
    x = mg.input("x", (3, 40), "int8")
    with pytest.raises(mg.errors.DTypeError, match="operands of int8 and int32"):
        INT8_GEMM(x, mg.input("w", (6, 40), "int32"))
    with pytest.raises(mg.errors.ShapeError, match="contracted extents"):
        INT8_GEMM(x, mg.input("w", (6, 41), "int8"))
    with pytest.raises(mg.errors.ShapeError, match="terms"):
        INT8_GEMM(x, mg.input("w", (2, 6, 40), "int8"))
