"""How many cores this process may keep busy: its affinity and the quota of its control group."""

from __future__ import annotations

import functools
import os
from pathlib import Path

__all__ = [
    "affinity",
    "allowed_cores",
    "quota",
    "wide_vectors",
    "widest_affinity",
]

def affinity(process: int) -> frozenset[int]:
    """Return the cores that a process may run on; 0 is this one."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(process))
    return frozenset(range(os.cpu_count() or 1))


def widest_affinity() -> int:
    """Return the most cores that this process or one of its ancestors may use.

    A launcher that binds its ranks to cores has more than each of them.
    """
    widest = len(affinity(0))
    process = os.getppid()
    for _ in range(64):
        if process <= 1:
            break
        try:
            widest = max(widest, len(affinity(process)))
            status = Path(f"/proc/{process}/stat").read_text()
            process = int(status.rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return widest


@functools.lru_cache(maxsize=1)
def wide_vectors() -> bool:
    """Return whether the processor has vectors of 64 bytes, and 32 registers for them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return any(line.startswith("flags") and " avx512f" in line for line in file)
    except OSError:
        return False


def quota(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> float:
    """Return the cores that control groups, version 2 or 1, grant; infinity where unlimited."""
    least = float("inf")
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return least
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, read = root, _quota_v2
        elif "cpu" in controllers.split(","):
            base, read = root / controllers, _quota_v1
            if not base.is_dir():
                base = root / "cpu"
        else:
            continue
        # A limit of any group above counts. Inside a container the path may not be visible.
        folder = base / path.strip("/")
        for place in (folder, *folder.parents):
            least = min(least, read(place))
            if place == base:
                break
    return least


def _quota_v2(folder: Path) -> float:
    try:
        quota, period = (folder / "cpu.max").read_text().split()[:2]
        return float("inf") if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")


def _quota_v1(folder: Path) -> float:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else float("inf")
    except (OSError, ValueError, ZeroDivisionError):
        return float("inf")


def allowed_cores() -> int:
    """Return the cores that this process may keep busy, at least 1.

    Examples
    --------
    >>> 1 <= allowed_cores() <= os.cpu_count()
    True
    """
    return max(1, int(min(len(affinity(0)), quota())))
