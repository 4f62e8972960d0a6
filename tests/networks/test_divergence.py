"""A run that diverges names the layer, the operation and the line that made the first NaN."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import nn

RNG = np.random.default_rng(1)
X = RNG.normal(size=(40, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


class Log(nn.Layer):
    """Wrong where its input is negative."""

    def call(self, x, training):
        return mg.log(x)


LINE = inspect.getsourcelines(Log)[1] + 4
EVERY_STEP = type("Step", (mg.callbacks.Callback,), {"step_end": lambda self, training: None})


def network(*layers: nn.Layer, **options: object) -> mg.NeuralNetwork:
    given = {"loss": "cross_entropy", "optimizer": mg.optimizer.SGD(0.1), **options}
    return mg.NeuralNetwork([nn.Input((4,)), nn.Dense(8), *layers, nn.Dense(2)], **given)


@pytest.mark.parametrize("options", [{}, {"callbacks": [EVERY_STEP()]}, {"steps_per_epoch": 2}])
def test_a_nan_names_layer_operation_and_line_and_not_the_rate(options):
    net = network(Log(name="logarithm"))
    before = net.tensors()
    with pytest.raises(mg.DivergedError, match="the loss is nan in epoch 0, step 0") as caught:
        net.fit(X, Y, batch_size=10, **options)
    text = str(caught.value)
    assert "by log, made at" in text
    assert f"{Path(__file__).name}:{LINE} in 'logarithm' makes the first value" in text
    assert "rate" not in text
    assert all(np.array_equal(value, before[name]) for name, value in net.tensors().items())


def test_a_nan_in_a_later_step_is_found_there():
    """The step before must be repeated, as it changes the weights, and later ones must not."""
    x = np.abs(X)
    x[25, 0] = 3e38  # of the third batch; finite itself
    net = network(nn.Dropout(0.2), loss="mse")
    with pytest.raises(mg.DivergedError, match="in epoch 0, step 2") as caught:
        net.fit(x, np.eye(2)[Y], batch_size=10, shuffle=False)
    text = str(caught.value)
    assert "makes the first value that is not finite" in text and "it reaches: output 0" in text
    assert text.endswith("try: a smaller learning rate, or clip_norm=")


def test_a_rate_that_is_too_large_is_still_named():
    net = network(loss="mse", optimizer=mg.optimizer.SGD(1e20))
    with pytest.raises(mg.DivergedError, match="a smaller learning rate") as caught:
        net.fit(X, np.eye(2)[Y], batch_size=10)
    assert "in 'dense" in str(caught.value)


def test_batches_that_cannot_be_had_again_leave_the_error_as_it_is():
    def once():
        while True:
            yield X, Y

    net = network(Log())
    with pytest.raises(mg.DivergedError, match="the loss is nan") as caught:
        net.fit(once(), steps_per_epoch=2)
    assert "log" not in str(caught.value)

    class Failing:
        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes > 2:
                raise OSError("the disk is gone")
            yield X, Y

    with pytest.raises(mg.DivergedError, match="the loss is nan") as caught:
        net.fit(Failing())
    assert "the disk is gone" in caught.value.__notes__[0]
