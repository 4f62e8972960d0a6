"""How many threads to use, and telling the pool of kernels and BLAS.

The count is that of the cores which this process may keep busy: its affinity, the quota of its
control group (which is what limits a container), and a share of both where a launcher started
several ranks on this machine. More threads than cores wait for each other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping

from ...config import CHANGED, config
from ...errors import ConfigError, message
from ...ir.cores import affinity as _affinity
from ...ir.cores import quota as _quota
from ...ir.cores import widest_affinity as _widest_affinity
from .products.blas import find_blas

__all__ = ["available_threads", "get_threads", "replace_threads", "set_threads"]

# Launchers: MPICH and its kin, Open MPI, MVAPICH, torchrun, Slurm.
_LOCAL_RANKS = (
    "MPI_LOCALNRANKS",
    "PMI_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "LOCAL_WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE",
)
_BLAS_COUNTS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
SPIN_NANOSECONDS = 50_000

_chosen: int | None = config.threads
# The pool, once it is loaded: takes (threads, nanoseconds to spin), returns the threads it has.
_pool: Callable[[int, int], int] | None = None


def _local_ranks(environment: Mapping[str, str]) -> int:
    for name in _LOCAL_RANKS:
        digits = environment.get(name, "").split("(")[0].strip()
        if digits.isdigit() and int(digits) > 0:
            return int(digits)
    return 1


def _positive(name: str) -> int | None:
    text = os.environ.get(name)
    if not text:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise ConfigError(
            message(f"{name} is {text!r}", need="a whole number, 1 or more", hint=f"{name}=4")
        )
    return int(text)


def available_threads() -> int:
    """Return the number of threads that this process should use.

    Returns
    -------
    int
        ``MAGMAGRAPH_THREADS`` where it is set. Else the cores of the process's affinity, at most
        its share, among the ranks of a launcher on this machine, of the cores and of the control
        group's quota, and at most ``OMP_NUM_THREADS``. At least 1.

    Raises
    ------
    ConfigError
        Where ``MAGMAGRAPH_THREADS`` is not a positive whole number.
    """
    asked = _positive("MAGMAGRAPH_THREADS")
    if asked is not None:
        return asked
    ranks = _local_ranks(os.environ)
    count = len(_affinity(0))
    if ranks > 1:
        count = min(count, _widest_affinity() // ranks)
    quota = _quota() / ranks
    if quota < count:
        count = int(quota)
    common = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if common.isdigit() and int(common) > 0:
        count = min(count, int(common))
    return max(1, count)


@functools.lru_cache(maxsize=1)
def _first_count() -> int:
    return available_threads()


def get_threads() -> int:
    """Return the number of threads in use: what was set, else :func:`available_threads`."""
    return _first_count() if _chosen is None else _chosen


def set_threads(count: int | None) -> None:
    """Set the number of threads of generated kernels and of BLAS.

    Parameters
    ----------
    count : int or None
        At least 1; None for :func:`available_threads`.

    Raises
    ------
    ConfigError
        Where `count` is below 1.

    Examples
    --------
    >>> set_threads(1)
    >>> get_threads()
    1
    >>> set_threads(None)
    """
    global _chosen
    if count is not None and count < 1:
        raise ConfigError(
            message(f"set_threads({count})", need="at least 1 thread", hint="set_threads(1)")
        )
    _first_count.cache_clear()
    _chosen = None if count is None else int(count)
    apply()


def replace_threads(count: int | None) -> int | None:
    """Set the number of threads, and return what was set before: a number, or None."""
    before = _chosen
    set_threads(count)
    return before


def apply() -> None:
    """Tell the pool, where it is loaded, and BLAS. Called when the pool is loaded, too."""
    count = get_threads()
    if _pool is not None:
        # Spinning helps nobody where another thread waits for the core.
        spin = SPIN_NANOSECONDS if count <= len(_affinity(0)) else 0
        got = _pool(count, spin)
        count = min(count, got)
    blas = find_blas()
    if blas is None:
        return
    # A count that the user gave to BLAS itself stays, unless ours was asked for too.
    asked = _chosen is not None or bool(os.environ.get("MAGMAGRAPH_THREADS"))
    if asked or not any(os.environ.get(name) for name in _BLAS_COUNTS):
        blas.set_threads(count)


def attach_pool(pool: Callable[[int, int], int]) -> None:
    """Take the pool's function for its size, and give it the present one."""
    global _pool
    _pool = pool
    apply()


CHANGED["threads"] = [set_threads]
