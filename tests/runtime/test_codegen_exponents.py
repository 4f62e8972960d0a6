"""Where an exponential is of what is at most zero, and rows whose length the compiler is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.c.step import StepCode, step_code
from magmagraph.dtypes import tolerance
from magmagraph.ir.graph import Node, freeze
from magmagraph.ir.interpret import evaluate
from magmagraph.ops.leaf import parameter

Program = Callable[[Node], Node | list[Node]]


def _body(program: Program, shape: tuple[Any, ...], dtype: str = "float32") -> Any:
    x = parameter(0, mg.var("x", shape=shape, dtype=dtype).type)
    made = program(x)
    return freeze([x], made if isinstance(made, list) else [made])


def _code(program: Program, shape: tuple[Any, ...], dtype: str = "float32") -> StepCode:
    return step_code((_body(program, shape, dtype),))


def _exponentials(code: StepCode) -> set[str]:
    return set(re.findall(r"= (\w*exp\w*)\(", code.text().partition("static void")[2]))


def _largest(x: Node, axis: int = -1) -> Node:
    return mg.max(x, axis=axis, keepdims=True)


def _shift(x: Node) -> Node:
    top = _largest(x)
    return mg.where(mg.isfinite(top), top, 0.0)


def _softmax(x: Node) -> Node:
    e = mg.exp(x - _largest(x))
    return e / mg.sum(e, axis=-1, keepdims=True)


CASES: dict[str, tuple[Program, str]] = {
    "softmax": (_softmax, "mg_group_exp_below_f32"),
    "of a computed value": (lambda x: _softmax(mg.tanh(x) * 3.0), "mg_group_exp_below_f32"),
    "its sum": (
        lambda x: mg.sum(mg.exp(x - _shift(x)), axis=-1), "mg_group_exp_within_summed_f32",
    ),
    "its logarithm": (lambda x: mg.log_softmax(x, axis=-1), "mg_group_exp_below_summed_f32"),
    "a sum": (lambda x: mg.sum(mg.exp(2.0 * x), axis=-1), "mg_group_exp_summed_f32"),
    "its sum, and itself": (
        lambda x: [mg.sum(e := mg.exp(x - _shift(x)), axis=-1), e], "mg_group_exp_f32",
    ),
    "of its quotient": (
        lambda x: (e := mg.exp(x - _shift(x))) / mg.sum(e, axis=-1, keepdims=True),
        "mg_group_exp_f32",
    ),
    "less than the mean": (
        lambda x: mg.exp(x - mg.mean(x, -1, keepdims=True)), "mg_group_exp_f32",
    ),
    "largest of another": (lambda x: mg.exp(x - _largest(2.0 * x)), "mg_group_exp_f32"),
    "the other way round": (lambda x: mg.exp(_largest(x) - x), "mg_group_exp_f32"),
    "smallest": (lambda x: mg.exp(x - mg.min(x, axis=-1, keepdims=True)), "mg_group_exp_f32"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_at_most_zero_is_known(name: str) -> None:
    program, function = CASES[name]
    assert _exponentials(_code(program, ("rows", "columns"))) == {function}


def test_loops_that_are_not_in_groups_know_it_too() -> None:
    """Choices are left to the compiler, which vectorizes the function of one number."""

    def program(x: Node) -> Node:
        e = mg.exp(x - _largest(x))
        return mg.where(e > 0.5, e, x)

    assert _exponentials(_code(program, ("rows", "columns"))) == {"mg_expf_below"}


def test_doubles_are_the_librarys() -> None:
    assert _exponentials(_code(_softmax, ("rows", "columns"), "float64")) == {"exp"}


@pytest.mark.parametrize("columns", [5, 100, 300])
def test_rows_that_are_not_finite(columns: int) -> None:
    """The short forms give what the interpreter gives, row by row."""
    value = np.random.default_rng(columns).standard_normal((9, columns)).astype(np.float32) * 40
    value[1, 2] = np.inf
    value[2, :] = -np.inf
    value[3, 4] = np.nan
    value[4, 1:] = -np.inf
    value[5, :2] = np.inf, -np.inf
    value[6, :] = 3e38
    for program in (_softmax, lambda x: mg.logsumexp(x, axis=-1)):
        x = mg.var("x", shape=value.shape)
        made = program(x)
        graph = freeze([x], [made])
        with np.errstate(all="ignore"):
            expected = evaluate(graph, {graph.inputs[0]: value})[graph.outputs[0]]
        found = mg.function([x], made)(value)
        assert tolerance(np.dtype("float32"), "reassoc").close(found, expected)


def test_a_shift_along_another_axis_is_not_taken_for_the_largest() -> None:
    """The largest of row j is taken from column j: some differences are above zero."""
    value = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32) * 30
    x = mg.var("x", shape=value.shape)
    found = mg.function([x], mg.exp(x - mg.max(x, axis=1)))(value)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, np.exp(value - value.max(1)), rtol=1e-6)
    assert found.max() > 1e6


def test_the_compiler_is_told_the_length_of_short_rows() -> None:
    texts = {n: _code(_softmax, ("rows", n)).text() for n in (100, 256, 257, "columns")}
    assert "const int64_t n1 = 100;" in texts[100]
    assert "const int64_t n1 = 256;" in texts[256]
    assert "const int64_t n1 = (int64_t)tail" in texts[257]
    assert texts[257] == texts["columns"]
