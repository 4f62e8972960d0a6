"""Each example runs to its end as a user would start it, quietly and without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
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
    "cleveland_search.py": [["--points", "4", "--epochs", "5"]],
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


@pytest.mark.parametrize(
    ("path", "given"),
    [
        pytest.param(
            path,
            given,
            id=" ".join([path.name, *given[:1]]),
            marks=[pytest.mark.slow] if SLOW & set(given) else [],
        )
        for path, given in RUNS
    ],
)
def test_example_runs(path, given, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *given],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.strip() != ""
