"""Logistic regression from its formula, by Newton's method and by a library's minimizer.

The Hessian is the graph's own: nothing is derived by hand.

Eight Newton steps reach a loss of 33.2519; 98 of 100 rows held back are right, and the weights are
scikit-learn's to 3e-6.
"""

import numpy as np
import scipy.optimize
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import magmagraph as mg

features, classes = load_breast_cancer(return_X_y=True)
order = np.random.default_rng(0).permutation(len(classes))
features, classes = features[order], classes[order].astype(float)
train, test = slice(100, None), slice(None, 100)
features = (features - features[train].mean(0)) / features[train].std(0)
columns = np.column_stack([features, np.ones(len(features))])

w = mg.var("w", init=np.zeros(columns.shape[1]))
x, t = columns[train], classes[train]
penalty = mg.sum(w[:-1] ** 2) / 2.0  # as scikit-learn's C=1: all but the offset
loss = mg.binary_cross_entropy(x @ w, t, reduction="sum") + penalty

gradient = mg.grad(loss, w)
hessian = mg.hessian(loss, w)
newton = mg.function([], loss, updates={w: w - mg.linalg.solve(hessian, gradient)})
for step in range(8):
    print(f"Newton's step {step}: loss {float(newton()):.10f}")
by_newton = w.value

w.value = np.zeros_like(by_newton)
objective = mg.scipy_objective(loss, [w])
found = scipy.optimize.minimize(objective, objective.x0, jac=True, method="L-BFGS-B")
peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(features[train], t)
theirs = np.append(peer.coef_[0], peer.intercept_[0])
right = ((columns[test] @ by_newton > 0) == classes[test]).mean()
print(f"L-BFGS: loss {found.fun:.10f} after {found.nit} iterations")
print(f"largest difference from scikit-learn's weights: {np.abs(by_newton - theirs).max():.1e}")
print(f"right on rows held back: {right:.1%}")
