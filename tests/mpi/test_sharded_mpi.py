"""``fit(data="sharded")`` over MPI: the run of one process that has the rows of all ranks."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import run

import magmagraph as mg
from magmagraph.dtypes import tolerance

ROWS = 41  # no multiple of the ranks or of the batch


def _job(sharded: bool) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(ROWS, 5)).astype(np.float32)
    y = rng.integers(0, 3, size=ROWS)
    weights = rng.uniform(0.5, 2.0, size=ROWS).astype(np.float32)
    later = (x[:9] + 1, y[:9])
    options: dict[str, Any] = {}
    if sharded:
        own = slice(mg.distributed.rank(), None, mg.distributed.size())
        x, y, weights, later = x[own], y[own], weights[own], (later[0][own], later[1][own])
        options = {"distribute": mg.distributed.DataParallel(), "data": "sharded"}
    net = mg.NeuralNetwork(
        [mg.nn.Input((5,)), mg.nn.Dense(8, "relu"), mg.nn.Dense(3)], loss="cross_entropy",
        optimizer=mg.optimizer.SGD(0.1, momentum=0.9), device="cpu", seed=3,
    )  # fmt: skip
    history = net.fit(
        x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, class_weight="balanced",
        sample_weight=weights, validation_data=later, **options,
    )  # fmt: skip
    return history.records, net.tensors()


def _sharded() -> Any:
    return _job(sharded=True)


@pytest.mark.parametrize("ranks", [2, 3])
def test_strided_shards_train_as_one_process(on_ranks: Any, ranks: int) -> None:
    rtol, atol = tolerance(np.dtype(np.float32), "reassoc")
    records, tensors = _job(sharded=False)
    found = on_ranks(ranks, _sharded)
    for theirs, held in found:
        assert theirs == found[0][0]
        for one, other in zip(records, theirs, strict=True):
            for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
                np.testing.assert_allclose(other[name], one[name], rtol=20 * rtol, atol=atol)
        for name, value in tensors.items():
            np.testing.assert_array_equal(held[name], found[0][1][name])
            np.testing.assert_allclose(held[name], value, rtol=20 * rtol, atol=20 * atol)


def _lacking() -> str:
    x = np.ones((4 - 4 * mg.distributed.rank(), 5), np.float32)
    net = mg.NeuralNetwork([mg.nn.Input((5,)), mg.nn.Dense(1)], loss="mse", device="cpu")
    try:
        net.fit(
            x, x[:, :1], distribute=mg.distributed.DataParallel(), data="sharded", verbose=0
        )
    except mg.DataError as error:
        return str(error)
    return ""


def test_a_rank_without_rows_is_an_error_of_all(on_ranks: Any) -> None:
    one, other = on_ranks(2, _lacking)
    assert one == other
    assert one.startswith("on rank 1 of 2, there are no examples")


SCRIPT = """
import numpy as np
import magmagraph as mg

x = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
net = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(1)], loss="mse", device="cpu")
rank, size = mg.distributed.rank(), mg.distributed.size()
if size == 3:
    raise ValueError("no data for three")
net.fit(x[rank::size], x[rank::size, :1], batch_size=8, epochs=2, verbose=0, data="sharded",
        distribute=mg.distributed.DataParallel())
"""


@pytest.mark.slow  # three starts of ranks
def test_scaling_runs_a_script_on_each_number_of_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "magmagraph", "scaling", "train.py", "-n", "1,2,3"]
    done = run(command, folder=tmp_path, timeout=90)
    assert done.status == 1
    held = json.loads((tmp_path / "scaling.json").read_text())
    assert [(one["ranks"], one["rows_per_epoch"]) for one in held["runs"]] == [(1, 40), (2, 40)]
    assert held["kind"] == "strong"
    assert (tmp_path / "scaling.svg").exists()
    assert re.search("on 3 ranks, ranks? .* of 3 failed: ValueError: no data", done.stderr)
    assert 'raise ValueError("no data for three")' in done.stderr
    assert done.left == []
