"""The ranks that train one model together: what a run of training asks them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..errors import ConfigError, DataError, MagmagraphError, RanksWarning, StorageError, message
from ..ir.communicator import Communicator
from ..ir.lines import caller_line, warn_user
from ..ir.rank_failures import Failed, described, refused
from ..ir.ranks import current, rank_and_count
from .consistency import check_equal_on_ranks
from .strategies import checked, joined

__all__ = ["Team", "warn_of_copies"]


_Value = TypeVar("_Value")
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
        self._parts: Communicator | None = None  # a rank of each part of a batch, where several do
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
    def size(self) -> int:
        """How many ranks the training step runs on together."""
        return 1 if self._world is None else self._world.size

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

    def same(self, told: Mapping[str, Any], need: str) -> None:
        """Raise `ConfigError` on all ranks unless they say the same; `need` is for its text."""
        if self._strategy is not None:
            check_equal_on_ranks(told, need=need)

    def whole(self, make: Callable[[], _Value], what: str) -> _Value:
        """Return what a function gives; where it fails on one of all ranks, all of them raise.

        Parameters
        ----------
        make
            What may fail on this rank alone.
        what
            What has not happened then, in words.

        Raises
        ------
        DataError
            On all ranks, if the failure of the first rank that failed is one.
        CommunicationError
            On the other ranks, if it is of another kind.
        """
        return _met(current(), make, what)[0]

    def of_parts(self, value: Any, what: str, *, alike: bool = False) -> list[Any]:
        """Return the small Python object of each part of the batches, in their order.

        Parameters
        ----------
        value
            Of this rank's part.
        what
            Says to people where ranks meet.
        alike
            Whether ranks of the same part have to say the same; all ranks compare then.

        Raises
        ------
        ConfigError
            On all ranks, if ranks of the same part do not.
        """
        part, count = self.shard
        if count == 1 and not alike:
            return [value]
        if not alike:
            return self._rank_of_each_part().exchange(value, what)
        found: dict[int, tuple[int, Any]] = {}
        for rank, (theirs, said) in enumerate(current().exchange((part, value), what)):
            first, known = found.setdefault(theirs, (rank, said))
            if known != said:
                raise ConfigError(
                    message(
                        f"ranks {first} and {rank} have other data: {known} and {said}",
                        need=f"the same data on all ranks that compute part {theirs} of a batch",
                    )
                )
        return [found[theirs][1] for theirs in range(count)]

    def step_of_parts(
        self, make: Callable[[], _Value], epoch: int, step: int
    ) -> tuple[_Value, list[_Value]]:
        """Return what a function gives on this rank, and what it gives for each part.

        Where it fails on one of these ranks, all of them raise, as in `whole`.
        """
        ranks = self._rank_of_each_part() if self.shard[1] > 1 else None
        return _met(ranks, make, f"no rank takes step {step} of epoch {epoch}")

    def _rank_of_each_part(self) -> Communicator:
        """Return the ranks that compute one batch with this one, each another part of it."""
        if self._parts is None:
            facts = None if self._strategy is None else self._strategy.facts()
            assert facts is not None  # there are several parts
            self._parts = current().group(facts.group)
        return self._parts

    def added(self, totals: list[Any], rows: int) -> tuple[list[Any], int]:
        """Return sums over the rows of all parts, and their number: the same bits on all ranks."""
        told = self.of_parts((totals, rows), "the end of the validation")
        columns = zip(*(given for given, _ in told), strict=True)
        return [sum(column[1:], column[0]) for column in columns], sum(count for _, count in told)

    def longest(self, seconds: float) -> float:
        """Return the longest time of the ranks that share batches, so that histories are equal."""
        if self._group is None:
            return seconds
        return float(max(self._group.exchange(seconds, "the end of an epoch")))

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


def _met(
    ranks: Communicator | None, make: Callable[[], _Value], what: str
) -> tuple[_Value, list[_Value]]:
    """Return what a function gives here and on each rank; all raise where one of them fails."""
    value: Any = None
    error: Exception | None = None
    try:
        value = make()
    except Exception as failure:
        error = failure
    if ranks is None or ranks.size == 1:
        if error is not None:
            raise error
        return value, [value]
    failed = None if error is None else (isinstance(error, DataError), described(error))
    told = ranks.exchange((value, failed), "the data of each rank")
    failures = [theirs for _, theirs in told]
    first = next((theirs for theirs in failures if theirs is not None), None)
    if first is None:
        return value, [theirs for theirs, _ in told]
    if error is not None and not isinstance(error, DataError):
        raise error
    told_of: Sequence[Failed | None] = [theirs and theirs[1] for theirs in failures]
    if not first[0]:
        raise refused(told_of, ranks, what) from error
    rank = failures.index(first)
    raise DataError(f"on rank {rank} of {ranks.size}, {first[1].text}") from error


def _plain(error: Exception) -> Exception:
    """Return an error that can be sent to other ranks."""
    error_class = type(error) if isinstance(error, MagmagraphError) else StorageError
    return error_class(str(error))
