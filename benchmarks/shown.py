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
    """Draw times over ours, a group of bars a case; None without matplotlib, or results."""
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
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.17 * len(names) * len(drawn)))
    judged = all("looks" in entry for entry in drawn)
    (_intervals if judged else _bars)(axes, names, drawn)
    axes.axvline(1.0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(drawn)), [entry["case"]["name"] for entry in drawn])
    axes.invert_yaxis()
    axes.set_title(benchmark.claim, fontsize=10)
    figure.tight_layout()
    path = common.RESULTS / f"{benchmark.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _bars(axes: Any, names: Sequence[str], drawn: Sequence[Mapping[str, Any]]) -> None:
    """Draw the median of each way over that of the first."""
    ours, height = names[0], 0.8 / max(len(names), 1)
    for i, name in enumerate(names):
        places, lengths = [], []
        for j, entry in enumerate(drawn):
            if "median" in entry["times"].get(name, {}):
                places.append(j + (i - (len(names) - 1) / 2) * height)
                lengths.append(entry["times"][name]["median"] / entry["times"][ours]["median"])
        axes.barh(places, lengths, height * 0.9, label=name, color=f"C{i}")
    axes.set_xscale("log")
    axes.set_xlabel(f"time / {ours}'s (right of the line: slower than {ours})")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _intervals(axes: Any, names: Sequence[str], drawn: Sequence[Mapping[str, Any]]) -> None:
    """Draw the interval of the last look at each case, of processes that ran both ways in turn."""
    for j, entry in enumerate(drawn):
        low, middle, high = entry["looks"][-1]["interval"]
        axes.plot([low, high], [j, j], color="C0", linewidth=3)
        axes.plot([middle], [j], "o", color="C0", markersize=4)
    axes.set_xlabel(f"time of {names[0]} / {names[1]}, in turn in one process; interval of 95 %")
    axes.grid(axis="x", color="0.9")
