"""Take a plan to a backend."""

from __future__ import annotations

from ..errors import DeviceError, message
from ..plan import Plan
from .backend import Prepared


def prepare(plan: Plan, device: str = "cpu", budget: float = 60.0) -> Prepared:
    """Return the plan with its kernels built, ready to be bound to sizes.

    Parameters
    ----------
    plan
        A symbolic plan.
    device
        "cpu".
    budget
        Seconds that building kernels may take; the tiled runtime runs what is left over.
    """
    if device != "cpu":
        raise DeviceError(message(f"there is no runtime for device {device!r}", mend="'cpu'"))
    from .numpy.backend import NumpyPrepared

    return NumpyPrepared(plan, budget)


def begin(device: str = "cpu") -> None:
    """Start building what every plan of a device needs, beside the passes; returns at once."""
    from .numpy import warmup

    warmup.begin()


def threads(device: str = "cpu") -> int:
    """Return the threads that a device's runtime uses now; plans are made for as many."""
    from .numpy.threads import get_threads

    return get_threads()
