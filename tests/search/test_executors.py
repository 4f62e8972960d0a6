"""Executors: each runs calls, and says when a worker has died or its library is missing."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import magmagraph as mg
from magmagraph.executors import executor_of, has_died, workers_of

ROOT = Path(__file__).resolve().parents[2]


def die_once(mark):
    """Kill the process where there is no file of this name."""
    if not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def threads():
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("PYTHONSAFEPATH")


def wait_for_the_end_of(process):
    """Return when a process has ended, whether somebody has asked for its status or not."""
    end = time.monotonic() + 30
    place = Path(f"/proc/{process}/cmdline")
    with suppress(FileNotFoundError, ProcessLookupError):
        while place.read_bytes():
            assert time.monotonic() < end
            time.sleep(0.01)


def test_serial_runs_in_the_caller_and_keeps_errors():
    with executor_of("serial") as executor:
        assert executor.submit(os.getpid).result() == os.getpid()
        assert isinstance(executor.submit(int, "a").exception(), ValueError)
        assert workers_of(executor) == 1


def test_a_process_that_dies_takes_no_other_call_with_it(tmp_path):
    before = dict(os.environ)
    with executor_of("process", 2, threads=3) as executor:
        assert workers_of(executor) == 2
        calls = [executor.submit(pow, 2, n) for n in range(10)]
        dying = executor.submit(die_once, str(tmp_path / "mark"))
        calls += [executor.submit(pow, 2, n) for n in range(10)]
        assert isinstance(dying.exception(), BrokenExecutor)
        assert has_died(dying.exception())
        assert [call.result() for call in calls] == [2**n for n in range(10)] * 2
        assert executor.submit(die_once, str(tmp_path / "mark")).result() == "alive"
        assert executor.submit(threads).result() == ("3", before.get("PYTHONSAFEPATH"))
    assert dict(os.environ) == before


def test_a_call_that_takes_too_long_is_ended():
    with executor_of("process", 1, timeout=0.3) as executor:
        with pytest.raises(TimeoutError, match=r"ended after timeout=0\.3 s"):
            executor.submit(time.sleep, 60).result()
        assert executor.submit(pow, 2, 3).result() == 8


def test_processes_end_with_an_interrupt_and_when_their_parent_is_killed(tmp_path):
    with pytest.raises(KeyboardInterrupt), executor_of("process", 1) as executor:
        process = executor.submit(os.getpid).result()
        executor.submit(time.sleep, 60)
        raise KeyboardInterrupt
    wait_for_the_end_of(process)
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal\nfrom magmagraph.executors import executor_of\n"
        "if __name__ == '__main__':\n"
        "    with executor_of('process', 1) as executor:\n"
        "        print(executor.submit(os.getpid).result(), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, program], stdout=subprocess.PIPE, text=True,
                            timeout=60, cwd=ROOT, check=False)  # fmt: skip
    wait_for_the_end_of(int(killed.stdout))


def test_executors_that_are_given_stay_open():
    with ThreadPoolExecutor(3) as own:
        with executor_of(own) as executor:
            assert executor is own
            assert workers_of(executor) == 3
        assert own.submit(pow, 2, 3).result() == 8


@pytest.mark.parametrize(
    ("spec", "library", "text"),
    [
        ("dask", "distributed", 'try: pip install "magmagraph[dask]"'),
        ("mpi", "mpi4py", 'try: pip install "magmagraph[mpi]"'),
        ("thread", "none", 'executor=\'thread\'\n  expected: "serial", "process", "mpi"'),
    ],
)
def test_executors_that_are_not_there_are_refused(spec, library, text, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(mg.ConfigError) as caught, executor_of(spec):
        pass
    assert text in str(caught.value)


def test_a_program_without_a_guard_is_told_so(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from magmagraph.executors import executor_of\n"
        "with executor_of('process', 1) as executor:\n    executor.submit(pow, 2, 3).result()\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 1
    assert 'try: if __name__ == "__main__": in front of what the program does' in done.stderr


def test_dask_tries_the_calls_of_a_worker_that_dies_again(tmp_path):
    pytest.importorskip("distributed.client")
    from distributed import Client, LocalCluster

    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for spec in (client, cluster.scheduler_address):
            client.wait_for_workers(2)  # one that died comes again
            with executor_of(spec) as executor:
                assert workers_of(executor) == 2
                dying = executor.submit(functools.partial(die_once, str(tmp_path / "mark")))
                assert dying.result() == "alive"
