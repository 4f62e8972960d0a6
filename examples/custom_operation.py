"""An operation of one's own: fused into kernels, differentiated, and checked.

The soft step ``x / (1 + |x|)``, as a C expression and in NumPy, and as a network's activation.
"""

import numpy as np
from sklearn.datasets import load_iris

import magmagraph as mg


class SoftStep(mg.Operation):
    """Bring every number into (-1, 1)."""

    kernel = "a / ((T)1.0 + $fabs(a))"

    def numpy(self, x):
        """Say the same as the kernel."""
        return x / (1 + np.abs(x))

    def gradient(self, x, cotangent):
        """Return the cotangent of the operand."""
        return cotangent / (1.0 + mg.absolute(x)) ** 2


soft_step = SoftStep()
rng = np.random.default_rng(0)
mg.check_operation(soft_step, rng.standard_normal((4, 3)))  # raises where they disagree

x = mg.var("x", shape=("n",))
f = mg.function([x], mg.sum(soft_step(x * 2.0) + 1.0))
print(f"{f(rng.standard_normal(1000).astype('f4')):.3f} by {len(f.plan.steps)} kernel")

flowers, kinds = load_iris(return_X_y=True)
flowers = ((flowers - flowers.mean(0)) / flowers.std(0)).astype(np.float32)
net = mg.NeuralNetwork(
    [mg.nn.Input((4,)), mg.nn.Dense(16, soft_step), mg.nn.Output(3)],
    loss="cross_entropy",
    optimizer=mg.optimizer.Adam(0.03),
)
history = net.fit(flowers, kinds, batch_size=15, epochs=30)
print(f"iris: loss {history['loss'][-1]:.4f}, accuracy {history['accuracy'][-1]:.1%}")
