"""Hostile values of attributes, of the right types, are refused with their line or do no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = 12  # of the operations


def _tried(part: int, parts: int, every: int, compiler: str) -> dict[str, int]:
    """Return how many texts ended in which way, of a part of the operations."""
    script = Path(__file__).parent / "hostile_attributes.py"
    done = subprocess.run(
        [sys.executable, str(script), str(part), str(parts), str(every)],
        env={**os.environ, "MAGMAGRAPH_COMPILER": compiler, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]  # its last line is the text
    counts: dict[str, int] = {}
    bad: list[str] = []
    for line in map(json.loads, done.stdout.splitlines()):
        bad += line["bad"]
        for end, count in line["counts"].items():
            counts[end] = counts.get(end, 0) + count
    assert not bad, "\n\n".join(bad[:10])
    return counts


def test_hostile_attributes_are_refused_or_do_no_harm() -> None:
    """A third of the operations."""
    counts = _tried(1, 3, 100, "off")
    assert counts["refused"] > 1000
    assert counts["called"] > 100


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["off", "auto"])
@pytest.mark.parametrize("part", range(PARTS))
def test_all_hostile_attributes(part: int, compiler: str) -> None:
    counts = _tried(part, PARTS, 1, compiler)
    assert counts["refused"] > 50
    assert counts["called"] > 10
