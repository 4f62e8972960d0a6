"""The C helpers of generated kernels against NumPy and SciPy, at ordinary and at extreme values."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from magmagraph.codegen.functions.groups import GROUP_TYPES
from magmagraph.codegen.functions.rationals import RATIONALS
from magmagraph.codegen.functions.scalar import (
    HELPERS,
    LIBM,
    computing_type,
    prelude,
    resolve,
    vector_math,
)
from magmagraph.dtypes import canonical, tolerance
from magmagraph.errors import CompilerUnavailable
from magmagraph.runtime.cpu.compiler import compile_library
from magmagraph.runtime.cpu.compilers import find_compiler
from magmagraph.runtime.cpu.support import SUPPORT_HEADER

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 5.0, 1e-5, 1e-30, 1e20]
)


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        find_compiler()
    except CompilerUnavailable as error:
        pytest.skip(str(error))


def _run(expression: str, dtype: np.dtype, *operands: np.ndarray) -> np.ndarray:
    """Evaluate a scalar expression over arrays in a loop that may vectorize."""
    kind = computing_type(dtype)
    letters = "ab"[: len(operands)]
    parameters = "".join(f", const {kind} *restrict {c}_" for c in letters)
    loads = " ".join(f"const {kind} {c} = {c}_[i];" for c in letters)
    kernel = (
        f"void kernel(long n, {kind} *restrict result{parameters}) {{\n"
        '    _Pragma("omp simd")\n'
        f"    for (long i = 0; i < n; i++) {{ {loads} "
        f"result[i] = {resolve(expression, dtype)}; }}\n}}\n"
    )
    head = f"#define _GNU_SOURCE\n#include <math.h>\n#include <stdint.h>\n{vector_math()}\n"
    library = compile_library(head + prelude(kernel) + "\n" + kernel)
    arrays = [np.ascontiguousarray(operand, dtype=dtype) for operand in operands]
    result = np.empty_like(arrays[0])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (result, *arrays)]
    library.kernel(ctypes.c_long(result.size), *pointers)
    return result


def test_every_helper_compiles_without_warnings(tmp_path: Any) -> None:
    source = tmp_path / "all.c"
    # Those of complex numbers are C++: tests/runtime/test_cuda_complex.py compiles them.
    calls = "\n".join(f"/* {name} */" for name in HELPERS if "_c" not in name[-5:])
    source.write_text(
        f"#define _GNU_SOURCE\n#include <math.h>\n{SUPPORT_HEADER}\n{vector_math()}\n"
        + "".join(RATIONALS.values())
        + GROUP_TYPES
        + prelude(calls)
    )
    command = [*find_compiler().command, "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command += ["-fopenmp-simd", "-Wno-unused-function", "-Wno-psabi", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_function_is_refused() -> None:
    with pytest.raises(KeyError, match="exp has no C function for int32"):
        resolve("$exp(a)", np.dtype("int32"))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("floor_divide", np.floor_divide),
        ("remainder", np.remainder),
        ("maximum", np.maximum),
        ("minimum", np.minimum),
        ("power", np.power),
        ("hypot", np.hypot),
        ("atan2", np.arctan2),
    ],
)
def test_float_pairs(
    name: str, reference: Callable[..., Any], dtype: str, rng: np.random.Generator
) -> None:
    kind = np.dtype(dtype)
    values = np.concatenate([rng.normal(size=500) * 3.0, SPECIAL]).astype(kind)
    others = rng.permutation(values)
    corners = np.stack(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1).astype(kind)
    x, y = np.concatenate([values, corners[0]]), np.concatenate([others, corners[1]])
    with np.errstate(all="ignore"):
        expected = reference(x, y)
    found = _run(f"${name}(a, b)", kind, x, y)
    assert tolerance(kind, "exact").close(found, expected, 0.0)
    if name in ("floor_divide", "remainder"):
        zero = expected == 0.0
        assert np.array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_operand_functions_of_the_c_library(dtype: str, rng: np.random.Generator) -> None:
    names = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh"}
    names |= {"acosh": "arccosh", "atanh": "arctanh"}
    kind = np.dtype(dtype)
    x = np.concatenate([rng.normal(size=500) * 3.0, rng.uniform(-1, 1, 200), SPECIAL]).astype(kind)
    for name in LIBM:
        if name in ("power", "atan2", "hypot", "fmod", "copysign", "fma"):
            continue
        function = getattr(scipy.special if name.startswith("erf") else np, names.get(name, name))
        with np.errstate(all="ignore"):
            expected = function(x.astype(np.float64)).astype(kind)
        found = _run(f"${name}(a)", kind, x)
        scale = 0.0 if name not in ("sin", "cos", "tan") else 1.0
        assert tolerance(kind, "stable").close(found, expected, scale), name


def _digamma(x: np.ndarray) -> np.ndarray:
    """Return SciPy's digamma, which loses digits below 0, by the recurrence from above 0."""
    result = np.where(x < 0, 0.0, x)
    for i, value in np.ndenumerate(x):
        steps = int(np.ceil(-value)) if np.isfinite(value) and value < 0 else 0
        terms = sum(1.0 / (value + k) for k in range(steps)) if value != np.rint(value) else np.nan
        result[i] = (
            scipy.special.digamma(value + steps) - terms if steps else scipy.special.digamma(value)
        )
    return result


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_special_functions(dtype: str, rng: np.random.Generator) -> None:
    kind = np.dtype(dtype)
    allowed = tolerance(kind, "stable")
    spread = np.concatenate([rng.normal(size=500) * 5.0, SPECIAL[~np.isneginf(SPECIAL)]]).astype(
        kind
    )
    inside = np.concatenate(
        [np.tanh(spread), 1.0 - 10.0 ** rng.uniform(-17, 0, 200), [1.0, -1.0, 1.5, 1e-30]]
    ).astype(kind)
    order = rng.integers(2, 7, spread.size).astype(kind)
    cases: list[tuple[str, Any, tuple[np.ndarray, ...], float]] = [
        ("$log_gamma(a)", scipy.special.gammaln, (spread,), 1.0),
        ("$digamma(a)", _digamma, (spread,), 10.0),  # of terms that cancel at roots
        ("$erfinv(a)", scipy.special.erfinv, (inside,), 0.0),
        ("$zeta(a, b)", scipy.special.zeta, (order, spread), 0.0),
    ]
    for expression, reference, operands, scale in cases:
        wide = [operand.astype(np.float64) for operand in operands]
        with np.errstate(all="ignore"):
            expected = reference(*wide).astype(kind)
        assert allowed.close(_run(expression, kind, *operands), expected, scale), expression


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_pairs(dtype: str, rng: np.random.Generator) -> None:
    kind = np.dtype(dtype)
    limits = np.iinfo(kind)
    low, high = limits.min, limits.max
    wide = rng.integers(low, high, 300, dtype=kind, endpoint=True)
    small = rng.integers(max(low, -9), 9, 300).astype(kind)
    corners = np.array([low, low, high, high, 0, 0], dtype=kind)
    others = np.array([0, max(low, -1), 0, 1, 0, 3]).astype(kind)
    x, y = np.concatenate([wide, corners]), np.concatenate([small, others])
    shifts = np.concatenate([rng.integers(0, 70, 300), [0, 1, 2, 8, 63, 64]]).astype(kind)
    cases = [
        ("floor_divide", np.floor_divide, y),
        ("remainder", np.remainder, y),
        ("maximum", np.maximum, y),
        ("minimum", np.minimum, y),
        ("power", np.power, np.maximum(y, kind.type(0))),
        ("left_shift", np.left_shift, shifts),
        ("right_shift", np.right_shift, shifts),
    ]
    for name, reference, second in cases:
        with np.errstate(all="ignore"):
            expected = reference(x, second)
        np.testing.assert_array_equal(_run(f"${name}(a, b)", kind, x, second), expected, name)
    ends = _run("a == 0 ? $lowest() : $highest()", kind, np.array([0, 1], dtype=kind))
    np.testing.assert_array_equal(ends, [low, high])


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_negative_powers_of_integers_round_toward_zero(dtype: str) -> None:
    from magmagraph.ops import TABLE

    kind = canonical(dtype)
    bases = np.array([-3, -2, -1, -1, 0, 1, 2, 5], dtype=kind)
    exponents = np.array([-1, -2, -1, -2, -1, -3, -1, -2], dtype=kind)
    expected = [0, 0, -1, 1, 0, 1, 0, 0]
    np.testing.assert_array_equal(_run("$power(a, b)", kind, bases, exponents), expected)
    np.testing.assert_array_equal(TABLE["power"].evaluate(np, bases, exponents), expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_nan_wins_positions(dtype: str) -> None:
    kind = np.dtype(dtype)
    a = np.array([1.0, 2.0, np.nan, np.nan, 1.0], dtype=kind)
    b = np.array([2.0, 2.0, 1.0, np.nan, np.nan], dtype=kind)
    larger = _run("$greater_or_nan(b, a)", kind, a, b)
    np.testing.assert_array_equal(larger, [1, 0, 0, 0, 1])
    smaller = _run("$less_or_nan(b, a)", kind, a, b)
    np.testing.assert_array_equal(smaller, [0, 0, 0, 0, 1])


def _computed(call: str, values: np.ndarray) -> np.ndarray:
    body = f"void kernel(long n, float *out, const float *in) {{ _Pragma(\"omp simd\") \
        for (long i = 0; i < n; i++) out[i] = {call}in[i]); }}"
    library = compile_library(f"#include <math.h>\n#include <stdint.h>\n{RATIONALS[call]}\n{body}")
    found = np.empty_like(values)
    library.kernel(
        ctypes.c_long(len(values)),
        ctypes.c_void_p(found.ctypes.data),
        ctypes.c_void_p(values.ctypes.data),
    )
    return found


@pytest.mark.parametrize(
    ("call", "reference"), [("expf(", np.exp), ("tanhf(", np.tanh), ("erff(", scipy.special.erf)]
)
def test_polynomials_in_place_of_the_library(call: str, reference: Callable[..., Any]) -> None:
    # Every 4099th float32 there is: all magnitudes, both signs, NaN and the infinities.
    bits = np.arange(0, 2**32, 4099, dtype=np.uint32)
    values = np.concatenate([bits.view(np.float32), SPECIAL.astype(np.float32)])
    found = _computed(call, values)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = reference(values.astype(np.float64)).astype(np.float32)
    smallest = np.finfo(np.float32).smallest_normal
    assert tolerance(np.dtype("float32"), "exact").close(found, expected, smallest)
    zero = values == 0.0
    assert np.array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("call", ["mg_expf_below(", "mg_expf_within("])
def test_exponentials_of_what_is_at_most_zero_have_the_same_bits(call: str) -> None:
    # Every 1021st float32 from zero down, subnormal results and what is cut off among them.
    values = np.arange(2**31, 2**32, 1021, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, np.linspace(-105, -86, 10_001, dtype=np.float32)])
    values = np.concatenate([values, np.array([0.0, -0.0, np.nan, -np.inf], np.float32)])
    found, expected = _computed(call, values), _computed("expf(", values)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))
    assert np.isnan(found[~numbers]).all()
    assert (found[numbers] < np.finfo(np.float32).tiny).any()


def test_exponentials_within_rows_stay_positive_and_keep_infinity() -> None:
    values = np.arange(0, 0x7F800001, 4099, dtype=np.uint32).view(np.float32)
    found = _computed("mg_expf_within(", np.append(values, np.float32(np.inf)))
    assert (found > 0).all()
    assert found[-1] == np.inf


def test_a_choice_between_functions_is_a_vector_loop(tmp_path: Any) -> None:
    # Were it a branch around each function, a loop over numbers would take ten times as long.
    source = tmp_path / "choice.c"
    source.write_text(
        f"#define _GNU_SOURCE\n#include <math.h>\n{vector_math()}\n"
        "void kernel(long n, float *restrict out, const float *restrict in)\n{\n"
        '    _Pragma("omp simd")\n    for (long i = 0; i < n; i++)\n'
        "        out[i] = in[i] > 0.0f ? expf(in[i]) : 1.0f - log1pf(expf(-in[i]));\n}\n"
    )
    compiler = find_compiler()
    if not compiler.version.startswith("gcc"):
        pytest.skip("asks gcc what it did")
    command = [*compiler.command, *compiler.flags, "-O2", "-fopt-info-vec-optimized"]
    command += ["-o", str(tmp_path / "choice.so"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "loop vectorized" in done.stderr
