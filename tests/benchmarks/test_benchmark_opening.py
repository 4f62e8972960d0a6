"""What a benchmark says before it begins: help everywhere, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PROGRAMS = sorted(
    path.name
    for path in FOLDER.glob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    and not path.stem.endswith("_program")
)


def run(program: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / program), *words], capture_output=True, text=True,
        timeout=100, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_help_says_what_each_measures() -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda name: run(name, "--help"), PROGRAMS))
    for name, said in zip(PROGRAMS, answers, strict=True):
        assert said.returncode == 0, (name, said.stderr)
        first = (FOLDER / name).read_text(encoding="utf-8").partition('"""')[2].split("\n")[0]
        assert " ".join(first.removesuffix('"""').split()) in " ".join(said.stdout.split()), name


def test_a_word_that_means_nothing_is_refused(benchmarks, monkeypatch, capsys) -> None:
    opening = benchmarks("opening")
    for words in (["nothing"], ["rows", "nothing"], ["--nothing"]):
        monkeypatch.setattr(sys, "argv", ["some.py", *words])
        with pytest.raises(SystemExit) as ended:
            opening.words("Measure: some.", "rows", "sums")
        assert ended.value.code == 2
        assert "nothing" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["some.py", "rows"])
    opening.words("Measure: some.", "rows", "sums")
    monkeypatch.setattr(sys, "argv", ["some.py", "--of-itself"])
    opening.words("Measure: some.", needs=("gpu",), hidden="--of-itself")


def test_what_is_missing_ends_with_a_status_of_its_own(benchmarks, monkeypatch, capsys) -> None:
    opening = benchmarks("opening")
    monkeypatch.setattr(sys, "argv", ["some.py"])
    monkeypatch.setitem(opening.THINGS, "here", ("a thing that is here", lambda: True))
    monkeypatch.setitem(opening.THINGS, "absent", ("a thing that is absent", lambda: False))
    opening.words("Measure: some.", needs=("here",))
    with pytest.raises(SystemExit) as ended:
        opening.words("Measure: some.", needs=("here", "absent"))
    assert ended.value.code == opening.LEFT_OUT
    assert capsys.readouterr().err == "some.py needs a thing that is absent\n"
    with pytest.raises(SystemExit):
        opening.words("Measure: some.", "rows", whole=("absent",))
    monkeypatch.setattr(sys, "argv", ["some.py", "rows"])
    opening.words("Measure: some.", "rows", whole=("absent",))


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    said = run("cifar_torch.py", MAGMAGRAPH_DATA=str(tmp_path))
    assert said.returncode == 77
    assert "cifar10-subset.npz in the folder that MAGMAGRAPH_DATA names" in said.stderr
