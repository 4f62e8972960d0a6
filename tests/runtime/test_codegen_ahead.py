"""Loops that ask for memory ahead: where, how far, and that no result tells the difference."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regions
from regions import B, Case, N, compiled

import magmagraph as mg
from magmagraph.codegen.c import binding, caches
from magmagraph.codegen.c.binding import AHEAD, Binding
from magmagraph.codegen.c.c_code import KNOWN
from magmagraph.codegen.c.step import step_code
from magmagraph.runtime.cpu.fused import Kernels

ROW = 8 * AHEAD // 4  # elements of a row that is long whatever follows it
CASES = (
    Case("sum", ((B, N),), lambda x: mg.sum(x, axis=1)),
    Case("mean of products", ((B, N), (B, N)), lambda x, y: mg.mean(x * y, axis=1)),
    Case("of all", ((B, N),), mg.sum),
    Case("largest", ((B, N),), lambda x: mg.max(x, axis=1)),
    Case("double", (((B, N), "float64"),), lambda x: mg.min(x, axis=1)),
    Case("softmax", ((B, N),), lambda x: regions.softmax(x, 1)),
    Case("normalized", ((B, N),), lambda x: regions.normalized(x, 1)[0]),
    Case("view", ((B, N),), lambda x: mg.sum(x[:, 1:], axis=1)),
    Case("three axes", ((B, 2, N),), lambda x: mg.sum(x, axis=(1, 2))),
)


def text(operands: tuple[Any, ...], build: Callable[..., Any]) -> str:
    return step_code((regions.make_body(operands, build),)).text()


def ahead(build: Callable[..., Any], sizes: dict[str, int], *operands: Any) -> list[int]:
    """Return how many elements ahead each read of a body asks, as binding tells."""
    region = regions.region_of(regions.make_body(operands or ((B, N),), build))
    bound = Binding(region, sizes, 2)
    return [bound.read_ahead(position) for position in range(len(region.accesses))]


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose caches hold nothing."""
    monkeypatch.setattr(binding, "last_level", lambda: 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 300), (5, 3000), (2, 40_000)])
def test_results_are_the_same_bits(
    case: Case, rows: int, columns: int, rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    body, sizes = case.body(), {"B": rows, "N": columns}
    assert "__builtin_prefetch" in step_code((body,)).text()
    operands, kernels = regions.arrays_for(rng, body, sizes), Kernels()
    found = []
    for cache in (1 << 40, 0):
        monkeypatch.setattr(binding, "last_level", lambda cache=cache: cache)
        results = regions.empty_results(body, sizes)
        compiled([body], operands, results, sizes, 2, kernels)
        found.append([array.tobytes() for array in results])
    assert found[0] == found[1]


def test_only_what_is_not_in_a_cache_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "last_level", lambda: 1 << 20)
    held = {"B": 127, "N": 1024}  # half of the cache, less a row: its sums are moved, too
    assert ahead(lambda x: mg.sum(x, axis=1), held) == [0]
    assert ahead(lambda x: mg.sum(x, axis=1), {"B": 128, "N": 1024}) == [AHEAD // 4]
    assert ahead(lambda x: mg.sum(x, axis=1), held, ((B, N), "float64")) == [AHEAD // 8]


@pytest.mark.usefixtures("small_cache")
def test_what_is_asked_for_is_read_later() -> None:
    sizes = {"B": 10, "N": 1000}
    assert ahead(lambda x: mg.sum(x, axis=1), sizes) == [AHEAD // 4]
    part = lambda x: mg.sum(x[:, 1:], axis=1)  # noqa: E731
    assert ahead(part, sizes) == [0]  # a row's end, and then what no row reads
    assert ahead(part, {"B": 10, "N": ROW}) == [0]
    assert ahead(part, {"B": 10, "N": ROW + 1}) == [AHEAD // 4]
    assert ahead(lambda x: mg.sum(x[::-1], axis=1), sizes) == [0]  # the next row lies before it
    assert ahead(lambda x: mg.sum(x[2:4], axis=1), sizes) == [AHEAD // 4]


def test_loops_that_have_enough_to_do_ask_for_nothing() -> None:
    asks = "__builtin_prefetch"
    assert asks in text(((B, N),), lambda x: mg.sum(x, axis=1))
    assert asks not in text(((B, N),), lambda x: mg.sum(mg.exp(x), axis=1))
    assert asks not in text(((B, N),), lambda x: mg.sum(x, axis=0))
    assert asks not in text(((B, N),), lambda x: x * 2.0)
    assert asks in text(((B, KNOWN + 1),), lambda x: mg.sum(x, axis=1))
    assert asks not in text(((B, KNOWN),), lambda x: mg.sum(x, axis=1))
    once = text(((B, N),), lambda x: regions.softmax(x, 1))
    assert once.count(asks) == 1  # later passes find their row in the nearest cache
    beside = text(((B, N), (N,)), lambda x, y: mg.sum(x * y, axis=1))
    assert "x0_ahead" in beside
    assert "x1_ahead" not in beside  # the same for all rows


@pytest.mark.usefixtures("small_cache")
def test_what_lies_behind_the_last_row_may_be_anything() -> None:
    """Memory ends with the array: what is asked for behind it is not there, and nothing fails."""
    count = mmap.PAGESIZE // 4
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    array = np.frombuffer(memory, np.float32, count, mmap.PAGESIZE).reshape(4, -1)
    body = regions.make_body(((B, N),), lambda x: mg.sum(x, axis=1))
    sizes = {"B": 4, "N": count // 4}
    results = regions.empty_results(body, sizes)
    compiled([body], [array], results, sizes, 1)
    np.testing.assert_array_equal(results[0], 0.0)


def test_the_largest_cache_of_a_core_is_found(tmp_path: Path) -> None:
    for number, size in enumerate(("48K", "1024K", "32M", "12")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert caches.last_level(tmp_path) == 32 << 20
    (tmp_path / "index4").mkdir()
    (tmp_path / "index4" / "size").write_text("unknown\n")
    assert caches.last_level(tmp_path / ".." / tmp_path.name) == 32 << 20
    assert caches.last_level(tmp_path / "none") == caches.USUAL
    assert caches.last_level() >= 1 << 15
