"""The cells of a step: which compiled function runs it, on which addresses and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...locking import shared_lock
from ...plan import Place, Plan, Step, Value
from ..steps import bodies_of, shape_of
from .memory import address_of
from .products.choice import Sizes, Way, way_of

__all__ = ["Cells", "StepCells", "bodies_of", "shape_of"]

REMEMBERED = 16  # sizes of a step, whose ways others may take

# A function's address, its arguments, and those of them that come with calls, each with its slot.
Cells = tuple[int, list[int], list[tuple[int, int]]]

if TYPE_CHECKING:
    from .backend import NumpyPrepared


class StepCells:
    """Makes the cells of a plan's steps.

    Parameters
    ----------
    plan
        A specialized plan.
    prepared
        Its kernels.
    address
        The address of each slot, 0 for those that come with the call.
    keep
        Takes what must live as long as the cells.
    """

    def __init__(
        self, plan: Plan, prepared: NumpyPrepared, address: Sequence[int], keep: list[Any]
    ) -> None:
        self.plan = plan
        self.sizes: Mapping[str, int] = plan.sizes or {}
        self.kernels = prepared.kernels
        self.compiled = prepared.compiled
        self.address = address
        self.keep = keep
        self._before = prepared.ways
        self.ways: dict[int, Way] = {}  # how products run, by the number of the step

    def of(self, step: Step, number: int) -> Cells | None:
        """Return function, cells and dynamic cells of a step, or None: it runs in Python."""
        build = step.family.cpu
        if build is None or self.kernels is None:
            return None
        cells: Cells | None = build(self, step, number)
        return cells

    # ------------------------------------------------------------------ for the families' builders

    def at(self, value: Value | None) -> int:
        """Return the address of a value; 0 where there is none, or it comes with the call."""
        return 0 if value is None else self.address[value.slot]

    def dynamic(self, slots: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return those of some cells, each with its slot, whose address comes with the call."""
        moving = (Place.FEED, Place.RESULT)
        return [
            (cell, slot) for cell, slot in slots.items() if self.plan.slots[slot].place in moving
        ]

    def way(self, number: int, sizes: Sizes) -> Way:
        """Return how a product of some sizes runs: as one before, or measured now."""
        before = self._before.setdefault(number, {})
        way = way_of(sizes, [*before.items()], deterministic=self.plan.deterministic)
        self.ways[number] = way
        if len(before) < REMEMBERED:
            before[sizes] = way
        return way

    def nested(self, step: Step, call: tuple[int, int] | None) -> Cells | None:
        """Return the cells of a step with bodies, from its function and its table."""
        if call is None:
            return None
        function, table = call
        values = [*step.outputs, *step.inputs]
        slots = {place: value.slot for place, value in enumerate(values, 1)}
        cells = [table, *(self.address[value.slot] for value in values)]
        return function, cells, self.dynamic(slots)

    def ones(self, count: int, dtype: np.dtype) -> int:
        """Return the address of at least `count` ones, which live as long as the cells."""
        ones = _ones(count, dtype)
        self.keep.append(ones)
        return address_of(ones)


_ones_lock = shared_lock()
_ones_held: dict[np.dtype, np.ndarray] = {}


def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    """Return at least `count` ones, shared by all plans."""
    with _ones_lock:
        held = _ones_held.get(dtype)
        if held is None or held.size < count:
            held = _ones_held[dtype] = np.ones(max(count, 1024), dtype)
        return held
