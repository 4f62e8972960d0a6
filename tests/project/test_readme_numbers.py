"""The README's numbers are those of ``benchmarks/results``, to the digits that it gives."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![\w^.])-?\d+(?:,\d{3})*(?:\.\d+)?")
LAYERS = (1, 2, 4, 8)


def results(name: str) -> Any:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["results"]


def rows() -> dict[str, list[str]]:
    """Return the cells of each row under "Measured", by the row's first words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text.partition("## Measured")[2].partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip(" |") for cell in cells[1:]] for cells in lines}


def ratios(name: str, *cases: str) -> list[float]:
    """Return our time over the best peer's, by several processes where these had to tell."""
    found = {entry["case"]["name"]: entry for entry in results(name)}
    chosen = [found[case] for case in cases] if cases else list(found.values())
    return [
        entry["repeated"][-1]["ratio"] if "repeated" in entry else entry["ratio"]
        for entry in chosen
    ]


def milliseconds(kind: str) -> list[float]:
    return [1e3 * results("seed_step")[f"L={layers}"][kind]["median"] for layers in LAYERS]


def compiled(case: str, what: str) -> float:
    return 1e3 * statistics.median(results("compile_time")[case][what])


def steps(precision: str) -> list[float]:
    found = [results("cuda_step")[precision][f"L={layers}"] for layers in LAYERS]
    ours = [entry["magmagraph"]["epoch"] for entry in found]
    return ours + [min(entry["jax"]["jit"], entry["jax"]["scan"]) for entry in found]


def streams(*names: str) -> list[float]:
    found = {entry["name"]: entry for entry in results("cuda_kernels")["streams"]}
    return [
        found[name]["copy"] / found[name][library]
        for library in ("magmagraph", "torch.compile")
        for name in names
    ]


def epilogues() -> list[float]:
    found = results("cuda_precision")["epilogues"]
    return [
        100 * found[f"float16 {size}"][what]["cost"]
        for what in ("bias and gelu", "torch's bias and gelu")
        for size in (1024, 4096, 8192)
    ]


def products() -> list[float]:
    found = results("cuda_precision")["products"]
    return [found[f"bfloat16 {size}"]["ratio"] for size in (1024, 4096, 8192)]


def faster_than_tf32() -> list[float]:
    found = results("cuda_precision")["training"]
    taken = {name: entry["microseconds"] for name, entry in found.items()}
    return [taken["tf32"] / taken["bfloat16"], taken["tf32"] / taken["float16"]]


def convolutions() -> list[float]:
    found = [results("cuda_cnn")["steps"][f"batch 256, {name}"] for name in ("float32", "tf32")]
    ours = [entry["magmagraph"]["replay"] for entry in found]
    return ours + [min(entry["jax"]["jit"], entry["torch"]["graph"]) for entry in found]


def images() -> list[float]:
    found = results("cuda_resnet50")
    return [found[library]["images_a_second"] for library in ("ours", "torch")]


def images_on_four() -> list[float]:
    found = results("cuda_scaling")
    taken = found["ours, 4"]["resnet50 allreduce"], found["torch, 4"]["resnet50"]
    return [4 * 128 / (1e-3 * entry["median"]) for entry in taken]


def adam() -> list[float]:
    found = results("cuda_adam")["200 tensors"]
    return [found[library]["graph"] for library in ("magmagraph", "torch")]


def imported() -> float:
    return 1e3 * statistics.median(each["magmagraph"] for each in results("compile_time")["import"])


def first_calls() -> list[float]:
    return [compiled(f"L=4 {state}", "first_call") for state in ("cold", "warm")]


def no_less(name: str) -> list[float]:
    found = ratios(name)
    return [min(found), max(found)]


MEASURED = {
    "a training step of 784": lambda: milliseconds("step"),
    "its matrix products alone": lambda: milliseconds("products"),
    "kernel calls of that step": lambda: [
        results("seed_step")[f"L={layers}"]["kernel_calls"] for layers in LAYERS
    ],
    "first call for L = 4": first_calls,
    "another batch size": lambda: [compiled("L=4 warm", "new_size")],
    "a call of a compiled": lambda: [1e6 * results("call_overhead")["x + 1"]["median"]],
    "`import magmagraph`": lambda: [imported()],
    "the same step in float32": lambda: steps("float32"),
    "the same in tf32": lambda: steps("tf32"),
    "softmax, layer norm, cross-entropy of": lambda: streams(
        "softmax", "layer_norm", "cross_entropy"
    ),
    "a chain over 2^28": lambda: streams("chain 2^28"),
    "five epochs of MNIST, four": lambda: [results("cuda_mnist")["seconds"]],
    "products in bfloat16": products,
    "what a bias and gelu cost": epilogues,
    "a network of 4096 hidden units": faster_than_tf32,
    "a small convolutional network": convolutions,
    "ResNet-50 in bfloat16": images,
    "ResNet-50 on four cards": images_on_four,
    "Adam over 10 million numbers in 200 tensors |": adam,
    "the step at batch 100": lambda: ratios("cpu_mlp"),
    "five epochs of MNIST's size": lambda: ratios("cpu_epochs", "L=1", "L=4"),
    "small CNN, residual block": lambda: ratios("cpu_training"),
    "Hessian-vector products": lambda: ratios("cpu_hvp"),
    "Adam over 10 million numbers in 200 tensors, in one": lambda: ratios("cpu_adam"),
    "N-body, options": lambda: ratios("cpu_arrays"),
    "a chain of elementwise": lambda: ratios(
        "cpu_elementwise", "gate 1e4", "gate 1e5", "gate 1e6", "gate 1e7"
    ),
    "softmax of 1000 x 1000": lambda: ratios(
        "cpu_rows", "softmax 1000x1000", "softmax 10000x100", "softmax 10000x1000",
        "softmax 1000x10000",
    ),
    "sums over an axis": lambda: no_less("cpu_sums"),
    "fit on MNIST": lambda: ratios("keras_mnist"),
    "two ranks of one thread": lambda: [results("mpi_step")["ratio"]],
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_a_row_gives_what_was_measured(name: str) -> None:
    fitting = [cells for row, cells in rows().items() if f"{row} |".startswith(name)]
    assert len(fitting) == 1, f"rows that begin with {name!r}: {len(fitting)}"
    given = NUMBER.findall(" ".join(fitting[0]))
    found = MEASURED[name]()
    assert len(given) == len(found), (given, found)
    for shown, value in zip(given, found, strict=True):
        digits = len(shown.partition(".")[2])
        # Speeds of thousands are given to tens.
        step = 10.0 if "," in shown else 10.0**-digits
        assert abs(float(shown.replace(",", "")) - value) <= 0.5001 * step, (given, found)


def test_every_row_is_held_to_its_results() -> None:
    unknown = [
        row for row in rows()
        if row and not any(f"{row} |".startswith(name) for name in MEASURED)
    ]  # fmt: skip
    assert unknown == []


def test_the_first_screen_says_what_was_measured() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    taken = ratios("cpu_mlp")
    assert f"takes {min(taken):.2f} to {max(taken):.2f} of the best of their times" in text
    found = steps("float32")
    of_jax = [ours / theirs for ours, theirs in zip(found[:4], found[4:], strict=True)]
    assert f"takes {min(of_jax):.2f} to {max(of_jax):.2f} of JAX's time" in text
    assert f"runs after {compiled('L=4 warm', 'new_size'):.0f} ms" in text
    in_front = re.search(r"in (\d+ of \d+) measured cases", text)
    below = re.search(r"Faster than all peers by the medians in (\d+ of \d+) cases", text)
    assert in_front is not None
    assert below is not None
    assert in_front[1] == below[1]


def test_the_cases_that_are_won_are_counted_right() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"Faster than all peers by the medians in (\d+) of (\d+) cases", text)
    picture = (ROOT / "benchmarks/results/cpu_ratios.svg").read_text(encoding="utf-8")
    drawn = re.search(r"Faster than every peer in (\d+) of (\d+) cases", picture)
    assert said is not None
    assert drawn is not None
    assert said.groups() == drawn.groups()
