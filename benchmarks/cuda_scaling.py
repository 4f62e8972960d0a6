"""Measure: data parallelism on several GPUs beside one, and beside torch's DDP in the same run.

ResNet-50 in bfloat16 with batch 128 a card, a small convolutional network with batch 256 a card,
and a perceptron of four layers of 4096 in bfloat16 with batch 1024 a card. Batch norms take the
statistics of a card's own rows, as DDP's do. Ours by NCCL's all-reduce, by a ring of sends of our
own, and by a server; ``--algorithms`` has more (see `strategy_of`). First a few steps in float32
are compared with those of one card that is given all rows. One card is each of them by itself,
side by side: the mean of their speeds is what scaling is beside. It is taken in processes of its
own, and once more in turns with the first algorithm's steps, in one program: between processes
steps differ by up to 1 %. Results of networks and of numbers of cards that are not run again stay
in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

BATCHES = {"resnet50": 128, "cnn": 256, "mlp": 1024}
WIDTH, DEPTH = 4096, 4
STEPS = {"resnet50": 15, "cnn": 200, "mlp": 60}
TURNS = 7
RATE, MOMENTUM = 0.01, 0.9
MEBIBYTES = 25.0  # of a bucket
MOST_ERROR = 1e-3  # of a loss after some steps in float32, relative


def rows(name: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random examples and labels."""
    rng = np.random.default_rng(seed)
    shape = {"resnet50": (224, 224, 3), "cnn": (1, 28, 28), "mlp": (WIDTH,)}[name]
    classes = 1000 if name == "resnet50" else 10
    return (
        rng.standard_normal((count, *shape), np.float32),
        rng.integers(0, classes, count).astype(np.int32),
    )


def timed(run: Any, synchronize: Any, count: int, repeats: int = 5) -> dict[str, float]:
    """Return median, least and largest milliseconds a step."""
    taken = []
    for _ in range(repeats):
        synchronize()
        began = time.perf_counter()
        for _ in range(count):
            run()
        synchronize()
        taken.append((time.perf_counter() - began) / count * 1e3)
    return {"median": statistics.median(taken), "least": min(taken), "largest": max(taken)}


# ---- Ours


def built(name: str, device: str, **options: Any) -> tuple[Any, list[Any]]:
    """Return a network's step and its weights."""
    import magmagraph as mg

    labels = mg.var("labels", shape=("batch",), dtype="int32")
    if name == "resnet50":
        import resnet50

        network = resnet50.Network(channels_last=True)
        x = mg.var("images", shape=("batch", 224, 224, 3))
        logits = network.logits(x)
        weights = network.parameters
    elif name == "cnn":
        import cuda_cnn

        x = mg.var("images", shape=("batch", 1, 28, 28))
        weights = [mg.var(f"w{i}", init=w) for i, w in enumerate(cuda_cnn.weights())]
        logits = cuda_cnn.logits(x, weights)
    else:
        x = mg.var("x", shape=("batch", WIDTH))
        weights, logits = [], x
        for layer in range(DEPTH):
            outs = WIDTH if layer < DEPTH - 1 else 10
            w = mg.var(f"W{layer}", (WIDTH, outs), init=mg.init.glorot_uniform(seed=layer))
            b = mg.var(f"b{layer}", (outs,), init=mg.init.zeros())
            weights += [w, b]
            logits = logits @ w + b
            if layer < DEPTH - 1:
                logits = mg.relu(logits)
    loss = mg.cross_entropy(logits, labels)
    optimizer = mg.optimizer.SGD(RATE, momentum=MOMENTUM)
    step = optimizer.step(
        loss, weights, inputs=[x, labels], outputs=[loss], device=device, **options
    )
    return step, weights


def strategy_of(name: str, mebibytes: float, narrow: str | None) -> Any:
    """Return a strategy by its name: an algorithm of rows, or one of those below."""
    from magmagraph.distributed import DataParallel, PipelineParallel, TensorParallel

    rows = partial(
        DataParallel, sync_batch_norm=False, compression=narrow,
        bucket_bytes=int(mebibytes * 2**20),
    )  # fmt: skip
    others = {
        "async": lambda: DataParallel(algorithm="async"),
        "zero": lambda: rows(shard_optimizer=True),
        "tensor": TensorParallel,
        "gpipe": lambda: PipelineParallel(4, "gpipe"),
        "1f1b": lambda: PipelineParallel(4, "1f1b"),
    }
    return others[name]() if name in others else rows(algorithm=name)


def ours(
    names: list[str], algorithms: list[str], checked: bool, mebibytes: float, narrow: str | None
) -> dict[str, Any]:
    """Return milliseconds a step, by network and algorithm, of this rank."""
    import cupy

    import magmagraph as mg

    rank, size = mg.distributed.rank(), mg.distributed.size()
    cupy.cuda.Device(rank).use()
    device = f"cuda:{rank}"
    found: dict[str, Any] = {}
    if checked:
        found["check"] = check(rank, size, device)
    for name in names:
        precision = "float32" if name == "cnn" else "bfloat16"
        for algorithm in algorithms if size > 1 else algorithms[:1]:
            options: dict[str, Any] = {"precision": precision}
            part, parts = 0, 1
            if size > 1:
                options["distribute"] = strategy_of(algorithm, mebibytes, narrow)
                part, parts = options["distribute"].shard()
            # Where ranks share out layers or matrices, all of them are fed the whole batch.
            given = tuple(map(cupy.asarray, rows(name, BATCHES[name] * size // parts, part)))
            step, _weights = built(name, device, **options)
            for _ in range(4):
                step(*given)

            def synchronize() -> None:
                cupy.cuda.runtime.deviceSynchronize()
                mg.distributed.communicator().barrier()

            label = f"{name} {algorithm}" if size > 1 else name
            if size > 1 and (narrow or mebibytes != MEBIBYTES):
                label += f", {mebibytes:g} MiB" + (f", {narrow}" if narrow else "")
            found[label] = timed(lambda: step(*given), synchronize, STEPS[name])  # noqa: B023
            home = f"{Path(__file__).resolve().parent.parent}{os.sep}"
            found[label]["messages"] = [
                note.replace(home, "")
                for record in step.report if record.name == "distribute"
                for note in record.notes
            ]  # fmt: skip
            if size > 1 and algorithm == algorithms[0] and parts == size:
                alone, _ = built(name, device, precision=precision)
                steps = {"alone": partial(alone, *given), "together": partial(step, *given)}
                found[label]["in turns"] = in_turns(steps, synchronize, STEPS[name])
                del alone, steps
            if size > 1 and options["distribute"].asynchronous:
                options["distribute"].finish()
            print(label, found[label]["median"], file=sys.stderr, flush=True)
            step = None
    return found


def in_turns(
    steps: Mapping[str, Callable[[], Any]], synchronize: Callable[[], None], count: int
) -> dict[str, list[float]]:
    """Return for each step the median milliseconds on each card, all cards at once."""
    import magmagraph as mg

    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(TURNS):
        for name, run in steps.items():
            for _ in range(3):
                run()
            taken[name].append(timed(run, synchronize, count, 1)["median"])
    own = {name: statistics.median(each) for name, each in taken.items()}
    each = mg.distributed.communicator().exchange(own)
    return {name: [card[name] for card in each] for name in steps}


def check(rank: int, size: int, device: str) -> dict[str, list[float]]:
    """Compare losses of some steps in float32 with one card's that has all rows."""
    import magmagraph as mg

    found: dict[str, list[float]] = {}
    for name in ("cnn", "mlp"):
        x, y = rows(name, 64 * size, 9)
        alone, _ = built(name, device)
        single = [float(alone(x, y)[0]) for _ in range(4)]
        own = slice(64 * rank, 64 * rank + 64)
        for algorithm in ("allreduce", "ring", "parameter_server"):
            strategy = mg.distributed.DataParallel(algorithm=algorithm)
            together, _ = built(name, device, distribute=strategy)
            losses = [float(together(x[own], y[own])[0]) for _ in range(4)]
            worst = max(abs(a - b) / abs(b) for a, b in zip(losses, single, strict=True))
            if not worst <= MOST_ERROR:
                raise SystemExit(f"{name} by {algorithm}: losses {losses}, of one card {single}")
            found[f"{name} {algorithm}"] = losses
        found[name] = single
    return found


# ---- Torch


def torch_network(name: str) -> Any:
    """Return the same network, with random weights."""
    from torch import nn

    if name == "resnet50":
        import torch
        import torchvision

        return torchvision.models.resnet50().to(memory_format=torch.channels_last)
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip
    layers: list[Any] = []
    for _ in range(DEPTH - 1):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def torchs(names: list[str]) -> dict[str, Any]:
    """Return milliseconds a step of torch, by DistributedDataParallel where there are ranks."""
    import torch
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.cuda.set_device(rank)
    torch.backends.cudnn.benchmark = True
    if size > 1:
        torch.distributed.init_process_group("nccl")
    found: dict[str, Any] = {}
    for name in names:
        network = torch_network(name).cuda()
        if size > 1:
            network = DistributedDataParallel(
                network, device_ids=[rank], gradient_as_bucket_view=True, broadcast_buffers=False
            )
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM, fused=True)
        x, y = rows(name, BATCHES[name], rank)
        images, labels = torch.tensor(x, device="cuda"), torch.tensor(y, device="cuda").long()
        if name == "resnet50":
            images = images.permute(0, 3, 1, 2)

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16, enabled=name != "cnn"):  # noqa: B023
                loss = F.cross_entropy(network(images).float(), labels)  # noqa: B023
            optimizer.zero_grad(set_to_none=True)  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023

        for _ in range(4):
            step()

        def synchronize() -> None:
            torch.cuda.synchronize()
            if size > 1:
                torch.distributed.barrier()

        found[name] = timed(step, synchronize, STEPS[name])
        print("torch", name, found[name]["median"], file=sys.stderr, flush=True)
        network = optimizer = None
        torch.cuda.empty_cache()
    if size > 1:
        torch.distributed.destroy_process_group()
    return found


# ---- Processes


def _mpiexec() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"


def child(
    arguments: list[str], ranks: int, torch: bool, card: int | None = None
) -> dict[str, Any]:
    """Run a part in processes of its own, or in one on one card; return what rank 0 found."""
    command = [sys.executable, __file__, *arguments]
    environments: list[dict[str, str]] = [{}]
    if card is not None:
        environments = [{"CUDA_VISIBLE_DEVICES": str(card)}]
    if torch and ranks > 1:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
        environments = [{**shared, "RANK": str(i)} for i in range(ranks)]
    elif ranks > 1:
        command = [_mpiexec(), "-n", str(ranks), *command]
    processes = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        for environment in environments
    ]
    lines: list[str] = []
    for process in processes:
        text, _ = process.communicate(timeout=280)
        lines += [line for line in text.splitlines() if line.startswith("{")]
    if not lines or any(process.returncode for process in processes):
        print(f"{' '.join(arguments)} on {ranks} failed", file=sys.stderr, flush=True)
        return {}
    return next(found for found in map(json.loads, lines) if found.pop("rank") == 0)


def alone(arguments: list[str], cards: int) -> dict[str, Any]:
    """Run a part on each card by itself, side by side; return what card 0 found, and the medians.

    A job of several goes at the pace of the slowest.
    """
    with ThreadPoolExecutor(cards) as pool:
        each = list(pool.map(lambda card: child(arguments, 1, False, card), range(cards)))
    found = each[0]
    for name, entry in found.items():
        entry["cards"] = [other[name]["median"] for other in each if name in other]
    return found


def scaling_of(turns: dict[str, list[float]]) -> float:
    """Return the speed together beside the mean of the cards' own: the slowest sets the pace."""
    return statistics.harmonic_mean(turns["alone"]) / max(turns["together"])


def lines_of(results: dict[str, Any], ranks: int) -> list[tuple[str, ...]]:
    """Return the table's lines of that many cards."""
    lines = []
    for name in BATCHES:
        for who in ("ours", "torch"):
            one = results.get(f"{who}, 1", {}).get(name)
            for label, entry in results.get(f"{who}, {ranks}", {}).items():
                if label.split()[0] != name or "median" not in entry:
                    continue
                speed = ranks * BATCHES[name] / entry["median"] * 1e3
                cards = one.get("cards", [one["median"]]) if one else [float("nan")]
                single = statistics.mean(BATCHES[name] / median * 1e3 for median in cards)
                turns = entry.get("in turns")
                scaling = "" if turns is None else f"{scaling_of(turns):.3f}"
                lines.append(
                    (f"{who} {label}, {ranks}", f"{entry['median']:.3f}", f"{speed:,.0f}",
                     f"{single:,.0f}", f"{speed / single / ranks:.3f}", scaling)
                )  # fmt: skip
    return lines


def main() -> None:
    parser = opening.parser(__doc__, "gpu", "torch", "mpi")
    parser.add_argument("--part", choices=("ours", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="cards (2)")
    parser.add_argument("--networks", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument(
        "--algorithms", nargs="+", default=["allreduce", "ring", "parameter_server"]
    )
    parser.add_argument("--mebibytes", type=float, default=MEBIBYTES, help="of a bucket")
    parser.add_argument("--alone", action="store_true", help="without torch and the comparison")
    parser.add_argument("--compression", choices=("float16", "bfloat16"))
    given = parser.parse_args()
    if given.part == "torch":
        found = torchs(given.networks)
        print(json.dumps({"rank": int(os.environ.get("RANK", "0")), **found}), flush=True)
        return
    if given.part == "ours":
        import magmagraph as mg

        found = ours(
            given.networks, given.algorithms, given.check, given.mebibytes, given.compression
        )
        if mg.distributed.rank() == 0:  # lines of several ranks would get mixed up
            print(json.dumps({"rank": 0, **found}), flush=True)
        return
    opening.require("gpu", "mpi", *(() if given.alone else ("torch",)))
    chosen = ["--networks", *given.networks, "--algorithms", *given.algorithms]
    chosen += ["--mebibytes", str(given.mebibytes)]
    if given.compression:
        chosen += ["--compression", given.compression]
    cards, checked = max(given.ranks), [] if given.alone else ["--check"]
    works: dict[str, Callable[[], dict[str, Any]]] = {
        "ours, 1": partial(alone, ["--part", "ours", *chosen], cards)
    }
    for count in given.ranks:
        works[f"ours, {count}"] = partial(
            child, ["--part", "ours", *checked, *chosen], count, False
        )
    if not given.alone:
        works["torch, 1"] = partial(alone, ["--part", "torch", *chosen], cards)
        for count in given.ranks:
            works[f"torch, {count}"] = partial(child, ["--part", "torch", *chosen], count, True)
    results = common.written("cuda_scaling")
    for part, work in works.items():
        results[part] = {**results.get(part, {}), **work()}
        # Kept at once: a machine of many cards may be gone before the end.
        common.write("cuda_scaling", results)
    lines = [line for count in given.ranks for line in lines_of(results, count)]
    common.table(
        lines, ("way", "ms a step", "examples/s", "of one card", "scaling", "in turns")
    )
    import cuda_common  # last: it takes memory of the first card

    print(common.write("cuda_scaling", results, device=cuda_common.device_facts()))


if __name__ == "__main__":
    main()
