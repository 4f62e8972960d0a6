"""What `benchmarks/targets.py` says of results: those that are recorded, and made ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/targets.py"), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def entry(name: str, ratio: float, **times: float) -> dict[str, Any]:
    """Return one case as benchmarks write it."""
    rows = {key.replace("_", "."): {"median": taken} for key, taken in times.items()}
    return {"case": {"name": name, "size": 10**6}, "times": rows, "ratio": ratio}


def write(folder: Path, file: str, *results: dict[str, Any]) -> None:
    """Write a results file."""
    (folder / f"{file}.json").write_text(json.dumps({"results": list(results)}))


def test_every_claim_finds_cases_in_what_is_recorded() -> None:
    done = run("--all")
    assert done.returncode in (0, 1), done.stderr
    assert "no results" not in done.stdout
    assert "L=8 batch 1000" in done.stdout
    assert "4096, bias and gelu" in done.stdout
    assert (done.returncode == 1) == ("missed" in done.stdout)


@pytest.mark.parametrize(("ratio", "code"), [(0.95, 0), (0.96, 1)])
def test_a_ratio_above_its_limit_is_missed(tmp_path: Path, ratio: float, code: int) -> None:
    write(tmp_path, "cpu_mlp", entry("L=1", 0.5), entry("L=2", ratio))
    done = run("cpu_mlp", "--results", str(tmp_path))
    assert done.returncode == code
    assert f"L=2: {ratio} of 0.95" in done.stdout
    assert ("missed" in done.stdout) == bool(code)


def test_a_missing_file_is_not_met(tmp_path: Path) -> None:
    done = run("cpu_mlp", "--results", str(tmp_path))
    assert done.returncode == 1
    assert "no results" in done.stdout


@pytest.mark.parametrize(
    ("ours", "peer", "copy", "code"),
    [
        (0.7, 1.0, 0.1, 0),
        (0.71, 1.0, 0.1, 1),
        (1.2, 1.0, 1.0, 0),  # a copy is the slower of the two limits
        (1.21, 1.0, 1.0, 1),
    ],
)
def test_the_slower_of_two_limits_counts(
    tmp_path: Path, ours: float, peer: float, copy: float, code: int
) -> None:
    write(tmp_path, "cpu_elementwise", entry("gate", 0, magmagraph=ours, jax=peer, copy=copy))
    assert run("cpu_elementwise", "--results", str(tmp_path)).returncode == code


@pytest.mark.parametrize(
    ("ratio", "copy", "code"), [(0.69, 0.1, 0), (0.71, 0.1, 1), (0.71, 0.7, 0)]
)
def test_processes_tell_what_rows_take(
    tmp_path: Path, ratio: float, copy: float, code: int
) -> None:
    row = entry("softmax", 0.8, magmagraph=0.8, jax=1.0, copy=copy)
    write(tmp_path, "cpu_rows", {**row, "repeated": [{"ratio": 0.9}, {"ratio": ratio}]})
    assert run("cpu_rows", "--results", str(tmp_path)).returncode == code


@pytest.mark.parametrize(("middle", "code"), [(0.8, 0), (0.81, 1)])
def test_half_of_the_cases_of_several_files(tmp_path: Path, middle: float, code: int) -> None:
    write(tmp_path, "cpu_training", entry("cnn", 0.9), entry("block", 0.5))
    write(tmp_path, "cpu_adam", entry("adam", middle))
    write(tmp_path, "cpu_arrays", entry("heat", 0.99))
    write(tmp_path, "cpu_hvp", entry("small", 0.4), entry("large", 1.0))
    done = run("cpu_training", "--results", str(tmp_path))
    assert done.returncode == code
    assert f"half of 6: {middle} of 0.8" in done.stdout


def steps(float32: float, tf32: float, layer: float) -> dict[str, Any]:
    """Return a results file of steps on a GPU, with the times at L=8 and what a layer adds."""
    results: dict[str, Any] = {"first": {f"{s} cache": {"median": 1.0} for s in ("empty", "full")}}
    for precision, last in (("float32", float32), ("tf32", tf32)):
        times = {"L=1": 16.0, "L=2": 20.0, "L=4": 40.0, "L=8": last}
        results[precision] = {
            depth: {"magmagraph": {"epoch": time}, "of the best peer": 0.5}
            for depth, time in times.items()
        }
        ways = {"magmagraph epoch": layer, "torch graph": 40.0, "jax scan": 30.0}
        results[precision]["microseconds a layer"] = {**ways, "magmagraph call": 99.0}
    return {"results": results}


@pytest.mark.parametrize(
    ("float32", "tf32", "layer", "missed"),
    [
        (115.0, 90.0, 30.0, ""),
        (115.1, 90.0, 30.0, "float32 L=8: 115 of 115"),
        (115.0, 90.1, 30.0, "tf32 L=8: 90.1 of 90"),
        (115.0, 90.0, 30.1, "tf32: 30.1 of 30"),  # torch's 40 is not the best
    ],
)
def test_steps_on_a_gpu_have_goals_in_microseconds_and_slopes_beside_peers(
    tmp_path: Path, float32: float, tf32: float, layer: float, missed: str
) -> None:
    (tmp_path / "cuda_step.json").write_text(json.dumps(steps(float32, tf32, layer)))
    done = run("cuda_step", "--results", str(tmp_path))
    assert done.returncode == bool(missed), done.stderr
    assert missed in done.stdout
    assert ("missed" in done.stdout) == bool(missed)
