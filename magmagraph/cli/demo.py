"""Train a network on handwritten digits, and show what the compiler made of it."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import target
from .target import positive, seed

if TYPE_CHECKING:
    from rich.console import Console

    from ..data import Dataset

HIDDEN = 528
# Images fewer than this go in smaller batches more often, to make about as many steps.
FEW = 10_000


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--layers", type=positive, default=1, help="hidden layers of 528 (1)")
    parser.add_argument(
        "--epochs", type=positive, help="passes over the images (5; 10 over small digits)"
    )
    parser.add_argument(
        "--batch", type=positive, help="images in a step (100; 10 of small digits)"
    )
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (0.05)")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    parser.add_argument("--seed", type=seed, default=0, help="of the weights and the order (0)")
    parser.add_argument(
        "-o", "--output", metavar="PATH.html", help="write a page that shows the step at each pass"
    )


def run(options: argparse.Namespace) -> None:
    """Train the network and print the report, the loss, the accuracy and the time a step."""
    from rich.console import Console

    from .. import data

    path = None if options.output is None else target.output(options.output, (".html",))
    console = Console(highlight=False)
    digits = data.mnist(timeout=0) if options.offline else data.mnist()
    few = len(digits.x_train) < FEW
    options.epochs = options.epochs or (10 if few else 5)
    options.batch = options.batch or (10 if few else 100)
    sizes = [digits.x_train.shape[1], *[HIDDEN] * options.layers, digits.classes]
    console.print(f"[bold]Data[/]      {digits.source}", soft_wrap=True)
    console.print(
        f"[bold]Network[/]   {'-'.join(map(str, sizes))}, sigmoid units, "
        f"{sum(a * b + b for a, b in itertools.pairwise(sizes)):,} parameters",
        soft_wrap=True,
    )
    console.print(
        f"[bold]Training[/]  gradient descent, rate {options.rate:g}, batches of {options.batch}"
    )
    step, classify = _network().build(sizes, options.rate, options.seed)
    train(step, classify, digits, options, console)
    if path is None:
        console.print(
            "\nNext: -o demo.html writes a page with this step at each pass; docs/tutorial.md "
            "trains a network of layers, docs/guide.md tells the rest.",
            soft_wrap=True,
        )
        return
    from ..inspect.show import show

    console.print(f"\n{target.written(path, show(step).save)}", soft_wrap=True)


def train(
    step: Any, classify: Any, digits: Dataset, options: argparse.Namespace, console: Console
) -> None:
    """Run the epochs and print loss, accuracy and time."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from .. import data

    rows = data.batches(digits.x_train, digits.y_train, size=options.batch, seed=options.seed)
    begin = time.perf_counter()
    (first,) = step(*next(iter(rows)))
    passed = time.perf_counter() - begin
    console.print(f"[bold]Compiled[/]  in {passed:.2f} s, to {len(step.plan.steps)} kernel calls\n")
    console.print(str(step.report), markup=False, highlight=False, soft_wrap=True)
    console.print(f"\nfirst step  loss {float(first):.4f}")
    rows.epoch = 0
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Remaining(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=options.epochs * len(rows))
        for epoch in range(1, options.epochs + 1):
            losses, times = [], []
            for batch in rows:
                begin = time.perf_counter()
                (loss,) = step(*batch)
                times.append(time.perf_counter() - begin)
                losses.append(float(loss))
                bar.update(task, advance=1, description=f"epoch {epoch}, loss {losses[-1]:.4f}")
            accuracy = (classify(digits.x_test) == digits.y_test).mean()
            console.print(
                f"epoch {epoch:<5} loss {statistics.fmean(losses):.4f}   "
                f"test accuracy {accuracy:.2%}   {1e3 * statistics.median(times):.3f} ms a step"
            )


def _network() -> Any:
    """Return the module of the network, imported under a name that is not of this package.

    Nodes know the user's line that made them, and lines inside the package are never the user's:
    under its own name the report could not say which line of the network it speaks of.
    """
    path = Path(__file__).with_name("network.py")
    spec = importlib.util.spec_from_file_location("demo_network", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
