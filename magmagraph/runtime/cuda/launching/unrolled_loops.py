"""Loops with a known number of iterations, as launches: the body's, once for each iteration.

The body is a plan of its own, bound to the sizes of the call, with its own memory. Launches are
data: those of an iteration are the body's, with the addresses of the loop's operands and results in
the places of the body's feeds and results. A carry goes back and forth between two buffers; a row
is where it lies in its stack, unless that place is no multiple of what libraries and wide reads
expect: then it is copied. So a loop is part of the captured graph around it, and nothing of it runs
in Python between iterations.

Loops whose length is found while they run, and those of very many launches, stay array expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir import dims
from ....ir.fallback import Refused
from ....ir.graph import Node
from ....ir.interpret import body_function
from ....ir.plan import Step
from ....ir.ranges import Range, Touched
from ....ops.control.loop import LOOP
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from .calls import LibraryCall, TimedCall
from .launch_units import Unit
from .moves import ALIGNMENT, Move
from .moves import moved as moves_of

__all__ = ["MOST", "is_counted", "moved", "turns"]

MOST = 8192  # launches of a loop


def moved(units: Sequence[Unit], moves: Sequence[tuple[int, int, int]]) -> list[Unit]:
    """Return launches with some memory elsewhere; each move is a start, an end and a new start."""
    pairs = moves_of([unit.launch for unit in units], [unit.touched for unit in units], moves)
    return [Unit(*pair) for pair in zip(*pairs, strict=True)]


def turns(memory: PlanMemory, step: Step) -> list[Unit]:
    """Return the launches of a loop.

    Raises
    ------
    Refused
        Its array expression has to run.
    """
    attrs = step.node.attrs
    count = _count(memory, step)
    if count is None or attrs["flag"]:
        raise Refused("its number of iterations depends on its values", expected=True)
    function = body_function(attrs["body"]) if count else None
    if function is None or function.device == "cpu":
        raise Refused("it has no iterations, or its body runs on the CPU", expected=True)
    bound = function.bound_to(memory.sizes)
    segment = bound.unchecked()
    if segment is None:
        raise Refused("a step of its body runs as an array expression", expected=True)
    if len(segment.launches) * count > MOST:
        raise Refused(f"its iterations are more than {MOST} launches", expected=True)
    if any(isinstance(launch, TimedCall) for launch in segment.launches):
        # What an iteration sends would not be known.
        raise Refused("its iterations send messages in some calls only", expected=True)
    if not all(hasattr(launch, "moved") for launch in segment.launches):
        raise Refused("a launch of its body is bound to its addresses", expected=True)
    memory.keep.append(bound)
    memory.failing += bound.memory.failing
    launches, touched, _ = segment.units()
    units = [Unit(*pair) for pair in zip(launches, touched, strict=True)]
    loop = _Loop(memory, step, bound, count)
    unrolled: list[Unit] = []
    for number in range(count):
        before, moves, after = loop.iteration(number)
        unrolled += [*before, *moved(units, moves), *after]
    return unrolled


def is_counted(node: Node) -> bool:
    """Return whether a node is a loop whose number of iterations is known when it begins."""
    attrs = node.attrs
    counted = node.op is LOOP and not attrs["flag"]
    return counted and bool(attrs["stacks"] or attrs["length"] is not None)


def _count(memory: PlanMemory, step: Step) -> int | None:
    """Return the number of iterations, or None where it is not known."""
    attrs = step.node.attrs
    if attrs["stacks"]:
        return int(step.inputs[attrs["carries"]].type.shape[0])
    length = attrs["length"]
    return None if length is None else int(dims.evaluate(length, memory.sizes))


class _Loop:
    """Where everything is in each iteration."""

    def __init__(self, memory: PlanMemory, step: Step, bound: Any, count: int) -> None:
        self.memory, self.step, self.count = memory, step, count
        self.reverse = bool(step.node.attrs["reverse"])
        self.carries: int = step.node.attrs["carries"]
        self.edge: int = self.carries + step.node.attrs["stacks"]
        self.feeds: list[Range] = bound.feed_ranges()
        fetches = [(bound.memory.at(v), int(v.type.bytes)) for v in bound.plan.fetches]
        self.results = [(start, start + size) for start, size in fetches]
        self.buffers = [
            [memory.more(max(1, end - start)) for _ in range(2)] if count > 1 else []
            for start, end in self.results[: self.carries]
        ]

    def iteration(self, number: int) -> tuple[list[Unit], list[Move], list[Unit]]:
        """Return the copies before an iteration, its moves, and the copies after it."""
        before: list[Unit] = []
        after: list[Unit] = []
        moves: list[Move] = []
        row = self.count - 1 - number if self.reverse else number
        for place, (start, end) in enumerate(self.feeds):
            if start == 0 or start == end:
                continue  # nobody reads it
            value = self.step.inputs[place]
            if place < self.carries:
                moves.append(Move(start, end, self._carry(place, number)))
            elif place >= self.edge:
                moves.append(Move(start, end, self.memory.at(value)))
            elif self._is_even(end - start):
                moves.append(Move(start, end, self.memory.at(value) + row * (end - start)))
            else:
                there = self.memory.at(value) + row * (end - start)
                before.append(self._copy(start, there, end - start))
        for place, (start, end) in enumerate(self.results):
            if start == end:
                continue
            there = self.memory.at(self.step.outputs[place])
            if place < self.carries:
                moves.append(Move(start, end, self._carry(place, number + 1)))
            elif self._is_even(end - start):
                moves.append(Move(start, end, there + row * (end - start)))
            else:
                after.append(self._copy(there + row * (end - start), start, end - start))
        return before, moves, after

    def _carry(self, place: int, number: int) -> int:
        """Return where a carry is after so many iterations."""
        if number == 0:
            return self.memory.at(self.step.inputs[place])
        if number == self.count:
            return self.memory.at(self.step.outputs[place])
        return self.buffers[place][number % 2]

    @staticmethod
    def _is_even(size: int) -> bool:
        return size % ALIGNMENT == 0

    def _copy(self, target: int, source: int, size: int) -> Unit:
        runtime = self.memory.device.cupy.cuda.runtime

        def copy(stream: Any, to: int, start: int) -> None:
            runtime.memcpyAsync(to, start, size, DEVICE_TO_DEVICE, stream.ptr)

        return Unit(
            LibraryCall(copy, (target, source)),
            Touched(((source, source + size),), ((target, target + size),)),
        )
