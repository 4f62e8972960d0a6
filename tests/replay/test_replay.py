"""The comparison of two versions of the package finds what differs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import replay
import replay_programs as programs


def recorded(folder: Path, name: str) -> Path:
    """Return the folder with what this version makes of one program."""
    folder.mkdir()
    replay.record(folder, "cpu", name)
    return folder


def test_one_version_makes_the_same_twice(tmp_path: Path) -> None:
    before = recorded(tmp_path / "before", "stencil")
    after = recorded(tmp_path / "after", "stencil")
    written = {path.name for path in (before / "stencil").iterdir()}
    assert written >= {"source", "optimized", "plan", "rewrites", "results"}
    assert replay.differences(before, after) == {}


def test_a_changed_program_differs_in_each_aspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recorded(tmp_path / "before", "stencil")
    monkeypatch.setitem(programs.PROGRAMS, "stencil", programs.elementwise_chain)
    after = recorded(tmp_path / "after", "stencil")
    found = replay.differences(before, after)["stencil"]
    assert {"source", "optimized", "plan", "results"} <= found.keys()
    assert any(line.startswith("+") for line in found["plan"])


def test_a_program_that_raises_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recorded(tmp_path / "before", "stencil")

    def broken(options: object) -> programs.Made:
        raise ValueError("no such program")

    monkeypatch.setitem(programs.PROGRAMS, "stencil", broken)
    found = replay.differences(before, recorded(tmp_path / "after", "stencil"))
    assert found["stencil"]["error"] == [
        "--- before", "+++ after", "@@ -0,0 +1 @@", "+ValueError: no such program"
    ]


def test_an_unknown_commit_is_an_error_of_one_line() -> None:
    made = subprocess.run(
        [sys.executable, replay.__file__, "no-such-commit"], capture_output=True, text=True,
        check=False,
    )
    assert made.returncode == 1
    assert made.stderr.startswith("no such commit: no-such-commit")
