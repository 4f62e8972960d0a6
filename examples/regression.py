"""Linear regression: gradients from a graph, the minimum from SciPy, the answer from algebra."""

import numpy as np
from scipy.optimize import minimize

import magmagraph as mg

rng = np.random.default_rng(0)
features = rng.normal(size=(200, 3))
truth = np.array([2.0, -1.0, 0.5])
values = features @ truth + 3.0 + 0.1 * rng.normal(size=200)

X = mg.var("X", shape=("rows", 3), dtype="float64")
y = mg.var("y", shape=("rows",), dtype="float64")
slope = mg.var("slope", init=np.zeros(3))
offset = mg.var("offset", init=np.float64(0.0))
loss = mg.mean((X @ slope + offset - y) ** 2)

# SciPy wants one flat vector, and a function that gives the value and the gradient together.
objective = mg.scipy_objective(loss, [slope, offset], feeds={X: features, y: values})
found = minimize(objective, objective.x0, jac=True, method="L-BFGS-B")
objective.assign(found.x)
print(f"{found.nit} iterations, {found.nfev} calls: loss {found.fun:.6f}")
print("slope ", np.round(slope.value, 4))
print("offset", np.round(offset.value, 4))

columns = np.column_stack([features, np.ones(200)])
exact, *_ = np.linalg.lstsq(columns, values, rcond=None)
assert np.allclose([*slope.value, offset.value], exact, atol=1e-4)
