"""`mg.distributed.plan`: what a function would take on many ranks, and which way is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ConfigError, message
from ...inspect.checking.running import bind
from ...ir.communicator import Communicator
from ...ir.docstrings import documented
from ...ir.ranks import current, using
from ...ir.tables import table
from ...ir.types import FilePath
from ..data_parallel import DataParallel
from .costs import Links, Machine, Timeline
from .curve import draw
from .dry import DryRank
from .measured_rank import Rank, spread
from .plan_options import check_options, numbers_of_ranks
from .sharing import Sharing, beside
from .simulator import Simulated, simulate

__all__ = ["Proposal", "StrategyPlan", "plan"]

_WORTH = 1.05  # times as fast as fewer ranks, from which on more of them are proposed


@dataclass(frozen=True)
class Proposal:
    """One way of running a step, and what it takes.

    ranks: How many.
    algorithm: How gradients travel.
    rows: Of the batch on the rank that has the most.
    seconds: Of a step.
    compute: Of it, seconds of computing.
    bytes: Of reductions that each rank takes part in.
    """

    ranks: int
    algorithm: str
    rows: int
    seconds: float
    compute: float
    bytes: int

    @property
    def waiting(self) -> float:
        """Seconds in which a rank waits; what is hidden behind computing is not among them."""
        return self.seconds - self.compute


class StrategyPlan:
    """What a function would take on some numbers of ranks.

    proposals (list of Proposal): Every way that was looked at.
    rows (int): Of the whole batch.
    links (Links): What messages cost.
    cores (int or None): That all ranks share.
    timelines (dict): By number of ranks, what one of them does in a step.
    """

    def __init__(
        self,
        proposals: Sequence[Proposal],
        rows: int,
        links: Links,
        cores: int | None,
        timelines: dict[int, Timeline],
        weak: bool,
    ) -> None:
        self.proposals = list(proposals)
        self.rows, self.links, self.cores = rows, links, cores
        self.timelines, self.weak = timelines, weak

    def throughput(self, proposal: Proposal) -> float:
        """Return the rows a second of a proposal."""
        rows = self.rows * proposal.ranks if self.weak else self.rows
        return rows / proposal.seconds

    @property
    def best(self) -> Proposal:
        """The fastest way, with no more ranks than are worth it."""
        chosen = min(self.proposals, key=lambda proposal: proposal.ranks)
        for proposal in sorted(
            self.proposals, key=lambda proposal: (proposal.ranks, proposal.seconds)
        ):
            least = 1.0 if proposal.ranks == chosen.ranks else _WORTH
            if self.throughput(proposal) > least * self.throughput(chosen):
                chosen = proposal
        return chosen

    @property
    def strategy(self) -> DataParallel | None:
        """The strategy of the best way, to give to ``distribute=``; None for one rank."""
        if self.best.ranks == 1:
            return None
        return DataParallel(
            algorithm="allreduce" if self.best.algorithm == "auto" else self.best.algorithm
        )

    def explain(self) -> str:
        """Return the choice, and what bounds it."""
        best = self.best
        alone = min(self.proposals, key=lambda proposal: proposal.ranks)
        gain = self.throughput(best) / self.throughput(alone)
        lines = [
            f"{best.ranks} rank{'s' if best.ranks > 1 else ''}"
            + (f", sums by {_called(best.algorithm)}" if best.ranks > 1 else "")
            + f": {best.seconds * 1e3:.3g} ms a step, {gain:.2f} times {alone.ranks} rank"
        ]
        if best.ranks > 1:
            lines.append(
                f"a rank computes for {best.compute * 1e3:.3g} ms and waits for "
                f"{best.waiting * 1e3:.3g} ms; {best.bytes / 1e6:.3g} MB are summed over ranks"
            )
        more = [proposal for proposal in self.proposals if proposal.ranks > best.ranks]
        if more:
            following = min(more, key=lambda proposal: (proposal.ranks, proposal.seconds))
            further = self.throughput(following) / self.throughput(best)
            lines.append(
                f"{following.ranks} ranks would be {further:.2f} times as fast: "
                f"{_bound(following, self.cores)}"
            )
        return "\n".join(lines)

    def simulate(self, ranks: int, algorithm: str = "auto", **options: Any) -> Simulated:
        """Let ranks go through their timeline, by events; options are those of `simulate`.

        raises ConfigError: If `plan` was not asked for this number of ranks.
        """
        if ranks not in self.timelines:
            raise ConfigError(
                message(
                    f"nothing was planned for {ranks} ranks",
                    need=f"one of {', '.join(map(str, self.timelines))}",
                    hint=f"devices=[..., {ranks}], in plan",
                )
            )
        return simulate(self.timelines[ranks], self.links, ranks, algorithm, **options)

    def curve(
        self,
        path: FilePath,
        algorithms: Sequence[str] = ("auto", "ring", "parameter_server", "async"),
        *,
        jitter: float = 0.05,
        steps: int = 10,
        seed: int = 0,
    ) -> dict[str, list[float]]:
        """Simulate all numbers of ranks, and draw their speed against one rank.

        path: Of the picture, an SVG file; its assumptions are written below it.
        algorithms (sequence of str): As of `simulate`.
        jitter, steps, seed: As of `simulate`.
        returns (dict): For each algorithm, the speed on each number of ranks over that on the
            first.
        """
        counts = list(self.timelines)
        speeds = {}
        for algorithm in algorithms:
            chosen_each = [
                self.simulate(n, algorithm, jitter=jitter, steps=steps, seed=seed) for n in counts
            ]
            rows = [self.rows * n if self.weak else self.rows for n in counts]
            rate = [count / one.seconds for count, one in zip(rows, chosen_each, strict=True)]
            speeds[_called(algorithm)] = [each / rate[0] * counts[0] for each in rate]
        draw(path, counts, speeds, self._assumptions(jitter))
        return speeds

    def _assumptions(self, jitter: float) -> list[str]:
        links = self.links
        batch = f"{self.rows} rows {'on each rank' if self.weak else 'in all, divided'}"
        return [
            f"{batch}; a rank computes {next(iter(self.timelines.values())).compute * 1e3:.3g} ms "
            f"with {self.rows} rows; {max(t.bytes for t in self.timelines.values()) / 1e6:.3g} MB "
            "of gradients",
            f"links: {links.latency * 1e6:.3g} us and "
            f"{1e-9 / links.seconds_per_byte if links.seconds_per_byte else math.inf:.3g} GB/s "
            "between any two ranks, no contention but at a server",
            f"computing of each rank and step: exp({jitter:g} x) of that, x normal, independent",
        ]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("ranks", "sums by", "rows", "ms", "computing", "waiting", "speed-up")
        ]
        alone = min(self.proposals, key=lambda proposal: proposal.ranks)
        for proposal in self.proposals:
            gain = self.throughput(proposal) / self.throughput(alone)
            rows.append(
                (
                    str(proposal.ranks),
                    _called(proposal.algorithm) if proposal.ranks > 1 else "",
                    str(proposal.rows),
                    f"{proposal.seconds * 1e3:.3g}",
                    f"{proposal.compute * 1e3:.3g}",
                    f"{proposal.waiting * 1e3:.3g}",
                    f"{gain:.2f}",
                )
            )
        return f"{table(rows, left=(1,))}\n{self.explain()}"


@documented
def plan(
    function: Any,
    *feeds: Any,
    devices: int | Iterable[int] = (1, 2, 4, 8),
    links: Links | None = None,
    machine: Machine | None = None,
    algorithms: Sequence[str] = ("auto", "ring", "parameter_server"),
    dim: str = "batch",
    weak: bool = False,
    cores: int | None = None,
    sharing: Sharing | Iterable[Sharing] = (),
    repeats: int = 5,
    overlap: bool | None = None,
    **named: Any,
) -> StrategyPlan:
    """Predict the time of a function on many ranks, and propose how to run it.

    The plan of a rank is made as in a real job (`DataParallel`), and its steps are measured here;
    what messages take is what `links` say. Variables are left as they are.

    function (Function): Of one process: a training step, or anything with a dimension that can be
        sharded.
    *feeds, **named: As of a call, with all rows of a batch.
    devices (int or sequence of int): Numbers of ranks to look at.
    links (Links, optional): Measured over the ranks of the job unless given, which then all have to
        call this. What they share is measured then, too, and computing on rank 0 while the others
        sleep.
    machine (Machine, optional): Where it shall run, by its roofs; nothing is measured here then.
    algorithms (sequence of str): How reductions may travel: "auto" (the library's all-reduce),
        "ring", "torus", "parameter_server".
    dim (str): The dimension that is sharded.
    weak (bool): Whether each rank has the rows of the feeds; else ranks divide them among
        themselves.
    cores (int, optional): That all ranks together have, where they share a machine; a rank has one
        unless said.
    sharing (Sharing or sequence of Sharing): What so many ranks of this machine lose to each other,
        as `Sharing.measure` finds it; for their number of ranks it counts in the place of `cores`.
    repeats (int): Runs of each measurement; the median counts.
    overlap (bool, optional): Whether reductions run beside computing; as the current communicator
        does unless said.
    returns (StrategyPlan):
    raises ConfigError: If no input has the dimension, or there is one rank and no links are given.

    >>> import numpy as np
    >>> x = mg.var("x", shape=("batch", 8))
    >>> w = mg.var("w", init=np.ones((8, 1)), dtype="float32")
    >>> loss = mg.mean((x @ w) ** 2)
    >>> step = mg.optimizer.SGD(0.1).step(loss, [w], inputs=[x], outputs=loss)
    >>> fast = mg.distributed.Machine(flops=1e12, bandwidth=1e11, overhead=1e-6)
    >>> found = mg.distributed.plan(step, np.ones((1000, 8), np.float32), devices=[1, 2],
    ...                             links=mg.distributed.Links(1e-3, 1e-9), machine=fast)
    >>> found.best.ranks  # a message costs more than the whole step
    1
    """
    if not hasattr(function, "compile"):
        raise ConfigError(
            message(
                f"plan is given {type(function).__name__}",
                need="a function, compiled from a graph",
                hint="mg.function(inputs, outputs), or Optimizer.step(...)",
            )
        )
    for name, option, kind in (("links", links, Links), ("machine", machine, Machine)):
        if option is not None and not isinstance(option, kind):
            raise ConfigError(
                message(f"{name}={option!r}", need=f"mg.distributed.{kind.__name__}(...)")
            )
    counts = numbers_of_ranks(devices)
    check_options(algorithms, cores, repeats, weak)
    ranks = current()
    concurrent = ranks.overlaps if overlap is None else overlap
    sharings = list(_listed(sharing))
    measured = links is None
    if links is None:
        links = Links.measure()
        if machine is None and ranks.size not in {each.ranks for each in sharings}:
            sharings.append(Sharing.measure())
    all_links, arrays, axes, rows = links, *_batch(function, feeds, named, dim)
    shares = {count: rows if weak else -(-rows // count) for count in counts}

    def work() -> dict[int, Timeline]:
        by_count: dict[int, Timeline] = {}
        single = Rank(function, arrays, axes, machine, repeats)
        several = None
        if counts[-1] > 1:
            with using(DryRank(2, concurrent)):
                several = Rank(spread(function, dim), arrays, axes, machine, repeats)
            several.measure([shares[count] for count in counts if count > 1])
        for count in counts:
            rank = single if count == 1 or several is None else several
            by_count[count] = rank.timeline(shares[count], _beside(count, sharings, cores))
        return by_count

    timelines = _by_first(ranks, work) if measured else work()
    proposals = [
        Proposal(
            count, algorithm, shares[count], timelines[count].seconds(all_links, count, algorithm),
            timelines[count].compute, timelines[count].bytes,
        )
        for count in counts
        for algorithm in (algorithms if count > 1 else algorithms[:1])
    ]  # fmt: skip
    return StrategyPlan(proposals, rows, all_links, cores, timelines, weak)


def _listed(sharing: Sharing | Iterable[Sharing]) -> list[Sharing]:
    sharings = [sharing] if isinstance(sharing, Sharing) else list(sharing)
    for each in sharings:
        if not isinstance(each, Sharing):
            raise ConfigError(
                message(
                    f"sharing={each!r}",
                    need="what ranks of a machine lose to each other",
                    hint="mg.distributed.Sharing.measure()",
                )
            )
    return sharings


def _beside(count: int, sharings: Sequence[Sharing], cores: int | None) -> Sharing | float:
    """Return what so many ranks lose to each other: as measured, or by turns on the cores."""
    for sharing in sharings:
        if sharing.ranks == count > 1:
            return sharing
    return 1.0 if cores is None else max(1.0, count / cores)


def _by_first(
    ranks: Communicator, work: Callable[[], dict[int, Timeline]]
) -> dict[int, Timeline]:
    """Return what rank 0 measures while the others sleep; raise everywhere what it raises."""

    def attempt() -> dict[int, Timeline] | Exception:
        try:
            return work()
        except Exception as error:  # the others are to hear of it
            return error

    own = beside(ranks, ranks.subset((0,)) if ranks.rank == 0 else None, attempt)
    result: dict[int, Timeline] | Exception = ranks.from_first(own, "the plan of a strategy")
    if isinstance(result, Exception):
        raise result
    return result


def _batch(
    function: Any, feeds: Sequence[Any], named: Any, dim: str
) -> tuple[list[np.ndarray], list[int | None], int]:
    """Return the feeds, the sharded axis of each, and the rows."""
    bound = bind(function, feeds, named)
    axes: list[int | None] = []
    for node in function.inputs:
        places = [at for at, extent in enumerate(node.shape) if str(extent) == dim]
        axes.append(places[0] if places else None)
    if dim not in bound.sizes or all(axis is None for axis in axes):
        raise ConfigError(
            message(
                f"no input has the dimension {dim!r}",
                need=f"one of {', '.join(bound.sizes) or 'none: all extents are ints'}",
                hint='mg.var("x", shape=("batch", ...)), or dim= of plan',
            )
        )
    return bound.arrays, axes, bound.sizes[dim]


def _called(algorithm: str) -> str:
    return "all-reduce" if algorithm == "auto" else algorithm.replace("_", " ")


def _bound(proposal: Proposal, cores: int | None) -> str:
    """Return what keeps a proposal from being faster."""
    if proposal.waiting > proposal.compute:
        return "messages take longer than the computation"
    if cores is not None and proposal.ranks > cores:
        return f"{cores} cores are shared"
    if proposal.waiting > 0.1 * proposal.compute:
        return "messages do not overlap with computation"
    return "fixed costs of steps remain, however few the rows"
