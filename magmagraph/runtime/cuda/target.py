"""The target of a CUDA device that works here."""

from __future__ import annotations

import functools

from ...ir.target import ALIGNMENT, SPREAD, Target
from .device import Device
from .products.library_choice import faster

__all__ = ["target_of_device"]


def target_of_device(device: Device) -> Target:
    """Return a device's facts, and what measures on it; without kernel families."""
    return Target(
        f"cuda:{device.number}", threads=2 * device.multiprocessors, spread=SPREAD,
        alignment=ALIGNMENT, architecture=int(device.architecture),
        multiprocessors=device.multiprocessors, choose=functools.partial(faster, device),
    )
