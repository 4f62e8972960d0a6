"""What `plan` is asked for: numbers of ranks and of runs, and ways of adding up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, message
from .costs import ALGORITHMS

__all__ = ["check_options", "numbers_of_ranks"]


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def numbers_of_ranks(devices: Any) -> list[int]:
    """Return the numbers of ranks, in order.

    Examples
    --------
    >>> numbers_of_ranks(4), numbers_of_ranks(range(3, 0, -1))
    ([4], [1, 2, 3])
    """
    several = isinstance(devices, Iterable) and not isinstance(devices, (str, bytes, dict))
    counts = list(devices) if several else [devices]
    if not counts or not all(_whole(count) and count >= 1 for count in counts):
        raise ConfigError(
            message(
                f"devices={devices!r}",
                need="numbers of ranks, 1 or more",
                hint="devices=4, or devices=[1, 2, 4]",
            )
        )
    return sorted({int(count) for count in counts})


def check_options(algorithms: Sequence[str], cores: int | None, repeats: int, weak: bool) -> None:
    """Raise unless the options are some that a plan can be made with."""
    if isinstance(algorithms, str) or not algorithms or not set(algorithms) <= set(ALGORITHMS):
        raise ConfigError(
            message(
                f"algorithms={algorithms!r}",
                need=f"a list of some of {', '.join(ALGORITHMS)}",
                hint='algorithms=["auto"] is the library\'s all-reduce',
            )
        )
    counted: dict[str, Any] = {"repeats": repeats}
    if cores is not None:
        counted["cores"] = cores
    for name, number in counted.items():
        if not (_whole(number) and number >= 1):
            raise ConfigError(message(f"{name}={number!r}", need="a number of 1 or more"))
    if not isinstance(weak, bool):
        raise ConfigError(message(f"weak={weak!r}", need="True or False"))
