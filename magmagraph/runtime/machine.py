"""What this machine is called: measurements that are kept belong to one."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

from .execute import threads

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


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


def caches(device: str) -> tuple[tuple[str, int, int], ...]:
    """Return a device's caches, the nearest first: name, bytes of one, and how many take part.

    Empty where the system says nothing of them. Of a GPU, what all kernels share.
    """
    if device != "cpu":
        from .cuda.device import device_of

        held = device_of(device).cache
        return (("L2", held, 1),) if held else ()
    count = threads(device)
    levels = {}
    for folder in sorted(CACHES.glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (folder / "type").read_text().strip() != "Instruction":
                name = f"L{int((folder / 'level').read_text())}"
                size = (folder / "size").read_text().strip()
                sharing = _numbers((folder / "shared_cpu_list").read_text())
                held = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
                levels[name] = (name, held, -(-count // sharing))
    return tuple(levels[name] for name in sorted(levels))


def _numbers(text: str) -> int:
    """Return how many numbers a list such as ``0-3,8`` has."""
    pairs = (part.split("-") for part in text.strip().split(","))
    return sum(int(pair[-1]) - int(pair[0]) + 1 for pair in pairs)


def machine(device: str) -> str:
    """Return the name of a device, and of what its speed depends on."""
    if device != "cpu":
        return chip(device)
    count = threads(device)
    return f"{chip(device)}, {count} thread{'s' if count > 1 else ''}"
