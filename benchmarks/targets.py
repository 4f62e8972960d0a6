"""What the results have to show, and whether they do: ``python benchmarks/targets.py``.

It reads what the benchmarks wrote into ``benchmarks/results``, runs nothing, and prints for each
claim the case that is nearest to its limit (with ``--all`` every case). It ends with 1 where a
limit is missed or a result is not there, so that a record that got worse cannot go by unseen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import near
import repeats

FILES = ("cuda_", "cpu_")


@dataclass(frozen=True)
class Case:
    """One number and the most that it may be, in the same unit."""

    name: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether the number is within its limit."""
        return self.value <= self.limit

    @property
    def share(self) -> float:
        """How much of the limit is used; where that is 0 or less, what is above it."""
        return self.value / self.limit if self.limit > 0 else 1.0 + self.value - self.limit


@dataclass(frozen=True)
class Claim:
    """What results have to show, those of one file or of several with rows alike."""

    file: str
    says: str
    cases: Callable[[Any], Iterator[Case]]
    others: tuple[str, ...] = ()


def _ratios(limit: float) -> Callable[[Any], Iterator[Case]]:
    """Our median over the best peer's, by several processes where these were needed to tell."""

    def cases(results: Any) -> Iterator[Case]:
        for entry in results:
            name = entry["case"]["name"]
            if "repeated" in entry:  # rule: `near.py`
                yield Case(f"{name}, processes", entry["repeated"][-1]["ratio"], limit)
            else:
                yield Case(name, entry["ratio"], limit)

    return cases


def _half(limit: float) -> Callable[[Any], Iterator[Case]]:
    """The largest of the better half of the ratios."""

    def cases(results: Any) -> Iterator[Case]:
        ratios = sorted(entry["ratio"] for entry in results)
        yield Case(f"half of {len(ratios)}", ratios[(len(ratios) - 1) // 2], limit)

    return cases


def _peers(entry: Any) -> dict[str, float]:
    return {
        name: row["median"]
        for name, row in entry["times"].items()
        if "median" in row and name != "copy" and not name.startswith("magmagraph")
    }


def _best(results: Any) -> Iterator[Case]:
    """At most 0.7 of the best peer or 1.2 of a copy, whichever is slower; large cases."""
    for entry in results:
        case, times = entry["case"], entry["times"]
        size = case.get("size") or case["rows"] * case["columns"]
        if size in (10**6, 10**7):
            name, ours = case["name"], times["magmagraph"]["median"]
            share = ours / min(_peers(entry).values()) / 0.7
            if "repeated" in entry:  # rule: `near.py`
                name, share = f"{name}, processes", entry["repeated"][-1]["ratio"] / 0.7
            yield Case(name, min(share, ours / times["copy"]["median"] / 1.2), 1.0)


def _near(results: Any) -> Iterator[Case]:
    """Within 5 % or 1 us of the best peer; and what was chosen of the best of our own ways.

    Where several processes were needed to tell, they do (rule: `near.py`). Of our own ways the
    quotient's 95 % interval is known: its lower end counts.
    """
    for entry in results:
        name, ours = entry["case"]["name"], entry["times"]["magmagraph"]
        best = min(_peers(entry).values())
        if "repeated" in entry:
            yield Case(f"{name}, processes", near.share(entry["repeated"][-1]), 1.0)
        else:
            yield Case(name, ours["median"] / (best * near.limit(best)), 1.0)
        ways = {way: taken for way, taken in ours["ways"].items() if way != "chosen"}
        way = min(ways, key=ways.__getitem__)
        yield Case(f"{name}, choice", ours["against"][way][0], near.limit(ways[way]))


def _slower(results: Any) -> Iterator[Case]:
    """Time by all cores over time by one, by the look that decides (rule: `cpu_threads.py`).

    Where its interval of 95 % begins above 1, that counts; else where it ends.
    """
    for entry in results:
        low, _, high = entry["looks"][-1]["interval"]
        name = entry["case"]["name"]
        if low > 1.0:
            yield Case(f"{name}, interval's beginning", low, 1.0)
        else:
            yield Case(f"{name}, interval's end", high, repeats.LARGEST)


def _first(results: Any) -> Iterator[Case]:
    """First calls: at most the best compiling peer's, or 0.1 s."""
    for name, entry in results.items():
        peers = [row for key, row in entry.items() if key not in ("magmagraph", "date")]
        for state in ("cold", "warm"):
            ours = statistics.median(entry["magmagraph"][state])
            limit = max([0.1, *(statistics.median(row[state]) for row in peers if row.get(state))])
            yield Case(f"{name}, {state}", ours, limit)


def _cuda_step(ratio: float) -> Callable[[Any], Iterator[Case]]:
    def cases(results: Any) -> Iterator[Case]:
        for precision in ("float32", "tf32"):
            for depth, row in results[precision].items():
                if depth.startswith("L="):
                    yield Case(f"{precision} {depth}", row["of the best peer"], ratio)

    return cases


# Microseconds a step by float32 and tf32: what the device could do, beside what peers do.
STEP_GOALS = {"L=1": (20, 17), "L=2": (33, 27), "L=4": (60, 47), "L=8": (115, 90)}


def _cuda_goals(results: Any) -> Iterator[Case]:
    for depth, goals in STEP_GOALS.items():
        for precision, goal in zip(("float32", "tf32"), goals, strict=True):
            ours = results[precision][depth]["magmagraph"]["epoch"]
            yield Case(f"{precision} {depth}", ours, goal)


def _cuda_slopes(results: Any) -> Iterator[Case]:
    """What a layer adds to an epoch's step: at most what it adds by the best peer's way."""
    for precision in ("float32", "tf32"):
        slopes = results[precision]["microseconds a layer"]
        peers = [slope for way, slope in slopes.items() if not way.startswith("magmagraph")]
        yield Case(precision, slopes["magmagraph epoch"], min(peers))


def _cuda_first(results: Any) -> Iterator[Case]:
    for state, limit in (("empty", 1000.0), ("full", 200.0)):
        yield Case(f"{state} cache, ms", results["first"][f"{state} cache"]["median"], limit)


def _cuda_streams(results: Any) -> Iterator[Case]:
    """Chains at 98 % of the faster copy, rows at 90 %, and before torch.compile."""
    for row in results["streams"]:
        name, ours = row["name"], row["magmagraph"]
        speed = 0.98 if name.startswith("chain") else 0.9
        yield Case(f"{name}, us beside a copy", ours, row["copy"] / speed)
        yield Case(f"{name}, us beside torch.compile", ours, row["torch.compile"])


def _cuda_sums(results: Any) -> Iterator[Case]:
    """Within 5 % or 0.3 us of the best of all contenders."""
    for row in results["sums"]:
        best = min(row[n] for n in ("torch", "jax", "cupy", "gemv") if row.get(n) is not None)
        name = f"{'x'.join(map(str, row['shape']))} axis {row['axis']}"
        yield Case(name, row["magmagraph"], max(1.05 * best, best + 0.3))


def _cuda_products(results: Any) -> Iterator[Case]:
    for name, row in results["products"].items():
        yield Case(name, row["magmagraph"]["median"], row["torch"]["median"])


def _cuda_epilogues(results: Any) -> Iterator[Case]:
    for size, row in results["epilogues"].items():
        yield Case(f"{size}, bias and gelu", row["bias and gelu"]["cost"], 0.03)


def _cuda_training(results: Any) -> Iterator[Case]:
    rows = results["training"]
    for name in ("float16", "bfloat16"):
        yield Case(
            f"{name}, of tf32's time", rows[name]["microseconds"] / rows["tf32"]["microseconds"],
            1 / 1.5,
        )  # fmt: skip
        apart = abs(rows[name]["mean accuracy"] - rows["tf32"]["mean accuracy"])
        yield Case(f"{name}, points from tf32's accuracy", apart, 0.2)


def _cuda_mnist(results: Any) -> Iterator[Case]:
    yield Case("five epochs, s", results["seconds"], 0.3)
    for steps in ("1", "10", "200"):
        yield Case(f"change of the weights after {steps}", results["error"][steps], 1e-3)
    apart = abs(results["accuracy"] - results["CPU's accuracy"])
    yield Case("points from the CPU's accuracy", apart, 0.2)


def _cuda_resnet(results: Any) -> Iterator[Case]:
    yield Case("of 6,700 images/s", 6700.0 / results["ours"]["images_a_second"], 1.0)
    yield Case("first step, s", results["ours"]["first_step_seconds"], 10.0)
    errors = results["check"]["errors"]
    yield Case("error of torch's bfloat16", errors["magmagraph bfloat16"], errors["torch bfloat16"])


CLAIMS = (
    Claim("cpu_mlp", "seed network's step at most 0.95 of the best peer", _ratios(0.95)),
    Claim("cpu_epochs", "five epochs with feeding at most 0.9", _ratios(0.9)),
    Claim("cpu_elementwise", "1e6, 1e7: 0.7 of the best peer, or 1.2 of a copy", _best),
    Claim("cpu_rows", "1e6, 1e7: 0.7 of the best peer, or 1.2 of a copy", _best),
    Claim("cpu_sums", "within 5 % or 1 us of the best, and of our own ways", _near),
    Claim("cpu_training", "at most 1.0 of the best peer", _ratios(1.0)),
    Claim("cpu_adam", "at most 1.0 of the best peer", _ratios(1.0)),
    Claim("cpu_arrays", "at most 1.0 of the best peer", _ratios(1.0)),
    Claim("cpu_hvp", "at most 1.0 of the best peer", _ratios(1.0)),
    Claim(
        "cpu_training", "at most 0.8 in half of these four files", _half(0.8),
        ("cpu_adam", "cpu_arrays", "cpu_hvp"),
    ),
    Claim("cpu_first_call", "at most the best compiling peer's, or 0.1 s", _first),
    Claim("cpu_threads", "no case slower with all cores than with one", _slower),
    Claim("cpu_no_compiler", "at most three times slower without a C compiler", _ratios(3.0)),
    Claim("cuda_step", "at most 0.6 of the best peer", _cuda_step(0.6)),
    Claim("cuda_step", "the goals in us a step", _cuda_goals),
    Claim("cuda_step", "a layer adds no more us than by the best peer", _cuda_slopes),
    Claim("cuda_step", "compile and first step under 1 s cold, 0.2 s warm", _cuda_first),
    Claim("cuda_mnist", "five epochs under 0.3 s, the CPU's results", _cuda_mnist),
    Claim("cuda_kernels", "98 and 90 % of a copy, before torch.compile", _cuda_streams),
    Claim("cuda_kernels", "sums within 5 % or 0.3 us of the best", _cuda_sums),
    Claim("cuda_precision", "products at least as fast as torch's", _cuda_products),
    Claim("cuda_precision", "a bias and gelu costs at most 3 %", _cuda_epilogues),
    Claim("cuda_precision", "16 bits 1.5 times as fast, as accurate", _cuda_training),
    Claim("cuda_resnet50", "6,700 images/s, first step under 10 s", _cuda_resnet),
)


def read(folder: Path, claim: Claim) -> list[Case]:
    """Return the cases of a claim; none where its file is not there."""
    paths = [folder / f"{name}.json" for name in (claim.file, *claim.others)]
    if not all(path.exists() for path in paths):
        return []
    results, *more = (json.loads(path.read_text())["results"] for path in paths)
    return list(claim.cases(sum(more, results) if more else results))


def report(folder: Path, names: tuple[str, ...], every: bool) -> int:
    """Print a table of the claims of files that begin so; return how many are not met."""
    rows, missed = [], 0
    for claim in CLAIMS:
        if not claim.file.startswith(names):
            continue
        cases = read(folder, claim)
        over = [case for case in cases if not case.met]
        missed += bool(over) or not cases
        shown = cases if every else over or sorted(cases, key=lambda c: c.share)[-1:]
        verdict = f"{len(cases) - len(over)} of {len(cases)}" if cases else "no results"
        rows.append((claim.file, claim.says, verdict))
        for case in shown:
            line = f"  {case.name}: {case.value:.3g} of {case.limit:.3g}"
            rows.append(("", line, "" if case.met else "missed"))
    common.table(rows, ("file", "claim, and the case nearest to its limit", "cases met"))
    return missed


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="beginnings of files' names (default: all)")
    parser.add_argument("--all", action="store_true", help="print every case")
    parser.add_argument("--results", type=Path, default=common.RESULTS, help="folder to read")
    asked = parser.parse_args()
    return min(1, report(asked.results, tuple(asked.files) or FILES, asked.all))


if __name__ == "__main__":
    sys.exit(main())
