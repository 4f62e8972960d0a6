"""Principal components of the iris data by a singular value decomposition in the graph.

The first two hold 97.8 % of the variance, and are scikit-learn's to 2e-14.
"""

import numpy as np
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA

import magmagraph as mg

x = mg.var("x", shape=("rows", 4), dtype="float64")
centered = x - mg.mean(x, axis=0)
_, values, axes = mg.linalg.svd(centered, full_matrices=False)
share = values**2 / mg.sum(values**2)
scores = centered @ axes[:2].T
components = mg.function([x], {"axes": axes[:2], "share": share, "scores": scores})

flowers, kinds = load_iris(return_X_y=True)
found = components(flowers)
peer = PCA(2).fit(flowers)
sign = np.sign((found["axes"] * peer.components_).sum(1))[:, None]  # an axis has no direction
print("share of the variance:", *(f"{part:.4f}" for part in found["share"]))
for number in range(3):
    center = found["scores"][kinds == number].mean(0)
    print(f"{load_iris().target_names[number]:11} around", *(f"{v:6.2f}" for v in center))
difference = np.abs(sign * found["axes"] - peer.components_).max()
print(f"largest difference from scikit-learn's axes: {difference:.1e}")
