"""Pauses of the cyclic garbage collection."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from magmagraph.collection import collection_paused


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
