"""Train a small network on some ranks, one of which fails on purpose: what faults.py runs.

``faults_program.py FAULT FOLDER``: rank 1 fails after its third step. At that moment a file
``fault`` with the time appears in the folder; checkpoints are written there after every second
step.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import magmagraph as mg

STEP = 3
RANK = 1


class Fault(mg.callbacks.Callback):
    """Fails on one rank after a step."""

    every_step = True
    resumes = False

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder

    def step_end(self, training: Any) -> None:
        if training.step == STEP and mg.distributed.rank() == (0 if self.kind == "disk" else RANK):
            (self.folder / "fault").write_text(repr(time.time()))
            getattr(self, self.kind)()

    def exception(self) -> None:
        raise ValueError("a fault on purpose")

    def exit(self) -> None:
        sys.exit(3)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def hang(self) -> None:
        while True:
            time.sleep(0.01)

    def disk(self) -> None:
        """Fill the checkpoint's disk; where that is not its own, limit the size of files."""
        place = self.folder / "checkpoint"
        if os.path.ismount(place):
            with open(place / "filler", "wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    return
        size = (place / "net.checkpoint").stat().st_size
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limit))


def other_graphs(folder: Path) -> None:
    """Let one rank build another function than the others."""
    x = mg.input("x", shape=(4,))
    total = mg.distributed.allreduce(x)
    if mg.distributed.rank() == RANK:
        total = mg.distributed.allreduce(total, op="max")
        (folder / "fault").write_text(repr(time.time()))
    mg.function([x], total)(np.ones(4, np.float32))


def main() -> None:
    if len(sys.argv) != 3:
        print("faults_program.py FAULT FOLDER: faults.py runs it", file=sys.stderr)
        raise SystemExit(77)
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "graphs":
        other_graphs(folder)
        return
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    net = mg.NeuralNetwork(
        [mg.nn.Input((8,)), mg.nn.Dense(16, activation="tanh"), mg.nn.Dense(2)],
        loss="cross_entropy",
        optimizer=mg.optimizer.Adam(0.01),
        seed=0,
    )
    path = folder / "checkpoint" / "net.checkpoint"
    net.fit(
        x,
        y,
        batch_size=10,
        epochs=2,
        callbacks=[mg.callbacks.Checkpoint(path, every=2, unit="step"), Fault(kind, folder)],
        distribute=mg.distributed.DataParallel(),
        progress=False,
    )


if __name__ == "__main__":
    main()
