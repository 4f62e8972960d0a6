"""Messages between ranks that are threads, objects, parts of the ranks; ranks that fail."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import distributed as ranks
from magmagraph.errors import CommunicationError
from magmagraph.ir.ranks import current


def test_messages_and_their_gradients() -> None:
    """Two ranks with roles: one has the weights, the other the loss."""

    def job() -> list[np.ndarray]:
        x = mg.input("x", (3,))
        if ranks.rank() == 0:
            W = mg.var("W", init=np.ones(3, np.float32))
            loss = mg.sum(ranks.send(W * x, to=1)) * 0.0
            gradient = mg.grad(loss, W)
        else:
            loss = mg.sum(mg.square(ranks.recv(x, source=0)))
            gradient = mg.grad(loss, x)
        found: list[np.ndarray] = mg.function([x], [loss, gradient], device="cpu")([0.0, 1.0, 2.0])
        return found

    (_, of_weights), (loss, of_template) = ranks.threads(2, job)
    assert loss == 5.0
    assert of_weights.tolist() == [0.0, 2.0, 8.0]  # 2 (W x) x
    assert of_template.tolist() == [0.0, 0.0, 0.0]


def test_barriers_and_sends_stay_where_nobody_reads_what_they_pass_on() -> None:
    def job() -> int:
        x = mg.input("x")
        f = mg.function([x], ranks.barrier(x) + 1.0, device="cpu")
        assert f(1.0) == 2.0
        return sum(step.kernel == "collective" for step in f.plan.steps)

    assert ranks.threads(2, job) == [1, 1]


def test_objects_are_posted_and_polled() -> None:
    def job() -> Any:
        world = current()
        if world.rank:
            world.post({"from": world.rank}, 0, tag=7)
            return None
        found = []
        while len(found) < 2:
            arrived = world.poll(tag=7)
            if arrived is not None:
                found.append(arrived)
        assert world.poll(tag=8) is None
        return sorted(found, key=lambda pair: pair[0])

    assert ranks.threads(3, job)[0] == [(1, {"from": 1}), (2, {"from": 2})]


def test_ranks_split_by_colour() -> None:
    def job() -> Any:
        world = current()
        part = world.split(None if world.rank == 3 else world.rank % 2, key=-world.rank)
        return None if part is None else part.exchange(world.rank)

    assert ranks.threads(4, job) == [[2, 0], [1], [2, 0], None]


# ---- Failure


def test_the_error_of_a_rank_ends_all_and_names_it() -> None:
    def job() -> None:
        if ranks.rank() == 1:
            raise KeyError("gone")
        current().barrier()

    began = time.monotonic()
    with pytest.raises(KeyError) as raised:
        ranks.threads(3, job)
    assert raised.value.__notes__ == ["raised by rank 1 of 3"]
    assert time.monotonic() - began < 30


def test_a_rank_that_does_not_come_is_named() -> None:
    def job(seconds: float) -> None:
        if ranks.rank() == 0:
            current().barrier()
        time.sleep(seconds)

    with pytest.raises(CommunicationError, match="rank 0 waits in a barrier for rank 1, for 0.2 s"):
        ranks.threads(2, lambda: job(1.0), timeout=0.2)
    # One that has ended will not come: nobody waits for the time to run out.
    with pytest.raises(CommunicationError, match="in a barrier for rank 1; rank 1 has ended"):
        ranks.threads(2, lambda: job(0.0), timeout=30.0)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (lambda world, x: world.allreduce(x, "max"), "max over ranks of float32[3]"),
        (lambda world, x: world.broadcast(x, 0), "a broadcast from 0 of float32[3]"),
        (lambda world, x: world.allreduce(x[:2], "sum"), "sum over ranks of float32[2]"),
        (lambda world, x: world.allreduce(x.astype("f8"), "sum"), "sum over ranks of float64[3]"),
    ],
    ids=["operation", "collective", "shape", "dtype"],
)
def test_ranks_in_different_collectives_are_told_so(other: Any, told: str) -> None:
    def job() -> Any:
        x = np.arange(3, dtype=np.float32)
        world = current()
        return other(world, x) if world.rank else world.allreduce(x, "sum")

    with pytest.raises(CommunicationError) as caught:
        ranks.threads(2, job)
    first, second = ("rank 0 is in sum over ranks of float32[3]", f"rank 1 in {told}")
    turned = (f"rank 1 is in {told}", "rank 0 in sum over ranks of float32[3]")
    assert str(caught.value).startswith((f"{first}, {second}", ", ".join(turned)))
