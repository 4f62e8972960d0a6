"""The arguments of a step: its compiled function, with addresses and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.steps import bodies_of, shape_of
from ...ir.fallback import BY_NUMPY, IN_TILES, Fallbacks, Refused
from ...ir.locking import shared_lock
from ...ir.plan import Place, Plan, Role, Step, Value
from .fused import Kernels
from .memory import Address, address_of
from .products.choice import Sizes, Way, way_of

__all__ = ["KernelArgs", "Prepared", "StepArgs", "bodies_of", "shape_of"]

REMEMBERED = 16  # sizes of a step, whose ways others may take

# A function's address, its arguments, and those of them that come with calls, each with its slot.
KernelArgs = tuple[int, list[int], list[tuple[int, int]]]


@dataclass
class Prepared:
    """The compiled parts of a plan on this machine, for all sizes.

    Attributes
    ----------
    kernels
        Of its fused steps; None where no compiler works.
    compiled
        The numbers of the steps that have kernels.
    ways
        By the number of a step, how its products run at the sizes that it was bound to.
    fallbacks
        The steps that run in NumPy.
    """

    kernels: Kernels | None = None
    compiled: frozenset[int] = frozenset()
    ways: dict[int, dict[Sizes, Way]] = field(default_factory=dict)
    fallbacks: Fallbacks = field(default_factory=Fallbacks)

    def note(self, number: int, step: Step, refused: Refused) -> None:
        """Note that a step runs in NumPy, and why."""
        taken = IN_TILES if step.role is Role.REGION else BY_NUMPY
        self.fallbacks.note(number, step, taken, refused)


class StepArgs:
    """Build the arguments of a plan's steps.

    Parameters
    ----------
    plan
        A specialized plan.
    prepared
        What it has for all sizes.
    address
        The address of each slot, 0 for those that come with the call.
    keep
        Takes what must live as long as the cells.
    """

    def __init__(
        self, plan: Plan, prepared: Prepared, address: Sequence[int], keep: list[Any]
    ) -> None:
        self.plan = plan
        self.sizes: Mapping[str, int] = plan.sizes or {}
        self.kernels = prepared.kernels
        self.compiled = prepared.compiled
        self.address = address
        self.keep = keep
        self._before = prepared.ways
        self.ways: dict[int, Way] = {}  # how products run, by the number of the step

    def of(self, step: Step, number: int) -> KernelArgs | None:
        """Return function, cells and dynamic cells of a step, or None: it runs in Python.

        Raises
        ------
        Refused
            Its kernel does not take it at these sizes; its array expression has to run.
        """
        build = step.family.cpu
        if build is None or self.kernels is None:
            return None
        cells: KernelArgs | None = build(self, step, number)
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

    def nested(self, step: Step, call: tuple[int, int] | None) -> KernelArgs:
        """Return the cells of a step with bodies, from its function and its table."""
        if call is None:
            raise Refused("a step of its body runs as an array expression", expected=True)
        function, table = call
        values = [*step.outputs, *step.inputs]
        slots = {place: value.slot for place, value in enumerate(values, 1)}
        cells = [table, *(self.address[value.slot] for value in values)]
        return function, cells, self.dynamic(slots)

    def ones(self, count: int, dtype: np.dtype) -> int:
        """Return the address of at least `count` ones, which live as long as the cells."""
        ones = _ones(count, dtype)
        self.keep.append(ones)
        return Address(address_of(ones), ones)


_ones_lock = shared_lock()
_ones_held: dict[np.dtype, np.ndarray] = {}


def _ones(count: int, dtype: np.dtype) -> np.ndarray:
    """Return at least `count` ones, shared by all plans."""
    with _ones_lock:
        ones = _ones_held.get(dtype)
        if ones is None or ones.size < count:
            ones = _ones_held[dtype] = np.ones(max(count, 1024), dtype)
        return ones
