"""What carries arrays of devices between ranks: NCCL, MPI that takes their addresses, or the host.

It is chosen once for a device and a communicator, by all ranks together: the first that all of them
can use. `MAGMAGRAPH_DEVICE_MESSAGES` names one instead, and is an error where that cannot be used.
"""

from __future__ import annotations

import platform
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ....config import word
from ....errors import CommunicationError, message
from ....ir.communicator import Communicator
from ...comm.claims import Claim, claim, loaded
from ...comm.nccl import NcclRank

if TYPE_CHECKING:
    from ...comm.cuda_aware_mpi import AwareRank

__all__ = ["VARIABLE", "Carriers", "carriers_of", "library"]

VARIABLE = "MAGMAGRAPH_DEVICE_MESSAGES"


class Carriers:
    """What carries arrays of a device between the ranks of a communicator.

    Parameters
    ----------
    device
        This rank's.
    host
        The ranks.
    nccl
        CuPy's binding of NCCL, where that does, in captured graphs.
    aware
        MPI's ranks with devices, where they do.
    reasons
        Why nothing does that would come first, in words.
    """

    def __init__(
        self,
        device: Any,
        host: Communicator,
        nccl: Any,
        aware: AwareRank | None,
        reasons: Sequence[str],
    ) -> None:
        self._device, self._host = device, host
        self._library, self.aware = nccl, aware
        self.captured = nccl is not None
        self.reasons = tuple(reasons)
        self._nccl: NcclRank | None = None

    @property
    def nccl(self) -> NcclRank | None:
        """NCCL's ranks, or None; the first time all ranks ask for them together."""
        if self.captured and self._nccl is None:
            with self._device:
                self._nccl = NcclRank(self._host, self._device.cupy, self._library)
        return self._nccl

    def __str__(self) -> str:
        if self.captured:
            return "NCCL"
        way = "the host" if self.aware is None else "MPI, which takes addresses of devices"
        return f"{way} ({'; '.join(self.reasons)})" if self.reasons else way


# For each communicator of the host, by the number of the device.
_known: weakref.WeakKeyDictionary[Communicator, dict[int, Carriers]] = weakref.WeakKeyDictionary()


def carriers_of(device: Any, ranks: Communicator) -> Carriers | None:
    """Return what carries a device's arrays; None of one rank. All ranks call it together."""
    host = getattr(ranks, "host", ranks)  # of ranks with devices those on the host
    if host.size == 1:
        return None
    carriers = _known.setdefault(host, {})
    if device.number not in carriers:
        carriers[device.number] = _chosen(device, host)
    return carriers[device.number]


def _chosen(device: Any, host: Communicator) -> Carriers:
    setting = word(VARIABLE)
    nccl = library()
    place = platform.node(), device.cupy.cuda.runtime.deviceGetPCIBusId(device.number)
    own = setting, nccl is not None, place, _says(host)
    answers = host.exchange(own, "the choice of what carries arrays of devices")
    words = [theirs for theirs, *_ in answers]
    if len(set(words)) > 1:
        raise CommunicationError(
            message(
                f"{VARIABLE} differs between ranks: "
                + ", ".join(f"{theirs} on {rank}" for rank, theirs in enumerate(words)),
                need="one value on all of them",
            )
        )
    reasons = []
    if setting in ("auto", "nccl"):
        reason = _against_nccl([(there, at) for _, there, at, _ in answers])
        if not reason:
            return Carriers(device, host, nccl, None, ())
        reasons.append(reason)
    aware = None
    if setting in ("auto", "mpi"):
        reason = _against_mpi([theirs for *_, theirs in answers], setting)
        if not reason:
            with device:
                aware, reason = _trial()(host, device.cupy)
        if reason:
            reasons.append(reason)
    if setting in ("nccl", "mpi") and reasons:
        raise CommunicationError(
            message(
                f"{VARIABLE} is {setting}, and that cannot be used: {'; '.join(reasons)}",
                hint=f"{VARIABLE}=auto takes what can",
            )
        )
    return Carriers(device, host, None, aware, reasons)


def _says(host: Communicator) -> Claim:
    """Return MPI's answer about device addresses, if MPI connects the ranks."""
    return claim(loaded()) if host.kind == "MPI" else Claim(False, f"the ranks are {host.kind}")


def _trial() -> Callable[[Communicator, Any], tuple[AwareRank | None, str]]:
    """Return what tries that; it imports MPI."""
    from ...comm.cuda_aware_mpi import tried

    return tried


def _against_nccl(answers: Sequence[tuple[bool, tuple[str, str]]]) -> str:
    """Return why NCCL cannot be used, in words; empty if it can."""
    for rank, (there, _) in enumerate(answers):
        if not there:
            return f"rank {rank} has no NCCL"
    places = [place for _, place in answers]
    for rank, place in enumerate(places):
        first = places.index(place)
        if first != rank:
            return f"NCCL refuses ranks that share a device, as {first} and {rank} do"
    return ""


def _against_mpi(claims: Sequence[Claim], setting: str) -> str:
    """Return why MPI is not tried, in words; empty if it is.

    What says nothing of itself is tried where that is asked for: it may end the process.
    """
    for rank, says in enumerate(claims):
        if says.takes is False or (says.takes is None and setting != "mpi"):
            return f"MPI does not accept device addresses: {says.why}, on rank {rank}"
    return ""


def library() -> Any:
    """Return CuPy's binding of NCCL, or None where it is missing or disabled."""
    return None if word(VARIABLE) in ("mpi", "host") else _binding()


def _binding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where the library is missing
        from cupy.cuda import nccl
    return nccl if nccl.available else None
