"""A rank that fails, and goes on, leaves no other waiting: all raise, and the next call is right.

The jobs are called by ranks that are threads here, and by processes in tests/mpi.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.distributed import DataParallel, Mesh, PipelineParallel, rank, size, threads
from magmagraph.errors import CommunicationError, FeedError

DEVICE = "cpu"  # tests/gpu/ranks_agreeing.py calls the jobs with another
GOOD, WIDE = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)


def outcomes(call: Callable[[int], Any], calls: int = 4) -> list[str]:
    """Return what each of some calls gives: its value, or the first line of its error, and all."""
    told = []
    for number in range(calls):
        try:
            told.append(repr(call(number)))
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def _step(strategy: Any) -> tuple[Any, list[Any]]:
    x = mg.input("x", ("batch", 3))
    held = [mg.var("v", init=np.ones((3, 4))), mg.var("w", init=np.ones((4, 1)))]
    loss = mg.mean((mg.tanh(x @ held[0]) @ held[1]) ** 2)
    step = mg.optimizer.SGD(0.01).step(
        loss, held, inputs=[x], outputs=loss, device=DEVICE, distribute=strategy, name="step"
    )
    return step, held


def fed(strategy: Any, wrong: tuple[int, ...]) -> tuple[list[str], list[float]]:
    """Feed the last rank a wrong shape in some calls."""
    step, held = _step(strategy)
    last = rank() == size() - 1
    found = outcomes(lambda n: float(step(WIDE if last and n in wrong else GOOD)), 6)
    return found, [float(np.sum(h.value)) for h in held]


def check_fed(job: Callable[[tuple[int, ...]], list[Any]], ranks: int) -> None:
    """Compare a job in which a rank is fed what does not fit with one that leaves these calls."""
    wrong = (0, 2, 3)
    right = job(())
    right_calls, right_values = right[0]
    for number, (calls, values) in enumerate(job(wrong)):
        fine = [told for n, told in enumerate(calls) if n not in wrong]
        assert fine == right_calls[: len(fine)]
        for n in wrong:
            own = "FeedError: input 'x' (float32[batch, 3]) is fed an array of shape (4, 2)"
            assert calls[n].startswith("FeedError: ")
            assert own in calls[n]
            if number < ranks - 1:
                first = f"FeedError: rank {ranks - 1} of {ranks} has failed, and "
                assert calls[n].startswith(first)
        assert values != right_values  # three steps are not six
        assert values == job(wrong)[0][1]


STRATEGIES: dict[str, Callable[[], Any]] = {
    "rows": DataParallel,
    "ring": lambda: DataParallel(algorithm="ring"),
    "stages": lambda: PipelineParallel(2),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_feed_that_does_not_fit_is_refused_on_all_ranks(name: str) -> None:
    def job(wrong: tuple[int, ...]) -> list[Any]:
        return threads(2, lambda: fed(STRATEGIES[name](), wrong), timeout=20.0)

    check_fed(job, 2)


def _missing() -> list[str]:
    """Leave a feed out, name one that there is not, give out= of another shape."""
    x = mg.input("x", ("n",))
    f = mg.function([x], mg.distributed.allreduce(mg.sum(x)), device="cpu", name="f")
    calls = [
        lambda: f(),
        lambda: f(y=[1.0]),
        lambda: f([1.0], out=np.zeros(3, np.float32)),
        lambda: f(object()),
    ]
    return outcomes(lambda n: calls[n]() if rank() == 1 and n < 4 else float(f([1.0])), 5)


def test_whatever_a_rank_cannot_feed_is_told() -> None:
    first, second = threads(2, _missing, timeout=20.0)
    for one, other in zip(first[:4], second[:4], strict=True):
        assert one.startswith("FeedError: rank 1 of 2 has failed, and")
        assert other.partition("\n")[0] in one
    assert first[4] == second[4] == "2.0"


def _drawn() -> list[str]:
    """Let one rank's batches end with an error."""
    x = mg.input("x", ("n",))
    f = mg.function([x], mg.distributed.allreduce(mg.sum(x)), device="cpu", name="f")

    def batches() -> Any:
        yield [1.0]
        if rank() == 1:
            raise OSError("the file ends too early")
        yield [1.0]

    return outcomes(lambda n: f.run(batches()).tolist() if n == 0 else float(f([n])), 2)


def test_a_batch_that_cannot_be_had_is_told() -> None:
    first, second = threads(2, _drawn, timeout=20.0)
    assert second == ["OSError: the file ends too early", "2.0"]
    assert first[0].startswith("CommunicationError: rank 1 of 2 has failed, and no rank has ")
    assert "OSError: the file ends too early" in first[0]
    assert first[1] == "2.0"


class _Refuses(Exception):
    """Of a user's own code."""


class Positive(mg.Operation):
    """The operand itself, which must not be below zero."""

    no_gradient = "not needed here"

    def type(self, x: Any) -> Any:
        return x

    def numpy(self, x: np.ndarray) -> np.ndarray:
        if x.min() < 0:
            raise _Refuses("below zero")
        return x


def in_a_step(kind: str) -> tuple[list[str], float]:
    """Let a step fail on the last rank, between its messages, or behind them."""
    x = mg.input("x", ("batch", 3))
    w = mg.var("w", init=np.zeros(3, np.float32))
    spread = kind != "own code"  # rows of which could not be cut
    total = mg.mean(x, axis=0) if spread else mg.distributed.allreduce(mg.mean(x, axis=0))
    shifted = x + total  # a message before what fails
    if kind == "assertion":
        shifted = mg.debug.assert_(x > 0.0, shifted, "rows are positive")  # noqa: PT009
    elif kind == "own code":
        shifted = shifted + Positive()(x)
    rows = mg.sqrt(x) + shifted if kind == "nan" else shifted
    behind = mg.mean(abs(shifted), axis=0)
    f = mg.function(
        [x], rows, updates={w: w + (behind if spread else mg.distributed.allreduce(behind))},
        device=DEVICE, distribute=DataParallel() if spread else None,
        nan="raise" if kind == "nan" else "allow", name="f",
    )  # fmt: skip
    bad = np.full((4, 3), -9.0, np.float32)
    last = rank() == size() - 1
    found = outcomes(lambda n: f(bad if last and n == 1 else GOOD).tolist(), 3)
    return found, float(w.value[0])


def check_in_a_step(job: Callable[[], list[Any]], kind: str, ranks: int) -> None:
    """Check what all ranks say, and that none has changed its variable."""
    error = {"assertion": "CheckError", "nan": "NonFiniteError", "own code": "_Refuses"}[kind]
    *others, (own, value) = job()
    assert own[1].startswith(f"{error}: ")
    assert value > 0.0
    for told, theirs in others:
        kind_there = error if error != "_Refuses" else "CommunicationError"
        assert told[1].startswith(
            f"{kind_there}: rank {ranks - 1} of {ranks} has failed, and no rank has changed"
        )
        assert own[1].partition("\n")[0] in told[1]
        assert told[0] == told[2] == own[0] == own[2]
        assert theirs == value


@pytest.mark.parametrize("kind", ["assertion", "nan", "own code"])
def test_a_step_that_fails_on_one_rank_changes_no_variable(kind: str) -> None:
    check_in_a_step(lambda: threads(2, lambda: in_a_step(kind), timeout=20.0), kind, 2)


def _apart() -> list[str]:
    """Call what only pairs of ranks do: the others' calls are their own."""
    x = mg.input("x", ("n",))
    total = mg.distributed.allreduce(mg.sum(x), group=("tensor",))
    f = mg.function([x], total, device="cpu", name="f")
    found = [float(f([1.0]))]
    if rank() < 2:  # the pair of ranks 0 and 1
        found += outcomes(lambda n: float(f(None if rank() == 0 and n == 0 else [2.0])), 2)
    return found


def test_ranks_that_do_not_speak_to_each_other_do_not_wait() -> None:
    found = threads(4, _apart, mesh=Mesh(data=2, tensor=2), timeout=20.0)
    assert found[2] == found[3] == [2.0]
    assert found[0][2] == found[1][2] == "4.0"
    assert found[0][1].startswith("FeedError: input 'x'")
    assert found[1][1].startswith("FeedError: rank 0 of 2 has failed")


def test_a_function_that_does_not_speak_waits_for_nobody() -> None:
    def job() -> float:
        x = mg.input("x", ("n",))
        own = mg.function([x], mg.sum(x) + mg.distributed.index(()), device="cpu")
        own([1.0])  # ranks make the plan together
        return float(own([1.0])) if rank() == 1 else 0.0

    assert threads(2, job, timeout=20.0) == [0.0, 2.0]


def test_the_error_of_another_kind_is_one_of_communication() -> None:
    def job() -> str:
        x = mg.input("x", ("n",))
        f = mg.function([x], mg.distributed.allreduce(mg.sum(x)), device="cpu")

        class Broken:
            def __array__(self, *_: Any, **__: Any) -> Any:
                raise RuntimeError("no values")

        f([1.0])
        with pytest.raises((CommunicationError, FeedError, RuntimeError)) as caught:
            f(Broken() if rank() == 1 else [1.0])
        return f"{caught.type.__name__}: {caught.value}"

    first, second = threads(2, job, timeout=20.0)
    assert second.partition("\n")[0].partition(": ")[2] in first
