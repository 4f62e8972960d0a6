"""What modules of a workflow tell each other: the store, messages, and waiting for nobody."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from workflows import program, runner, table

import magmagraph as mg


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    return runner(tmp_path)


# ------------------------------------------------------------------- the store


@pytest.mark.parametrize("servers", ["", "[store]\nservers = 3\n"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_values_are_found_wherever_they_lie(flow, ranks, servers):
    assert flow(
        servers
        + table("put", "many", copies=2, arguments={"count": 20})
        + table("get", "check_many", after=["put"], arguments={"count": 20, "copies": 2}),
        max(ranks, 3 if servers else 1),
    ).ok


def test_get_waits_until_somebody_puts(flow):
    result = flow(table("get", "get", arguments={"key": "late"}) + table("put", "late_put"), 2)
    got = next(run for run in result.runs if run.module == "get")
    assert got.seconds >= 0.1


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_iteration_sees_what_the_last_one_has_put(flow, ranks):
    assert flow(table("count", "count_up", iterations=20), ranks).ok


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_key_that_does_not_come_in_time(flow, ranks):
    with pytest.raises(mg.workflow.WorkflowError, match="the key 'x' has not come within 0.05 s"):
        flow(table("get", "get", arguments={"key": "x", "timeout": 0.05}), ranks)


# ------------------------------------------------------------------- messages


def test_messages_come_in_their_order(flow):
    numbers = {"count": 30}
    assert flow(
        table("talk", "talk", arguments=numbers)
        + table("answer", "answer", arguments=numbers), 2).ok  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2])
def test_messages_wait_for_modules_that_have_not_started(flow, ranks):
    assert flow(
        table("early", "early") + table("late", "late", after=["early"], iterations=3), ranks
    ).ok


def test_messages_of_copies_are_told_apart(flow):
    assert flow(
        table("gather", "gather", arguments={"copies": 3}) + table("scatter", "scatter", copies=3),
        4,
    ).ok


def test_a_ring_of_copies_over_two_servers(flow):
    text = table("ring", "ring", copies=3, arguments={"steps": 25})
    assert flow(text, 3).ok


def test_misuse_of_a_context(flow, tmp_path):
    flow(table("misuse", "misuse", copies=2) + program("program", "1", after=["misuse"]), 1)
    said = (tmp_path / "flow-output" / "said").read_text().splitlines()
    assert [line for line in said if not line.startswith("  ")] == [
        "'nobody' is no module",
        "'program' is a program",
        "a message to module 'misuse', copy=2",
        "a message to module 'misuse', rank=1",
        "a message of module 'misuse', copy=-1",
        "timeout=0",
        "the key 3",
        "timeout='soon'",
    ]


# ------------------------------------------------------------------- dead waiting


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_key_that_nobody_can_put(flow, ranks):
    text = table("other", "nothing") + table("get", "get", arguments={"key": "x"})
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        flow(text, ranks)
    assert str(raised.value).startswith("module get, on rank ")
    assert "the key 'x' can come from nobody any more: all other mod" in str(raised.value)


def test_modules_that_wait_for_each_other(flow):
    text = (
        table("a", "receive", arguments={"of": "b"})
        + table("b", "receive", arguments={"of": "a"})
        + table("c", "nothing", after=["a"])
        + table("d", "get", arguments={"key": "x", "timeout": 0.2})
    )
    began = time.monotonic()
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        flow("[workflow]\non_failure = 'stop'\n" + text.replace("timeout = 0.2", "timeout = 9"), 2)
    assert time.monotonic() - began < 5
    text = str(raised.value)
    assert "can come from nobody any more" in text
    assert "module c has not started, and needs a to end, and a free worker" in text
    assert "module d has not started, and needs a free worker" in text
    others = {"a": "module b, on rank 1, waits for a message of module 'a'",
              "b": "module a, on rank 0, waits for a message of module 'b'"}  # fmt: skip
    assert others[text[len("module ")]] in text


def test_whoever_waits_with_a_limit_may_still_wake_others(flow):
    result = flow(
        "[workflow]\non_failure = 'continue'\n"
        + table("timed", "receive", arguments={"of": "other", "timeout": 0.2})
        + table("other", "get", arguments={"key": "x"}), 2,
    )  # fmt: skip
    timed, other = (next(r for r in result.runs if r.module == n) for n in ("timed", "other"))
    assert "has not come within 0.2 s" in timed.cause
    assert "can come from nobody" in other.cause
    assert other.end >= timed.end - 0.01


def test_copies_that_need_each_other_and_have_one_rank(flow):
    with pytest.raises(mg.workflow.WorkflowError, match="module meet, copy 1 has not started, and "
                       "needs a free worker"):  # fmt: skip
        flow(table("meet", "meet", copies=2), 1)
