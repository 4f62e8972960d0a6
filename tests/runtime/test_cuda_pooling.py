"""Pooling's CUDA C, compiled for a card and, thread by thread, for the host: without a GPU."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.cuda.pooling_code import WORDS, Pooling, axes_of, kernel_for, source
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.ir.ranges import Touched
from magmagraph.ops.spatial.pooling_records import gathered, reads_windows
from magmagraph.passes.lowering.fuse_products import pairs
from magmagraph.passes.report import Record
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.families.fused import FUSED_FAMILY

NARROW = 1 << 30
# What a card gives each thread, for one thread at a time.
HOST = """
#include <stdint.h>
#define INFINITY __builtin_inff()
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
#define mg_begin()
struct Three { int x, y, z; };
static Three gridDim = {BLOCKS, 1, 1}, blockDim = {32, 1, 1}, blockIdx, threadIdx;
template <typename T, int N> struct alignas(sizeof(T) * N) mg_vector { T x[N]; };
struct mg_arguments { int64_t v[5]; };
TEXT
extern "C" void run_all(const int64_t *words)
{
    mg_arguments arguments;
    for (int i = 0; i < 5; i++) arguments.v[i] = words[i];
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) NAME(arguments);
}
"""
# Shape, and how windows slide; spatial axes stand last.
CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((3, 8, 12), {"window": 2}),  # rows of some windows
    ((2, 6, 14), {"window": 2}),  # rows of one window
    ((3, 6, 9), {"window": 3}),
    ((3, 7, 9), {"window": 2}),  # the last row and column belong to none
    ((3, 9, 8), {"window": 3, "stride": 2, "padding": 1}),
    ((3, 9, 10), {"window": 2, "stride": 1, "dilation": 2}),
]


def function(shape: tuple[int, ...], options: dict[str, Any], last: bool, largest: bool) -> Any:
    """Return a compiled function that pools, and that takes a cotangent back."""
    channels = 8
    full = (shape[0], *shape[1:], channels) if last else (shape[0], channels, *shape[1:])
    x = mg.var("x", shape=full)
    pool = mg.max_pool2d if largest else mg.avg_pool2d
    made = pool(x, layout="NHWC" if last else "NCHW", **options)
    above = mg.var("above", shape=made.shape)
    outputs = [made, mg.grad(mg.sum(made * above), x)]
    return mg.function([x, above], outputs, device="cpu").compile(), full, made.shape


def kernel_of(step: Any, gathers: str | None = None) -> tuple[Pooling, int]:
    """Return the kernel of a step of a plan, and its batch."""
    node = step.node
    attrs = node.attrs
    shape, made = step.inputs[0].type.shape, step.outputs[0].type.shape
    inputs, windows = (made, shape) if reads_windows(node) else (shape, made)
    last = attrs["channels_last"]
    spatial = slice(-3, -1) if last else slice(-2, None)
    channels = shape[-1] if last else 1
    batch = int(np.prod(shape)) // (channels * int(np.prod(shape[spatial])))
    kernel = kernel_for(
        gathers or gathered(node), np.dtype("f4"), reads_windows(node), batch, channels,
        axes_of(inputs[spatial], windows[spatial], attrs), NARROW,
    )
    return kernel, batch


def run(kernel: Pooling, batch: int, arrays: list[np.ndarray | None], folder: Path) -> None:
    """Run every thread of a kernel on the host."""
    text = HOST.replace("TEXT", source(kernel)).replace("NAME", kernel.name)
    text = text.replace("BLOCKS", str(-(-kernel.threads(batch) // 64)))  # threads take turns
    place = folder / f"{kernel.name}.cpp"
    place.write_text(text)
    built = place.with_suffix(".so")
    command = ["g++", "-O0", "-w", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(built), str(place)], check=True)
    words = [0 if a is None else a.ctypes.data for a in arrays] + [batch]
    ctypes.CDLL(str(built)).run_all((ctypes.c_int64 * 5)(*words))


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "total"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_kernels_agree_with_the_array_expressions(
    case: int, largest: bool, last: bool, tmp_path: Path, rng: np.random.Generator
) -> None:
    f, shape, made = function(*CASES[case], last, largest)
    steps = [step for step in f.plan.steps if step.kernel == "pooling"]
    assert len(steps) == (3 if largest else 2)
    x = rng.integers(-3, 3, shape).astype("f4")  # many elements tie
    above = rng.integers(-3, 3, made).astype("f4")
    places: np.ndarray | None = None
    for step in steps:
        node = step.node
        operands = [above if reads_windows(node) else x]
        if len(step.inputs) == 2:
            assert places is not None
            operands.append(places)
        right = node.op.evaluate(np, *operands, **node.attrs)
        if gathered(node) == "place":
            places = right
        found = np.full(right.shape, 77, right.dtype)
        kernel, batch = kernel_of(step)
        second = operands[1] if len(operands) > 1 else None
        run(kernel, batch, [operands[0], second, found, None], tmp_path)
        np.testing.assert_array_equal(found, right)
        if gathered(node) == "largest":  # with the places beside
            pair, _ = kernel_of(step, "both")
            taps = np.full(right.shape, 77, "i4")
            found[...] = 77
            run(pair, batch, [operands[0], None, found, taps], tmp_path)
            np.testing.assert_array_equal(found, right)
            (other,) = [s.node for s in steps if gathered(s.node) == "place"]
            np.testing.assert_array_equal(taps, other.op.evaluate(np, x, **other.attrs))


def test_threads_have_windows_to_themselves_where_these_do_not_overlap() -> None:
    def kernel(case: int, last: bool = False) -> Pooling:
        f, *_ = function(*CASES[case], last, True)
        return kernel_of(next(s for s in f.plan.steps if s.kernel == "pooling"))[0]

    assert [kernel(i).parted for i in range(6)] == [True, True, True, False, False, False]
    assert [kernel(i).run for i in range(3)] == [2, 1, 1]
    assert kernel(0, last=True).width == 4 and kernel(0, last=True).run == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("sliding", [False, True])
def test_kernels_compile_for_a_card(sliding: bool, spreads: bool, dtype: str) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    from magmagraph.dtypes import canonical

    attrs = {
        "window": (3, 3) if sliding else (2, 2), "strides": (2, 2), "dilation": (1, 1),
        "low": (1, 1) if sliding else (0, 0),
    }
    for channels in (1, 16):
        for gathers in ("chosen", "total") if spreads else ("both", "place", "chosen", "total"):
            kernel = kernel_for(
                gathers, canonical(dtype), spreads, 4, channels,
                axes_of((16, 16), (8, 8), attrs), NARROW,
            )
            assert compile_source(complete(source(kernel), WORDS), "90")


class Memory:
    """Addresses of slots, some of which lie where another lies."""

    def __init__(self, same: dict[int, int]) -> None:
        self.same = same

    def ranges(self, values: Any) -> tuple[tuple[int, int], ...]:
        places = [1000 * self.same.get(value.slot, value.slot) for value in values]
        return tuple((at, at + 1000) for at in places)

    def touched(self, step: Any) -> Touched:
        return Touched(self.ranges(step.inputs), self.ranges(step.outputs))


def test_the_largest_elements_and_their_places_are_one_launch() -> None:
    f, *_ = function((3, 8, 12), {"window": 2}, False, True)
    steps = {gathered(step.node): step for step in f.plan.steps if step.kernel == "pooling"}
    first, second, spread = (steps[kind] for kind in ("largest", "place", "chosen"))
    notes = Record("fuse_products")
    found = pairs(Memory({}), [first, second, spread], notes)  # type: ignore[arg-type]
    assert set(found) == {id(first), id(second)}
    assert found[id(first)] is found[id(second)]
    assert found[id(first)][0] is first and found[id(first)][1] is second
    assert list(notes.hits.values()) == [1]
    # Steps between them do not matter, but where they touch what the second one writes.
    other = replace(
        spread,
        node=first.node.inputs[0],
        family=FUSED_FAMILY,
        inputs=(),
        outputs=(spread.outputs[0],),
    )
    assert pairs(Memory({}), [first, other, second], notes)  # type: ignore[arg-type]
    same = {second.outputs[0].slot: other.outputs[0].slot}
    assert not pairs(Memory(same), [first, other, second], notes)  # type: ignore[arg-type]
    (refusal,) = notes.refusals
    assert refusal.reason == "a step between uses its memory"
    # Of another array, or of other windows, they are not.
    wider = replace(second, inputs=spread.inputs[:1])
    assert not pairs(Memory({}), [first, wider], notes)  # type: ignore[arg-type]
