"""How many threads are used, and the one BLAS that they share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from magmagraph.errors import CompilerUnavailable, ConfigError
from magmagraph.runtime.cpu import threads
from magmagraph.runtime.cpu.products import blas
from magmagraph.runtime.cpu.support import support

RANKS = ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE",
         "SLURM_NTASKS_PER_NODE"]  # fmt: skip


@pytest.fixture
def machine(monkeypatch):
    """Pretend a machine: cores allowed, cores of the widest ancestor, and quota."""
    for name in (*threads._LOCAL_RANKS, "MAGMAGRAPH_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def pretend(cores: int, widest: int | None = None, quota: float = float("inf")) -> None:
        monkeypatch.setattr(threads, "_affinity", lambda process: frozenset(range(cores)))
        monkeypatch.setattr(threads, "_widest_affinity", lambda: widest or cores)
        monkeypatch.setattr(threads, "_quota", lambda: quota)

    return pretend


def test_affinity_and_quota_bound_the_count(machine):
    machine(cores=8)
    assert threads.available_threads() == 8
    machine(cores=8, quota=2.5)
    assert threads.available_threads() == 2
    machine(cores=8, quota=0.3)
    assert threads.available_threads() == 1


@pytest.mark.parametrize("name", RANKS)
def test_ranks_of_a_launcher_share_the_machine(machine, monkeypatch, name):
    monkeypatch.setenv(name, "4")
    machine(cores=8)
    assert threads.available_threads() == 2
    machine(cores=8, quota=4.0)
    assert threads.available_threads() == 1
    machine(cores=2, widest=8)  # bound to two cores of its own already
    assert threads.available_threads() == 2
    machine(cores=2)
    assert threads.available_threads() == 1


def test_environment_variables(machine, monkeypatch):
    machine(cores=8)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2(x3)")
    assert threads.available_threads() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert threads.available_threads() == 3
    monkeypatch.setenv("MAGMAGRAPH_THREADS", "12")
    assert threads.available_threads() == 12
    for wrong in ("0", "-2", "many", "1.5"):
        monkeypatch.setenv("MAGMAGRAPH_THREADS", wrong)
        with pytest.raises(ConfigError, match="MAGMAGRAPH_THREADS is"):
            threads.available_threads()


def test_quota_of_control_groups(tmp_path):
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    groups = tmp_path / "groups"
    unlimited = float("inf")
    assert threads._quota(tmp_path, groups) == unlimited
    groups.write_text("0::/outer/inner\n")
    assert threads._quota(tmp_path, groups) == unlimited
    write("outer/inner/cpu.max", "max 100000\n")
    assert threads._quota(tmp_path, groups) == unlimited
    write("outer/cpu.max", "150000 100000\n")
    assert threads._quota(tmp_path, groups) == 1.5
    write("outer/inner/cpu.max", "50000 100000\n")
    assert threads._quota(tmp_path, groups) == 0.5
    groups.write_text("3:cpu,cpuacct:/job\n2:memory:/job\n")
    write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n")
    write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
    assert threads._quota(tmp_path, groups) == unlimited
    write("cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n")
    assert threads._quota(tmp_path, groups) == 3.0
    write("cpu,cpuacct/job/cpu.cfs_quota_us", "damaged\n")
    assert threads._quota(tmp_path, groups) == unlimited


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
def test_the_widest_ancestor_has_at_least_our_cores():
    assert threads._widest_affinity() >= len(os.sched_getaffinity(0))


def test_setting_the_count_reaches_the_pool_and_blas():
    try:
        pool = support().library
    except CompilerUnavailable as error:
        pytest.skip(str(error))
    found = blas.find_blas()
    try:
        for count in (3, 1, 2):
            threads.set_threads(count)
            assert threads.get_threads() == count
            assert pool.mg_thread_count() == count
            if found is not None and found.threads() is not None:
                assert found.threads() == count
    finally:
        threads.set_threads(None)
    with pytest.raises(ConfigError, match="at least 1 thread"):
        threads.set_threads(0)


def test_blas_is_the_one_that_numpy_uses():
    bundled = [str(path) for path in blas._bundled()]
    found = blas.find_blas()
    if not bundled:
        pytest.skip("this NumPy brings no BLAS of its own")
    assert found is not None
    assert found.path in bundled
    assert np.__file__.rpartition("/numpy/")[0] in found.path


def test_blas_is_described_with_what_slows_it(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.delenv("OMP_PROC_BIND", raising=False)
    facts = blas.describe()
    assert set(facts) == {"path", "interface", "config", "core", "threads", "settings"}
    told = [line for line in facts["settings"] if line.startswith("OPENBLAS_CORETYPE=Haswell ")]
    assert len(told) == 1
    assert not any("OMP_PROC_BIND" in line for line in facts["settings"])


def test_a_machine_without_blas_is_described(monkeypatch):
    monkeypatch.setattr(blas, "find_blas", lambda: None)
    assert blas.describe()["interface"] == "none"
