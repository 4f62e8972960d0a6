"""One attempt of a job: starts the ranks, watches them, and ends all of them when one fails."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...ir.cores import allowed_cores
from . import processes, report, tied
from .admission import WAITING, Admission
from .engine import Engine
from .line import Line, address, check_form, program_message
from .output import Output
from .report import Failure, JobError, ranks_text

__all__ = ["Job", "Settings"]

_NO_STATUS = 255  # what mpiexec ends with where it knows no status of a process
_POLL = 0.1  # seconds between two looks
_SETTLE = 0.3  # seconds in which other ranks may say the same
_SILENT = 60.0
_MOST = 1000  # messages of ranks that wait to be read
_MISSED = 3.0  # seconds that a rank waits for one that is through with the program
_KIND = 2.0  # seconds to leave by oneself, before the signal that cannot be refused
_THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How a job is started and watched.

    engine (Engine): What starts the ranks.
    ranks (int): How many.
    timeout, stopped, start (float): Seconds that a rank may wait in one call; that it may be
        stopped; that it may take to begin.
    threads (int or None): Of each rank; its share of the cores if None.
    label (bool): Whether each line of output begins with its rank.
    hosts (tuple of str): Machines; this one if there are none.
    environment (mapping): Further variables of the ranks.
    """

    engine: Engine
    ranks: int
    timeout: float = 300.0
    stopped: float = 10.0
    start: float = 60.0
    threads: int | None = None
    label: bool = False
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def silent(self) -> float:
        """Seconds that a rank may give no sign of life: busy machines and long calls take time."""
        return max(self.timeout, _SILENT)


class _Rank:
    """What is known of one rank."""

    def __init__(self) -> None:
        self.line: Line | None = None
        self.process = 0
        self.host = ""
        self.state: dict[str, Any] = {"waiting": None, "seconds": 0.0, "count": 0, "where": ""}
        self.seen = time.monotonic()
        self.stopped: float | None = None  # since when
        self.done = self.gone = False
        self.told: Failure | None = None
        self.result: str | None = None
        self.stack: str | None = None


class Job:
    """A job of some ranks.

    settings (Settings): How it is started and watched.
    program (dict): What a rank is to do, as `rank` takes it.
    attempt (int): How often the job was started before.
    """

    def __init__(self, settings: Settings, program: dict[str, Any], attempt: int = 0) -> None:
        self.settings, self.program, self.attempt = settings, program, attempt
        self.ranks = [_Rank() for _ in range(settings.ranks)]
        self._events: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue(_MOST)
        self._over = threading.Event()  # nobody reads what ranks say any more
        self._token = secrets.token_hex(16)
        self._here = socket.gethostname()
        self._failure: Failure | None = None

    # ------------------------------------------------------------------- from start to end

    def run(self) -> list[str | None]:
        """Return what each rank has sent as its result.

        raises JobError: A rank has failed; nothing of the job lives any more.
        """
        settings = self.settings
        self._output = Output(settings.ranks, settings.label, local=not settings.hosts)
        listener = socket.create_server(
            ("", 0) if settings.hosts else ("127.0.0.1", 0), backlog=settings.ranks + WAITING
        )
        door = Admission(listener, self._token, settings.ranks, self._admit)
        try:
            where = self._here if settings.hosts else "127.0.0.1"
            port = listener.getsockname()[1]
            self._place = address(where, port, self._token, self._output.folder)
            self._began = time.monotonic()
            self._process = self._start()
            self._output.start()
            door.open()
            try:
                failure = self._watch()
            finally:
                self._end()
        finally:
            self._over.set()
            door.close()
            self._output.close()
        if failure is not None:
            raise JobError.of(failure, settings.ranks, self._others(failure))
        return [rank.result for rank in self.ranks]

    def _start(self) -> subprocess.Popen[bytes]:
        settings = self.settings
        # -P: no module of the current folder is taken for one of Python's.
        program = [sys.executable, "-P", "-m", "magmagraph.distributed.launching.rank"]
        starter = [sys.executable, "-P", "-S", str(tied.__file__), str(os.getpid())]
        return subprocess.Popen(
            starter + settings.engine.command(settings.ranks, settings.hosts, program),
            stdout=self._output.starter["out"],
            stderr=self._output.starter["err"],
            env=self._environment(),
        )

    def _environment(self) -> dict[str, str]:
        settings = self.settings
        environment = {**os.environ, **settings.environment}
        # A rank finds the package where the launcher has found it.
        package = str(Path(__file__).resolve().parents[3])
        paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        if package not in paths:
            paths.append(package)
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment["PYTHONUNBUFFERED"] = "1"
        environment["MAGMAGRAPH_LAUNCH"] = self._place
        environment["MAGMAGRAPH_RESTART"] = str(self.attempt)
        local = -(-settings.ranks // max(1, len(settings.hosts)))
        share = settings.threads or max(1, allowed_cores() // local)
        for name in _THREADS:
            own = environment.get(name, "").split(",")[0].strip()
            if settings.threads is None and own.isdigit() and 0 < int(own) < share:
                continue
            environment[name] = str(share)
        if settings.threads is not None:
            environment["MAGMAGRAPH_THREADS"] = str(settings.threads)
        return environment

    # ------------------------------------------------------------------- what ranks say

    def _admit(self, number: int, hello: dict[str, Any], connection: socket.socket) -> None:
        """Take the connection of a rank that has proved to be one."""
        line = Line(connection)
        self.ranks[number].line = line
        self._events.put((number, hello))
        threading.Thread(
            target=self._receive, args=(number, line, hello["nonce"]), daemon=True
        ).start()

    def _receive(self, number: int, line: Line, nonce: str) -> None:
        """Send a rank its program, and pass on what it says until its line ends."""
        program = json.dumps(self.program)
        with contextlib.suppress(OSError):
            line.send(program_message(self._token, nonce, program))
            line.send_whole({}, "program", program)
        while (received := line.receive(check=check_form)) is not None:
            self._pass_on(number, received)
        # A line with a fault stays open: a rank whose line ends takes the launcher for gone.
        self._pass_on(number, {"fault": line.fault} if line.fault else None)

    def _pass_on(self, number: int, received: dict[str, Any] | None) -> None:
        """Put a message into the queue; a rank that says more than is read waits, until the end."""
        while not self._over.is_set():
            with contextlib.suppress(queue.Full):
                self._events.put((number, received), timeout=_POLL)
                return

    def _take(self, patience: float) -> None:
        """Take note of what ranks have said, for so many seconds at most if they say nothing."""
        try:
            number, received = self._events.get(timeout=patience)
            for _ in range(_MOST):  # then the caller looks at the time
                self._note(number, received)
                number, received = self._events.get_nowait()
            self._note(number, received)
        except queue.Empty:
            return

    def _note(self, number: int, received: dict[str, Any] | None) -> None:
        rank = self.ranks[number]
        rank.seen = time.monotonic()
        if received is None:
            rank.gone = True
        elif "beat" in received:
            rank.state = received["beat"]
        elif "hello" in received:
            rank.process, rank.host = received["process"], received["host"]
        elif "done" in received:
            rank.done, rank.result = True, received.get("result")
        elif "failed" in received:
            rank.told = report.exception(number, received)
        elif "fault" in received:
            rank.told = _no_message(number, received["fault"])
        elif "stack" in received:
            rank.stack, rank.state["where"] = received["stack"], received["where"]
        elif received.get("size", len(self.ranks)) != len(self.ranks) and rank.told is None:
            rank.told = _other_library(number, received["size"], self.settings)
        if rank.told is not None or (rank.gone and not rank.done):
            if self._failure is None:
                self._failure = rank.told or Failure((number,), "killed", "")

    # ------------------------------------------------------------------- judgement

    def _watch(self) -> Failure | None:
        """Return why the job has to end, or None when all is done."""
        looked = time.monotonic()
        while True:
            self._take(_POLL)
            now = time.monotonic()
            if now - looked > 2.0:
                # The launcher itself was stopped: what ranks have said meanwhile comes next.
                for rank in self.ranks:
                    rank.seen, rank.stopped = now, None
                looked = now
                continue
            looked = now
            status = self._process.poll()
            if self._failure is not None:
                return self._settled()
            if status is not None:
                self._take(_SETTLE)
                if self._failure is not None:
                    return self._settled()
                if status == 0 and all(rank.done for rank in self.ranks):
                    return None
                return self._without_a_word(status)
            failure = self._late(now) or self._still(now)
            if failure is not None:
                return failure

    def _settled(self) -> Failure:
        """Return the failure, with all that is known a moment later."""
        until = time.monotonic() + _SETTLE
        while (rest := until - time.monotonic()) > 0:
            self._take(rest)
        first = self._failure
        assert first is not None
        dead = [n for n, rank in enumerate(self.ranks) if rank.gone and not rank.done
                and rank.told is None]  # fmt: skip
        if dead:  # what others then raise is a consequence
            return self._dead(dead)
        for rank in self.ranks:
            if rank.told is not None and rank.told.same(first):
                first = first.joined(rank.told)
        return first

    def _dead(self, dead: list[int]) -> Failure:
        """Return which rank was the first to die, and of what."""
        # With a status that says nothing, so that the one that mpiexec ends with is the dead one's.
        self._tell_all({"end": 0})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KIND)
        time.sleep(_POLL)  # its last words may still be on their way
        process, status = report.said_by_starter(self._output.last(-1))
        if status is None:
            status = self._process.poll() or None
            if status == _NO_STATUS:
                status = None  # without a word, this is mpiexec's own
        named = [n for n in dead if self.ranks[n].process == process]
        first = self._failure.ranks[0] if self._failure else dead[0]
        number = named[0] if named else first if first in dead else dead[0]
        aborted = [n for n in dead if report.has_aborted(self._output.last(n))]
        if aborted:
            number = aborted[0]
        where = self.ranks[number].state["where"]
        return report.lost(number, status, where, self._output.last(number))

    def _without_a_word(self, status: int) -> Failure:
        """Return what is to be said where `mpiexec` has ended and no rank has failed."""
        never = [n for n, rank in enumerate(self.ranks) if rank.line is None]
        code = 128 - status if status < 0 else status or 1
        said = self._output.last(-1)
        if never:
            text = f"{ranks_text(never)} of {len(self.ranks)} did not start"
            return Failure((), "start", _joined(text, said), status=code)
        text = f"mpiexec ended with status {status}"
        return Failure((), "start", _joined(text, said), status=code)

    def _late(self, now: float) -> Failure | None:
        """Return a failure where ranks do not begin in time."""
        if now - self._began < self.settings.start:
            return None
        never = [n for n, rank in enumerate(self.ranks) if rank.line is None]
        if not never:
            return None
        text = f"did not start within {self.settings.start:g} s"
        text = f"{ranks_text(never)} of {len(self.ranks)} {text}"
        return Failure((), "start", _joined(text, self._output.last(-1)))

    def _still(self, now: float) -> Failure | None:
        """Return a failure where a rank is stopped, silent, or waits for too long."""
        settings = self.settings
        present = {n: r for n, r in enumerate(self.ranks) if r.line is not None and not r.gone}
        for number, rank in present.items():
            if rank.host == self._here and processes.is_stopped(rank.process):
                rank.stopped = rank.stopped or now
                if now - rank.stopped > settings.stopped:
                    text = f"is stopped, by SIGSTOP or a terminal, for {settings.stopped:g} s"
                    return Failure((number,), "stopped", text, rank.state["where"], status=137)
            else:
                rank.stopped = None
            if not rank.done and now - rank.seen > settings.silent:
                text = f"has given no sign of life for {settings.silent:g} s"
                return Failure((number,), "silent", text, rank.state["where"], status=137)
        # A rank's own clock counts, up to its last sign; a stopped one is judged as such.
        states = {n: r.state for n, r in present.items() if not r.done}
        ended = [n for n, r in enumerate(self.ranks) if r.done]
        lost = {n: s for n, s in states.items() if self._without(s, ended)}
        if lost:
            return self._with_stack(report.hang(lost, ended, _MISSED))
        longest = max((s["seconds"] for s in states.values() if s["waiting"] is not None),
                      default=0.0)  # fmt: skip
        if longest > settings.timeout and not any(r.stopped for r in present.values()):
            return self._with_stack(report.hang(states, ended, settings.timeout))
        return None

    def _without(self, state: dict[str, Any], ended: list[int]) -> bool:
        """Return whether a rank waits for all ranks, some of which are through with the program."""
        call = state["waiting"]
        everybody = f"on {len(self.ranks)} ranks"
        return bool(ended and call and call.endswith(everybody) and state["seconds"] > _MISSED)

    def _with_stack(self, failure: Failure) -> Failure:
        """Return the failure with the stack of the first rank that is blamed, if it can answer."""
        rank = self.ranks[failure.ranks[0]]
        if rank.line is None or rank.done:
            return failure
        with contextlib.suppress(OSError):
            rank.line.send({"stack": True})
        until = time.monotonic() + 1.0
        while rank.stack is None and (rest := until - time.monotonic()) > 0:
            self._take(rest)
        if rank.stack is None:
            return failure
        title = f"Stack of rank {failure.ranks[0]} (most recent call last):"
        where = rank.state["where"] or failure.where
        return replace(failure, where=where, trace=f"{title}\n{rank.stack}")

    def _others(self, failure: Failure) -> list[str]:
        """Return a line about each other rank that has something to say."""
        lines = []
        for number, rank in enumerate(self.ranks):
            if number in failure.ranks or failure.kind == "hang":
                continue
            if rank.told is not None:
                lines.append(f"rank {number} {rank.told.text.splitlines()[0]}")
            elif not rank.done and rank.state["waiting"] is not None:
                lines.append(f"rank {number} was waiting in {rank.state['waiting']}")
        return lines[:8]

    # ------------------------------------------------------------------- the end

    def _end(self) -> None:
        """End every process of the job."""
        if self._process.poll() is None:
            self._tell_all({"end": 1})
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _KIND
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KIND)
        # What is stopped hears no word, and what a rank has started has no line.
        while left := self._left():
            if time.monotonic() > until or any(map(processes.is_stopped, left)):
                processes.kill(left)
            time.sleep(0.02)
            if time.monotonic() > until + _KIND:
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for rank in self.ranks:
            if rank.line is not None:
                rank.line.close()

    def _tell_all(self, content: dict[str, Any]) -> None:
        for rank in self.ranks:
            if rank.line is not None and not rank.gone:
                with contextlib.suppress(OSError):
                    rank.line.send(content)

    def _left(self) -> list[int]:
        """Return processes of the job that live, on this machine."""
        alive = processes.of_job(self._place)
        if alive is None:
            started = [rank.process for rank in self.ranks if rank.host == self._here]
            alive = [number for number in started if number and processes.alive(number)]
        return [number for number in alive if number != self._process.pid]


def _joined(text: str, said: str) -> str:
    return f"{text}\n{said}" if said else text


def _no_message(number: int, fault: str) -> Failure:
    return Failure((number,), "exception", f"has sent its launcher what no rank sends: {fault}")


def _other_library(number: int, size: int, settings: Settings) -> Failure:
    text = (
        f"sees {size} rank{'s' if size > 1 else ''} instead of {settings.ranks}: mpi4py speaks "
        f"another MPI than {settings.engine}"
    )
    return Failure((number,), "start", text)
