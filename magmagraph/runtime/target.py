"""The targets of devices: facts for passes, also of devices that are not present."""

from __future__ import annotations

from ..ir.target import Target
from .execute import arena_layout, threads
from .families import FAMILIES

__all__ = ["made_up", "target_of"]


def target_of(device: str = "cpu") -> Target:
    """Return the target of a device that works here.

    Examples
    --------
    >>> target_of("cpu").device
    'cpu'
    """
    return Target(device, FAMILIES, threads(device), arena_layout(device)[1])


def made_up(device: str = "cpu", *, threads: int = 1, spread: int = 0) -> Target:
    """Return the target of a device that need not be here, to look at its plans.

    Examples
    --------
    >>> made_up("cuda:0", threads=264).spread
    0
    """
    return Target(device, FAMILIES, threads, spread)
