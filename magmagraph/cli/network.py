"""The network of the demo, written as a user would write it."""

from __future__ import annotations

from itertools import pairwise

import magmagraph as mg

WEIGHT_DECAY = 0.001


def build(sizes: list[int], rate: float, seed: int) -> tuple[mg.Function, mg.Function]:
    """Return the function that trains a sigmoid network a step, and that which classifies.

    Parameters
    ----------
    sizes : list of int
        The numbers of features, of units in each hidden layer, and of classes.
    rate : float
        The learning rate.
    seed : int
        Decides the initial weights.

    Returns
    -------
    step : Function
        Takes images (batch, features) and labels (batch,), updates the weights, returns the loss.
    classify : Function
        Takes images (batch, features), returns the most likely class of each, shape (batch,).
    """
    x = mg.var("x", shape=("batch", sizes[0]))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    parameters = []
    h = x
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        if layer:
            h = mg.sigmoid(h)
        # Glorot's interval, widened by 4: around zero a sigmoid has a fourth of the slope of the
        # hyperbolic tangent for which it was derived, and deep networks would not move at all.
        initial = mg.init.glorot_uniform(gain=4.0, seed=seed + layer)
        W = mg.var(f"W{layer}", shape=(inputs, outputs), init=initial)
        b = mg.var(f"b{layer}", shape=(outputs,), init=mg.init.zeros())
        parameters += [W, b]
        h = h @ W + b
    loss = mg.cross_entropy(h, labels)
    optimizer = mg.optimizer.SGD(rate, weight_decay=WEIGHT_DECAY)
    step = optimizer.step(
        loss, parameters, inputs=[x, labels], outputs=[loss], name="training step"
    )
    return step, mg.function([x], mg.argmax(h, axis=-1), name="classify")
