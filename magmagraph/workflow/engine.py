"""Run a workflow on all ranks of the job."""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import CommunicationError, ConfigError, MagmagraphError
from ..ir.communicator import Communicator
from ..ir.ranks import current
from ..ir.types import FilePath
from .client import Client
from .file import parse, text_of
from .line import JOB, Line, Pause
from .modules import Workflow
from .result import Result, WorkflowError
from .service import Metadata, Server
from .worker import Worker

__all__ = ["run"]


def run(path: FilePath, output: str | os.PathLike[str] | None = None) -> Result:
    r"""Run the workflow of a file; called by all ranks of the job.

    Parameters
    ----------
    path
        Of the TOML file; that of rank 0 counts.
    output
        The folder of what modules write, in the place of the file's.

    Returns
    -------
    Result
        The same on all ranks.

    Raises
    ------
    ConfigError
        The file is wrong, or there are too few ranks; nothing has started.
    WorkflowError
        A module failed, with its name, copy, iteration, rank and cause; `WorkflowError.result`
        holds what ran. With ``on_failure = "continue"`` it is in the result instead.

    Notes
    -----
    Under MPI, one rank holds the shared store and runs no module: start one more.

    Examples
    --------
    >>> import magmagraph as mg, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flow.toml")
    >>> _ = path.write_text('[modules.greet]\ncommand = ["{python}", "-c", "print(1)"]\n')
    >>> found = mg.workflow.run(path)
    >>> [(run.module, run.status) for run in found.runs]
    [('greet', 'done')]
    >>> pathlib.Path(found.runs[0].output).read_text()
    '1\n'
    """
    communicator = current()
    workflow, place, number = _agreed(path, output, communicator)
    workers, servers, metadata = place
    line = Line(communicator, number)
    zero = _zero(communicator)

    def clock() -> float:
        return time.monotonic() - zero

    told: tuple[Any, ...]
    if communicator.rank == metadata:
        service = Metadata(line, workflow, workers, clock)
        if communicator.rank in workers:
            told = _alone(service, workflow, servers, metadata)
        else:
            told = _direct(service)
    elif communicator.rank in servers:
        told = _hold(Server(line, metadata))
    else:
        client = Client(line, workflow, servers, metadata)
        told = Worker(line, workflow, client, clock).serve()
    records, failure, broken = told
    if broken is not None:
        raise broken
    result = Result(workflow.name, records, communicator.size)
    if failure is not None:
        raise WorkflowError(failure.text, result)
    return result


def _agreed(
    path: FilePath,
    output: str | os.PathLike[str] | None,
    communicator: Communicator,
) -> tuple[Workflow, tuple[tuple[int, ...], tuple[int, ...], int], str]:
    """Return the workflow of rank 0, once all ranks have found it right."""
    given: Any = None
    if communicator.rank == 0:
        try:
            folder = None if output is None else Path(output).resolve()
            given = (text_of(path), str(path), folder, secrets.token_hex(8))
        except ConfigError as error:
            given = error
    given = communicator.from_first(given, "the workflow file")
    if isinstance(given, ConfigError):
        raise given
    text, name, folder, number = given
    workflow = place = wrong = None
    try:
        workflow = parse(text, name)
        if folder is not None:
            workflow = replace(workflow, output=folder)
        place = workflow.place(communicator.size)
        workflow.check()
    except MagmagraphError as error:
        wrong = error
    told = communicator.exchange(None if wrong is None else str(wrong), "the check of a workflow")
    first = next((error for error in told if error is not None), None)
    if first is not None:
        raise ConfigError(first)
    assert workflow is not None
    assert place is not None
    return workflow, place, number


def _zero(communicator: Communicator) -> float:
    """Return the start of the workflow on this rank's clock, which is that of its host."""
    told = communicator.exchange((platform.node(), time.monotonic()), "the start of a workflow")
    return max(float(now) for node, now in told if node == platform.node())


def _direct(service: Metadata) -> tuple[Any, ...]:
    """Serve as the metadata rank, and tell all others at the end."""
    pause = Pause()
    line = service.line
    told: tuple[Any, ...]
    try:
        while not service.over:
            if service.step():
                pause.reset()
            else:
                pause.rest()
        told = (service.records, service.failure, None)
    except Exception as error:
        told = ([], None, _portable(error))
        with contextlib.suppress(Exception):  # of a job that has ended
            _tell_all(line, told)
        raise
    _tell_all(line, told)
    return told


def _tell_all(line: Line, told: tuple[Any, ...]) -> None:
    for rank in range(line.communicator.size):
        if rank != line.rank:
            line.post(rank, JOB, "over", *told)


def _hold(server: Server) -> tuple[Any, ...]:
    """Serve values until the workflow is over."""
    pause = Pause()
    while True:
        if server.step():
            pause.reset()
        elif (got := server.line.poll(JOB)) is not None:
            return tuple(got[1][1:])
        else:
            pause.rest()


def _alone(
    service: Metadata, workflow: Workflow, servers: tuple[int, ...], metadata: int
) -> tuple[Any, ...]:
    """Be everything in one process: whoever waits does the service's work meanwhile."""
    line = service.line
    ending = False

    def idle() -> bool:
        nonlocal ending
        if service.over and not ending:
            ending = True
            line.post(line.rank, JOB, "over", service.records, service.failure, None)
            return True
        return service.step()

    client = Client(line, workflow, servers, metadata, idle)
    return Worker(line, workflow, client, service._clock).serve()


def _portable(error: Exception) -> Exception:
    """Return an error as it can travel."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # what pickle raises depends on what it meets
        return CommunicationError(f"{type(error).__name__}: {error}")
    return error
