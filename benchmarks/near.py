"""Whether a time is near the best peer's, or no longer: a rule for processes that differ.

Sums are to be within 5 % or 1 us of the best peer (`limit`), kernels over rows to take 0.7 of its
time (`seven_tenths`), other work is to be no slower (`no_slower`).

**Rule** (written down before it was used; the medians in 2 came after a run in which others were
busy: the larger of two can only accuse, the choice of the peer can go either way). Equal kernels
take up to some 7 % more in one process than in another, by where memory lies. So a ratio of one
process each says little about 5 %.

1. Every contender is timed in a process of its own. A case whose ratio is at most `CLEAR` of its
   limit is met: a true ratio of 1.08 is found there in less than 1 % of the runs.
2. Any other case is timed again in `FIRST` fresh processes of ours, and as many of each peer within
   `RIVAL` of the best, one of each at a time and in turn. The ratio of each such group counts once.
   The case's ratio, to the peer that is the fastest there, is the larger of their geometric mean
   and their median (a peer that lost its cores in some processes makes nobody near); its interval
   is Student's, of 95 %, of the mean.
3. Where that interval holds the limit, `AGAIN` further groups alone decide, in the same way.
4. The case is met where the ratio of the last look is at most the limit.

The limits are those of the single ratios before. For 5 %: where a process differs from the next by
5 % (deviation), of cases that are 8 % slower than the best peer 66 % are caught by single ratios,
and 96 by this rule; of those as fast as it 25 and 0.8 % are accused; with 3 %, 74 and 99.8, and 13
and none (`tests/benchmarks/test_benchmark_near.py`). All that was measured stays in the results,
and the ratio that is shown is of the medians of all processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import repeats

SHARE, SECONDS = 1.05, 1e-6  # of the best peer's time, and more than it: the larger is the limit
CLEAR = 0.85  # of the limit
RIVAL = 1.25  # of the best peer's time, which another may have to be the best in truth
FIRST, AGAIN = 8, 16

Times = Mapping[str, Sequence[float]]
"""For ours (first) and each rival, the medians of their processes, group by group."""
Limit = Callable[[float], float]
"""The largest ratio to the best peer's time, by that time in seconds."""


def limit(best: float) -> float:
    """Return the largest ratio to a peer's time that is near.

    Examples
    --------
    >>> limit(1e-3)
    1.05
    >>> limit(4e-6)
    1.25
    """
    return max(SHARE, 1.0 + SECONDS / best)


def no_slower(best: float) -> float:
    """Return the largest ratio to a peer's time where nothing may be lost."""
    return 1.0


def seven_tenths(best: float) -> float:
    """Return the largest ratio to a peer's time where ours is to be 0.7 of it."""
    return 0.7


def rivals(ours: float, peers: Mapping[str, float], limit: Limit = limit) -> list[str]:
    """Return the peers that have to be timed again; none where ours is clearly within the limit."""
    best = min(peers.values())
    if ours / best <= CLEAR * limit(best):
        return []
    return [name for name, taken in peers.items() if taken <= RIVAL * best]


def look(times: Times, limit: Limit = limit) -> dict[str, Any]:
    """Return what groups of processes found: the fastest peer, the interval of the ratio to it.

    Examples
    --------
    >>> found = look({"ours": [1.0, 1.1, 1.0], "a": [1.0, 1.0, 1.1], "b": [2.0, 2.0, 2.0]})
    >>> found["peer"], round(found["ratio"], 3), found["limit"]
    ('a', 1.0, 1.05)
    """
    (_, ours), *others = times.items()
    name, best = min(others, key=lambda item: statistics.median(item[1]))
    ratios = [taken / theirs for taken, theirs in zip(ours, best, strict=True)]
    interval = repeats.interval(ratios)
    return {
        "peer": name,
        "times": {key: [*taken] for key, taken in times.items()},
        "ratio": max(interval[1], statistics.median(ratios)),
        "interval": interval,
        "limit": limit(statistics.median(best)),
    }


def settled(found: Mapping[str, Any]) -> bool:
    """Whether a look tells on which side of its limit a ratio is."""
    low, _, high = found["interval"]
    return not low <= found["limit"] <= high


def share(found: Mapping[str, Any]) -> float:
    """Return the ratio of a look over its limit: met where that is at most 1."""
    return float(found["ratio"] / found["limit"])


def looked(
    names: Iterable[str],
    measure: Callable[[Sequence[str], int], Mapping[str, Times]],
    limit: Limit = limit,
) -> dict[str, list[dict[str, Any]]]:
    """Return the looks at cases by name: one, or two where the first one does not settle it.

    Parameters
    ----------
    names
        The cases that have rivals.
    measure
        Times some cases, by so many groups of fresh processes.
    limit
        The largest ratio to a peer's time.
    """
    looks: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for count in (FIRST, AGAIN):
        left = [name for name, found in looks.items() if not (found and settled(found[-1]))]
        if left:
            for name, times in measure(left, count).items():
                looks[name].append(look(times, limit))
    return looks


def ratio(first: Mapping[str, float], looks: Iterable[Mapping[str, Any]]) -> float:
    """Return our median over the best peer's, each of all processes, the first ones among them."""
    taken = {name: [seconds] for name, seconds in first.items()}
    for found in looks:
        for name, seconds in found["times"].items():
            taken[name] += seconds
    ours, *peers = (statistics.median(seconds) for seconds in taken.values())
    return ours / min(peers, default=math.nan)
