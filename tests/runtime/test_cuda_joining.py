"""The kernel that copies pieces of rows, emulated: every unit, zeros, windows, turns of blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_emulator import Emulated, available

from magmagraph.codegen.cuda.joining_code import Joining, joining_source
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.runtime.cuda.launching import calls, copies
from magmagraph.runtime.cuda.launching.calls import KernelCall, LibraryCall

pytestmark = pytest.mark.skipif(not available(), reason="needs g++ on x86-64")


class Copying:
    """A device whose kernels are emulated, with few multiprocessors: blocks take turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels: list[Joining] = []
        driver = SimpleNamespace(launchKernel=None)
        monkeypatch.setattr(calls, "driver", lambda: driver)
        monkeypatch.setattr(calls, "_extended", lambda: None)
        monkeypatch.setattr(copies, "function_of", lambda device, name, text, words: len(text))
        monkeypatch.setattr(copies, "BLOCKS_EACH", 1)
        runtime = SimpleNamespace(memcpy2DAsync=None, memsetAsync=None)
        cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        self.memory: Any = SimpleNamespace(device=SimpleNamespace(multiprocessors=2, cupy=cupy))

    def run(
        self, out: np.ndarray, sources: list[np.ndarray], rows: int, width: int,
        parts: list[tuple[int, int, int, int]],
    ) -> Joining:  # fmt: skip
        places = [out.ctypes.data, *(source.ctypes.data for source in sources)]
        call = copies._copying(self.memory, places, rows, width, parts)
        assert isinstance(call, KernelCall)
        count = call.grid[1]
        numbers = np.gcd.reduce([width, *places, *(n for part in parts for n in part)])
        unit = next(unit for unit in copies.UNITS if not numbers % unit)
        kernel = Joining(count, unit, False)
        source = complete(joining_source(kernel), kernel.words)
        Emulated(source).launch(kernel.name, call.grid, call.block, [(call.words.tobytes(),)])
        return kernel


def aligned(shape: tuple[int, ...], by: int, shift: int = 0) -> np.ndarray:
    """Return bytes at a place that is a multiple of some number, and some bytes more."""
    size = int(np.prod(shape))
    room = np.zeros(size + 2 * by + shift, np.uint8)
    start = -room.ctypes.data % by + shift
    return room[start : start + size].reshape(shape)


@pytest.mark.parametrize("unit", [1, 2, 4, 8, 16])
def test_arrays_side_by_side(unit: int, monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    counts, rows = [3 * unit, 5 * unit, unit], 1037
    sources = [aligned((rows, count), 256) for count in counts]
    for source in sources:
        source[...] = rng.integers(0, 256, source.shape)
    out = aligned((rows, sum(counts)), 256)
    starts = np.cumsum([0, *counts[:-1]])
    parts = [(int(at), count, 0, count) for at, count in zip(starts, counts, strict=True)]
    kernel = Copying(monkeypatch).run(out, sources, rows, sum(counts), parts)
    assert (kernel.parts, kernel.unit) == (3, unit)
    np.testing.assert_array_equal(out, np.concatenate(sources, 1))


@pytest.mark.parametrize(("before", "behind"), [(4, 8), (0, 4), (12, 0)])
def test_an_array_among_zeros(
    before: int, behind: int, monkeypatch: pytest.MonkeyPatch, rng: Any
) -> None:
    source, rows = aligned((50, 20), 256), 50
    source[...] = rng.integers(1, 256, source.shape)
    width = before + 20 + behind
    out = aligned((rows, width), 256)
    out[...] = 255
    kernel = Copying(monkeypatch).run(out, [source], rows, width, [(before, 20, 0, 20)])
    assert kernel.parts == 1 + bool(before) + bool(behind)
    np.testing.assert_array_equal(out, np.pad(source, ((0, 0), (before, behind))))


@pytest.mark.parametrize(("first", "unit"), [(16, 16), (6, 2), (7, 1)])
def test_a_window_at_any_place(
    first: int, unit: int, monkeypatch: pytest.MonkeyPatch, rng: Any
) -> None:
    source = aligned((40, 96), 256)
    source[...] = rng.integers(0, 256, source.shape)
    count = 48
    out = aligned((40, count), 256)
    kernel = Copying(monkeypatch).run(out, [source], 40, count, [(0, count, first, 96)])
    assert kernel.unit == unit
    np.testing.assert_array_equal(out, source[:, first : first + count])


def test_an_array_that_begins_at_an_odd_place(monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    sources = [aligned((9, 16), 256, shift) for shift in (0, 4)]
    for source in sources:
        source[...] = rng.integers(0, 256, source.shape)
    out = aligned((9, 32), 256)
    parts = [(0, 16, 0, 16), (16, 16, 0, 16)]
    assert Copying(monkeypatch).run(out, sources, 9, 32, parts).unit == 4
    np.testing.assert_array_equal(out, np.concatenate(sources, 1))


def test_single_rows_and_many_arrays_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Copying(monkeypatch)
    for rows, count in ((1, 2), (5, 17)):
        parts = [(4 * at, 4, 0, 4) for at in range(count)]
        call = copies._copying(device.memory, [256] * (count + 1), rows, 4 * count, parts)
        assert isinstance(call, LibraryCall)


def test_many_elements_have_wide_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    device, names = Copying(monkeypatch), []
    monkeypatch.setattr(copies, "function_of", lambda device, name, *rest: names.append(name) or 1)
    rows = 1 << 24
    copies._copying(device.memory, [256, 256], rows, 16, [(0, 16, 0, 16)])
    copies._copying(device.memory, [256, 256], rows, 16, [(0, 16, 16, 1 << 12)])
    assert names == ["join_1_16", "join_1_16_wide"]
