"""The schedule: optimal on small graphs, never worse than standard orders on any."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Trace, freeze
from magmagraph.passes.lowering.overlap import Problem
from magmagraph.passes.lowering.schedule import (
    _depth_first,
    _greedy,
    _program,
    best_order,
    largest_live,
    live_profile,
    problem,
    schedule,
)


def random_problem(seed: int, count: int) -> Problem:
    """Return a random case: one buffer a step, up to three operands, some kept to the end."""
    rng = random.Random(seed)
    before = [
        tuple(sorted(rng.sample(range(step), min(step, rng.randint(0, 3)))))
        for step in range(count)
    ]
    sizes = tuple(rng.choice((1, 2, 4, 8, 16, 64)) for _ in range(count))
    read = {b for bs in before for b in bs}
    kept = frozenset(s for s in range(count) if s not in read or rng.random() < 0.1)
    return Problem(
        steps=tuple(range(count)),  # type: ignore[arg-type]
        before=tuple(before),
        makes=sizes,
        reads=tuple(before),
        sizes=sizes,
        maker=tuple(range(count)),
        kept=kept,
    )


def smallest_peak(case: Problem) -> int:
    """Return the least possible peak, by trying every order (memoized over finished sets)."""
    count = len(case.steps)

    def alive(done: int) -> int:
        total = 0
        for b in range(count):
            if done >> b & 1:
                needed = b in case.kept or any(
                    b in case.reads[s] for s in range(count) if not done >> s & 1
                )
                total += case.sizes[b] if needed else 0
        return total

    @functools.cache
    def best(done: int) -> int:
        if done == (1 << count) - 1:
            return 0
        options = []
        for s in range(count):
            if not done >> s & 1 and all(done >> b & 1 for b in case.before[s]):
                now = alive(done) + case.makes[s]
                options.append(max(now, best(done | 1 << s)))
        return min(options)

    return best(0)


@pytest.mark.parametrize("seed", range(200))
def test_small_graphs_get_an_optimal_order(seed: int) -> None:
    case = random_problem(seed, 2 + seed % 9)
    order = best_order(case)
    assert sorted(order) == list(range(len(case.steps)))
    assert largest_live(case, order) == smallest_peak(case)


@pytest.mark.parametrize("seed", range(20))
def test_larger_graphs_are_no_worse_than_standard_orders(seed: int) -> None:
    case = random_problem(1000 + seed, 60 + 10 * seed)
    chosen = largest_live(case, best_order(case))
    standard = (
        _program(case),
        _depth_first(case, largest_first=False),
        _greedy(case),
    )
    assert chosen <= min(largest_live(case, order) for order in standard)


@pytest.mark.parametrize("seed", range(20))
def test_every_order_respects_dependences(seed: int) -> None:
    case = random_problem(2000 + seed, 80)
    for order in (
        _program(case),
        _depth_first(case, largest_first=True),
        _depth_first(case, largest_first=False),
        _greedy(case),
        best_order(case),
    ):
        position = {step: at for at, step in enumerate(order)}
        assert len(position) == len(case.steps)
        assert all(position[b] < position[s] for s in position for b in case.before[s])


def test_steps_that_wait_for_each_other_are_named() -> None:
    """Without an order there is an error, and no search without end."""
    x = mg.var("x", shape=(3,))
    case = Problem(
        steps=(mg.exp(x), mg.sin(x), mg.cos(x)),
        before=((), (0, 2), (1,)),
        makes=(1, 1, 1),
        reads=((), (0,), (1,)),
        sizes=(1, 1, 1),
        maker=(0, 1, 2),
        kept=frozenset((2,)),
    )
    with pytest.raises(mg.GraphError, match="2 steps wait for each other") as caught:
        best_order(case)
    assert [line.split()[2] for line in str(caught.value).splitlines()[2:]] == ["sin,", "cos,"]


def test_profile_of_a_diamond() -> None:
    case = Problem(
        steps=(0, 1, 2, 3),  # type: ignore[arg-type]
        before=((), (0,), (0,), (1, 2)),
        makes=(4, 2, 3, 1),
        reads=((), (0,), (0,), (1, 2)),
        sizes=(4, 2, 3, 1),
        maker=(0, 1, 2, 3),
        kept=frozenset((3,)),
    )
    assert live_profile(case, (0, 1, 2, 3)) == [4, 6, 9, 6]


def test_readers_of_an_old_value_come_before_its_renewal() -> None:
    x = mg.input("x", shape=(4, 4))
    w = mg.variable("w", init=np.eye(4, dtype=np.float32))
    new = mg.matmul(x, w)
    other = mg.matmul(w, x)
    graph = freeze([x], [other], [(w, new)])
    ordered = schedule(graph, Trace(), options_of())
    assert ordered.order is not None
    position = {node: at for at, node in enumerate(ordered.order)}
    assert position[graph.outputs[0]] < position[graph.updates[0][1]]
    assert schedule(ordered, Trace(), options_of()) is ordered


def test_a_cycle_of_renewals_is_left_alone() -> None:
    a = mg.variable("a", init=np.eye(4, dtype=np.float32))
    b = mg.variable("b", init=np.eye(4, dtype=np.float32))
    graph = freeze([], [], [(a, mg.matmul(a, b)), (b, mg.matmul(b, a))])
    case = problem(graph, {})
    assert sorted(best_order(case)) == [0, 1]
