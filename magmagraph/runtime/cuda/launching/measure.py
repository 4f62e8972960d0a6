"""Measure the time of a bound plan on the device, without launch costs of the host."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

__all__ = ["burst", "seconds"]

QUEUED = 10  # runs in one captured graph
REPEATS = 5
BURST = 3  # launches of a burst
PAUSE = 150_000  # nanoseconds in which the host launches a burst


def burst(device: Any, launch: Callable[[], Any], stream: Any) -> float:
    """Return the microseconds of a launch among some that follow each other on a stream.

    A single burst may be disturbed, the first one by clocks that still rise: who compares runs
    several of each in turn, and takes the least.
    """
    event = device.cupy.cuda.Event
    launch()
    begin, end = event(), event()
    device.pause(stream, PAUSE)  # so that no launch is waited for in between
    begin.record(stream)
    for _ in range(BURST):
        launch()
    end.record(stream)
    end.synchronize()
    return float(device.cupy.cuda.get_elapsed_time(begin, end)) * 1e3 / BURST


def seconds(bound: Any) -> float:
    """Return the median seconds of a run among some in one captured graph.

    Parameters
    ----------
    bound
        A plan on a device that ran once, all of whose steps are kernels.

    Raises
    ------
    DeviceError
        A step runs as its array expression, which cannot be captured.
    """
    device = bound.device
    event = device.cupy.cuda.Event
    with device.lock, device:
        stream = device.cupy.cuda.Stream(non_blocking=True)
        device.scratch(stream)  # nothing may be allocated while it is captured
        bound.wait()
        with stream:
            bound.queue(stream)
            stream.synchronize()
            stream.begin_capture()
            try:
                for _ in range(QUEUED):
                    bound.queue(stream)
            finally:
                graph = stream.end_capture()
        taken = []
        for _ in range(REPEATS + 1):
            begin, end = event(), event()
            graph.launch(stream)  # while it runs, what is timed is queued
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            taken.append(device.cupy.cuda.get_elapsed_time(begin, end) / QUEUED * 1e-3)
    return float(statistics.median(taken[1:]))
