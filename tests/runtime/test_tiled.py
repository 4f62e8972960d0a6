"""Fused regions in NumPy tiles against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import regions
from regions import CASES, SIZES, Case, N, assert_close, in_tiles, make_body

import magmagraph as mg
from magmagraph.runtime.numpy import tiled


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


def test_buffers_of_ufuncs_are_used_again() -> None:
    numpy = tiled._Reusing()
    x = np.ones(1000, np.float32)
    first = numpy.add(x, x)
    place = first.ctypes.data
    second = numpy.multiply(first, x)  # while first is alive, another
    assert second.ctypes.data != place
    del first
    third = numpy.add(second, x)
    assert third.ctypes.data == place
    np.testing.assert_array_equal(second, np.full(1000, 2, np.float32))
    np.testing.assert_array_equal(third, np.full(1000, 3, np.float32))


def test_a_buffer_seen_through_a_view_is_kept() -> None:
    numpy = tiled._Reusing()
    x = np.ones((4, 5), np.float32)
    view = numpy.add(x, x)[1:, ::2].T
    other = numpy.multiply(x, np.float32(7) * x)
    np.testing.assert_array_equal(view, np.full((3, 3), 2, np.float32))
    np.testing.assert_array_equal(other, np.full((4, 5), 7, np.float32))


def test_no_array_of_a_chain_is_larger_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiled, "TILE_BYTES", 4096)
    sizes: list[int] = []
    take = tiled._Reusing._take

    def watched(self: tiled._Reusing, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        made = take(self, shape, dtype)
        sizes.append(made.nbytes)
        return made

    monkeypatch.setattr(tiled._Reusing, "_take", watched)
    body = make_body([(N,)], lambda x: mg.exp(mg.square(x) + x))
    x = np.linspace(-1, 1, 100_000).astype(np.float32)
    out = np.empty_like(x)
    in_tiles(body, [x], [out], {"N": x.size})
    assert max(sizes) <= 4096
    assert len(sizes) > 90
