"""Draw what the comparisons on the CPU found: ``python benchmarks/cpu_plots.py``.

The picture of each comparison (`shown.picture`) again, from what it wrote. ``cpu_layers.svg``: time
of a training step against layers, beside peers. ``cpu_ratios.svg``: our time over the best peer's,
a bar for every case that was measured, losses like wins. It needs matplotlib and reads the JSON
files that the benchmarks wrote.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import common
import opening
import shown

MARKS = ("o", "s", "^", "D", "v", "P")


def _kept() -> dict[str, Any]:
    """Return what each file of results with quotients holds."""
    kept = {}
    for path in sorted(common.RESULTS.glob("cpu_*.json")):
        record = json.loads(path.read_text())
        rows = record["results"]
        if isinstance(rows, list) and rows and "magmagraph" in rows[0].get("times", {}):
            kept[path.stem] = record
    return kept


def _machine(record: Any) -> str:
    said = record["machine"]
    return f"{said['processor']}, {said['cores']} cores, {said['date']}"


def layers(figure: Any, record: Any) -> None:
    """Time of a step against layers, a panel a batch size; slopes in the legend."""
    batches = sorted({row["case"]["batch"] for row in record["results"]})
    panels = figure.subplots(1, len(batches), squeeze=False)[0]
    for axes, batch in zip(panels, batches, strict=True):
        rows = [row for row in record["results"] if row["case"]["batch"] == batch]
        names = dict.fromkeys(name for row in rows for name in row["times"])
        for i, name in enumerate(names):
            points = [
                (row["case"]["layers"], 1e3 * row["times"][name]["median"])
                for row in rows
                if "median" in row["times"].get(name, {})
            ]
            if not points:
                continue
            (first, low), (last, high) = points[0], points[-1]
            slope = f": {(high - low) / (last - first):.2f} ms a layer" if last > first else ""
            axes.plot(
                *zip(*points, strict=True), marker=MARKS[i % len(MARKS)], label=name + slope
            )
        axes.set_xlabel("hidden layers of 528 units")
        axes.set_ylabel("milliseconds a step")
        axes.set_yscale("log")
        axes.set_title(f"Training the seed network, batch {batch}", fontsize=10)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7)


def ratios(figure: Any, kept: dict[str, Any]) -> None:
    """A bar for every case: left of the line is faster than every peer."""
    rows = [
        (f"{name.removeprefix('cpu_')}: {row['case']['name']}", row["ratio"])
        for name, record in kept.items()
        if not name.rpartition("_")[2].isdigit()  # of fewer threads
        for row in record["results"]
        if row["ratio"]
    ]
    axes = figure.add_subplot()
    places = range(len(rows))
    colors = ["C0" if value <= 1.0 else "C3" for _, value in rows]
    # From the line on, so that a win and a loss of the same quotient are as long.
    axes.barh(places, [value - 1.0 for _, value in rows], left=1.0, color=colors, height=0.75)
    axes.set_yticks(places, [label for label, _ in rows], fontsize=7)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.25, 0.5, 0.8, 1.0, 1.25, 2.0], ["1/4", "1/2", "0.8", "1", "1.25", "2"])
    axes.minorticks_off()
    axes.axvline(1.0, color="0.2", linewidth=0.8)
    axes.set_xlabel("time / the best peer's time")
    faster = sum(value <= 1.0 for _, value in rows)
    axes.set_title(f"Faster than every peer in {faster} of {len(rows)} cases", fontsize=10)
    axes.grid(True, axis="x", alpha=0.3)


def scaling(kept: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return what one core takes, what all take, and how many times faster they are."""
    rows = []
    for name in kept:
        alone = name.removesuffix("_1")
        if alone == name or alone not in kept:
            continue
        times = {
            row["case"]["name"]: row["times"]["magmagraph"].get("median")
            for row in kept[alone]["results"]
        }
        for row in kept[name]["results"]:
            case, one = row["case"]["name"], row["times"]["magmagraph"].get("median")
            every = times.get(case)
            if one and every:
                label = f"{alone.removeprefix('cpu_')}: {case}"
                rows.append((label, f"{1e3 * one:.3g}", f"{1e3 * every:.3g}", f"{one / every:.2f}"))
    return rows


def main() -> None:
    """Draw all, and print how far a second core helps."""
    opening.words(__doc__, needs=("matplotlib",))
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "magmagraph"  # the same file for the same numbers
    kept = _kept()
    drawn = []
    if "cpu_mlp" in kept:
        drawn.append(("cpu_layers", Figure(figsize=(10, 4.5), layout="constrained")))
        layers(drawn[-1][1], kept["cpu_mlp"])
    if kept:
        count = sum(len(record["results"]) for record in kept.values())
        drawn.append(("cpu_ratios", Figure(figsize=(8, 1.2 + 0.16 * count), layout="constrained")))
        ratios(drawn[-1][1], kept)
    for path in sorted(common.RESULTS.glob("*.json")):
        rows = json.loads(path.read_text())["results"]
        if path.with_suffix(".svg").exists() and isinstance(rows, list) and "times" in rows[0]:
            print(shown.picture(importlib.import_module(path.stem).BENCHMARK, rows))
    for name, figure in drawn:
        figure.supxlabel(_machine(next(iter(kept.values()))), fontsize=6, x=0.99, ha="right")
        path = common.RESULTS / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        print(path)
    rows = scaling(kept)
    if rows:
        common.table(rows, ("magmagraph, ms a call", "one core", "all cores", "times faster"))


if __name__ == "__main__":
    main()
