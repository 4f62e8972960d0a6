"""A variational autoencoder of handwritten digits: codes drawn at random, with gradients.

    MAGMAGRAPH_DATA=... python examples/variational_autoencoder.py --epochs 10

The code of an image is a normal variable whose mean and spread a network gives; `mg.random.normal`
draws it inside the compiled step, new at every call, and the gradient goes through mean and spread.
Without MNIST in MAGMAGRAPH_DATA the small digits of scikit-learn stand in.
"""

import argparse

import numpy as np

import magmagraph as mg

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--code", type=int, default=8, help="numbers in a code")
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--rows", type=int, default=20_000, help="how many images to learn from")
arguments = parser.parse_args()

data = mg.data.mnist(timeout=0.0)
train, test = data.x_train[: arguments.rows], data.x_test
pixels = train.shape[1]

nn = mg.nn
hidden = nn.Dense(arguments.width, "relu", name="hidden")
mean_of, spread_of = (nn.Dense(arguments.code, name=name) for name in ("mean", "spread"))
decoder = nn.Sequential(nn.Dense(arguments.width, "relu"), nn.Dense(pixels), name="decoder")

mg.random.seed(0)
x = mg.var("x", shape=("batch", pixels))
h = hidden(x)
mean, log_spread = mean_of(h), spread_of(h)
code = mean + mg.exp(log_spread) * mg.random.normal(mean.shape)
# The bound on the images' likelihood: how well they come back, and how far codes are from normal.
wrong = mg.sum(mg.binary_cross_entropy(decoder(code), x, reduction="none"), axis=1)
far = mg.sum(0.5 * (mean**2 + mg.exp(2.0 * log_spread) - 1.0) - log_spread, axis=1)
bound = mg.mean(wrong + far)

weights = [v for layer in (hidden, mean_of, spread_of, decoder) for v in layer.trainable_variables]
step = mg.optimizer.Adam(1e-3).step(bound, weights, inputs=[x], outputs=[bound])
measure = mg.function([x], [mg.mean(wrong), mg.mean(far)])
print(data)
batches = mg.batches(train, size=100, seed=0)
for epoch in range(1, arguments.epochs + 1):
    losses = [step(*batch)[0] for batch in batches]
    of_pixels, of_codes = measure(test)
    print(
        f"epoch {epoch:2}: {np.mean(losses):7.2f}, of images held back {of_pixels + of_codes:7.2f}"
        f" ({of_pixels:.2f} of pixels, {of_codes:.2f} of codes)",
        flush=True,
    )

z = mg.var("z", shape=("count", arguments.code))
draw = mg.function([z], mg.sigmoid(decoder(z)))
made = draw(np.random.default_rng(1).normal(size=(3, arguments.code)))
print("images of codes drawn at random:")
rows = made.reshape(3, *data.image_shape)[:, :: 1 + data.image_shape[0] // 15]
for line in rows.transpose(1, 0, 2):
    print("  ".join("".join(" .:-=+*#"[int(7.99 * value)] for value in part) for part in line))
