"""Why this machine cannot run some tests. A module of its own: there are several conftest.py."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys


@functools.cache
def missing_gpu() -> str | None:
    """Return why no GPU can be used here, or None if one can."""
    if importlib.util.find_spec("cupy") is None:
        return "cupy is not installed (pip install magmagraph[cuda13])"
    import cupy

    if not cupy.cuda.is_available():
        return "cupy finds no CUDA GPU"
    return None


@functools.cache
def missing_mpi() -> str | None:
    """Return why MPI cannot be used here, or None if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed (pip install magmagraph[mpi])"
    # Where there is no MPI library, the import itself fails, in ways that only a process of its
    # own shields us from.
    probe = subprocess.run(
        [sys.executable, "-c", "from mpi4py import MPI"], capture_output=True, text=True
    )
    if probe.returncode != 0:
        return "mpi4py finds no MPI library (pip install mpich)"
    return None
