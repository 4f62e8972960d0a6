"""Thousands of damaged files of every format, half of them with checksums that fit.

Each is read, or refused by an error of the package that names it, in bounded time and memory: no
other exception, none that ran out of memory, none that took ten seconds. `tests/helpers/mutants.py`
makes and reads them, in processes that have 512 MiB of memory beside their imports (1 GiB for
images).
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "helpers" / "mutants.py"
GROUPS = {
    "programs": ["archive", "model", "network", "checkpoint"],
    "records": ["journal", "workflow", "log", "csv"],
    "arrays": ["npy", "npy-mapped", "npz", "npz-mapped", "npz-packed", "idx", "idx-gzip", "cifar",
               "cifar-pickle"],
    "h5py": ["hdf5"],
    "PIL": ["png", "jpeg", "gif", "tiff", "webp", "bmp"],
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("trials", [120, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_files_are_read_or_refused(group, trials, seed):
    if group in ("h5py", "PIL") and find_spec(group) is None:
        pytest.skip(f"{group} is not installed (magmagraph[data])")
    if group == "h5py":
        trials = max(12, trials // 20)  # each is read in a process of its own: 0.4 s
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(trials), str(seed), *GROUPS[group]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["format"] for result in results] == GROUPS[group]
    for result in results:
        assert result["others"] == [], "\n".join(result["others"])
        assert result.get("refused", 0) + result.get("read", 0) == trials
        assert result["refused"] > 0
