"""Newton's method on Rosenbrock's valley, with the Hessian by differentiating twice."""

import numpy as np

import magmagraph as mg

point = mg.var("point", shape=(2,))
a, b = point[0], point[1]
valley = (1.0 - a) ** 2 + 100.0 * (b - a**2) ** 2

gradient = mg.grad(valley, point)
# A row of the Hessian is the gradient of one component of the gradient.
hessian = mg.stack([mg.grad(gradient[i], point) for i in range(2)])
curvature = mg.function([point], [valley, gradient, hessian])

place = np.array([-1.2, 1.0], np.float32)
for iteration in range(8):
    height, slope, bend = curvature(place)
    print(f"{iteration}: f({place[0]:+.5f}, {place[1]:+.5f}) = {height:.3g}")
    place = place - np.linalg.solve(bend, slope)

assert np.allclose(place, 1.0, atol=1e-3)
