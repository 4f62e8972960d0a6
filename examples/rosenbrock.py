"""Down Rosenbrock's valley: many steps of descent, or a few of Newton's.

The valley f(a, b) = (1 - a)^2 + 100 (b - a^2)^2 has its minimum at (1, 1), and a curved floor that
is almost flat. The gradient says where it falls; only the Hessian, the matrix of all second
derivatives, knows how it bends.
"""

import numpy as np

import magmagraph as mg

START = np.array([-1.2, 1.0])  # float64: the floor of the valley is flat to seven digits
point = mg.var("point", init=START)
a, b = point[0], point[1]
valley = (1.0 - a) ** 2 + 100.0 * (b - a**2) ** 2


def at() -> str:
    """Return where the variable is."""
    return ", ".join(f"{value:.5f}" for value in point.value)


# Descent: each step looks at the slope alone.
result = mg.optimizer.GradientDescent(1e-3, momentum=0.9).minimize(valley, [point], steps=2000)
print(f"descent, {result.steps} steps: f({at()}) = {result.value:.2e}")

# Newton: each step goes to where the gradient would vanish if the Hessian stayed as it is,
#     point - H^-1 g.
gradient = mg.grad(valley, point)
hessian = mg.hessian(valley, point)
look = mg.function([], [valley, gradient, hessian])

point.value = START
for step in range(7):
    height, slope, bend = look()
    print(f"Newton, step {step}: f({at()}) = {height:.2e}")
    point.value = point.value - np.linalg.solve(bend, slope)

assert result.value < 1e-3
assert np.allclose(point.value, 1.0)
