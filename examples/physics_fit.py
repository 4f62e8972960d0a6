"""A pendulum's length and friction from a noisy record of its angle.

The equation of motion is solved inside the graph by Runge-Kutta steps in a `mg.scan`; the gradient
runs through the solver, and a library's minimizer finds the constants.

Found: a length of 0.6997 (true 0.7) and a friction of 0.1449 (true 0.15), from angles with noise of
0.05.
"""

import numpy as np
import scipy.optimize

import magmagraph as mg

STEP, COUNT, GRAVITY = 0.02, 500, 9.81
LENGTH, FRICTION, START = 0.7, 0.15, (1.2, 0.0)


def motion(state, length, friction):
    """Return the derivative of angle and speed: ``a'' = -g/l sin(a) - k a'``."""
    return mg.stack([state[1], -GRAVITY / length * mg.sin(state[0]) - friction * state[1]])


def solution(start, length, friction):
    """Return the angles at all times, by steps of the classical Runge-Kutta method."""

    def advance(state, _):
        a = motion(state, length, friction)
        b = motion(state + STEP / 2 * a, length, friction)
        c = motion(state + STEP / 2 * b, length, friction)
        d = motion(state + STEP * c, length, friction)
        new = state + STEP / 6 * (a + 2.0 * b + 2.0 * c + d)
        return new, new[0]

    return mg.scan(advance, start, length=COUNT)[1]


truth = solution(mg.constant(np.array(START)), np.float64(LENGTH), np.float64(FRICTION)).eval()
record = truth + np.random.default_rng(0).normal(0.0, 0.05, COUNT)

length = mg.var("length", init=np.float64(1.0))
friction = mg.var("friction", init=np.float64(0.5))
start = mg.var("start", init=np.array([1.0, 0.0]))
unknown = [length, friction, start]
# First the early part alone: over all of it a wrong length is out of step, and the loss has
# many minima.
for part in (50, 150, COUNT):
    loss = mg.mean((solution(start, length, friction)[:part] - record[:part]) ** 2)
    objective = mg.scipy_objective(loss, unknown)
    found = scipy.optimize.minimize(objective, objective.x0, jac=True, method="BFGS")
    print(
        f"{part:3} times: length {length.value:.4f}, friction {friction.value:.4f}, "
        f"error {np.sqrt(found.fun):.4f} after {found.nit} iterations"
    )
print(f"true values:  {LENGTH:.4f}           {FRICTION:.4f}, noise 0.05")
