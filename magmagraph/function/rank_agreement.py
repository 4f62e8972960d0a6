"""How the ranks that run a function together begin each call: all of them, or none.

A rank that raises before a call has begun (a feed that does not fit, a file that cannot be read)
and goes on would leave the others waiting in the call's first collective. So ranks meet as they
begin, and one that cannot comes to that meeting all the same, with what it has to raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import CommunicationError, message
from ..ir.communicator import Communicator
from ..ir.rank_failures import Failed, described, refused

__all__ = ["Together"]


def _apart(every: Sequence[Any], label: str) -> str:
    """Return an error message where ranks would send in different calls."""
    settings = [dict(values) for values in every]
    names = [name for name in settings[0] if len({values.get(name) for values in settings}) > 1]
    name = names[0] if names else "a variable"
    shown = ", ".join(f"{values.get(name)} on {rank}" for rank, values in enumerate(settings))
    return message(
        f"'{name}', by which calls of {label} send, differs between ranks: {shown}",
        need="one value on all of them; no rank has changed a variable",
        hint="set or load it on every rank",
    )


class Together:
    """How the ranks that run a function together begin its calls.

    world: As above.
    name: Of the function, for messages.
    world: The ranks that were current when the function was made; None where it runs on each for
        itself.
    ranks: All that the plan speaks to, known when there is a plan; None for itself alone.
    met: Whether they have met in the call that runs.
    asked: Whether they have begun to make the plan.
    alike: Whether no step raises on one rank alone.
    """

    def __init__(self, world: Communicator | None, name: str | None) -> None:
        self.world, self.name = world, name
        self.label = f"the function '{name}'" if name else "a function"
        self.ranks: Communicator | None = None
        self.met = self.asked = False
        self.alike = True
        self._where = f"the begin of a call of {self.label}"

    def speaks_to(self, members: tuple[int, ...], alone: bool) -> None:
        """Note which ranks run the plan together, and whether one may fail alone in it."""
        self.alike = not alone
        world = self.world
        if world is None or len(members) < 2:
            self.ranks = None
        elif len(members) == world.size:
            self.ranks = world
        else:
            self.ranks = world.subset(members)

    def meet(self, failure: Failed | None = None, counted: Any = None) -> None:
        """Go on with a call on all ranks, or on none: once, before its first message.

        failure: What this rank has to raise.
        counted: What it knows of the variables that say which calls send, on a device whose
            launches go by that; a rank that has read one anew has all ranks compare them.
        """
        ranks = self.ranks
        if ranks is None or self.met:
            return
        self.met = True
        anew = counted if counted is not None and counted.anew else None
        answers = ranks.agree(failure or anew, self._where)
        if answers is None or failure is not None:
            return
        failed = [one if isinstance(one, Failed) else None for one in answers]
        if any(failed):
            raise refused(failed, ranks, f"no rank has changed a variable by {self.label}")
        values = () if counted is None else counted.values
        every = ranks.exchange(values, f"what counts the calls of {self.label}")
        if len(set(every)) > 1:
            raise CommunicationError(_apart(every, self.label))

    def meet_for(self, bound: Any) -> None:
        """Synchronize ranks before calls of a bound plan, with the calls in which each sends."""
        counted = getattr(bound, "counted", None)
        self.meet(counted=None if counted is None or self.ranks is None else counted())

    def ask(self, value: Any, failure: Failed | None = None) -> Any:
        """Return rank 0's value, with which ranks begin to make a plan, or learn that one cannot.

        All ranks of the world call it, which has several.
        """
        world = self.world
        assert world is not None
        self.asked = True
        about = f"making the plan of {self.name or 'a function'}"
        answers = world.exchange((value if world.rank == 0 else None, failure), about)
        failures = [theirs for _, theirs in answers]
        if failure is None and any(failures):
            raise refused(failures, world, f"no plan of {self.label} was made")
        return answers[0][0]

    def fail(self, error: BaseException, compiled: bool) -> None:
        """Tell the other ranks of an error, where they wait for this one to begin a call.

        error: What this rank raises.
        compiled: Whether the plan is made.
        """
        world = self.world
        if world is None or world.size == 1:
            return
        met, asked = self.met, self.asked
        self.met = self.asked = False
        if not isinstance(error, Exception):
            return  # an interrupt ends the program: it waits for nobody
        if compiled:
            if not met:
                self.meet(described(error))
                self.met = False
        elif not asked:
            self.ask(None, described(error))
            self.asked = False
