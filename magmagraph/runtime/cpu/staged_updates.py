"""Updates that Python computes: they wait in the arena until all are there, and land in one call.

Between two of Python's instructions anything may raise (a handler of a signal, another thread by
`PyThreadState_SetAsyncExc`, a lack of memory) or look (a handler that saves the variables). So a
plan with steps in Python writes no variable before all new values are known. What copies them calls
functions in C alone, with no instruction of Python in between.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from operator import attrgetter, call
from typing import Any

from ...ir.plan import Place, Plan, Slot, Value
from .memory import address_of

__all__ = ["Landing", "commit_at_once", "with_updates_aside"]

# Keeps Python's lock: neither another thread nor a fork sees some of the copies.
_copy: Any = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)


def with_updates_aside(plan: Plan, alignment: int = 64) -> tuple[Plan, dict[int, int]]:
    """Return a plan whose steps after the commit point write no variable, for the CPU.

    Parameters
    ----------
    plan
        A plan bound to sizes.
    alignment
        What places in the arena are multiples of.

    Returns
    -------
    Plan
        With the same steps. New values are in slots of the arena, which later steps read.
    dict
        The slot of each new value, by the slot of its variable.
    """
    arena, slots, steps = plan.arena or 0, [*plan.slots], [*plan.steps]
    places: dict[int, int] = {}

    def moved(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(replace(v, slot=places.get(v.slot, v.slot)) for v in values)

    for number, step in enumerate(plan.steps[plan.commit :], plan.commit):
        inputs = moved(step.inputs)  # a value that this step replaces is the variable's own
        for value in step.outputs:
            slot = slots[value.slot]
            if slot.place is Place.STATE and slot.index not in places:
                offset = -(-arena // alignment) * alignment
                places[slot.index] = len(slots)
                slots.append(Slot(len(slots), Place.ARENA, slot.size, offset=offset))
                arena = offset + int(value.type.bytes)
        steps[number] = replace(step, inputs=inputs, outputs=moved(step.outputs))
    return replace(plan, steps=tuple(steps), slots=tuple(slots), arena=arena), places


class Landing:
    """Copies new values into their variables.

    Parameters
    ----------
    pairs
        Arrays of the same number of bytes, both C-contiguous: the variable's, and the new value.
    """

    def __init__(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        self._keep = pairs
        self._copies = (
            [address_of(target) for target, _ in pairs],
            [address_of(source) for _, source in pairs],
            [target.nbytes for target, _ in pairs],
        )

    def calls(self) -> Iterable[Any]:
        """Return an iterator that copies one variable at each step."""
        return map(_copy, *self._copies)


def commit_at_once(calls: Iterable[Any], states: Sequence[Any]) -> None:
    """Go through an iterator of C, and count a write of each state, with no instruction between.

    Parameters
    ----------
    calls
        Calls functions in C at its steps.
    states
        Each has an attribute `version`, which is increased by 1.
    """
    increased = map((1).__add__, map(attrgetter("version"), states))
    deque(chain(calls, map(setattr, states, repeat("version"), increased)), maxlen=0)


def called(functions: Iterable[Callable[[], object]]) -> Iterable[object]:
    """Return an iterator that calls one function in C at each step."""
    return map(call, functions)
