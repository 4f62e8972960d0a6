"""Training that is cut and goes on: the same bits as training that was not cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg

ROOT = Path(__file__).resolve().parents[2]


def network(seed: int = 0, **options) -> mg.NeuralNetwork:
    """Return a network with everything that has a state: statistics, dropout, Adam, a schedule."""
    layers = [
        mg.nn.Input((6,)),
        mg.nn.Dense(16, "relu"),
        mg.nn.BatchNorm(),
        mg.nn.Dropout(0.3),
        mg.nn.Dense(3, weight_decay=0.01),
    ]
    rate = mg.schedule.warmup(5, mg.schedule.cosine(0.02, 200))
    given = {"optimizer": mg.optimizer.AdamW(rate), "loss": "cross_entropy", **options}
    return mg.NeuralNetwork(layers, seed=seed, **given)


def data(rows: int = 70) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0.5)


def bits(net: mg.NeuralNetwork) -> dict[str, bytes]:
    held = {**net.tensors(), **net.optimizer.state_dict()}
    return {name: value.tobytes() for name, value in held.items()}


class StopAt(mg.callbacks.Callback):
    """Cut a run at a step of all steps."""

    every_step = True
    resumes = False

    def __init__(self, at: int | None) -> None:
        self.at, self.done = at, 0

    def step_end(self, training):
        self.done += 1
        training.stopping = training.stopping or self.done == self.at


def parts(path: Path | None, unit: str, stop: int | None = None) -> list:
    found = [mg.callbacks.EarlyStopping("val_loss", 2), StopAt(stop)]
    if path is not None:
        found.append(mg.callbacks.Checkpoint(path, 1, unit))
    return found


def without_time(history: mg.NeuralNetwork) -> list:
    return [{k: v for k, v in r.items() if k != "seconds"} for r in history.records]


@pytest.mark.parametrize(
    ("unit", "stop", "precision"),
    [("step", 8, "float32"), ("epoch", 9, "float32"), ("step", 7, "float16")],
)
def test_a_resumed_run_equals_the_uninterrupted_one(unit, stop, precision, tmp_path):
    x, y = data()
    common = {"batch_size": 16, "epochs": 5, "validation_data": (x[:20], y[:20])}
    whole = network(precision=precision)
    expected = whole.fit(x, y, callbacks=parts(tmp_path / "other", unit), **common)
    path = tmp_path / "run.safetensors"
    cut = network(precision=precision)
    cut.fit(x, y, callbacks=parts(path, unit, stop), **common)
    assert bits(cut) != bits(whole)
    again = network(precision=precision)
    found = again.fit(x, y, callbacks=parts(path, unit), resume=path, **common)
    assert without_time(found) == without_time(expected)
    assert bits(again) == bits(whole)
    assert not list(tmp_path.glob(".*.part"))


def test_epochs_in_one_go_equal_steps_one_by_one():
    x, y = data()
    first, second = network(), network()
    one = first.fit(x, y, batch_size=16, epochs=3)
    two = second.fit(x, y, batch_size=16, epochs=3, callbacks=[StopAt(None)])
    assert bits(first) == bits(second) and without_time(one) == without_time(two)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    x, y = data()
    path = tmp_path / "run.safetensors"
    net = network()
    net.fit(x, y, batch_size=16, callbacks=[mg.callbacks.Checkpoint(path)])
    for other, given, text in (
        (network(loss="mse", metrics=[]), (x, np.eye(3)[y]), "other loss, metrics, data:"),
        (network(), (x[::-1].copy(), y[::-1].copy()), "other data:\n  data: other values, of"),
        (network(), (x[:50], y[:50]), "with other data"),
    ):
        before = bits(other)
        with pytest.raises(mg.DataError, match=text):
            other.fit(*given, batch_size=16, resume=path, callbacks=[mg.callbacks.Checkpoint(path)])
        after = bits(other)
        assert {name: after[name] for name in before} == before
    content = path.read_bytes()
    for damaged in (content[:-5], content[:40], b"", content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        with pytest.raises(mg.DataError, match=r"damaged"):
            network().fit(x, y, batch_size=16, resume=path,
                          callbacks=[mg.callbacks.Checkpoint(path)])  # fmt: skip


RUN = """
import sys
sys.path[:0] = {tests!r}
import magmagraph as mg
from test_training import data, network, bits
x, y = data(400)
net = network()
path = sys.argv[1]
print("begun", flush=True)
history = net.fit(x, y, batch_size=8, epochs=6, resume=path, progress=False,
                  callbacks=[mg.callbacks.Checkpoint(path, 2, "step")])
import hashlib, json
print(json.dumps([hashlib.sha256(b"".join(v for _, v in sorted(bits(net).items()))).hexdigest(),
                  history["loss"]]))
"""


def spawn(path: Path) -> subprocess.Popen[str]:
    code = RUN.format(tests=[str(ROOT / "tests" / "helpers"), str(ROOT / "tests" / "networks")])
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process: subprocess.Popen[str]) -> list:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    found: list = json.loads(out.splitlines()[-1])
    return found


def test_runs_killed_at_random_times_end_as_one_that_was_not(tmp_path, rng):
    """``MAGMAGRAPH_TEST_KILLS=20`` makes as many trials as that; two unless said."""
    expected = finish(spawn(tmp_path / "whole.safetensors"))
    killed = 0
    for trial in range(int(os.environ.get("MAGMAGRAPH_TEST_KILLS", "2"))):
        path = tmp_path / f"run{trial}.safetensors"
        process = spawn(path)
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        while not path.exists():  # compiling is over: from now on files are written all the time
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0.0, 0.3)))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
        assert finish(spawn(path)) == expected
    assert killed


def test_a_callback_that_nobody_would_call_is_refused():
    with pytest.raises(mg.ConfigError, match=r"Old.on_epoch_end is never called\n  try: def "):
        type("Old", (mg.callbacks.Callback,), {"on_epoch_end": lambda self, training: None})


def test_a_step_end_is_called_without_being_asked_for():
    class Counts(mg.callbacks.Callback):
        steps = 0

        def step_end(self, training):
            self.steps += 1

    class Silent(Counts):
        every_step = False

    counts, silent = Counts(), Silent()
    x, y = data()
    network().fit(x, y, batch_size=16, epochs=2, callbacks=[counts, silent])
    assert (counts.steps, silent.steps) == (2 * 5, 0)
