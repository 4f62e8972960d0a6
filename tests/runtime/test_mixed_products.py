"""Products of 16-bit and tf32 operands on the CPU: compiled, against the array expression."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.ops.products.rounded import tf32
from magmagraph.runtime.cpu.products.mixed import mixed_gemm_step
from magmagraph.runtime.cpu.support import Program, address_of

FLAGS = list(itertools.product((False, True), repeat=2))
WAYS = [
    ("float16", "float16", False), ("float16", "float32", False), ("bfloat16", "bfloat16", False),
    ("bfloat16", "float32", False), ("float32", "float32", True),
]  # fmt: skip
SIZES = [(30, 20, 40), (1, 7, 3), (65, 1, 129), (5, 6, 0)]


def computed(x: np.ndarray, rounds: bool) -> np.ndarray:
    """Return a factor as it is multiplied."""
    return (tf32(np, x) if rounds else x).astype("f8")


@pytest.mark.parametrize(("factors", "stored", "rounds"), WAYS)
@pytest.mark.parametrize("flags", FLAGS)
def test_a_product(
    factors: str, stored: str, rounds: bool, flags: tuple[bool, bool], rng: np.random.Generator
) -> None:
    for (m, n, k), count in itertools.product(SIZES, (1, 3)):
        a = rng.standard_normal((count, m, k)).astype(canonical(factors))
        b = rng.standard_normal((1, k, n)).astype(canonical(factors))
        c = rng.standard_normal((count, m, n)).astype(canonical(stored))
        alpha, beta = np.float32([0.5]), np.float32([-2.0])
        out = np.full(c.shape, 7.0, c.dtype)
        left, right = (
            np.ascontiguousarray(np.swapaxes(x, -1, -2)) if turned else x
            for x, turned in zip((a, b), flags, strict=True)
        )
        scratch = np.full(a.size + b.size + c.size, np.nan, "f4")
        step = mixed_gemm_step(
            a.dtype, c.dtype, *map(address_of, (out, left, right)), m, n, k, count,
            address_of(scratch), tf32=rounds, shared_b=True, c=address_of(c),
            alpha=address_of(alpha), beta=address_of(beta),
            transpose_a=flags[0], transpose_b=flags[1],
        )  # fmt: skip
        assert Program([step], keep=(out, left, right, c, alpha, beta, scratch)).run() == 1
        wanted = 0.5 * (computed(a, rounds) @ computed(b, rounds)) - 2.0 * c.astype("f8")
        assert_agrees(out, wanted, "reassoc", max(1.0, float(np.abs(wanted).max(initial=0))))


def test_special_values_survive_the_conversions() -> None:
    special = np.array([[np.inf, 0.0, 0.0], [0.0, np.nan, 0.0], [0.0, 0.0, 1e-40]], "f4")
    x, eye = mg.input("x", (3, 3)), mg.var("eye", init=np.eye(3, dtype="f4"))
    for precision in ("tf32", "bfloat16", "float16"):
        f = mg.function([x], x @ eye, precision=precision)
        made = f(special)
        assert np.isnan(made[1]).all()
        assert made[0, 0] == np.inf
        assert np.isnan(made[0, 1:]).all(), "infinity times zero"
        assert abs(made[2, 2]) < 2e-40


@pytest.mark.parametrize("precision", ["tf32", "bfloat16", "float16"])
def test_plans_need_no_array_steps(precision: str, rng: np.random.Generator) -> None:
    x = mg.input("x", ("n", 24))
    w = mg.var("w", init=rng.standard_normal((24, 24)).astype("f4") / 5)
    loss = mg.mean(mg.tanh(mg.tanh(x @ w) @ w) ** 2)
    f = mg.function([x], loss, {w: w - 0.1 * mg.grad(loss, w)}, precision=precision)
    f(rng.standard_normal((10, 24)).astype("f4"))
    assert "array" not in {step.kernel for step in f.plan.steps}
    products = [step for step in f.plan.steps if step.kernel == "gemm"]
    for step in products:
        sizes = [int(v.type.size) for v in (*step.inputs[:2], *step.outputs)]
        size = sum(sizes[:2]) + (sizes[2] if step.outputs[0].type.dtype.itemsize == 2 else 0)
        assert f.plan.slots[step.workspace].size == 4 * size


def test_scalars_of_16_bits_run_as_an_array_expression(rng: np.random.Generator) -> None:
    a = rng.standard_normal((8, 8)).astype(np.float16)
    x, s = mg.input("x", (8, 8), dtype="float16"), mg.input("s", (), dtype="float16")
    f = mg.function([x, s], x @ (x * s))
    made = f(a, np.float16(0.25))
    wanted = a.astype("f8") @ (a * np.float16(0.25)).astype("f8")
    assert_agrees(made, wanted, "half", float(np.abs(wanted).max()))


def test_batches_with_a_shared_factor(rng: np.random.Generator) -> None:
    a = rng.standard_normal((4, 9, 12)).astype("f4")
    b = rng.standard_normal((4, 12, 5)).astype("f4")
    x, y = mg.input("x", ("n", 9, 12)), mg.input("y", ("n", 12, 5))
    given: dict[str, Any] = {"tf32": None, "bfloat16": None, "float16": None}
    for precision in given:
        f = mg.function([x, y], [x @ y, mg.einsum("nij,jk->nik", x, y[0])], precision=precision)
        for made, other in zip(f(a, b), (b, b[0]), strict=True):
            assert_agrees(made, a.astype("f8") @ other.astype("f8"), "half", 12.0)
