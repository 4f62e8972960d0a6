"""How the ranks that run a function together begin each call: all of them, or none.

A rank that raises before a call has begun (a feed that does not fit, a file that cannot be read)
and goes on would leave the others waiting in the call's first collective. So ranks meet as they
begin, and one that cannot comes to that meeting all the same, with what it has to raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..agreeing import Failed, described, refused
from ..communicator import Communicator
from ..errors import CommunicationError, message


def _apart(every: Sequence[Any], label: str) -> str:
    """Return what is wrong where ranks would not send at the same call."""
    held = [dict(values) for values in every]
    names = [name for name in held[0] if len({values.get(name) for values in held}) > 1]
    name = names[0] if names else "a variable"
    shown = ", ".join(f"{values.get(name)} on {rank}" for rank, values in enumerate(held))
    return message(
        f"'{name}', by which calls of {label} send, differs between ranks: {shown}",
        need="one value on all of them; no rank has changed a variable",
        hint="set or load it on every rank",
    )


class Together:
    """What a function knows of the ranks that call it together."""

    name: str | None
    _communicator: Communicator | None
    _compiled: Any

    def _alone(self) -> None:
        """Forget the ranks: they are known when there is a plan."""
        self._ranks: Communicator | None = None  # all that it speaks to; None for itself alone
        self._met = False  # whether they have met in the call that runs
        self._asked = False  # whether they have begun to make the plan
        self._alike = True  # whether no step raises on one rank alone
        self._where = f"the begin of a call of {self._label()}"

    def _speaks_to(self, members: tuple[int, ...], alone: bool) -> None:
        """Note which ranks run the plan together, and whether one may fail alone in it."""
        self._alike = not alone
        world = self._communicator
        if world is None or len(members) < 2:
            self._ranks = None
        elif len(members) == world.size:
            self._ranks = world
        else:
            self._ranks = world.subset(members)

    def _label(self) -> str:
        return f"the function '{self.name}'" if self.name else "a function"

    def _meet(self, failure: Failed | None = None, counted: Any = None) -> None:
        """Go on with a call on all ranks, or on none: once, before its first message.

        Parameters
        ----------
        failure
            What this rank has to raise.
        counted
            What it knows of the variables that say which calls send, on a device whose launches
            go by that; a rank that has read one anew has all ranks compare them.
        """
        ranks = self._ranks
        if ranks is None or self._met:
            return
        self._met = True
        anew = counted if counted is not None and counted.anew else None
        told = ranks.agree(failure or anew, self._where)
        if told is None or failure is not None:
            return
        failed = [one if isinstance(one, Failed) else None for one in told]
        if any(failed):
            raise refused(failed, ranks, f"no rank has changed a variable by {self._label()}")
        values = () if counted is None else counted.values
        every = ranks.exchange(values, f"what counts the calls of {self._label()}")
        if len(set(every)) > 1:
            raise CommunicationError(_apart(every, self._label()))

    def _meet_for(self, bound: Any) -> None:
        """Meet before calls of a bound plan, with what it knows of when they send."""
        counted = getattr(bound, "counted", None)
        self._meet(counted=None if counted is None or self._ranks is None else counted())

    def _ask(self, value: Any, failure: Failed | None = None) -> Any:
        """Return rank 0's value, with which ranks begin to make a plan, or learn that one cannot.

        All ranks of the world call it, which has several.
        """
        world = self._communicator
        assert world is not None
        self._asked = True
        about = f"making the plan of {self.name or 'a function'}"
        told = world.exchange((value if world.rank == 0 else None, failure), about)
        failures = [theirs for _, theirs in told]
        if failure is None and any(failures):
            raise refused(failures, world, f"no plan of {self._label()} was made")
        return told[0][0]

    def _fail(self, error: BaseException) -> None:
        """Tell the other ranks of an error, where they wait for this one to begin a call."""
        world = self._communicator
        if world is None or world.size == 1:
            return
        met, asked = self._met, self._asked
        self._met = self._asked = False
        if not isinstance(error, Exception):
            return  # an interrupt ends the program: it waits for nobody
        if self._compiled is not None:
            if not met:
                self._meet(described(error))
                self._met = False
        elif not asked:
            self._ask(None, described(error))
            self._asked = False

    def _drawn(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches; the other ranks hear of one that cannot be had."""
        try:
            yield from batches
        except Exception as error:
            self._fail(error)
            raise
