"""Workflows on executors: processes, MPI that they start, Dask; servers; workers that die."""

from __future__ import annotations

import multiprocessing
import pickle
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from workflows import statuses, table

import magmagraph as mg
from magmagraph.workflow.space import connect, start
from magmagraph.workflow.store import Space

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["magmagraph.workflow.worker"])  # one import for all workers
    with ProcessPoolExecutor(3, context) as executor:
        yield executor


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "flow.toml"
    path.write_text(text)
    return path


def example(tmp_path: Path, **options: Any) -> tuple[set[str], str]:
    """Run the example; return what became of its modules, and what the last one has written."""
    result = mg.workflow.run(EXAMPLES / "workflow.toml", tmp_path / "out", **options)
    assert len(statuses(result)) == 5
    return set(statuses(result).values()), (tmp_path / "out" / "choice.txt").read_text()


def test_the_example_is_the_same_in_one_process_and_in_several(tmp_path, pool):
    first = example(tmp_path)
    assert first[0] == {"done"}
    assert "best: copy 2" in first[1]
    assert example(tmp_path, executor=pool) == first


@pytest.mark.slow
@pytest.mark.parametrize(
    "executor", ["process", "dask", pytest.param("mpi", marks=pytest.mark.mpi)]
)
def test_the_example_and_a_grid_on_each_executor(tmp_path, executor):
    if executor == "dask":
        pytest.importorskip("distributed", reason="dask.distributed is not installed")
    assert example(tmp_path, executor=executor, workers=2) == example(tmp_path)
    grid = "[modules.fit.grid]\nx = [1, 2, 3]\ndepth = [1, 5]\n"
    path = written(tmp_path, table("fit", "parabola") + grid)
    one, other = (
        mg.workflow.run(path, executor=name, workers=2) for name in ("serial", executor)
    )
    values = [{run.copy: (run.point, run.value) for run in found.runs} for found in (one, other)]
    assert values[0] == values[1]
    assert len(values[0]) == 6
    assert other.best("fit", minimize="loss").point == {"x": 2, "depth": 1}


def test_an_array_is_cut_over_three_servers_and_put_together(tmp_path, pool):
    rows = {"rows": 300_001}
    text = "[store]\nservers = 3\n" + table("put_array", "put_array", arguments=rows)
    text += table("get_array", "get_array", after=["put_array"], arguments=rows)
    result = mg.workflow.run(written(tmp_path, text), executor=pool)
    assert result.ok
    size = 300_001 * 3 * 4
    ends = [0, size // 3, 2 * size // 3, size]
    assert (tmp_path / "flow-output" / "where").read_text().splitlines() == [
        f"{i} {ends[i]} {ends[i + 1]} {ends[i + 1] - ends[i]}" for i in range(3)
    ]


@pytest.mark.mpi
def test_a_module_of_several_ranks_is_started_by_a_worker(tmp_path, pool):
    text = table("mean", "mean", processes=3)
    text += table("fail", "wait_together", processes=2, after=["mean"])
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        mg.workflow.run(written(tmp_path, text), executor=pool)
    assert str(raised.value).startswith("module fail, on rank 1: ValueError: one of two")
    assert statuses(raised.value.result) == {"mean": "done", "fail": "failed"}


def test_ranks_that_are_threads_are_refused(tmp_path):
    path = written(tmp_path, table("first", "nothing"))
    with pytest.raises(mg.errors.ConfigError, match="called on 2 ranks that are threads"):
        mg.distributed.threads(2, lambda: mg.workflow.run(path))


# ------------------------------------------------------------------- what dies


def test_a_worker_that_is_killed_is_a_failure_of_its_module(tmp_path):
    text = table("first", "nothing") + table("die", "die", after=["first"])
    text += table("next", "nothing", after=["die"])
    died = "^module die: BrokenExecutor: the process"
    with pytest.raises(mg.workflow.WorkflowError, match=died) as raised:
        mg.workflow.run(written(tmp_path, text), executor="process", workers=2)
    assert statuses(raised.value.result) == {"first": "done", "die": "failed", "next": "skipped"}


def test_a_server_that_is_gone_is_named(tmp_path, pool):
    text = "[store]\nservers = 3\n" + table("put", "put_array", arguments={"rows": 300_000})
    text += table("end", "end_server", after=["put"])
    with pytest.raises(mg.workflow.WorkflowError, match="server 1 of the workflow does not answer"):
        mg.workflow.run(written(tmp_path, text), executor=pool)


@pytest.mark.slow
def test_a_module_that_does_not_stop_is_ended_with_its_process(tmp_path):
    text = "[workflow]\ngrace = 0.3\n" + table("deaf", "deaf")
    text += table("fail", "fail_after_deaf")
    began = time.monotonic()
    with pytest.raises(mg.workflow.WorkflowError) as raised:
        mg.workflow.run(written(tmp_path, text), executor="process", workers=2)
    assert time.monotonic() - began < 50
    assert "ValueError: no such data" in str(raised.value)
    assert "module deaf has not ended within 0.3 s after that" in str(raised.value)
    assert statuses(raised.value.result) == {"deaf": "stopped", "fail": "failed"}


# ------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((0, 3)),
        np.float32(2.5),
        np.arange(6).reshape(2, 3).T,
        np.array("2020-01-01", "datetime64[D]"),
        np.array([1.5, -0.0, np.nan], ml_dtypes.bfloat16),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        np.array(["text", None], object),
        np.ones(1 << 18, ">f4"),
        "x" * (1 << 21),
        {"weights": np.ones(3)},
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_values_come_back_as_they_were(value):
    space = Space(None, 3, b"")
    ticket = space.board.begin(0, 0, "module a")
    space.put(ticket, "x", value)
    found = space.get(ticket, "x", None)
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)
        assert found.tolist() == value.tolist() or np.isnan(value.astype(float)).any()
    else:
        assert str(found) == str(value)


def test_a_value_that_is_replaced_while_it_is_read_is_read_again():
    space = Space(None, 2, b"")
    ticket = space.board.begin(0, 0, "module a")
    space.put(ticket, "x", np.zeros(1 << 18))
    first, describe = space.board.find("x"), space.board.get
    later = iter([("done", first)])
    space.put(ticket, "x", np.ones(1 << 18))
    space.board.get = lambda *arguments: next(later, None) or describe(*arguments)
    assert space.get(ticket, "x", None).sum() == 1 << 18
    assert sum(len(pieces._held) for pieces in space.pieces) == 2  # the first value is released


# ------------------------------------------------------------------- strangers


class Marks:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_server_unpickles_nothing_of_a_stranger(tmp_path):
    key = b"k" * 32
    address = start(key, "localhost")
    assert isinstance(address, tuple)
    payload = pickle.dumps(Marks(tmp_path / "mark"))
    silent = socket.create_connection(address)  # and takes no other's place
    for word in (payload, len(payload).to_bytes(4, "big") + payload):
        with socket.create_connection(address) as stranger:
            stranger.sendall(word)
    with pytest.raises(multiprocessing.AuthenticationError):
        connect(address, b"another key")
    board, pieces = connect(address, key)
    assert board.put(board.begin(0, 0, "module a"), "x", b"value") == ("done", ())
    assert board.find("x") == (b"value",)
    silent.close()
    pieces.end()
    assert not (tmp_path / "mark").exists()


def test_a_socket_of_one_host_is_in_a_private_folder():
    address = start(b"k" * 32, "")
    assert isinstance(address, str)
    assert Path(address).parent.stat().st_mode & 0o077 == 0
    connect(address, b"k" * 32)[1].end()
