"""The ranks that train one model together: what a run of training asks them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import DataError, MagmagraphError, RanksWarning, StorageError, message
from ..ir.communicator import Communicator
from ..ir.lines import caller_line, warn_user
from ..ir.ranks import current, rank_and_count
from .consistency import check_equal_on_ranks
from .strategies import checked, joined

__all__ = ["Team", "warn_of_copies"]


_warned = threading.Event()


def warn_of_copies(step: Any) -> None:
    """Warn on rank 0, once, where several ranks make a training step that exchanges nothing."""
    if step.communicator is not None or _warned.is_set():
        return
    number, count = rank_and_count()
    if count == 1 or number != 0:
        return
    _warned.set()
    warn_user(
        message(
            f"training without distribute=: each of {count} ranks trains a model of its own",
            need="a strategy, for one model that all ranks train",
            hint="distribute=mg.distributed.DataParallel(); MAGMAGRAPH_COMMUNICATOR=solo for "
            "separate models",
        ),
        RanksWarning,
        caller_line(),
    )


class Team:
    """The ranks that train a model together; without a strategy this process alone.

    All ranks call the same methods in the same order.

    distribute: The strategy, as `mg.function` takes it.
    shard: Which part of each batch this rank takes, and of how many.
    """

    def __init__(self, distribute: Any) -> None:
        self._strategy = checked(distribute)
        self._group: Communicator | None = None  # those that share batches, where several do
        self._world: Communicator | None = None  # all that the training step runs on
        self.shard = (0, 1) if self._strategy is None else self._strategy.shard()

    @property
    def spread(self) -> bool:
        """Whether a strategy spreads the training."""
        return self._strategy is not None

    @property
    def asynchronous(self) -> bool:
        """Whether ranks may take different numbers of steps."""
        return self._strategy is not None and self._strategy.asynchronous

    @property
    def is_first(self) -> bool:
        """Whether this process writes and shows what is written and shown once."""
        return self._world is None or self._world.rank == 0

    def check(self, sizes: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
        """Raise `ConfigError` unless ranks are given the same.

        sizes: Compared by all ranks: arguments, and numbers of examples.
        contents: Compared by those that share batches.
        """
        if self._strategy is None:
            return
        check_equal_on_ranks(sizes)
        world = current()
        group = world.group(self._strategy.axes_of(world.mesh))
        self._group = group if group.size > 1 else None
        check_equal_on_ranks(contents, ranks=group)

    def begin(self, step: Any) -> None:
        """Begin to train with a compiled step: all ranks have rank 0's variables."""
        self._world = step.communicator
        if self._group is not None:
            step._begin_alike()

    def agree(self, flag: bool, what: str) -> bool:
        """Return whether the flag is set on any of the ranks."""
        if self._group is None:
            return flag
        return self._group.agree(True if flag else None, what) is not None

    def any(self, flag: bool, what: str) -> bool:
        """Return whether the flag is set on any rank that this one waits for in each step."""
        if self._group is None or self.asynchronous:
            return flag
        return any(self._group.exchange(flag, what))

    def joined(self, totals: list[Any], rows: int) -> tuple[list[Any], int]:
        """Return sums over the rows of all ranks, and the number of rows."""
        return joined(self._strategy, totals, rows)

    def write(self, write: Callable[[], None]) -> None:
        """Let the first rank write a file; all ranks raise what that raises."""
        world = self._world
        if world is None or world.size == 1:
            write()
            return
        failure: Exception | None = None
        if world.rank == 0:
            try:
                write()
            except Exception as error:
                failure = error
        refusal = world.from_first(failure and _plain(failure))
        if refusal is not None:
            raise refusal from failure

    def read(self, read: Callable[[], bytes | None]) -> bytes | None:
        """Return the bytes that a function gives on the first rank, None where there are none."""
        world = self._world
        if world is None or world.size == 1:
            return read()
        content: bytes | None = None
        answer: Any = None  # the size, or what went wrong
        if world.rank == 0:
            try:
                content = read()
                answer = None if content is None else len(content)
            except DataError as error:
                answer = error
        answer = world.from_first(answer)
        if answer is None:
            return None
        if isinstance(answer, DataError):
            raise answer
        buffer = np.empty(answer, np.uint8) if content is None else np.frombuffer(content, np.uint8)
        shared: np.ndarray = world.broadcast(buffer, 0)
        return shared.tobytes()


def _plain(error: Exception) -> Exception:
    """Return an error that can be sent to other ranks."""
    error_class = type(error) if isinstance(error, MagmagraphError) else StorageError
    return error_class(str(error))
