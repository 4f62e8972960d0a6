"""Many steps of a plan with no return to the host between them: several are one captured graph.

Each step of such a graph has feeds and results of its own. The first kernel of the graph gathers
the rows of all its batches, by an order that lies on the device, from where a counter stands; the
last one moves the counter on. What is launched is what a call launches, on other addresses: results
are those of calls, bit for bit. Where some steps send and others do not, there is a graph for each
order of these that comes.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Sequence, Set
from typing import Any, Protocol

import numpy as np

from ....codegen.cuda.prelude import complete
from ....codegen.steps import shape_of
from ....ir.plan import Plan
from ....ir.ranges import Range, Touched
from ..compiler import compile_source
from ..memory import DEVICE_TO_DEVICE, PlanMemory
from .call_counters import Flags
from .calls import KernelCall
from .launch_units import Unit
from .segments import Segment, captured
from .unrolled_loops import moved

__all__ = ["MOST_FEEDS", "Loop", "Rows", "at_once", "resident", "source"]

CHUNK = 0.05  # seconds of work that are queued at a time, so that signals act
STEPS = 16  # of a graph, at most
LAUNCHES = 2000  # of a graph, at most
ROOM = 64 << 20  # bytes for the feeds and results of a graph's steps, where it has several
ALIGNMENT = 256
MOST_FEEDS = 16
_SHARE = 0.5  # of the free memory that data may take
_THREADS = 128

_SOURCE = r"""
/* v: the order (0: as rows lie), the counter, the rows from one batch to the next; then, for each
   array, where it is, where its batches go, and the bytes of a row and from batch to batch. */
extern "C" __global__ void mg_gather(const __grid_constant__ mg_arguments arguments)
{
    const int64_t *v = arguments.v, *s = v + 3 + 4 * blockIdx.z;
    const int *order = (const int *)v[0];
    const int64_t at = (*(const int64_t *)v[1] + blockIdx.y) * v[2] + blockIdx.x;
    const int64_t count = s[2];
    const char *from = (const char *)s[0] + (order ? order[at] : at) * count;
    char *to = (char *)s[1] + blockIdx.y * s[3] + blockIdx.x * count;
    const int64_t low = (int64_t)from | (int64_t)to | count;
    if (low % 16 == 0) {
        for (int64_t i = threadIdx.x; i < count / 16; i += blockDim.x)
            ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    } else if (low % 4 == 0) {
        for (int64_t i = threadIdx.x; i < count / 4; i += blockDim.x)
            ((unsigned *)to)[i] = ((const unsigned *)from)[i];
    } else {
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
    }
}
/* v: the counter, the steps that are done. */
extern "C" __global__ void mg_advance(const __grid_constant__ mg_arguments arguments)
{
    *(int64_t *)arguments.v[0] += arguments.v[1];
}
"""


def source() -> str:
    """Return the CUDA C of the kernels that begin and end a graph of steps."""
    return complete(_SOURCE, 3 + 4 * MOST_FEEDS)


@functools.cache
def _kernels(device: Any) -> tuple[int, int, Any]:
    """Return the functions that gather and advance, and what holds them."""
    module = device.cupy.cuda.function.Module()
    module.load(compile_source(source(), device.architecture))
    functions = [module.get_function(name) for name in ("mg_gather", "mg_advance")]
    return functions[0].ptr, functions[1].ptr, (module, functions)


class Rows:
    """Arrays on a device, of which batches are taken row by row.

    Attributes
    ----------
    arrays
        CuPy arrays, in the order of the inputs.
    order
        Row numbers, int32, on the device.
    counter
        The number of the batch that comes next, int64, on the device.
    """

    def __init__(self, device: Any, arrays: Sequence[np.ndarray]) -> None:
        cupy = device.cupy
        self.device = device
        with device:
            self.arrays = []
            for array in arrays:
                buffer = device.empty(max(1, array.nbytes)).view(np.uint8)
                self.arrays.append(buffer[: array.nbytes].view(array.dtype).reshape(array.shape))
                self.arrays[-1].set(array)
            self.counter = cupy.zeros(1, np.int64)
            self.order = cupy.empty(max(1, len(arrays[0])), np.int32)
            memory = cupy.cuda.alloc_pinned_memory(self.order.nbytes)
            self._staged = np.frombuffer(memory, np.int32, self.order.size)
            self._sent = cupy.cuda.Event(disable_timing=True)
            cupy.cuda.get_current_stream().synchronize()

    def begin(self, order: np.ndarray | None) -> None:
        """Begin with the first batch of an order, when all that is queued has run."""
        with self.device, self.device.stream as stream:
            self.counter.fill(0)
            if order is not None:
                self._sent.synchronize()  # what was sent last has left
                self._staged[: len(order)] = order
                self.order.set(self._staged, stream=stream)
                self._sent.record(stream)


_Kind = tuple[int, tuple[str, ...]]  # the device, and the arrays' dtypes
_resident: weakref.WeakKeyDictionary[Any, dict[_Kind, Rows]] = weakref.WeakKeyDictionary()


def resident(device: Any, owner: Any, arrays: Sequence[np.ndarray]) -> Rows | None:
    """Return arrays of an owner on a device, brought there once; None where they do not fit."""
    by_kind = _resident.setdefault(owner, {})
    kind = device.number, tuple(array.dtype.name for array in arrays)
    if kind not in by_kind:
        with device:
            free, _ = device.cupy.cuda.runtime.memGetInfo()
            free += device.cupy.get_default_memory_pool().free_bytes()
        count = sum(array.nbytes for array in arrays) + 4 * len(arrays[0])
        if count > free * _SHARE or len(arrays[0]) >= 1 << 31 or len(arrays) > MOST_FEEDS:
            return None
        by_kind[kind] = Rows(device, arrays)
    return by_kind[kind]


def at_once(sorts: Sequence[Flags], ran: Set[Flags]) -> int:
    """Return how many of the steps that come next are one graph; 0 where one runs by itself first.

    It ends behind the last step that sends: where sorts of steps come in a cycle, the next graph
    begins where a cycle does, and is the same one again and again.

    Parameters
    ----------
    sorts
        Of each step.
    ran
        The sorts of steps that were launched one by one before.

    Examples
    --------
    >>> no, yes = (False,), (True,)
    >>> at_once([no, no, yes, no, no, yes, no], {no, yes}), at_once([no, no, yes], {no})
    (6, 2)
    >>> at_once([yes, no], {no}), at_once([()] * 4, {()})
    (0, 4)
    """
    count = next((number for number, sort in enumerate(sorts) if sort not in ran), len(sorts))
    sending = [number for number, sort in enumerate(sorts[:count]) if any(sort)]
    return sending[-1] + 1 if sending else count


class RepeatedPlan(Protocol):
    """A plan bound to sizes, whose steps a `Loop` runs.

    Attributes
    ----------
    device, plan, memory
        Where it runs, what it is, and its memory.
    """

    device: Any
    plan: Plan
    memory: PlanMemory

    def looped(self) -> Segment | None:
        """Return the one segment that all steps are in, or None where they need the host."""
        ...

    def feed_ranges(self) -> list[Range]:
        """Return the memory of the feeds."""
        ...

    def leave(self, steps: int) -> None:
        """Count queued steps, and make the caller's next work wait for them."""
        ...


class Loop:
    """Runs a bound plan's steps again and again.

    Parameters
    ----------
    bound
        Of one segment: nothing in it needs the host.
    rows
        The data that batches are taken of, or None where all steps have the same feeds. It is
        not kept alive.
    size, apart
        The rows of a batch, and how many lie between the beginnings of two.
    shuffled
        Whether rows are taken by the order.
    """

    def __init__(
        self,
        bound: RepeatedPlan,
        rows: Rows | None,
        size: int = 0,
        apart: int = 0,
        shuffled: bool = False,
    ) -> None:
        self.bound, self.size, self.shuffled = bound, size, shuffled
        self.rows_apart = apart
        self.device = bound.device
        segment = bound.looped()
        assert segment is not None
        self.segment, self.counts = segment, bound.memory.counts
        fetches = bound.plan.fetches
        self.results = [(bound.memory.at(value), int(value.type.bytes)) for value in fetches]
        self.feeds = [] if rows is None else bound.feed_ranges()
        spaces = [end - start for start, end in self.feeds] + [count for _, count in self.results]
        self.apart = [-(-count // ALIGNMENT) * ALIGNMENT for count in spaces]
        self.most = 1
        if all(hasattr(launch, "moved") for launch in segment.launches):
            by_launches = LAUNCHES // max(1, len(segment.launches))
            self.most = max(1, min(STEPS, by_launches, ROOM // max(1, sum(self.apart))))
        self._pools = [
            self.device.empty(self.most * max(1, apart)) for apart in self.apart if self.most > 1
        ]
        self._graphs: dict[tuple[Flags, ...], Any] = {}
        self._seconds = 0.0  # that a step of a whole graph takes, once known

    # ---- Graphs

    def _units(self, steps: Sequence[Flags], rows: Rows | None) -> list[Unit]:
        """Return the launches of steps, each with its flags."""
        count = len(steps)
        units = [] if rows is None else [self._gathering(count, rows)]
        for number, flags in enumerate(steps):
            units += self._step(number, flags)
        return units if rows is None else [*units, self._advancing(count, rows)]

    def _graph(self, steps: Sequence[Flags], rows: Rows | None) -> Any:
        key = tuple(map(self.segment.sort, steps))
        if key not in self._graphs:
            units = self._units(steps, rows)
            self._graphs[key] = captured(
                self.device, [unit.launch for unit in units], [unit.touched for unit in units]
            )
        return self._graphs[key]

    def _step(self, number: int, flags: Flags) -> list[Unit]:
        """Return the launches of one of a graph's steps, on its own feeds and results."""
        launches, touched, _ = self.segment.units(flags)
        if not self._pools:
            return [Unit(a, b) for a, b in zip(launches, touched, strict=True)]
        spaces = [*self.feeds, *((start, start + count) for start, count in self.results)]
        moves = [
            (start, end, int(pool.data.ptr) + number * apart)
            for (start, end), pool, apart in zip(spaces, self._pools, self.apart, strict=True)
        ]
        return moved([Unit(a, b) for a, b in zip(launches, touched, strict=True)], moves)

    def _place(self, position: int) -> int:
        """Return where the first step of a graph has a feed, or a result behind the feeds."""
        if self._pools:
            return int(self._pools[position].data.ptr)
        starts = [start for start, _ in (*self.feeds, *self.results)]
        return starts[position]

    def _gathering(self, count: int, rows: Rows) -> Unit:
        """Return what brings the rows of a graph's batches together."""
        order = rows.order if self.shuffled else None
        words = [0 if order is None else order.data.ptr, rows.counter.data.ptr, self.rows_apart]
        read = [_range(read_array) for read_array in (rows.counter, rows.order, *rows.arrays)]
        written = []
        for position, array in enumerate(rows.arrays):
            row = array.nbytes // max(1, len(array))
            start = self._place(position)
            words += [array.data.ptr, start, row, self.apart[position]]
            end = start + (count - 1) * self.apart[position] + self.size * row
            written.append((start, end))
        grid = (self.size, count, len(rows.arrays))
        return Unit(
            KernelCall(_kernels(self.device)[0], grid, (_THREADS, 1, 1), _words(words), ()),
            Touched(tuple(read), tuple(written)),
        )

    def _advancing(self, count: int, rows: Rows) -> Unit:
        """Return what moves the counter on."""
        words = _words([rows.counter.data.ptr, count])
        place = _range(rows.counter)
        call = KernelCall(_kernels(self.device)[1], (1, 1, 1), (1, 1, 1), words, ())
        return Unit(call, Touched((place,), (place,)))

    # ---- Running

    def run(self, count: int, rows: Rows | None, stacked: bool) -> list[Any]:
        """Run a number of steps, at least one, when variables and feeds are there.

        Returns
        -------
        list
            Each result in memory of its own: of all steps along a first axis, or of the last.
        """
        cupy, stream = self.device.cupy, self.device.stream
        lead = (count,) if stacked else ()
        done = 0
        with self.device.lock, self.device:
            targets = [
                self.device.array((*lead, *shape_of(value.type)), value.type.dtype)
                for value in self.bound.plan.fetches
            ]
            try:
                before = None
                queued = 0.0
                while done < count:
                    steps = self._launch(count - done, rows)
                    done += steps
                    self.counts.advance(steps)
                    if stacked or done == count:
                        self._collect(targets, done - steps, steps, stacked)
                    queued += self._seconds * steps
                    if queued > CHUNK:  # what is queued is never more than twice as much
                        mark = cupy.cuda.Event(disable_timing=True)
                        mark.record(stream)
                        if before is not None:
                            before.synchronize()
                        before, queued = mark, 0.0
            finally:
                self.bound.leave(done)
        return targets

    def _launch(self, left: int, rows: Rows | None) -> int:
        """Queue as many of the steps that are left as one graph has; return how many."""
        stream = self.device.stream
        flags = self.counts.coming(min(left, self.most))
        steps = at_once([self.segment.sort(each) for each in flags], self.segment.ran)
        if not steps:  # what runs for the first time may allocate
            for unit in self._units(flags[:1], rows):
                unit.launch(stream)
            self.segment.ran.add(self.segment.sort(flags[0]))
            return 1
        graph = self._graph(flags[:steps], rows)
        whole = steps == self.most or (bool(self.counts) and 2 * steps > self.most)
        if self._seconds or not whole:
            graph.launch(stream)
            return steps
        stream.synchronize()
        began = time.perf_counter()
        graph.launch(stream)
        stream.synchronize()
        self._seconds = (time.perf_counter() - began) / steps
        return steps

    def _collect(self, targets: Sequence[Any], first: int, steps: int, stacked: bool) -> None:
        """Copy the results of a graph's steps, or of the last of them."""
        runtime, stream = self.device.cupy.cuda.runtime, self.device.stream
        for position, ((_, count), target) in enumerate(
            zip(self.results, targets, strict=True), len(self.feeds)
        ):
            if not count:
                continue
            apart, start = self.apart[position], self._place(position)
            if stacked:
                runtime.memcpy2DAsync(
                    target.data.ptr + first * count, count, start, apart, count, steps,
                    DEVICE_TO_DEVICE, stream.ptr,
                )
            else:
                runtime.memcpyAsync(
                    target.data.ptr, start + (steps - 1) * apart, count, DEVICE_TO_DEVICE,
                    stream.ptr,
                )


def _range(array: Any) -> Range:
    return int(array.data.ptr), int(array.data.ptr) + max(1, int(array.nbytes))


def _words(values: Sequence[int]) -> np.ndarray:
    words = np.zeros(3 + 4 * MOST_FEEDS, np.int64)
    words[: len(values)] = values
    return words
