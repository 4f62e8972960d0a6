"""What a GPU's plans do about complex sums, and about what Fourier transforms are scaled by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interpreted import values
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Graph, Trace, freeze
from magmagraph.passes import pipeline
from magmagraph.passes.fuse import complex_sums, scaled_transforms
from magmagraph.passes.report import Record

Rule = Callable[..., Graph]


def _applied(rule: Rule, leaves: list[Any], made: list[Any]) -> tuple[Graph, Record]:
    record = Record("fuse")
    options = replace(options_of("cuda:0"), record=record)
    return rule(freeze(leaves, made), Trace(), options), record


def _equal(graph: Graph, leaves: list[Any], made: list[Any], feeds: list[np.ndarray]) -> None:
    found = values(graph.outputs, dict(zip(graph.inputs, feeds, strict=True)))
    expected = values(made, dict(zip(leaves, feeds, strict=True)))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, 1e-12, 1e-12)


def _complex(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def _norms(graph: Graph) -> list[str]:
    return [node.attrs["norm"] for node in graph.nodes if "norm" in node.attrs]


def test_complex_sums_are_those_of_parts(rng: np.random.Generator) -> None:
    z, x = mg.input("z", ("n", 6), "complex128"), mg.input("x", ("n", 6), "float64")
    made = [mg.sum(z * z, 1), mg.mean(z), mg.sum(z, 0, keepdims=True), mg.sum(x, 0)]
    graph, record = _applied(complex_sums.parted, [z, x], made)
    sums = [node for node in graph.nodes if node.op.name == "sum"]
    assert all(node.dtype == "float64" for node in sums)
    assert len(sums) == 7
    assert record.hits[complex_sums.RULE] == 3
    _equal(graph, [z, x], made, [_complex(rng, 5, 6), rng.standard_normal((5, 6))])


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_leave_scaling_to_neighbours(norm: str, rng: np.random.Generator) -> None:
    z, x = mg.input("z", (4, 9), "complex128"), mg.input("x", (4, 9), "float64")
    made = [
        mg.real(mg.fft.ifft2(mg.fft.fft2(z, norm=norm) * 0.5, norm=norm)),
        mg.fft.irfft2(mg.fft.rfft2(x, norm=norm) * 2.0, s=(4, 9), norm=norm),
        mg.exp(mg.fft.fft(z * 1.0j, axis=0, norm=norm)),
    ]
    graph, record = _applied(scaled_transforms.scaled_apart, [z, x], made)
    for node in graph.nodes:
        if "norm" in node.attrs:
            inverse = node.attrs.get("inverse", node.op.name == "fft_real_values")
            assert node.attrs["norm"] == ("forward" if inverse else "backward")
    assert record.hits[scaled_transforms.RULE] >= 3
    _equal(graph, [z, x], made, [_complex(rng, 4, 9), rng.standard_normal((4, 9))])


def test_transforms_without_such_neighbours_keep_their_scaling() -> None:
    z, named = mg.input("z", (4, 9), "complex128"), mg.input("named", ("n",), "complex128")
    double = z * 2.0
    made = [
        mg.fft.ifft(z),  # between an input and an output
        mg.fft.ifft(named) * 2.0,  # by what only the call tells
        mg.fft.ifft(double, axis=0), double + 1.0,  # another reads the operand
    ]  # fmt: skip
    graph, record = _applied(scaled_transforms.scaled_apart, [z, named], made)
    assert _norms(graph) == ["backward"] * 3
    assert not record.hits


def test_a_transform_that_is_an_output_too_stays_right(rng: np.random.Generator) -> None:
    z = mg.input("z", (4, 9), "complex128")
    first = mg.fft.ifft(z * 2.0, axis=0)
    made = [first, mg.fft.ifft(first), mg.fft.ifft(mg.fft.ifft(z * 3.0), axis=0)]
    graph, _ = _applied(scaled_transforms.scaled_apart, [z], made)
    _equal(graph, [z], made, [_complex(rng, 4, 9)])


def test_a_filter_is_transforms_and_one_kernel_between_them() -> None:
    x = mg.input("x", (8, 16))
    filtered = mg.real(mg.fft.ifft2(mg.fft.fft2(x) * 0.5))
    plan, _ = pipeline.run(freeze([x], [filtered]), Trace(), options=options_of("cuda:0"))
    names = [step.family.name for step in plan.steps]
    assert names == ["fused", "transform", "fused", "transform", "fused"]
