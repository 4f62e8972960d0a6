"""A classifier with one hidden layer, written out: of small digits, or of flowers.

Run ``python examples/classifier.py`` or ``python examples/classifier.py iris``.
"""

import argparse

import numpy as np
from sklearn import datasets

import magmagraph as mg

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "data", nargs="?", choices=("iris", "digits"), default="digits",
    help="what is told apart (digits)",
)
parser.add_argument("--hidden", type=int, default=32, help="units of the hidden layer (32)")
parser.add_argument("--epochs", type=int, default=30, help="passes over the data (30)")
arguments = parser.parse_args()

data = datasets.load_iris() if arguments.data == "iris" else datasets.load_digits()
rng = np.random.default_rng(0)
order = rng.permutation(len(data.target))
features = (data.data[order] - data.data.mean(axis=0)) / (data.data.std(axis=0) + 1e-6)
features, classes = features.astype(np.float32), data.target[order]
held_back = len(order) // 5
train, test = slice(held_back, None), slice(None, held_back)

inputs, hidden, outputs = features.shape[1], arguments.hidden, int(classes.max()) + 1
x = mg.var("x", shape=("batch", inputs))
labels = mg.var("labels", shape=("batch",), dtype="int32")
W1 = mg.var("W1", shape=(inputs, hidden), init=mg.init.glorot_uniform(seed=1))
b1 = mg.var("b1", shape=(hidden,), init=mg.init.zeros())
W2 = mg.var("W2", shape=(hidden, outputs), init=mg.init.glorot_uniform(seed=2))
b2 = mg.var("b2", shape=(outputs,), init=mg.init.zeros())
scores = mg.tanh(x @ W1 + b1) @ W2 + b2
loss = mg.cross_entropy(scores, labels)

# One function a step: the loss, its gradients and the new weights, compiled together.
step = mg.optimizer.Adam(1e-2).step(loss, [W1, b1, W2, b2], inputs=[x, labels], outputs=loss)
classify = mg.function([x], mg.argmax(scores, axis=1))

batches = mg.batches(features[train], classes[train], size=20, seed=0)
for epoch in range(1, arguments.epochs + 1):
    losses = [float(step(*batch)) for batch in batches]
    if epoch % 10 == 0:
        right = (classify(features[test]) == classes[test]).mean()
        print(f"epoch {epoch:3}: loss {np.mean(losses):.4f}, right on held-back data {right:.1%}")

print(f"{len(step.plan.steps)} kernels a step, {step.memory.total} bytes")
