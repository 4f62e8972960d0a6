"""Fused regions in NumPy tiles against the reference interpreter."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import regions
from regions import CASES, SIZES, B, Case, N, assert_close, in_tiles, make_body

import magmagraph as mg
from magmagraph.runtime.cpu import tape_memory, tiled
from magmagraph.runtime.cpu.memory import aligned_empty


@pytest.mark.parametrize("tile", [64, 1 << 18])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tiles_agree_with_the_interpreter(
    case: Case, tile: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "TILE_BYTES", tile)
    body = case.body()
    for sizes in (SIZES, {"B": 1, "N": 1}, {"B": 40, "N": 9}, {"B": 0, "N": 9}):
        if min(sizes.values()) < case.least and min(sizes.values()):
            continue
        try:
            arrays = regions.arrays_for(rng, body, sizes, case.make)
            wanted = regions.interpreted(body, arrays, sizes)
        except Exception:
            assert not min(sizes.values())  # only slices of nothing have no shape
            continue
        results = regions.empty_results(body, sizes)
        in_tiles(body, arrays, results, sizes)
        assert_close(body, results, wanted, case.numerics, f"{sizes}")


def test_results_may_lie_in_operands(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "TILE_BYTES", 256)
    pairs = 0
    for case in CASES:
        body = case.body()
        for parameter, output in sorted(regions.region_of(body).in_place):
            arrays = regions.arrays_for(rng, body, SIZES, case.make)
            wanted = regions.interpreted(body, arrays, SIZES)
            results = regions.empty_results(body, SIZES)
            results[output] = arrays[parameter].reshape(wanted[output].shape)
            in_tiles(body, arrays, results, SIZES)
            assert_close(body, results, wanted, case.numerics, f"{case.name}, {output} in place")
            pairs += 1
    assert pairs > 30


def test_no_array_of_a_chain_is_larger_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE_BYTES", 4096)
    sizes: list[int] = []

    def watched(size: int) -> np.ndarray:
        sizes.append(size)
        return aligned_empty(size)

    monkeypatch.setattr(tape_memory, "aligned_empty", watched)
    body = make_body([(N,)], lambda x: mg.exp(mg.square(x) + x) / (x - 3.0))
    x = np.linspace(-1, 1, 100_000).astype(np.float32)
    out = np.empty_like(x)
    in_tiles(body, [x], [out], {"N": x.size})
    assert 0 < max(sizes) <= 4096
    assert len(sizes) <= 4, "memory is used again by all tiles of a shape"
    np.testing.assert_allclose(out, np.exp(x * x + x) / (x - 3), rtol=1e-6)


def test_a_region_is_bound_once_and_run_often(rng: np.random.Generator) -> None:
    """What comes with a run may lie elsewhere each time; what stays is read as it is then."""
    body = make_body([(B, N), (N,)], lambda x, y: (mg.softmax(x + y, axis=1), mg.sum(x, axis=0)))
    held = rng.standard_normal(37).astype(np.float32)
    bound = tiled.Tiles(body, SIZES, [None, held], [None, None])
    for _ in range(3):
        held[...] = rng.standard_normal(37)
        x = rng.standard_normal((13, 37)).astype(np.float32)
        results = regions.empty_results(body, SIZES)
        bound.run([x, None], results)
        wanted = regions.interpreted(body, [x, held], SIZES)
        assert_close(body, results, wanted, "reassoc", "again")
        assert sys.getrefcount(x) == 2, "an operand is let go of"
