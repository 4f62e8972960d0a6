"""Train a network on handwritten digits, and show what the compiler made of it."""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from ..data import Dataset

HIDDEN = 528
WEIGHT_DECAY = 0.001


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--layers", type=_positive, default=1, help="hidden layers of 528 units")
    parser.add_argument("--epochs", type=_positive, default=5, help="passes over the images")
    parser.add_argument("--batch", type=_positive, default=100, help="images in a step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order")


def run(chosen: argparse.Namespace) -> None:
    """Train the network and print the report, the loss, the accuracy and the time a step."""
    from rich.console import Console

    from .. import data

    console = Console(highlight=False)
    digits = data.mnist(timeout=0) if chosen.offline else data.mnist()
    console.print(f"[bold]Data[/]     {digits.source}", soft_wrap=True)
    features = digits.x_train.shape[1]
    sizes = [features, *[HIDDEN] * chosen.layers, digits.classes]
    console.print(
        f"[bold]Network[/]  {'-'.join(map(str, sizes))}, sigmoid units; "
        f"{sum(a * b + b for a, b in itertools.pairwise(sizes)):,} parameters; "
        f"stochastic gradient descent, rate {chosen.rate:g}, batches of {chosen.batch}"
    )
    step, classify = build(sizes, chosen.rate, chosen.seed)
    train(step, classify, digits, chosen, console)


def build(sizes: list[int], rate: float, seed: int) -> tuple[Any, Any]:
    """Return the function that trains a sigmoid network a step, and that which classifies.

    Parameters
    ----------
    sizes : list of int
        The numbers of features, of units in each hidden layer, and of classes.
    rate : float
        The learning rate.
    seed : int
        Decides the initial weights.

    Returns
    -------
    step : function
        Takes images (batch, features) and labels (batch,), updates the weights, returns the loss.
    classify : function
        Takes images (batch, features), returns the most likely class of each, shape (batch,).
    """
    import magmagraph as mg

    x = mg.var("x", shape=("batch", sizes[0]))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    parameters = []
    h = x
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        if layer:
            h = mg.sigmoid(h)
        # Glorot's interval, widened by 4: around zero a sigmoid has a fourth of the slope of the
        # hyperbolic tangent for which it was derived, and deep networks would not move at all.
        limit = 4 * (6 / (inputs + outputs)) ** 0.5
        W = mg.var(
            f"W{layer}",
            shape=(inputs, outputs),
            init=mg.init.uniform(-limit, limit, seed=seed + layer),
        )
        b = mg.var(f"b{layer}", shape=(outputs,), init=mg.init.zeros())
        parameters += [W, b]
        h = h @ W + b
    loss = mg.cross_entropy(h, labels)
    optimizer = mg.optimizer.SGD(rate, weight_decay=WEIGHT_DECAY)
    step = optimizer.step(loss, parameters, inputs=[x, labels], outputs=[loss])
    return step, mg.function([x], mg.argmax(h, axis=-1), name="classify")


def train(
    step: Any, classify: Any, digits: Dataset, chosen: argparse.Namespace, console: Console
) -> None:
    """Run the epochs and print what comes of them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from .. import data

    rows = data.batches(digits.x_train, digits.y_train, size=chosen.batch, seed=chosen.seed)
    begin = time.perf_counter()
    (first,) = step(*next(iter(rows)))
    console.print(f"[bold]Compiled[/] in {time.perf_counter() - begin:.2f} s by these passes\n")
    print(step.report, flush=True)
    console.print(f"\n[bold]Training[/] the first loss is {float(first):.4f}")
    rows.epoch = 0
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Remaining(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=chosen.epochs * len(rows))
        for epoch in range(1, chosen.epochs + 1):
            losses, times = [], []
            for batch in rows:
                begin = time.perf_counter()
                (loss,) = step(*batch)
                times.append(time.perf_counter() - begin)
                losses.append(float(loss))
                bar.update(task, advance=1, description=f"epoch {epoch}, loss {losses[-1]:.4f}")
            accuracy = (classify(digits.x_test) == digits.y_test).mean()
            bar.console.print(
                f"epoch {epoch:>3}   loss {statistics.fmean(losses):.4f}   "
                f"test accuracy {accuracy:.2%}   {1e3 * statistics.median(times):.3f} ms a step"
            )


def _positive(text: str) -> int:
    """Return the positive number that an argument holds."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number
