"""Refuse or bound hostile operands of texts: positions, pivots, axes and shapes.

Programs with hostile values run in a process of their own, compiled and as array expressions: a
kernel that reads at an address that an operand names may end that process, which fails the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import GraphError, LinAlgError, ShapeError
from magmagraph.text.reading import load

WINDOWS = "window=(2, 2), strides=(2, 2), dilation=(1, 1), low=(0, 0)"
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
ONES = np.ones((4, 4), np.float32)
POSITIONS = {
    "int8": (-1, 127, -128, 1),
    "int32": (-1, 2**31 - 1, -(2**31), 1),
    "int64": (-1, 2**62, -(2**63), 1),
    "uint64": (2**64 - 1, 2**63 - 1, 2**63, 1),
}


def program(*lines: str) -> str:
    """Return a text of leaves and of a last operation, which is returned: numbers are given."""
    numbered = [f"%{number} = {line}" for number, line in enumerate(lines)]
    return "\n".join([*numbered, f"return %{len(lines) - 1}"])


def inputs(*types: str) -> list[str]:
    """Return lines of inputs."""
    return [f"input() : {type_}" for type_ in types]


def run(text: str, *feeds: Any) -> np.ndarray:
    """Read a text and call its function."""
    graph = load(text)
    return np.asarray(mg.function(list(graph.inputs), graph.outputs[0])(*feeds))


# ---------------------------------------------------------------------- texts that are refused

FACTORS = ("float64[3, 3]", "int32[3]", "float64[3, 1]")


def solved(*types: str, made: str = "float64[3, 1]") -> str:
    return program(*inputs(*types), f"factored_solve(%0, %1, %2, transposed=False) : {made}")


def inverted(*types: str) -> str:
    return program(*inputs(*types), f"factored_inv(%0, %1) : {types[0]}")


def spread(cotangent: str, positions: str, extents: int) -> str:
    call = f"pool_spread(%0, %1, {WINDOWS}, extents=({extents}, {extents}), channels_last=False)"
    return program(
        *inputs(cotangent, positions), f"{call} : float32[1, 1, {extents}, {extents}]"
    )


def picked(positions: str) -> str:
    call = f"pool_pick(%0, %1, {WINDOWS}, extents=(2, 2), channels_last=False)"
    return program(*inputs("float32[1, 1, 4, 4]", positions), f"{call} : float32[1, 1, 2, 2]")


def attended(lse: str, cotangent: str) -> str:
    types = ["float32[1, 8, 4]"] * 3
    return program(
        *inputs("float32[1, 1, 8, 4]", *types[1:], lse, "float32[1, 1, 8, 4]", cotangent),
        "attention_rows_gradient(%0, %1, %2, %3, %4, %5, causal=False, block=8) : "
        "(float32[1, 1, 8, 4], float32[1, 8, 4], float32[1, 8, 4])",
    )


def along(call: str, type_: str, first: str = "float32[3, 4]") -> str:
    return program(*inputs(first, "int64[2]"), f"{call} : {type_}")


REFUSED = {
    "pivots of floats": (solved(FACTORS[0], "float64[3]", FACTORS[2]), "pivots of dtype float64"),
    "few pivots": (solved(FACTORS[0], "int32[1]", FACTORS[2]), "extents of factors and pivots"),
    "wide factors": (solved("float64[3, 9]", *FACTORS[1:]), "matrices of 3 rows and 9 columns"),
    "few rows": (solved(*FACTORS[:2], "float64[2, 1]"), "the rows of b"),
    "another dtype": (solved(*FACTORS[:2], "float32[3, 1]"), "float64 and float32"),
    "few pivots of an inverse": (inverted(FACTORS[0], "int32[1]"), "factors and pivots"),
    "an inverse that is wide": (inverted("float64[3, 9]", "int32[3]"), "3 rows and 9 columns"),
    "an order of floats": (
        program(*inputs("float32[3]"), "pivots_permutation(%0, rows=3) : float32[3]"),
        "pivots of dtype float32",
    ),
    "few positions": (
        spread("float32[1, 1, 64, 64]", "int32[1, 1, 2, 2]", 128), "extents of windows and posi",
    ),
    "narrow positions": (
        spread("float32[1, 1, 64, 64]", "int8[1, 1, 64, 64]", 128), "positions of dtype int8",
    ),
    "narrow positions to pick": (picked("int8[1, 1, 2, 2]"), "positions of dtype int8"),
    "few positions to pick": (picked("int32[1, 1, 1, 2]"), "extents of windows and positions"),
    "few logarithms": (attended("float32[1, 1, 2]", "float32[1, 1, 8, 4]"), "queries and logari"),
    "few cotangents": (attended("float32[1, 1, 8]", "float32[1, 1, 8, 1]"), "and cotangents"),
    "narrow logarithms": (attended("int8[1, 1, 8]", "float32[1, 1, 8, 4]"), "logarithms of type"),
    "take from the last axis": (
        along("take(%0, %1, axis=-1, mode='clip')", "float32[3, 2]"), "axis=-1 for 2 axes",
    ),
    "scatter along the second to last": (
        along("scatter_add(%0, %1, axis=-2, extent=3, mode='clip')", "float32[3, 4]",
              "float32[2, 4]"),
        "axis=-2 for 2 axes",
    ),
    "join along the last axis": (
        along("concatenate(%0, %0, axis=-1)", "float32[3, 4]"), "axis=-1 for 2 axes",
    ),
    "join along no axis": (along("concatenate(%0, %0, axis=5)", "float32[3, 4]"), "axis=5"),
    "sum over the last axis": (along("sum(%0, axes=(-1,))", "float32[3, 4]"), "axis=-1"),
    "sum twice": (along("sum(%0, axes=(0, 0))", "float32[4]"), "each axis once"),
    "scan the last axis": (
        along("cumsum(%0, axis=-1, reverse=True)", "float32[3, 4]"), "axis=-1 for 2 axes",
    ),
    "a block without rows": (
        program(
            *inputs("float64[1, 1, 5, 3]", "float64[1, 4, 3]", "float64[1, 4, 2]"),
            "attention_rows(%0, %1, %2, causal=False, block=0) : "
            "(float64[1, 1, 5, 2], float64[1, 1, 5])",
        ),
        "block=0",
    ),
    "a subset that ends before it begins": (
        program(
            *inputs("float64[3, 3]"),
            "eigh(%0, lower=True, subset=(1, 0)) : (float64[0], float64[3, 0])",
        ),
        r"subset_by_index=\(1, 0\)",
    ),
    "a point without values": (
        program(
            "fixed_point(count=0, max_steps=1, unconverged='raise', body={\n"
            "    %0 = constant(value=1.0) : float32[]\n    return %0\n}, tolerance=0.5) : "
            "(float32[], int64[])"
        ),
        "count=0 for a body of 1 outputs and 0 operands",
    ),
    "a blank that is no class": (
        program(
            *inputs("float64[1, 4, 3]", "int64[1, 2]", "int64[1]", "int64[1]"),
            "ctc_of_logs(%0, %1, %2, %3, blank=9) : float64[1]",
        ),
        "blank=9 for 3 classes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_kernels_would_read_beyond_are_refused(name: str) -> None:
    text, match = REFUSED[name]
    with pytest.raises(GraphError, match=match):
        load(text)


# ---------------------------------------------------------------------- values


def settled(positions: np.ndarray, extent: int, mode: str) -> np.ndarray:
    """Return positions in an axis, in Python's integers."""
    signed = [int(position) for position in positions.astype(np.int64)]
    if mode == "wrap":
        return np.array([position % extent for position in signed])
    inside = [position + extent if position < 0 else position for position in signed]
    return np.array([min(max(position, 0), extent - 1) for position in inside])


def check_positions() -> None:
    """Read and write at positions that are not there."""
    for dtype, values in POSITIONS.items():
        positions = np.array(values, dtype)
        for mode in ("clip", "wrap"):
            at = settled(positions, 3, mode)
            added = np.zeros((3, 4), np.float32)
            np.add.at(added, at, ONES)
            replaced = ROWS.copy()
            replaced[at] = 1
            leaves = inputs("float32[3, 4]", f"{dtype}[4]", "float32[4, 4]")
            for call, expected in (
                (f"take(%0, %1, axis=0, mode='{mode}') : float32[4, 4]", ROWS[at]),
                (f"scatter_add(%2, %1, axis=0, extent=3, mode='{mode}') : float32[3, 4]", added),
                (f"scatter_rows(%2, %1, %0, mode='{mode}') : float32[3, 4]", ROWS + added),
                (f"update(%0, %1, %2, how='set', mode='{mode}') : float32[3, 4]", replaced),
            ):
                result = run(program(*leaves, call), ROWS, positions, ONES)
                np.testing.assert_array_equal(result, expected, f"{call} at {positions}")


def check_empty_axes() -> None:
    """Refuse to read from, and to write to, an axis that a call leaves without elements."""
    for call in (
        "take(%0, %1, axis=0, mode='wrap') : float32[4, 4]",
        "update(%0, %1, %2, how='add', mode='wrap') : float32[n, 4]",
    ):
        text = program(*inputs("float32[n, 4]", "int64[4]", "float32[4, 4]"), call)
        with pytest.raises(ShapeError, match="axis 0 is empty"):
            run(text, ROWS[:0], np.arange(4), ONES)
    for mode in ("clip", "wrap"):
        call = f"scatter_add(%0, %1, axis=0, extent=0, mode='{mode}') : float32[0, 4]"
        with pytest.raises(ShapeError, match="scatter_add: axis 0 is empty"):
            run(program(*inputs("float32[4, 4]", "int64[4]"), call), ONES, np.arange(4))


def check_pivots() -> None:
    """Refuse exchanges with rows that are not there."""
    side = np.ones((3, 1))
    for dtype in ("int32", "int64", "uint64"):
        limits = np.iinfo(dtype)
        for hostile in {3, 100, 2**31 - 1, limits.max, limits.min or 2**32}:
            pivots = np.array([0, hostile, 2], dtype)
            order = "pivots_permutation(%0, rows=3)"
            permuted = program(*inputs(f"{dtype}[3]"), f"{order} : {dtype}[3]")
            with pytest.raises(LinAlgError, match="lu_solve: pivots from"):
                run(permuted, pivots)
            for matrices in (np.eye(3), np.stack([np.eye(3)] * 2)):
                lead = "2, " * (matrices.ndim - 2)
                batch = np.stack([pivots] * 2) if lead else pivots
                types = (f"float64[{lead}3, 3]", f"{dtype}[{lead}3]")
                with pytest.raises(LinAlgError, match="inv: pivots from"):
                    run(inverted(*types), matrices, batch)
                text = solved(*types, FACTORS[2], made=f"float64[{lead}3, 1]")
                with pytest.raises(LinAlgError, match="solve: pivots from"):
                    run(text, matrices, batch, side)
    with pytest.raises(ShapeError, match="3 pivots for 1 rows"):
        run(program(*inputs("int32[3]"), "pivots_permutation(%0, rows=1) : int32[1]"),
            np.zeros(3, np.int32))  # fmt: skip


def check_windows() -> None:
    """Find nothing at positions that no window has."""
    for hostile in (-1, 4, 2**31 - 1, -(2**31)):
        positions = np.full((1, 1, 2, 2), hostile, np.int32)
        result = run(picked("int32[1, 1, 2, 2]"), np.ones((1, 1, 4, 4), np.float32), positions)
        assert not result.any()
        text = spread("float32[1, 1, 2, 2]", "int32[1, 1, 2, 2]", 4)
        assert not run(text, np.ones((1, 1, 2, 2), np.float32), positions).any()


def check_alignments() -> None:
    """Take labels and lengths that are not there as the nearest ones."""
    leaves = inputs("float64[1, 4, 3]", "int64[1, 2]", "int64[1]", "int64[1]")
    call = "ctc_gradient(%0, %1, %2, %3, blank=0) : float64[1, 4, 3]"
    for hostile, nearest in ((-1, 0), (-(2**63), 0), (2**62, None)):
        results = [
            run(program(*leaves, call), np.zeros((1, 4, 3)), np.full((1, 2), label),
                np.full(1, steps), np.full(1, count))
            for label, steps, count in (
                (hostile, hostile, hostile),
                (2, 4, 2) if nearest is None else (nearest,) * 3,
            )
        ]  # fmt: skip
        np.testing.assert_array_equal(*results)
    leaves[0] = "input() : float64[1, 4, n]"
    text = program(*leaves, "ctc_of_logs(%0, %1, %2, %3, blank=9) : float64[1]")
    with pytest.raises(ShapeError, match="blank=9 for 3 classes"):
        run(text, np.zeros((1, 4, 3)), np.ones((1, 2), int), np.full(1, 4), np.full(1, 2))


CHECKS = {
    check.__name__: check
    for check in (check_positions, check_empty_axes, check_pivots, check_windows, check_alignments)
}


@pytest.mark.parametrize("compiler", ["", "off"])
@pytest.mark.parametrize("name", CHECKS)
def test_hostile_values_touch_no_memory_but_that_of_operands(name: str, compiler: str) -> None:
    environment = {**os.environ}
    if compiler:
        environment["MAGMAGRAPH_COMPILER"] = compiler
    done = subprocess.run(
        [sys.executable, __file__, name], env=environment, capture_output=True, text=True,
        cwd=Path(__file__).parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stderr[-2000:]}"


@pytest.mark.gpu
def test_hostile_pivots_and_positions_on_a_device() -> None:
    factors = load(solved(*FACTORS))
    solve = mg.function(list(factors.inputs), factors.outputs[0], device="cuda")
    with pytest.raises(LinAlgError, match="solve: pivots from"):
        solve(np.eye(3), np.array([0, 2**30, 2], np.int32), np.ones((3, 1)))
    leaves = inputs("float32[3, 4]", "int64[4]")
    graph = load(program(*leaves, "take(%0, %1, axis=0, mode='clip') : float32[4, 4]"))
    positions = np.array(POSITIONS["int64"])
    result = mg.function(list(graph.inputs), graph.outputs[0], device="cuda")(ROWS, positions)
    np.testing.assert_array_equal(np.asarray(result.get()), ROWS[settled(positions, 3, "clip")])


if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
