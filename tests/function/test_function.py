"""`mg.function`: feeds, structures, updates, ownership of results, specializations, copies."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.function.epochs import joined


@pytest.fixture
def x() -> mg.Node:
    return mg.var("x", shape=("batch", 3))


def test_feeds_by_position_name_and_node(x: mg.Node) -> None:
    y = mg.var("y", shape=(3,))
    f = mg.function([x, y], x * y)
    a, b = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    for result in (f(a, b), f(a, y=b), f({x: a, "y": b}), f(x=a, y=b)):
        np.testing.assert_array_equal(result, a * b)


def test_names_of_feeds_stand_in_any_order_and_mean_one_input(x: mg.Node) -> None:
    y = mg.var("y", shape=(3,))
    f = mg.function([x, y], x - y)
    a, b = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(f(y=b, x=a), a - b)
    with pytest.raises(mg.FeedError, match="there is no input named 'z'"):
        f(x=a, z=b)
    twins = mg.function([x, mg.var("x", shape=(3,))], x * 2.0)
    with pytest.raises(mg.FeedError, match="two inputs are named 'x'"):
        twins(x=a, y=b)


def test_converted_feeds_of_the_sizes_of_before_run_what_is_bound(
    x: mg.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = mg.function([x], x * 2.0)
    f(np.ones((2, 3), np.float32))
    monkeypatch.setattr(f, "_specialize", None)  # nothing is looked for
    for feed in (np.ones((2, 3)), [[1.0] * 3] * 2, np.ones((3, 2), np.float32).T):
        np.testing.assert_array_equal(f(feed), np.full((2, 3), 2.0, np.float32))
    with pytest.raises(TypeError):
        f(np.ones((4, 3)))


def test_structures_of_outputs(x: mg.Node) -> None:
    a = np.ones((1, 3), np.float32)
    double, triple = x * 2.0, x * 3.0
    assert mg.function([x], None)(a) is None
    assert mg.function([x], [])(a) == []
    assert isinstance(mg.function([x], double)(a), np.ndarray)
    out = mg.function([x], {"two": double, "more": [triple, (double,)]})(a)
    assert set(out) == {"two", "more"}
    assert float(out["more"][0][0, 0]) == 3.0
    assert isinstance(out["more"][1], tuple)


def test_results_are_owned_by_the_caller(x: mg.Node) -> None:
    f = mg.function([x], [x + 1.0, x])
    first = f(np.zeros((2, 3)))
    kept = [array.copy() for array in first]
    view = first[0][1:]
    del first
    for value in range(1, 6):
        f(np.full((2, 3), float(value)))
    np.testing.assert_array_equal(view, kept[0][1:])


def test_buffers_are_used_again_once_dropped(x: mg.Node) -> None:
    f = mg.function([x], x + 1.0)
    feed = np.zeros((2, 3), np.float32)
    addresses = {f(feed).ctypes.data for _ in range(10)}
    assert len(addresses) == 1


def test_an_output_that_is_an_input_a_variable_or_a_constant_is_copied(x: mg.Node) -> None:
    w = mg.var("w", init=np.ones(3, np.float32))
    f = mg.function([x], [x, w, mg.constant(7.0), x])
    feed = np.zeros((2, 3), np.float32)
    a, b, c, d = f(feed)
    a[...] = 5.0
    b[...] = 5.0
    assert feed.max() == 0.0
    assert d.max() == 0.0
    assert w.value.max() == 1.0
    assert float(c) == 7.0


def test_out_receives_the_results(x: mg.Node) -> None:
    f = mg.function([x], [x + 1.0])
    target = np.empty((2, 3), np.float32)
    (result,) = f(np.ones((2, 3), np.float32), out=[target])
    assert result is target
    assert target.max() == 2.0
    same = np.ones((2, 3), np.float32)
    f(same, out=[same])
    assert same.max() == 2.0


def test_out_may_share_memory_with_feeds_and_be_no_block() -> None:
    n = 100_000  # several threads, several strips
    x, y = mg.var("x", shape=(n,)), mg.var("y", shape=(n,))
    f = mg.function([x, y], [mg.flip(x) + y, x - mg.flip(y)])
    memory = np.arange(4 * n, dtype=np.float32)
    one, two = memory[:n].copy(), memory[n : 2 * n].copy()
    expected = [one[::-1] + two, one - two[::-1]]
    # Over the feeds, over a part of one, over each other's neighbour, and with gaps.
    for first, second in (
        (memory[:n], memory[n : 2 * n]),
        (memory[n // 2 : n // 2 + n], memory[2 * n : 3 * n]),
        (memory[2 * n : 3 * n], memory[3 * n :]),
        (np.zeros(2 * n, np.float32)[::2], np.zeros(n, np.float64)),
    ):
        memory[:n], memory[n : 2 * n] = one, two
        found = f(memory[:n], memory[n : 2 * n], out=[first, second])
        assert found[0] is first
        assert found[1] is second
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_out_has_memory_of_its_own_for_each_result() -> None:
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=np.zeros(3, np.float32))
    f = mg.function([x], [x + 1.0, x * 2.0], updates={w: w + x})
    feed = np.ones(3, np.float32)
    one, memory = np.full(3, 7.0, np.float32), np.full(5, 7.0, np.float32)
    for out, told in (
        ([one, one], "are the same array"),
        ([memory[:3], memory[2:]], "share memory"),
        ([memory[2::-1], memory[2:]], "share memory"),
        ([memory[::2], memory[:3]], "share memory"),
    ):
        with pytest.raises(mg.FeedError) as caught:
            f(feed, out=out)
        assert str(caught.value) == (
            f"out[0] and out[1] {told}: one result would overwrite the other\n"
            "  expected: memory of its own for each output\n"
            "  try: out[1] = np.empty_like(out[1])"
        )
    assert one.tolist() == [7.0] * 3 and memory.tolist() == [7.0] * 5
    assert w.value.max() == 0.0  # a refused call changes no variable
    columns = np.zeros((3, 2), np.float32)
    f(feed, out=[columns[:, 1], columns[:, 0]])  # side by side, and yet apart
    assert columns.tolist() == [[2.0, 2.0]] * 3


def test_out_gets_nothing_of_a_call_that_is_refused() -> None:
    x = mg.var("x", shape=(3,))
    f = mg.function([x], mg.log(x), nan="raise")
    target = np.full(3, 7.0, np.float32)
    with pytest.raises(mg.NonFiniteError):
        f(np.zeros(3, np.float32), out=target)
    assert target.tolist() == [7.0, 7.0, 7.0]


def test_updates_see_the_values_of_before() -> None:
    a, b = mg.var("a", init=1.0), mg.var("b", init=2.0)
    total = a + b
    f = mg.function([], [a, total], updates={a: b, b: a})
    old, both = f()
    assert (float(old), float(both)) == (1.0, 3.0)
    assert (float(a.value), float(b.value)) == (2.0, 1.0)


def test_a_chain_of_updates_uses_old_values() -> None:
    a = mg.var("a", init=np.eye(4, dtype=np.float32) * 2.0)
    b = mg.var("b", init=np.eye(4, dtype=np.float32) * 3.0)
    f = mg.function([], None, updates={a: a @ b, b: b @ a, })
    f()
    np.testing.assert_array_equal(a.value, np.eye(4) * 6.0)
    np.testing.assert_array_equal(b.value, np.eye(4) * 6.0)


def test_an_update_that_is_also_returned(x: mg.Node) -> None:
    w = mg.var("w", init=np.zeros(3, np.float32))
    new = w + mg.sum(x, axis=0)
    f = mg.function([x], [new, w], updates={w: new})
    after, before = f(np.ones((2, 3), np.float32))
    assert after.max() == 2.0
    assert before.max() == 0.0
    assert w.value.max() == 2.0


def test_a_new_size_is_a_specialization(x: mg.Node) -> None:
    f = mg.function([x], mg.sum(x))
    for rows in (2, 5, 2):
        assert float(f(np.ones((rows, 3)))) == 3 * rows
    assert [sizes for sizes, _ in f.specializations] == [{"batch": 5}, {"batch": 2}] or [
        sizes for sizes, _ in f.specializations
    ] == [{"batch": 2}, {"batch": 5}]
    assert any("batch: 2 -> 5" in cause for _, cause in f.specializations)


def test_specializations_are_bounded(x: mg.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "specializations", 3)
    f = mg.function([x], mg.sum(x))
    for rows in range(1, 9):
        f(np.ones((rows, 3)))
    assert len(f.specializations) == 3


def test_zero_rows(x: mg.Node) -> None:
    f = mg.function([x], [x * 2.0, mg.sum(x, axis=0)])
    doubled, total = f(np.ones((0, 3), np.float32))
    assert doubled.shape == (0, 3)
    np.testing.assert_array_equal(total, np.zeros(3))


def test_noncontiguous_and_foreign_feeds(x: mg.Node) -> None:
    f = mg.function([x], x * 2.0)
    whole = np.arange(24, dtype=np.float64).reshape(3, 8).T
    np.testing.assert_array_equal(f(whole), whole.astype(np.float32) * 2)
    np.testing.assert_array_equal(f([[1, 2, 3]]), [[2.0, 4.0, 6.0]])


def test_run_stacks_the_outputs(x: mg.Node) -> None:
    w = mg.var("w", init=0.0)
    f = mg.function([x], [mg.sum(x), w], updates={w: w + 1.0})
    sums, counts = f.run([(np.full((1, 3), float(i)),) for i in range(4)])
    np.testing.assert_array_equal(sums, [0.0, 3.0, 6.0, 9.0])
    np.testing.assert_array_equal(counts, [0.0, 1.0, 2.0, 3.0])
    last = f.run(2, {x: np.ones((1, 3))}, keep="last")
    assert float(last[1]) == 5.0


def test_stacked_outputs_stay_on_their_device() -> None:
    """CuPy makes an array on the current device, whatever it is made of."""
    current = ["the first"]

    class Device:
        def __enter__(self) -> None:
            current.append("the second")

        def __exit__(self, *reason: object) -> None:
            current.pop()

    class Array(np.ndarray):
        device = Device()

        def __new__(cls, *arguments: object) -> Array:
            made = super().__new__(cls, *arguments)
            made.place = current[-1]
            return made

    with Array.device:
        steps = [Array((2,), np.float32) for _ in range(3)]
    for number, step in enumerate(steps):
        step[...] = number
    found = joined([step.reshape(1, 2) for step in steps])
    assert found.place == "the second"
    assert current == ["the first"]
    np.testing.assert_array_equal(np.asarray(found), [[0.0] * 2, [1.0] * 2, [2.0] * 2])


def test_pickle_and_deepcopy_keep_meaning(x: mg.Node) -> None:
    w = mg.var("w", init=np.arange(3, dtype=np.float32))
    f = mg.function([x], {"y": x * w}, updates={w: w + 1.0})
    feed = np.ones((2, 3), np.float32)
    f(feed)
    for other in (pickle.loads(pickle.dumps(f)), copy.deepcopy(f)):
        expected = feed * (np.arange(3) + 1)
        np.testing.assert_array_equal(other(feed)["y"], expected)
    np.testing.assert_array_equal(w.value, np.arange(3) + 1)


def test_several_threads_may_call(x: mg.Node) -> None:
    w = mg.var("w", init=np.int64(0))
    f = mg.function([x], mg.sum(x), updates={w: w + np.int64(1)})
    results: list[float] = []

    def work() -> None:
        for _ in range(50):
            results.append(float(f(np.ones((4, 3), np.float32))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [12.0] * 200
    assert int(w.value) == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_call(x: mg.Node) -> None:
    f = mg.function([x], mg.sum(mg.exp(x)))
    feed = np.zeros((300, 3), np.float32)
    assert float(f(feed)) == 900.0
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if float(f(feed)) == 900.0 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_random_numbers_advance_by_committed_calls() -> None:
    mg.random.seed(3)
    noise = mg.random.uniform((4,))
    f = mg.function([], noise)
    first, second = f(), f()
    assert not np.array_equal(first, second)
    mg.random.seed(3)
    again = mg.function([], mg.random.uniform((4,)))
    np.testing.assert_array_equal(again(), first)
    np.testing.assert_array_equal(again(), second)


def _interrupted(compiler: str, *words: object) -> int:
    """Return how many interrupts came into calls, in a process of its own."""
    script = Path(__file__).parents[1] / "helpers" / "interrupted_calls.py"
    result = subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        env={**os.environ, "MAGMAGRAPH_COMPILER": compiler},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return int(result.stdout.split()[-1])


@pytest.mark.parametrize(
    ("compiler", "number"), [("auto", "SIGINT"), ("off", "SIGINT"), ("off", "SIGTERM")]
)
def test_an_interrupt_leaves_all_of_before_or_all_of_after(compiler: str, number: str) -> None:
    """200 calls are interrupted at random moments."""
    assert _interrupted(compiler, 200, number, "counts") > 150


@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("function", ["counts", "host", "training"])
def test_an_error_of_another_thread_leaves_all_of_before_or_all_of_after(
    function: str, compiler: str
) -> None:
    """1,200 calls, by `PyThreadState_SetAsyncExc` at random moments."""
    assert _interrupted(compiler, 200, "thread", function) == 200


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("function", ["counts", "host", "training"])
@pytest.mark.parametrize("seed", [1, 2])
def test_many_errors_of_another_thread(seed: int, function: str, compiler: str) -> None:
    """36,000 calls."""
    assert _interrupted(compiler, 3000, "thread", function, "--seed", seed) == 3000


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["auto", "off"])
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_many_interrupts_of_a_training(number: str, compiler: str) -> None:
    """8,000 calls."""
    assert _interrupted(compiler, 2000, number, "training") > 1500
