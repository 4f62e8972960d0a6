"""`mg.distributed.launch`: start ranks, watch them, start them again."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ...errors import ConfigError, message
from ...ir.docstrings import documented
from .engine import Engine, binding, find_engine
from .job import Job, Settings
from .line import LARGEST, MAIN, MESSAGE, READING
from .report import Failure, JobError

__all__ = ["Engine", "Failure", "JobError", "find_engine", "launch"]


@documented
def launch(
    program: str | os.PathLike[str] | Callable[..., Any],
    *arguments: Any,
    ranks: int,
    timeout: float = 300.0,
    stopped: float = 10.0,
    restarts: int = 0,
    least: int | None = None,
    threads: int | None = None,
    label: bool = False,
    hosts: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    mpiexec: str | None = None,
    module: bool = False,
) -> list[Any]:
    """Run a script or a function on some ranks, and see that it ends.

    A rank that raises, leaves with a status, is killed, is stopped or hangs ends the job: all its
    processes are gone when this returns, and the error names the rank, the cause, and the line.

    program (path or callable): A Python script; or a function that a rank can import, at the top
        level of a module or of the running script.
    *arguments: Of the script, as text; or of the function, which are pickled.
    ranks (int): How many processes.
    timeout (float): Seconds that a rank may wait for others in one call; or give no sign of life,
        then 60 at least.
    stopped (float): Seconds that a rank may be stopped, as by SIGSTOP.
    restarts (int): How often the job is started again after a failure. The script goes on from its
        last checkpoint: ``fit(..., callbacks=[Checkpoint(path)], resume=path)``. A failure that
        comes twice in the same words is not tried again, unless the rank was killed or stopped.
    least (int, optional): Start again without the ranks that failed, with so many at least; the
        same number unless given.
    threads (int, optional): Of each rank: its share of the cores that affinity and control group
        allow, unless given. A smaller ``OMP_NUM_THREADS`` stays.
    label (bool): Whether each line of output begins with its rank.
    hosts (sequence of str): Machines to start on, this one unless given. The network between them
        has to be trusted: arguments and results travel in the clear.
    environment (mapping, optional): Further variables of the ranks.
    mpiexec (str, optional): The program that starts ranks; see `find_engine`.
    module (bool): Whether `program` names a module instead of a file.
    returns (list): What the function has returned on each rank; None for each rank of a script.
    raises JobError: A rank has failed, or none could be started.
    raises DeviceError: There is no `mpiexec`.
    raises ConfigError: A setting is none, or a rank cannot import the function.

    >>> import operator
    >>> mg.distributed.launch(operator.add, 2, 3, ranks=2)  # doctest: +SKIP
    [5, 5]
    """
    if READING:
        raise ConfigError(
            message(
                "launch is called while ranks of a launch read this script for their function",
                need="a call that the ranks do not come to",
                hint='if __name__ == "__main__": before it',
            )
        )
    _check(ranks=ranks, timeout=timeout, stopped=stopped, restarts=restarts)
    if least is not None and not 1 <= least <= ranks:
        raise ConfigError(message(f"least={least!r}", need=f"1 to {ranks}, the number of ranks"))
    if threads is not None:
        _check(threads=threads)
    to_run = _program(program, arguments, module)
    engine = find_engine(mpiexec)
    last: Failure | None = None
    with _signals():
        for attempt in range(restarts + 1):
            settings = Settings(
                engine, ranks, timeout, stopped, threads=threads, label=label,
                hosts=tuple(hosts), environment=dict(environment or {}),
            )  # fmt: skip
            try:
                results = Job(settings, to_run, attempt).run()
            except JobError as error:
                failure = error.failure
                if attempt == restarts or _hopeless(failure, last):
                    raise
                last = failure
                if least is not None:
                    ranks = max(least, ranks - max(1, len(failure.ranks)))
                again = f"{ranks} rank{'s' * (ranks > 1)} ({attempt + 1} of {restarts})"
                _tell(f"{error}\nstarted again with {again}")
            else:
                return [_unpacked(result) for result in results]
    raise AssertionError("not reached")


def _check(**options: Any) -> None:
    whole = ("ranks", "restarts", "threads")
    for name, value in options.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = number and (name not in whole or value == int(value))
        if not fits or value < 0 or (value == 0 and name != "restarts"):
            need = "a whole number" if name in whole else "seconds"
            above = "0 or more" if name == "restarts" else "more than 0"
            raise ConfigError(message(f"{name}={value!r}", need=f"{need}, {above}"))


def _hopeless(failure: Failure, last: Failure | None) -> bool:
    """Return whether another attempt would go the same way."""
    if failure.kind == "start":
        return True
    if failure.kind not in ("exception", "exit"):
        return False
    return last is not None and last.same(failure)


def _tell(text: str) -> None:
    print(f"magmagraph: {text}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------- what ranks are to do


def _program(program: Any, arguments: Sequence[Any], module: bool) -> dict[str, Any]:
    if not callable(program):
        name = os.fspath(program)
        if not module and not os.path.isfile(name):
            raise ConfigError(
                message(f"there is no script {name!r}", hint="module=True runs it by its name"
                        if "/" not in name and not name.endswith(".py") else None)
            )  # fmt: skip
        kind = "module" if module else "script"
        return {kind: name, "arguments": [str(word) for word in arguments]}
    name = getattr(program, "__qualname__", "")
    place = getattr(program, "__module__", None)
    if not name or "<" in name or place is None:
        raise ConfigError(
            message(
                f"{program!r} cannot be called on ranks",
                need="a function at the top level of a module, which other processes can import",
                hint="def it there, and give what it needs as arguments",
            )
        )
    file = None
    if place == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None or not os.path.isfile(file):
            raise ConfigError(
                message(
                    f"{name} was defined at a prompt, where no other process can find it",
                    hint="put it into a file, and import it",
                )
            )
        file = os.path.abspath(file)
    packed = base64.b64encode(pickle.dumps((tuple(arguments), {}))).decode()
    if len(packed) > LARGEST - MESSAGE:
        raise ConfigError(
            message(
                f"the arguments of {name} have {len(packed)} bytes, packed",
                need=f"at most {LARGEST - MESSAGE}",
                hint="write them to a file, and pass the path",
            )
        )
    return {"of": place, "file": file, "function": name, "with": packed, "path": sys.path}


def _unpacked(result: str | None) -> Any:
    if result is None:
        return None
    # Classes of the running script have this name in a rank.
    sys.modules.setdefault(MAIN, sys.modules["__main__"])
    return pickle.loads(base64.b64decode(result))


# ------------------------------------------------------------------- signals


class Ended(BaseException):
    """The launcher was told to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def _signals() -> Iterator[None]:
    """Let signals that would end this process end the job first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(number: int, frame: FrameType | None) -> None:
        # Once: what ends the job is not to be interrupted by a second signal.
        for name in previous:
            signal.signal(name, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)

    names = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):
        names.append(signal.SIGHUP)
    # Handlers that a program has set for itself stay.
    usual = (signal.SIG_DFL, signal.default_int_handler)
    previous = {name: signal.getsignal(name) for name in names if signal.getsignal(name) in usual}
    for name in previous:
        signal.signal(name, told)
    try:
        yield
    except Ended as ended:
        for name, before in previous.items():
            signal.signal(name, before)
        os.kill(os.getpid(), ended.number)
        raise
    finally:
        for name, before in previous.items():
            signal.signal(name, before)


def describe() -> tuple[str, str]:
    """Return what starts ranks here and the version of mpi4py, for `magmagraph info`."""
    return str(find_engine()), binding() or "not installed"
