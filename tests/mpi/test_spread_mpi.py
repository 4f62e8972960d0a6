"""Matrices and layers spread over ranks of MPI: the numbers of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spread import OPTIMIZERS, close, layers, trained

import magmagraph as mg
from magmagraph.distributed import DataParallel, Hybrid, Mesh, PipelineParallel, TensorParallel

STRATEGIES = {
    "tensor": lambda: TensorParallel(least=1),
    "pipeline": lambda: PipelineParallel(3),
    "data x tensor": lambda: Hybrid(DataParallel(), TensorParallel(least=1)),
    "data x stage": lambda: Hybrid(DataParallel(), PipelineParallel(2)),
}


def compared(name: str, mesh: dict[str, int] | None) -> None:
    budget, mg.config.compile_budget = mg.config.compile_budget, 0.0  # not by whom it is computed
    try:
        _compared(name, mesh)
    finally:
        mg.config.compile_budget = budget


def _compared(name: str, mesh: dict[str, int] | None) -> None:
    rng = np.random.default_rng(3)
    values = layers(rng, [6, 8, 12, 4])
    batches: list[Any] = [
        (rng.standard_normal((n, 6)), rng.standard_normal((n, 4))) for n in (8, 7)
    ]
    with mg.distributed.use(Mesh(**mesh) if mesh else Mesh(data=mg.distributed.size())):
        losses, weights, _ = trained(values, batches, OPTIMIZERS["clipped"], STRATEGIES[name])
    wanted = trained(values, batches, OPTIMIZERS["clipped"])
    close(losses, wanted[0])
    for got, want in zip(weights, wanted[1], strict=True):
        close(got, want)


@pytest.mark.parametrize(
    ("ranks", "name", "mesh"),
    [
        (2, "tensor", None),
        (2, "pipeline", None),
        (4, "data x tensor", {"data": 2, "tensor": 2}),
        (4, "data x stage", {"data": 2, "stage": 2}),
    ],
)
def test_ranks_of_mpi_compute_what_one_process_does(on_ranks, ranks, name, mesh):
    on_ranks(ranks, compared, name, mesh, timeout=60.0)
