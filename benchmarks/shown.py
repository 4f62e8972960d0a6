"""What a benchmark of several libraries shows of its results: a table, and a picture."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
import repeats

if TYPE_CHECKING:
    from peers import Benchmark

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def report(benchmark: Benchmark, measured: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of all cases, what failed, and what several processes found."""
    scale = {"ms": 1e3, "us": 1e6, "s": 1.0}[benchmark.unit]
    names = list(benchmark.contenders)
    rows = []
    for entry in measured:
        cells = []
        for name in names:
            row = entry["times"].get(name, {})
            if "median" in row:
                cells.append(f"{row['median'] * scale:.4g}")
            else:
                cells.append("absent" if "absent" in row else "failed" if row else "")
        against = "" if entry["ratio"] is None else f"{entry['ratio']:.2f}"
        rows.append((entry["case"]["name"], *cells, against))
    print(f"{benchmark.claim} Times in {benchmark.unit}; the last column is ours / best peer.")
    common.table(rows, ("case", *names, "ratio"))
    for entry in measured:
        for name, row in entry["times"].items():
            if "error" in row:
                print(f"{entry['case']['name']}, {name}: {row['error']}")
        for i, found in enumerate(entry.get("looks", ())):
            low, middle, high = found["interval"]
            told = "" if repeats.shows(found) else ", not shown"
            ends = f"{middle:.3f} ({low:.3f} to {high:.3f})"
            print(f"{entry['case']['name']}, look {i + 1}: {ends}{told}")
        for i, found in enumerate(entry.get("repeated", ())):
            low, middle, high = found["interval"]
            told = f"{found['ratio']:.3f} (mean {middle:.3f}, {low:.3f} to {high:.3f})"
            told += f" of {found['peer']}"
            name, most = entry["case"]["name"], found["limit"]
            print(f"{name}, processes, look {i + 1}: {told}, limit {most:.3f}")


def picture(benchmark: Benchmark, measured: Sequence[Mapping[str, Any]]) -> Path | None:
    """Draw times over ours, a row a case; None without matplotlib, or results."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("svg")
        plt = importlib.import_module("matplotlib.pyplot")
    except ModuleNotFoundError:
        return None
    matplotlib.rcParams["svg.hashsalt"] = benchmark.name
    ours = next(iter(benchmark.contenders))
    drawn = [entry for entry in measured if "median" in entry["times"][ours]]
    if not drawn:
        return None
    names = [
        name for name in benchmark.contenders
        if any("median" in entry["times"].get(name, {}) for entry in drawn)
    ]
    judged = all("looks" in entry for entry in drawn)
    # As high as the rows, and as their legend beside them.
    figure, axes = plt.subplots(
        figsize=(8, 1.0 + 0.24 * max(len(drawn), 0 if judged else len(names) - 1)),
        layout="constrained",
    )
    (_intervals if judged else _points)(axes, names, drawn)
    axes.axvline(1.0, color="0.3", linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(drawn)), [_label(benchmark, entry) for entry in drawn], fontsize=8)
    axes.set_ylim(len(drawn) - 0.5, -0.5)  # the first case at the top, and no empty rows
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(benchmark.claim, fontsize=10)
    path = common.RESULTS / f"{benchmark.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _label(benchmark: Benchmark, entry: Mapping[str, Any]) -> str:
    """Return a case's name and what ours takes for it."""
    seconds = entry["times"][next(iter(benchmark.contenders))]["median"]
    scale = {"ms": 1e3, "us": 1e6, "s": 1.0}[benchmark.unit]
    taken = seconds * scale
    shown = f"{taken:.3g}" if taken < 100 else f"{taken:.0f}"
    return f"{entry['case']['name']}: {shown} {benchmark.unit}"


def _points(axes: Any, names: Sequence[str], drawn: Sequence[Mapping[str, Any]]) -> None:
    """Draw the median of each other way over that of the first, which is the line."""
    ours = names[0]
    for i, name in enumerate(names[1:]):
        points = [
            (entry["times"][name]["median"] / entry["times"][ours]["median"], j)
            for j, entry in enumerate(drawn)
            if "median" in entry["times"].get(name, {})
        ]
        axes.plot(
            *zip(*points, strict=True), MARKS[i % len(MARKS)], label=name, color=f"C{i + 1}",
            markersize=5, alpha=0.85, zorder=3,
        )  # fmt: skip
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    low, high = min(low, 0.9), max(high, 1.1)
    axes.set_xlim(low, high)
    span = high / low
    digits = (1,) if span > 60 else (1, 2, 5) if span > 8 else (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8)
    places = (digit * 10.0**power for power in range(-4, 7) for digit in digits)
    ticks = [place for place in places if low <= place <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(color="0.9", zorder=0)
    axes.set_xlabel(
        f"time / {ours}'s, which stands beside the case (right of the line: slower)", fontsize=8
    )
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _intervals(axes: Any, names: Sequence[str], drawn: Sequence[Mapping[str, Any]]) -> None:
    """Draw the interval of the last look at each case, of processes that ran both ways in turn."""
    for j, entry in enumerate(drawn):
        low, middle, high = entry["looks"][-1]["interval"]
        axes.plot([low, high], [j, j], color="C0", linewidth=3)
        axes.plot([middle], [j], "o", color="C0", markersize=4)
    axes.set_xlabel(
        f"time of {names[0]} / {names[1]}, in turn in one process; interval of 95 %", fontsize=8
    )
    axes.grid(axis="x", color="0.9")
