"""One block of a transformer learns to add: the next number is the sum of the last two, modulo 7.

Embeddings, causal attention of several heads, layer norms and a small network, as formulas; the
loss and all new weights are one compiled function, for any batch and any length.
"""

import numpy as np

import magmagraph as mg

NUMBERS, WIDTH, HEADS, LONGEST = 7, 32, 4, 32

tokens = mg.var("tokens", shape=("batch", "time"), dtype="int32")
batch, time = tokens.shape


def weights(name: str, *shape: int) -> mg.Variable:
    """Return a variable of small random numbers."""
    seed = len(parameters)
    parameters.append(mg.variable(name, shape=shape, init=mg.init.normal(std=0.1, seed=seed)))
    return parameters[-1]


def heads(x: mg.Node) -> mg.Node:
    """Split the last axis among the heads, which become axis 1."""
    return mg.transpose(mg.reshape(x, (batch, time, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))


parameters: list[mg.Variable] = []
E, P = weights("E", NUMBERS, WIDTH), weights("P", LONGEST, WIDTH)
x = mg.embedding(tokens, E) + P[:time]
query, key, value = mg.split(mg.layer_norm(x) @ weights("W_in", WIDTH, 3 * WIDTH), 3, axis=-1)
mixed = mg.scaled_dot_product_attention(heads(query), heads(key), heads(value), causal=True)
mixed = mg.reshape(mg.transpose(mixed, (0, 2, 1, 3)), (batch, time, WIDTH))
x = x + mixed @ weights("W_out", WIDTH, WIDTH)
inner = mg.gelu(mg.layer_norm(x) @ weights("W_1", WIDTH, 4 * WIDTH))
x = x + inner @ weights("W_2", 4 * WIDTH, WIDTH)
scores = mg.layer_norm(x) @ weights("W_scores", WIDTH, NUMBERS)

# The first two numbers are free: what follows the second one on is what can be learned.
guesses = mg.reshape(scores[:, 1:-1], (-1, NUMBERS))
loss = mg.cross_entropy(guesses, mg.reshape(tokens[:, 2:], (-1,)))
step = mg.optimizer.Adam(3e-3).step(loss, parameters, inputs=[tokens], outputs=loss)
follow = mg.function([tokens], mg.argmax(scores[:, -1], axis=-1))


def sequences(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Return sequences in which each number is the sum of the two before it, modulo 7."""
    rows = rng.integers(NUMBERS, size=(count, 2))
    while rows.shape[1] < length:
        rows = np.column_stack([rows, rows[:, -2:].sum(axis=1) % NUMBERS])
    return rows


rng = np.random.default_rng(0)
for number in range(151):
    lost = float(step(sequences(rng, 64, 16)))
    if number % 30 == 0:
        print(f"step {number:3}: loss {lost:.4f}")

asked = sequences(rng, 500, 13)
right = (follow(asked[:, :-1]) == asked[:, -1]).mean()
print(f"right on sequences of another length: {right:.1%}")
print("as it goes on:", *asked[0, :-1], "->", follow(asked[:1, :-1])[0])
print(f"{len(step.plan.steps)} kernels a step, {step.memory.total} bytes")

assert right > 0.9
