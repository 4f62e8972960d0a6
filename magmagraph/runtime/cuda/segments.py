"""Runs of steps on a stream: captured as one graph, or array expressions through CuPy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import MagmagraphError
from ...plan import Step
from .calls import KernelCall, calls_of, fills
from .collectives import CollectiveCall
from .streams import Touched, assign, dependencies, joins

__all__ = ["Interpreted", "Launcher", "Segment", "captured", "placed"]

OVERLAPPING = 90  # compute capability from which launches can overlap
PAUSE = 20_000  # nanoseconds in which the host launches a kernel and records an event

Launcher = Callable[[Any], None]  # puts a step's kernels on a stream


class Segment:
    """Steps that follow one another and are launched as one captured graph.

    The first run launches them one by one, in order, on one stream; the second captures them on
    several streams, where only those wait for each other that touch the same memory.

    Attributes
    ----------
    launches
        What puts kernels on a stream.
    touched, numbers
        The memory that each touches, and the step of the plan that it belongs to.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.launches: list[Launcher] = []
        self.touched: list[Touched] = []
        self.numbers: list[int] = []
        self.graph: Any = None
        self.runs = 0

    def add(self, launch: Launcher, touched: Touched, number: int) -> None:
        """Put kernels of a step of the plan behind what is there."""
        self.launches.append(launch)
        self.touched.append(touched)
        self.numbers.append(number)

    def extend(self, other: Segment) -> None:
        """Put all of another segment behind what is there."""
        self.launches += other.launches
        self.touched += other.touched
        self.numbers += other.numbers

    def run(self) -> None:
        """Launch the steps: one by one at first, then as a graph."""
        if self.graph is None and self.runs and len(self.launches) > 1:
            self.graph = captured(self.device, self.launches, self.touched)
        if self.graph is not None:
            self.graph.launch(self.device.stream)
            return
        self.runs += 1
        for launch in self.launches:
            launch(self.device.stream)

    def time(self, taken: list[int]) -> None:
        """Launch the steps one by one, and add the nanoseconds of each to its place."""
        device, stream = self.device, self.device.stream
        event = device.cupy.cuda.Event
        # The device waits until all is queued, so that no launch is waited for in between.
        device.pause(stream, PAUSE * (1 + len(self.launches)))
        marks = [event() for _ in range(len(self.launches) + 1)]
        marks[0].record(stream)
        for launch, mark in zip(self.launches, marks[1:], strict=True):
            launch(stream)
            mark.record(stream)
        marks[-1].synchronize()
        for number, begin, end in zip(self.numbers, marks[:-1], marks[1:], strict=True):
            milliseconds = device.cupy.cuda.get_elapsed_time(begin, end)
            taken[number] += round(milliseconds * 1e6)


def placed(
    device: Any, launches: Sequence[Launcher], touched: Sequence[Touched]
) -> tuple[list[set[int]], list[int]]:
    """Return the earlier launches that each waits for, and the stream that each is put on."""
    waits = dependencies(touched)
    chosen = assign(waits, [fills(launch, device.multiprocessors) for launch in launches])
    aside = max(chosen, default=0) + 1
    for number, launch in enumerate(launches):
        if isinstance(launch, CollectiveCall):  # beside what is computed, in one order
            chosen[number] = aside
    return waits, chosen


def captured(
    device: Any,
    launches: Sequence[Launcher],
    touched: Sequence[Touched],
    mark: Callable[[int, Any], None] | None = None,
) -> Any:
    """Return launches as one graph; an error ends the capture and leaves nothing behind.

    Parameters
    ----------
    device
        Where they run.
    launches
        In an order that is right on one stream.
    touched
        The memory that each touches.
    mark
        ``mark(number, stream)``, called before and after each launch. Launches that could overlap
        on one stream do not, then.
    """
    waits, chosen = placed(device, launches, touched)
    streams = [device.stream, *device.beside(max(chosen, default=0))]
    for stream in streams:
        device.scratch(stream)  # nothing may be allocated while a stream is captured
    with device.stream:
        device.stream.begin_capture()
        try:
            _capture(device, launches, touched, joins(waits, chosen), chosen, streams, mark)
        except BaseException:
            with contextlib.suppress(device.cupy.cuda.runtime.CUDARuntimeError):
                device.stream.end_capture()  # branches that were not joined are an error, too
            raise
        return device.stream.end_capture()


def _capture(
    device: Any,
    launches: Sequence[Launcher],
    touched: Sequence[Touched],
    joined: Sequence[set[int]],
    chosen: Sequence[int],
    streams: Sequence[Any],
    mark: Callable[[int, Any], None] | None,
) -> None:
    """Put every launch on its stream, behind what it waits for."""
    event = device.cupy.cuda.Event
    begun = event(disable_timing=True)
    begun.record(streams[0])
    needed = set().union(*joined)
    overlapping = int(device.architecture) >= OVERLAPPING and mark is None
    done: dict[int, Any] = {}
    entered = {0}
    before: dict[int, int] = {}  # the launch that a stream's next may overlap with
    for number, launch in enumerate(launches):
        place = chosen[number]
        stream = streams[place]
        if place not in entered:
            entered.add(place)
            stream.wait_event(begun)
        for other in sorted(joined[number]):
            stream.wait_event(done[other])
            before.pop(place, None)
        if mark is not None:
            mark(number, stream)
        for call in calls_of(launch):
            if overlapping and place in before and isinstance(call, KernelCall):
                call.overlapped(stream, touched[before[place]].written)
            else:
                call(stream)
            if isinstance(call, KernelCall):
                before[place] = number
            else:
                before.pop(place, None)
        if mark is not None:
            mark(number, stream)
        if number in needed:
            done[number] = event(disable_timing=True)
            done[number].record(stream)
    for place in sorted(entered - {0}):
        ended = event(disable_timing=True)
        ended.record(streams[place])
        streams[0].wait_event(ended)


class Interpreted:
    """A step that runs as its array expression, through CuPy."""

    def __init__(self, device: Any, run: Callable[[], None], step: Step, number: int) -> None:
        self._device, self._run = device, run
        self.node = step.node
        self.number = number

    def run(self) -> None:
        """Compute the step."""
        try:
            self._run()
        except MagmagraphError as error:
            error.node = self.node
            raise

    def time(self, taken: list[int]) -> None:
        """Compute the step, and add its nanoseconds, with those of the host, to its place."""
        stream = self._device.stream
        stream.synchronize()
        began = time.perf_counter_ns()
        self.run()
        stream.synchronize()
        taken[self.number] += time.perf_counter_ns() - began
