"""Processes of a job on this machine: which there are, which are stopped, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

__all__ = ["alive", "is_stopped", "kill", "of_job"]


def _state(process: int) -> str:
    """Return the state of a process as Linux names it, empty where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_stopped(process: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP; a debugger's is not meant."""
    return _state(process) == "T"


def alive(process: int) -> bool:
    """Return whether there is such a process, of this user."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def of_job(place: str) -> list[int] | None:
    """Return the processes that were started with a job's variable, this one aside.

    It is inherited, so that what ranks start is among them. None where that cannot be seen: on
    systems without Linux's /proc.
    """
    if not os.path.isdir("/proc/self"):
        return None
    mark = f"MAGMAGRAPH_LAUNCH={place}".encode()
    numbers = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it is another user's, or has just gone
            variables = Path("/proc", name, "environ").read_bytes()
            if mark in variables.split(b"\0") and _state(int(name)) not in ("Z", "X", ""):
                numbers.append(int(name))
    return numbers


def kill(processes: Iterable[int]) -> None:
    """End processes by the signal that none can refuse, not even one that is stopped."""
    for number in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
