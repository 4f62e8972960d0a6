"""What a benchmark says before it begins: help everywhere, and what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
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


# Asks each program for help in a child of a process that has imported the package for all of them.
ASK = """
import os, runpy, sys, traceback
import magmagraph
answers, *programs = sys.argv[1:]
for program in programs:
    child = os.fork()
    if child == 0:
        answer = os.open(os.path.join(answers, os.path.basename(program)), os.O_CREAT | os.O_WRONLY)
        os.dup2(answer, 1)
        os.dup2(answer, 2)
        sys.argv, sys.path[0], status = [program, "--help"], os.path.dirname(program), 0
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_help_says_what_each_measures(tmp_path: Path) -> None:
    programs = [str(FOLDER / name) for name in PROGRAMS]
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path), *programs], capture_output=True, text=True,
        timeout=300, check=True,
    )  # fmt: skip
    for name, status in zip(PROGRAMS, asked.stdout.split(), strict=True):
        answer = (tmp_path / name).read_text(encoding="utf-8")
        assert status == "0", (name, answer)
        first = (FOLDER / name).read_text(encoding="utf-8").partition('"""')[2].split("\n")[0]
        assert " ".join(first.removesuffix('"""').split()) in " ".join(answer.split()), name


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
