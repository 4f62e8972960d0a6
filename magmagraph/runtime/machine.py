"""What this machine is called: measurements that are kept belong to one."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

from .execute import threads


def processor() -> str:
    """Return the name that the processor gives itself, or its architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return f"{value.strip()}, {platform.machine()}"
    return platform.processor() or platform.machine()


def chip(device: str) -> str:
    """Return the name of the chip that a device is."""
    if device == "cpu":
        return processor()
    from .cuda.device import device_of

    return str(device_of(device).name)


def machine(device: str) -> str:
    """Return the name of a device, and of what its speed depends on."""
    if device != "cpu":
        return chip(device)
    count = threads(device)
    return f"{chip(device)}, {count} thread{'s' if count > 1 else ''}"
