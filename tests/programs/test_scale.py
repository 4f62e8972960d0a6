"""Programs of 100,000 nodes: every stage takes them, and none visits a node too often.

`make test` takes a chain of 6,000, six times as deep as Python's stack may be.

Growth is counted, not timed: how often shape rules run, expressions are interned, nodes are
analysed. The times are in benchmarks/scale.py.
"""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.region import analysis as region
from magmagraph.ir.graph import Interner, Node
from magmagraph.ir.op import Op
from magmagraph.passes.rewriting.rewrite import Rewriter
from magmagraph.text.reading import load as load_text
from magmagraph.text.writing import dump

GROWTH = 4
SMALL = 2_000  # so many that the parts of graphs which make one kernel fill their bounds
LARGE = 100_000
DEEP = 6_000


def chain(count: int) -> tuple[Node, Node]:
    """Return an input and the end of a chain: sine and multiply in turn, no factor twice."""
    x = mg.var("x", shape=(4,))
    value = x
    for i in range(count // 2):
        value = mg.sin(value) * (1.0 + 1e-6 * i)
    return x, value


def woven(count: int) -> tuple[Node, Node]:
    """Return an input and a value at the end of a random graph of about so many nodes."""
    rng = random.Random(7)
    x = mg.var("x", shape=(4,))
    pool: list[Node] = [x]
    while len(pool) < count // 2:
        left, right = rng.choice(pool[-50:]), rng.choice(pool[-50:])
        if rng.random() < 0.5:
            pool.append(rng.choice((mg.sin, mg.tanh, mg.sigmoid))(left))
        else:
            pool.append(left * 0.5 + right * 0.5)
    value = pool[0]
    for other in pool[-50:]:
        value = value + other
    return x, value


class Counts(dict[str, int]):
    """How often methods were called, by a name."""

    def watch(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self[name] = self.get(name, 0) + 1
            return inner(*args, **kwargs)

        patch.setattr(owner, name, counted)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    monkeypatch.setattr(mg.config, "verify", False)  # it looks at every node after every pass
    monkeypatch.setattr(mg.config, "compiler", "off")
    found = Counts()
    found.watch(monkeypatch, Op, "infer")
    found.watch(monkeypatch, Interner, "make")
    found.watch(monkeypatch, Rewriter, "_apply")
    analyze = region._analyze

    def analyzed(body: Any, *also: Any) -> Any:
        found["analyzed nodes"] = found.get("analyzed nodes", 0) + len(body)
        return analyze(body, *also)

    monkeypatch.setattr(region, "_analyze", analyzed)
    return found


def taken(counts: Counts, stage: Callable[[], Any]) -> tuple[dict[str, int], Any]:
    """Return the counts of one stage, and what it gave."""
    counts.clear()
    result = stage()
    return dict(counts), result


def stages(make: Callable[[int], tuple[Node, Node]], size: int, counts: Counts) -> dict[Any, int]:
    """Return every count of every stage."""
    found: dict[Any, int] = {}

    def stage(name: str, action: Callable[[], Any]) -> Any:
        numbers, result = taken(counts, action)
        found.update({(name, what): number for what, number in numbers.items()})
        return result

    x, value = stage("build", lambda: make(size))
    gradient = stage("differentiate", lambda: mg.grad(mg.sum(value), x))
    f = stage("freeze", lambda: mg.function([x], [value, gradient]))
    stage("compile", f.compile)
    stage("run", lambda: f(np.full(4, 0.5)))
    text = stage("dump", lambda: dump(f.source_graph))
    stage("load", lambda: load_text(text))
    stage("copy", lambda: copy.deepcopy(f))
    stage("explain", lambda: str(f.explain(value)))
    return found


@pytest.mark.parametrize("make", [pytest.param(chain, marks=pytest.mark.slow), woven])
def test_no_stage_looks_at_a_node_more_often_in_a_larger_graph(
    make: Callable[[int], tuple[Node, Node]], counts: Counts
) -> None:
    small = stages(make, SMALL, counts)
    large = stages(make, GROWTH * SMALL, counts)
    assert small["compile", "_apply"] > 2 * SMALL  # the counters count
    assert small["compile", "analyzed nodes"] > SMALL
    for what, number in large.items():
        before = small.get(what, 0)
        assert number <= 1.2 * GROWTH * before + 200, f"{what}: {before} -> {number}"


def test_the_budget_bounds_the_analyses(counts: Counts) -> None:
    x = mg.var("x", shape=(16, 8))
    value = x
    for _ in range(60):
        value = value / (1.0 + mg.sum(value, axis=1, keepdims=True))
    numbers = []
    for budget in (60.0, 0.001):
        f = mg.function([x], value, compile_budget=budget)
        counted, _ = taken(counts, f.compile)
        numbers.append(counted["analyzed nodes"])
        reasons = {refusal.reason for refusal in f.report["fuse"].refusals}
        assert ("the limit on analyses is reached" in reasons) == (budget < 1.0)
    assert numbers[1] < numbers[0]


def run_everything(
    make: Callable[[int], tuple[Node, Node]], size: int, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    patch.setattr(mg.config, "verify", False)
    limit = sys.getrecursionlimit()
    x, value = make(size)
    gradient = mg.grad(mg.sum(value), x)
    f = mg.function([x], [value, gradient], compile_budget=1.0)
    f.compile()
    assert len(f.source_graph.nodes) > size
    feed = np.linspace(0.1, 0.4, 4, dtype=np.float32)
    forward, backward = f(feed)
    assert np.isfinite(forward).all() and np.isfinite(backward).all()
    if make is chain:
        wanted = feed.astype(np.float64)
        for i in range(size // 2):
            wanted = np.sin(wanted) * (1.0 + 1e-6 * i)
        np.testing.assert_allclose(forward, wanted, rtol=2e-3)
    text = dump(f.source_graph)
    assert dump(load_text(text)) == text
    assert len(str(f.plan).splitlines()) > len(f.plan.steps)
    assert "fused" in str(f.explain(value))
    f.save(folder / "large.magma")
    again = mg.load(folder / "large.magma")
    assert len(again.source_graph) == len(f.source_graph)
    assert len(pickle.loads(pickle.dumps(f)).source_graph) == len(f.source_graph)
    assert len(copy.deepcopy(f).source_graph) == len(f.source_graph)
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("size", [DEEP, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_every_stage_takes_a_long_chain(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert size > 5 * sys.getrecursionlimit()
    run_everything(chain, size, tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_random_graph_of_100_000_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_everything(woven, LARGE, tmp_path, monkeypatch)


DROP = """
import sys, threading
import magmagraph as mg
def dropped():
    value = mg.var("x", shape=(4,))
    for _ in range({count}):
        value = mg.negative(value)
    del value
threading.stack_size(256 * 1024)  # far less than the main thread has
thread = threading.Thread(target=dropped)
thread.start()
thread.join()
print("dropped")
"""


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_dropping_a_long_chain_needs_no_stack(count: int) -> None:
    code = DROP.format(count=count)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "dropped\n"), done.stderr
