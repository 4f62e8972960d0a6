"""Hyperparameters of a network on MNIST, on one core or on many, poor trials stopped early.

    python examples/mnist_search.py --method grid
    python examples/mnist_search.py --method tpe --trials 40 --executor process
    mpiexec -n 4 python examples/mnist_search.py --executor mpi

Each trial trains on ``--rows`` images and reports its accuracy on 2000 others after each epoch. Of
the trials that come to a rung (1, 2, 4, ... epochs) the better half goes on. The images of the test
are looked at once, with the best network, which is trained again.
"""

import argparse
import functools

import magmagraph as mg

HELD = 2000  # images that trials are judged by


@functools.cache
def digits():
    """Return the images and labels."""
    return mg.data.mnist()


def network(point, seed):
    """Return the network for a point of the space."""
    images = digits()
    layers = [mg.nn.Input((images.x_train.shape[1],))]
    for _ in range(point["layers"]):
        layers.append(mg.nn.Dense(point["units"], "relu"))
    return mg.NeuralNetwork(
        [*layers, mg.nn.Output(images.classes)],
        loss="cross_entropy",
        optimizer=mg.optimizer.Adam(point["rate"]),
        seed=seed,
    )


def objective(trial, rows, epochs):
    """Return accuracy and loss on the images that trials are judged by."""
    images = digits()
    held = min(HELD, len(images.x_train) // 4)
    x, y = images.x_train[:-held][:rows], images.y_train[:-held][:rows]
    judge = images.x_train[-held:], images.y_train[-held:]
    history = network(trial, trial.seed).fit(
        x,
        y,
        batch_size=100,
        epochs=epochs,
        validation_data=judge,
        callbacks=[trial.callback("val_accuracy")],
        progress=False,
    )
    last = history.records[-1]
    return {"accuracy": last["val_accuracy"], "loss": last["val_loss"]}


def space(method, points):
    """Return what is searched: steps for a grid, all numbers between for the others."""
    if points == 4:
        return {"rate": [1e-3, 1e-2], "units": [32, 64], "layers": [1]}
    if method == "grid":
        rate, units = mg.tune.grid(1e-4, 1e-1, factor=10), mg.tune.grid(32, 256, factor=2)
    else:
        rate, units = mg.tune.log_uniform(1e-4, 1e-1), mg.tune.integers(16, 256, 16)
    return {"rate": rate, "units": units, "layers": mg.tune.integers(1, 3)}


def main():
    """Search, then try the best network on the images of the test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--method", choices=["grid", "random", "tpe", "cmaes", "gp", "nsga2"], default="grid",
        help="how points are chosen (grid)",
    )
    parser.add_argument(
        "--executor", choices=["serial", "process", "mpi", "dask"], default="serial",
        help="where trials run (serial)",
    )
    parser.add_argument("--points", type=int, choices=[4, 48], default=48, help="of the grid")
    parser.add_argument("--trials", type=int, default=30, help="of random search and TPE")
    parser.add_argument("--rows", type=int, default=10000, help="images to train with")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the data (4)")
    parser.add_argument("--journal", help="a file from which a killed search goes on")
    parser.add_argument("--report", help="a page with plots, to be written to this file")
    arguments = parser.parse_args()

    found = mg.tune.search(
        functools.partial(objective, rows=arguments.rows, epochs=arguments.epochs),
        space(arguments.method, arguments.points),
        method=arguments.method,
        executor=arguments.executor,
        maximize="accuracy",
        trials=None if arguments.method == "grid" else arguments.trials,
        stop=mg.tune.Halving(factor=2),
        ahead=8,
        journal=arguments.journal,
    )
    if mg.distributed.rank() != 0:
        return
    print(found)
    images = digits()
    net = network(found.best.params, seed=0)
    net.fit(images.x_train[: arguments.rows], images.y_train[: arguments.rows],
            batch_size=100, epochs=arguments.epochs, progress=False)
    accuracy = net.evaluate(images.x_test, images.y_test)["accuracy"]
    print(f"the best point: {found.best.params}; of the test images it gets {accuracy:.2%} right")
    if arguments.report:
        found.report(arguments.report, "MNIST")
        print(f"wrote {arguments.report}")


if __name__ == "__main__":
    main()
