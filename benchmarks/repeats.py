"""Ratios of two ways that are measured by several processes: intervals, and what they show.

`cpu_threads.py` tells the rule and why the unit is a process. A look is what some processes
found: their ratios, and the interval of these. A case has one look, or two where the first did not
show that the one way is no slower than the other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LARGEST = 1.02  # an interval that ends above it does not show that nothing was lost

Look = dict[str, list[float]]
"""The "ratios" of processes, and their "interval": lower end, middle and upper end."""


def interval(ratios: Sequence[float]) -> list[float]:
    """Return the interval of 95 % of a ratio, between processes that each found one.

    Student's, of the logarithms: lower end, geometric mean, upper end.

    Examples
    --------
    >>> [round(end, 3) for end in interval([0.98, 1.0, 1.02, 1.0])]
    [0.975, 1.0, 1.026]
    """
    from scipy import special

    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    reach = float(special.stdtrit(len(logs) - 1, 0.975)) * statistics.stdev(logs)
    reach /= math.sqrt(len(logs))
    return [math.exp(middle - reach), math.exp(middle), math.exp(middle + reach)]


def look(ratios: Sequence[float]) -> Look:
    """Return a look of what processes found."""
    return {"ratios": [*ratios], "interval": interval(ratios)}


def shows(found: Look) -> bool:
    """Whether a look shows that the one way is no slower than the other."""
    low, _, high = found["interval"]
    return low <= 1.0 and high <= LARGEST


def looked(
    cases: Sequence[Any],
    counts: tuple[int, int],
    measure: Callable[[int, Sequence[Any]], Mapping[str, float]],
) -> dict[str, list[Look]]:
    """Return the looks at each case, by its name: one, or two where the first shows nothing.

    Parameters
    ----------
    cases
        What to look at, each with a "name".
    counts
        Processes of a first look, and of a second.
    measure
        Starts the process of a number, and returns the ratio that it finds for each case that it
        is given. Numbers go on from the first look to the second.
    """
    first, again = counts
    found = _look(cases, range(first), measure)
    looks = {case["name"]: [found[case["name"]]] for case in cases}
    unclear = [case for case in cases if not shows(found[case["name"]])]
    if unclear:
        for name, second in _look(unclear, range(first, first + again), measure).items():
            looks[name].append(second)
    return looks


def _look(
    cases: Sequence[Any],
    numbers: range,
    measure: Callable[[int, Sequence[Any]], Mapping[str, float]],
) -> dict[str, Look]:
    """Measure by one process after another, all cases by each: a host's moods fall on all alike."""
    taken = [measure(number, cases) for number in numbers]
    return {case["name"]: look([ratios[case["name"]] for ratios in taken]) for case in cases}
