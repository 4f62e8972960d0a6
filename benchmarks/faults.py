"""A rank that fails ends its job everywhere, in bounded time, with rank and cause named.

Runs ``python -m magmagraph.run`` with `faults_program.py` for each fault, 20 times each, and writes
benchmarks/results/faults.json: how long the job lived after the fault, its exit status, whether the
message named the rank and the cause, whether a process was left.

    python benchmarks/faults.py [--trials 20] [--ranks 3] [--only kill,stop] [--add]

With ``--add`` the trials come to those that the file holds: a long run can be made in pieces.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opening

PROGRAM = Path(__file__).with_name("faults_program.py")
MARK = "MAGMAGRAPH_FAULT_TRIAL"
STOPPED = 1.0  # seconds that a rank may be stopped; 10 unless said
WAITING = 20.0  # seconds that a rank may wait in one call; 300 unless said
DISK = 96 * 1024  # bytes of the small disk
LIMIT = 60.0  # a trial that takes longer hangs


@dataclass(frozen=True)
class Expected:
    """How a job has to end."""

    message: str
    status: int


FAULTS = {
    "exception": Expected(
        r"rank 1 of \d+ failed: ValueError: a fault on purpose\n.*?at: \S*faults_program\.py:\d+", 1
    ),
    "exit": Expected(r"rank 1 of \d+ left by sys\.exit\(3\)\n.*?at: \S*faults_program\.py:\d+", 3),
    "kill": Expected(r"rank 1 of \d+ was killed by signal 9 \(SIGKILL\)", 137),
    "stop": Expected(r"rank 1 of \d+ is stopped, by SIGSTOP", 137),
    "hang": Expected(
        r"rank 1 of \d+ kept ranks? 0.* waiting for more than 20 s\n"
        r".*?waiting in .*?at: \S*faults_program\.py:\d+",
        124,
    ),
    "graphs": Expected(
        r"ranks 0[-,].* of \d+ failed: CommunicationError: .*?rank 1, collective 1: allreduce", 1
    ),
    "disk": Expected(
        r"ranks 0[-,].* of \d+ failed: StorageError: '\S*net\.checkpoint' cannot be written: "
        r"(No space left on device|File too large)\n\s*expected: \d+ bytes",
        1,
    ),
}


@dataclass(frozen=True)
class Trial:
    """What came of one job.

    Attributes
    ----------
    hung, named, whole : bool
        Whether it did not end by itself; whether its message was as expected; whether the
        checkpoint that was there is still whole.
    status : int
        Of the launcher.
    seconds : float
        From the fault to the end of the launcher.
    left : int
        Processes that lived on.
    output : str
        What it printed.
    """

    hung: bool
    named: bool
    whole: bool
    status: int
    seconds: float
    left: int
    output: str


def trial(kind: str, folder: Path, ranks: int, extra: tuple[str, ...] = ()) -> Trial:
    """Run one job with a fault, in an empty folder."""
    (folder / "checkpoint").mkdir(exist_ok=True)
    mark = secrets.token_hex(8)
    command = [sys.executable, "-m", "magmagraph.run", "-n", str(ranks)]
    command += ["--stopped", str(STOPPED), "--timeout", str(WAITING), *extra]
    command += [str(PROGRAM), kind, str(folder)]
    root = str(PROGRAM.parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, MARK: mark, "PYTHONPATH": path},
    )
    hung = False
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        hung = True
        process.kill()
        output, _ = process.communicate()
    ended = time.time()
    left = marked(mark)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    fault = folder / "fault"
    expected = FAULTS[kind]
    return Trial(
        hung=hung,
        named=re.search(expected.message, output, re.DOTALL) is not None
        and process.returncode == expected.status,
        whole=kind == "graphs" or is_whole(folder / "checkpoint" / "net.checkpoint"),
        status=process.returncode,
        seconds=ended - float(fault.read_text()) if fault.exists() else float("nan"),
        left=len(left),
        output=output,
    )


def marked(mark: str) -> list[int]:
    """Return the processes that a trial has left."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                if (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(int(folder.name))
    return found


def is_whole(path: Path) -> bool:
    """Return whether a checkpoint can be read, its checksum being right."""
    from magmagraph.errors import DataError
    from magmagraph.model import files

    try:
        return files.read(path, "checkpoint")[1]["step"] > 0
    except DataError:
        return False


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[str]:
    """Make a folder a disk of few bytes, where that is permitted; say how it is limited."""
    (folder / "checkpoint").mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder / "checkpoint")]
    try:
        made = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    except OSError:
        made = False
    try:
        yield f"tmpfs of {DISK} bytes" if made else "RLIMIT_FSIZE"
    finally:
        if made:
            subprocess.run(["umount", str(folder / "checkpoint")], check=True)


def main() -> None:
    parser = opening.parser(__doc__, "mpi")
    parser.add_argument("--trials", type=int, default=20, help="of each fault (20)")
    parser.add_argument("--ranks", type=int, default=3, help="of a job (3)")
    parser.add_argument("--only", default=",".join(FAULTS), help="some faults, by commas")
    parser.add_argument("--add", action="store_true", help="to what an earlier run has written")
    chosen = parser.parse_args()
    opening.require("mpi")
    from common import write, written

    rows: dict[str, Any] = written("faults") if chosen.add else {}
    for kind in chosen.only.split(","):
        before = rows.get(kind, {})
        trials, disk = [], None
        for _ in range(chosen.trials):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                if kind == "disk":
                    with small_disk(folder) as disk:
                        trials.append(trial(kind, folder, chosen.ranks))
                else:
                    trials.append(trial(kind, folder, chosen.ranks))
            last = trials[-1]
            if last.hung or not last.named or not last.whole or last.left:
                print(f"{kind}: not as expected: {last}", file=sys.stderr)
        each = "seconds from fault to end, each"
        seconds = sorted([*before.get(each, ()), *(round(found.seconds, 2) for found in trials)])
        counts = {
            "trials": len(trials),
            "hung": sum(found.hung for found in trials),
            "cause and rank named": sum(found.named for found in trials),
            "processes left": sum(found.left for found in trials),
        }
        if kind != "graphs":  # which ends before there is one
            counts["checkpoint whole"] = sum(found.whole for found in trials)
        rows[kind] = {
            **{name: count + before.get(name, 0) for name, count in counts.items()},
            "statuses": sorted({*before.get("statuses", ()), *(found.status for found in trials)}),
            "seconds from fault to end, median": round(statistics.median(seconds), 2),
            "seconds from fault to end, longest": seconds[-1],
            each: seconds,
        }
        if disk is not None:
            rows[kind]["disk"] = disk
        print(kind, rows[kind], flush=True)
        settings = {"ranks": chosen.ranks, "--stopped": STOPPED, "--timeout": WAITING}
        write("faults", rows, settings=settings)


if __name__ == "__main__":
    main()
