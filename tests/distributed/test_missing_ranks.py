"""What a rank makes of what it sees of the others; jobs of MPI are in tests/mpi."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from magmagraph.errors import CommunicationError
from magmagraph.runtime import watch
from magmagraph.runtime.comm.host import Host

EVERYBODY = " on 3 ranks"


class Seen:
    """Other ranks as a test has them."""

    def __init__(self, told: dict[int, dict[str, Any]], living: set[int]) -> None:
        self.told, self.alive = told, living

    def write(self, told: dict[str, Any]) -> None:
        raise AssertionError("nothing is to be said")

    def read(self) -> dict[int, dict[str, Any]]:
        return self.told

    def living(self) -> set[int]:
        return self.alive


def waits(call: str | None, seconds: float = 60.0) -> dict[str, Any]:
    return {"waiting": call, "seconds": seconds, "count": 1, "where": "train.py:7 in step"}


BUSY = waits(None, 0.0)
BARRIER = waits("a barrier" + EVERYBODY)
SUM = waits("the sum over ranks of float32[3]" + EVERYBODY)


@pytest.mark.parametrize(
    ("mine", "others", "living", "said"),
    [
        (SUM, {1: BUSY, 2: BUSY}, {0, 1, 2}, ""),  # they may come
        (SUM, {1: {"ended": True}, 2: BUSY}, {0, 1, 2}, "rank 1 is through with its program"),
        (SUM, {1: BUSY, 2: BUSY}, {0, 2}, "rank 1 is through with its program"),
        (SUM, {1: {"ended": True}, 2: {"ended": True}}, {0}, "rank 1, 2 are through"),
        (SUM, {1: BUSY, 2: BARRIER}, {0, 1, 2}, "rank 2 as long in a barrier on 3 ranks, at train"),
        (SUM, {1: waits("the sum over ranks of float32[4]" + EVERYBODY)}, {0, 1, 2}, ""),
        (SUM, {1: waits("a barrier on 2 ranks"), 2: BUSY}, {0, 1, 2}, ""),  # of a part
        (SUM, {1: waits("a barrier" + EVERYBODY, 1.0), 2: BUSY}, {0, 1, 2}, ""),  # just come
        (waits("a barrier" + EVERYBODY, 1.0), {1: {"ended": True}}, {0, 1, 2}, ""),
        (waits("a message of rank 2 on 2 ranks"), {1: {"ended": True}}, {0, 2}, ""),
    ],
)
def test_who_will_not_come_is_known_only_where_it_is_certain(mine, others, living, said):
    found = watch.missed(0, 3, mine, Seen({0: mine, **others}, living))
    assert bool(found) == bool(said)
    assert said in found


PROGRAM = """
import sys
from magmagraph.runtime.comm.host import Host
host = Host.find(2)
assert host is not None and host.rank == int(sys.argv[1])
host.gather()
print(sorted(host.read()), flush=True)
host.write({"ended": True})
sys.stdin.read()
"""


def started(rank: int, ranks: int = 2) -> subprocess.Popen[str]:
    root = str(Path(__file__).resolve().parents[2])
    numbers = {"PMI_RANK": str(rank), "MPI_LOCALNRANKS": str(ranks), "PYTHONPATH": root}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(rank)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **numbers},
    )  # fmt: skip


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="Linux's /proc")


@needs_proc
def test_ranks_of_one_host_meet_in_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    jobs = [started(0), started(1)]
    for job in jobs:
        assert job.stdout.readline() == "[0, 1]\n", job.stderr.read()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o077 == 0
    for job in jobs:
        job.communicate("")
        assert job.returncode == 0


@needs_proc
def test_a_rank_that_never_comes_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job = started(1)
    _, said = job.communicate("", timeout=60)
    assert job.returncode == 1
    assert "CommunicationError: rank 1 of 2 waits for rank 0, which has ended" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "there", [{}, {"PMI_RANK": "0"}, {"PMI_RANK": "0", "MPI_LOCALNRANKS": "1"}]
)
def test_ranks_that_may_be_elsewhere_are_not_waited_for(monkeypatch, there):
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALNRANKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    assert Host.find(2) is None


def test_waiting_for_ranks_has_a_limit(monkeypatch, tmp_path):
    monkeypatch.setenv("MAGMAGRAPH_TIMEOUT", "0.2")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("magmagraph.runtime.comm.host._LOOK", 0.01)
    host = Host(0, 2, "PMI_RANK", "1-1")
    monkeypatch.setattr(host, "living", lambda: {0, 1})
    with pytest.raises(CommunicationError, match=r"rank 1, which has not spoken .* for 0\.2 s"):
        host.gather()
