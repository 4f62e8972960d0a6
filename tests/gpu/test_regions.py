"""Every body of a region as CUDA kernels, against the reference interpreter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from regions import (
    CASES,
    Case,
    arrays_for,
    assert_close,
    interpreted,
    region_of,
)

from magmagraph.codegen.cuda.generated import kernels_of
from magmagraph.codegen.region.analysis import Region, analyze_for_gpu
from magmagraph.ir import dims
from magmagraph.ir.fallback import Refused
from magmagraph.ir.graph import Graph
from magmagraph.runtime.cuda.compiler import compile_source
from magmagraph.runtime.cuda.kernels.fused import Modules, source_of

SHAPES = [
    {"B": 13, "N": 37},
    {"B": 1, "N": 64},
    {"B": 300, "N": 128},
    {"B": 67, "N": 2052},
    {"B": 4096, "N": 12},
    {"B": 5001, "N": 64},
]
LINES = [264, 16]
GUARD = 256


def run_on_device(
    device: Any,
    modules: Modules,
    body: Graph,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    lines: int,
    poisoned: bool = True,
    overwritten: Mapping[int, int] | None = None,
) -> list[np.ndarray] | None:
    """Return what the kernels of a body make, in memory that was poisoned before, or is new.

    `overwritten` maps results to the operands in whose memory they are written.
    """
    cupy = device.cupy
    kernels = kernels_of(body)
    assert kernels is not None
    modules.build([kernels])
    try:
        counter = cupy.zeros(1, np.uint32)
        bound = modules.bind(kernels, sizes, lines, counter.data.ptr)
    except Refused:
        return None
    given = [cupy.asarray(np.ascontiguousarray(a).reshape(-1).view(np.uint8)) for a in arrays]
    made = []
    for position, node in enumerate(body.outputs):
        count = math.prod(node.type.concrete(dict(sizes))) * node.dtype.itemsize
        if overwritten and position in overwritten:
            operand = given[overwritten[position]]
            guard = cupy.full(GUARD if poisoned else 0, 0xA5, cupy.uint8)
            given[overwritten[position]] = cupy.concatenate([operand, guard])
            made.append(given[overwritten[position]])
            continue
        made.append(
            cupy.full(count + GUARD, 0xA5, cupy.uint8) if poisoned else cupy.empty(count, "u1")
        )
    scratch = dims.evaluate(region_of(body).workspace(lines), dict(sizes))
    workspace = (
        cupy.full(scratch + GUARD, 0xFF, cupy.uint8) if poisoned else cupy.empty(scratch, "u1")
    )
    cupy.cuda.get_current_stream().synchronize()
    from cupy_backends.cuda.api import driver

    keep = []
    for function, launch in bound:
        words = [a.data.ptr for a in given] + [a.data.ptr for a in made] + [workspace.data.ptr]
        held = np.array([*words, *launch.numbers], np.int64)
        pointer = np.array([held.ctypes.data], np.uintp)
        keep += [held, pointer]
        driver.launchKernel(
            function, *launch.grid, *launch.block, 0, device.stream.ptr, pointer.ctypes.data, 0
        )
    device.stream.synchronize()
    assert int(counter[0]) == 0, "a kernel left its count behind"
    behind = workspace[scratch:] if poisoned else workspace[:0]
    assert (behind == 0xFF).all(), "a kernel wrote behind its workspace"
    results = []
    for node, raw in zip(body.outputs, made, strict=True):
        shape = node.type.concrete(dict(sizes))
        count = math.prod(shape) * node.dtype.itemsize
        assert not poisoned or (raw[count:] == 0xA5).all(), "a kernel wrote behind its result"
        results.append(raw[:count].get().view(node.dtype).reshape(shape))
    return results


@pytest.fixture(scope="module")
def modules() -> Modules:
    from magmagraph.runtime.cuda.device import device_of

    return Modules(device_of("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda s: f"{s['B']}x{s['N']}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_are_the_interpreter(
    case: Case, sizes: dict[str, int], lines: int, modules: Modules, rng: np.random.Generator
) -> None:
    if min(sizes.values()) < case.least:
        return
    body = case.body()
    arrays = arrays_for(rng, body, sizes, case.make)
    results = run_on_device(modules.device, modules, body, arrays, sizes, lines)
    if results is None:
        return  # the array expressions run
    with np.errstate(all="ignore"):
        wanted = interpreted(body, arrays, sizes)
    assert_close(body, results, wanted, case.numerics, f"{case.name} on cuda")
    again = run_on_device(modules.device, modules, body, arrays, sizes, lines)
    assert again is not None
    for first, second in zip(results, again, strict=True):
        assert first.tobytes() == second.tobytes(), "two runs differ"


@pytest.mark.gpu
def test_kernels_of_nothing_write_what_has_elements(
    modules: Modules, rng: np.random.Generator
) -> None:
    ran = 0
    for case in CASES:
        body = case.body()
        for sizes in ({"B": 0, "N": 7}, {"B": 5, "N": 0}, {"B": 0, "N": 0}):
            try:
                arrays = arrays_for(rng, body, sizes, case.make)
                with np.errstate(all="ignore"):
                    wanted = interpreted(body, arrays, sizes)
            except (ValueError, IndexError):
                continue  # a slice of nothing has no such shape
            results = run_on_device(modules.device, modules, body, arrays, sizes, LINES[0])
            if results is not None:
                assert_close(body, results, wanted, case.numerics, f"{case.name}, {sizes}")
                ran += 1
    assert ran > len(CASES)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda s: f"{s['B']}x{s['N']}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_overwrite_operands_as_plans_allow(
    case: Case, sizes: dict[str, int], modules: Modules, rng: np.random.Generator
) -> None:
    """Each pair by itself: rows of odd length pass over memory again, others keep it."""
    if min(sizes.values()) < case.least:
        return
    body = case.body()
    region = analyze_for_gpu(body)
    assert isinstance(region, Region)
    for operand, result in sorted(region.in_place_recomputed):
        arrays = arrays_for(rng, body, sizes, case.make)
        results = run_on_device(
            modules.device, modules, body, arrays, sizes, LINES[0], overwritten={result: operand}
        )
        if results is None:
            return  # the array expressions run
        with np.errstate(all="ignore"):
            wanted = interpreted(body, arrays, sizes)
        title = f"{case.name} on cuda, result {result} over operand {operand}"
        assert_close(body, results, wanted, case.numerics, title)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compile_without_a_gpu(case: Case) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed: no NVRTC")
    kernels = kernels_of(case.body())
    assert kernels is not None
    assert compile_source(source_of([kernels]), "90")[:4] == b"\x7fELF"
