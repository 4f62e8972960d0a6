"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import magmagraph
from magmagraph import cli
from magmagraph.cli import info
from magmagraph.errors import DataError
from magmagraph.files import trust

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arguments", [["--help"], ["info", "--help"], ["demo", "--help"]])
def test_help_succeeds(arguments, capsys):
    assert cli.main(arguments) == 0
    assert "usage: magmagraph" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["demo", "--layers", "0"],
        ["demo", "--epochs", "x"],
        ["info", "more"],
        ["demo", "--seed", "-1"],
        ["profile", "a.py:f", "--seed", "-1"],
    ],
)
def test_misuse_ends_with_2_and_says_how_it_is_used(arguments, capsys):
    assert cli.main(arguments) == 2
    assert "usage: magmagraph" in capsys.readouterr().err


def test_no_command_prints_help_with_an_example(capsys):
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert "usage: magmagraph" in text
    assert "magmagraph show program.py:step" in text
    assert max(map(len, text.splitlines())) <= 80


def test_info_fits_80_columns_and_breaks_no_path(monkeypatch, capsys):
    path = "/a/folder/" + "with-a-long-name/" * 5 + "lib.so"
    long = info.Fact(
        "CPU", "libraries", f"15 of 15, in {path} (built when installed)", "pip install x"
    )
    monkeypatch.setattr(
        info, "facts", lambda: iter([long, info.Fact("GPU", "words", "word " * 40)])
    )
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"    {path}" in lines
    assert [line for line in lines if len(line) > 80] == [f"    {path}"]
    assert lines[1].split() == ["libraries", "15", "of", "15,", "in"]


def test_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"magmagraph {magmagraph.__version__}\n"


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (DataError("a file is gone"), 1, "magmagraph info: a file is gone\n"),
        (KeyboardInterrupt(), 130, "magmagraph info: interrupted\n"),
    ],
)
def test_failure_shows_in_the_exit_status(monkeypatch, capsys, error, status, text):
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(info, "run", fail)
    assert cli.main(["info"]) == status
    assert capsys.readouterr().err == text


def test_info_tells_what_slows_and_what_is_missing(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(info, "LIBRARIES", (("no-such-library", "wishes", "magmagraph[wish]"),))
    facts = {fact.name: fact for fact in info.facts()}
    assert facts["OPENBLAS_CORETYPE"].value.startswith("Haswell makes OpenBLAS ")
    assert "unset OPENBLAS_CORETYPE" in facts["OPENBLAS_CORETYPE"].advice
    assert facts["no-such-library"].value == "not installed (wishes)"
    assert facts["no-such-library"].advice == "pip install 'magmagraph[wish]'"


def test_info_tells_that_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(magmagraph.config, "compiler", "auto")
    monkeypatch.setenv("MAGMAGRAPH_CC", "no-such-compiler")
    facts = {fact.name: fact for fact in info.facts()}
    assert facts["C compiler"].value == "none: kernels run in NumPy, slower"
    assert "no-such-compiler" in facts["C compiler"].advice
    monkeypatch.setattr(magmagraph.config, "compiler", "off")
    facts = {fact.name: fact for fact in info.facts()}
    assert facts["C compiler"].value == "switched off: kernels run in NumPy"


def test_info_tells_of_a_cache_that_others_can_change(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(folder))
    for mode, said in ((None, ""), (0o700, ""), (0o777, f"not used: {folder} can be changed by")):
        if mode is not None:
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
        trust._resolved.cache_clear()
        (fact,) = (fact for fact in info._cache() if fact.name == "folder")
        assert fact.advice.startswith(said)
        assert bool(fact.advice) == bool(said)


def test_info_tells_of_settings_that_cannot_be_used(monkeypatch):
    monkeypatch.setenv("MAGMAGRAPH_THREADS", "many")
    monkeypatch.setenv("MAGMAGRAPH_CACHE_SIZE", "big")
    facts = {fact.name: fact for fact in info.facts()}
    assert "MAGMAGRAPH_THREADS is 'many'" in facts["threads"].advice
    assert "MAGMAGRAPH_CACHE_SIZE is 'big'" in facts["folder"].advice


def test_info_tells_of_variables_that_cannot_be_used(monkeypatch):
    from magmagraph.config import Config

    monkeypatch.setenv("MAGMAGRAPH_COMPILER", "maybe")
    monkeypatch.setattr(sys.modules["magmagraph.config"], "config", Config())
    told = [fact for fact in info.facts() if fact.group == "Settings that cannot be used"]
    assert [(fact.name, fact.value) for fact in told] == [("MAGMAGRAPH_COMPILER", "maybe")]
    assert "expected: 'auto', 'off' or 'force'" in told[0].advice
    (compiler,) = (fact for fact in info.facts() if fact.name == "C compiler")
    assert compiler.value == "unknown"


def test_info_tells_of_variables_that_are_no_attributes(monkeypatch):
    for variable in ("BLAS_POOL", "BLAS_PANELS", "OVERLAP", "COMMUNICATOR", "DEVICE_MESSAGES"):
        monkeypatch.setenv(f"MAGMAGRAPH_{variable}", "maybe")
    told = {fact.name: fact.advice for fact in info.facts() if fact.value == "maybe"}
    assert told == {
        "MAGMAGRAPH_BLAS_POOL": "MAGMAGRAPH_BLAS_POOL is 'maybe'\n  expected: shared or own",
        "MAGMAGRAPH_BLAS_PANELS": "MAGMAGRAPH_BLAS_PANELS is 'maybe'\n"
        "  expected: one of 1, true, yes, on, 0, false, no, off",
        "MAGMAGRAPH_OVERLAP": "MAGMAGRAPH_OVERLAP is 'maybe'\n"
        "  expected: one of 1, true, yes, on, 0, false, no, off",
        "MAGMAGRAPH_COMMUNICATOR": "MAGMAGRAPH_COMMUNICATOR is 'maybe'\n"
        "  expected: auto, solo or mpi",
        "MAGMAGRAPH_DEVICE_MESSAGES": "MAGMAGRAPH_DEVICE_MESSAGES is 'maybe'\n"
        "  expected: auto, nccl, mpi or host",
    }


@pytest.mark.parametrize(
    ("says", "value", "advice"),
    [
        ("True\nit answers 1", "says that it takes their addresses", ""),
        ("False\nit answers 0", "takes no addresses of GPUs (it answers 0)", ""),
        ("None\nno word", "does not say", "MAGMAGRAPH_DEVICE_MESSAGES=mpi tries it"),
        ("", "unknown: mpi4py finds no MPI library", ""),
    ],
)
def test_info_asks_the_mpi_library_in_a_process_of_its_own(monkeypatch, says, value, advice):
    lines = says.splitlines()
    monkeypatch.setattr(info, "_ASKING", "\n".join(f"print({line!r})" for line in lines))
    told = info._addresses()
    assert told.value.startswith(value)
    assert told.advice == advice


@pytest.mark.parametrize(
    ("variable", "value", "need"),
    [
        ("MAGMAGRAPH_COMPILER", "maybe", "'auto', 'off' or 'force'"),
        ("MAGMAGRAPH_DEVICE", "gpu", "'auto', 'cpu', 'cuda' or 'cuda:1'"),
        ("MAGMAGRAPH_THREADS", "many", "a whole number, 1 or more; try: MAGMAGRAPH_THREADS=4"),
        ("MAGMAGRAPH_BLAS_POOL", "mine", "shared or own"),
        (
            "MAGMAGRAPH_OPTIMIZATION",
            "-O4",
            "-O2, -O0, -O1, -O3, -Og, -Os, 2, 0, 1, 3, g or s",
        ),
        ("MAGMAGRAPH_BLAS_PANELS", "2", "one of 1, true, yes, on, 0, false, no, off"),
    ],
)
def test_a_variable_that_cannot_be_used_is_one_line(variable, value, need):
    done = subprocess.run(
        [sys.executable, "-m", "magmagraph", "demo", "--offline", "--epochs", "1"],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, variable: value},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"magmagraph demo: {variable} is {value!r}; expected: {need}\n"


@pytest.mark.parametrize("words", [["demo", "--epochs"], ["profile", "f.py:f", "--runs"]])
@pytest.mark.parametrize("count", ["x", "0", "-1", "1.5"])
def test_counts_are_whole_numbers(words, count, capsys):
    assert cli.main([*words, count]) == 2
    assert f"{count!r} is not a whole number of at least 1" in capsys.readouterr().err


def test_info_as_json_and_as_text_say_the_same(capsys):
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"magmagraph", "CPU", "Cache", "Libraries"} <= {fact["group"] for fact in facts}
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert [fact["name"] for fact in facts if fact["name"] not in text] == []


def test_the_program_is_installed_under_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"] == {"magmagraph": "magmagraph.cli:main"}
    done = subprocess.run(
        [sys.executable, "-m", "magmagraph", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("magmagraph ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "magmagraph", "info"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("magmagraph info: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("layers", [1, 2])
def test_demo_learns(monkeypatch, capsys, layers):
    """On the small digits, with a rate that suits so few of them."""
    pytest.importorskip("sklearn")
    from magmagraph.data import datasets

    digits = datasets._small_digits("for the test")
    monkeypatch.setattr("magmagraph.data.mnist", lambda timeout: digits)
    chosen = ["demo", "--offline", "--layers", str(layers), "--epochs", "3", "--rate", "0.2"]
    assert cli.main(chosen) == 0
    text = capsys.readouterr().out
    assert "network.py:" in text
    assert "64-" + "528-" * layers + "10, sigmoid units" in text
    epochs = [line.split() for line in text.splitlines() if line.startswith("epoch ")]
    losses = [float(words[3]) for words in epochs]
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0]
    assert float(epochs[-1][6].rstrip("%")) > 80
    assert epochs[-1][-3:] == ["ms", "a", "step"]
    assert "Next: -o demo.html" in text


def test_demo_writes_a_page_of_its_step(monkeypatch, capsys, tmp_path):
    pytest.importorskip("sklearn")
    from magmagraph.data import datasets

    digits = datasets._small_digits("for the test")
    monkeypatch.setattr("magmagraph.data.mnist", lambda timeout: digits)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--offline", "-o", "demo.png"]) == 1
    told = capsys.readouterr()
    assert told.err == "magmagraph demo: demo.png: what is written is .html\n"
    assert told.out == ""
    assert cli.main(["demo", "--offline", "--epochs", "1", "-o", "demo.html"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("demo.html: ")
    assert (tmp_path / "demo.html").read_text().startswith("<!doctype html>")
