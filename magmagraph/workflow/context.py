"""What a module is given: where it runs, messages to other modules, the shared store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import GraphError, message
from ..ir.communicator import Communicator
from .client import Client
from .modules import Module

__all__ = ["Context", "Store"]


class Store:
    """Values by key, which all modules share: ``context.store``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, key: str, value: Any) -> None:
        """Give a key a value, in place of an earlier one; this never waits.

        Who is sent a message afterwards, or comes after this module, gets this value.

        Parameters
        ----------
        key
            A text.
        value
            Anything that can be pickled.

        Raises
        ------
        GraphError
            The key is no text.
        WorkflowStopped
            The workflow has failed.
        """
        self._client.put(_key(key), value)

    def get(self, key: str, timeout: float | None = None) -> Any:
        """Return the value of a key; wait until there is one.

        Parameters
        ----------
        key
            A text.
        timeout
            Seconds; None for as long as somebody can still put it.

        Raises
        ------
        GraphError
            The key is no text, or the time no number above 0.
        WorkflowTimeout
            It was not put in time.
        CommunicationError
            All modules that run wait, so that nobody can put it.
        WorkflowStopped
            The workflow has failed.
        """
        return self._client.get(_key(key), _limit(timeout))


class Context:
    """What the function of a module is called with.

    Attributes
    ----------
    module : str
        The module's name.
    copy, copies : int
        Which copy this is, from 0, of how many.
    iteration, iterations : int
        The same for iterations.
    turn, turns : int
        Which iteration of the whole workflow this is, from 0, of how many at most.
    communicator : Communicator
        The ranks of this copy, which is also what `mg.distributed` uses.
    rank, size : int
        This rank of it, and how many there are.
    ranks : tuple of int
        Their numbers in the job.
    threads : int
        Of a rank, as the file says; 0 where it does not.
    arguments : Mapping
        The module's table ``arguments``.
    output : Path
        The folder for files.
    store : Store
        Values that all modules share.
    """

    def __init__(
        self,
        client: Client,
        module: Module,
        copy: int,
        iteration: int,
        communicator: Communicator,
        ranks: tuple[int, ...],
    ) -> None:
        self._client = client
        self.module, self.arguments = module.name, module.arguments
        self.copy, self.copies = copy, module.copies
        self.iteration, self.iterations = iteration, module.iterations
        self.communicator, self.ranks = communicator, ranks
        self.turn, self.turns = client.turn, client.workflow.iterations
        self.rank, self.size = communicator.rank, communicator.size
        self.threads = module.threads
        self.store = Store(client)

    @property
    def output(self) -> Path:
        """The folder for files, which is made when it is asked for."""
        folder = self._client.workflow.output
        os.makedirs(folder, exist_ok=True)
        return folder

    def send(
        self, module: str, value: Any, copy: int = 0, rank: int = 0, *, later: int = 0
    ) -> None:
        """Send an object to a module; this does not wait for it to be read.

        Messages to a module that has not started are kept for it, those to one that has ended, or
        for a turn that does not come, are dropped.

        Parameters
        ----------
        module
            The module's name.
        value
            Anything that can be pickled.
        copy, rank
            Which copy, and which of its ranks.
        later
            How many turns of the workflow later it is read: 1 is for the next iteration.

        Raises
        ------
        GraphError
            There is no such module, copy or rank, it is a program, or `later` is below 0.
        WorkflowStopped
            The workflow has failed.
        """
        found = self._function(module)
        for name, given, count in (("copy", copy, found.copies), ("rank", rank, found.processes)):
            if given not in range(count):
                raise GraphError(
                    message(
                        f"a message to module {module!r}, {name}={given!r}",
                        need=f"{name} from 0 to {count - 1}",
                    )
                )
        if type(later) is not int or later < 0:
            raise GraphError(
                message(
                    f"a message to module {module!r}, later={later!r}",
                    need="how many turns later, an int of at least 0",
                )
            )
        self._client.send((module, copy, rank, self.turn + later), value)

    def receive(self, module: str, timeout: float | None = None, copy: int | None = None) -> Any:
        """Return the next object that a module has sent to this copy and rank; wait for it.

        Parameters
        ----------
        module
            Who sends; copies keep their own orders.
        timeout
            Seconds; None for as long as somebody can still send.
        copy
            Of the sender; any unless given.

        Raises
        ------
        GraphError
            There is no such module or copy, it is a program, or the time is no number above 0.
        WorkflowTimeout
            Nothing came in time.
        CommunicationError
            All modules that run wait, so that nobody can send it.
        WorkflowStopped
            The workflow has failed.
        """
        found = self._function(module)
        if copy is not None and copy not in range(found.copies):
            raise GraphError(
                message(
                    f"a message of module {module!r}, copy={copy!r}",
                    need=f"copy from 0 to {found.copies - 1}",
                )
            )
        return self._client.receive(module, copy, _limit(timeout))

    def last_turn(self) -> None:
        """Say that the whole workflow need not run again: what has begun comes to its end.

        Raises
        ------
        WorkflowStopped
            The workflow has failed.
        """
        self._client.last()

    def _function(self, name: str) -> Module:
        modules = self._client.workflow.modules
        if name not in modules or modules[name].command:
            raise GraphError(
                message(
                    f"{name!r} is " + ("a program" if name in modules else "no module"),
                    need="one of " + ", ".join(n for n, m in modules.items() if m.function),
                )
            )
        return modules[name]

    def __repr__(self) -> str:
        place = f"copy {self.copy}, iteration {self.iteration}, rank {self.rank} of {self.size}"
        return f"<context of module {self.module}, {place}>"


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise GraphError(message(f"the key {key!r}", need="a text", hint=f"{str(key)!r}"))
    return key


def _limit(timeout: float | None) -> float | None:
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0
    ):
        raise GraphError(message(f"timeout={timeout!r}", need="seconds above 0, or None"))
    return timeout
