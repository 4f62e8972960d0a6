"""A Gaussian process that fits its own length scale, amplitude and noise.

The likelihood of the data is written with one Cholesky factor of the kernel matrix; its gradient
comes from the graph, and SciPy climbs it. The same graph then predicts, at any number of points.
"""

import numpy as np
from scipy.optimize import minimize

import magmagraph as mg

rng = np.random.default_rng(0)
times = np.sort(rng.uniform(-3, 3, 40))
heights = np.sin(2 * times) + 0.1 * rng.normal(size=40)

x = mg.var("x", shape=("known",), dtype="float64")
y = mg.var("y", shape=("known",), dtype="float64")
new = mg.var("new", shape=("asked",), dtype="float64")
logarithms = mg.var("logarithms", init=np.zeros(3))  # so that what they are of stays positive
amplitude, length, noise = (mg.exp(logarithms[i]) for i in range(3))


def kernel(a: mg.Node, b: mg.Node) -> mg.Node:
    """Return how much the heights at all pairs of points have in common."""
    return amplitude**2 * mg.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)


count = x.shape[0]
L = mg.linalg.cholesky(kernel(x, x) + noise**2 * mg.eye(count, dtype="float64"))
white = mg.linalg.solve_triangular(L, y, lower=True)
surprise = 0.5 * mg.sum(white**2) + mg.sum(mg.log(mg.diagonal(L))) + 0.5 * count * np.log(2 * np.pi)

objective = mg.scipy_objective(surprise, [logarithms], feeds={x: times, y: heights})
found = minimize(objective, objective.x0, jac=True, method="L-BFGS-B")
objective.assign(found.x)
print(f"{found.nit} iterations: negative log likelihood {found.fun:.3f}")
for name, value in zip(("amplitude", "length", "noise"), np.exp(found.x), strict=True):
    print(f"  {name:9} {value:.3f}")

shared = mg.linalg.solve_triangular(L, kernel(x, new), lower=True)
predict = mg.function(
    [x, y, new],
    {"mean": shared.T @ white, "spread": mg.sqrt(amplitude**2 - mg.sum(shared**2, axis=0))},
)
points = np.linspace(-2.5, 2.5, 6)
answer = predict(times, heights, points)
print("\n    at    mean  spread   truth")
for row in zip(points, answer["mean"], answer["spread"], np.sin(2 * points), strict=True):
    print("".join(f"{number:8.3f}" for number in row))

assert abs(np.exp(found.x[2]) - 0.1) < 0.05  # the noise was 0.1
assert np.abs(answer["mean"] - np.sin(2 * points)).max() < 0.25
