"""What handlers, finalizers and callbacks may do between two instructions of a call."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from interleaving import interrupt_at, places, run_with

import magmagraph as mg

FIRST, SECOND = (np.arange(6, dtype=np.float32) * scale for scale in (1.0, -7.0))
COMPILERS = ["auto", "off"]
STRIDES = {"auto": 1, "off": 3}  # without a compiler a call has thousands of instructions


class Stop(BaseException):
    """What is raised in the middle of a call."""


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(mg.config, "compiler", request.param)
    return str(request.param)


def _reading(kind: str) -> Any:
    """Return a function that changes nothing, whose plan is one call of C, or has host steps."""
    x = mg.input("x", shape=("n",))
    weight = mg.var("weight", init=np.float32(2.0))
    y = mg.sort(x) * weight + 1.0 if kind == "host" else mg.exp(x * 0.1) * weight
    return mg.function([x], [y, mg.sum(y)])


def _updating(kind: str) -> tuple[Any, list[Any]]:
    """Return a function that counts in several variables, and these."""
    x = mg.input("x", shape=("n",))
    counts = [mg.var(f"count{i}", init=np.zeros(n, np.float32)) for i, n in enumerate((3, 70, 1))]
    y = mg.sort(x) if kind == "host" else x
    total = mg.sum(y * 0.0)
    updates = {count: count + 1.0 + total for count in counts}
    return mg.function([x], mg.sum(y), updates=updates), counts


@pytest.mark.parametrize("kind", ["one call", "host"])
def test_a_call_within_a_call_reads_and_answers(kind: str, compiler: str) -> None:
    """A second call in the same thread has memory of its own, wherever it begins."""
    f = _reading(kind)
    wanted = [np.array(value) for value in f(FIRST)]
    inner = [np.array(value) for value in f(SECOND)]

    def act() -> None:
        for got, value in zip(f(SECOND), inner, strict=True):
            np.testing.assert_array_equal(got, value)

    count = 0
    for number, result in places(lambda: f(FIRST), act, STRIDES[compiler]):
        count += 1
        for got, value in zip(result, wanted, strict=True):
            np.testing.assert_array_equal(got, value, err_msg=f"at instruction {number}")
    assert count > 20


def test_a_call_within_a_call_of_other_sizes(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the two may be the one that binds a plan, and evicts another."""
    monkeypatch.setattr(mg.config, "specializations", 2)
    sizes = iter(range(1, 10_000))
    f = _reading("one call")
    f(FIRST)

    def call() -> Any:
        return f(np.ones(next(sizes), np.float32))

    def act() -> None:
        size = next(sizes)
        assert len(f(np.zeros(size, np.float32))[0]) == size

    for number in range(0, 4000, 211):
        result, _ = run_with(call, act, number)
        assert (np.array(result[0]) == result[0][0]).all() and len(result[0]) > 0


@pytest.mark.parametrize("kind", ["one call", "host"])
def test_a_call_within_a_call_that_updates_is_refused(kind: str, compiler: str) -> None:
    """It is refused or counted: no update is lost, and the call around it is right."""
    f, counts = _updating(kind)
    wanted = f(FIRST)
    answered, refused = 0, 0

    def act() -> None:
        nonlocal answered, refused
        try:
            f(SECOND)
            answered += 1
        except mg.ReentrantError:
            refused += 1

    done = 1
    for number, result in places(lambda: f(FIRST), act, STRIDES[compiler]):
        done += 1
        assert result == wanted, number
        for count in counts:
            assert (count.value == done + answered).all(), number
    assert refused > 20
    f(FIRST)  # the last of the loop ran without an act


def test_what_refuses_an_inner_call_comes_out_of_the_outer_one() -> None:
    """A handler's error ends the call that it interrupts, and nothing is changed."""
    f, (count, *_) = _updating("one call")
    f(FIRST)
    with pytest.raises(mg.ReentrantError, match="finalizer or callback .* updates variables"):
        run_with(lambda: f(FIRST), lambda: f(FIRST), 12)
    assert (count.value == 1.0).all()
    f(FIRST)
    assert (count.value == 2.0).all()


def test_finalizers_and_collections_may_call_too() -> None:
    """A callback of a weak reference, and an object's own finalizer in a cycle."""
    f = _reading("host")
    wanted = np.array(f(SECOND)[0])
    seen: list[bool] = []

    class Finalized:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            seen.append((f(SECOND)[0] == wanted).all())

    def act() -> None:
        Finalized()
        gc.collect()
        thing = Finalized()
        watch = weakref.ref(thing, lambda _: seen.append((f(SECOND)[0] == wanted).all()))
        del thing.own, thing
        assert watch() is None

    expected = np.array(f(FIRST)[0])
    for number in range(0, 400, 40):
        result, _ = run_with(lambda: f(FIRST), act, number)
        np.testing.assert_array_equal(result[0], expected)
    assert len(seen) >= 15 and all(seen)


def test_an_operation_of_the_host_may_call_its_own_function() -> None:
    class Triangle(mg.Operation):
        """Add all numbers up to one."""

        def type(self, x: Any) -> Any:
            return x

        def numpy(self, x: Any) -> Any:
            return x + f(x - 1.0)[0] if x[0] > 0 else x

    x = mg.input("x", shape=(1,))
    f = mg.function([x], [Triangle()(x) * 2.0])
    assert f([0.0])[0][0] == 0.0
    assert f([3.0])[0][0] == 2.0 * (3.0 + 2.0 * (2.0 + 2.0 * 1.0))


def test_measuring_within_a_call_is_refused() -> None:
    f = _reading("one call")
    f(FIRST)
    with pytest.raises(mg.ReentrantError, match="compiled or measured"):
        run_with(lambda: f(FIRST), lambda: f.profile(FIRST), 30)
    with pytest.raises(mg.ReentrantError, match="not compiled yet"):
        fresh = _reading("one call")
        run_with(lambda: fresh(FIRST), lambda: fresh(FIRST), 300)
    assert len(fresh(FIRST)[0]) == len(FIRST)


@pytest.mark.parametrize("kind", ["one call", "host"])
def test_an_error_between_any_two_instructions_changes_all_or_nothing(
    kind: str, compiler: str
) -> None:
    """As Python raises what `PyThreadState_SetAsyncExc` sets, wherever the call is then."""
    f, counts = _updating(kind)
    f(FIRST)

    done, number, reached = 1, 0, True
    while reached:
        versions = [count.attrs["state"].version for count in counts]
        with contextlib.suppress(Stop):  # where the call has ended
            reached = interrupt_at(lambda: f(FIRST), Stop, number)
        values = {float(value) for count in counts for value in np.unique(count.value)}
        assert values in ({done}, {done + 1}), f"at instruction {number}: {values}"
        changed = values == {done + 1}
        for count, version in zip(counts, versions, strict=True):
            assert count.attrs["state"].version == version + changed, number
        done += changed
        number += STRIDES[compiler]
    assert number > 50
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(f(FIRST)), daemon=True)
    thread.start()
    thread.join(60.0)
    assert answer, "a lock was left held"
