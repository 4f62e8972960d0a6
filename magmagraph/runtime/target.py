"""The targets of devices: facts for passes, also of devices that are not present."""

from __future__ import annotations

from dataclasses import replace

from ..ir.target import Target
from .execute import threads
from .families import FAMILIES

__all__ = ["made_up", "target_of", "with_families"]


def target_of(device: str = "cpu") -> Target:
    """Return the target of a device that works here.

    Examples
    --------
    >>> target_of("cpu").device
    'cpu'
    """
    if device == "cpu":
        return Target(device, FAMILIES, threads(device))
    from .cuda.device import device_of
    from .cuda.target import target_of_device

    return with_families(target_of_device(device_of(device)))


def with_families(target: Target) -> Target:
    """Return a target with the kernel families of this package."""
    return replace(target, families=FAMILIES)


def made_up(device: str = "cpu", *, threads: int = 1, spread: int = 0) -> Target:
    """Return the target of a device that need not be here, to look at its plans.

    Examples
    --------
    >>> made_up("cuda:0", threads=264).spread
    0
    """
    if device == "cpu":
        return Target(device, FAMILIES, threads, spread)
    like = Target.made_up("h200")
    return replace(like, device=device, families=FAMILIES, threads=threads, spread=spread)
