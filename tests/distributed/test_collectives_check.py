"""The check before a first run: ranks whose collectives do not fit each other are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.distributed.matching import Entry, play
from magmagraph.dtypes import canonical
from magmagraph.errors import CommunicationError, GraphError
from magmagraph.ir.communicator import Mesh


def values(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return whole numbers, whose sums are exact in every dtype."""
    return np.random.default_rng(seed).integers(-8, 8, size=shape).astype(canonical(dtype))


def mismatched() -> None:
    size = 3 + ranks.rank()
    x = mg.input("x", (size,))
    mg.function([x], ranks.allreduce(x), name="step", device="cpu")(np.ones(size))


def test_a_mismatch_is_named_before_any_step_runs() -> None:
    seen = []

    def job() -> None:
        x = mg.input("x", (3 + ranks.rank(),))
        watched = mg.debug.tap(x, seen.append)
        f = mg.function([x], ranks.allreduce(watched), name="step", device="cpu")
        with pytest.raises(CommunicationError) as raised:
            f(np.ones(3 + ranks.rank()))
        text = str(raised.value)
        assert "the function 'step'" in text
        assert "rank 0, collective 0: allreduce(float32[3], op=sum), at" in text
        assert "rank 1, collective 0: allreduce(float32[4], op=sum), at" in text
        assert "test_collectives_check.py" in text

    ranks.threads(2, job)
    assert not seen


def test_extents_that_differ_are_named_at_the_call() -> None:
    """Formulas are equal on all ranks; what they come to is known at a call only."""

    def job() -> None:
        x = mg.input("x", ("batch", 2))
        f = mg.function([x], ranks.allgather(x), device="cpu")
        assert f(np.ones((3, 2))).shape == (6, 2)
        with pytest.raises(CommunicationError) as raised:
            f(np.ones((3 + ranks.rank(), 2)))
        assert str(raised.value).startswith(
            "allgather is given extents (3, 2) on rank 0 and (4, 2) on rank 1; nothing has run"
        )
        assert f(np.ones((5, 2))).shape == (10, 2)

    ranks.threads(2, job)


def test_a_message_without_a_receiver_is_named() -> None:
    def job() -> None:
        x = mg.input("x", (3,))
        y = ranks.send(x, to=1, tag=5) if ranks.rank() == 0 else ranks.allreduce(x)
        with pytest.raises(CommunicationError, match="do not fit each other; no step has run"):
            mg.function([x], y, device="cpu")(np.ones(3))

    ranks.threads(2, job)


@pytest.mark.parametrize(
    ("formula", "difference"),
    [
        (
            lambda x, w: mg.sum(x @ w, axis=0) if ranks.rank() else mg.max(x @ w, axis=0),
            "node 3: max(%2): float32[2], at ",
        ),
        (lambda x, w: mg.sum(x @ w, axis=(0,) if ranks.rank() else (0, 1)), "sum(%2): float32[]"),
        (
            lambda x, w: mg.sum(x @ w) * 2.0 if ranks.rank() else mg.sum(x @ w),
            "rank 0, node 4: outputs and updates: %3\n  rank 1, node 4: ",
        ),
    ],
    ids=["operations", "types", "lengths"],
)
def test_graphs_that_differ_under_a_strategy_are_named(formula: Any, difference: str) -> None:
    """Before anything is broadcast or chosen together, which would answer another question."""

    def job() -> None:
        x = mg.input("x", ("batch", 5))
        w = mg.variable("w", init=np.ones((5, 2), np.float32))
        f = mg.function([x], formula(x, w), distribute=ranks.DataParallel(), device="cpu")
        with pytest.raises(CommunicationError) as raised:
            f(np.ones((4, 5), np.float32))
        text = str(raised.value)
        assert "differ, and `distribute=` cuts one graph; nothing has run\n  rank 0, " in text
        assert difference in text

    ranks.threads(2, job)


def test_a_group_that_is_no_name_is_refused() -> None:
    with pytest.raises(GraphError, match=r"group=5 names 5\n  expected: axes of the mesh: data"):
        Mesh(data=2).group(5)  # type: ignore[arg-type]


def test_variables_of_other_shapes_are_named_and_keep_their_values() -> None:
    def job() -> None:
        x = mg.input("x", ("batch", 5))
        values = np.full((5, 2 + ranks.rank()), ranks.rank(), np.float32)
        w = mg.variable("w", init=values)
        f = mg.function([x], mg.sum(x @ w), distribute=ranks.DataParallel(), device="cpu")
        with pytest.raises(CommunicationError, match=r"variable: float32\[5, 3\], at "):
            f(np.ones((4, 5), np.float32))
        np.testing.assert_array_equal(w.value, values)

    ranks.threads(2, job)


def test_ranks_with_roles_choose_for_themselves() -> None:
    """Rank 0 has forms of a product to choose between while it makes its plan, rank 1 has none."""

    def job() -> None:
        x = mg.input("x", (5,) if ranks.rank() else ("rows", 5))
        w = mg.variable("w", init=np.ones((5, 5), np.float32))
        if ranks.rank():
            f = mg.function([x], ranks.recv(x, 0), device="cpu")
            np.testing.assert_array_equal(f(np.zeros(5, np.float32)), np.full(5, 20.0))
        else:
            total = ranks.send(mg.sum(x @ w, axis=0), 1)
            mg.function([x], total, device="cpu")(np.ones((4, 5), np.float32))

    ranks.threads(2, job)


def test_two_that_wait_for_each_other_are_named() -> None:
    def job() -> None:
        x = mg.input("x", (3,))
        other = 1 - ranks.rank()
        f = mg.function([x], ranks.send(ranks.recv(x, other) * 2.0, other), device="cpu")
        with pytest.raises(CommunicationError, match=r"rank 1, collective 0: a message .* to 1"):
            f(np.ones(3))

    ranks.threads(2, job)


def test_a_collective_in_a_branch_is_refused_and_in_a_loop_is_not() -> None:
    def job() -> float:
        x, p = mg.input("x", (3,)), mg.input("p", dtype="bool")
        f = mg.function([x, p], mg.cond(p, lambda: ranks.allreduce(x), lambda: x), device="cpu")
        with pytest.raises(CommunicationError, match="is in a branch, or in a loop whose"):
            f(np.ones(3), True)
        total, _ = mg.scan(lambda c, v: (c + ranks.allreduce(v), c), mg.constant(0.0), x)
        return float(mg.function([x], total, device="cpu")(np.ones(3)))

    assert ranks.threads(2, job) == [6.0, 6.0]


def test_graphs_of_all_ranks_are_equal() -> None:
    def job() -> str:
        x = mg.input("x", ("batch", 4))
        W = mg.var("W", (4, 4), init=mg.init.zeros())
        loss = mg.sum(mg.tanh(mg.dropout(x, 0.5) @ W)) * ranks.index()
        gradient = ranks.allreduce(mg.grad(loss, W))
        f = mg.function([x], ranks.allreduce(loss), {W: W - gradient}, device="cpu")
        f(np.ones((2 + ranks.rank(), 4)))
        return mg.show(f.graph).text()

    first, *others = ranks.threads(3, job)
    assert all(text == first for text in others)


def test_the_player_finds_the_first_rank_that_hangs() -> None:
    def together(what: str, *members: int) -> Entry:
        return Entry(members, False, False, what, 0, "")

    pairs = [together("a", 0, 1), together("b", 2, 3), together("c", 0, 1, 2, 3)]
    fits = {0: [pairs[0], pairs[2]], 1: [pairs[0], pairs[2]]}
    fits |= {2: [pairs[1], pairs[2]], 3: [pairs[1], pairs[2]]}
    assert play(fits) == ""
    fits[3] = [pairs[2], pairs[1]]
    assert play(fits).splitlines()[:2] == ["rank 0, collective 1: c", "rank 1, collective 1: c"]
    assert play({0: [pairs[0]], 1: []}).splitlines() == [
        "rank 0, collective 0: a", "rank 1, collective 0: none: it is done",
    ]  # fmt: skip
