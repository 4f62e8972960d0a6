"""Each example runs to its end, quietly and without a warning.

An example spends most of its time on imports. So `make test` runs it in a fork of a process that
has imported the libraries, `make test-all` also as a user would start it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

# Less than the defaults, where these take long; and what else there is to run.
ARGUMENTS = {
    "digits.py": [["--epochs", "1", "--hidden", "32"]],
    "classifier.py": [["digits", "--epochs", "10"], ["iris", "--epochs", "10"]],
    "autoencoder.py": [["--epochs", "3"]],
    "burgers.py": [["--steps", "60", "--points", "100", "--width", "8"]],
    "cleveland_search.py": [["--points", "4"]],
    "california_housing.py": [["--epochs", "2"]],
    "character_model.py": [
        [model, "--steps", "3", "--length", "16", "--width", "32", "--write", "5"]
        for model in ("lstm", "transformer")
    ],
    "cifar_resnet.py": [["--epochs", "1", "--rows", "100"]],
    "heart_disease.py": [["--epochs", "2", "--repeats", "1"]],
    "mnist_cnn.py": [["--epochs", "1", "--rows", "500"]],
    "mnist_distributed.py": [["--epochs", "1", "--rows", "500"]],
    "mnist_search.py": [["--points", "4", "--epochs", "2", "--rows", "500"]],
    "variational_autoencoder.py": [["--epochs", "1", "--rows", "500", "--width", "32"]],
    "mnist_mlp.py": [["--epochs", "1", "--rows", "500", "--layers", "1", "2"]],
}
RUNS = [(path, given) for path in EXAMPLES for given in ARGUMENTS.get(path.name, [[]])]


def test_arguments_are_those_of_examples():
    assert set(ARGUMENTS) <= {path.name for path in EXAMPLES}


SLOW = {"transformer"}  # takes as long as five others
SECONDS = 300

# Reads what to run, a line each; writes the exit status. The example ends as a program does.
STARTER = """
import json, os, runpy, sys
import numpy, scipy.special, magmagraph, magmagraph.data, magmagraph.nn
try:
    import sklearn.datasets
except ImportError:
    pass
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
asked = json.loads(line)
os.chdir(asked["folder"])
for number, file in enumerate((os.devnull, asked["stdout"], asked["stderr"])):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
sys.argv = asked["arguments"]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _started(*arguments: object, **options: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", *map(str, arguments)],
        text=True,
        stdout=subprocess.PIPE,
        env={**environment, "OPENBLAS_NUM_THREADS": "1"},  # a process with threads cannot fork
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture(scope="module")
def starter() -> Iterator[subprocess.Popen[str]]:
    """A process that has imported what examples import, and forks."""
    process = _started("-c", STARTER, stdin=subprocess.PIPE)
    yield process
    with process:
        process.kill()


def _runs() -> list[object]:
    return [
        pytest.param(
            path,
            given,
            id=" ".join([path.name, *given[:1]]),
            marks=[pytest.mark.slow] if SLOW & set(given) else [],
        )
        for path, given in RUNS
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
@pytest.mark.parametrize(("path", "given"), _runs())
def test_example_runs(
    path: Path, given: list[str], tmp_path: Path, starter: subprocess.Popen[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    files = {name: str(tmp_path / name) for name in ("stdout", "stderr")}
    asked = {"folder": str(folder), "arguments": [str(path), *given], **files}
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(json.dumps(asked) + "\n")
    starter.stdin.flush()
    assert select.select([starter.stdout], [], [], SECONDS)[0], f"no end within {SECONDS} s"
    status = starter.stdout.readline()
    output, errors = (Path(file).read_text() for file in files.values())
    assert status == "0\n", output + errors
    assert errors == ""
    assert output.strip() != ""


@pytest.mark.parametrize(
    ("path", "given"),
    [
        pytest.param(*RUNS[0], id="one"),
        *(pytest.param(*r, marks=pytest.mark.slow) for r in RUNS[1:]),
    ],
)
def test_example_runs_as_a_user_starts_it(path: Path, given: list[str], tmp_path: Path) -> None:
    process = _started(path, *given, stderr=subprocess.PIPE, cwd=tmp_path)
    with process:
        output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output + errors
    assert errors == ""
    assert output.strip() != ""
