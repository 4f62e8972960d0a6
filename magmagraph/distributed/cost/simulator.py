"""Ranks that are simulated by events: what many of them would do with one timeline."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...errors import ConfigError, message
from ...ir.docstrings import documented
from .costs import Compute, Links, Start, Timeline

__all__ = ["Simulated", "simulate"]

WAYS = ("auto", "ring", "torus", "parameter_server", "async")


@dataclass(frozen=True)
class Simulated:
    """What a simulation found.

    ranks: Ranks that compute; a parameter server is one more.
    algorithm: How gradients travel.
    seconds: Of a step: from one update with the work of all ranks to the next. Asynchronous workers
        make as many updates in this time as there are ranks.
    idle: The share of its time in which a rank does not compute.
    staleness: Of asynchronous workers: how often a gradient was so many updates old when it came.
    """

    ranks: int
    algorithm: str
    seconds: float
    idle: float
    staleness: Mapping[int, int] = field(default_factory=dict)


@documented
def simulate(
    work: Timeline,
    links: Links,
    ranks: int,
    algorithm: str = "auto",
    *,
    jitter: float = 0.0,
    steps: int = 10,
    seed: int = 0,
) -> Simulated:
    """Let ranks go through a timeline, step after step.

    work (Timeline): What one rank does in a step.
    links (Links): What messages cost.
    ranks (int): How many compute.
    algorithm (str): "auto", "ring" or "torus" sum over all ranks; "parameter_server" sends to a
        further rank, which waits for all; "async" to one that waits for none. A server receives and
        sends at once.
    jitter (float): The computing of each rank in each step takes exp(jitter x) times what it takes
        here, x normal.
    steps (int): So many for each rank.
    seed (int): Of the jitter.
    returns (Simulated):

    >>> from magmagraph.distributed.cost.costs import Compute, Form, Message, Start, Timeline, Wait
    >>> work = Timeline((Compute(0.01), Start(1, Message(Form.REDUCTION, 4_000_000)), Wait(1)))
    >>> links = mg.distributed.Links(1e-5, 1e-9)
    >>> for way in ("auto", "parameter_server", "async"):
    ...     found = mg.distributed.simulate(work, links, 64, way)
    ...     print(way, round(found.seconds * 1e3), "ms")
    auto 18 ms
    parameter_server 295 ms
    async 257 ms
    """
    if algorithm not in WAYS:
        raise ConfigError(message(f"algorithm={algorithm!r}", need=f"one of {', '.join(WAYS)}"))
    for name, number in (("ranks", ranks), ("steps", steps)):
        if not isinstance(number, int) or number < 1:
            raise ConfigError(message(f"{name}={number!r}", need="an int of at least 1"))
    if not 0 <= jitter < math.inf:
        raise ConfigError(message(f"jitter={jitter!r}", need="a number of at least 0"))
    factors = np.exp(jitter * np.random.default_rng(seed).standard_normal((steps, ranks)))
    if algorithm == "async":
        return _asynchronous(work, links, factors)
    if algorithm == "parameter_server":
        return _served(work, links, factors)
    return _together(work, links, factors, algorithm)


def _together(work: Timeline, links: Links, factors: np.ndarray, algorithm: str) -> Simulated:
    """Every reduction begins when the last rank has come, and the one before has ended."""
    steps, ranks = factors.shape
    clocks = np.zeros(ranks)
    free = 0.0
    for factor in factors:
        ends: dict[int, float] = {}
        for event in work.events:
            if isinstance(event, Compute):
                clocks += event.seconds * factor
            elif isinstance(event, Start):
                taken = links.seconds(event.message, ranks, algorithm)
                free = max(float(clocks.max()), free) + taken
                ends[event.number] = free
            else:
                np.maximum(clocks, ends[event.number], out=clocks)
        np.maximum(clocks, max(ends.values(), default=0.0), out=clocks)
    total = float(clocks.max())
    busy = work.compute * float(factors.sum()) / ranks
    return Simulated(ranks, algorithm, total / steps, 1.0 - busy / total if total else 0.0)


def _served(work: Timeline, links: Links, factors: np.ndarray) -> Simulated:
    """All send to a server, which adds what comes in turn, and sends the sums to each in turn."""
    steps, ranks = factors.shape
    clocks = np.zeros(ranks)
    inward = work.bytes * (links.seconds_per_byte + links.adding)
    outward = work.bytes * links.seconds_per_byte
    for factor in factors:
        arrived = np.sort(clocks + work.compute * factor) + links.latency
        # A queue: each begins when it has come and the one before has gone.
        ends = np.maximum.accumulate(arrived - inward * np.arange(ranks)) + inward * (
            np.arange(ranks) + 1
        )
        clocks = ends[-1] + outward * (np.arange(ranks) + 1) + links.latency
    total = float(clocks.max())
    busy = work.compute * float(factors.sum()) / ranks
    return Simulated(ranks, "parameter_server", total / steps, 1.0 - busy / total if total else 0.0)


def _asynchronous(work: Timeline, links: Links, factors: np.ndarray) -> Simulated:
    """Each sends its gradient, and goes on with what the server has when its turn has come."""
    steps, ranks = factors.shape
    inward = work.bytes * (links.seconds_per_byte + links.adding)
    outward = work.bytes * links.seconds_per_byte
    # (time, worker): a gradient has come to the server.
    events = [
        (work.compute * float(factors[0, rank]) + links.latency, rank) for rank in range(ranks)
    ]
    heapq.heapify(events)
    version, free_in, free_out, last = 0, 0.0, 0.0, 0.0
    versions = [0] * ranks  # the version that each worker computes with
    done = [0] * ranks
    staleness: Counter[int] = Counter()
    while events:
        now, rank = heapq.heappop(events)
        free_in = max(free_in, now) + inward
        staleness[version - versions[rank]] += 1
        version += 1
        free_out = max(free_out, free_in) + outward
        versions[rank] = version
        done[rank] += 1
        last = max(last, free_out + links.latency)
        if done[rank] < steps:
            taken = work.compute * float(factors[done[rank], rank])
            heapq.heappush(events, (free_out + 2 * links.latency + taken, rank))
    busy = work.compute * float(factors.sum()) / ranks
    return Simulated(
        ranks,
        "async",
        last / steps,
        1.0 - busy / last if last else 0.0,
        dict(sorted(staleness.items())),
    )
