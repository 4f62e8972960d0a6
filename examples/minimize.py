"""Minimize a function of one variable, and look at what is computed."""

import magmagraph as mg

x = mg.var("x", init=5.0)
loss = x**2 + mg.constant(-2.0)
print("The loss:", loss, "and its gradient:", mg.grad(loss, x), sep="\n")

result = mg.optimizer.GradientDescent(0.05).minimize(loss, [x], steps=100)
print(f"{result.steps} steps from 5.0: x = {x.value:.6g}, loss = {result.value:.6g}")

# Each step multiplies x by 1 - 2 * 0.05.
assert abs(x.value - 5 * 0.9**100) < 1e-6
