"""Pauses of the cyclic garbage collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.config import config
from magmagraph.ir import collection
from magmagraph.ir.collection import collection_paused
from magmagraph.ir.graph import freeze


def _called(scale: float) -> mg.Function:
    """Return a function that has run: with a state, and without a compiler steps in Python."""
    x = mg.input("x", ("n", 4))
    w = mg.variable("w", init=np.ones((4, 4), np.float32))
    loss = mg.mean(mg.tanh(x @ w * scale) ** 2)
    f = mg.function([x], loss, updates={w: w - 0.1 * mg.grad(loss, w)})
    f(np.ones((3, 4), np.float32))
    return f


@pytest.mark.parametrize("frozen", [0, 375])  # Python 3.12 begins with as many
def test_what_is_made_meanwhile_is_not_looked_at_when_it_ends(
    frozen: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    with collection_paused():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(20_000)]
    assert gc.isenabled()
    assert gc.get_count()[0] < 1000
    young = {id(held) for held in gc.get_objects(generation=0)}
    assert not young & {id(one) for one in made}


def test_what_a_program_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with collection_paused():
            made = [[] for _ in range(10)]  # type: ignore[var-annotated]
        assert gc.get_freeze_count() >= count - 100  # what was freed since
        assert made
    finally:
        gc.unfreeze()


@pytest.fixture
def looks(monkeypatch: Any) -> Iterator[list[int]]:
    """Full collections from now on; some thousand objects count as many."""
    gc.collect()
    monkeypatch.setattr(config, "compiler", "off")
    for name, value in (("_unseen", 0), ("_others", 0), ("_MANY", 2000)):
        monkeypatch.setattr(collection, name, value)
    found: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop" and about["generation"] == 2:
            found.append(about["collected"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


class _Cycle:
    def __init__(self, size: int) -> None:
        self.parts: list[Any] = [[self] for _ in range(size)]


def test_what_gathers_in_a_loop_of_pauses_goes(looks: list[int], monkeypatch: Any) -> None:
    """What a pause made counts as old, uncounted: cycles among it must go all the same."""
    others = len(gc.get_objects(generation=2)) - 1000
    monkeypatch.setattr(collection, "_objects", lambda: len(gc.get_objects(2)) - others)
    made = []
    for _ in range(20):
        with collection_paused():
            made.append(weakref.ref(_Cycle(1000)))
    assert sum(one() is not None for one in made) < 8
    assert len(looks) < 12


def test_what_is_freed_without_a_look_costs_none(looks: list[int], monkeypatch: Any) -> None:
    others = len(gc.get_objects(generation=2)) - 1000
    monkeypatch.setattr(collection, "_objects", lambda: len(gc.get_objects(2)) - others)
    for _ in range(20):
        with collection_paused():
            held = [[] for _ in range(1000)]  # type: ignore[var-annotated]
        del held
    assert not looks


def test_what_is_unseen_is_left_while_it_is_little(looks: list[int]) -> None:
    """A program that has many objects does not look at all of them for a few thousand."""
    made = []
    for _ in range(10):
        with collection_paused():
            made.append(weakref.ref(_Cycle(1000)))
    assert all(one() is not None for one in made)
    assert not looks


def test_functions_in_a_loop_leave_little(monkeypatch: Any) -> None:
    """What is left of a function for the next collection is some hundred objects, no memory."""
    monkeypatch.setattr(config, "compiler", "off")
    _called(0.5)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for i in range(10):
            _called(float(i))
        assert len(gc.get_objects()) - before < 10 * 300
    finally:
        gc.enable()


@pytest.mark.parametrize("compiler", ["off", "auto"])
def test_the_memory_of_a_function_is_free_with_it(compiler: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(config, "compiler", compiler)
    f = _called(0.5)
    bound, arena = weakref.ref(f._last), weakref.ref(f._last._arena)
    assert bound() is not None and arena() is not None
    gc.disable()
    try:
        del f
        assert bound() is None and arena() is None
    finally:
        gc.enable()


def test_nothing_is_collected_while_a_graph_is_frozen_and_printed(monkeypatch: Any) -> None:
    """Each full collection looks at every node: the first print would grow with their square."""
    x = mg.input("x", (4,))
    value: mg.Node = x
    for _ in range(5_000):
        value = mg.tanh(value)
    phases: list[str] = []

    def note(phase: str, _about: Any) -> None:
        phases.append(phase)

    gc.collect()
    gc.callbacks.append(note)
    threshold = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        phases.clear()
        text = str(freeze([x], [value]))
        assert len(phases) <= 8  # at the ends of pauses, one of each generation
        phases.clear()
        assert "more ..." in str(value)
        assert len(phases) <= 8
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
    assert text.count("\n") == 5_001
