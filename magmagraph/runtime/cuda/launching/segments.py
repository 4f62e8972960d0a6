"""Runs of steps on a stream: captured as one graph, or array expressions through CuPy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....errors import MagmagraphError
from ....ir.plan import Step
from ....ir.ranges import Range, Touched, dependencies
from ....passes.lowering.stream import assign, joins
from .call_counters import Counts, Flags
from .calls import CollectiveCall, KernelCall, TimedCall, Together, calls_of, cost_of
from .moves import moved

__all__ = [
    "Interpreted", "Launcher", "Placement", "Segment", "captured", "lane_of", "placed", "queued",
]

OVERLAPPING = 90  # compute capability from which launches can overlap
PAUSE = 20_000  # nanoseconds in which the host launches a kernel and records an event
PLACES = 8  # sets of a caller's addresses for which a segment keeps launches, or a graph
SEEN = 64  # sets of addresses that it remembers to have met
PER_LAUNCH = 10.0  # microseconds in which the host moves a launch and launches it

Launcher = Callable[[Any], None]  # puts a step's kernels on a stream


class Segment:
    """Steps that follow one another and are launched as one captured graph.

    The first run launches them one by one, in order, on one stream; the second captures them on
    several streams, where only those wait for each other that touch the same memory. Where some
    calls send and others do not, that holds for each sort of call, which has a graph of its own.

    Attributes
    ----------
    launches
        What puts kernels on a stream.
    touched, numbers, steps
        The memory that each touches, and the step of the plan that it belongs to.
    counts
        What says which sort of call is due; None where all are of one sort.
    graphs
        The graph of each sort of call, by its flags.
    ran
        The sorts of calls that were launched one by one.
    """

    _places: dict[tuple[int, ...], _Placed]
    _seen: dict[tuple[int, ...], int]  # how often

    def __init__(self, device: Any, counts: Counts | None = None) -> None:
        self.device = device
        self.launches: list[Launcher] = []
        self.touched: list[Touched] = []
        self.numbers: list[int] = []
        self.steps: list[Step] = []
        self.counts = counts
        self.graphs: dict[Flags, Any] = {}
        self.ran: set[Flags] = set()
        self._asked: tuple[int, ...] | None = None  # the flags that launches go by, once known
        self._places = {}
        self._seen = {}

    @property
    def graph(self) -> Any:
        """The graph of the sort of call that is due, or None where it was not captured yet."""
        return self.graphs.get(self.sort())

    def sort(self, flags: Flags | None = None) -> Flags:
        """Return what of a call's flags these launches go by; without flags, of the call due."""
        if not self.counts:
            return ()
        values = self.counts.now if flags is None else flags
        if self._asked is None:
            asked = {launch.flag for launch in self.launches if isinstance(launch, TimedCall)}
            self._asked = tuple(sorted(asked))
        return tuple([values[i] for i in self._asked])

    def chosen(self, flags: Flags | None = None) -> Chosen:
        """Return the launches of a call; without flags, of the next call."""
        launches = self.launches
        if self.counts:
            values = self.counts.now if flags is None else flags
            launches = [
                launch.at(values) if isinstance(launch, TimedCall) else launch
                for launch in launches
            ]
        return Chosen(launches, self.touched, self.numbers)

    def units(self, flags: Flags | None = None) -> Chosen:
        """Return the launches of a call; those that the plan places as one are one."""
        launches: list[Launcher] = []
        touched: list[Touched] = []
        numbers: list[int] = []
        last = -1
        for (launch, memory, number), step in zip(
            zip(*self.chosen(flags), strict=True), self.steps, strict=True
        ):
            if step.follows and launches and number == last + 1:
                launches[-1] = Together([*calls_of(launches[-1]), *calls_of(launch)])
                before = touched[-1]
                touched[-1] = Touched(
                    (*before.read, *memory.read), (*before.written, *memory.written)
                )
            else:
                launches.append(launch)
                touched.append(memory)
                numbers.append(number)
            last = number
        return Chosen(launches, touched, numbers)

    def placement(self) -> Placement | None:
        """Return the plan's placement of these launches; None where it has none.

        Plans have none whose steps are several launches, or send messages. What a step waits for
        that ran before these is over.
        """
        at = {number: place for place, number in enumerate(self.numbers)}
        chosen = [step.stream for step in self.steps if step.stream is not None]
        if len(at) < len(self.numbers) or len(chosen) < len(self.steps):
            return None
        joined = [{at[one] for one in step.waits if one in at} for step in self.steps]
        return Placement(joined, chosen)

    def add(self, launch: Launcher, touched: Touched, number: int, step: Step) -> None:
        """Append the kernels of a step of the plan."""
        self._asked = None
        self.steps.append(step)
        self.launches.append(launch)
        self.touched.append(touched)
        self.numbers.append(number)

    def extend(self, other: Segment) -> None:
        """Append all launches of another segment."""
        self._asked = None
        self.launches += other.launches
        self.touched += other.touched
        self.numbers += other.numbers
        self.steps += other.steps

    def run(self) -> None:
        """Launch the steps: one by one at first, then as a graph."""
        sort = self.sort()
        graph = self.graphs.get(sort)
        if graph is None and sort in self.ran and len(self.launches) > 1:
            placement = self.placement()
            launches, touched, _ = self.units() if placement is None else self.chosen()
            graph = self.graphs[sort] = captured(
                self.device, launches, touched, placement=placement
            )
        if graph is not None:
            graph.launch(self.device.stream)
            return
        self.ran.add(sort)
        launches, touched, _ = self.chosen()
        if any(map(lane_of, launches)):  # on one stream two ranks could wait for each other
            arranged = _arranged(self.device, launches, touched)
            _launch(self.device, launches, touched, arranged)
            return
        for launch in launches:
            launch(self.device.stream)

    # ---- At a caller's addresses

    @property
    def movable(self) -> bool:
        """Whether the launches can read and write a caller's arrays where these are."""
        return not self.counts and all(
            hasattr(launch, "moved") and not isinstance(launch, CollectiveCall)
            for launch in self.launches
        )

    @property
    def generated(self) -> bool:
        """Whether every launch is a generated kernel, which needs no memory of its stream."""
        return all(
            isinstance(call, KernelCall) for launch in self.launches for call in calls_of(launch)
        )

    def pays_at(self, places: tuple[int, ...], copying: float) -> bool:
        """Return whether a call at a caller's addresses takes less time than one that copies.

        At addresses that it met before it does: their launches are kept, or a graph of them. At
        new ones every launch is moved, and launched by itself.

        Parameters
        ----------
        places
            The addresses.
        copying
            Microseconds in which the arrays are copied.
        """
        if places in self._places:
            return True
        times = self._seen.pop(places, 0) + 1
        if len(self._seen) >= SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[places] = times
        return times > 1 or len(self.launches) * PER_LAUNCH <= copying

    def run_at(self, places: tuple[int, ...], ranges: Sequence[Range], stream: Any) -> None:
        """Launch the steps with some memory elsewhere: one by one at new places, then as a graph.

        The segment has run before, so that nothing is loaded while a stream is captured.

        Parameters
        ----------
        places
            Where each range begins now.
        ranges
            The memory that is elsewhere.
        stream
            What they are launched on.
        """
        placed = self._places.get(places)
        if placed is None:
            moves = [(*span, to) for span, to in zip(ranges, places, strict=True)]
            placed = _Placed(*moved(self.launches, self.touched, moves))
            if len(self._places) >= PLACES:
                del self._places[next(iter(self._places))]
            self._places[places] = placed
            met = self._seen.pop(places, 0) > 1
        else:
            met = True
        if met and placed.graph is None and len(self.launches) > 1:
            placed.graph = captured(
                self.device, placed.launches, placed.touched, placement=self.placement()
            )
        if placed.graph is not None:
            placed.graph.launch(stream)
            return
        for launch in placed.launches:
            launch(stream)

    def time(self, taken: list[int]) -> None:
        """Launch the steps one by one, and add the nanoseconds of each to its place."""
        device, stream = self.device, self.device.stream
        launches, places, numbers = self.chosen()
        event = device.cupy.cuda.Event
        # The device waits until all is queued, so that no launch is waited for in between.
        device.pause(stream, PAUSE * (1 + len(launches)))
        marks = [event() for _ in range(len(launches) + 1)]
        marks[0].record(stream)
        for launch, touched, mark in zip(launches, places, marks[1:], strict=True):
            aside = device.urgent(lane_of(launch)) if lane_of(launch) else stream
            if aside is not stream:
                _meet(device, stream, aside)
            launch(aside)
            if aside is not stream and touched.written:  # what a rank sends it does not wait for
                _meet(device, aside, stream)
            mark.record(stream)
        for launch in launches:
            if lane_of(launch):
                device.urgent(lane_of(launch)).synchronize()
        marks[-1].synchronize()
        for number, begin, end in zip(numbers, marks[:-1], marks[1:], strict=True):
            milliseconds = device.cupy.cuda.get_elapsed_time(begin, end)
            taken[number] += round(milliseconds * 1e6)


class _Placed:
    """The launches of a segment at a caller's addresses, and their graph, once captured."""

    def __init__(self, launches: Sequence[Launcher], touched: Sequence[Touched]) -> None:
        self.launches, self.touched = launches, touched
        self.graph: Any = None


class Chosen(NamedTuple):
    """The launches of one kind of call, with their memory and steps."""

    launches: Sequence[Launcher]
    touched: Sequence[Touched]
    numbers: Sequence[int]


def lane_of(launch: Any) -> int:
    """Return the lane of a message; 0 for all else."""
    return launch.lane if isinstance(launch, CollectiveCall) else 0


def _meet(device: Any, first: Any, then: Any) -> None:
    """Make a stream wait for all work of another one."""
    ended = device.cupy.cuda.Event(disable_timing=True)
    ended.record(first)
    then.wait_event(ended)


class Placement(NamedTuple):
    """The streams of launches, and the launches of other streams that each waits for."""

    joined: list[set[int]]
    chosen: list[int]


def placed(
    device: Any, launches: Sequence[Launcher], touched: Sequence[Touched]
) -> Placement:
    """Place launches that the plan has not placed, such as those of several steps of a loop."""
    waits = dependencies(touched)
    chosen = assign(waits, [cost_of(launch, device.multiprocessors) for launch in launches])
    aside = max(chosen, default=0) + 1
    for number, launch in enumerate(launches):
        if isinstance(launch, CollectiveCall):  # beside what is computed, in one order
            chosen[number] = aside + launch.lane
    return Placement(joins(waits, chosen), chosen)


class _Arrangement(NamedTuple):
    """Launches on streams: whose ends each waits for, the streams' places, and they themselves."""

    joined: list[set[int]]
    chosen: list[int]
    streams: dict[int, Any]


def _arranged(
    device: Any,
    launches: Sequence[Launcher],
    touched: Sequence[Touched],
    placement: Placement | None = None,
) -> _Arrangement:
    """Put launches on streams, and have all there that is allocated for these."""
    joined, chosen = placement or placed(device, launches, touched)
    beside = device.beside(max(chosen, default=0))
    streams = {place: beside[place - 1] for place in set(chosen) if place}
    streams[0] = device.stream
    for launch, place in zip(launches, chosen, strict=True):
        if isinstance(launch, CollectiveCall):  # the sooner it ends, the sooner others go on
            streams[place] = device.urgent(launch.lane)
    for stream in streams.values():
        device.scratch(stream)  # nothing may be allocated while a stream is captured
    return _Arrangement(joined, chosen, streams)


def captured(
    device: Any,
    launches: Sequence[Launcher],
    touched: Sequence[Touched],
    mark: Callable[[int, Any], None] | None = None,
    placement: Placement | None = None,
) -> Any:
    """Return launches as one captured graph; an error ends the capture cleanly.

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
    placement
        The plan's, where it has one.
    """
    arranged = _arranged(device, launches, touched, placement)
    with device.stream:
        device.stream.begin_capture()
        try:
            _launch(device, launches, touched, arranged, mark)
        except BaseException:
            with contextlib.suppress(device.cupy.cuda.runtime.CUDARuntimeError):
                device.stream.end_capture()  # branches that were not joined are an error, too
            raise
        return device.stream.end_capture()


def queued(
    device: Any, launches: Sequence[Launcher], touched: Sequence[Touched], stream: Any
) -> None:
    """Put launches on one stream, where each kernel may overlap with the one before it."""
    count = len(launches)
    in_line = _Arrangement([set() for _ in range(count)], [0] * count, {0: stream})
    _launch(device, launches, touched, in_line)


def _launch(
    device: Any,
    launches: Sequence[Launcher],
    touched: Sequence[Touched],
    arranged: _Arrangement,
    mark: Callable[[int, Any], None] | None = None,
) -> None:
    """Queue every launch on its stream, after those that it waits for."""
    joined, chosen, streams = arranged
    event = device.cupy.cuda.Event
    begun = event(disable_timing=True)
    begun.record(streams[0])
    needed = set().union(*joined)
    overlapping = int(device.architecture) >= OVERLAPPING and mark is None
    done: dict[int, Any] = {}
    entered = {0}
    before: dict[int, int] = {}  # the launch that a stream's next may overlap with
    kernels: set[int] = set()  # launches that end with a generated kernel
    for number, launch in enumerate(launches):
        place = chosen[number]
        stream = streams[place]
        if place not in entered:
            entered.add(place)
            stream.wait_event(begun)
        waited = sorted(joined[number])
        for other in waited:
            stream.wait_event(done[other])
            # Beside the longest chain, what comes early would only take room from that.
            if place or other not in kernels:
                before.pop(place, None)
        if mark is not None:
            mark(number, stream)
        for call in calls_of(launch):
            if overlapping and place in before and isinstance(call, KernelCall):
                behind = (before[place], *waited)
                call.overlapped(stream, [r for other in behind for r in touched[other].written])
            else:
                call(stream)
            waited = []
            if isinstance(call, KernelCall):
                before[place] = number
                kernels.add(number)
            else:
                before.pop(place, None)
                kernels.discard(number)
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
            if error.node is None:  # else a node of the step's body
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
