"""A layer that is an equation: its output is where z = tanh(z C + x U + b) comes to rest.

The fixed point is found by iteration, but its gradient needs no step of that: the implicit function
theorem gives it from the point alone, at the price of one more equation of the same size. So memory
does not grow with the number of iterations.
"""

import numpy as np

import magmagraph as mg

INPUTS, STATE = 3, 8
x = mg.var("x", shape=("batch", INPUTS), dtype="float64")
target = mg.var("target", shape=("batch",), dtype="float64")

rng = np.random.default_rng(0)
W = mg.var("W", init=0.1 * rng.normal(size=(STATE, STATE)))
U = mg.var("U", init=rng.normal(size=(INPUTS, STATE)))
b = mg.var("b", init=np.zeros(STATE))
v = mg.var("v", init=0.1 * rng.normal(size=STATE))

# The slope of tanh is 1 at most: where the largest singular value of the matrix is below 1, points
# draw together, and there is exactly one fixed point.
C = W * mg.minimum(1.0, 0.9 / mg.linalg.norm(W, ord=2))
start = mg.zeros((x.shape[0], STATE), dtype="float64")
rest, steps = mg.fixed_point(lambda z: mg.tanh(z @ C + x @ U + b), start)
loss = mg.mean((rest @ v - target) ** 2)
step = mg.optimizer.Adam(0.02).step(loss, [W, U, b, v], inputs=[x, target], outputs=[loss, steps])

inputs = rng.normal(size=(200, INPUTS))
wanted = np.sin(inputs[:, 0]) * inputs[:, 1]
for number in range(301):
    value, taken = step(inputs, wanted)
    if number % 60 == 0:
        print(f"step {number:3}: loss {value:.5f}, at rest after {taken} iterations")
print(f"memory of a step: {step.memory.total} bytes, however long it iterates")

# The gradient of the loss in b[0], and what differences of the loss say.
look = mg.function([x, target], [loss, mg.grad(loss, b)])
_, slope = look(inputs, wanted)
at, beside = b.value, 1e-5 * np.eye(STATE)[0]
losses = []
for sign in (1, -1):
    b.value = at + sign * beside
    losses.append(look(inputs, wanted)[0])
difference = (losses[0] - losses[1]) / 2e-5
print(f"gradient {slope[0]:.8f}, central difference {difference:.8f}")

assert value < 0.05
assert abs(slope[0] - difference) < 1e-7
