"""Run one workload by several libraries: a process a library, timed in turn, results compared.

A benchmark says what a library does, for a case of its workload, in a function that returns a
`Work`; `main` does the rest. Each library has a process of its own, since thread pools of several
in one process slow each other. All processes are up at once and work one at a time, round after
round, so that whatever else the machine does falls on all alike; a turn begins when the threads of
the others rest (`resting.py`). Inherited settings of BLAS and OpenMP are cleared for all; every
library takes as many threads as the process has cores.

The first library named is the one the others are compared with. A library that is not installed
is left out and said to be; one that fails is shown with its error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import near
import numpy as np
import opening
import repeats
import resting
import shown

TURNS = 41  # of ways in one process
BURST = 0.001  # seconds of one way in a turn, about
WARM = 0.0005  # seconds of it before: threads that slept while another was timed, caches

Case = dict[str, Any]
"""One point of a workload: its name and its sizes, as JSON holds them."""


@dataclass(frozen=True)
class Work:
    """What a library does for a case.

    Attributes
    ----------
    call
        Does the work once and waits for its end.
    results
        Returns the arrays to compare, by name, after a fresh `call` from the state at the start.
    per
        Units of work in a call (steps, epochs): times are divided by it.
    ways
        Other ways to the same result, timed in turn in the same process on the same arrays: what
        differs between processes (where their memory lies) is alike for all.
    before
        What is to be done before a turn of a way ("chosen": the work's own), if anything.
    told
        What is to stand in the results beside the times.
    """

    call: Callable[[], Any]
    results: Callable[[], Mapping[str, Any]]
    per: int = 1
    ways: Mapping[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    before: Mapping[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)
    told: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Contender = Callable[[Case], Work]


@dataclass(frozen=True)
class Benchmark:
    """A claim with the libraries that are held against it.

    Attributes
    ----------
    name
        Name of the results file.
    claim
        What is claimed, in a sentence: it heads the table.
    cases
        Points of the workload, each with a "name".
    contenders
        Library -> function; this project's first. Its modules are imported in there.
    unit
        Of the table: "ms" or "us".
    tolerance
        Largest difference of a result from the first contender's, relative to its largest value.
    floors
        Contenders that are no peers (a copy of memory, products alone): shown, not compared.
    rounds, seconds
        Rounds of timing, and seconds of work of each library in a round.
    notes
        What was found about cases that do not meet the claim; it stands in the results.
    ways
        The contender whose work has other ways to be timed beside it, if any.
    against
        The way that the case's ratio is to, turn by turn; else it is to the best peer.
    processes
        How many processes find that ratio, each by turns of its own, in a first look and where it
        does not show that nothing is lost in a second (`repeats.py`); 0: the one process that is
        timed, by its turns.
    near
        The largest ratio to the best peer's time, by that time (`near.limit`, `near.no_slower`):
        what one process each does not show clearly is timed by more (`near.py`). None: one tells.
    clock
        Tells the seconds. `time.process_time`, for work on one thread, leaves out what other
        programs take of a core.
    """

    name: str
    claim: str
    cases: Sequence[Case]
    contenders: Mapping[str, Contender]
    unit: str = "ms"
    tolerance: float = 1e-3
    floors: frozenset[str] = frozenset()
    rounds: int = 9
    seconds: float = 0.15
    notes: str = ""
    ways: str = ""
    against: str = ""
    processes: tuple[int, int] = (0, 0)
    near: near.Limit | None = None
    clock: Callable[[], float] = time.perf_counter


# In the process of a library ------------------------------------------------------------------


def _work(benchmark: Benchmark, name: str) -> None:
    """Answer the parent's lines: prepare a case, time it, or let it go."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not an answer
    work: Work | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "prepare":
                work = None
                gc.collect()
                began = time.perf_counter()
                work = benchmark.contenders[name](asked["case"])
                work.call()
                answer: dict[str, Any] = {"first": time.perf_counter() - began, **work.told}
                arrays = {k: np.asarray(v) for k, v in work.results().items()}
                np.savez(asked["results"], **arrays)  # type: ignore[arg-type]
            elif asked["do"] == "ways":
                assert work is not None
                answer = _ways(work)
            else:
                assert work is not None
                answer = {"seconds": _timed(work, asked["seconds"], benchmark.clock)}
        except ModuleNotFoundError as error:
            answer = {"absent": error.name}
        except Exception as error:  # a failure of a library is a result to show
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _timed(work: Work, seconds: float, clock: Callable[[], float]) -> float:
    """Return the seconds of a unit of work, over calls that last about as long as asked."""
    began = clock()
    work.call()  # warms the caches that the others have emptied
    once = clock() - began
    if once > max(1.0, seconds):
        return once / work.per  # caches are nothing to work that is so long
    inner = max(1, int(seconds / max(once, 1e-7)))
    began = clock()
    for _ in range(inner):
        work.call()
    return (clock() - began) / inner / work.per


def _ways(work: Work) -> dict[str, Any]:
    """Return what was measured of the ways, and of "chosen", the work's own, in short turns.

    "ways" are the median seconds of each; "against" tells for each other way the ratios of what was
    chosen to it in the same turn: their median, between the ends of its interval of 95 %.
    """
    taken = turns({"chosen": work.call, **work.ways}, work.before)
    ratios = {
        name: sorted(ours / theirs for ours, theirs in zip(taken["chosen"], seconds, strict=True))
        for name, seconds in taken.items()
        if name != "chosen"
    }
    reach = math.floor(TURNS / 2 - 0.98 * math.sqrt(TURNS))
    return {
        "ways": {name: statistics.median(seconds) for name, seconds in taken.items()},
        "against": {
            name: [found[reach], statistics.median(found), found[-1 - reach]]
            for name, found in ratios.items()
        },
    }


def turns(
    ways: Mapping[str, Callable[[], Any]], before: Mapping[str, Callable[[], Any]]
) -> dict[str, list[float]]:
    """Return the seconds of a call of each way, turn by turn.

    The order of a turn is drawn: who follows a way of one thread finds the others asleep, and its
    arrays in the one's cache. So each is called for a while before it is timed, too.
    """
    calls = {}
    for name, way in ways.items():
        before.get(name, int)()
        way()
        began = time.perf_counter()
        way()
        calls[name] = max(1, int(BURST / max(time.perf_counter() - began, 1e-7)))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    draw = random.Random(0)
    for _ in range(TURNS):
        for name in draw.sample([*ways], len(ways)):
            way = ways[name]
            before.get(name, int)()
            end = time.perf_counter() + WARM
            while time.perf_counter() < end:
                way()
            began = time.perf_counter()
            for _ in range(calls[name]):
                way()
            taken[name].append((time.perf_counter() - began) / calls[name])
    before.get("chosen", int)()
    return taken


# In the parent ----------------------------------------------------------------------------------


class _Library:
    """A library's process."""

    def __init__(self, name: str, arguments: Sequence[str], log: Any) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, sys.argv[0], "--worker", name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the answer, or what became of the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"the process ended with status {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=60)


def _difference(ours: Path, theirs: Path) -> float:
    """Return the largest difference of two sets of results, relative to the largest value."""
    with np.load(ours) as expected, np.load(theirs) as found:
        worst = 0.0
        for name in expected.files:
            want = expected[name].astype(np.float64)
            got = found[name].astype(np.float64).reshape(want.shape)
            scale = float(np.max(np.abs(want), initial=0.0)) or 1.0
            worst = max(worst, float(np.max(np.abs(want - got), initial=0.0)) / scale)
    return worst


def _prepared(
    benchmark: Benchmark, case: Case, libraries: list[_Library], folder: Path
) -> dict[str, dict[str, Any]]:
    """Return, for each library, its first call and how far its results are from the first's."""
    rows: dict[str, dict[str, Any]] = {}
    first: Path | None = None
    for library in libraries:
        path = folder / f"{library.name.replace('/', '_')}.npz"
        answer = library.ask(do="prepare", case=case, results=str(path))
        if "first" in answer and library.name not in benchmark.floors:
            if first is None:
                first = path
            answer["difference"] = _difference(first, path)
            if not answer["difference"] <= benchmark.tolerance:
                answer["error"] = f"the results differ by {answer['difference']:.1e}"
        rows[library.name] = answer
    return rows


def measure(benchmark: Benchmark, case: Case, libraries: list[_Library]) -> dict[str, Any]:
    """Return the case's times: the median, least and largest of the rounds of each library."""
    with tempfile.TemporaryDirectory() as folder:
        rows = _prepared(benchmark, case, libraries, Path(folder))
    able = [x for x in libraries if "error" not in rows[x.name] and "absent" not in rows[x.name]]
    samples: dict[str, list[float]] = {library.name: [] for library in able}
    for turn in range(benchmark.rounds):
        # Every other round runs backwards: nobody always follows the same neighbour.
        for library in able if turn % 2 == 0 else able[::-1]:
            resting.rest([other.process.pid for other in libraries])
            answer = library.ask(do="time", seconds=benchmark.seconds)
            if "error" in answer:
                rows[library.name].update(answer)
            else:
                samples[library.name].append(answer["seconds"])
    for name, taken in samples.items():
        if taken:
            rows[name].update(
                median=statistics.median(taken), least=min(taken), largest=max(taken)
            )
    for library in able:
        if benchmark.ways == library.name and not benchmark.processes[0]:
            resting.rest([other.process.pid for other in libraries])
            rows[library.name].update(library.ask(do="ways"))
    return {"case": case, "times": rows, "ratio": ratio(benchmark, rows)}


def _measured(
    benchmark: Benchmark,
    cases: Sequence[Case],
    libraries: list[_Library],
    budget: float,
    keep: Callable[[list[dict[str, Any]], list[str]], None],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure cases while there is time; return what was measured, and the names of the rest.

    `keep` is told after every case, so that nothing is lost where the process is ended.
    """
    began, longest = time.perf_counter(), 0.0
    measured: list[dict[str, Any]] = []
    left_out: list[str] = []
    for case in cases:
        start = time.perf_counter()
        if left_out or start - began + longest > budget:
            left_out.append(case["name"])
            continue
        measured.append(measure(benchmark, case, libraries))
        keep(measured, [other["name"] for other in cases[len(measured) :]])
        longest = max(longest, time.perf_counter() - start)
    return measured, left_out


def _looked(
    benchmark: Benchmark, measured: Sequence[dict[str, Any]], start: Callable[[], _Library]
) -> None:
    """Add the looks of processes of their own at what was measured, and the ratio by the last."""

    def found(number: int, cases: Sequence[Case]) -> dict[str, float]:
        library, ratios = start(), {}
        try:
            for case in cases:
                with tempfile.NamedTemporaryFile(suffix=".npz") as file:
                    asked = {**case, "process": number}
                    answer = library.ask(do="prepare", case=asked, results=file.name)
                if "first" in answer:
                    answer = library.ask(do="ways")
                if "against" not in answer:
                    raise SystemExit(f"{case['name']}: {answer}")
                ratios[case["name"]] = answer["against"][benchmark.against][1]
        finally:
            library.end()
        return ratios

    looks = repeats.looked([entry["case"] for entry in measured], benchmark.processes, found)
    for entry in measured:
        entry["looks"] = looks[entry["case"]["name"]]
        entry["ratio"] = entry["looks"][-1]["interval"][1]


def _repeated(
    benchmark: Benchmark, measured: Sequence[dict[str, Any]], start: Callable[[str], _Library]
) -> None:
    """Time what is not clearly near the best peer by further processes, and add what they found."""
    ours, limit = next(iter(benchmark.contenders)), benchmark.near
    assert limit is not None
    entries = {entry["case"]["name"]: entry for entry in measured}
    timed: dict[str, dict[str, float]] = {}
    for name, entry in entries.items():
        first, peers = medians(benchmark, entry["times"])
        rivals = near.rivals(first, peers, limit) if peers and first < math.inf else []
        if rivals:
            timed[name] = {ours: first, **{rival: peers[rival] for rival in rivals}}
    alone = dataclasses.replace(benchmark, ways="")

    def groups(names: Sequence[str], count: int) -> dict[str, near.Times]:
        print(f"{count} more processes of each: {', '.join(names)}", flush=True)
        found = {name: {library: list[float]() for library in timed[name]} for name in names}
        for _ in range(count):
            libraries = {x: start(x) for x in dict.fromkeys(x for n in names for x in timed[n])}
            try:
                for name in names:
                    among = [libraries[library] for library in timed[name]]
                    rows = measure(alone, entries[name]["case"], among)["times"]
                    for library, taken in found[name].items():
                        if "median" not in rows[library]:
                            raise SystemExit(f"{name}, {library}: {rows[library]}")
                        taken.append(rows[library]["median"])
            finally:
                for library in libraries.values():
                    library.end()
        return found

    for name, looks in near.looked(timed, groups, limit).items():
        entries[name]["repeated"] = looks
        entries[name]["ratio"] = near.ratio(timed[name], looks)


def medians(
    benchmark: Benchmark, rows: Mapping[str, Mapping[str, Any]]
) -> tuple[float, dict[str, float]]:
    """Return our median, infinite where there is none, and those of peers."""
    ours, *others = benchmark.contenders
    return float(rows[ours].get("median", math.inf)), {
        name: rows[name]["median"]
        for name in others
        if name not in benchmark.floors and "median" in rows.get(name, {}) and _is_peer(name, ours)
    }


def ratio(benchmark: Benchmark, rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return our median over the best peer's, or None where there is no peer."""
    if benchmark.against:
        name = next(iter(benchmark.contenders))
        paired: list[float] | None = rows[name].get("against", {}).get(benchmark.against)
        return None if paired is None else paired[1]
    ours, peers = medians(benchmark, rows)
    return ours / min(peers.values()) if peers and ours < math.inf else None


def _is_peer(name: str, ours: str) -> bool:
    return not name.startswith(ours)  # "magmagraph, out=" is ours as well


def merged(
    cases: Sequence[Mapping[str, Any]], measured: Sequence[dict[str, Any]], known: Any
) -> list[dict[str, Any]]:
    """Return what was measured now, and of other cases what a file knows, each with its date."""
    found: dict[str, dict[str, Any]] = {}
    if known is not None:
        for entry in known["results"]:
            found[entry["case"]["name"]] = {"date": known["machine"]["date"], **entry}
    for entry in measured:
        found[entry["case"]["name"]] = {**entry, "date": common.today()}
    return [found[case["name"]] for case in cases if case["name"] in found]


PEERS = """
The peers that are installed take part (pip install -e ".[bench]" brings them), a process each; a
library that is not there is left out. Each case runs in turns of all; results join what is there.
A file takes minutes, less with --budget or --only; cpu_all.py runs all in a quarter of an hour.
"""


def main(benchmark: Benchmark) -> None:
    """Run the benchmark as its file's command line asks: all of it, or a library's process."""
    cleared = common.clean_environment()
    parser = opening.parser(f"{sys.modules['__main__'].__doc__}\n{PEERS}")
    parser.add_argument("--only", default="", help="cases whose name contains this, or one of A|B")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="contenders to run")
    parser.add_argument("--threads", type=int, help="cores that all may use (default: all)")
    parser.add_argument("--dry", action="store_true", help="print, but write no results")
    parser.add_argument("--rounds", type=int, default=benchmark.rounds, help="turns of a case")
    parser.add_argument(
        "--budget", type=float, default=math.inf,
        help="seconds: a case that would pass them, by the longest so far, is left out",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.threads])
    if asked.worker:
        _work(benchmark, asked.worker)
        return
    benchmark = dataclasses.replace(benchmark, rounds=asked.rounds)
    cases = [
        case for case in benchmark.cases
        if any(part in case["name"] for part in asked.only.split("|"))
    ]
    wanted = asked.peers or list(benchmark.contenders)
    threads = ["--threads", str(asked.threads)] if asked.threads else []
    name = benchmark.name + (f"_{asked.threads}" if asked.threads else "")

    path = common.RESULTS / f"{name}.json"
    known = json.loads(path.read_text()) if path.exists() else None

    def keep(measured: list[dict[str, Any]], left_out: list[str]) -> None:
        if not asked.dry:
            common.write(
                name, merged(benchmark.cases, measured, known), claim=benchmark.claim,
                cleared=cleared, left_out=left_out,
                **({"notes": benchmark.notes} if benchmark.notes else {}),
            )

    with tempfile.TemporaryFile() as log:
        libraries = [
            _Library(name, threads, log) for name in benchmark.contenders if name in wanted
        ]
        try:
            told = keep if not benchmark.processes[0] else lambda *_: None  # not without looks
            measured, left_out = _measured(benchmark, cases, libraries, asked.budget, told)
        finally:
            for library in libraries:
                library.end()
        if benchmark.processes[0]:
            _looked(benchmark, measured, lambda: _Library(benchmark.ways, threads, log))
        if benchmark.near is not None:
            _repeated(benchmark, measured, lambda name: _Library(name, threads, log))
    shown.report(benchmark, measured)
    if left_out:
        print(f"left out, since {asked.budget:.0f} s were over: {', '.join(left_out)}")
    if asked.dry:
        return
    keep(measured, left_out)
    print(common.RESULTS / f"{name}.json")
    if not asked.threads:
        drawn = merged(benchmark.cases, measured, known)
        print(shown.picture(benchmark, drawn) or "no picture: matplotlib is not installed")
