"""Draw results of benchmarks: ``python benchmarks/plots.py`` makes an SVG beside each JSON file.

It needs matplotlib, and no GPU: it reads what the benchmarks wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import common
import opening

WAYS = {
    "magmagraph": "magmagraph", "gemv": "product with ones (gemv)", "torch": "torch",
    "cupy": "CuPy", "jax": "JAX",
}
MARKS = ("o", "s", "^", "D", "v")


def sums(axes: Any, results: Any) -> None:
    """Sums of rows and of columns: time above the time that reading takes at a copy's speed."""
    rows = results["sums"]
    speed = max(r["bytes"] / r["copy"] for r in results["streams"] if "copy" in r)
    labels = [f"{m} x {n}\naxis {r['axis']}" for r in rows for m, n in [r["shape"]]]
    for mark, (key, name) in zip(MARKS, WAYS.items(), strict=True):
        points = [(i, r[key]) for i, r in enumerate(rows) if r.get(key) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=name, alpha=0.8)
    floor = [4 * r["shape"][0] * r["shape"][1] / speed for r in rows]
    axes.plot(range(len(rows)), floor, "_", color="black", markersize=14, label="reading it once")
    axes.set_xticks(range(len(rows)), labels, rotation=45, ha="right", fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("microseconds in a CUDA graph")
    axes.set_title("Sums of a matrix over one axis, float32")


def decompositions(axes: Any, results: Any) -> None:
    """Decompositions against size, CPU beside GPU."""
    orders = [r["order"] for r in results]
    for mark, (key, name) in zip(MARKS, (("cpu", "CPU"), ("cuda", "GPU")), strict=False):
        axes.plot(orders, [r[key] * 1e3 for r in results], f"{mark}-", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("order of the matrix")
    axes.set_ylabel("milliseconds")
    axes.set_title("Singular value decomposition, float32")


def small(axes: Any, results: Any) -> None:
    """Small work, CPU beside GPU, host to host."""
    for mark, (name, rows) in zip(MARKS, results.items(), strict=False):
        for key, style in (("cpu", "-"), ("cuda", "--")):
            label = f"{name}, {'CPU' if key == 'cpu' else 'GPU'}"
            sizes = [r["size"] for r in rows]
            axes.plot(sizes, [r[key] * 1e6 for r in rows], mark + style, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("elements, or hidden units")
    axes.set_ylabel("microseconds a call, from the host and back")
    axes.set_title("From which size on the GPU is faster")


def layers(axes: Any, results: Any) -> None:
    """Microseconds a training step against the layers of the seed network."""
    ways = (
        ("magmagraph", "epoch", "magmagraph, f.run"), ("torch", "eager", "torch, eager"),
        ("torch", "graph", "torch, captured by hand"), ("jax", "jit", "JAX, a call a step"),
        ("jax", "scan", "JAX, scan"),
    )
    for precision, style in (("float32", "-"), ("tf32", "--")):
        depths = {k: v for k, v in results.get(precision, {}).items() if k.startswith("L=")}
        if not depths:
            continue  # it was not measured
        for position, (mark, (library, way, name)) in enumerate(zip(MARKS, ways, strict=True)):
            points = [(int(k[2:]), v[library][way]) for k, v in depths.items()]
            axes.plot(
                *zip(*points, strict=True), mark + style, color=f"C{position}",
                label=f"{name}, {precision}",
            )
    axes.set_yscale("log")
    axes.set_xlim(0.6, 12.4)  # room for the legend beside the last points
    axes.set_xticks((1, 2, 4, 8))
    axes.set_xlabel("hidden layers of 528 units")
    axes.set_ylabel("microseconds a step of 100 examples")
    axes.set_title("Training the seed network")


SUMS = {"all-reduce": "NCCL's all-reduce", "ring": "ring of sends", "server": "server"}
ALGORITHMS = {"allreduce": "all-reduce", "ring": "ring", "parameter_server": "server"}


def sums_over_ranks(axes: Any, results: Any) -> None:
    """Sums over cards by size, and what training makes of them beside torch's DDP."""
    left, right = axes.inset_axes((0, 0, 0.46, 1)), axes.inset_axes((0.58, 0, 0.42, 1))
    axes.set_axis_off()
    most = max(map(int, results))
    for cards, found in sorted(results.items(), key=lambda item: -int(item[0])):
        moved = 2 * (int(cards) - 1) / int(cards)
        for position, (mark, (key, name)) in enumerate(zip(MARKS, SUMS.items(), strict=False)):
            points = [
                (int(size), moved * int(size) / ways[key] / 1e6)
                for size, ways in found["milliseconds"].items()
            ]
            left.plot(
                *zip(*points, strict=True), mark + ("-" if int(cards) == most else ":"),
                color=f"C{position}", label=f"{name}, {cards} cards",
            )  # fmt: skip
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xlabel("bytes of float32")
    left.set_ylabel("GB/s (2 (n - 1) / n bytes for each of the array's)")
    left.set_title("A sum in a captured step", fontsize=10)
    scaling = json.loads((common.RESULTS / "cuda_scaling.json").read_text())["results"]
    names = ("resnet50", "cnn", "mlp")
    for place, (key, name) in enumerate([*ALGORITHMS.items(), ("torch", "torch DDP")]):
        shares = []
        for network in names:
            who = "torch" if key == "torch" else "ours"
            label = network if key == "torch" else f"{network} {key}"
            base = scaling[f"torch, {most}"][network]["median"]
            shares.append(base / scaling[f"{who}, {most}"][label]["median"])
        at = [n + 0.2 * place - 0.3 for n in range(len(names))]
        right.bar(at, shares, 0.2, label=name, color=f"C{place}")
    right.set_xticks(range(len(names)), ["ResNet-50", "CNN", "MLP of 4096"])
    right.set_ylabel("examples a second, torch DDP's as 1")
    right.set_title(f"Training on {most} cards", fontsize=10)
    for part in (left, right):
        part.grid(True, which="major", alpha=0.3)
        part.legend(fontsize=8)


def overlap(axes: Any, results: Any) -> None:
    """What runs on a card's streams in one step, from the device's clock."""
    colors = {"collective": "C3", "convolution": "C0", "gemm": "C0"}
    seen: dict[str, str] = {}
    lanes = [
        (rank, stream)
        for rank, found in enumerate(results["ranks"])
        for stream in sorted({span[1] for span in found["spans"]})
    ]
    for row, (rank, stream) in enumerate(lanes):
        for kernel, own, begin, end in results["ranks"][rank]["spans"]:
            if own != stream:
                continue
            color = colors.get(kernel, "C7")
            label = {"C0": "convolutions, products", "C3": "all-reduces"}.get(color, "all else")
            axes.barh(
                row, (end - begin) / 1e3, left=begin / 1e3, height=0.8, color=color,
                label=None if label in seen else label,
            )  # fmt: skip
            seen[label] = color
    axes.set_yticks(range(len(lanes)), [f"card {rank}, stream {s}" for rank, s in lanes])
    axes.set_ylim(len(lanes) + 1, -0.7)  # room for the legend below
    axes.set_xlabel("milliseconds from the beginning of a step that notes times at each launch")
    axes.set_title(f"One training step of {results['network']} on {len(results['ranks'])} cards")


def operations(axes: Any, results: Any) -> None:
    """A point for each case of an operation, small matrices in batches apart from large ones."""
    names = list(dict.fromkeys(r["case"]["op"] for r in results if r["ratio"]))
    for mark, (label, batched, gradient) in zip(MARKS, (
        ("batches of 4 to 64", True, False), ("their gradients", True, True),
        ("single, 256 and more", False, False), ("their gradients, or a loop's", False, True),
    ), strict=False):  # fmt: skip
        points = [
            (r["ratio"], names.index(r["case"]["op"])) for r in results
            if r["ratio"] and r["case"]["gradient"] == gradient
            and (r["case"].get("batch", 1) > 1) == batched
        ]  # fmt: skip
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=label, alpha=0.7)
    axes.axvline(1.0, color="0.2", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xscale("log", base=2)
    ticks = {"1/8": 0.125, "1/4": 0.25, "1/2": 0.5, "0.8": 0.8, "1": 1.0, "1.25": 1.25, "2": 2.0}
    axes.set_xticks([*ticks.values()], [*ticks])
    axes.minorticks_off()
    axes.set_xlabel("processor time of one thread / that of the best of JAX, torch and NumPy")
    axes.set_title("Linear algebra on a CPU")


FIGURES: dict[str, tuple[str, Callable[[Any, Any], None]]] = {
    "linalg": ("linalg_1", operations),
    "cuda_sums": ("cuda_kernels", sums),
    "cuda_svd": ("cuda_svd", decompositions),
    "cuda_small": ("cuda_small", small),
    "cuda_layers": ("cuda_step", layers),
    "cuda_collectives": ("cuda_collectives", sums_over_ranks),
    "cuda_timeline": ("cuda_timeline", overlap),
}


def main() -> None:
    opening.words(__doc__, needs=("matplotlib",))
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "magmagraph"  # the same file for the same numbers
    for name, (source, draw) in FIGURES.items():
        path = common.RESULTS / f"{source}.json"
        if not path.exists():
            print(f"{path.name} is not there: python benchmarks/{source}.py makes it")
            continue
        kept = json.loads(path.read_text())
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.add_subplot()
        draw(axes, kept["results"])
        if axes.axison:
            axes.grid(True, which="major", alpha=0.3)
            axes.legend(fontsize=8)
        device = kept.get("device", {}).get("gpu", "")
        axes.annotate(
            f"{device}, {kept['machine']['processor']}, {kept['machine']['date']}", (1, -0.02),
            xycoords="figure fraction", ha="right", fontsize=6,
        )
        target = common.RESULTS / f"{name}.svg"
        figure.savefig(target, metadata={"Date": None})
        print(target)


if __name__ == "__main__":
    main()
