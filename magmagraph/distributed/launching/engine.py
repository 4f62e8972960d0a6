"""Which `mpiexec` starts the ranks, and how it is told to."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError, message

__all__ = ["Engine", "find_engine"]

_FAMILIES = {
    "mpich": "MPICH (Hydra)", "openmpi": "Open MPI", "intel": "Intel MPI",
    "other": "an unknown MPI",
}  # fmt: skip
_NAMES = ("mpiexec", "mpirun", "mpiexec.hydra")


@dataclass(frozen=True)
class Engine:
    """A program that starts ranks.

    path (str): Of the program.
    family (str): "mpich" (with all whose starter is Hydra), "openmpi", "intel", or "other".
    version (str): As the program says it.
    """

    path: str
    family: str
    version: str

    def command(self, ranks: int, hosts: Sequence[str], program: Sequence[str]) -> list[str]:
        """Return the command that starts a program on some ranks."""
        words = [self.path, "-n", str(ranks)]
        if self.family == "openmpi":
            # More ranks than cores are refused otherwise, and root altogether.
            words += ["--oversubscribe"]
            if hasattr(os, "geteuid") and os.geteuid() == 0:
                words += ["--allow-run-as-root"]
            if hosts:
                words += ["--host", ",".join(hosts)]
            return [*words, *program]
        if self.family == "mpich":
            # Which rank was the first to die can be told as long as the others live.
            words += ["-disable-auto-cleanup"]
        if hosts:
            words += ["-hosts", ",".join(hosts)]
        elif self.family == "mpich":
            # A machine need not be able to look up its own name.
            words += ["-localhost", "127.0.0.1"]
        return [*words, *program]

    def __str__(self) -> str:
        return f"{self.path}: {_FAMILIES[self.family]} {self.version}".rstrip()


def find_engine(asked: str | None = None) -> Engine:
    """Return the program that starts ranks here.

    The one that is asked for, else ``MAGMAGRAPH_MPIEXEC``, else the one beside this Python (of the
    wheel that mpi4py was installed with), else the first on the path.

    asked (str, optional): A name or a path.
    returns (Engine):
    raises DeviceError: There is none, or it does not run.
    """
    named = asked or os.environ.get("MAGMAGRAPH_MPIEXEC")
    if named:
        path = shutil.which(named)
        if path is None:
            raise DeviceError(
                message(
                    f"there is no program {named!r} to start ranks with",
                    need="the name or path of mpiexec, as mpiexec= or MAGMAGRAPH_MPIEXEC",
                )
            )
        return _engine(path)
    beside = Path(sys.executable).parent
    for name in _NAMES:
        path = shutil.which(name, path=str(beside)) or shutil.which(name)
        if path is not None:
            return _engine(path)
    raise DeviceError(
        message(
            "many processes need mpiexec, and there is none on the path or beside Python",
            hint="pip install 'magmagraph[mpi]' brings mpi4py and MPICH",
        )
    )


@functools.cache
def _engine(path: str) -> Engine:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(message(f"{path} does not run: {error}")) from None
    text = answer.stdout + answer.stderr
    if "Open MPI" in text or "OpenRTE" in text or "PRRTE" in text:
        family = "openmpi"
    elif "Intel(R) MPI" in text:
        family = "intel"
    elif "HYDRA" in text:
        family = "mpich"
    else:
        family = "other"
    version = re.search(r"\b\d+\.\d+(\.\d+)?\b", text)
    return Engine(path, family, version.group() if version else "")


def binding() -> str | None:
    """Return the version of mpi4py, or None where it is not installed."""
    try:
        return importlib.metadata.version("mpi4py")
    except importlib.metadata.PackageNotFoundError:
        return None
