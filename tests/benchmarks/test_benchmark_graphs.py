"""What benchmarks measure in graphs keeps the memory that it works on; no device is needed."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class Graph:
    def __init__(self) -> None:
        self.launched = 0

    def launch(self, stream: Stream) -> None:
        self.launched += 1


class Stream:
    """A stream that captures nothing."""

    def __init__(self) -> None:
        self.graph = Graph()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def begin_capture(self) -> None:
        pass

    def end_capture(self) -> Graph:
        return self.graph


class Work:
    """What a graph has addresses of."""

    def __init__(self) -> None:
        self.queued = 0

    def queue(self, stream: Stream) -> None:
        self.queued += 1


def test_a_graph_of_a_benchmark_keeps_what_it_has_addresses_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    known = set(sys.modules)
    module: Any = importlib.import_module("cuda_precision")
    try:
        stream, work = Stream(), Work()
        launch = module.graph_of(stream, work.queue, 3)
        assert work.queued == 4, "once by itself, then as often as asked for"
        held = weakref.ref(work)
        del work
        gc.collect()
        assert held() is not None
        launch()
        assert stream.graph.launched == 1
        del launch
        gc.collect()
        assert held() is None
    finally:
        for name in {"cuda_precision", "common"} - known:
            sys.modules.pop(name, None)
