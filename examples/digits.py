"""Train a network of rectified linear units on MNIST with Adam.

Five epochs end at about 97.5 % of the test images or more. Where MNIST can be neither found nor
downloaded, small digits stand in.

    python examples/digits.py --epochs 5
"""

import argparse

import numpy as np

import magmagraph as mg

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=5, help="passes over the data (5)")
parser.add_argument("--hidden", type=int, default=256, help="units of the hidden layer (256)")
arguments = parser.parse_args()

digits = mg.data.mnist()
print(digits)
features = digits.x_train.shape[1]

x = mg.var("x", shape=("batch", features))
labels = mg.var("labels", shape=("batch",), dtype="int32")
W1 = mg.var("W1", shape=(features, arguments.hidden), init=mg.init.he_normal(seed=1))
b1 = mg.var("b1", shape=(arguments.hidden,), init=mg.init.zeros())
W2 = mg.var("W2", shape=(arguments.hidden, 10), init=mg.init.he_normal(seed=2))
b2 = mg.var("b2", shape=(10,), init=mg.init.zeros())
logits = mg.relu(x @ W1 + b1) @ W2 + b2
loss = mg.cross_entropy(logits, labels)

parameters = [W1, b1, W2, b2]
step = mg.optimizer.Adam(1e-3).step(loss, parameters, inputs=[x, labels], outputs=[loss])
classify = mg.function([x], mg.argmax(logits, axis=-1))

rows = mg.batches(digits.x_train, digits.y_train, size=100, seed=0)
for epoch in range(1, arguments.epochs + 1):
    losses = [float(step(*batch)[0]) for batch in rows]
    accuracy = (classify(digits.x_test) == digits.y_test).mean()
    print(f"epoch {epoch}: loss {np.mean(losses):.4f}, test accuracy {accuracy:.2%}")
