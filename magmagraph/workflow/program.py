"""Programs as modules: started, watched, ended; what they print goes into a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..distributed.launching import tied
from ..errors import MagmagraphError, message

__all__ = ["ProgramError", "run_program"]

_LOOK = 0.2  # seconds between two looks at a program
_KIND = 2.0  # seconds between asking a program to end and ending it
_LAST = 2000  # bytes of output that an error shows
_OF_MPI = ("PMI_", "PMIX_", "PMI2_", "HYDI_", "HYDRA_", "OMPI_", "MPIR_")


class ProgramError(MagmagraphError, RuntimeError):
    """A program could not be started, did not end in time, or has another status than 0."""


def run_program(
    words: Sequence[str],
    *,
    folder: Path,
    output: Path,
    environment: Mapping[str, str],
    threads: int,
    timeout: float,
    look: Callable[[], None],
) -> None:
    """Run a program to its end, and nothing of it longer than that.

    Parameters
    ----------
    words
        The program and its arguments.
    folder
        Where it runs.
    output
        The file that takes what it prints.
    environment
        Variables beside those of this process.
    threads
        For OpenMP and BLAS; 0 leaves them alone.
    timeout
        Seconds.
    look
        Called again and again; what it raises ends the program.
    """
    with output.open("wb") as file:
        try:
            process = subprocess.Popen(
                # It ends with this process, however that ends.
                [sys.executable, "-P", "-S", tied.__file__, str(os.getpid()), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(environment, threads),
                start_new_session=True,  # so that its child processes can be ended with it
            )
        except OSError as error:
            raise ProgramError(message(f"{words[0]} cannot be started: {error}")) from None
        try:
            _wait(process, timeout, look)
        finally:
            _end(process)
    status = process.returncode
    if status:
        cause = f"status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"
        last = output.read_bytes()[-_LAST:].decode(errors="replace").strip()
        raise ProgramError(
            f"{Path(words[0]).name} ended with {cause}" + (f":\n{last}" if last else "")
        )


def _wait(process: subprocess.Popen[bytes], timeout: float, look: Callable[[], None]) -> None:
    end = time.monotonic() + timeout
    while (left := end - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _LOOK))
            return
        look()
    raise ProgramError(f"it has not ended within timeout = {timeout:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the remaining processes of a program."""
    for number, patience in ((signal.SIGTERM, _KIND), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def _environment(extra: Mapping[str, str], threads: int) -> dict[str, str]:
    # A program that uses MPI itself must not take itself for this rank.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_MPI)}
    names = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**inherited, **(dict.fromkeys(names, str(threads)) if threads else {}), **extra}
