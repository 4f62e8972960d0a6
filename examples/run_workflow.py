"""A workflow of five modules: data, three fits at once, a program, a choice, and a check of it.

    python examples/run_workflow.py                 # one module after the other
    python examples/run_workflow.py process         # in processes; or dask
    mpiexec -n 5 python examples/run_workflow.py
    mpiexec -n 5 magmagraph workflow run examples/workflow.toml -o timeline.svg

`workflow.toml` says what runs after what, in how many copies. The functions below are its modules:
they share values through a store, and send each other messages.
"""

import sys
from pathlib import Path

import numpy as np

import magmagraph as mg


def data(context):
    """Make points near a line, and share them."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (context.arguments["rows"], 2)).astype(np.float32)
    y = x @ np.array([2.0, -1.0], np.float32) + rng.normal(0, 0.1, len(x)).astype(np.float32)
    context.store.put("points", (x, y))


def fit(context):
    """Fit the line with the rate of this copy; share the weights, send the loss."""
    x, y = context.store.get("points")
    rate = context.arguments["rates"][context.copy]
    rows, truth = mg.var("x", shape=("n", 2)), mg.var("y", shape=("n",))
    w = mg.var("w", init=np.zeros(2), dtype="float32")
    loss = mg.mean((rows @ w - truth) ** 2)
    step = mg.function([rows, truth], loss, {w: w - rate * mg.grad(loss, w)})
    for _ in range(context.arguments["steps"]):
        last = step(x, y)
    context.store.put(f"weights {context.copy}", np.asarray(w.value))
    context.send("choose", (rate, float(last)))


def choose(context):
    """Take the best of all fits."""
    losses = [context.receive("fit", copy=copy) for copy in range(3)]
    best = min(range(3), key=lambda copy: losses[copy][1])
    weights = context.store.get(f"weights {best}")
    lines = [f"rate {rate:<5g} loss {loss:.4f}" for rate, loss in losses]
    lines.append(f"best: copy {best}, weights {weights[0]:.2f} and {weights[1]:.2f}")
    (context.output / "choice.txt").write_text("\n".join(lines) + "\n")
    context.send("check", best)


def check(context):
    """Compare the chosen weights with those of least squares."""
    x, y = context.store.get("points")
    weights = context.store.get(f"weights {context.receive('choose')}")
    error = np.abs(weights - np.linalg.lstsq(x, y)[0]).max()
    with (context.output / "choice.txt").open("a") as file:
        file.write(f"least squares: at most {error:.3f} away\n")


def main():
    """Run the workflow beside this file, and show what it has written."""
    executor = sys.argv[1] if len(sys.argv) > 1 else None
    path = Path(__file__).with_name("workflow.toml")
    result = mg.workflow.run(path, output="workflow-output", executor=executor)
    if mg.distributed.rank() != 0:
        return
    print(result)
    print(Path("workflow-output", "choice.txt").read_text(), end="")
    result.timeline("workflow-output/timeline.svg")
    print("wrote workflow-output/timeline.svg")


if __name__ == "__main__":
    main()
