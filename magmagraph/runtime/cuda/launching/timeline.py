"""When the launches of a captured graph begin and end, each on its stream."""

from __future__ import annotations

import ctypes
from typing import Any

from .calls import driver, driver_function
from .segments import Segment, captured, placed

__all__ = ["timeline"]

_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: a node of the graph records it, and others may look at it


def timeline(segment: Segment) -> list[tuple[int, int, int, int]]:
    """Run a segment as a graph that notes times, and return them.

    Launches that overlap on one stream in other runs do not here. What they compute, they compute
    twice.

    Returns
    -------
    list of tuple
        For each launch its step of the plan, its stream, and the nanoseconds from the beginning of
        the graph to its begin and to its end.
    """
    device = segment.device
    record = driver_function("cuEventRecordWithFlags")
    if record is None or not segment.launches:
        return []
    event = device.cupy.cuda.Event
    placement = segment.placement()
    launches, touched, numbers = segment.units() if placement is None else segment.chosen()
    marks: list[list[Any]] = [[] for _ in launches]

    def mark(number: int, stream: Any) -> None:
        mark_event = event()
        failed = record(ctypes.c_void_p(mark_event.ptr), ctypes.c_void_p(stream.ptr), _EXTERNAL)
        driver().check_status(failed)
        marks[number].append(mark_event)

    placement = placement or placed(device, launches, touched)
    graph = captured(device, launches, touched, mark, placement)
    begun = event()
    for _ in range(2):  # the first run pays for what is loaded late
        begun.record(device.stream)
        graph.launch(device.stream)
    device.stream.synchronize()

    def since(mark: Any) -> int:
        return int(device.cupy.cuda.get_elapsed_time(begun, mark) * 1e6)

    return [
        (number, stream, since(first), since(last))
        for number, stream, (first, last) in zip(numbers, placement.chosen, marks, strict=True)
    ]
