"""Where generated CUDA takes cheaper arithmetic, and where it must not."""

from __future__ import annotations

from typing import Any

import pytest
from regions import B, N, make_body, region_of

import magmagraph as mg
from magmagraph.codegen.cuda import cuda_code
from magmagraph.codegen.cuda.kernels import RegionKernels
from magmagraph.codegen.cuda.prelude import complete

MATRIX, ROWS = (B, N), (B, 1)


def source(build: Any, *operands: Any) -> str:
    return RegionKernels(region_of(make_body(operands, build))).source


def highest(x: Any) -> Any:
    return mg.max(x, axis=1, keepdims=True)


@pytest.mark.parametrize(
    "build",
    [
        mg.softmax,
        lambda x: mg.logsumexp(x, axis=1),
        lambda x: mg.exp(x - highest(x)),
    ],
    ids=["softmax", "logsumexp", "written out"],
)
def test_exponentials_of_what_is_not_above_zero(build: Any) -> None:
    text = source(build, MATRIX)
    assert "mg_exp_below(" in text
    assert "expf(" not in text


@pytest.mark.parametrize(
    ("build", "dtype"),
    [
        (lambda x: mg.exp(x), "float32"),
        (lambda x: mg.exp(x - 0.5 * highest(x)), "float32"),
        (lambda x: mg.exp(x - mg.mean(x, axis=1, keepdims=True)), "float32"),
        (lambda x: mg.exp(2.0 * x - highest(x)), "float32"),
        (lambda x: mg.exp(x - mg.min(x, axis=1, keepdims=True)), "float32"),
        (mg.softmax, "float64"),
    ],
    ids=["plain", "half", "mean", "twice", "least", "float64"],
)
def test_other_exponentials_are_the_librarys(build: Any, dtype: str) -> None:
    text = source(build, (MATRIX, dtype))
    assert "mg_exp_below(" not in text
    assert "exp(" in text or "expf(" in text


HALF = (MATRIX, "bfloat16")


@pytest.mark.parametrize(
    "build",
    [
        lambda x: mg.cast(mg.exp(2.0 * mg.cast(x, "float32")) / 3.0, "bfloat16"),
        lambda x: mg.cast(mg.sigmoid(mg.cast(x, "float32")), "float16"),
        lambda x: mg.cast(mg.gelu(mg.cast(x, "float32"), approximate="tanh"), "bfloat16"),
    ],
    ids=["quotient", "sigmoid", "gelu"],
)
def test_what_becomes_16_bits_is_computed_roughly(build: Any) -> None:
    text = source(build, HALF)
    assert "mg_exp_below(" in text
    assert "expf(" not in text


@pytest.mark.parametrize(
    "build",
    [
        lambda x: mg.exp(mg.cast(x, "float32")),
        lambda x: mg.sum(mg.exp(2.0 * mg.cast(x, "float32")), 1),
        lambda x: mg.cast(mg.sum(mg.exp(2.0 * mg.cast(x, "float32")), 1), "bfloat16"),
        lambda x: [y := mg.exp(mg.cast(x, "float32")), mg.cast(y, "bfloat16")],
        lambda x: mg.cast(mg.exp(mg.cast(x, "float32")), "int32"),
    ],
    ids=["float32", "a sum", "a sum of 16 bits", "both", "integers"],
)
def test_what_does_not_is_computed_to_the_last_place(build: Any) -> None:
    text = source(build, HALF)
    assert "mg_exp_below(" not in text
    assert "expf(" in text


def test_quotients_by_what_neighbours_share() -> None:
    assert "mg_quotient(" in source(lambda x, r: x / r, MATRIX, ROWS)
    assert "mg_quotient(" in source(lambda x: x / 3.0, MATRIX)


@pytest.mark.parametrize(
    ("build", "operands"),
    [
        (lambda x, y: x / y, (MATRIX, MATRIX)),
        (lambda x, r: r / x, (MATRIX, ROWS)),
        (lambda x, r: x / r, ((MATRIX, "float64"), (ROWS, "float64"))),
        (lambda x, r: x / r, ((MATRIX, "float16"), (ROWS, "float16"))),
    ],
    ids=["each its own", "numerator", "float64", "float16"],
)
def test_other_quotients_are_divisions(build: Any, operands: Any) -> None:
    assert "mg_quotient(" not in source(build, *operands)


def test_sigmoids_take_an_inverse() -> None:
    assert "mg_inverse(" in source(mg.sigmoid, MATRIX)
    assert "mg_inverse(" not in source(mg.sigmoid, (MATRIX, "float64"))


def test_long_functions_are_called() -> None:
    text = complete("x = mg_zeta_f64(x, 2.0); y = mg_maximum_f32(a, b);", 1)
    assert "static __device__ __noinline__ double mg_zeta_f64" in text
    assert "static __device__ inline float mg_maximum_f32" in text


def test_what_has_no_room_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def keeping() -> str:
        return source(mg.softmax, MATRIX).partition("mg_kernel_k4")[2].partition("mg_kernel_")[0]

    kept = keeping()
    assert "_kept[part]" in kept
    monkeypatch.setattr(cuda_code, "REGISTERS", 16)
    again = keeping()
    assert "_kept[part]" not in again
    assert again.count("mg_exp_below(") == 2
