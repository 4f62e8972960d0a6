"""Programs written once for each library, run in a process for each library, compared in turn.

`cpu_programs.py` and `cuda_programs.py` hold the programs. A library's process builds a program,
calls it once, and gives a digest of the results; then every library times some calls in turn,
several rounds, so that other work on the machine slows all of them. A program whose results differ
from a peer's has no ratio.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import opening
import shown

LIBRARIES = ("magmagraph", "jax", "torch")
TOLERANCE = 2e-3  # of the largest element: sums of a million float32 numbers in other orders
ROUNDS = 5
SECONDS = 0.05  # of calls that are timed, in a round
# What is compared with the best peer: the median and the least of rounds, and the time of all
# threads on processors, which other work on the machine hardly changes.
RATIOS = {"ratio": "", "ratio of the least": " least", "ratio of processor time": " processor"}
SAME: Any = object()  # our words, with the functions of another library

# A call of the program, what waits for calls, and what makes NumPy arrays of results.
Begun = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], np.ndarray]]


@dataclass(frozen=True)
class Program:
    """One program in the words of each library; `arrays` makes its operands of a size's divisor."""

    name: str
    kind: str
    arrays: Callable[[np.random.Generator, int], Sequence[np.ndarray]]
    magmagraph: Callable[..., Any]
    jax: Callable[..., Any] | None
    torch: Callable[..., Any] | None
    compare: bool = True


class Programs(list[Program]):
    """The programs of a benchmark."""

    def add(self, name: str, kind: str, arrays: Any, mg: Any, jax: Any = SAME, torch: Any = SAME,
            compare: bool = True) -> None:  # fmt: skip
        """Enter a program; None is for a library that does not have it in one call."""
        jax = mg if jax is SAME else jax
        torch = mg if torch is SAME else torch
        self.append(Program(name, kind, arrays, mg, jax, torch, compare))


def divided(extent: int, divisor: int) -> int:
    """Return an extent of a smaller run: those of at least 256 are divided."""
    return max(extent // divisor, 16) if extent >= 256 else extent


def normal(*shapes: Any, dtype: str = "float32") -> Callable[..., Sequence[np.ndarray]]:
    """Return what makes normal numbers; extents of at least 256 are divided by the scale."""

    def make(rng: np.random.Generator, divisor: int) -> list[np.ndarray]:
        return [
            rng.standard_normal([divided(extent, divisor) for extent in shape]).astype(dtype)
            for shape in shapes
        ]

    return make


def integers(high: int, *shape: int) -> Callable[..., np.ndarray]:
    """Return what makes whole numbers below `high`."""

    def make(rng: np.random.Generator, divisor: int) -> np.ndarray:
        extents = [divided(extent, divisor) for extent in shape]
        return rng.integers(0, high, extents).astype(np.int32)

    return make


def both(first: Any, *others: Any) -> Callable[..., Sequence[np.ndarray]]:
    """Return what makes the arrays of one maker and those of others."""
    return lambda rng, d: [*first(rng, d), *(other(rng, d) for other in others)]


@dataclass(frozen=True)
class Suite:
    """A benchmark of programs.

    Attributes
    ----------
    name, claim
        Of the files of results, and what the picture says.
    about
        The text of its help.
    programs
        What it runs.
    device
        "cuda" or "cpu"; "cuda" without a GPU is for `--check`. Calls are queued on a GPU and waited
        for together; on the CPU each is waited for.
    environment
        Variables for the libraries' processes.
    facts
        Gives what results say besides the machine.
    """

    name: str
    claim: str
    about: str | None
    programs: Sequence[Program]
    device: str
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Callable[[], Mapping[str, Any]] = dict

    # ------------------------------------------------------------------ the process of a library

    def work(self, library: str, divisor: int) -> None:
        """Answer requests on the standard input, a line each: a name begins, none times."""
        replies = os.dup(1)
        os.dup2(2, 1)  # what libraries print is no reply
        state: dict[str, Any] = {}
        with os.fdopen(replies, "w") as out:
            for line in sys.stdin:
                name = line.rstrip("\n")
                try:
                    found = self._begun(library, name, divisor, state) if name else _timed(state)
                except Exception as error:
                    found = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
                out.write(json.dumps(found) + "\n")
                out.flush()

    def _begun(
        self, library: str, name: str, divisor: int, state: dict[str, Any]
    ) -> dict[str, Any]:
        """Build a program and call it; return the seconds of that and a digest of the results."""
        state.clear()
        (program,) = (p for p in self.programs if p.name == name)
        arrays = program.arrays(np.random.default_rng(len(name)), divisor)
        began = time.perf_counter()
        call, wait, host = _begin(library, program, arrays, self.device)
        made = call()
        wait(made)
        first = time.perf_counter() - began
        several = list(made) if isinstance(made, (tuple, list)) else [made]
        results = [np.asarray(host(one)).astype(np.float64) for one in several]
        digest = [
            [float(one.size), float(np.abs(one).max()), float(one.sum()), *one.reshape(-1)[:: max(1,
             one.size // 50)][:50].tolist()] for one in results
        ]  # fmt: skip
        del made, several, results
        began = time.perf_counter()
        wait(call())
        once = max(time.perf_counter() - began, 1e-6)
        count = max(1, min(2000, int(SECONDS / once)))
        state.update(call=call, wait=wait, count=count, queued=self.device != "cpu")
        return {"first": first, "digest": digest}

    # ------------------------------------------------------------------ the benchmark

    def main(self) -> None:
        """Measure, print the table and write the results."""
        parser = opening.parser(self.about)
        parser.add_argument("--only", default="", metavar="WORD", help="in the name or class")
        parser.add_argument(
            "--library", choices=LIBRARIES, action="append", help="run this one alone"
        )
        parser.add_argument(
            "--check", action="store_true", help="compare small arrays, time nothing"
        )
        parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
        parser.add_argument("--note", default="", help="kept with the results: what else ran")
        parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
        parser.add_argument("--divisor", type=int, default=0, help="divide the sizes by it")
        options = parser.parse_args()
        divisor = options.divisor or (16 if options.check else 1)
        if options.worker:
            self.work(options.worker, divisor)
            return
        common.clean_environment()
        libraries = options.library or [
            name for name in LIBRARIES if importlib.util.find_spec(name) is not None
        ]
        workers = {name: self._start(name, divisor) for name in libraries}
        end = time.monotonic() + options.limit
        results: dict[str, Any] = {}
        for program in self.programs:
            if options.only not in f"{program.name} {program.kind}" or time.monotonic() > end:
                continue
            found = _measured(program, workers, 0 if options.check else ROUNDS)
            results[program.name] = _summary(program, found)
            print(json.dumps({program.name: results[program.name]}), flush=True)
        for worker in workers.values():
            assert worker.stdin is not None
            worker.stdin.close()
            worker.wait(60)
        if options.check:
            return
        _table(results)
        if not options.only and set(libraries) == set(LIBRARIES):
            more = {"note": options.note} if options.note else {}
            common.write(self.name, results, **self.facts(), **more)
            self.draw(results)

    def _start(self, library: str, divisor: int) -> subprocess.Popen[str]:
        command = [sys.executable, sys.argv[0], "--worker", library, "--divisor", str(divisor)]
        environment = {**os.environ, **self.environment}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def draw(self, results: Mapping[str, Any]) -> Path | None:
        """Draw the times of peers over ours, the most favourable program last."""
        measured = [
            {
                "case": {"name": name},
                "times": {
                    lib: {"median": one[lib] * 1e-6}
                    for lib in LIBRARIES
                    if lib in one and lib not in one.get("differs from", ())
                },
            }
            for name, one in sorted(results.items(), key=lambda item: -item[1].get("ratio", 0.0))
            if "magmagraph" in one
        ]
        benchmark: Any = SimpleNamespace(
            name=self.name, claim=self.claim, unit="us", contenders=dict.fromkeys(LIBRARIES)
        )
        return shown.picture(benchmark, measured)


def _begin(library: str, program: Program, arrays: Sequence[np.ndarray], device: str) -> Begun:
    """Return a call of the program, what waits for calls, and what makes NumPy arrays."""
    if library == "magmagraph":
        import magmagraph as mg

        inputs = [mg.input(f"x{i}", a.shape, str(a.dtype)) for i, a in enumerate(arrays)]
        made = program.magmagraph(mg, *inputs)
        outputs = made if isinstance(made, mg.Node) else list(made)
        if device == "cpu" or importlib.util.find_spec("cupy") is None:
            function = mg.function(inputs, outputs)
            return lambda: function(*arrays), lambda made: None, np.asarray
        import cupy

        given = [cupy.asarray(a) for a in arrays]
        function = mg.function(inputs, outputs, device="cuda")
        wait = cupy.cuda.get_current_stream().synchronize
        return lambda: function(*given), lambda made: wait(), cupy.asnumpy
    if library == "jax":
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_default_matmul_precision", "highest")
        xp = SimpleNamespace(**{**vars(jnp), "jax": jax})
        assert program.jax is not None
        compiled = jax.jit(lambda *given: program.jax(xp, *given))
        given = [jax.device_put(a) for a in arrays]
        return lambda: compiled(*given), jax.block_until_ready, np.asarray
    import torch

    torch._dynamo.reset()  # else the ninth program is no longer compiled
    if device == "cuda" and not torch.cuda.is_available():
        device = "cpu"
    given = [torch.from_numpy(a).to(device) for a in arrays]
    compiled = torch.compile(lambda *given: program.torch(torch, *given), dynamic=False)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    return lambda: compiled(*given), lambda made: wait(), lambda one: one.cpu().numpy()


def _timed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seconds of a call among a round of them."""
    call, wait, count = state["call"], state["wait"], state["count"]
    began, worked = time.perf_counter(), time.process_time()
    if state["queued"]:
        for _ in range(count):
            made = call()
        wait(made)
    else:
        for _ in range(count):
            wait(call())
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    return {"seconds": seconds / count, "processor": processor / count}


def _measured(
    program: Program, workers: Mapping[str, subprocess.Popen[str]], rounds: int
) -> dict[str, dict[str, Any]]:
    """Return what each library says of a program, with its times in rounds."""
    taking = {name: w for name, w in workers.items() if getattr(program, name) is not None}
    found = {name: _asked(worker, program.name) for name, worker in taking.items()}
    for _ in range(rounds):
        for name, worker in taking.items():
            if "error" not in found[name]:
                found[name].setdefault("rounds", []).append(_asked(worker, ""))
    return found


def _asked(worker: subprocess.Popen[str], request: str) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(request + "\n")
    worker.stdin.flush()
    reply: dict[str, Any] = json.loads(
        worker.stdout.readline() or '{"error": "the process ended"}'
    )
    return reply


def same(ours: list[list[float]], others: list[list[float]]) -> bool:
    """Return whether two digests agree: the sampled elements, and the largest."""
    if len(ours) != len(others):
        return False
    for a, b in zip(ours, others, strict=True):
        limit = TOLERANCE * max(1.0, abs(b[1]))
        chosen = [*range(2), *range(3, len(b))]
        if len(a) != len(b) or not all(abs(a[i] - b[i]) <= limit for i in chosen):
            return False
    return True


def _summary(program: Program, found: dict[str, Any]) -> dict[str, Any]:
    """Return microseconds of each library, the ratio to the best peer, and what went wrong."""
    ours = found.get("magmagraph", {})
    summary: dict[str, Any] = {"kind": program.kind}
    for name, one in found.items():
        if "error" in one:
            summary[f"{name} error"] = one["error"]
            continue
        summary[f"{name} first"] = round(one["first"], 3)
        rounds = [each for each in one.get("rounds", ()) if "seconds" in each]
        if rounds:
            times = [each["seconds"] for each in rounds]
            summary[name] = round(statistics.median(times) * 1e6, 1)
            summary[f"{name} least"] = round(min(times) * 1e6, 1)
            summary[f"{name} processor"] = round(min(r["processor"] for r in rounds) * 1e6, 1)
    if program.compare and "digest" in ours:
        summary["differs from"] = [
            name for name, one in found.items()
            if name != "magmagraph" and "digest" in one and not same(ours["digest"], one["digest"])
        ]  # fmt: skip
    if "magmagraph" in summary and not summary.get("differs from"):
        for key, suffix in RATIOS.items():
            peers = [summary[n + suffix] for n in ("jax", "torch") if n + suffix in summary]
            if peers:
                summary[key] = round(summary["magmagraph" + suffix] / min(peers), 3)
    return summary


def _table(results: Mapping[str, Any]) -> None:
    columns = ("magmagraph", "jax", "torch", *RATIOS)
    rows = [(name, *(one.get(key, "") for key in columns)) for name, one in results.items()]
    common.table(rows, ("program, microseconds a call", *columns))
    for key in RATIOS:
        ratios = [one[key] for one in results.values() if key in one]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            slower = sum(ratio > 1 for ratio in ratios)
            print(f"geometric mean of {len(ratios)}, {key} to the best peer: {mean:.2f}; "
                  f"{slower} slower")  # fmt: skip
