"""A rank that fails ends the job everywhere, in bounded time, and the cause is named.

benchmarks/faults.py makes the same trials twenty times each.
"""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from jobs import ROOT, Done, run

from magmagraph.dtypes import tolerance
from magmagraph.model import files


def launched(ranks: int, *words: str, folder: Path, **options: Any) -> Done:
    command = [sys.executable, "-m", "magmagraph.run", "-n", str(ranks), *words]
    return run(command, folder=folder, **{"timeout": 60.0, **options})


# ------------------------------------------------------------------------------ faults


@pytest.fixture(scope="module")
def faults() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("faults", ROOT / "benchmarks" / "faults.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["faults"] = module  # its dataclasses look themselves up
    sys.path.insert(0, str(ROOT / "benchmarks"))  # as a program of that folder finds its others
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    yield module
    for name in ("faults", "opening"):
        del sys.modules[name]


@pytest.mark.parametrize("kind", ["exception", "exit", "kill", "stop", "graphs", "disk"])
def test_a_fault_ends_the_job_and_is_named(faults, kind, tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MAGMAGRAPH_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MAGMAGRAPH_COMPILE_BUDGET", "0")  # faults do not need fast kernels
    found = faults.trial(kind, tmp_path, ranks=2)
    assert not found.hung, found.output
    assert found.named, found.output
    assert found.whole
    assert found.left == 0


BARE = """
    import os, sys, time
    import magmagraph as mg
    world = mg.distributed.communicator()
    assert world.size == 2
    if sys.argv[1] == "caught":
        try:
            sys.exit(4)
        except SystemExit as stop:
            assert stop.code == 4
    elif world.rank == 1:
        if sys.argv[1] == "exception":
            raise ValueError("a fault on purpose")
        if sys.argv[1] == "exit":
            sys.exit(4)
        while sys.argv[1] == "hang":
            time.sleep(0.01)
    world.barrier()
    print("through")
"""


@pytest.mark.parametrize(
    ("kind", "status", "said"),
    [
        ("exception", 1, r"ValueError: a fault on purpose\n(.*\n)*.*rank 1 of 2 failed with Value"),
        ("exit", 4, r"magmagraph: rank 1 of 2 left with status 4: the job ends"),
        ("hang", 124, r"magmagraph: rank 0 of 2 has waited 1 s in .*, at .*script\.py:\d+ in"),
        ("caught", 0, r"(?s)through.*through"),
    ],
)
def test_under_plain_mpiexec_a_rank_that_fails_ends_the_others(mpiexec, kind, status, said):
    limit = {"MAGMAGRAPH_TIMEOUT": "1"} if kind == "hang" else {}
    done = mpiexec(2, BARE, kind, extra=limit)
    assert re.search(said, done.output), done.output
    assert done.status == status
    assert done.left == []


# ------------------------------------------------------------------------------ the launcher ends


WAITS = """
import os, subprocess, time
from pathlib import Path
subprocess.Popen(["sleep", "60"])
Path("ready" + os.environ["PMI_RANK"]).touch()
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_outlives_its_launcher(name, tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)

    def stop(process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + 30
        while not all((tmp_path / f"ready{i}").exists() for i in range(2)):
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(getattr(signal, name))

    def patient(process: subprocess.Popen[str]) -> None:
        stop(process)
        process.wait(20)  # the ranks of one that was killed see that by themselves, in a while

    done = launched(2, "waits.py", folder=tmp_path, during=patient)
    number = getattr(signal, name)
    assert done.status == (130 if name == "SIGINT" else -number), done.output
    assert done.left == []


# ------------------------------------------------------------------------------ starting again


TRAINS = """
import os, signal, sys
import numpy as np
import magmagraph as mg

path, result, fault = sys.argv[1:]
rng = np.random.default_rng(0)
x = rng.normal(size=(36, 5)).astype(np.float32)
y = (x[:, 0] > x[:, 1]).astype(np.int64)
net = mg.NeuralNetwork(
    [mg.nn.Input((5,)), mg.nn.Dense(8, activation="tanh"), mg.nn.Dropout(0.25),
     mg.nn.Dense(2)],
    loss="cross_entropy", optimizer=mg.optimizer.Adam(0.01), seed=1)

class Fault(mg.callbacks.Callback):
    every_step, resumes = True, False
    def step_end(self, training):
        first = os.environ["MAGMAGRAPH_RESTART"] == "0"
        if fault == "kill" and first and (training.epoch, training.step) == (1, 2):
            if mg.distributed.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)

net.fit(
    x, y, batch_size=12, epochs=3, resume=path, progress=False,
    callbacks=[mg.callbacks.Checkpoint(path, unit="step"), Fault()],
    distribute=mg.distributed.DataParallel())
if mg.distributed.rank() == 0:
    net.save(result)
    print("ranks", mg.distributed.size(), "restarts", os.environ["MAGMAGRAPH_RESTART"])
"""


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., tuple[dict[str, np.ndarray], Done]]:
    """Train on 2 ranks, and give the weights: ``trained(name, fault, *words)``."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "trains.py").write_text(TRAINS)

    def train(name: str, fault: str, *words: str) -> Any:
        result = folder / f"{name}.safetensors"
        job = ["trains.py", str(folder / f"{name}.checkpoint"), str(result), fault]
        quick = {"MAGMAGRAPH_COMPILE_BUDGET": "0"}  # neither faults nor checkpoints need kernels
        done = launched(2, *words, *job, folder=folder, extra=quick)
        assert done.status == 0, done.output
        assert done.left == []
        return files.read(result)[0], done

    return train


@pytest.fixture(scope="module")
def whole(trained: Callable[..., tuple[dict[str, np.ndarray], Done]]) -> dict[str, np.ndarray]:
    """Return the weights of a run that nothing happens to."""
    found, done = trained("whole", "none")
    assert "ranks 2 restarts 0" in done.stdout
    return found


def test_a_run_that_was_killed_and_restarted_equals_one_that_was_not(trained, whole):
    again, done = trained("again", "kill", "--restarts", "1")
    # Where mpiexec ends without a word of the signal, that it was killed is all that is known.
    assert re.search(r"rank 1 of 2 was killed( by signal 9 \(SIGKILL\)|, has)", done.stderr)
    assert "started again with 2 ranks (1 of 1)" in done.stderr
    assert "ranks 2 restarts 1" in done.stdout
    assert set(again) == set(whole)
    for key, value in whole.items():
        np.testing.assert_array_equal(again[key], value)


def test_a_run_goes_on_with_fewer_ranks(trained, whole):
    fewer, done = trained("fewer", "kill", "--restarts", "1", "--elastic", "1")
    assert "started again with 1 rank (1 of 1)" in done.stderr
    assert "ranks 1 restarts 1" in done.stdout
    for key, value in whole.items():
        limit = tolerance(value.dtype, "reassoc")
        np.testing.assert_allclose(fewer[key], value, limit.relative, limit.absolute)
