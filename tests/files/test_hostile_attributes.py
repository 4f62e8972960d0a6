"""Hostile values of attributes, of the right types, are refused with their line or do no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import GraphError, ShapeError
from magmagraph.function.devices import choose_fastest
from magmagraph.text.reading import load

PARTS = 4  # of the operations

_CONSTANT = "{\n    %0 = constant(value=1.0) : float32[]\n    return %0\n}"
_BODY = "{\n    %0 = parameter(index=0) : float32[3]\n    return %0\n}"
_SIGNALS = "%0 = input() : float32[2, 3, 7]\n"
_IMAGES = "%0 = input() : float32[1, 1, 5, 5]\n%1 = input() : float32[1, 1, 3, 3]\n"
_WINDOWS = "dilation=(1, 1), low=(1, 1), groups=1, channels_last=False, algorithm='winograd-2x2'"
_LINES = (
    "strides=(1,), dilation=(1,), low=(0,), groups=1, channels_last=False, "
    "algorithm='winograd-4x4'"
)
# Each was read, and failed or hung in the call.
REFUSED = {
    "a step of 0": (
        "%0 = input() : float32[1]\n"
        "%1 = place(%0, starts=(2,), steps=(0,), shape=(3,), value=0) : float32[3]\nreturn %1",
        "step 0 along axis 0",
    ),
    "winograd over lines": (
        f"{_SIGNALS}%1 = input() : float32[4, 3, 2]\n"
        f"%2 = convolution(%0, %1, extents=(6,), {_LINES}) : float32[2, 4, 6]\nreturn %2",
        "for a 2 window",
    ),
    "winograd to lines of weights": (
        f"{_SIGNALS}%1 = input() : float32[2, 4, 6]\n"
        f"%2 = convolution_weight(%0, %1, extents=(2,), {_LINES}) : float32[4, 3, 2]\nreturn %2",
        "for a 2 window",
    ),
    "winograd with a stride": (
        f"{_IMAGES}%2 = convolution(%0, %1, strides=(2, 1), extents=(3, 5), {_WINDOWS}) "
        ": float32[1, 1, 3, 5]\nreturn %2",
        "for a 3x3 window of stride",
    ),
    "an axis twice": (
        "%0 = input() : float32[2, 3]\n"
        "%1 = product_of_others(%0, axes=(1, 1)) : float32[2, 3]\nreturn %1",
        "expected: each axis once",
    ),
    "no results": ("%0 = fused_many(bodies=()) : ()\nreturn %0", "without results"),
    "operands of no body": (
        "%0 = input() : float32[3]\n%1 = input() : float32[3]\n"
        f"%2 = fused_many(%0, %1, bodies=({_CONSTANT}, {_CONSTANT})) : (float32[], float32[])\n"
        "%3 = item(%2, index=0) : float32[]\nreturn %3",
        "the bodies have 0 parameters, 2 operands",
    ),
    "a pullback of a loop with a bound": (
        "%0 = input() : float32[3]\n"
        f"%1 = loop_pullback(%0, carries=1, stacks=0, flag='', body={_CONSTANT}, length=3, "
        "reverse=False, results=(float32[3],)) : float32[3]\nreturn %1",
        "the pullback of a loop with a bound",
    ),
    "two values for one tap": (
        "%0 = input() : float32[3]\n"
        "%1 = tap(%0, %0, label='', uid=1, passes=True) : float32[3]\nreturn %1",
        "tap",
    ),
    "a dtype that the function does not take": (
        "%0 = input() : complex64[3]\n%1 = relu(%0) : complex64[3]\nreturn %1",
        "complex64",
    ),
}


def _tried(part: int, parts: int, every: int, compiler: str) -> dict[str, int]:
    """Return how many texts ended in which way, of a part of the operations."""
    script = Path(__file__).parents[1] / "helpers" / "hostile_attributes.py"
    done = subprocess.run(
        [sys.executable, str(script), str(part), str(parts), str(every)],
        env={
            **os.environ,
            "MAGMAGRAPH_COMPILER": compiler,
            "MAGMAGRAPH_TUNING": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]  # its last line is the text
    counts: dict[str, int] = {}
    bad: list[str] = []
    for line in map(json.loads, done.stdout.splitlines()):
        bad += line["bad"]
        for end, count in line["counts"].items():
            counts[end] = counts.get(end, 0) + count
    assert not bad, "\n\n".join(bad[:10])
    return counts


@pytest.mark.parametrize(("text", "match"), REFUSED.values(), ids=REFUSED)
def test_texts_that_no_call_could_run_are_refused(text: str, match: str) -> None:
    with pytest.raises(GraphError, match=match) as raised:
        load(text)
    assert str(raised.value).startswith("line ")


def test_refusals_of_long_labels_are_short() -> None:
    text = f"%0 = subgraph(body={_BODY}, label='{'a' * 10_000}') : float32[3]\nreturn %0"
    with pytest.raises(GraphError, match="^line 1: ") as raised:
        load(text)
    assert len(str(raised.value)) < 2000


def test_a_dimension_that_no_operand_has_is_the_call_s_error() -> None:
    """The pass that measures algorithms failed for want of a size."""
    text = (
        "%0 = input() : float64[2, 4, 6]\n%1 = input() : float64[4, 3, 2]\n"
        "%2 = convolution_input(%0, %1, strides=(1,), dilation=(1,), low=(n,), extents=(7,), "
        "groups=1, channels_last=False, algorithm='im2col') : float64[2, 3, 7]\nreturn %2"
    )
    graph = load(text)
    if mg.config.compiler != "off":
        choose_fastest(f"a free dimension {os.getpid()}", {"im2col": graph}, {})
    function = mg.function(list(graph.inputs), list(graph.outputs))
    with pytest.raises(ShapeError, match="no size is given for the dimension 'n'"):
        function(np.ones((2, 4, 6)), np.ones((4, 3, 2)))


def test_hostile_attributes_are_refused_or_do_no_harm() -> None:
    """A third of the operations."""
    counts = _tried(1, 3, 100, "off")
    assert counts["refused"] > 1000
    assert counts["called"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["off", "auto"])
@pytest.mark.parametrize("part", range(PARTS))
def test_all_hostile_attributes(part: int, compiler: str) -> None:
    counts = _tried(part, PARTS, 1, compiler)
    assert counts["refused"] > 50
    assert counts["called"] > 10
