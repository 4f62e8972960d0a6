"""What ranks of one machine lose to each other, and plans that know it."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.distributed import Sharing
from magmagraph.distributed.cost.costs import Compute, Form, Message, Start, Timeline, Wait
from magmagraph.distributed.cost.sharing import Phase, beside, slowed
from magmagraph.dtypes import tolerance
from magmagraph.errors import ConfigError
from magmagraph.ir.ranks import current

LOOSE = tolerance(np.dtype(np.float64), "reassoc")[0] * 1e3
LINKS = mg.distributed.Links(1e-6, 1e-10)


@pytest.mark.parametrize("late", [0.0, 3e-4, 2e-3])
def test_a_fit_finds_what_phases_were_made_of(rng, late):
    true = Sharing(4, 2.2, 3.1, late)
    phases = [
        Phase(kind, alone, true.seconds(alone, alone * kind) * float(rng.uniform(0.97, 1.03)))
        for kind in (False, True)
        for alone in (1e-3, 3e-3, 1e-2, 3e-2)
        for _ in range(3)
    ]
    found = Sharing.fit(4, phases, bandwidth=1e10)
    for alone in (2e-3, 2e-2):
        for memory in (0.0, 0.5 * alone, alone):
            got, wanted = found.seconds(alone, memory), true.seconds(alone, memory)
            assert abs(got / wanted - 1) < 0.05
    assert (found.ranks, found.bandwidth) == (4, 1e10)


def test_nobody_is_faster_beside_others():
    phases = [Phase(kind, t, 0.9 * t) for kind in (False, True) for t in (1e-3, 1e-2)]
    found = Sharing.fit(2, phases)
    assert (found.product, found.memory, found.late) == (1.0, 1.0, 0.0)


def test_one_length_is_not_enough():
    with pytest.raises(ConfigError, match="from 2 phases\n  expected: two lengths at least"):
        Sharing.fit(2, [Phase(False, 1e-3, 1e-3), Phase(True, 1e-3, 1e-3)])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ranks": 0}, "ranks=0"),
        ({"product": 0.0}, "product=0.0"),
        ({"memory": float("nan")}, "memory=nan"),
        ({"late": -1e-3}, "late=-0.001"),
        ({"bandwidth": "fast"}, "bandwidth='fast'"),
    ],
)
def test_wrong_numbers_are_refused(options, text):
    with pytest.raises(ConfigError, match=f"Sharing: {text}"):
        Sharing(**{"ranks": 2, "product": 1.0, "memory": 1.0, **options})


def test_each_meeting_waits_for_the_last_rank_once():
    told = Message(Form.REDUCTION, 100)
    work = Timeline(
        (
            Compute(1e-4), Start(1, told), Wait(1), Start(2, told), Wait(2), Compute(8e-3, 2e-3),
            Compute(2e-3), Start(3, told), Wait(3),
        )
    )  # fmt: skip
    sharing = Sharing(2, product=1.5, memory=2.0, late=1e-3)
    found = slowed(work, sharing)
    # A short phase is late by no more than it is long; without one there is nothing to be late by.
    taken = [e.seconds if isinstance(e, Compute) else type(e).__name__ for e in found.events]
    assert [t if isinstance(t, str) else round(t * 1e6) for t in taken] == [
        150, 100, "Start", "Wait", "Start", "Wait", 13000, 3000, 1000, "Start", "Wait"
    ]  # fmt: skip
    assert found.messages == work.messages
    wanted = sharing.seconds(1e-4) + sharing.seconds(1e-2, 2e-3)
    np.testing.assert_allclose(found.compute, wanted, rtol=LOOSE)


def _step() -> tuple[Any, np.ndarray]:
    x, w = mg.var("x", shape=("batch", 8)), mg.var("w", init=np.ones((8, 4), np.float32))
    step = mg.optimizer.SGD(0.01).step(mg.mean((x @ w) ** 2), [w], inputs=[x])
    return step, np.ones((64, 8), np.float32)


def test_a_plan_takes_it_for_its_number_of_ranks():
    step, feeds = _step()
    machine = mg.distributed.Machine(flops=1e9, bandwidth=1e30)
    options = {"devices": [1, 2, 4], "links": LINKS, "machine": machine, "algorithms": ["auto"]}
    plain = mg.distributed.plan(step, feeds, **options)
    two = Sharing(2, product=3.0, memory=1.0)
    found = mg.distributed.plan(step, feeds, **options, cores=2, sharing=two)
    ratios = [a.compute / b.compute for a, b in zip(found.proposals, plain.proposals, strict=True)]
    np.testing.assert_allclose(ratios, [1.0, 3.0, 2.0], rtol=LOOSE)
    with pytest.raises(ConfigError, match="sharing=3\n.*\n.*Sharing.measure"):
        mg.distributed.plan(step, feeds, **options, sharing=[3])


def test_a_plan_of_a_job_is_that_of_its_first_rank():
    def job() -> Any:
        step, feeds = _step()
        given = Sharing(2, product=1.5, memory=2.0)
        found = mg.distributed.plan(step, feeds, devices=[1, 2], repeats=2, sharing=given)
        return [(p.ranks, p.algorithm, p.seconds) for p in found.proposals]

    one, other = mg.distributed.threads(2, job)
    assert one == other


def test_what_fails_on_the_first_rank_is_raised_on_all():
    said = []

    def job() -> None:
        step, feeds = _step()
        given = Sharing(2, product=1.5, memory=2.0)
        with pytest.raises(ConfigError, match="distributed already") as caught:
            made = mg.distributed.DataParallel()
            step = mg.function(step.inputs, step.inputs[0], distribute=made, device="cpu")
            mg.distributed.plan(step, feeds, devices=[1, 2], repeats=1, sharing=given)
        said.append(str(caught.value))

    mg.distributed.threads(2, job)
    assert len(said) == 2


def test_the_others_sleep_while_some_work():
    order: list[str] = []
    lock = threading.Lock()

    def job() -> Any:
        held = current()
        workers = held.split(0 if held.rank < 2 else None)

        def work() -> int:
            time.sleep(0.05)
            with lock:
                order.append("worked")
            return workers.size

        found = beside(held, workers, work)
        with lock:
            order.append("slept" if workers is None else "went on")
        return found

    assert mg.distributed.threads(4, job) == [2, 2, None, None]
    assert order.index("worked") < order.index("slept")
