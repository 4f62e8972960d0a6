"""Ask the MPI library of this process whether it accepts device addresses.

Nothing here uses MPI or a device. What a library says is where the choice of a way begins; whether
it is true `aware.tried` finds out.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Claim", "claim", "loaded"]

_LIBRARY = re.compile(r"libmpi(ch|_\w+)?\.so(\.\d+)*")
# Open MPI has its support for CUDA switched off by these.
_SWITCHES = ("OMPI_MCA_mpi_cuda_support", "OMPI_MCA_opal_cuda_support")
_CUDA = 0  # MPICH's number of NVIDIA's devices, MPIX_GPU_SUPPORT_CUDA


class Claim(NamedTuple):
    """The answer of a library.

    Attributes
    ----------
    takes
        Whether it takes addresses of devices; None where it has no word for that.
    why
        Who says so.
    """

    takes: bool | None
    why: str


def loaded() -> Any:
    """Return the MPI library that this process has loaded; None where it cannot be found."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    for path in dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if "/" in line):
        if not _LIBRARY.fullmatch(os.path.basename(path)):
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:  # it was replaced after it was loaded
            continue
        if hasattr(library, "MPI_Init"):
            return library
    return None


def claim(library: Any, variables: Mapping[str, str] = os.environ) -> Claim:
    """Return the answer of a library, after MPI is initialized: earlier some end the process.

    Parameters
    ----------
    library
        As of `loaded`.
    variables
        Of the environment.

    Examples
    --------
    >>> claim(None)
    Claim(takes=None, why='the MPI library of this process was not found')
    """
    if library is None:
        return Claim(None, "the MPI library of this process was not found")
    name = os.path.basename(getattr(library, "_name", None) or "the MPI library")
    for switch in _SWITCHES:
        if variables.get(switch, "").strip().lower() in ("0", "false", "no", "off"):
            return Claim(False, f"{switch} switches it off in {name}")
    asked = getattr(library, "MPIX_Query_cuda_support", None)
    if asked is not None:
        answer = bool(asked())
        return Claim(answer, f"MPIX_Query_cuda_support of {name} answers {int(answer)}")
    asked = getattr(library, "MPIX_GPU_query_support", None)
    if asked is not None:
        result = ctypes.c_int(0)
        answer = not asked(ctypes.c_int(_CUDA), ctypes.byref(result)) and bool(result.value)
        return Claim(answer, f"MPIX_GPU_query_support of {name} answers {int(answer)}")
    return Claim(None, f"{name} has no function that tells")
