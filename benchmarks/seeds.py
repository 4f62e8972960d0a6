"""Set each table and figure of the MagmaDNN papers beside ours: ``make seeds``.

    python benchmarks/seeds.py [-o build/seeds.html]

The page needs no GPU and measures nothing: numbers are those of `benchmarks/results`, each with its
machine and date, and the papers' are in `seeds.toml`. Graphs, workflows and the shares of workers
are drawn from what the package builds when the page is made.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import common
import opening

ROOT = Path(__file__).resolve().parent.parent
STEPS_OF_FIVE_EPOCHS = 3000
THEIRS_OF_FOUR = 2.00477  # seconds for L = 4, as in seeds.toml
COLOURS = (
    "#0a58ca", "#c2410c", "#15803d", "#7e22ce", "#52525b", "#b91c1c", "#0e7490", "#a16207",
)  # fmt: skip

STYLE = """
:root { color-scheme: light dark; --line: #8886; --muted: #777; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
.pair { display: grid; grid-template-columns: minmax(14rem, 1fr) 2.4fr; gap: 1.5rem; }
.pair > div { min-width: 0; border-top: 1px solid var(--line); padding-top: .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: right; padding: .15rem .6rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead { border-bottom: 1px solid var(--line); }
figure { margin: .8rem 0; max-width: 100%; overflow-x: auto; }
figcaption, .from { color: var(--muted); font-size: .85rem; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.figures figure { max-width: 100%; overflow-x: auto; }
svg .axis { stroke: currentColor; fill: none; } svg .grid { stroke: #8884; fill: none; }
svg .tick, svg .name { fill: currentColor; font: 11px system-ui, sans-serif; }
svg.chart { max-width: 100%; height: auto; }
@media (max-width: 48rem) { .pair { grid-template-columns: minmax(0, 1fr); } }
"""


def record(name: str) -> dict[str, Any]:
    """Return what a benchmark wrote."""
    found: dict[str, Any] = json.loads((common.RESULTS / f"{name}.json").read_text())
    return found


def source(name: str, kept: dict[str, Any]) -> str:
    """Return where numbers come from, as a line."""
    machine = kept["machine"]
    device = kept.get("device", {}).get("gpu") or machine["processor"]
    return (
        f'<p class="from">benchmarks/results/{name}.json: {escape(device)}, '
        f"{machine['cores']} cores, {machine['date']}</p>"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table that scrolls where it is wider than the page."""
    def cells(row: Sequence[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(c))}</{tag}>" for c in row) + "</tr>"

    body = "".join(cells(row, "td") for row in rows)
    return (
        f'<div class="wide" tabindex="0"><table><thead>{cells(head, "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figure(svg: str, caption: str) -> str:
    """Return a picture with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def chart(
    lines: dict[str, list[tuple[float, float]]], across: str, up: str, *, log: bool = False
) -> str:
    """Return lines as a picture; with logarithmic axes on demand."""
    from magmagraph.inspect.pictures.chart import Frame, Scale

    frame = Frame(560, 300, top=14 + 16 * ((len(lines) + 1) // 2))
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    wide = Scale(min(xs) / 1.1, max(xs) * 1.1, True) if log else Scale(0.0, max(xs) * 1.05)
    high = Scale(min(ys) / 1.3, max(ys) * 1.3, True) if log else Scale(0.0, max(ys) * 1.05)
    parts = [frame.axes(wide.ticks(), high.ticks(), across, up)]
    for i, (name, points) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [frame.place(wide.at(x), high.at(y)) for x, y in points]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places)
        at, row = frame.left + 250 * (i % 2), 12 + 16 * (i // 2)
        parts.append(
            f'<g fill="{colour}"><polyline points="{way}" fill="none" stroke="{colour}" '
            f'stroke-width="1.8"/>{dots}<rect x="{at}" y="{row - 8}" width="10" height="10"/></g>'
            f'<text class="tick" x="{at + 15}" y="{row + 1}">{escape(name)}</text>'
        )
    return frame.svg(parts, f"{up} over {across}").replace("<svg ", '<svg class="chart" ', 1)


# ------------------------------------------------------------------------ the parts


def sums() -> str:
    """Sums by gemv and its rivals, on the GPU and on the CPU."""
    gpu, cpu = record("cuda_kernels"), record("cpu_sums")
    ways = ("magmagraph", "gemv", "torch", "cupy", "jax")
    rows = [
        (f"{m} x {n}", "columns" if r["axis"] == 0 else "rows",
         *(f"{r[way]:.2f}" if r.get(way) is not None else "" for way in ways))
        for r in gpu["results"]["sums"] for m, n in [r["shape"]]
    ]  # fmt: skip
    peers = ("magmagraph", "magmagraph, gemv", "torch", "numpy", "jax")
    host = [
        (f"{c['rows']} x {c['columns']}", "columns" if c["axis"] == 0 else "rows",
         *(f"{1e6 * r['times'][p]['median']:.1f}" if "median" in r["times"].get(p, {}) else ""
           for p in peers))
        for r in cpu["results"] for c in [r["case"]]
    ]  # fmt: skip
    return (
        "<p>Microseconds on the GPU, inside of a captured graph:</p>"
        + table(("shape", "sums of", *ways), rows) + source("cuda_kernels", gpu)
        + "<p>Microseconds on the CPU:</p>"
        + table(("shape", "sums of", *peers), host) + source("cpu_sums", cpu)
    )  # fmt: skip


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the line with the least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return over / sum((x - mean_x) ** 2 for x, _ in points)


def layers() -> str:
    """Five epochs over hidden layers: seconds, and seconds a layer."""
    gpu, cpu, mnist = record("cuda_step"), record("cpu_mlp"), record("cuda_mnist")
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, (library, way) in {
        "magmagraph, GPU": ("magmagraph", "epoch"), "JAX (scan), GPU": ("jax", "scan"),
        "torch (graph by hand), GPU": ("torch", "graph"), "torch (eager), GPU": ("torch", "eager"),
    }.items():  # fmt: skip
        lines[name] = [
            (float(key[2:]), found[library][way] * 1e-6 * STEPS_OF_FIVE_EPOCHS)
            for key, found in gpu["results"]["float32"].items() if key.startswith("L=")
        ]  # fmt: skip
    for name in ("magmagraph", "jax", "torch"):
        lines[f"{name}, two CPU cores"] = [
            (float(r["case"]["layers"]), r["times"][name]["median"] * STEPS_OF_FIVE_EPOCHS)
            for r in cpu["results"] if r["case"]["batch"] == 100 and "median" in r["times"][name]
        ]  # fmt: skip
    rows = [
        (name, *(f"{y:.3f}" for _, y in points), f"{slope(points):.4f}")
        for name, points in lines.items()
    ]
    points = {**lines, "MagmaDNN, their GPU": [(4.0, THEIRS_OF_FOUR)]}
    head = ("3000 steps, seconds", *(f"L = {x:g}" for x, _ in lines["magmagraph, GPU"]), "a layer")
    whole = mnist["results"]["seconds"]
    keras = record("keras_mnist")
    names = {"magmagraph": "magmagraph", "keras": "Keras (torch)", "tensorflow": "TensorFlow"}
    epochs = [
        (r["case"]["name"],
         *(f"{1e3 * r['times'][p]['median']:.0f}" if "median" in r["times"].get(p, {}) else ""
           for p in names))
        for r in keras["results"]
    ]  # fmt: skip
    return (
        table(head, rows)
        + figure(chart(points, "hidden layers", "seconds", log=True), "Both axes are logarithmic.")
        + source("cuda_step", gpu) + source("cpu_mlp", cpu)
        + f"<p>Five epochs of MNIST with L = 4 on the GPU, feeding included: {whole:.3f} s, "
        f"{THEIRS_OF_FOUR / whole:.1f} times as fast as theirs, on another card.</p>"
        + source("cuda_mnist", mnist)
        + "<p>An epoch of fit over 6,000 images on the CPU, milliseconds:</p>"
        + table(("network", *names.values()), epochs) + source("keras_mnist", keras)
    )  # fmt: skip


def graphs() -> str:
    """One layer as written, in mixed precision, fused, and both: drawn from compiled functions."""
    import magmagraph as mg

    x = mg.var("x", shape=("batch", 784))
    W = mg.var("W", shape=(784, 528), init=mg.init.zeros())
    b = mg.var("b", shape=(528,), init=mg.init.zeros())
    y = mg.sigmoid(x @ W + b)
    written = mg.function([x], y, device="cpu")
    drawn = [figure(mg.show(written.source_graph, source=False).svg(), "as it is written")]
    for caption, options in (
        ("mixed precision: the product reads float16", {"precision": "float16", "skip": ("fuse",)}),
        ("fused: bias and sigmoid are one kernel", {}),
        ("both", {"precision": "float16"}),
    ):
        made = mg.function([x], y, device="cpu", **options).compile()
        drawn.append(figure(mg.show(made.graph, source=False).svg(), caption))
    return f'<div class="figures">{"".join(drawn)}</div>'


def svd() -> str:
    """Singular values over the order, CPU beside GPU."""
    kept = record("cuda_svd")
    rows = kept["results"]
    lines = {
        name: [(float(r["order"]), 1e3 * r[key]) for r in rows]
        for name, key in (("CPU (LAPACK)", "cpu"), ("GPU (cuSOLVER)", "cuda"))
    }
    return (
        table(
            ("order", "CPU, ms", "GPU, ms"),
            [(r["order"], f"{1e3 * r['cpu']:.2f}", f"{1e3 * r['cuda']:.2f}") for r in rows],
        )
        + figure(chart(lines, "order", "milliseconds", log=True), "Both axes are logarithmic.")
        + source("cuda_svd", kept)
    )


def scaling() -> str:
    """Measured scaling, the model's curves to 8 cards, and time to a loss of both kinds of SGD."""
    kept, model, speed = record("cuda_scaling"), record("cost_model"), record("async_speed")
    results = kept["results"]
    counts = [n for n in (1, 2, 4) if f"ours, {n}" in results]
    rows = []
    for network in ("resnet50", "cnn", "mlp"):
        for way in ("allreduce", "ring", "parameter_server"):
            one = results["ours, 1"][network]["median"]
            cells = [
                f"{n * one / results[f'ours, {n}'][f'{network} {way}']['median']:.2f}"
                for n in counts[1:]
            ]
            rows.append((f"{network}, {way.replace('_', ' ')}", "1.00", *cells))
    curves = model["curves"]["8"]
    lines = {
        name: list(zip(map(float, curves["ranks"]), speeds, strict=True))
        for name, speeds in curves["speeds"].items()
    }
    timed = []
    for ranks, ways in speed["results"].items():
        base = ways.get("allreduce", {}).get("examples a second")
        for way, found in ways.items():
            reached = found["seconds to the loss"]
            until = "not reached" if reached is None else f"{reached:.2f}"
            beside = f"{found['examples a second'] / base:.2f}" if base else ""
            timed.append(
                (ranks, way, f"{found['examples a second']:,.0f}", beside,
                 until, f"{found['last loss']:.3f}")
            )  # fmt: skip
    loss = speed["settings"]["loss"]
    return (
        "<p>Examples a second beside one card, measured (the batch grows with the cards):</p>"
        + table(("cards", *map(str, counts)), rows)
        + source("cuda_scaling", kept)
        + "<p>Predicted by the cost model for 8 cards, a step of the seed network:</p>"
        + figure(
            chart(lines, "cards", "speed-up"),
            "Asynchronous updates use weights that others have changed since: "
            f"{curves['staleness']:g} updates on average with 8 cards.",
        )
        + source("cost_model", model)
        + f"<p>Asynchronous beside synchronous SGD by CPU processes, and seconds until a loss of "
        f"{loss:g} on examples held back. The machine had other work: read the quotients alone.</p>"
        + table(("ranks", "way", "examples/s", "beside allreduce", f"s to {loss:g}", "last loss"),
                timed)
        + source("async_speed", speed)
    )  # fmt: skip


def copies() -> str:
    """Gigabytes a second between kinds of memory."""
    kept = record("cuda_copies")
    kinds = list(dict.fromkeys(r["from"] for r in kept["results"]))
    parts = []
    for size in sorted({r["bytes"] for r in kept["results"]})[1:]:
        found = {
            (r["from"], r["to"]): size / r["seconds"] / 1e9
            for r in kept["results"] if r["bytes"] == size
        }  # fmt: skip
        rows = [(kind, *(f"{found[kind, to]:.2f}" for to in kinds)) for kind in kinds]
        parts.append(f"<p>{size / 2**20:g} MiB, GB/s, from (rows) to (columns):</p>")
        parts.append(table(("from", *kinds), rows))
    note = (
        "<p>A managed tensor whose newest values lie on the device is copied there: it moves when "
        "it is read on the other side. Memory of the host is not pinned: a copy between it and the "
        "device goes at little more than 1 GB/s on this machine.</p>"
    )
    return "".join(parts) + note + source("cuda_copies", kept)


def workflow() -> str:
    """The example's workflow: its modules, and which rank ran what when, from a run just now."""
    import magmagraph as mg

    path = ROOT / "examples" / "workflow.toml"
    sys.path.insert(0, str(path.parent))
    described = tomllib.loads(path.read_text())["modules"]
    with tempfile.TemporaryDirectory() as folder:
        result = mg.workflow.run(path, output=folder)
        drawn = Path(folder) / "timeline.svg"
        result.timeline(drawn)
        timeline = drawn.read_text()
    rows = [
        (name, ", ".join(module.get("after", [])) or "nothing", module.get("copies", 1))
        for name, module in described.items()
    ]
    return (
        table(("module", "after", "copies"), rows)
        + figure(modules_svg(described), "What waits for what.")
        + figure(timeline, "A run on one rank, when this page was made.")
    )


def modules_svg(modules: dict[str, Any]) -> str:
    """Return modules as boxes, each below those that it waits for."""
    depth: dict[str, int] = {}
    for name, module in modules.items():
        depth[name] = 1 + max((depth[other] for other in module.get("after", [])), default=-1)
    places: dict[str, tuple[float, float]] = {}
    for level in range(max(depth.values()) + 1):
        for i, name in enumerate(name for name in modules if depth[name] == level):
            places[name] = (70 + 150 * i, 26 + 70 * level)
    parts = [
        f'<path class="axis" d="M{places[other][0]} {places[other][1] + 16}'
        f'L{places[name][0]} {places[name][1] - 16}"/>'
        for name, module in modules.items() for other in module.get("after", [])
    ]  # fmt: skip
    for name, (x, y) in places.items():
        count = modules[name].get("copies", 1)
        text = escape(name if count == 1 else f"{name} x {count}")
        parts.append(
            f'<rect class="axis" x="{x - 55}" y="{y - 16}" width="110" height="32" rx="5"/>'
            f'<text class="name" x="{x}" y="{y + 4}" text-anchor="middle">{text}</text>'
        )
    wide = max(x for x, _ in places.values()) + 70
    high = max(y for _, y in places.values()) + 26
    return (
        f'<svg class="chart" role="img" aria-label="modules of the workflow" width="{wide}" '
        f'viewBox="0 0 {wide} {high}">{"".join(parts)}</svg>'
    )


def parallelism() -> str:
    """The graph of one rank of two, by rows and by layers, after the pass that shares it out."""
    import magmagraph as mg

    def step(strategy: Callable[[], Any]) -> Any:
        def rank() -> Any:
            x = mg.var("x", shape=("batch", 4))
            labels = mg.var("y", shape=("batch", 2))
            W = mg.var("W", shape=(4, 3), init=mg.init.zeros())
            V = mg.var("V", shape=(3, 2), init=mg.init.zeros())
            loss = mg.mean((mg.sigmoid(x @ W) @ V - labels) ** 2)
            made = mg.optimizer.SGD(0.1).step(
                loss, [W, V], inputs=[x, labels], outputs=loss, device="cpu",
                distribute=strategy(), skip=("fuse",),
            )  # fmt: skip
            made.compile()
            return mg.show(made.report["distribute"].graphs[1], source=False).svg()

        return mg.distributed.threads(2, rank)

    parts = []
    for caption, strategy in (
        ("data parallel: each rank has rows of the batch, gradients are summed over ranks",
         mg.distributed.DataParallel),
        ("layer parallel: each rank has layers, and sends what the next one reads",
         lambda: mg.distributed.PipelineParallel(2)),
    ):  # fmt: skip
        for number, svg in enumerate(step(strategy)):
            parts.append(figure(svg, f"{caption}: rank {number} of 2"))
    return f'<div class="figures">{"".join(parts)}</div>'


def heart() -> str:
    """The best points of the search, and the best of each value of each parameter."""
    kept = record("heart")
    rows = kept["results"]
    names = ("depth", "rate", "batch", "epochs")
    shown = [
        (*(r[n] for n in names), *(f"{r[n]:.3f}" for n in ("accuracy", "spread", "matthews")))
        for r in rows[:8]
    ]  # fmt: skip
    best = []
    for name in names:
        for value in sorted({r[name] for r in rows}):
            own = [r for r in rows if r[name] == value]
            best.append(
                (f"{name} {value:g}", f"{max(r['accuracy'] for r in own):.3f}",
                 f"{sum(r['accuracy'] for r in own) / len(own):.3f}")
            )  # fmt: skip
    settings = kept["settings"]
    return (
        f"<p>{len(rows)} points, {settings['folds']} folds of {settings['rows']} patients; each "
        "fold's preparation is learned from its training rows alone. The best of so many points is "
        "chosen by the rows that it is judged by, so it is too high rather than too low.</p>"
        + table((*names, "accuracy", "spread of folds", "Matthews"), shown)
        + "<p>Accuracy of the best point of each value, and the mean of all of them:</p>"
        + table(("value", "best", "mean"), best)
        + source("heart", kept)
    )


OURS: dict[str, Callable[[], str]] = {
    "sums": sums, "layers": layers, "graphs": graphs, "svd": svd, "scaling": scaling,
    "copies": copies, "workflow": workflow, "parallelism": parallelism, "heart": heart,
}  # fmt: skip


def theirs(part: dict[str, Any]) -> str:
    """Return what the papers report."""
    values = part.get("values", {})
    if not values:
        return f"<p>{escape(part['shows'])}</p><p>No numbers of theirs are recorded here.</p>"
    rows = [
        ("" if i else name, value) for name, numbers in values.items()
        for i, value in enumerate(numbers)
    ]  # fmt: skip
    return f"<p>{escape(part['shows'])}</p>" + table(("number", "reported"), rows)


def page() -> str:
    """Return the page."""
    papers = tomllib.loads((Path(__file__).with_suffix(".toml")).read_text(encoding="utf-8"))
    parts = []
    for name, part in papers.items():
        print(name, flush=True)
        parts.append(
            f'<section id="{name}"><h2>{escape(part["title"])}</h2><div class="pair">'
            f"<div><h3>The papers</h3>{theirs(part)}</div>"
            f"<div><h3>magmagraph</h3>{OURS[name]()}</div></div></section>"
        )
    links = "".join(
        f'<li><a href="#{name}">{escape(part["title"])}</a></li>' for name, part in papers.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The seeds beside magmagraph</title><style>{STYLE}</style></head><body>"
        "<h1>The seeds beside magmagraph</h1><p>Tables and figures of the papers on MagmaDNN, each "
        "beside ours. Numbers of different machines stand beside each other: compare shapes and "
        f"slopes, and the machines named below each table.</p><ul>{links}</ul>{''.join(parts)}"
        "</body></html>\n"
    )


def main() -> None:
    parser = opening.parser(__doc__)
    parser.add_argument("-o", "--output", default=str(ROOT / "build" / "seeds.html"))
    given = parser.parse_args()
    target = Path(given.output)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
