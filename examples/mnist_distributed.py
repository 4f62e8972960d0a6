"""A network on MNIST, trained by as many processes as there are.

    python examples/mnist_distributed.py
    mpiexec -n 4 python examples/mnist_distributed.py --epochs 5
    mpiexec -n 4 python examples/mnist_distributed.py --algorithm async

Every rank reads the data and takes its part of each batch. Losses and weights are those of one
process, to rounding; asynchronous ranks show how stale their changes were instead.
"""

import argparse

import magmagraph as mg

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=3, help="passes over the data (3)")
parser.add_argument("--units", type=int, default=528, help="units of a hidden layer (528)")
parser.add_argument("--batch", type=int, default=200, help="rows of all ranks together")
parser.add_argument("--rows", type=int, help="train on the first so many images")
parser.add_argument(
    "--algorithm", default="allreduce", choices=["allreduce", "ring", "parameter_server", "async"],
    help="how sums travel (allreduce)",
)
arguments = parser.parse_args()

first = mg.distributed.rank() == 0
digits = mg.data.mnist()
x, y = digits.x_train[: arguments.rows], digits.y_train[: arguments.rows]
net = mg.NeuralNetwork(
    [
        mg.nn.Input((x.shape[1],)),
        mg.nn.Dense(arguments.units, "relu"),
        mg.nn.Dense(arguments.units, "relu"),
        mg.nn.Output(digits.classes),
    ],
    loss="cross_entropy",
    optimizer=mg.optimizer.SGD(0.1, momentum=0.5),
)
strategy = mg.distributed.DataParallel(algorithm=arguments.algorithm)
history = net.fit(
    x, y, batch_size=arguments.batch, epochs=arguments.epochs, distribute=strategy
)
if first:
    print(f"{mg.distributed.size()} ranks, {arguments.algorithm}")
    for epoch, (loss, seconds) in enumerate(
        zip(history["loss"], history["seconds"], strict=True), 1
    ):
        print(f"epoch {epoch}: loss {loss:.4f}, {seconds:.2f} s")
    print(f"test accuracy {net.evaluate(digits.x_test, digits.y_test)['accuracy']:.2%}")
    for staleness, count in strategy.staleness.items():
        print(f"{count} changes met weights that were {staleness} changes newer")
