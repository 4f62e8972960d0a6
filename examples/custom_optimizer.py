"""An optimizer of one's own: one method, nodes in and nodes out.

Lion (X. Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2) steps by
the sign of a momentum: beside Adam, on small digits.
"""

import numpy as np
from sklearn.datasets import load_digits

import magmagraph as mg


class Lion(mg.optimizer.Optimizer):
    """Step by the sign of an interpolated momentum."""

    def __init__(self, learning_rate=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.0):
        super().__init__(learning_rate, beta1=beta1, beta2=beta2, weight_decay=weight_decay)

    def update(self, variable, gradient, state):
        """Return the variable's new value."""
        options = state.options
        momentum = state.zeros("momentum")
        direction = mg.sign(options.beta1 * momentum + (1 - options.beta1) * gradient)
        state["momentum"] = options.beta2 * momentum + (1 - options.beta2) * gradient
        return variable - state.learning_rate * (direction + options.weight_decay * variable)


digits = load_digits()
images, labels = (digits.data / 16).astype(np.float32), digits.target
for optimizer in (Lion(3e-4, weight_decay=0.1), mg.optimizer.Adam(3e-3)):
    net = mg.NeuralNetwork(
        [mg.nn.Input((64,)), mg.nn.Dense(64, "relu"), mg.nn.Output(10)],
        loss="cross_entropy",
        optimizer=optimizer,
    )
    history = net.fit(images[300:], labels[300:], batch_size=30, epochs=20)
    found = net.evaluate(images[:300], labels[:300])
    bytes_held = sum(held.value.nbytes for held in net.optimizer.state.values())
    print(
        f"{type(optimizer).__name__:5} loss {history['loss'][-1]:.4f}, "
        f"right on images held back {found['accuracy']:.1%}, {bytes_held:,} bytes of state"
    )
