"""The commands that look at functions in files: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import cli
from magmagraph.cli import bench, tables, target

PROGRAM = '''
import numpy as np
import magmagraph as mg
import beside

x = mg.var("x", shape=("batch", 4))
w = mg.var("w", init=np.ones((4, 3)), dtype="float32")
hidden = mg.tanh(x @ w)
loss = mg.mean(hidden * beside.FACTOR)
step = mg.function([x], loss, {w: w - 0.1 * mg.grad(loss, w)})
several = [hidden, loss]
number = 3
called = []

class Model:
    step = step

model = Model()

def build():
    called.append(1)
    return step

def train(epochs):
    return step

def fails():
    raise ValueError("no data\\nsecond line")

def given():
    return np.full((5, 4), 2.0, np.float32)

if __name__ == "__main__":
    raise SystemExit("it was run as a program")
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("FACTOR = 2.0\n")
    path = tmp_path / "net.py"
    path.write_text(PROGRAM)
    return path


def refused(arguments: list[str], capsys: Any, status: int = 1) -> str:
    """Run a command that fails, and return the one line that it says."""
    assert cli.main(arguments) == status
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith(f"magmagraph {arguments[0]}: ")
    return captured.err[len(f"magmagraph {arguments[0]}: ") : -1]


@pytest.mark.parametrize(
    "name", ["show", "explain", "profile", "autotune", "export", "tune", "search", "bench"]
)
def test_every_command_has_help(name: str, capsys: Any) -> None:
    assert cli.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: magmagraph {name}")
    assert len(text.splitlines()) > 8


# ---------------------------------------------------------------------- the target


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nothing", "{file} has no 'nothing'; it has x, w, hidden, loss, step"),
        ("model.none", "model has no 'none'"),
        ("number", "number is int, not a compiled function, a node or nodes"),
        ("train", "train is a Python function with arguments, not a compiled function or a node"),
        ("fails", "fails() raised ValueError: no data (line {fails})"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "profile"])
def test_wrong_names_are_told_in_a_line(
    program: Path, capsys: Any, command: str, name: str, line: str
) -> None:
    fails = PROGRAM[: PROGRAM.index("raise ValueError")].count("\n") + 1
    wanted = line.format(file=program, fails=fails)
    assert refused([command, f"{program}:{name}"], capsys) == wanted


def test_wrong_files_are_told_in_a_line(tmp_path: Path, capsys: Any) -> None:
    missing = tmp_path / "none.py"
    assert refused(["show", f"{missing}:x"], capsys) == f"{missing} does not exist"
    assert refused(["show", f"{tmp_path}:x"], capsys) == f"{tmp_path} is not a file"
    assert refused(["show", "net.py"], capsys) == "'net.py' is not of the form FILE.py:NAME"
    raising = tmp_path / "raising.py"
    raising.write_text("import magmagraph\n\n1 / 0\n")
    said = refused(["show", f"{raising}:x"], capsys)
    assert said == f"{raising} raised ZeroDivisionError: division by zero (line 3)"
    raising.write_text("x = (\n")
    said = refused(["show", f"{raising}:x"], capsys)
    assert said == f"{raising} raised SyntaxError: '(' was never closed (line 1)"
    raising.write_text("raise SystemExit(3)\n")
    assert refused(["show", f"{raising}:x"], capsys) == f"{raising} ended with the status 3"
    raising.write_text("x = 3\n")
    said = refused(["show", f"{raising}:y"], capsys)
    assert said == f"{raising} has no 'y'; it holds no functions and no nodes"
    said = refused(["show", f"{raising}:x"], capsys)
    assert said == "x is int, not a compiled function, a graph, a node or nodes"


def test_the_file_is_run_as_a_module_with_its_neighbours(program: Path) -> None:
    before = list(sys.path)
    found, space, name = target.load(f"{program}:build")
    assert isinstance(found, mg.Function)
    assert (space["called"], name) == ([1], "build")
    assert sys.path == before
    assert target.load(f"{program}:model.step")[0] is not found  # each load runs the file anew
    line = found.source_graph.outputs[0].line
    assert line is not None
    assert line.file == str(program)


# ---------------------------------------------------------------------- export


def test_a_function_is_exported(program: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "net"
    assert cli.main(["export", f"{program}:step", "-o", str(folder), "--size", "batch=4"]) == 0
    assert capsys.readouterr().out.startswith(f"{folder}: ")
    assert "net_run(" in (folder / "net.h").read_text()
    said = refused(["export", f"{program}:w", "-o", str(folder)], capsys)
    assert said == "w is Variable, not a compiled function"
    said = refused(
        ["export", f"{program}:step", "-o", str(folder), "--with", "other"], capsys
    )
    assert said == "other is not there, not a compiled function"


# ---------------------------------------------------------------------- show


def test_show_prints_text_and_writes_what_the_suffix_names(
    program: Path, tmp_path: Path, capsys: Any
) -> None:
    assert cli.main(["show", f"{program}:loss"]) == 0
    assert capsys.readouterr().out.startswith("%0 = input() : float32[batch, 4]  # x\n")
    for name, begins in (("a.dot", "digraph"), ("a.txt", "%0 = "), ("a.svg", "<svg"),
                         ("a.json", '{"schema": "magmagraph.viewer"')):
        path = tmp_path / name
        assert cli.main(["show", f"{program}:step", "-o", str(path)]) == 0
        assert path.read_text().startswith(begins)
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"{path}: ")
    assert cli.main(["show", f"{program}:several", "-o", str(tmp_path / "b.txt")]) == 0


def test_show_refuses_outputs_before_it_runs_the_file(program: Path, capsys: Any) -> None:
    folder = program.parent
    wanted = f"{folder}/x.pdf: the suffix says no form; there are .html, .svg, .dot, .txt, .json"
    assert refused(["show", "none.py:x", "-o", f"{folder}/x.pdf"], capsys) == wanted
    (folder / "held.svg").mkdir()
    said = refused(["show", "none.py:x", "-o", f"{folder}/held.svg"], capsys)
    assert said == f"{folder}/held.svg is a folder"
    said = refused(["show", "none.py:x", "-o", f"{folder}/none/x.svg"], capsys)
    assert said == f"{folder}/none/x.svg cannot be written: there is no folder {folder}/none"


def test_show_tells_what_cannot_be_written(program: Path, capsys: Any, monkeypatch: Any) -> None:
    from magmagraph.inspect.show import Shown

    def full(self: Any, path: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Shown, "save", full)
    path = program.parent / "x.svg"
    said = refused(["show", f"{program}:step", "-o", str(path)], capsys)
    assert said == f"{path} cannot be written: No space left on device"


# ---------------------------------------------------------------------- explain


def test_explain_prints_the_report_or_nodes(program: Path, capsys: Any) -> None:
    assert cli.main(["explain", f"{program}:step"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("pass ")
    assert "product to gemm" in text
    line = PROGRAM[: PROGRAM.index("hidden = ")].count("\n") + 1
    for node, count in (
        ("w", 1), ("tanh", 1), (str(line), 2), (f"net.py:{line}", 2), (f"{program}:{line}", 2),
        ("%0", 1),
    ):
        assert cli.main(["explain", f"{program}:step", node]) == 0
        text = capsys.readouterr().out
        parts = [part for part in text.split("\n\n") if "  made at " in part]
        forwards = [part for part in parts if "for the gradient" not in part]
        assert len(forwards) == count, (node, text)
    assert cli.main(["explain", f"{program}:step", "tanh", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["kernels"][0]["family"] == "fused"
    assert cli.main(["explain", f"{program}:step", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["pass"] == "distribute"


def test_explain_refuses_what_is_no_node(program: Path, capsys: Any) -> None:
    said = refused(["explain", f"{program}:step", "cosh"], capsys)
    assert said.startswith("no node is 'cosh'; there are x, w, ")
    said = refused(["explain", f"{program}:step", "%99"], capsys)
    assert said.startswith("there is no node %99: they are %0 to %")


# ---------------------------------------------------------------------- profile


def test_profile_prints_steps_and_lines_and_writes_a_trace(
    program: Path, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "trace.json"
    arguments = ["profile", f"{program}:step", "--size", "batch=7", "--runs", "1", "-o", str(path)]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("feeds: random numbers by type (the file has no feeds), batch=7\n")
    assert "\nsteps\nstep  kernel" in text
    assert "\nlines\n" in text
    assert str(program) in text
    assert json.loads(path.read_text())["traceEvents"]


def test_profile_takes_feeds_of_the_file(program: Path, capsys: Any) -> None:
    assert cli.main(["profile", f"{program}:step", "--feeds", "given", "--runs", "1"]) == 0
    assert capsys.readouterr().out.startswith("feeds: given of the file\n")
    said = refused(["profile", f"{program}:step", "--feeds", "none"], capsys)
    assert said == "the file has no 'none', which --feeds names"
    said = refused(["profile", f"{program}:step", "--feeds", "fails"], capsys)
    assert said.startswith("fails() raised ValueError: no data")
    said = refused(["profile", f"{program}:step", "--size", "rows=3"], capsys)
    assert said == "no input has the dimension 'rows'; there are batch"
    said = refused(["profile", f"{program}:step", "-o", "trace.txt"], capsys)
    assert said == "trace.txt: a trace is written to .json"
    assert cli.main(["profile", f"{program}:step", "--size", "batch"]) == 2


def test_profile_changes_no_variable(program: Path) -> None:
    function, space, _ = target.load(f"{program}:step")
    feeds, _ = target.random_feeds(function, {}, 0)
    function.profile(*feeds)
    np.testing.assert_array_equal(space["w"].value, np.ones((4, 3)))


def test_profile_as_json_holds_all_parts(program: Path, capsys: Any) -> None:
    arguments = ["profile", f"{program}:loss", "--json", "--check", "--ablate", "--runs", "1"]
    assert cli.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "magmagraph.evidence"
    assert told["check"]["ok"]
    assert told["ablate"]["rows"]
    assert told["feeds"].startswith("feeds: random")
    assert cli.main(["profile", f"{program}:loss", "--check", "--ablate", "--runs", "1"]) == 0
    text = capsys.readouterr().out
    assert "\naccuracy\npass " in text
    assert "\npasses\nwithout " in text


def test_random_feeds_have_the_types_of_the_inputs() -> None:
    inputs = [
        mg.input("a", ("n", 2)), mg.input("b", ("n",), "int64"), mg.input("c", (), "bool"),
        mg.input("d", (3,), "complex64"), mg.input("e", (2,), "float16"),
    ]
    function = mg.function(inputs, [node + node for node in inputs[:2]])
    feeds, text = target.random_feeds(function, {"n": 5}, seed=1)
    assert [feed.dtype for feed in feeds] == [node.dtype for node in inputs]
    assert [feed.shape for feed in feeds] == [(5, 2), (5,), (), (3,), (2,)]
    assert set(np.unique(feeds[1])) <= {0, 1}
    again, _ = target.random_feeds(function, {"n": 5}, seed=1)
    np.testing.assert_array_equal(feeds[0], again[0])
    assert text.endswith(", n=5")
    assert target.random_feeds(mg.function([], mg.constant(1.0)), {}, 0) == (
        (), "feeds: none needed"
    )


# ---------------------------------------------------------------------- tune, bench


def test_autotune_measures_once_and_says_what(program: Path, capsys: Any, monkeypatch: Any) -> None:
    from magmagraph.inspect import peaks

    monkeypatch.setitem(peaks.COPIED, "cpu", 1 << 12)
    monkeypatch.setitem(peaks.PRODUCT, "cpu", 64)
    assert refused(["autotune"], capsys).startswith("tuning is switched off (MAGMAGRAPH_TUNING=0)")
    monkeypatch.setattr(mg.config, "tuning", True)
    monkeypatch.setenv("MAGMAGRAPH_CACHE_DIR", str(program.parent / "cache"))
    assert cli.main(["autotune", f"{program}:step"]) == 0
    text = capsys.readouterr().out
    assert " GB/s memory, " in text.splitlines()[0]
    assert "step: 3 steps, feeds: random" in text
    assert "peaks, version 1: copy of " in text
    assert cli.main(["autotune"]) == 0
    assert "\n0 measured now, " in capsys.readouterr().out


def test_bench_lists_and_runs_what_a_checkout_has(
    tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    body = 'import sys  # and magmagraph\nif __name__ == "__main__":\n    print(sys.argv[1:])\n'
    said = '"""Claim: it is good,\nin two lines. It is.\n\nMore."""\n'
    (folder / "good.py").write_text(said + body)
    (folder / "good_program.py").write_text(body)
    (folder / "other.py").write_text(
        '"""Measure: what names nobody."""\nif __name__ == "__main__":\n    raise SystemExit(77)\n'
    )
    (folder / "bad.py").write_text(body + "    sys.exit(3)\n")
    (folder / "common.py").write_text("# magmagraph\n")
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert cli.main(["bench"]) == 0
    text = capfd.readouterr().out
    assert text.startswith(f"{folder}\n")
    assert "good   Claim: it is good, in two lines.\n" in text
    assert "other  Measure: what names nobody.\n" in text
    assert "common" not in text
    assert "good_program" not in text
    assert cli.main(["bench", "good", "--quick", "3"]) == 0
    assert capfd.readouterr().out == "['--quick', '3']\n"
    assert cli.main(["bench", "bad"]) == 1
    assert capfd.readouterr().err == "magmagraph bench: bad.py ended with the status 3\n"
    assert cli.main(["bench", "--all"]) == 1
    (folder / "bad.py").unlink()
    assert cli.main(["bench", "--all"]) == 0, "what needs something that is not here is left out"
    assert cli.main(["bench", "other"]) == 1
    (folder / "bad.py").write_text(body)
    capfd.readouterr()
    assert cli.main(["bench", "none"]) == 1
    assert capfd.readouterr().err.endswith("has no benchmark 'none'; there are bad, good, other\n")


def test_bench_says_where_benchmarks_are(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "_PACKAGE", tmp_path / "site" / "magmagraph")
    said = refused(["bench"], capsys)
    assert said.startswith("no benchmarks here: they come with the sources of magmagraph")


# ---------------------------------------------------------------------- tables


ROWS = [("name", "us"), ("a [bold]", "1.0"), ("all", "2.0")]


def test_tables_are_plain_where_nobody_looks_on(capsys: Any) -> None:
    tables.show(ROWS, (0,), "title", total=True)
    assert capsys.readouterr().out == "title\nname       us\na [bold]  1.0\nall       2.0\n"


def in_a_terminal(rows: list[tuple[str, ...]], columns: int) -> str:
    """Return what a table looks like in a terminal of some width."""
    code = f"from magmagraph.cli import tables; tables.show({rows!r}, (0,), 'title', total=True)"
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    done = subprocess.run([sys.executable, "-c", code], stdout=follower, env=environment)
    os.close(follower)
    text = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(leader)
    assert done.returncode == 0
    return text.decode()


@pytest.mark.skipif(os.name != "posix", reason="a pseudo-terminal needs POSIX")
def test_tables_are_drawn_in_a_terminal() -> None:
    text = in_a_terminal(ROWS, 80)
    assert "─" in text
    assert "a [bold]" in text


@pytest.mark.skipif(os.name != "posix", reason="a pseudo-terminal needs POSIX")
@pytest.mark.parametrize(("columns", "drawn"), [(45, True), (24, False)])
def test_a_narrow_terminal_breaks_no_number(columns: int, drawn: bool) -> None:
    numbers = tuple(str(1.234 + i) for i in range(5))
    rows = [("step", "a", "b", "c", "d", "e"), ("add, multiply, subtract", *numbers), ("all",) * 6]
    text = in_a_terminal(rows, columns)
    assert ("─" in text) is drawn
    for number in numbers:
        assert number in text
    assert ("add, multiply, subtract" in text) is not drawn


def test_tune_says_what_it_is_called_now(capsys: Any) -> None:
    assert cli.main(["tune"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("magmagraph tune is called magmagraph autotune now")
    assert "mg.tune" in said[0]
    assert said[1].startswith("magmagraph tune: tuning is switched off")


def test_show_binds_the_sizes_that_the_memory_map_needs(program: Path, capsys: Any) -> None:
    path = program.parent / "page.json"
    assert cli.main(["show", f"{program}:step", "-o", str(path), "--size", "batch=7"]) == 0
    assert "batch=7" in capsys.readouterr().out
    plan = json.loads(path.read_text())["plan"]
    assert plan["sizes"] == {"batch": 7}
    assert isinstance(plan["arena"], int)
