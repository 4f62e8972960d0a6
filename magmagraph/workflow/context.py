"""What a module is called with: where it runs, messages to other modules, the shared store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import GraphError, message
from ..ir.communicator import Communicator
from .modules import Module, Workflow
from .store import Space, Store, check_stopped, decode, encode, limit

__all__ = ["Context"]


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
    point : dict
        The values of this copy's point of the module's ``grid``.
    output : Path
        The folder for files.
    store : Store
        Values that all modules share.
    """

    def __init__(
        self,
        workflow: Workflow,
        module: Module,
        copy: int,
        turn: int,
        iteration: int,
        communicator: Communicator,
        ranks: Sequence[int],
        space: Space,
        ticket: int,
    ) -> None:
        self._workflow, self._space, self._ticket = workflow, space, ticket
        self.module, self.arguments = module.name, module.arguments
        self.copy, self.copies = copy, module.copies
        self.iteration, self.iterations = iteration, module.iterations
        self.turn, self.turns = turn, workflow.iterations
        self.communicator, self.ranks = communicator, tuple(ranks)
        self.rank, self.size = communicator.rank, communicator.size
        self.threads = module.threads
        self.point = module.point(copy)
        self.store = Store(space, ticket)

    @property
    def output(self) -> Path:
        """The folder for files, which is made when it is asked for."""
        folder = self._workflow.output
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
        function = self._function(module)
        for name, position, count in (
            ("copy", copy, function.copies),
            ("rank", rank, function.processes),
        ):
            if position not in range(count):
                raise GraphError(
                    message(
                        f"a message to module {module!r}, {name}={position!r}",
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
        kind, content = encode(value)
        self._space.wait(
            self._space.board.send, self._ticket,
            (module, copy, rank, self.turn + later), self.module, self.copy, kind, bytes(content),
        )  # fmt: skip

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
        function = self._function(module)
        if copy is not None and copy not in range(function.copies):
            raise GraphError(
                message(
                    f"a message of module {module!r}, copy={copy!r}",
                    need=f"copy from 0 to {function.copies - 1}",
                )
            )
        own = (self.module, self.copy, self.rank, self.turn)
        board = self._space.board
        return decode(
            *self._space.wait(board.receive, self._ticket, own, module, copy, limit(timeout))
        )

    def last_turn(self) -> None:
        """Say that the whole workflow need not run again: what has begun comes to its end.

        Raises
        ------
        WorkflowStopped
            The workflow has failed.
        """
        check_stopped(self._space, self._ticket)
        self._space.ask(self._space.board.last)

    def _function(self, name: str) -> Module:
        modules = self._workflow.modules
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
