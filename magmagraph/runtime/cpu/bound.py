"""A plan bound to sizes: memory laid out, steps made one call where they are compiled."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import MagmagraphError, NonFiniteError, message
from ...ir.communicator import Communicator, Pending
from ...ir.fallback import Refused
from ...ir.graph import Node
from ...ir.interpret import PRODUCTS, bind_attributes
from ...ir.op import Kind
from ...ir.plan import Place, Plan, Role, Step
from ...ir.ranks import current
from ..rank_agreement import run_before, says
from .array_steps import ArraySteps
from .kernel_args import Prepared, StepArgs
from .memory import Address
from .products.blas import find_blas
from .results import ResultPool
from .staged_updates import Landing, called, commit_at_once, with_updates_aside
from .support import Program, address_of, aligned_empty, support
from .threads import get_threads


class _Block:
    """Steps that follow one another and are all compiled: one call."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, list[int]]] = []
        self.dynamic: list[tuple[int, int, int]] = []  # (step, cell, slot)
        self.numbers: list[int] = []  # positions of its steps in the plan

    def may_fail(self) -> bool:
        """Return whether a step may stop the call before its end."""
        return not support().failing.isdisjoint(function for function, _ in self.steps)


class NumpyBound:
    """A plan bound to sizes."""

    def __init__(self, prepared: Prepared, plan: Plan) -> None:
        self.plan = plan
        self.prepared = prepared
        self.sizes: Mapping[str, int] = plan.sizes or {}
        self._feeds = [slot.index for slot in plan.slots if slot.place is Place.FEED]
        self._results = [fetch.slot for fetch in plan.fetches]
        self._pools = [
            ResultPool(tuple(map(int, fetch.type.shape)), fetch.type.dtype)
            for fetch in plan.fetches
        ]
        self._states = [slot.owner for slot in plan.slots if slot.place is Place.STATE]
        self._written = self._written_states()
        self._under_way: dict[Node, Pending] = {}
        self._awaited = {step.node for step in plan.steps if step.role is Role.WAIT}
        self._before: list[Any] = []
        self._after: list[Any] = []
        alone = (step for step in plan.steps if step.role is not Role.REGION)
        if any(step.node.op.kind in (*PRODUCTS, Kind.LINALG) for step in alone):
            blas = find_blas()
            if blas is not None:
                blas.reserve(get_threads())
        self._landing: Landing | None = None
        if prepared.kernels is not None:
            self._lay_out(plan)
        if prepared.kernels is None or any(not isinstance(s, _Compiled) for s in self._after):
            aside, places = with_updates_aside(plan)
            self._lay_out(aside)
            self._before += self._after
            self._after = []
            pairs = places.items()
            self._landing = Landing([(self._base[old], self._base[new]) for old, new in pairs])
        before, after = self._before, self._after
        self._commit = [segment.run for segment in after]
        self._python = any(not isinstance(s, _Compiled) for s in (*before, *after))
        self.ranks: Communicator | None = None
        self.meet: Callable[[], object] | None = None
        self._speaks_from = next((i for i, s in enumerate(before) if says(s)), 0)
        single = [*before, *after]
        self._whole: Callable[[], object] | None = None
        self.may_fail = any(isinstance(s, _Compiled) and s.program.may_fail for s in single)
        if len(single) == 1 and not self._python and not plan.guard:
            self._whole = single[0].run
        self._shortly = self._short_run() if self.is_program else None

    # ------------------------------------------------------------------ binding

    def _lay_out(self, plan: Plan) -> None:
        """Give every slot of a plan its memory, and every step what runs it."""
        self._keep: list[Any] = [self.prepared.kernels]
        self._arena = aligned_empty(max(1, plan.arena or 0))
        self._base = [self._memory_of(slot) for slot in plan.slots]
        self._address = [
            0 if array is None else Address(address_of(array), slot)
            for array, slot in zip(self._base, plan.slots, strict=True)
        ]
        self._dynamic: dict[int, np.ndarray] = {}
        self._steps = ArraySteps(plan, self._base, self._dynamic)
        self._feed_cells: list[list[tuple[Any, int]]] = [[] for _ in self._feeds]
        self._result_cells: list[list[tuple[Any, int]]] = [[] for _ in self._results]
        self._before, self._after = self._segments(plan)

    def _memory_of(self, slot: Any) -> np.ndarray | None:
        """Return the bytes of a slot, or None where they come with the call."""
        if slot.place is Place.ARENA:
            start = slot.offset
            return self._arena[start : start + slot.size]
        if slot.place is Place.STATE:
            data: np.ndarray = slot.owner.data
            return data
        if slot.place is Place.CONSTANT:
            attrs = slot.owner.attrs
            value = attrs.get("value")
            if value is None:  # an extent, or a rank's number
                leaf = slot.owner.op
                value = leaf.evaluate(np, **bind_attributes(attrs, self.sizes))
            array = np.ascontiguousarray(value).reshape(np.shape(value))
            self._keep.append(array)
            return array
        return None

    def _written_states(self) -> list[Any]:
        states: dict[int, Any] = {}
        for step in self.plan.steps:
            for value in step.outputs:
                slot = self.plan.slots[value.slot]
                if slot.place is Place.STATE:
                    states[value.slot] = slot.owner
        return list(states.values())

    def _segments(self, plan: Plan) -> tuple[list[Any], list[Any]]:
        """Return the segments before and after the commit point."""
        parts: tuple[list[Any], list[Any]] = ([], [])
        step_args = StepArgs(plan, self.prepared, self._address, self._keep)
        self.ways = step_args.ways
        for part, numbers in (
            (parts[0], range(plan.commit)),
            (parts[1], range(plan.commit, len(plan.steps))),
        ):
            block: _Block | None = None
            for number in numbers:
                step = plan.steps[number]
                try:
                    cells = step_args.of(step, number)
                except Refused as refused:
                    self.prepared.note(number, step, refused)
                    cells = None
                if cells is None:
                    block = None
                    part.append(_Interpreted(self._python_step(step), step.node, number))
                    continue
                if block is None:
                    block = _Block()
                    part.append(block)
                function, values, dynamic = cells
                for cell, slot in dynamic:
                    block.dynamic.append((len(block.steps), cell, slot))
                block.steps.append((function, values))
                block.numbers.append(number)
        # Where nothing can fail, all steps are one call.
        if len(parts[0]) == 1 and len(parts[1]) == 1 and not plan.guard:
            first, second = parts[0][0], parts[1][0]
            if isinstance(first, _Block) and isinstance(second, _Block) and not first.may_fail():
                shift = len(first.steps)
                second.dynamic = [
                    *first.dynamic,
                    *((s + shift, c, slot) for s, c, slot in second.dynamic),
                ]
                second.steps = [*first.steps, *second.steps]
                second.numbers = [*first.numbers, *second.numbers]
                parts[0].clear()
        before, after = (
            [self._compile(s) if isinstance(s, _Block) else s for s in part] for part in parts
        )
        return before, after

    def _compile(self, block: _Block) -> _Compiled:
        commit = bisect.bisect_left(block.numbers, self.plan.commit)
        writes = self._written and commit < len(block.numbers)
        program = Program(block.steps, keep=self._keep, commit=commit if writes else None)
        feeds = {slot: i for i, slot in enumerate(self._feeds)}
        results = {slot: i for i, slot in enumerate(self._results)}
        for step, cell, slot in block.dynamic:
            place = (program.cells, program.slot(step, cell))
            if slot in feeds:
                self._feed_cells[feeds[slot]].append(place)
            else:
                self._result_cells[results[slot]].append(place)
        return _Compiled(
            program, block.numbers, functools.partial(_run_in_python, self._steps, self.plan)
        )

    def _short_run(self) -> Callable[[Sequence[np.ndarray]], list[Any] | None]:
        """Return `run` of a program: addresses into its cells, and the call.

        Half of what a call on a few thousand elements takes is spent here and in its caller. It
        returns None where a step stopped the program.
        """
        (segment,) = (*self._before, *self._after)
        cells, whole, count = segment.program.cells, segment.program.run, len(segment.program)
        read = [
            (i, tuple(position for _, position in places))
            for i, places in enumerate(self._feed_cells)
            if places
        ]
        written = [
            (pool.take, tuple(position for _, position in places))
            for pool, places in zip(self._pools, self._result_cells, strict=True)
        ]

        def run(feeds: Sequence[np.ndarray]) -> list[Any] | None:
            for i, positions in read:
                address = address_of(feeds[i])
                for position in positions:
                    cells[position] = address
            results = []
            for take, positions in written:
                array, address = take()
                results.append(array)
                for position in positions:
                    cells[position] = address
            return results if whole() == count else None

        return run

    # ------------------------------------------------------------------ as the body of a step

    @property
    def is_program(self) -> bool:
        """Whether all its steps are one call into C, with nothing to check or to write after."""
        return self._whole is not None and not self._states

    def program_steps(self) -> tuple[int, int]:
        """Return the address of the list of steps, and their number."""
        (segment,) = (*self._before, *self._after)
        return segment.program.address, len(segment.program)

    def feed_addresses(self) -> list[list[int]]:
        """Return for each feed the addresses of the cells that hold its own."""
        return self._cell_addresses(self._feed_cells)

    def result_addresses(self) -> list[list[int]]:
        """Return for each result the addresses of the cells that hold its own."""
        return self._cell_addresses(self._result_cells)

    # ------------------------------------------------------------------ to be written down

    def programs(self) -> tuple[list[tuple[Program, list[int]]], list[tuple[Program, list[int]]]]:
        """Return the programs before and after the commit point, with the numbers of their steps.

        Steps that run in Python are in none.
        """
        before, after = (
            [(s.program, s.numbers) for s in part if isinstance(s, _Compiled)]
            for part in (self._before, self._after)
        )
        return before, after

    def held(self, slot: int) -> np.ndarray | None:
        """Return the memory of a slot; None where it comes with the call."""
        return self._base[slot]

    @staticmethod
    def _cell_addresses(places: Sequence[Sequence[tuple[Any, int]]]) -> list[list[int]]:
        return [
            [ctypes.addressof(cells) + 8 * position for cells, position in each] for each in places
        ]

    # ------------------------------------------------------------------ steps in Python

    def _python_step(self, step: Step) -> Callable[[], None]:
        """Return what runs a step."""
        under_way = self._under_way  # not all that holds the step: memory is free without a cycle
        if step.role is Role.WAIT:
            return lambda: under_way.pop(step.node).wait()
        work = self._steps.of(step)
        if step.role is not Role.COLLECTIVE or "tag" in step.node.attrs:
            return work
        awaited = step.node in self._awaited

        def start() -> None:
            pending = current().start(work)  # in the order of all: behind what is under way
            if awaited:
                under_way[step.node] = pending
            else:
                pending.wait()

        return start

    # ------------------------------------------------------------------ running

    def run(self, feeds: Sequence[np.ndarray], out: Sequence[Any] | None = None) -> list[Any]:
        """Run every step once; results are the caller's."""
        if out is None and self._shortly is not None:
            short = self._shortly(feeds)
            if short is not None:
                return short
        for state in self._states:
            if state.newest is not None:
                if self.meet is not None:
                    self.meet()  # other ranks may hold parts of it
                _ = state.data  # what another device wrote comes here
        for places, array in zip(self._feed_cells, feeds, strict=True):
            if places:
                address = address_of(array)
                for cells, position in places:
                    cells[position] = address
        results: list[np.ndarray] = []
        straight = out is not None and self._takes(out, feeds)
        for i, (places, pool) in enumerate(zip(self._result_cells, self._pools, strict=True)):
            if out is not None and straight:
                array, address = out[i], address_of(out[i])
            else:
                array, address = pool.take()
            results.append(array)
            for cells, position in places:
                cells[position] = address
        if self._whole is None or self.may_fail:
            self._run_segments(feeds, results)
        elif self._written:
            commit_at_once(called([self._whole]), self._written)
        else:
            self._whole()
        if out is not None and not straight:
            for target, array in zip(out, results, strict=True):
                np.copyto(target, array, casting="same_kind")
            return list(out)
        return results

    def _takes(self, out: Sequence[Any], feeds: Sequence[np.ndarray]) -> bool:
        """Return whether kernels may write straight into the caller's arrays."""
        if self.plan.guard:
            return False  # what is not finite must not reach them
        arrays = [*feeds, *(state.data for state in self._states)]
        spans = [(address_of(array), array.nbytes) for array in arrays]
        for target, fetch in zip(out, self.plan.fetches, strict=True):
            if target.dtype != fetch.type.dtype or not target.flags.carray:
                return False
            begin, size = address_of(target), target.nbytes
            if any(begin < at + count and at < begin + size for at, count in spans):
                return False
            spans.append((begin, size))
        return True

    def _run_segments(self, feeds: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        if self._python or self.plan.guard or self.may_fail:
            self._dynamic.update(zip(self._feeds, feeds, strict=True))
            self._dynamic.update(zip(self._results, results, strict=True))
        try:
            check = self._check_finite if self.plan.guard else None
            run_before(self._before, check, self.ranks, self.meet, self._speaks_from)
            landing = self._landing
            calls = called(self._commit) if landing is None else landing.calls()
            commit_at_once(calls, self._written)
        finally:
            self._end_collectives()
            self._dynamic.clear()

    def _end_collectives(self) -> None:
        """Let collectives end that a failed run has left under way: they use its memory."""
        while self._under_way:
            _, pending = self._under_way.popitem()
            with contextlib.suppress(MagmagraphError):
                pending.wait()

    def _check_finite(self) -> None:
        """Raise unless every result and every new value is finite; nothing is written yet."""
        late = self.plan.steps[self.plan.commit :]
        for step in late:
            target = self.plan.slots[step.outputs[0].slot]
            what = (
                f"the new value of variable '{target.owner.name}'"
                if target.place is Place.STATE
                else f"output {target.owner}"
            )
            _raise_unless_finite(self._steps.view(step.inputs[0]), what)
        written = {step.outputs[0].slot for step in late}
        for i, fetch in enumerate(self.plan.fetches):
            if fetch.slot not in written:
                _raise_unless_finite(self._steps.view(fetch), f"output {i}")

    def run_timed(self, feeds: Sequence[np.ndarray]) -> list[int]:
        """Run once, put every variable back, and return the nanoseconds of each step."""
        kept = [(state, state.data.copy()) for state in self._written]
        taken = [0] * len(self.plan.steps)
        try:
            self.run(feeds)
            for state, value in kept:
                state.data[...] = value
            self._dynamic.update(zip(self._feeds, feeds, strict=True))
            results = [pool.take()[0] for pool in self._pools]
            self._dynamic.update(zip(self._results, results, strict=True))
            for places, array in zip(self._result_cells, results, strict=True):
                for cells, position in places:
                    cells[position] = address_of(array)
            for segment in (*self._before, *self._after):
                segment.time(taken)
        finally:
            self._end_collectives()
            self._dynamic.clear()
            for state, value in kept:
                state.data[...] = value
        return taken

    def wait(self) -> None:
        """Return at once: a run is done when it returns."""


class _Compiled:
    """A segment that is one call into C.

    Parameters
    ----------
    program
        Its steps.
    numbers
        Their positions in the plan.
    instead
        Runs a step of the plan in Python, where its compiled function stopped the program.
    """

    def __init__(
        self, program: Program, numbers: list[int], instead: Callable[[int], None]
    ) -> None:
        self.program = program
        self.numbers = numbers
        self._instead = instead
        self.run: Callable[[], object] = self._checked if program.may_fail else program.run

    def _checked(self) -> None:
        ran = self.program.run()
        while ran < len(self.program):
            self._instead(self.numbers[ran])
            ran = self.program.run_from(ran + 1)

    def time(self, taken: list[int]) -> None:
        for number, nanoseconds in zip(self.numbers, self.program.run_timed(), strict=True):
            taken[number] = nanoseconds


def _run_in_python(steps: ArraySteps, plan: Plan, number: int) -> None:
    """Run a step by its array expression, which raises what its compiled function cannot say."""
    step = plan.steps[number]
    _Interpreted(steps.of(step), step.node, number).run()


class _Interpreted:
    """A step that runs in Python."""

    def __init__(self, run: Callable[[], None], node: Node, number: int) -> None:
        self._run = run
        self.node = node
        self.number = number

    def run(self) -> None:
        try:
            self._run()
        except MagmagraphError as error:
            if error.node is None:  # else a node of the step's body
                error.node = self.node
            raise

    def time(self, taken: list[int]) -> None:
        began = time.perf_counter_ns()
        self.run()
        taken[self.number] = time.perf_counter_ns() - began


def _raise_unless_finite(array: np.ndarray, what: str) -> None:
    if array.dtype.kind in "iub":
        return
    wide = array if array.dtype.kind == "c" else array.astype(np.float64)
    if not np.isfinite(wide).all():
        bad = int(np.count_nonzero(~np.isfinite(wide)))
        raise NonFiniteError(
            message(
                f"{what} holds {bad} values that are not finite, and nan='raise' is set",
                need="finite values; no variable was changed",
                hint="mg.debug.blame(f, ...) names the node that made the first",
            )
        )
