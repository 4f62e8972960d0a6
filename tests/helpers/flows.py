"""Modules for tests of workflows: at the top level of a file, where other processes find them."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import magmagraph as mg
from magmagraph.runtime.cpu.threads import get_threads


def until_file(context: Any) -> None:
    """Wait until there is a file."""
    while not os.path.exists(context.arguments["file"]):
        time.sleep(0.02)


def nothing(context: Any) -> None:
    """End at once."""


def note(context: Any) -> None:
    """Put what the context says of itself under a key of its own."""
    key = f"{context.module}/{context.copy}/{context.iteration}/{context.rank}"
    context.store.put(key, (context.copies, context.iterations, context.size, context.ranks))


def rest(context: Any) -> None:
    """Take some time."""
    time.sleep(context.arguments["seconds"])


def mean(context: Any) -> None:
    """Put the mean over the ranks of the group of twice their numbers, by a graph."""
    x = mg.var("x", shape=(2,))
    average = mg.function([x], mg.distributed.allreduce(x, "mean"))
    value = average(np.full(2, 2.0 * context.rank, np.float32))
    if context.rank == 0:
        context.store.put("mean", float(value[0]))


def threads(context: Any) -> None:
    """Put the number of threads that kernels use."""
    context.store.put(context.module, get_threads())


def put(context: Any) -> None:
    """Put the arguments."""
    for key, value in context.arguments.items():
        context.store.put(key, value)


def many(context: Any) -> None:
    """Put many values, each twice."""
    for number in range(context.arguments["count"]):
        context.store.put(f"{context.copy}/{number}", "old")
        context.store.put(f"{context.copy}/{number}", np.full(number, context.copy))


def check_many(context: Any) -> None:
    """Find the latest of the many values."""
    for copy in range(context.arguments["copies"]):
        for number in range(context.arguments["count"]):
            value = context.store.get(f"{copy}/{number}", timeout=20)
            np.testing.assert_array_equal(value, np.full(number, copy))


def get(context: Any) -> None:
    """Wait for a key, and put what it holds under another one."""
    value = context.store.get(context.arguments["key"], context.arguments.get("timeout"))
    context.store.put(f"{context.module} got", value)


def write(context: Any) -> None:
    """Write values of keys into a file."""
    keys = context.arguments["keys"]
    lines = [f"{key} = {context.store.get(key)}" for key in keys]
    (context.output / f"{context.module}.out").write_text("\n".join(lines))


def late_put(context: Any) -> None:
    """Put a key some time later."""
    time.sleep(0.1)
    context.store.put("late", context.module)


def count_up(context: Any) -> None:
    """Add one to what the last iteration has put."""
    value = context.store.get("count") if context.iteration else 0
    assert value == context.iteration
    context.store.put("count", value + 1)


def talk(context: Any) -> None:
    """Send numbers to another module, and take its answers."""
    for number in range(context.arguments["count"]):
        context.store.put("last", number)
        context.send("answer", number)
    for number in range(context.arguments["count"]):
        assert context.receive("answer", timeout=20) == number * number


def answer(context: Any) -> None:
    """Send squares back, in order; what was put before a message is there with it."""
    for number in range(context.arguments["count"]):
        assert context.receive("talk") == number
        assert context.store.get("last") >= number
        context.send("talk", number * number)


def early(context: Any) -> None:
    """Send to a module that has not started."""
    for number in range(3):
        context.send("late", number)


def late(context: Any) -> None:
    """Take what was sent before the start, in every iteration one."""
    assert context.receive("early") == context.iteration


def receive(context: Any) -> None:
    """Wait for a message."""
    context.receive(context.arguments["of"], context.arguments.get("timeout"))


def gather(context: Any) -> None:
    """Take a message of each copy, and one of a certain copy first."""
    count = context.arguments["copies"]
    assert context.receive("scatter", copy=count - 1) == count - 1
    assert {context.receive("scatter") for _ in range(count - 1)} == set(range(count - 1))


def ring(context: Any) -> None:
    """Send around a ring of copies; what was put before a message is seen after it."""
    before, after = (context.copy - 1) % context.copies, (context.copy + 1) % context.copies
    for step in range(context.arguments["steps"]):
        context.store.put(f"now {context.copy}", step)
        context.send("ring", step, copy=after)
        assert context.receive("ring", copy=before) == step
        assert context.store.get(f"now {before}") >= step


def scatter(context: Any) -> None:
    """Send the number of the copy."""
    context.send("gather", context.copy)


def meet(context: Any) -> None:
    """Copies that wait for each other: they have to run at the same time."""
    context.store.put(f"here {context.copy}", True)
    for other in range(context.copies):
        context.store.get(f"here {other}")


def fail(context: Any) -> None:
    """Raise in one iteration of one copy, on one rank."""
    arguments = {"copy": 0, "iteration": 0, "rank": 0, **context.arguments}
    if all(getattr(context, name) == arguments[name] for name in ("copy", "iteration", "rank")):
        raise ValueError("no such data")


def leave(context: Any) -> None:
    """Leave Python."""
    sys.exit(3)


def forever(context: Any) -> None:
    """Compute until the workflow ends, looking at the context now and then."""
    while True:
        time.sleep(0.01)
        context.store.put("alive", context.copy)


def wait_together(context: Any) -> None:
    """Fail on one rank while the others wait for it in a collective."""
    if context.rank == 1:
        raise ValueError("one of two")
    context.communicator.barrier()


def misuse(context: Any) -> None:
    """Call the context with what does not fit, and put what it says."""
    errors = []
    for call in (
        lambda: context.send("nobody", 1),
        lambda: context.send("program", 1),
        lambda: context.send("misuse", 1, copy=2),
        lambda: context.send("misuse", 1, rank=1),
        lambda: context.receive("misuse", copy=-1),
        lambda: context.receive("misuse", timeout=0),
        lambda: context.store.put(3, 1),
        lambda: context.store.get("x", timeout="soon"),
    ):
        try:
            call()
        except mg.errors.GraphError as error:
            errors.append(str(error))
    (context.output / "said").write_text("\n".join(errors))


# ---- Processes


def put_array(context: Any) -> None:
    """Put an array, the second time another one, and write down where its parts are."""
    rows = context.arguments["rows"]
    for factor in (0, 1):
        context.store.put("array", factor * np.arange(rows * 3, dtype=np.float32).reshape(rows, 3))
    context.store.put("small", (np.ones(2), "pickled"))
    lines = [f"{server} {start} {stop} {size}"
             for (server, start, stop), size in context.store.where("array")]  # fmt: skip
    assert context.store.where("small") == context.store.where("absent") == []
    (context.output / "where").write_text("\n".join(lines))


def get_array(context: Any) -> None:
    """Compare the array with what was put; it can be written."""
    array = context.store.get("array")
    array += 1.0
    rows = context.arguments["rows"]
    np.testing.assert_array_equal(array.reshape(-1), np.arange(1, rows * 3 + 1, dtype=np.float32))
    assert context.store.get("small")[1] == "pickled"


def die(context: Any) -> None:
    """End this process as the kernel does when there is no memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(context: Any) -> None:
    """End this process as `die` does, unless there is a mark that it has done so."""
    if not os.path.exists(context.arguments["mark"]):
        open(context.arguments["mark"], "x").close()
        die(context)
    time.sleep(0.6)


def end_server(context: Any) -> None:
    """End a server that holds a part of a value."""
    context.store._space.pieces[1].end()
    time.sleep(0.5)
    context.store.get("array")


def deaf(context: Any) -> None:
    """Never look at the context."""
    context.store.put("deaf", True)
    time.sleep(60)


def fail_after_deaf(context: Any) -> None:
    """Raise once another module sleeps."""
    context.store.get("deaf")
    raise ValueError("no such data")


# ---- Grids


def parabola(context: Any) -> Any:
    """Return numbers of a point, whose least loss is at x = 2, depth = 1."""
    point = context.point
    if point["x"] == context.arguments.get("bad"):
        return "no number"
    return {"loss": (point["x"] - 2) ** 2 + point["depth"], "accuracy": np.float32(point["x"])}


# ---- Turns of a whole workflow


def improve(context: Any) -> None:
    """Halve the way to a square root, from where the last turn has come to."""
    guess = context.receive("check") if context.turn else context.arguments["number"]
    context.send("check", 0.5 * (guess + context.arguments["number"] / guess))


def check(context: Any) -> None:
    """Hand on what the next turn begins with, until it changes no more."""
    guess = context.receive("improve")
    context.store.put("root", guess)
    context.store.put("turns", context.turn + 1)
    if abs(guess**2 - context.arguments["number"]) < 1e-12:
        context.last_turn()
    else:
        context.send("improve", guess, later=1)


def far_ahead(context: Any) -> None:
    """Send to a turn that does not come, and to one that does; the wrong ways are refused."""
    for later in (-1, 0.5, True):
        text = ""
        try:
            context.send("hear", None, later=later)
        except mg.errors.GraphError as error:
            text = str(error)
        assert "how many turns later" in text, later
    for later in (0, 2, 5):
        context.send("hear", (context.turn, later), later=later)


def hear(context: Any) -> None:
    messages = [context.receive("far_ahead") for _ in range(1 + (context.turn >= 2))]
    assert messages == [(context.turn - 2, 2)] * (context.turn >= 2) + [(context.turn, 0)], messages


def fails_in_turn(context: Any) -> None:
    if context.turn == context.arguments["turn"]:
        raise ValueError("not this time")


def take_nothing() -> None:
    """Take no context, as a function of a workflow has to."""
