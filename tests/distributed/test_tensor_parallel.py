"""Matrices spread over ranks: the same numbers as one process, in the pattern that is promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spread import OPTIMIZERS, close, layers, network, trained

import magmagraph as mg
from magmagraph.distributed import DataParallel, Hybrid, Mesh, TensorParallel, threads
from magmagraph.errors import ConfigError

STEPS = 4


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_compute_what_one_process_does(rng, name, ranks):
    values = layers(rng, [6, 8, 12, 4])
    batches = [(rng.standard_normal((5, 6)), rng.standard_normal((5, 4))) for _ in range(STEPS)]
    wanted = trained(values, batches, OPTIMIZERS[name])
    found = threads(
        ranks, lambda: trained(values, batches, OPTIMIZERS[name], lambda: TensorParallel(least=1))
    )
    for losses, weights, _ in found:
        close(losses, wanted[0])
        for got, want in zip(weights, wanted[1], strict=True):
            close(got, want)


def test_two_layers_cost_one_sum_forward_and_one_backward(rng):
    values = layers(rng, [6, 8, 6])

    def job() -> list[Any]:
        step, held = network(
            values, lambda: mg.optimizer.SGD(0.1), TensorParallel(axes={"b1": None}, least=1)
        )
        nodes = [n for n in step.source_graph.nodes if n.op.kind == "collective"]
        shapes = [n.shape for n in step.source_graph.variables if "part" in str(n.name)]
        del held
        return [[n.op.name for n in nodes], sorted(shapes)]

    kinds, shapes = threads(2, job)[0]
    # The input has no gradient: the sum of the backward pass is that of a network in front of it.
    assert kinds == ["allreduce"]
    assert shapes == [(4,), (4, 6), (6, 4)]


def test_what_has_no_rule_is_gathered(rng):
    """A sort along the cut axis, a reshape that mixes it, an argmax: right all the same."""
    weight = rng.standard_normal((3, 8))
    rows = rng.standard_normal((4, 3))

    def job(strategy: Any) -> list[np.ndarray]:
        x = mg.input("x", shape=("batch", 3), dtype="float64")
        w = mg.var("w", init=weight)
        h = mg.exp(x @ w)
        last, _ = mg.scan(lambda c, row: (mg.tanh(c + row), c), np.zeros(8), x @ w)
        outputs = [
            mg.grad(mg.sum(last), w),  # a product with one of a loop's results
            mg.sort(h, axis=1),
            mg.argmax(h, axis=1),
            mg.max(h, axis=1),
            mg.sum(h, axis=(0, 1)),
            mg.reshape(h, (-1, 2, 4)),
            mg.transpose(h),
            mg.where(h > 1.0, h, 0.0)[:, 3],
            h @ mg.transpose(h),
        ]
        return mg.function([x], outputs, distribute=strategy)(rows)

    wanted = job(None)
    for found in threads(2, lambda: job(TensorParallel(least=1))):
        for got, want in zip(found, wanted, strict=True):
            close(got, want)


def test_a_whole_variable_and_its_parts_are_one_value(rng):
    start = rng.standard_normal((4, 6))

    def job() -> list[Any]:
        x = mg.input("x", shape=("batch", 4), dtype="float64")
        w = mg.var("w", init=start if mg.distributed.rank() == 0 else np.zeros((4, 6)))
        held = TensorParallel(axes={"w": 1})
        step = mg.function([x], mg.sum(x @ w), {w: w + 1.0}, distribute=held)
        plain = mg.function([x], mg.sum(x @ w))  # reads the whole variable
        rows = np.ones((1, 4))
        first = float(step(rows))
        seen = [w.value, float(plain(rows))]
        w.assign(np.full((4, 6), 2.0))
        again = [float(step(rows)), w.value]
        return [first, *seen, *again]

    for first, value, plain, again, later in threads(2, job):
        close(first, start.sum())  # all ranks begin with rank 0's
        close(value, start + 1.0)
        close(plain, (start + 1.0).sum())
        close(again, 48.0)
        close(later, np.full((4, 6), 3.0))


@pytest.mark.parametrize("mesh", [{"data": 2, "tensor": 2}, {"tensor": 2, "data": 2}])
def test_rows_and_matrices_are_cut_together(rng, mesh):
    values = layers(rng, [6, 8, 4])
    batches = [(rng.standard_normal((n, 6)), rng.standard_normal((n, 4))) for n in (6, 5, 6)]
    wanted = trained(values, batches, OPTIMIZERS["clipped"])

    def both() -> Hybrid:
        return Hybrid(DataParallel(), TensorParallel(least=1))

    found = threads(
        4, lambda: trained(values, batches, OPTIMIZERS["clipped"], both), mesh=Mesh(**mesh)
    )
    for losses, weights, _ in found:
        close(losses, wanted[0])
        for got, want in zip(weights, wanted[1], strict=True):
            close(got, want)


def test_a_network_is_trained_and_evaluated(rng):
    x = rng.standard_normal((24, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)

    def job(strategy: Any) -> list[Any]:
        net = mg.NeuralNetwork(
            [mg.nn.Input((6,)), mg.nn.Dense(16, activation="relu"), mg.nn.Dropout(0.25),
             mg.nn.Dense(2)],
            loss="cross_entropy", optimizer=mg.optimizer.Adam(0.02), seed=0,
        )  # fmt: skip
        history = net.fit(
            x, y, batch_size=8, epochs=2, validation_data=(x, y), progress=False,
            distribute=strategy,
        )  # fmt: skip
        return [history["loss"], history["val_loss"], net.predict(x)]

    wanted = job(None)
    for found in threads(2, lambda: job(TensorParallel(least=1))):
        for got, want in zip(found, wanted, strict=True):
            close(np.asarray(got, np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: TensorParallel(least=-1), "least=-1\n  expected: a number of elements"),
        (lambda: TensorParallel(axes={3: 1}), "axes={3: 1}\n  expected: variables or their names"),
        (lambda: TensorParallel(axes={"v": 1}), "axes names 'v', which is no variable here"),
        (
            lambda: TensorParallel(axes={"w": 0}),
            r"variable 'w' of shape \(3, 8\) cannot be cut along axis 0\n  expected: an axis whose "
            r"extent 2 ranks divide\n  try: axes=\{'w': None\} keeps it whole",
        ),
        (lambda: Hybrid(), "Hybrid of 0 strategies"),
        (lambda: Hybrid(TensorParallel(), TensorParallel()), "Hybrid of 2 strategies"),
        (lambda: Hybrid("data"), "Hybrid is given 'data'"),
    ],
)
def test_wrong_options_are_refused(made, said):
    def job() -> None:
        x, w = mg.input("x", shape=("batch", 3)), mg.var("w", init=np.ones((3, 8), np.float32))
        mg.function([x], x @ w, distribute=made())

    with pytest.raises(ConfigError, match=said):
        threads(2, job)
