"""A profile as a trace of Chrome's tracing page and of Perfetto.

The format is the JSON object format of Google's document "Trace Event Format": complete events
(``"ph": "X"``) with a beginning and a duration in microseconds, counters (``"C"``), and metadata
(``"M"``) that names processes and threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.graph import Node
from ..ir.plan import Role

Spans = Sequence[tuple[int, int, int, int]]

_PROCESS, _GRAPH = 1, 2
_KERNELS, _LINES, _COLLECTIVES = 1, 2, 3


def trace(
    steps: Sequence[Any],
    shares: Mapping[Node, float],
    *,
    live: Sequence[int] = (),
    spans: Spans = (),
    runs: int = 1,
    peaks: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the trace: kernels in sequence, and below them the lines that they compute.

    Where collectives run beside other steps, a row of their own shows each from where it is started
    to where it has been waited for.

    steps, live, spans, runs, peaks: As of `Profile`; `peaks` as plain values.
    shares: The time of each node.
    """
    events: list[dict[str, Any]] = [
        _named("process_name", 0, "magmagraph"),
        _named("thread_name", _KERNELS, "kernels"),
        _named("thread_name", _LINES, "lines"),
    ]
    if any(step.role is Role.WAIT for step in steps):
        events.append(_named("thread_name", _COLLECTIVES, "collectives under way"))
    started: dict[Any, tuple[int, int]] = {}
    begin = 0
    for step in steps:
        events.append(
            {
                "name": f"{step.step} {step.kernel}",
                "cat": step.kernel,
                "ph": "X",
                "pid": _PROCESS,
                "tid": _KERNELS,
                "ts": begin / 1e3,
                "dur": step.nanoseconds / 1e3,
                "args": {
                    key: value
                    for key, value in step.as_dict().items()
                    if key not in ("step", "kernel", "nanoseconds") and value is not None
                },
            }
        )
        events += _lines(step, shares, begin)
        what = (step.operations, step.nodes)
        if step.role is Role.COLLECTIVE:
            started[what] = step.step, begin
        elif step.role is Role.WAIT and what in started:
            number, since = started.pop(what)
            events.append(_under_way(step, number, since, begin + step.nanoseconds))
        if live:
            events.append(
                {
                    "name": "arena",
                    "ph": "C",
                    "pid": _PROCESS,
                    "tid": 0,
                    "ts": begin / 1e3,
                    "args": {"bytes": live[step.step]},
                }
            )
        begin += step.nanoseconds
    events += _spans(steps, spans)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "runs": runs,
            "peaks": peaks,
        },
    }


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _spans(steps: Sequence[Any], spans: Spans) -> list[dict[str, Any]]:
    """Return the launches of a captured graph, as a process of their own with a row a stream."""
    if not spans:
        return []
    events = [
        {"name": "process_name", "ph": "M", "pid": _GRAPH, "tid": 0,
         "args": {"name": "captured graph"}}
    ]
    said = {stream for step, stream, *_ in spans
            if steps[step].role is Role.COLLECTIVE}
    for stream in sorted({stream for _, stream, *_ in spans}):
        name = "collectives" if stream in said else f"stream {stream}"
        events.append({"name": "thread_name", "ph": "M", "pid": _GRAPH, "tid": stream + 1,
                       "args": {"name": name}})
    for step, stream, begin, end in spans:
        record = steps[step]
        events.append({
            "name": f"{step} {', '.join(record.operations[:3])}",
            "cat": record.kernel,
            "ph": "X",
            "pid": _GRAPH,
            "tid": stream + 1,
            "ts": begin / 1e3,
            "dur": (end - begin) / 1e3,
            "args": {"step": step},
        })
    return events


def _under_way(step: Any, number: int, begin: int, end: int) -> dict[str, Any]:
    """Return the time from the start of a collective to the end of the wait for it."""
    return {
        "name": f"{number} {', '.join(step.operations)}",
        "cat": "collective",
        "ph": "X",
        "pid": _PROCESS,
        "tid": _COLLECTIVES,
        "ts": begin / 1e3,
        "dur": (end - begin) / 1e3,
        "args": {"started": number, "awaited": step.step},
    }


def _lines(step: Any, shares: Mapping[Any, float], begin: int) -> list[dict[str, Any]]:
    """Return the time of a step shared out to the user's lines."""
    taken: dict[str, float] = {}
    for node in step.nodes:
        if node.line:
            line = f"{node.line.file.rpartition('/')[2]}:{node.line.number}"
            taken[line] = taken.get(line, 0.0) + shares[node]
    whole = sum(taken.values())
    events = []
    at = float(begin)
    for line, share in taken.items():
        length = step.nanoseconds * share / whole if whole else 0.0
        events.append(
            {
                "name": line,
                "cat": "line",
                "ph": "X",
                "pid": _PROCESS,
                "tid": _LINES,
                "ts": at / 1e3,
                "dur": length / 1e3,
                "args": {"step": step.step},
            }
        )
        at += length
    return events
