"""Bodies of one structure in one launch, and launches that wait for nothing: without a GPU."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.c.binding import Binding
from magmagraph.codegen.cuda.generated import kernels_of, words
from magmagraph.codegen.cuda.kernels import RegionKernels
from magmagraph.codegen.cuda.launch_config import LaunchConfig, launches_of, lines_for
from magmagraph.codegen.cuda.prelude import MAX_ARGUMENTS, complete
from magmagraph.codegen.region.analysis import analyze
from magmagraph.ir.ranges import Touched
from magmagraph.passes.lowering.launches import groups_of
from magmagraph.runtime.cpu.kernel_args import bodies_of
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.kernels import fused
from magmagraph.runtime.cuda.kernels.many import call_of_many, many_text, table_size


def kernels(make: Any, *shapes: tuple[int, ...], dtypes: tuple[str, ...] = ()) -> RegionKernels:
    """Return the kernels of the one region of a function."""
    inputs = [
        mg.var(f"x{i}", shape=shape, dtype=(dtypes or ("float32",) * len(shapes))[i])
        for i, shape in enumerate(shapes)
    ]
    f = mg.function(inputs, make(*inputs), device="cpu").compile()
    (found,) = [
        kernels_of(b) for step in f.plan.steps if step.kernel == "fused" for b in bodies_of(step)
    ]
    assert found is not None
    return found


def renewed(w: Any, g: Any, m: Any) -> list[Any]:
    m = 0.9 * m + 0.1 * g
    return [w - 0.01 * m, m]


def test_bodies_are_grouped_where_nothing_stands_between_them() -> None:
    def body(read: int, written: int) -> Touched:
        return Touched(((read, read + 1),), ((written, written + 1),))

    free = [body(100 + i, i) for i in range(5)]
    assert groups_of(free, ["a", "b", "a", None, "b"], [3] * 5) == [[0, 2], [1, 4], [3]]
    # The third reads what the second writes: it cannot run where the first does.
    chained = [body(100, 0), body(101, 1), body(1, 2), body(102, 3)]
    assert groups_of(chained, ["a", "b", "a", "a"], [3] * 4) == [[0, 3], [1], [2]]
    # The last writes what the others read.
    after = [body(7, 0), body(7, 1), body(8, 7)]
    assert groups_of(after, ["a", "a", "a"], [3] * 3) == [[0, 1], [2]]


def test_a_group_ends_where_its_table_is_full() -> None:
    count, size = 900, 8
    touched = [Touched((), ((i, i + 1),)) for i in range(count)]
    groups = groups_of(touched, ["a"] * count, [size] * count)
    assert [number for group in groups for number in group] == list(range(count))
    assert len(groups) == 3
    assert all(table_size(len(group), size) <= MAX_ARGUMENTS for group in groups)


def test_the_table_says_where_each_body_is() -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no driver's calls")
    found = kernels(renewed, (100, 528), (100, 528), (100, 528))
    (launch,), _ = launches_of(found, {}, 264)
    arguments = [[10 * n + i for i in range(7)] for n in range(3)]
    call = call_of_many(1, [launch] * 3, arguments, 5, 132)
    blocks = launch.grid[0]
    assert call.grid == (3 * blocks, 1, 1)
    assert call.words[:5].tolist() == [3, 0, blocks, 2 * blocks, 3 * blocks]
    assert call.words[5:26].tolist() == [value for values in arguments for value in values]
    assert [int(call.words[place]) for place in call.pointers] == [
        value for values in arguments for value in values[:5]
    ]
    moved = call.moved(lambda address: address + 1000)
    assert moved.words[5:12].tolist() == [1000, 1001, 1002, 1003, 1004, 5, 6]


@pytest.mark.parametrize("suffix", ["v1", "v4", "v4_alone"])
def test_a_kernel_of_many_bodies_compiles(suffix: str) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    found = kernels(renewed, (100, 528), (100, 528), (100, 528))
    text = many_text(found, suffix, words(found))
    assert "blockIdx.x *" not in text
    assert "gridDim" not in text
    source = complete("typedef int idx;\n" + text, table_size(20, words(found)))
    assert compile_source(source, "90")[:4] == b"\x7fELF"


def test_launches_of_many_blocks_do_not_overlap() -> None:
    for size, alone in ((1 << 20, False), (1 << 24, True)):
        found = kernels(lambda v: mg.exp(v) * 2.0, (size,))
        (launch,), _ = launches_of(found, {}, 264)
        assert launch.alone is alone
        assert launch.kernel.endswith("_alone") is alone
    assert "mg_begin" in found.text("v4")
    assert "mg_begin" not in found.text("v4_alone")
    assert "mg_kernel_v4_alone(" in found.text("v4_alone")


def test_rows_on_a_device_are_rows_however_short() -> None:
    found = kernels(lambda x: [mg.sum(x, axis=0)], (1000, 4))
    region = found.region
    # A core takes several short rows as one; threads lie side by side, and take rows by number.
    assert Binding(region, {}, 1).row_group() > 1
    bound = LaunchConfig(found, {}, 8)
    assert bound.group == 1
    assert [bound.read_step(0, loop) for loop in range(2)] == [4, 1]


def test_what_products_compute_is_not_compiled_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernels(lambda x: [mg.tanh(x), mg.sum(mg.tanh(x), axis=0)], (100, 528))
    asked: list[str] = []

    def begin(sources: list[str], architecture: str) -> Any:
        asked[:] = sources
        return lambda: []

    monkeypatch.setattr(fused, "begin_sources", begin)
    modules = fused.Modules(SimpleNamespace(multiprocessors=132, architecture="90"))

    def names() -> set[str]:
        return {name for text in asked for name in re.findall(r"void.* fused_\w+?_(\w+)\(", text)}

    modules.begin_launched([found], {}, 64)
    assert any(name.startswith(("v", "d")) for name in names())
    modules.begin_launched([found, found], {}, 64, [found])  # another body has none for it
    assert any(name.startswith(("v", "d")) for name in names()) and "end" in names()
    modules.begin_launched([found], {}, 64, [found])
    assert names() == {"end"}


N = mg.Dim("N")


def test_short_rows_have_a_few_lanes_each() -> None:
    # As many as they need of what is known; else as few as launches may have.
    wanted = {2: 1, 4: 1, 8: 2, 10: 2, 31: 8, 33: 8, 36: 4, 64: 8, 128: 16}
    for columns, lanes in wanted.items():
        found = kernels(mg.softmax, (60_001, columns))
        (launch,), _ = launches_of(found, {}, 264)
        assert f"_n{found.widths[-1]}" in launch.kernel
        assert f"threadIdx.x / {lanes};" in found.text(f"n{found.widths[-1]}")
        assert launch.block == (32, 1, 8)
        assert launch.grid == (-(-60_001 // (256 // lanes)), 1, 1)
        told = kernels(mg.softmax, (60_001, N))
        (launch,), _ = launches_of(told, {"N": columns}, 264)
        if columns % 4:
            assert "_v1" in launch.kernel
        elif columns in (36, 64):
            assert "_n4" in launch.kernel and launch.block == (8, 1, 32)
    few_rows = kernels(mg.softmax, (1000, 64))  # more threads a row are faster there
    assert launches_of(few_rows, {}, 264)[0][0].block == (32, 1, 8)
    few_rows = kernels(mg.softmax, (1000, 10))
    assert launches_of(few_rows, {}, 264)[0][0].block == (32, 1, 1)  # smaller blocks: more of them
    wide = kernels(mg.softmax, (60_001, 132))
    assert "_k4" in launches_of(wide, {}, 264)[0][0].kernel
    summed = kernels(lambda v: mg.sum(mg.softmax(v)), (60_001, 64))
    assert not summed.narrows  # what is folded across rows wants whole warps


@pytest.mark.parametrize("columns", range(2, 33))
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_known_short_rows_are_not_taken_a_lane_each(columns: int, dtype: str) -> None:
    found = kernels(mg.softmax, (60_001, columns), dtypes=(dtype,))
    assert found.way == "rows" and not found.region.strip
    most = 16 // np.dtype(dtype).itemsize
    width = next(w for w in (8, 4, 2, 1) if w <= most and columns % w == 0)
    assert found.widths[-1] == width
    (launch,), _ = launches_of(found, {}, 264)
    narrow = found.narrows[width]
    assert f"_n{width}" in launch.kernel
    assert narrow.groups * width == columns
    assert narrow.lanes * narrow.parts >= narrow.groups > narrow.lanes * (narrow.parts - 1)
    assert narrow.parts <= 8 and width * narrow.parts <= 16
    # The CPU's kernels put them side by side where they do not fill whole vectors.
    assert analyze(found.region.body).strip == (columns % 16 != 0)
    # Sums across rows are of whole warps: a lane has a row there.
    summed = kernels(lambda v: mg.sum(mg.softmax(v)), (60_001, columns), dtypes=(dtype,))
    assert summed.way == "strips"


def test_lanes_of_short_rows_read_all_they_have_at_once() -> None:
    found = kernels(mg.softmax, (60_001, 64))
    text = found.text("n4")
    assert "_near[2];" in text and "part < 2;" in text  # one read for all passes
    assert len(re.findall(r"= \*\(const mg_vector<float, 4> \*\)", text)) == 1
    assert "here" not in text and "if (mine) *(mg_vector<float, 4> *)" in text  # all lanes have all
    ragged = kernels(mg.softmax, (60_001, 44)).text("n4")
    assert "here ? " in ragged and "if (mine && here) *(mg_vector<float, 4> *)" in ragged
    summed = kernels(lambda v: mg.sum(v * v, axis=1), (60_001, 64))
    assert "_near[4];" in summed.text("n4") and "__launch_bounds__(256, 8)" in summed.text("n4")
    assert not re.search(r" [/%] (?!4;)", summed.text("n4"))  # a division takes as long as a read
    # Rows of whole warps, and of known lanes, always join.
    told = kernels(mg.softmax, (60_001, N))
    assert "if (mask < (int)blockDim.x)" in told.text("n4")
    assert "if (mask < (int)blockDim.x)" not in told.text("v4")
    assert "if (mask < (int)blockDim.x)" not in text


@pytest.mark.parametrize("rows", [2, 100, 255, 257, 1024, 5000])
def test_blocks_share_out_all_rows_of_columns(rows: int) -> None:
    found = kernels(lambda v: mg.sum(v * v, axis=0), (rows, 528))
    (launch, *_), _ = launches_of(found, {}, 264)
    kind = launch.kernel.rpartition("_")[2]
    assert "gridDim.y" not in found.text(kind).partition("while (row < high)")[0]
    assert launch.grid[1] == 1 or kind.startswith("v")
    assert launch.block[0] * launch.block[1] <= (1024 if kind == "d1" and rows > 256 else 512)
    numbers = dict(zip(found.code.places, launch.numbers, strict=True))
    if kind == "d1":  # a block has columns whole
        assert numbers["rows"] == rows
        return
    each, more = numbers["rows_each"], numbers["rows_more"]
    begins = [chunk * each + min(chunk, more) for chunk in range(launch.grid[1] + 1)]
    assert begins[0] == 0 and begins[-1] == rows
    lengths = [end - begin for begin, end in itertools.pairwise(begins)]
    assert lengths == [each + (chunk < more) for chunk in range(launch.grid[1])]


def test_rows_that_are_left_over_are_read_together() -> None:
    text = kernels(lambda v: mg.sum(v * v, axis=0), (100, 528)).text("d1")
    assert "row += 4 * step" in text and "line < high ? line : high - 1" in text
    dear = kernels(lambda v: mg.sum(dear_of(v), axis=0), (100, 528)).text("d1")
    assert "row += 1 * step" in dear  # copies of long work would take the compiler long


def dear_of(value: Any) -> Any:
    """Return what takes many lines."""
    for _ in range(12):
        value = mg.tanh(value) * value + mg.exp(-value)
    return value


def test_a_last_block_ends_sums_of_few_blocks_only() -> None:
    found = kernels(lambda v: mg.sum(mg.exp(v)), (1 << 22,))
    launches, _ = launches_of(found, {}, 264)
    assert [launch.kernel.rpartition("_")[2] for launch in launches] == ["v4"]

    def loss(x: Any, labels: Any) -> list[Any]:
        value = mg.cross_entropy(x, labels)
        return [value, mg.grad(value, x)]

    rows = kernels(loss, (5000, 8192), (5000,), dtypes=("float32", "int32"))
    launches, _ = launches_of(rows, {}, lines_for(rows, {}, 264))
    assert len(launches) == 2
    assert launches[1].block == (32, 32, 1)


def test_rows_that_are_kept_have_a_block_each() -> None:
    def loss_and_gradient(x: Any, labels: Any) -> list[Any]:
        loss = mg.cross_entropy(x, labels)
        return [loss, mg.grad(loss, x)]

    found = kernels(loss_and_gradient, (5000, 8192), (5000,), dtypes=("float32", "int32"))
    assert found.keeps
    lines = lines_for(found, {}, 264)
    assert lines == 625  # eight partial results to a line
    launches, _ = launches_of(found, {}, lines)
    assert launches[0].grid == (5000, 1, 1)
    (main, *_), _ = launches_of(found, {}, 264)  # with less room blocks go on with other rows
    assert main.grid[0] < 5000
