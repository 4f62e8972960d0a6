"""Seeded bugs of rules, plans and kernels: certificates, checks and tests together catch them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def mutations(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import mutations

    yield mutations
    sys.modules.pop("mutations")


def missed(mutations, counts):
    judged = [each for each in mutations.mutants(counts) if not each.same]
    assert len(judged) == sum(counts.values())
    return [each for each in judged if not each.caught]


def test_twenty_bugs_are_caught(mutations):
    assert not missed(mutations, {"rule": 11, "plan": 8, "kernel": 1})


@pytest.mark.slow
def test_two_hundred_bugs_are_caught(mutations):
    assert not missed(mutations, mutations.COUNTS)
