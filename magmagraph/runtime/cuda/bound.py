"""A plan bound to sizes on a CUDA device: its segments, feeds and results."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...codegen.cuda.kernels import RegionKernels
from ...codegen.steps import shape_of
from ...errors import DeviceError, NonFiniteError, message
from ...ir import dims
from ...ir.communicator import Communicator
from ...ir.fallback import BY_CUPY, BY_MPI, NO_ELEMENTS, NO_FAMILY, ON_HOST, Fallbacks, Refused
from ...ir.interpret import Body, apply, body_compiler, compiled_bodies
from ...ir.op import Effect, Kind, Op
from ...ir.plan import Place, Plan, Step
from ...ir.ranges import Range
from ...ir.ranks import using
from ...ir.target import Target
from ...passes.lowering.stream import stream
from ...passes.report import Record
from ..rank_agreement import run_before, says
from .device import Device
from .kernels.fused import Modules
from .launching.calls import TimedCall
from .launching.launch_units import Unit
from .launching.launches import StepLaunches
from .launching.message_nodes import speaks
from .launching.moves import ALIGNMENT
from .launching.segments import Interpreted, Segment, lane_of, placed, queued
from .memory import (
    DEVICE_TO_DEVICE,
    HOST_TO_DEVICE,
    PlanMemory,
    VariableCopy,
    copy_of,
    upload,
)
from .namespace import array_namespace, refused_by_cupy, refusing

if TYPE_CHECKING:
    from ...ir.graph import Node
    from ...ir.values.state import State
    from ..comm.cuda_aware_mpi import AwareRank
    from .launching.call_counters import Counted
    from .launching.carriers import Carriers
    from .launching.loops import Loop, Rows
    from .launching.messages import Lines

__all__ = ["CudaBound", "Prepared"]

PER_COPY = 6.0  # microseconds in which the host queues a copy, and the device begins it
COPIED = 1.2e6  # bytes that a device copies in a microsecond


@dataclass
class Prepared:
    """The compiled parts of a plan on a device, for all sizes.

    Attributes
    ----------
    device, modules
        Where it runs, and the kernels that are loaded there.
    target
        The device's facts, as passes have them.
    kernels
        Of its fused steps; they are compiled when sizes say which are launched.
    carriers, lines
        What its collectives and its messages between ranks go by.
    on_host
        Operations that run on the host: those that CuPy was found not to have, that show values to
        people, or send them where the library of the devices does not.
    fallbacks
        The steps that run as array expressions.
    """

    device: Device
    modules: Modules
    target: Target
    kernels: list[RegionKernels]
    carriers: Carriers | None
    lines: Lines
    on_host: set[Op]
    fallbacks: Fallbacks


Places = tuple[int, ...]


class _Callers:
    """The feeds and results that launches can use where the caller has them.

    Parameters
    ----------
    feeds, results
        The memory of each that can, by its position.
    segments
        What launches the steps.
    alone
        Whether a call has nothing to do but to launch generated kernels on the caller's memory.
    """

    def __init__(
        self,
        feeds: Mapping[int, Range],
        results: Mapping[int, Range],
        segments: Sequence[Segment],
        alone: bool,
    ) -> None:
        self.feeds, self.results, self.segments, self.alone = feeds, results, segments, alone
        self.ranges = (*feeds.values(), *results.values())
        self.starts = {start for start, _ in self.ranges}

    @staticmethod
    def cost(span: Range) -> float:
        """Return the microseconds that a copy of some memory takes."""
        return PER_COPY + (span[1] - span[0]) / COPIED


class _PlacedSegment:
    """A segment whose feeds and results are the caller's arrays."""

    def __init__(
        self, segment: Segment, places: Places, ranges: Sequence[Range], stream: Any
    ) -> None:
        self.segment, self.places, self.ranges, self.stream = segment, places, ranges, stream

    def run(self) -> None:
        """Launch the steps."""
        self.segment.run_at(self.places, self.ranges, self.stream)


class CudaBound:
    """A plan bound to sizes.

    Parameters
    ----------
    prepared
        What the symbolic plan has on the device.
    plan
        Specialized: every size is known.
    """

    def __init__(self, prepared: Prepared, plan: Plan) -> None:
        self.plan = plan
        self.prepared = prepared
        self.placing = Record("stream", of_steps=True)  # of the pass that places steps
        self.device = prepared.device
        self.stream = self.device.stream
        cupy = self.device.cupy
        self._written: list[tuple[State, VariableCopy]] = []
        with self._reported(), self.device:
            self.memory = PlanMemory(self.device, plan)
            halves = (0, plan.commit), (plan.commit, len(plan.steps))
            self._make = StepLaunches(self.memory, prepared.modules, self.stream, prepared.lines)
            load = prepared.modules.begin_launched(
                prepared.kernels, plan.sizes or {}, plan.threads,
                self._make.merged.kernels(plan.steps),
            )
            load_products = self._make.begin(plan.steps)
            by_library = [(step, step.family.library) for step in plan.steps if step.family.library]
            sharing: set[int] = set()
            if by_library:
                from .library.plans import settle

                # Plans are chosen while kernels are compiled.
                shared = set(map(id, settle(self.memory, by_library)))
                sharing = {i for i, step in enumerate(plan.steps) if id(step) in shared}
            self.placing.before = self.placing.after = len(plan.steps)
            self.plan = self.memory.plan = plan = stream(
                plan, prepared.target, self.placing, sharing
            )
            load()
            load_products()
            self._feeds = [slot.index for slot in plan.slots if slot.place is Place.FEED]
            self._staged: list[Any] = [None] * len(self._feeds)
            self._before_event = cupy.cuda.Event(disable_timing=True)
            self._after_event = cupy.cuda.Event(disable_timing=True)
            written = {value.slot for step in plan.steps for value in step.outputs}
            self._written = [
                (slot.owner, copy_of(self.device, slot.owner))
                for slot in plan.slots
                if slot.place is Place.STATE and slot.index in written
            ]
            self._before, self._after = (self._segments(*half) for half in halves)
            checked = plan.guard or (self.memory.failing and self._written)
            if len(self._before) == len(self._after) == 1 and not checked:
                first, second = self._before[0], self._after[0]
                if isinstance(first, Segment) and isinstance(second, Segment):
                    first.extend(second)  # nothing can fail: all steps are one graph
                    self._after = []
            cupy.cuda.get_current_stream().synchronize()  # constants have arrived
        self.ranks: Communicator | None = None
        self.meet: Callable[..., object] | None = None
        self._plain_loop: Loop | None = None
        self._loops: weakref.WeakKeyDictionary[Rows, Loop] = weakref.WeakKeyDictionary()
        self._risky = any(isinstance(part, Interpreted) for part in self._after)
        self._near = self._callers()
        self._ran = False
        self._result_types = [(shape_of(f.type), f.type.dtype) for f in plan.fetches]
        self._last: Any = self.stream  # on which the plan ran last

    def _segments(self, low: int, high: int) -> list[Segment | Interpreted]:
        """Return what runs some steps, in order."""
        parts: list[Segment | Interpreted] = []
        for number, step in enumerate(self.plan.steps[low:high], low):
            units: list[Unit] | Refused | None
            try:
                units = self._make.step(step)
            except Refused as refused:
                units = refused
            self._add(parts, step, units, number)
        return parts

    def _add(
        self,
        parts: list[Segment | Interpreted],
        step: Step,
        units: list[Unit] | Refused | None,
        number: int,
    ) -> None:
        """Append a step: to the last segment, where it has launches."""
        if units is None or isinstance(units, Refused):
            self._note(step, number, units)
            run = self._array_step(step, number)
            parts.append(Interpreted(self.device, run, step, number))
            return
        for unit in units:
            if not parts or not isinstance(parts[-1], Segment):
                parts.append(Segment(self.device, self.memory.counts))
            segment = parts[-1]
            assert isinstance(segment, Segment)
            segment.add(unit.launch, unit.touched, number, step)

    def _note(self, step: Step, number: int, refused: Refused | None) -> None:
        """Note that a step runs as its array expression, by what, and why."""
        node, taken = step.node, BY_CUPY
        if refused is None:
            reason = step.refused or (NO_ELEMENTS if step.wanted else NO_FAMILY)
            refused = Refused(reason, expected=True)
        if node.op.effect is Effect.ORDERED:
            taken, refused = ON_HOST, Refused("it passes values to Python", expected=True)
        elif speaks(node) and self._aware(node) is not None:
            taken, refused = BY_MPI, Refused(refused.reason, expected=True)
        elif self._empty(step):
            taken, refused = ON_HOST, Refused(NO_ELEMENTS, expected=True)
        elif node.op in self.prepared.on_host:
            taken = ON_HOST
        self.prepared.fallbacks.note(number, step, taken, refused)

    def _empty(self, step: Step) -> bool:
        """Return whether an operand or a result has no elements, which CuPy often refuses."""
        values = (*step.inputs, *step.outputs)
        return any(0 in shape_of(value.type) for value in values)

    def _aware(self, node: Node) -> AwareRank | None:
        """Return the CUDA-aware MPI communicator, where it carries a node's messages."""
        carriers = self.prepared.carriers
        return carriers.aware if carriers is not None and speaks(node) else None

    def _array_step(self, step: Step, number: int) -> Callable[[], None]:
        counts = self.memory.counts
        flag = counts.flag(step)
        said = self._said(step, number)
        if flag is None:
            return said
        from .launching.collectives import unsent

        silent = unsent(self.memory, step)
        return lambda: said() if counts.now[flag] else silent(self.stream)

    def _said(self, step: Step, number: int) -> Callable[[], None]:
        """Return what evaluates a step's array expression."""
        cupy = self.device.cupy
        sizes = dict(self.memory.sizes)
        aware = self._aware(step.node)
        if aware is not None and step.node.op.kind is Kind.COLLECTIVE:
            from .launching.collectives import by_addresses

            return by_addresses(self.memory, step, aware)
        compiler = body_compiler()  # of the function that binds this plan
        body = Body if compiler is None else compiled_bodies(compiler)
        ranks = contextlib.nullcontext if aware is None else functools.partial(using, aware)
        on_host = aware is None and self._empty(step)

        def evaluate() -> None:
            with self.stream, refusing():
                operands = [self.memory.view(v) for v in step.inputs]
                result, refused = None, None
                if not on_host and step.node.op not in self.prepared.on_host:
                    try:
                        with ranks(), refused_by_cupy():
                            result = apply(step.node, operands, sizes, array_namespace(), body)
                    except Refused as error:
                        refused = error
                if result is None:
                    host_operands = [cupy.asnumpy(operand) for operand in operands]
                    result = apply(step.node, host_operands, sizes)
                    if refused is not None:  # it is the host that can
                        if not isinstance(refused.__cause__, np.linalg.LinAlgError):
                            self.prepared.on_host.add(step.node.op)
                        self.prepared.fallbacks.note(number, step, ON_HOST, refused)
                several = result if isinstance(result, tuple) else (result,)
                for target, array in zip(step.outputs, several, strict=True):
                    if isinstance(array, np.ndarray):
                        array = cupy.asarray(array)
                    self.memory.view(target)[...] = array
            if refused is not None:
                self.prepared.fallbacks.warn()

        return evaluate

    # ---- Running

    def _callers(self) -> _Callers | None:
        """Return which feeds and results launches can use where the caller has them, if any."""
        parts = (*self._before, *self._after)
        segments = [part for part in parts if isinstance(part, Segment)]
        if not segments or not all(segment.movable for segment in segments):
            return None
        plan, memory = self.plan, self.memory
        fixed = {value.slot for step in plan.steps for value in step.outputs}
        fixed |= {step.workspace for step in plan.steps if step.workspace is not None}
        feeds = {
            position: span
            for position, (slot, span) in enumerate(
                zip(self._feeds, self.feed_ranges(), strict=True)
            )
            if span[0] and span[0] < span[1] and slot not in fixed
        }
        interpreted = [plan.steps[part.number] for part in parts if isinstance(part, Interpreted)]
        fixed = {value.slot for step in interpreted for value in (*step.inputs, *step.outputs)}
        feeds = {at: span for at, span in feeds.items() if self._feeds[at] not in fixed}
        results: dict[int, Range] = {}
        for position, fetch in enumerate(plan.fetches):
            direct = plan.slots[fetch.slot].place is Place.RESULT and not plan.guard
            if direct and fetch.slot not in fixed and fetch.type.bytes:
                start = memory.at(fetch)
                results[position] = (start, start + int(fetch.type.bytes))
            fixed.add(fetch.slot)  # a second result of the same value is a copy
        copied = sum(bool(start) and start < end for start, end in self.feed_ranges())
        alone = (
            len(parts) == 1
            and segments[0].generated
            and not (memory.states or memory.failing or plan.guard)
            and len(feeds) == copied
            and len(results) == sum(bool(fetch.type.bytes) for fetch in plan.fetches)
        )
        return _Callers(feeds, results, segments, alone)

    def _at_callers(self, feeds: Sequence[Any], results: Sequence[Any]) -> Places | None:
        """Return where the caller's arrays are, or None where copying them takes less time.

        An array of the host, or one that lies where kernels do not expect any, is copied to the
        plan's memory, which stands for it then.
        """
        near = self._near
        # A first call fills the plan's own memory, by which launches are timed and captured.
        if near is None or not self._ran or self.ranks is not None:
            return None
        places: list[int] = []
        copying = 0.0
        for position, span in near.feeds.items():
            place = self._place_of(feeds[position])
            places.append(place or span[0])
            copying += near.cost(span) if place else 0.0
        for position, span in near.results.items():
            places.append(results[position].data.ptr)
            copying += near.cost(span)
        addresses = tuple(places)
        if not copying:
            return None
        pay = [segment.pays_at(addresses, copying) for segment in near.segments]  # each counts
        return addresses if all(pay) else None

    def _place_of(self, value: Any) -> int:
        """Return the address at which kernels can read a fed array; 0 where they cannot."""
        if isinstance(value, np.ndarray):
            return 0
        data = value.data
        if data.ptr % ALIGNMENT or data.device_id != self.device.number:
            return 0
        return int(data.ptr)

    def _run_alone(self, segment: Segment, places: Places) -> None:
        """Launch generated kernels that touch no variable on the caller's stream."""
        assert self._near is not None
        stream = self.device.cupy.cuda.get_current_stream()
        self._follow(stream)
        segment.run_at(places, self._near.ranges, stream)

    def _follow(self, stream: Any) -> None:
        """Make a stream wait for what this plan computes on another one."""
        if stream.ptr != self._last.ptr:
            self._before_event.record(self._last)
            stream.wait_event(self._before_event)
            self._last = stream

    def run(self, feeds: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """Run every step once; results are the caller's."""
        with self.device.lock, self._reported(), self.device:
            counted = self.memory.counts.read()
            if self.meet is not None:
                self.meet(counted=counted)  # what is launched cannot be taken back
            # Memory first: where there is none, nothing has run yet.
            results = [self.device.array(*type_) for type_ in self._result_types]
            places = self._at_callers(feeds, results)
            near = None if places is None else self._near
            if near is not None and near.alone and near.starts.isdisjoint(places or ()):
                self._run_alone(near.segments[0], places or ())
                return results if out is None else self._copied(results, out)
            self.enter()
            for position, value in enumerate(feeds):
                if near is None or position not in near.feeds or not self._place_of(value):
                    self._feed(position, value)
            check = self._check if self.plan.guard or self.memory.failing else None
            before = [self._placed(part, places) for part in self._before]
            run_before(before, check, self.ranks, may_say=_may_say)
            kept = self._kept() if self._risky else []
            try:
                for part in self._after:
                    self._placed(part, places).run()
            except BaseException:
                for address, saved in kept:
                    self._move(address, saved.data.ptr, saved.nbytes)
                raise
            for position, (fetch, array) in enumerate(
                zip(self.plan.fetches, results, strict=True)
            ):
                if near is None or position not in near.results:
                    self._move(array.data.ptr, self.memory.at(fetch), array.nbytes)
            self.memory.counts.advance(1)
            self.leave(1)
            self._ran = True
        return results if out is None else self._copied(results, out)

    def _copied(self, results: Sequence[Any], out: Sequence[Any]) -> list[Any]:
        """Copy results into the caller's arrays, and return these."""
        for target, array in zip(out, results, strict=True):
            if isinstance(target, np.ndarray):
                np.copyto(target, array.get(), casting="same_kind")
            else:
                target[...] = array
        return list(out)

    def _placed(self, part: Segment | Interpreted, places: Places | None) -> Any:
        """Return what runs a part with the caller's arrays where these are."""
        if places is None or isinstance(part, Interpreted):
            return part
        assert self._near is not None
        return _PlacedSegment(part, places, self._near.ranges, self.stream)

    def enter(self) -> None:
        """Make the next launches wait for all work that the caller has queued."""
        self._follow(self.stream)
        self._before_event.record(self.device.cupy.cuda.get_current_stream())
        self.stream.wait_event(self._before_event)
        for state, copy in self.memory.states:
            upload(self.device, state, copy)

    def leave(self, steps: int) -> None:
        """Count queued steps, and make the caller's next work wait for them."""
        for state, copy in self._written:
            state.version += steps
            copy.version = state.version
            if steps:
                state.newest = copy
        self.memory.counts.settle()
        self._after_event.record(self.stream)
        self.device.cupy.cuda.get_current_stream().wait_event(self._after_event)

    # ---- Many steps

    def counted(self) -> Counted:
        """Return what this rank says of the variables by which calls send, before it begins."""
        with self.device.lock, self._reported(), self.device:
            return self.memory.counts.read()

    def looped(self) -> Segment | None:
        """Return the one segment that all steps are in, or None where they need the host."""
        return None if self.memory.failing else self.unchecked()

    def unchecked(self) -> Segment | None:
        """Return the one segment of all steps, whose failures the caller has to look at."""
        if len(self._before) != 1 or self._after or self.plan.guard:
            return None
        (part,) = self._before
        return part if isinstance(part, Segment) else None

    def feed_ranges(self) -> list[Range]:
        """Return the memory ranges of the feeds."""
        ranges = []
        for slot in self._feeds:
            start = self.memory.address[slot]
            size = dims.evaluate(self.plan.slots[slot].size, self.plan.sizes or {})
            ranges.append((start, start + size))
        return ranges

    def repeat(
        self, count: int, feeds: Sequence[Any] | None, rows: Rows | None, stacked: bool, **how: Any
    ) -> list[Any]:
        """Run a number of steps, at least one, with no return to the caller between them.

        Parameters
        ----------
        count
            How many; `looped` gives a segment.
        feeds
            Of each step, or None where rows are given.
        rows
            The data that the steps' batches are taken of.
        stacked
            Whether to return the results of all steps, along a first axis, or of the last.
        **how
            With rows: see `Loop`.
        """
        with self.device.lock, self._reported(), self.device:
            from .launching.loops import Loop

            loop = self._plain_loop if rows is None else self._loops.get(rows)
            if loop is None:
                loop = Loop(self, rows, **how)
                if rows is None:
                    self._plain_loop = loop
                else:
                    self._loops[rows] = loop
            self.memory.counts.read()
            self.enter()
            for position, value in enumerate(feeds or ()):
                self._feed(position, value)
            return loop.run(count, rows, stacked)

    def _feed(self, position: int, value: Any) -> None:
        """Send a fed value to its slot; from the host through pinned memory."""
        count = value.nbytes
        address = self.memory.address[self._feeds[position]]
        if not (count and address):  # no step reads it
            return
        runtime = self.device.cupy.cuda.runtime
        if not isinstance(value, np.ndarray):
            runtime.memcpyAsync(
                address, value.data.ptr, count, DEVICE_TO_DEVICE, self.stream.ptr
            )
            return
        staged = self._staged[position]
        if staged is None:
            memory = self.device.cupy.cuda.alloc_pinned_memory(count)
            array = np.frombuffer(memory, np.uint8, count)
            event = self.device.cupy.cuda.Event(disable_timing=True)
            staged = self._staged[position] = (memory, array, event)
        else:
            staged[2].synchronize()  # what was sent last has left
        _, array, event = staged
        array[...] = value.reshape(-1).view(np.uint8)
        runtime.memcpyAsync(address, array.ctypes.data, count, HOST_TO_DEVICE, self.stream.ptr)
        event.record(self.stream)

    def _move(self, target: int, source: int, count: int) -> None:
        """Copy bytes from one place on the device to another."""
        if count:
            self.device.cupy.cuda.runtime.memcpyAsync(
                target, source, count, DEVICE_TO_DEVICE, self.stream.ptr
            )

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Say what an error of the driver means; variables that only the device had are lost."""
        try:
            yield
        except self.device.errors as error:
            lost = () if self.device.works() else self._written
            for state, copy in lost:
                if state.newest is copy:
                    state.newest, copy.version = None, -1
                    state.invalid = f"the device that held it failed ({error})"
            raise self.device.failed(error) from error

    def _kept(self) -> list[tuple[int, Any]]:
        """Return copies of all that the steps after the commit point write."""
        cupy = self.device.cupy
        kept = []
        for _, copy in self._written:
            saved = cupy.empty_like(copy.buffer)
            cupy.cuda.runtime.memcpyAsync(
                saved.data.ptr, copy.address, saved.nbytes, DEVICE_TO_DEVICE, self.stream.ptr
            )
            kept.append((copy.address, saved))
        return kept

    def _check(self) -> None:
        """Raise for what a kernel of the steps before the commit point found to be wrong."""
        if self.memory.failing:
            self._check_failures()
        if self.plan.guard:
            self._check_finite()

    def _check_failures(self) -> None:
        """Raise the error of the first step that left a failure; the next call begins anew."""
        from .kernels.matrices import failure_of

        for block, steps in self.memory.failing:
            with self.stream:
                words = block.get()
                if (words == -1).all():
                    continue
                block.fill(-1)
            place = int(np.argmax(words != -1))
            error = failure_of(steps[place], int(words[place]))
            error.node = steps[place].node
            raise error

    def _check_finite(self) -> None:
        """Raise unless every result and every new value is finite; nothing is written yet."""
        cupy = self.device.cupy
        late = self.plan.steps[self.plan.commit :]
        checked = [(step.inputs[0], step.outputs[0].slot) for step in late]
        written = {step.outputs[0].slot for step in late}
        checked += [(f, f.slot) for f in self.plan.fetches if f.slot not in written]
        with self.stream:
            for value, target in checked:
                view = self.memory.view(value)
                if view.dtype.kind in "iub":
                    continue
                bad = int((~cupy.isfinite(view.astype(cupy.float64))).sum())
                if bad:
                    slot = self.plan.slots[target]
                    what = (
                        f"the new value of variable '{slot.owner.name}'"
                        if slot.place is Place.STATE
                        else f"output {slot.owner}"
                    )
                    raise NonFiniteError(
                        message(
                            f"{what} holds {bad} values that are not finite, and nan='raise' "
                            "is set",
                            need="finite values; no variable was changed",
                            hint="mg.debug.blame(f, ...) names the node that made the first",
                        )
                    )

    def run_timed(self, feeds: Sequence[Any]) -> list[int]:
        """Run once, put every variable back, and return the nanoseconds of each step.

        A step that is computed together with the product which it reads counts there.
        """
        taken = [0] * len(self.plan.steps)
        kept = [(state, state.data.copy()) for state, _ in self._written]
        try:
            self.run(feeds)
            for state, value in kept:
                state.write(value)
            with self.device.lock, self.device:
                self.memory.counts.read()
                self.enter()
                for position, value in enumerate(feeds):
                    self._feed(position, value)
                for part in (*self._before, *self._after):
                    part.time(taken)
                self.stream.synchronize()
        finally:
            for state, value in kept:
                state.write(value)
        return taken

    def run_timeline(self, feeds: Sequence[Any]) -> list[tuple[int, int, int, int]]:
        """Run captured, put every variable back, and return when launches begin and end.

        Returns
        -------
        list of tuple
            Step, stream, begin and end in nanoseconds; empty where steps run on the host between.
        """
        from .launching.timeline import timeline

        parts = (*self._before, *self._after)
        if len(parts) != 1 or not isinstance(parts[0], Segment):
            return []
        kept = [(state, state.data.copy()) for state, _ in self._written]
        try:
            self.run(feeds)
            with self.device.lock, self.device:
                return timeline(parts[0])
        finally:
            for state, value in kept:
                state.write(value)

    def streams(self) -> list[int]:
        """Return the stream that each step's first kernel is captured on; 0 for the main one."""
        streams = [0] * len(self.plan.steps)
        for part in (*self._before, *self._after):
            if isinstance(part, Segment):
                placement = part.placement()
                launches, touched, numbers = part.chosen() if placement else part.units()
                chosen = (placement or placed(self.device, launches, touched)).chosen
                for number, stream in zip(reversed(numbers), reversed(chosen), strict=True):
                    streams[number] = stream
        return streams

    def launch(self) -> None:
        """Compute all steps on what the first call fed, or was copied since, without results."""
        counts = self.memory.counts
        counts.read()
        self._follow(self.stream)
        for part in (*self._before, *self._after):
            part.run()
        counts.advance(1)
        counts.settle()

    def queue(self, stream: Any) -> None:
        """Queue all kernels on a stream in order; the stream may be capturing.

        A graph made so has addresses of this plan's memory: what launches it has to keep the plan.

        Raises
        ------
        DeviceError
            A step runs as its array expression, which is no kernel, or what it sends has a stream
            of its own, or stays here at other calls.
        """
        for part in (*self._before, *self._after):
            if isinstance(part, Interpreted):
                raise DeviceError(message(f"{part.node.op.name} runs as an array expression"))
            if any(map(lane_of, part.launches)):
                raise DeviceError(message("messages between ranks need streams of their own"))
            if any(isinstance(launch, TimedCall) for launch in part.launches):
                raise DeviceError(message("what ranks send differs between calls"))
            queued(self.device, part.launches, part.touched, stream)

    def wait(self) -> None:
        """Return when all that was run is done."""
        self._last.synchronize()


def _may_say(part: Segment | Interpreted) -> bool:
    """Return whether a part may have messages, which other ranks' devices wait for."""
    return isinstance(part, Segment) or says(part)
