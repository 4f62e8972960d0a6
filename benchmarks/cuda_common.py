"""What the benchmarks on a CUDA device share: the device's facts, graphs, medians of events."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import cupy


def device_facts() -> dict[str, Any]:
    """Return what the numbers depend on beside the host."""
    facts = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "gpu": facts["name"].decode(),
        "multiprocessors": facts["multiProcessorCount"],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "runtime": cupy.cuda.runtime.runtimeGetVersion(),
    }


def microseconds(stream: Any, run: Callable[[], Any], count: int, repeats: int = 9) -> float:
    """Return the median microseconds of `count` units of work that `run` queues, a unit."""
    for _ in range(2):
        run()
    taken = []
    for _ in range(repeats):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        run()
        end.record(stream)
        end.synchronize()
        taken.append(cupy.cuda.get_elapsed_time(begin, end) / count * 1e3)
    return statistics.median(taken)


def in_graph(stream: Any, queue: Callable[[], Any], count: int) -> float:
    """Return the microseconds of a unit of work among `count` in one CUDA graph."""
    with stream:
        queue()
        stream.synchronize()
        stream.begin_capture()
        for _ in range(count):
            queue()
        graph = stream.end_capture()
    return microseconds(stream, lambda: graph.launch(stream), count)


def torch_in_graph(torch: Any, run: Callable[[], Any], count: int) -> float:
    """Return the same of what torch queues."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(count):
                run()
        outside = cupy.cuda.Stream.from_external(stream)
        return microseconds(outside, graph.replay, count)
