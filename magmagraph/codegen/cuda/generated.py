"""The kernels of region bodies, generated once for each structure, or why there are none."""

from __future__ import annotations

from functools import lru_cache

from ...errors import PlanError, message
from ...ir.fallback import Refused
from ...ir.graph import Graph, structure
from ..region.analysis import Refusal, analyze_for_gpu
from .kernels import RegionKernels

__all__ = ["kernels_of", "refusal_of", "words"]


@lru_cache(maxsize=4096)
def kernels_of(body: Graph) -> RegionKernels | None:
    """Return the kernels of a body, or None where its array expressions have to run.

    Bodies of one structure share them. `refusal_of` says why there are none.
    """
    kernels = _made(body)
    return None if isinstance(kernels, str) else kernels


def refusal_of(body: Graph) -> str:
    """Return why a body has no kernels; empty where it has."""
    kernels = _made(body)
    return kernels if isinstance(kernels, str) else ""


def _made(body: Graph) -> RegionKernels | str:
    key = structure(body)
    entry = _known.get(key)  # a tuple: another thread may empty the table meanwhile
    if entry is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        entry = _known[key] = (_generated(body),)
    return entry[0]


_MOST_KNOWN = 4096
_known: dict[object, tuple[RegionKernels | str]] = {}  # kernels, or why there are none


def _generated(body: Graph) -> RegionKernels | str:
    region = analyze_for_gpu(body)
    if isinstance(region, Refusal):
        raise PlanError(message(f"a fused body is not one region: {region.reason}"))
    try:
        return RegionKernels(region)
    except Refused as refused:
        return refused.reason


def words(kernels: RegionKernels) -> int:
    """Return how many arguments the kernels of a region take."""
    body = kernels.region.body
    return len(body.inputs) + len(body.outputs) + 1 + len(kernels.code.numbers)
