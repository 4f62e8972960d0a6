"""What the other tests of this folder stand on: functions on ranks, and jobs that end."""

from __future__ import annotations

import os
import time

import pytest
from jobs import RankError


def rank_and_size() -> tuple[int, int]:
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size


def summed(value: int) -> int:
    from mpi4py import MPI

    return MPI.COMM_WORLD.allreduce(value + MPI.COMM_WORLD.rank)


def wrong_on_one() -> None:
    from mpi4py import MPI

    print("before the mistake")
    assert MPI.COMM_WORLD.rank == 0, "a mistake on purpose"


def waits_for_nobody() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 0:
        MPI.COMM_WORLD.Barrier()


def leaves() -> None:
    os._exit(3)


@pytest.mark.parametrize("ranks", [2, 4])
def test_results_come_in_the_order_of_the_ranks(on_ranks, ranks):
    assert on_ranks(ranks, rank_and_size) == [(i, ranks) for i in range(ranks)]
    assert on_ranks(ranks, summed, 10) == [10 * ranks + sum(range(ranks))] * ranks


def test_a_failure_has_its_rank_its_line_and_what_was_printed(on_ranks):
    with pytest.raises(RankError, match="rank 1: Traceback") as caught:
        on_ranks(2, wrong_on_one)
    assert "a mistake on purpose" in str(caught.value)
    assert "---- rank0\nbefore the mistake" in str(caught.value)
    assert on_ranks(2, summed, 0) == [1, 1]  # both have come back: the job goes on


def test_a_function_that_hangs_is_ended_and_says_where(on_ranks):
    with pytest.raises(RankError, match=r"ranks \[0\] have not ended") as caught:
        on_ranks(2, waits_for_nobody, timeout=1.0)
    assert "in waits_for_nobody" in str(caught.value)
    assert on_ranks(2, summed, 0) == [1, 1]  # in a job of its own


def test_a_process_that_leaves_is_told(on_ranks):
    with pytest.raises(RankError, match="the process has ended"):
        on_ranks(2, leaves)
    assert on_ranks(2, summed, 1) == [3, 3]


def test_a_script_gives_status_and_output(mpiexec):
    # Written in one piece: the pieces of two ranks may come mixed.
    text = r"import sys; sys.stdout.write('here\n'); sys.exit(int(sys.argv[1]))"
    done = mpiexec(2, text, "4")
    assert (done.status, done.stdout, done.left) == (4, "here\nhere\n", [])


def test_a_script_that_hangs_is_ended_with_its_ranks(mpiexec):
    began = time.monotonic()
    with pytest.raises(RankError, match=r"(?s)no end within 1\.0 s.*asleep"):
        mpiexec(2, "import time; print('asleep', flush=True); time.sleep(60)", timeout=1.0)
    assert time.monotonic() - began < 30
