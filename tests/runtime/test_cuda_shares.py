"""How the work of a CUDA kernel is shared out for given sizes: without a GPU."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from regions import N, make_body, region_of

import magmagraph as mg
from magmagraph.codegen.cuda import launch_config
from magmagraph.codegen.cuda.kernels import RegionKernels
from magmagraph.codegen.region.analysis import Region, analyze_for_gpu

LINES = 264


def kernels(make: Callable[..., Any], *shape: int) -> RegionKernels:
    """Return the kernels of a function of one operand."""
    return RegionKernels(region_of(make_body([(shape, "float32")], make)))


def over_rows(x: Any) -> Any:
    return mg.sum(x, axis=0)


@pytest.mark.parametrize("columns", [32, 528, 4096])
@pytest.mark.parametrize("rows", [4097, 65_537, 1_000_003])
def test_blocks_have_each_row_once(rows: int, columns: int) -> None:
    made = kernels(over_rows, rows, columns)
    told = launch_config.LaunchConfig(made, {}, LINES)
    _, (_, chunks, _), _ = told.main()
    assert not told.straight  # else a block has all rows
    loops = made.gone_loops
    each, more = told.rows_of_chunk(*loops), told.rows_over(*loops)
    # As the kernel reckons: the first blocks have a row more.
    low = [chunk * each + min(chunk, more) for chunk in range(chunks + 1)]
    ends = [low[chunk] + each + (chunk < more) for chunk in range(chunks)]
    assert (low[0], ends[-1]) == (0, rows)
    assert low[1:-1] == ends[:-1]
    assert max(b - a for a, b in itertools.pairwise(low)) - each <= 1


def test_some_blocks_have_a_row_more() -> None:
    """Else the test above says less than it seems to."""
    told = launch_config.LaunchConfig(made := kernels(over_rows, 65_537, 528), {}, LINES)
    told.main()
    assert told.rows_over(*made.gone_loops) > 0


@pytest.mark.parametrize(("shape", "tail"), [((4096, 32), True), ((100_000, 4096), False)])
def test_the_last_block_ends_sums_where_that_is_little(shape: tuple[int, int], tail: bool) -> None:
    """One block has added up a few partial results before another launch begins."""
    made = kernels(over_rows, *shape)
    told = launch_config.LaunchConfig(made, {}, LINES)
    _, grid, _ = told.main()
    work = told.line_count(0) * shape[1] + shape[1]
    assert grid[1] > 1  # there are partial results
    assert told.tail is tail is (work <= launch_config.QUICK)
    launches, _ = launch_config.launches_of(made, {}, LINES)
    assert (len(launches) == 1) is tail


def columns_and_all(x: Any) -> Any:
    """A sum of each column, and one of all elements beside it."""
    y = mg.sin(x)
    return mg.sum(y, axis=0), mg.sum(y)


@pytest.mark.parametrize("sizes", [(0, 7), (5, 0), (0, 0)])
@pytest.mark.parametrize("make", [over_rows, columns_and_all, mg.sum])
def test_sums_of_nothing_are_written(make: Callable[..., Any], sizes: tuple[int, int]) -> None:
    """Some launch writes each result that has elements, also where the main kernel has none."""
    made = kernels(make, *sizes)
    launches, _ = launch_config.launches_of(made, {}, LINES)
    written = "".join(made.text(launch.kernel.partition("_")[2]) for launch in launches)
    for position, node in enumerate(made.region.body.outputs):
        if node.size != 0:
            assert f"out{position}[" in written or f"(out{position} +" in written, position


def normalized(x: Any, up: Any) -> list[Any]:
    """Return rows of mean 0 and variance 1 less a mean, and two sums across them."""
    wide, slope = mg.cast(x, "float32"), mg.cast(up, "float32")
    centered = wide - mg.mean(wide, 1, keepdims=True)
    norm = centered / mg.sqrt(mg.mean(centered**2, 1, keepdims=True) + 1e-5)
    back = norm - mg.mean(slope * norm, 1, keepdims=True)
    return [mg.cast(back, x.dtype), mg.sum(slope * norm, 0), mg.sum(slope, 0)]


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "parts"),
    [(16384, 768, "bfloat16", 1), (16384, 768, "float32", 1), (4096, 4096, "float32", 4),
     (5000, 333, "float32", 2)],
)  # fmt: skip
def test_sums_across_rows_stay_in_registers(
    rows: int, columns: int, dtype: str, parts: int
) -> None:
    """As many blocks as there is room for add up their rows, and no line is read again."""
    k = RegionKernels(region_of(make_body([((rows, columns), dtype)] * 2, normalized)))
    width = k.widths[-1]
    lines = launch_config.lines_for(k, {}, LINES)
    (main, *_), _ = launch_config.launches_of(k, {}, lines)
    assert main.kernel.endswith(f"_k{width}")
    assert main.grid[0] * main.block[2] == lines
    assert main.grid[0] * math.prod(main.block) >= 132 * 256
    text = k.text(f"k{width}")
    assert len(re.findall(rf"double \w+_own\[{parts * width}\];", text)) == 2
    assert not re.search(r"_line\[.*\] \+", text)
    assert len(re.findall(r"if \(here\) \w+_line\[.*\] = \w+_own\[", text)) == 2


def test_columns_of_a_named_number_of_rows_are_shared_out() -> None:
    """What follows their sums does not make rows side by side of them: these may be long."""
    body = make_body([(N, 3072)], lambda x: [mg.exp(x), mg.sqrt(mg.sum(mg.exp(x), 0))])
    region = analyze_for_gpu(body)
    assert isinstance(region, Region)
    k = RegionKernels(region)
    assert k.way == "columns"
    sizes = {"N": 16384}
    lines = launch_config.lines_for(k, sizes, LINES)
    launches, _ = launch_config.launches_of(k, sizes, lines)
    assert math.prod(launches[0].grid) >= 132
