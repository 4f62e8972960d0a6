"""Random programs over named dimensions, called with sizes 0, 1, 2, prime and large."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import random_sizes
from random_sizes import ALL, Trial, fuzz, minimized, trial

from magmagraph.codegen.region.access import Access
from magmagraph.config import config

LIMIT = 300.0  # seconds that each of the long tests takes


def _sample(
    count: int, seed: int, compiler: str, monkeypatch: pytest.MonkeyPatch, limit: float = LIMIT
) -> Counter[str]:
    monkeypatch.setattr(config, "compiler", compiler)
    with np.errstate(all="ignore"), np.printoptions(threshold=12, edgeitems=2):
        counts, failures = fuzz(count, seed, limit)
    assert not failures, "\n".join(failures)
    return counts


@pytest.mark.parametrize(("compiler", "count"), [("auto", 9), ("off", 27)])
def test_a_sample(compiler: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = _sample(count, 0, compiler, monkeypatch)
    assert counts["programs"] == count
    assert counts["compared"] > 3 * count  # of five calls each: few sizes are refused


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_for_some_minutes(compiler: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _sample(10**6, seed, compiler, monkeypatch)


def test_the_sizes_are_those_that_matter() -> None:
    """Each domain takes its turn, and 0, 1, 2, primes and large sizes come up."""
    trials = [trial(seed) for seed in range(200)]
    assert {one.domain for one in trials} == ALL.keys()
    sizes = {extent for one in trials for call in one.sizes for extent in call}
    assert {0, 1, 2, 3, 7, 31, 97, 257, 1031} <= sizes


def test_a_wrong_step_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 0 along axes that are 1 long, as NumPy's views have them, are seen."""
    bind = Access.bind

    def wrong(self: Access, sizes: dict[str, int]) -> tuple[int, tuple[int, ...]]:
        offset, steps = bind(self, sizes)
        if not self.views or 1 not in sizes.values():
            return offset, steps
        shape = self.node.type.concrete(dict(sizes))
        known = [axis is None or shape[axis] > 1 for axis in self.axes]
        return offset, tuple(s if k else 0 for s, k in zip(steps, known, strict=True))

    monkeypatch.setattr(config, "compiler", "off")
    monkeypatch.setattr(Access, "bind", wrong)
    failing: list[Trial] = []
    for seed in range(0, 900, 9):
        if random_sizes.attempt(trial(seed), "cpu", Counter()):
            failing.append(trial(seed))
            break
    assert failing
    least = minimized(failing[0], "cpu")
    assert len(least.sizes) == 1
    assert 1 in least.sizes[0]
