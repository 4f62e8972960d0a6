"""Checks before ranks begin together: that all of them were given the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, message
from ..ir.communicator import Communicator
from ..ir.docstrings import documented
from ..ir.ranks import current

__all__ = ["check_equal_on_ranks"]

_FIT = (
    "the whole of the data, and the same arguments, on every rank: fit gives each its part "
    "(data='sharded' is for ranks that have rows of their own)"
)


@documented
def check_equal_on_ranks(
    own_values: Mapping[str, Any],
    what: str = "the start of training",
    *,
    need: str = _FIT,
    ranks: Communicator | None = None,
) -> None:
    """Raise, on every rank, unless all of them say the same; all ranks call it.

    own_values: What has to be equal, by the name that people know it by.
    what, need: What the check is for, and what is needed, for the error.
    ranks: Those that compare; the current ones unless given.
    raises ConfigError: Something differs: the text names it, with two ranks.

    >>> def differing():
    ...     try:
    ...         check_equal_on_ranks({"epochs": 1 + mg.distributed.rank()})
    ...     except ConfigError as error:
    ...         return str(error).splitlines()[0]
    >>> mg.distributed.threads(2, differing)
    ['epochs: 1 on rank 0, 2 on rank 1', 'epochs: 1 on rank 0, 2 on rank 1']
    """
    world = current() if ranks is None else ranks
    if world.size == 1:
        return
    everybody = world.exchange(dict(own_values), what)
    for name in own_values:
        values = [theirs.get(name) for theirs in everybody]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            text = f"{name}: {values[0]} on rank 0, {values[other]} on rank {other}"
            raise ConfigError(message(text, need=need))
