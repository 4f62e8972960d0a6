"""Layers spread over ranks, batches cut into micro-batches: the numbers of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from spread import OPTIMIZERS, close, layers, network, trained

import magmagraph as mg
from magmagraph.distributed import (
    DataParallel,
    Hybrid,
    Mesh,
    PipelineParallel,
    TensorParallel,
    threads,
)
from magmagraph.errors import ConfigError, ShardingError


@pytest.mark.parametrize(
    ("schedule", "ranks", "micro_batches", "name"),
    [
        ("gpipe", 2, 3, "adam"),
        ("1f1b", 2, 4, "sgd"),
        ("1f1b", 3, 2, "clipped"),  # fewer micro-batches than stages; a norm over all stages
        ("gpipe", 3, 1, "clipped"),
    ],
)
def test_stages_compute_what_one_process_does(rng, schedule, ranks, micro_batches, name):
    values = layers(rng, [6, 8, 12, 4])
    # The last micro-batch has another size than the others; then some have no row at all.
    batches = [(rng.standard_normal((n, 6)), rng.standard_normal((n, 4))) for n in (8, 7, 1)]
    wanted = trained(values, batches, OPTIMIZERS[name])
    found = threads(
        ranks,
        lambda: trained(
            values, batches, OPTIMIZERS[name], lambda: PipelineParallel(micro_batches, schedule)
        ),
    )
    for losses, weights, _ in found:
        close(losses, wanted[0])
        for got, want in zip(weights, wanted[1], strict=True):
            close(got, want)


def messages(step: Any) -> list[str]:
    """Return what a rank says and hears, in the order of its plan."""
    found = []
    for planned in step.plan.steps:
        attrs = planned.node.attrs
        if "to" in attrs:
            found.append(f">{attrs['to']}")
        elif "source" in attrs:
            found.append(f"<{attrs['source']}")
    return found


@pytest.mark.parametrize(
    ("schedule", "first", "last"),
    [
        ("gpipe", "> > > > < < < <", "< < < < > > > >"),
        ("1f1b", "> > < > < > < <", "< > < > < > < >"),
    ],
)
def test_messages_come_in_the_order_of_the_schedule(rng, schedule, first, last):
    values = layers(rng, [6, 8, 4])

    def job() -> tuple[list[str], list[str]]:
        step, _ = network(
            values, lambda: mg.optimizer.SGD(0.1), PipelineParallel(4, schedule, dim="batch")
        )
        step(np.ones((8, 6)), np.ones((8, 4)))
        return messages(step), [str(node.name) for node in step.graph.variables]

    (early, held), (late, others) = threads(2, job)
    assert " ".join(told[0] for told in early) == first
    assert [told[0] for told in late] == last.split()
    assert set(early) == {">1", "<1"}
    # Each rank's plan has the weights of its stage, and no others.
    assert {"W0 (part)", "b0 (part)"} <= set(held)
    assert {"W1 (part)", "b1 (part)"} <= set(others)
    assert not any(name.startswith(("W1", "b1")) for name in held)


def test_rows_and_layers_are_cut_together(rng):
    values = layers(rng, [6, 8, 4])
    batches = [(rng.standard_normal((n, 6)), rng.standard_normal((n, 4))) for n in (8, 7)]
    wanted = trained(values, batches, OPTIMIZERS["clipped"])
    found = threads(
        4,
        lambda: trained(
            values,
            batches,
            OPTIMIZERS["clipped"],
            lambda: Hybrid(PipelineParallel(2), DataParallel()),
        ),
        mesh=Mesh(data=2, stage=2),
    )
    for losses, weights, _ in found:
        close(losses, wanted[0])
        for got, want in zip(weights, wanted[1], strict=True):
            close(got, want)


def test_a_network_is_trained_evaluated_and_written_to(rng):
    x = rng.standard_normal((24, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)

    def job(strategy: Any) -> list[Any]:
        net = mg.NeuralNetwork(
            [mg.nn.Input((6,)), mg.nn.Dense(16, activation="relu"), mg.nn.BatchNorm(),
             mg.nn.Dropout(0.25), mg.nn.Dense(2)],
            loss="cross_entropy", optimizer=mg.optimizer.Adam(0.02), seed=0,
        )  # fmt: skip
        history = net.fit(
            x, y, batch_size=8, epochs=1, validation_data=(x, y), progress=False,
            distribute=strategy,
        )  # fmt: skip
        found = [history["loss"], history["val_loss"], net.predict(x)]
        weights = net.tensors()
        net.set_tensors({name: 0.5 * value for name, value in weights.items()}, "half")
        again = net.fit(x, y, batch_size=8, epochs=1, progress=False, distribute=strategy)
        return [*found, again["loss"]]

    wanted = job(None)
    for found in threads(2, lambda: job(PipelineParallel(2))):
        for got, want in zip(found, wanted, strict=True):
            close(np.asarray(got, np.float32), np.asarray(want, np.float32))


def test_stages_can_be_split_by_hand(rng):
    values = layers(rng, [6, 8, 12, 4])

    def job() -> set[str]:
        step, _ = network(
            values, lambda: mg.optimizer.SGD(0.1), PipelineParallel(2, first=["W1"])
        )
        step(np.ones((4, 6)), np.ones((4, 4)))
        return {str(node.name)[:2] for node in step.graph.variables if node.ndim}

    assert threads(2, job) == [{"W0", "b0"}, {"W1", "b1", "W2", "b2"}]


def refused(values: Any, make: Any, **options: Any) -> None:
    def job() -> None:
        step, _ = network(values, lambda: mg.optimizer.SGD(0.1), make())
        step(np.ones((4, 6)), np.ones((4, 4)))

    threads(3, job, **options)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PipelineParallel(0), "micro_batches=0\n  expected: a number above 0"),
        (lambda: PipelineParallel(2, "other"), "schedule='other'\n  expected: one of gpipe, 1f1b"),
        (lambda: PipelineParallel(2, stages=2), "stages=2, and there are 3 ranks along"),
        (lambda: PipelineParallel(2, first=["W1"]), "names 1 variables"),
        (lambda: PipelineParallel(2, first="W1"), "first='W1'\n  expected: a list of names"),
        (lambda: PipelineParallel(2, dim="3"), "dim='3'\n  expected: the name of a dimension"),
    ],
)
def test_wrong_options_are_refused(rng, make, said):
    with pytest.raises(ConfigError, match=said):
        refused(layers(rng, [6, 8, 4]), make)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PipelineParallel(2), "2 layers with weights cannot be 3 stages of a pipeline"),
        (
            lambda: PipelineParallel(2, first=["W1", "W0"]),
            "a stage is to begin with 'W0'\n  expected: in this order, of W0, W1",
        ),
        (lambda: PipelineParallel(2, dim="rows"), "no input has the dimension 'rows'"),
    ],
)
def test_programs_that_are_no_pipeline_are_refused(rng, make, said):
    with pytest.raises(ShardingError, match=said):
        refused(layers(rng, [6, 8, 4]), make)


def test_a_loop_over_time_goes_through_the_stages(rng):
    x = rng.standard_normal((5, 5, 3)).astype(np.float32)

    def job(strategy: Any) -> list[np.ndarray]:
        net = mg.NeuralNetwork(
            [mg.nn.Input((5, 3)), mg.nn.LSTM(4), mg.nn.Dense(2)], loss="cross_entropy",
            optimizer=mg.optimizer.Adam(0.02), seed=0, device="cpu",
        )  # fmt: skip
        made = None if strategy is None else strategy()
        history = net.fit(
            x, np.arange(5) % 2, batch_size=5, epochs=2, progress=False, distribute=made
        )
        return [np.asarray(history["loss"], np.float32), *net.tensors().values()]

    wanted = job(None)
    for found in threads(2, lambda: job(lambda: PipelineParallel(2))):
        for got, want in zip(found, wanted, strict=True):
            close(got, want)


def test_a_loop_whose_turns_need_all_rows_is_refused_with_its_line():
    def job() -> None:
        x = mg.input("x", shape=("batch", 3))
        v, w = (mg.var(name, init=np.ones((3, 3), np.float32)) for name in "vw")

        def turn(h: Any) -> Any:
            h = mg.tanh(h @ w)
            return h - mg.mean(h, axis=0)

        loss = mg.sum(mg.scan(lambda h, _: (turn(h), h), x @ v, mg.zeros((4, 1)))[0])
        mg.function([x], loss, distribute=PipelineParallel(2))(np.ones((4, 3), np.float32))

    with pytest.raises(ShardingError, match=r"(?s)by loop, made at .* over the rows of each mic"):
        threads(2, job)


@pytest.mark.parametrize("ranks", [2, 3])
def test_outputs_of_one_shape_are_told_apart(rng, ranks):
    """The ranks that receive them know no more of them than their shape."""
    values = layers(rng, [4, 5, 6, 3])
    x, y = rng.standard_normal((6, 4)), rng.standard_normal((6, 3))

    def results(strategy: Any) -> list[float]:
        a, b = mg.input("x", ("batch", 4), "float64"), mg.input("y", ("batch", 3), "float64")
        held = [mg.var("w", init=part) for pair in values for part in pair]
        out = a
        for weight, bias in zip(held[::2], held[1::2], strict=True):
            out = mg.tanh(out @ weight + bias)
        loss = mg.mean((out - b) ** 2)
        # Some are one value on the rank that computes them, once it has simplified them.
        made = [loss, mg.max(out), mg.min(out), mg.negative(-loss), mg.mean(out), loss * 1.0]
        made.append(made[1])
        step = mg.optimizer.SGD(0.1).step(
            loss, held, inputs=[a, b], outputs=made, distribute=strategy
        )
        return [float(one) for _ in range(2) for one in step(x, y)]

    wanted = results(None)
    for found in mg.distributed.threads(
        ranks, lambda: results(PipelineParallel(2)), mesh=Mesh(stage=ranks), timeout=20.0
    ):
        close(found, wanted)


def test_a_pipeline_needs_the_loss_among_its_outputs():
    def job() -> None:
        x, w = mg.input("x", shape=("batch", 3)), mg.var("w", init=np.ones((3, 8), np.float32))
        v = mg.var("v", init=np.ones((8, 2), np.float32))
        step = mg.optimizer.SGD(0.1).step(
            mg.sum(x @ w @ v), [w, v], inputs=[x], distribute=PipelineParallel(2)
        )
        step(np.ones((2, 3), np.float32))

    with pytest.raises(ShardingError, match=r"(?s)no output .*try: outputs=\[loss\]"):
        threads(2, job)


def test_matrices_and_layers_are_cut_together(rng):
    values = layers(rng, [6, 8, 8, 4])
    batches = [(rng.standard_normal((6, 6)), rng.standard_normal((6, 4))) for _ in range(2)]
    wanted = trained(values, batches, OPTIMIZERS["adam"])
    found = threads(
        4,
        lambda: trained(
            values,
            batches,
            OPTIMIZERS["adam"],
            lambda: Hybrid(TensorParallel(least=1), PipelineParallel(2)),
        ),
        mesh=Mesh(stage=2, tensor=2),
    )
    for losses, weights, _ in found:
        close(losses, wanted[0])
        for got, want in zip(weights, wanted[1], strict=True):
            close(got, want)


@pytest.mark.parametrize(
    "make", [lambda: TensorParallel(least=1), lambda: PipelineParallel(2)], ids=["tensor", "stage"]
)
def test_a_run_that_is_cut_goes_on_as_if_it_were_not(rng, tmp_path, make):
    """Checkpoints hold whole variables: also a single process goes on from them."""
    x = rng.standard_normal((24, 6)).astype(np.float32)
    y = (x[:, 0] > x[:, 1]).astype(np.int64)

    def job(epochs: int, path: Any, strategy: Any) -> tuple[list[float], Any]:
        net = mg.NeuralNetwork(
            [mg.nn.Input((6,)), mg.nn.Dense(16, activation="relu"), mg.nn.Dense(2)],
            loss="cross_entropy", optimizer=mg.optimizer.Adam(0.02), seed=0,
        )  # fmt: skip
        history = net.fit(
            x, y, batch_size=8, epochs=epochs, progress=False, distribute=strategy, resume=path,
            callbacks=[mg.callbacks.Checkpoint(path)],
        )  # fmt: skip
        return list(history["loss"]), net.tensors()

    whole = threads(2, lambda: job(3, tmp_path / "whole", make()))[1]
    threads(2, lambda: job(2, tmp_path / "cut", make()))
    (tmp_path / "alone").write_bytes((tmp_path / "cut").read_bytes())
    again = threads(2, lambda: job(3, tmp_path / "cut", make()))[1]
    alone = job(3, tmp_path / "alone", None)
    assert again[0] == whole[0]
    close(np.float32(alone[0]), np.float32(whole[0]))
    for name, value in whole[1].items():
        np.testing.assert_array_equal(again[1][name], value)
        close(alone[1][name], value)


def _experts(x: mg.Node, held: list[mg.Variable]) -> mg.Node:
    gate, experts, out = held
    chosen = mg.softmax(x @ gate, axis=-1)
    made = mg.einsum("bn,enm->bem", x, experts)
    return mg.sum(made * mg.expand_dims(chosen, -1), axis=1) @ out


def _normalized(x: mg.Node, held: list[mg.Variable]) -> mg.Node:
    scale, offset, weight, out = held
    rows = mg.batch_norm(x - mg.logsumexp(x, axis=-1, keepdims=True), scale, offset, eps=0.1)
    return mg.tanh(rows @ weight.T) @ out


def _centered(x: mg.Node, held: list[mg.Variable]) -> mg.Node:
    weight, scale, offset, out = held
    rows = mg.batch_norm(mg.tanh(x @ weight), scale, offset, eps=0.1)
    return (rows - mg.mean(rows, axis=0)) @ out  # its gradient is a sum of what was received


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (_experts, [(6, 3), (3, 6, 4), (4, 5)]),
        (_normalized, [(6,), (6,), (7, 6), (7, 5)]),
        (_centered, [(6, 8), (8,), (8,), (8, 5)]),
    ],
)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_sums_over_rows_wait_for_no_message_that_waits_for_them(rng, model, shapes, schedule):
    """Messages have an order, which kernels and buckets of sums may not close a circle with."""
    values = [rng.standard_normal(shape) for shape in shapes]
    rows, target = rng.standard_normal((8, 6)), rng.standard_normal((8, 5))

    def job(make: Any) -> tuple[list[float], list[np.ndarray]]:
        x = mg.input("x", ("batch", 6), dtype="float64")
        y = mg.input("y", ("batch", 5), dtype="float64")
        held = [mg.var(f"w{i}", init=value) for i, value in enumerate(values)]
        loss = mg.mean((model(x, held) - y) ** 2)
        step = mg.optimizer.SGD(0.1, momentum=0.5).step(
            loss, held, inputs=[x, y], outputs=[loss], distribute=None if make is None else make()
        )
        rank = 0 if make is None else mg.distributed.rank() // 2
        own = slice(None) if make is None else slice(4 * rank, 4 * rank + 4)
        losses = [float(step(rows[own], target[own])[0]) for _ in range(3)]
        return losses, [variable.value for variable in held]

    wanted = job(None)
    strategy = lambda: Hybrid(PipelineParallel(2, schedule), DataParallel())  # noqa: E731
    for found in threads(4, lambda: job(strategy), mesh=Mesh(data=2, stage=2)):
        close(found[0], wanted[0])
        for got, want in zip(found[1], wanted[1], strict=True):
            close(got, want)
