"""What a kernel is told of the C library: declarations, or the header where these would not do."""

from __future__ import annotations

import ctypes
import math

import pytest

import magmagraph as mg
from magmagraph.codegen.c.step import assemble, step_code
from magmagraph.codegen.functions import declared
from magmagraph.codegen.functions.declared import declared_math
from magmagraph.codegen.functions.scalar import LIBM
from magmagraph.ir.graph import freeze
from magmagraph.ops.leaf import parameter
from magmagraph.runtime.cpu import fused
from magmagraph.runtime.cpu.compiler import compile_library

HEADER = "#include <math.h>"


def test_kernels_do_without_the_header():
    x = parameter(0, mg.constant([1.0, 2.0]).type)
    source = assemble([step_code((freeze([x], [mg.tanh(x) * mg.exp(x) + mg.sqrt(x)]),))])
    assert HEADER not in source
    assert "extern float sqrtf(float);" in source
    assert "cosf" not in source


def test_every_function_of_expressions_is_known():
    names = {f"{name}{end}" for name in LIBM.values() for end in ("", "f")}
    assert names <= set(declared._KNOWN)


@pytest.mark.parametrize(
    "source",
    [
        "double f(double x) { return tgamma(x); }",
        "double f(double x) { return expf(x) + j0(x); }",
        "double f(double x) { return M_PI * x; }",
        "int f(double x) { return x == HUGE_VAL; }",
        "int f(double x) { return isnan(x); }",
    ],
)
def test_what_is_not_known_brings_the_header(source):
    assert declared_math(source) == HEADER


def test_what_a_source_defines_or_says_in_comments_is_no_function_of_the_library():
    source = "/* tgamma(x) */ static inline float half(float x) { return x / 2; }\n"
    assert HEADER not in declared_math(source + "float f(float x) { return half(fabsf(x)); }")


def test_declarations_are_right():
    """Each name, called with numbers, gives what Python's own library gives."""
    calls = {name: getattr(math, name) for name in sorted(declared._KNOWN) if hasattr(math, name)}
    assert len(calls) > 25
    lines, wanted = [], []
    for name, function in calls.items():
        count = declared._KNOWN[name].count("double") - 1
        given = (1.5,) * count if name == "acosh" else (0.4, 0.3, 0.2)[:count]
        wanted.append(function(*given) if name != "fma" else 0.4 * 0.3 + 0.2)
        lines.append(f"out[{len(lines)}] = {name}({', '.join(map(repr, given))});")
    lines += ["out[99] = -INFINITY;", "out[98] = NAN;"]
    text = "\n".join(["void fill(double *out) {", *lines, "}"])
    head = declared_math(text)
    assert HEADER not in head
    out = (ctypes.c_double * 100)()
    compile_library(f"{head}\n{text}", "2").fill(out)
    assert list(out[: len(wanted)]) == pytest.approx(wanted, rel=1e-14)
    assert (out[99], math.isnan(out[98])) == (-math.inf, True)


def test_kernels_are_shared_out_to_every_core(monkeypatch):
    bodies = []
    for number in range(3):
        x = parameter(0, mg.constant([1.0, 2.0]).type)
        bodies.append((freeze([x], [mg.exp(x) + float(number)]),))
    codes = [step_code(body) for body in bodies]
    for threads, shares in ((1, 1), (2, 2), (8, 3)):
        monkeypatch.setattr(fused, "get_threads", lambda count=threads: count)
        found = fused._shares(codes)
        assert (len(found), sorted(code.key for share in found for code in share)) == (
            shares, sorted(code.key for code in codes),
        )
