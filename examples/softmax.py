"""A softmax written by hand, as in a textbook, and what the compiler makes of it.

The textbook's form overflows: exp(1000) is infinite, and infinity over infinity is no number. The
compiler writes it anew in its stable form, says so in its report, and puts all of it into one
kernel, together with the loss and its gradient.
"""

import numpy as np

import magmagraph as mg

scores = mg.var("scores", shape=("batch", 4))
labels = mg.var("labels", shape=("batch",), dtype="int32")

power = mg.exp(scores)
probability = power / mg.sum(power, axis=1, keepdims=True)
chosen = mg.sum(mg.one_hot(labels, 4) * mg.log(probability), axis=1)
loss = -mg.mean(chosen)
gradient = mg.grad(loss, scores)

f = mg.function([scores, labels], [loss, gradient])
large = np.array([[1000.0, 0.0, -1000.0, 0.0], [0.5, 0.5, 0.5, 0.5]], np.float32)
classes = np.array([2, 0])

print("What simplify did:")
for rule, count in f.report["simplify"].hits.items():
    print(f"  {rule}: {count}")
print("\nBefore:", len(f.source_graph), "nodes. What runs now:\n")
value, slope = f(large, classes)
print(f.plan)
print("\nThe loss of scores as far apart as 2000:", value)
print("and its gradient, the probabilities less the labels, over the rows:")
print(slope)

plain = mg.function([scores, labels], [loss, gradient], skip=("simplify",))
print("\nAs written it would have been:", plain(large, classes)[0])

expected = np.array([[1, 0, -1, 0], [-0.75, 0.25, 0.25, 0.25]]) / 2
assert np.isclose(value, (2000 + np.log(4)) / 2)
assert np.allclose(slope, expected, atol=1e-6)
assert len(f.plan.steps) == 1
