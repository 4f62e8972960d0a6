"""A small convolutional network, written out, says which way stripes run.

Two convolutions with pooling between them, trained by Adam on noisy pictures that are made up on
the spot. Look at the last lines: what of a step's time goes where.
"""

import numpy as np

import magmagraph as mg

WAYS = np.array([[1, 0], [0, 1], [1, 1], [1, -1]])  # lines, columns, and the two diagonals
SIZE = 16


def pictures(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy stripes of four directions, and which."""
    ways = rng.integers(len(WAYS), size=count)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    phase = WAYS[ways, 0, None, None] * rows + WAYS[ways, 1, None, None] * columns
    stripes = np.sin(1.5 * phase + rng.uniform(0, 6, (count, 1, 1)))
    noisy = stripes + rng.normal(size=stripes.shape)
    return noisy[:, None].astype(np.float32), ways


x = mg.var("x", shape=("batch", 1, SIZE, SIZE))
ways = mg.var("ways", shape=("batch",), dtype="int32")
K1 = mg.var("K1", shape=(8, 1, 5, 5), init=mg.init.he_normal(seed=1))
K2 = mg.var("K2", shape=(16, 8, 3, 3), init=mg.init.he_normal(seed=2))
b1 = mg.var("b1", shape=(8,), init=mg.init.zeros())
b2 = mg.var("b2", shape=(16,), init=mg.init.zeros())
h = mg.max_pool2d(mg.relu(mg.conv2d(x, K1, padding="same", bias=b1)), 2)
h = mg.relu(mg.conv2d(h, K2, bias=b2))
h = mg.mean(h, axis=(2, 3))
W = mg.var("W", shape=(16, 4), init=mg.init.glorot_normal(seed=3))
scores = h @ W
loss = mg.cross_entropy(scores, ways)

parameters = [K1, b1, K2, b2, W]
step = mg.optimizer.Adam(1e-2).step(loss, parameters, inputs=[x, ways], outputs=loss)
classify = mg.function([x], mg.argmax(scores, axis=1))

rng = np.random.default_rng(0)
for number in range(101):
    value = float(step(*pictures(rng, 50)))
    if number % 20 == 0:
        print(f"step {number:3}: loss {value:.4f}")

images, truth = pictures(rng, 500)  # another batch size: the same kernels, sizes bound anew
right = (classify(images) == truth).mean()
print(f"right on new pictures: {right:.1%}\n")
print(step.profile(*pictures(rng, 50)))

assert right > 0.9
