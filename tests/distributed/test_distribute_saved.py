"""Functions that are spread over ranks, written to files and read again: the strategy stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.distributed import serialized
from magmagraph.errors import PlanError

D = mg.distributed

STRATEGIES: dict[str, tuple[Callable[[], Any], D.Mesh | None, bool]] = {
    "rows": (lambda: D.DataParallel(), None, True),
    "rows, accumulated": (lambda: D.DataParallel(accumulate=2), None, True),
    "rows by rings": (lambda: D.DataParallel("batch", "ring", bucket_bytes=64), None, True),
    "rows in 16 bits": (lambda: D.DataParallel(compression="bfloat16"), None, True),
    "layers": (lambda: D.PipelineParallel(2, "gpipe", first=["W"]), None, False),
    "matrices": (lambda: D.TensorParallel(least=1, axes={"V": 1}), None, False),
    "rows and matrices": (
        lambda: D.Hybrid(D.DataParallel(group="data"), D.TensorParallel(least=1)),
        D.Mesh(data=1, tensor=2),
        False,
    ),
    "without waiting": (lambda: D.DataParallel(algorithm="async"), None, True),
}


def step(strategy: Any, adding: int = 1) -> Any:
    """Return a training step of two layers on this rank."""
    x = mg.input("x", shape=("batch", 4))
    y = mg.input("y", shape=("batch", 2))
    rng = np.random.default_rng(0)
    v = mg.variable("V", init=rng.normal(size=(4, 6)).astype(np.float32))
    w = mg.variable("W", init=rng.normal(size=(6, 2)).astype(np.float32))
    loss = mg.mean((mg.tanh(x @ v) @ w - y) ** 2)
    optimizer = mg.optimizer.Adam(0.1, accumulate=adding)
    return optimizer.step(
        loss, [v, w], inputs=[x, y], outputs={"loss": loss}, distribute=strategy
    )


def rows(rank: int, *, apart: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return a rank's batch: its own, or that of all ranks."""
    rng = np.random.default_rng(7 + rank * apart)
    return (
        rng.normal(size=(4, 4)).astype(np.float32),
        rng.normal(size=(4, 2)).astype(np.float32),
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_loaded_function_is_spread_as_the_saved_one(name: str, tmp_path: Path) -> None:
    make, mesh, apart = STRATEGIES[name]

    def job() -> tuple[list[float], list[float], list[Any]]:
        function = step(make())
        batch = rows(D.rank(), apart=apart)
        for _ in range(2):
            function(*batch)
        found = function.__getstate__()["settings"]["distribute"]
        found.finish()
        if name == "rows in 16 bits":  # what rounding left over is no part of files
            function = step(make())
        path = tmp_path / f"{D.rank()}.magma"
        function.save(path)  # all ranks: they gather what is in parts
        D.communicator().barrier()
        loaded = mg.load(tmp_path / "0.magma")
        again = loaded.__getstate__()["settings"]["distribute"]
        assert type(again) is type(found) and serialized.written(again) == serialized.written(found)
        weights = [v for v in loaded._whole_graph().variables if v.name in ("V", "W")]
        begun = [v.value for v in weights]
        if found.asynchronous:
            return [], [], begun
        saved = [function(*batch)["loss"].item() for _ in range(3)]
        return saved, [loaded(*batch)["loss"].item() for _ in range(3)], begun

    results = D.threads(2, job, mesh=mesh)
    for saved, again, begun in results:
        assert saved == again == results[0][0]  # one loss of all ranks
        assert [v.shape for v in begun] == [(4, 6), (6, 2)]  # the whole of each
        assert all(np.array_equal(v, w) for v, w in zip(begun, results[0][2], strict=True))
    for file in ("0.magma", "1.magma"):
        loaded = mg.load(tmp_path / file)  # one process has all of it
        weights = [v for v in loaded._whole_graph().variables if v.name in ("V", "W")]
        assert all(np.array_equal(v.value, w) for v, w in zip(weights, begun, strict=True))
        assert np.isfinite(loaded(*rows(0, apart=False))["loss"])


def test_options_make_an_equal_strategy() -> None:
    """Each argument is among them, also of a strategy that takes others."""
    given = [
        D.DataParallel("rows", "async", group="data", sync_batch_norm=False, staleness=2),
        D.DataParallel("rows", group=("a", "b"), compression="float16", accumulate=3),
        D.PipelineParallel(3, "gpipe", stages=2, first=("w",), dim="rows", group="stage"),
        D.TensorParallel(axes={"w": 0, "v": None}, group="tensor", least=5),
    ]
    for strategy in given:
        again = type(strategy)(**strategy.options())
        assert vars(again).keys() == vars(strategy).keys()
        assert {k: v for k, v in vars(again).items() if not k.startswith("_")} == {
            k: v for k, v in vars(strategy).items() if not k.startswith("_")
        }


def test_a_function_with_another_node_is_spread_and_saved_as_such(tmp_path: Path) -> None:
    def job() -> None:
        x = mg.input("x", shape=("batch", 3))
        w = mg.variable("w", init=np.ones((3, 4), np.float32))
        scaled = w * 2.0
        batch = np.ones((2, 3), np.float32)
        for strategy in (D.DataParallel(), D.TensorParallel(least=1)):
            function = mg.function([x], mg.sum(x @ scaled, axis=1), distribute=strategy)
            other = mg.substitute(function, {scaled: w * 3.0})
            assert function(batch).tolist() == [24.0, 24.0]
            assert other(batch).tolist() == [36.0, 36.0]
            path = tmp_path / f"{D.rank()}"
            other.save(path)
            assert mg.load(path)(batch).tolist() == [36.0, 36.0]

    D.threads(2, job)


def test_a_function_of_one_process_has_no_strategy(tmp_path: Path) -> None:
    x = mg.input("x", shape=("batch",))
    mg.function([x], mg.mean(x)).save(tmp_path / "f")
    assert mg.load(tmp_path / "f").__getstate__()["settings"]["distribute"] is None


def test_what_ranks_hold_each_for_itself_is_not_saved(tmp_path: Path) -> None:
    def job() -> list[str]:
        told = []
        for function in (step(D.DataParallel(shard_optimizer=True)), step(D.DataParallel(), 2)):
            with pytest.raises(PlanError) as raised:
                function.save(tmp_path / f"{D.rank()}")
            told.append(str(raised.value))
        return told

    for told in D.threads(2, job):
        assert told == [
            "a function with shard_optimizer=True cannot be saved: each rank holds its part of "
            "what the optimizer remembers\n"
            "  try: mg.callbacks.Checkpoint, or optimizer.state_dict(), which gather the parts",
            "a function that adds up gradients over calls cannot be saved on many ranks: each "
            "has its own sum\n"
            "  try: mg.callbacks.Checkpoint, or optimizer.state_dict(), which add them up",
        ]
    assert list(tmp_path.iterdir()) == []


def test_a_strategy_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    class Own(D.DataParallel):
        pass

    x = mg.input("x", shape=("batch", 3))
    w = mg.variable("w", init=np.ones((3, 2), np.float32))
    function = mg.function([x], mg.sum(x @ w), distribute=Own())
    with pytest.raises(PlanError, match=r"cannot be saved: Own is code"):
        function.save(tmp_path / "f")
    function = mg.function([x], mg.sum(x @ w), distribute=D.TensorParallel(axes={w: 0}))
    with pytest.raises(PlanError) as raised:
        function.save(tmp_path / "f")
    assert str(raised.value) == (
        "axes= of TensorParallel has the variable 'w' itself as a key, which no file can hold\n"
        "  expected: names of variables\n"
        "  try: axes={'w': 0}"
    )
