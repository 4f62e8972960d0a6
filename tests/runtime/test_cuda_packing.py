"""Small arrays of a message that travel side by side: the kernels run by threads of the host."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.cuda.prelude import complete
from magmagraph.ops.collective.whole import ALLREDUCE_MANY
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.launching import calls, collectives, packing
from magmagraph.runtime.cuda.launching.packing import (
    FEW,
    MOST,
    MOST_COPIED,
    SMALL,
    WORDS,
    copying_source,
    packing_source,
    packs_of,
)

HOST = r"""
#include <cstdint>
struct place { unsigned x; };
static place threadIdx, blockIdx, blockDim;
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(n)
struct mg_arguments { int64_t v[WORDS]; };
KERNELS
extern "C" void launch(
    void (*kernel)(const mg_arguments), unsigned blocks, unsigned threads, const void *words)
{
    const mg_arguments arguments = *(const mg_arguments *)words;
    blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) kernel(arguments);
}
"""


def test_which_arrays_travel_side_by_side() -> None:
    some = [SMALL, SMALL + 1, 4, 0] + [8] * (FEW - 2)
    assert packs_of(some) == [[0, 2, *range(4, FEW + 2)]]
    assert packs_of(some[:-1]) == []  # as dear as the two kernels
    assert packs_of([SMALL + 1] * (2 * FEW)) == []
    many = packs_of([8] * (2 * MOST + 1))
    assert [len(group) for group in many] == [MOST, MOST]  # the last one is sent as it lies
    assert many[0] + many[1] == list(range(2 * MOST))


class Ranks:
    """Two ranks with equal arrays, and the bytes of each that one call was given."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []

    def reduces(self, dtype: Any, op: str) -> bool:
        return True

    def group(self, axes: Any) -> Ranks:
        return self

    def allreduce_many(self, arrays: Sequence[Any], op: str, outs: Sequence[Any]) -> None:
        self.given.append([array.nbytes for array in arrays])
        for array, out in zip(arrays, outs, strict=True):
            np.add(array, array, out=out)


class Stream(contextlib.nullcontext[None]):
    ptr = 0


class Launches:
    """Kernels of one text on the host, where the package's launches go.

    Attributes
    ----------
    blocks
        Of each launch.
    """

    def __init__(self, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("g++ is not installed")
        source = folder / "kernels.cpp"
        source.write_text(HOST.replace("KERNELS", text).replace("WORDS", str(WORDS)))
        made = source.with_suffix(".so")
        command = [compiler, "-std=c++20", "-O1", "-w", "-fPIC", "-shared"]
        subprocess.run([*command, str(source), "-o", str(made)], check=True, timeout=120)
        self._library = ctypes.CDLL(str(made))
        self._names: list[str] = []
        self.blocks: list[int] = []
        driver = SimpleNamespace(launchKernel=self._launch)
        monkeypatch.setattr(packing, "function_of", self._function)
        monkeypatch.setattr(calls, "driver", lambda: driver)
        monkeypatch.setattr(calls, "_extended", lambda: None)

    def _function(self, device: Any, name: str, text: str, words: int) -> int:
        self._names.append(name)
        return len(self._names) - 1

    def _launch(
        self, function: int, blocks: int, y: int, z: int, threads: int, *rest: Any
    ) -> None:
        self.blocks.append(blocks)
        words = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))[0]
        kernel = ctypes.cast(getattr(self._library, self._names[function]), ctypes.c_void_p)
        self._library.launch(kernel, blocks, threads, ctypes.c_void_p(words))


def array_at(shape: tuple[int, ...], dtype: np.dtype, address: int) -> np.ndarray:
    count = int(np.prod(shape)) * dtype.itemsize
    held: Any = (ctypes.c_uint8 * count).from_address(address)
    found: np.ndarray = np.frombuffer(held, dtype).reshape(shape)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex128"])
def test_a_message_of_small_and_large_arrays(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    kind = np.dtype(dtype)
    Launches(packing_source(min(kind.itemsize, 8)), tmp_path, monkeypatch)
    ranks = Ranks()
    monkeypatch.setattr(
        collectives, "carriers_of", lambda device, host: SimpleNamespace(nccl=ranks)
    )

    shapes: list[tuple[int, ...]] = [(3,), (30_000,), (5, 7), (1,), (0,), (300,), (130, 190)]
    shapes += [(n % 7 + 1,) for n in range(FEW)]
    held: list[np.ndarray] = []

    def more(count: int) -> int:
        held.append(np.full(count + 16, 0xA5, np.uint8))
        return -(-held[-1].ctypes.data // 16) * 16

    cupy = SimpleNamespace(
        cuda=SimpleNamespace(
            UnownedMemory=lambda address, count, owner: address,
            MemoryPointer=lambda memory, offset: memory + offset,
        ),
        ndarray=array_at,
        empty=np.empty,
    )
    arrays = [(rng.standard_normal(shape) * 8).astype(kind) for shape in shapes]
    nodes = [mg.input(f"x{i}", shape, kind) for i, shape in enumerate(shapes)]
    node = ALLREDUCE_MANY(*nodes, op="sum", group=(), size=2)
    places: dict[Any, int] = {}
    values = [[SimpleNamespace(type=n.type) for n in nodes] for _ in range(2)]
    for number, array in enumerate(arrays):
        places[id(values[0][number])] = at = more(array.nbytes)
        ctypes.memmove(at, array.ctypes.data, array.nbytes)
        # Some are summed where they lie.
        places[id(values[1][number])] = at if number % 2 else more(array.nbytes)
    memory: Any = SimpleNamespace(
        device=SimpleNamespace(cupy=cupy, number=0), sizes={}, more=more,
        at=lambda value: places[id(value)],
    )  # fmt: skip
    step: Any = SimpleNamespace(node=node, inputs=values[0], outputs=values[1])
    call = collectives.collective(memory, step)
    assert call is not None
    call(Stream())
    large = [array.nbytes for array in arrays if array.nbytes > SMALL or not array.nbytes]
    small = sum(array.nbytes for array in arrays if array.nbytes <= SMALL)
    assert ranks.given == [[*large, small]]
    for number, array in enumerate(arrays):
        if array.size:
            found = array_at(array.shape, kind, places[id(values[1][number])])
            np.testing.assert_array_equal(found, array + array)


@pytest.mark.parametrize("count", [1, 7, MOST_COPIED + 30])
def test_what_is_not_sent_is_copied(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Any number of bytes, from and to any place, and nothing beside them."""
    text = "struct uint4 { unsigned x, y, z, w; };\n" + copying_source()
    launches = Launches(text, tmp_path, monkeypatch)
    sizes = [1, 15, 16, 17, 4096, 0, 33, 100_001]
    moves, pairs = [], []
    for number in range(count):
        size, shift = sizes[number % len(sizes)], 3 * (number % 3 == 2)
        arrays = [rng.integers(0, 255, size + 96).astype(np.uint8) for _ in range(2)]
        places = [-(-array.ctypes.data // 16) * 16 + shift for array in arrays]
        begins = [place - array.ctypes.data for place, array in zip(places, arrays, strict=True)]
        wanted = arrays[1].copy()
        wanted[begins[1] : begins[1] + size] = arrays[0][begins[0] : begins[0] + size]
        moves.append((places[0], places[1], size))
        pairs.append((arrays, wanted))
    packing.copied(SimpleNamespace(number=0), [*moves, (64, 64, 100)], Stream())
    assert len(launches.blocks) == -(-sum(size > 0 for *_, size in moves) // MOST_COPIED)
    for (_, target), wanted in pairs:
        np.testing.assert_array_equal(target, wanted)


@pytest.mark.parametrize("unit", [1, 2, 4, 8])
def test_the_kernels_compile(unit: int) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    made = compile_source(complete(packing_source(unit), WORDS), "90")
    assert made[:4] == b"\x7fELF"


def test_the_kernel_that_copies_compiles() -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    assert compile_source(complete(copying_source(), WORDS), "90")[:4] == b"\x7fELF"
