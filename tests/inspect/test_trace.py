"""Traces of profiles: what Chrome's tracing page and Perfetto ask of a file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import GraphError

REQUIRED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "args"},
}
METADATA = {"process_name", "thread_name", "process_labels", "process_sort_index",
            "thread_sort_index"}


def check_trace(trace: Any) -> None:
    """Raise unless a trace is one of the JSON object format of the "Trace Event Format"."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        kind = event["ph"]
        assert REQUIRED[kind] <= set(event), event
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        for key in ("ts", "dur"):
            if key in event:
                assert isinstance(event[key], (int, float))
                assert event[key] >= 0
        if kind == "M":
            assert event["name"] in METADATA
            assert isinstance(event["args"]["name"], str)
        elif kind == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
    # Complete events of a thread lie one behind the other, or inside of each other.
    for thread in {event["tid"] for event in trace["traceEvents"] if event["ph"] == "X"}:
        spans = sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in trace["traceEvents"]
            if event["ph"] == "X" and event["tid"] == thread
        )
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert begin >= end - 1e-6


def profiled() -> tuple[mg.Function, Any]:
    rng = np.random.default_rng(0)
    x = mg.var("x", shape=("batch", 6))
    w = mg.var("w", init=rng.normal(size=(6, 4)).astype(np.float32))
    loss = mg.mean(mg.tanh(x @ w))
    function = mg.function([x], loss, {w: w - 0.1 * mg.grad(loss, w)})
    return function, function.profile(rng.normal(size=(5, 6)).astype(np.float32))


def test_a_trace_is_of_the_format_and_complete(tmp_path: Path) -> None:
    function, profile = profiled()
    profile.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    check_trace(trace)
    events = trace["traceEvents"]
    kernels = [e for e in events if e["ph"] == "X" and e["cat"] != "line"]
    assert len(kernels) == len(function.plan.steps)
    assert [e["cat"] for e in kernels] == [step.kernel for step in profile]
    total = sum(event["dur"] for event in kernels)
    assert total == pytest.approx(profile.nanoseconds / 1e3)
    assert kernels[0]["args"]["bytes"] == profile.steps[0].bytes
    lines = [e for e in events if e["ph"] == "X" and e["cat"] == "line"]
    assert sum(event["dur"] for event in lines) == pytest.approx(total)
    assert {event["name"].rpartition(":")[0] for event in lines} == {Path(__file__).name}
    counters = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert counters == list(profile.live)


def test_the_check_sees_what_is_wrong() -> None:
    """The requirements are no empty ones: a trace without durations, or with overlaps, fails."""
    _, profile = profiled()
    for spoil in (
        lambda e: e.pop("dur"),
        lambda e: e.update(ts=-1.0),
        lambda e: e.update(dur=1e9),
        lambda e: e.update(ph="?"),
    ):
        trace = profile.to_trace()
        event = next(e for e in trace["traceEvents"] if e["ph"] == "X")
        spoil(event)
        with pytest.raises((AssertionError, KeyError)):
            check_trace(trace)


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    _, profile = profiled()
    with pytest.raises(GraphError) as raised:
        profile.save(tmp_path / "trace.html")
    assert str(raised.value) == (
        "trace.html: there are no traces of the form '.html'\n"
        "  expected: .json\n"
        "  try: trace.json"
    )
    assert list(tmp_path.iterdir()) == []
