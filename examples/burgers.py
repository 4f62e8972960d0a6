"""Burgers' equation learned by a network that is told nothing but the equation.

    python examples/burgers.py --steps 2000

A network u(x, t) is trained so that u_t + u u_x = v u_xx holds at random points and u begins as
-sin(pi x); it is 0 at both ends by its form. The derivatives are graphs of `mg.grad`, those of
second order gradients of gradients, and the training differentiates them once more. What it finds
is compared with a solution by differences on a fine grid.
"""

import argparse

import numpy as np

import magmagraph as mg

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--points", type=int, default=500)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--viscosity", type=float, default=0.05)
arguments = parser.parse_args()

nn, viscosity = mg.nn, arguments.viscosity
network = nn.Sequential(*[nn.Dense(arguments.width, "tanh") for _ in range(3)], nn.Dense(1))


def solution(x: mg.Node, t: mg.Node) -> mg.Node:
    """Return the network's u at points: 0 at both ends, whatever its weights are."""
    return (1.0 - x**2) * network(mg.stack([x, t], axis=-1))[:, 0]


x, t = mg.var("x", shape=("points",)), mg.var("t", shape=("points",))
u = solution(x, t)
# Each u reads its own point alone, so the gradient of their sum is the derivative at each.
u_x, u_t = mg.grad(mg.sum(u), [x, t])
u_xx = mg.grad(mg.sum(u_x), x)
equation = mg.mean((u_t + u * u_x - viscosity * u_xx) ** 2)
first = mg.var("first", shape=("starts",))
start = mg.mean((solution(first, mg.zeros_like(first)) + mg.sin(np.pi * first)) ** 2)

optimizer = mg.optimizer.Adam(mg.schedule.cosine(5e-3, arguments.steps))
step = optimizer.step(
    equation + 10.0 * start, network.trainable_variables,
    inputs=[x, t, first], outputs=[equation, start],
)
rng = np.random.default_rng(0)
for number in range(arguments.steps):
    places = rng.uniform([-1, 0], [1, 1], (arguments.points, 2)).astype(np.float32)
    found = step(places[:, 0], places[:, 1], rng.uniform(-1, 1, 200).astype(np.float32))
    if number % max(1, arguments.steps // 5) == 0 or number == arguments.steps - 1:
        print(f"step {number:5}: equation {found[0]:.5f}, start {found[1]:.6f}")


def by_differences(cells: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid and u at time 1, by small steps of a scheme of second order in space."""
    grid = np.linspace(-1.0, 1.0, cells + 1)
    width = grid[1] - grid[0]
    count = int(np.ceil(1.0 / (0.2 * width**2 / viscosity)))
    values = -np.sin(np.pi * grid)
    for _ in range(count):
        inner = values[1:-1]
        flow = (values[2:] ** 2 - values[:-2] ** 2) / (4 * width)
        bend = viscosity * (values[2:] - 2 * inner + values[:-2]) / width**2
        values[1:-1] = inner + (bend - flow) / count
    return grid, values


grid, wanted = by_differences()
given = mg.function([x, t], u)(grid, np.ones_like(grid))
error = np.sqrt(np.mean((given - wanted) ** 2) / np.mean(wanted**2))
print("\n     x  network  differences")
for place in range(0, len(grid), 50):
    print(f"{grid[place]:6.2f} {given[place]:8.4f} {wanted[place]:12.4f}")
print(f"relative error at t = 1: {error:.4f}")
