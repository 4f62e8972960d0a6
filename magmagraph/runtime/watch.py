"""Report a rank's position, waits and end to the processes that watch it.

A communicator says that it waits by `waiting`. Who listens is the launcher (`attend`), or, under a
plain ``mpiexec``, this process itself (`install`).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

from ..errors import ConfigError, message

__all__ = ["attend", "install", "state", "waiting", "where"]

BEAT = 0.5  # seconds between two signs of life
TIMEOUT = 300.0  # seconds that a rank waits in one call, unless said
MISSED = 3.0  # seconds that a rank waits for one that has ended
APART = 5.0  # seconds that two ranks wait for all others in different calls
HEARD = 0.5  # seconds that a launcher has to pass on what a rank said last
HUNG = 124  # status of a job that waited too long, as of timeout(1)


class _Now:
    """The blocking call that the process is in, if it is in one."""

    what: Any = None
    since = 0.0
    count = 0


_now = _Now()
_tell: Callable[[dict[str, Any]], None] | None = None
_installed = False


class waiting:  # noqa: N801 - read as a word: `with waiting("allreduce"):`
    """Say that the process waits for other ranks while the context is open.

    Parameters
    ----------
    what
        The call, for people: text, or an object whose `str` is, which is made only when asked for.

    Examples
    --------
    >>> with waiting("allreduce of float32[10]"):
    ...     state()["waiting"]
    'allreduce of float32[10]'
    >>> state()["waiting"] is None
    True
    """

    __slots__ = ("_outer", "_what")

    def __init__(self, what: Any) -> None:
        self._what = what

    def __enter__(self) -> None:
        now = _now
        self._outer = now.what
        if self._outer is None:
            now.since = time.monotonic()
            now.count += 1
        now.what = self._what

    def __exit__(self, *error: object) -> None:
        _now.what = self._outer


def state() -> dict[str, Any]:
    """Return the content of a heartbeat.

    Returns
    -------
    dict
        "waiting": the blocking call as text, or None; "seconds": how long; "count": how many such
        calls there were; "where": the line of the user's that the main thread is at.
    """
    what = _now.what
    seconds = 0.0 if what is None else time.monotonic() - _now.since
    text = None if what is None else str(what)
    return {"waiting": text, "seconds": seconds, "count": _now.count, "where": where()}


_STANDARD = os.path.dirname(os.__file__)
_OWN = os.path.dirname(os.path.dirname(__file__))


def of_user(file: str) -> bool:
    """Return whether a file is neither Python's own nor this package's."""
    return not file.startswith((_STANDARD, _OWN, "<frozen "))


def where() -> str:
    """Return the innermost line of the main thread that is the user's, as ``file:line in name``.

    Empty while none is running.
    """
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not of_user(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def line_of(trace: TracebackType | None) -> str:
    """Return the innermost line of the user's that an error came through, as ``file:line``."""
    lines = traceback.extract_tb(trace)
    own = [line for line in lines if of_user(line.filename)]
    # Where the error is the language's own, what matters is the call that was wrong.
    frame = own[-1] if own else lines[-1] if lines else None
    return "" if frame is None else f"{frame.filename}:{frame.lineno} in {frame.name}"


def attend(tell: Callable[[dict[str, Any]], None]) -> None:
    """Send a sign of life twice a second, from a thread, for as long as the process lives.

    Parameters
    ----------
    tell
        Takes a message; raises OSError when nobody listens any more, which ends the thread.
    """
    global _tell
    _tell = tell

    def beat() -> None:
        while True:
            try:
                tell({"beat": state()})
            except OSError:
                return
            time.sleep(BEAT)

    threading.Thread(target=beat, name="magmagraph-beat", daemon=True).start()


class Others(Protocol):
    """The ranks' view of each other besides messages, see `runtime.comm.host`."""

    def write(self, told: dict[str, Any]) -> None:
        """Say something to the other ranks."""

    def read(self) -> dict[int, dict[str, Any]]:
        """Return what each rank said last."""

    def living(self) -> set[int]:
        """Return the ranks that have a process."""


def install(
    rank: int, size: int, abort: Callable[[int], object], others: Others | None = None
) -> None:
    """Make the end of this rank known to the others; called when MPI is there.

    Under `magmagraph.run` the launcher learns how many ranks there are, and does the rest.
    Elsewhere an exception that nothing catches, or ``sys.exit`` with another status than 0, aborts
    the job with the rank's name; so does waiting in one call for longer than
    ``MAGMAGRAPH_TIMEOUT`` seconds. ``raise SystemExit`` in place of ``sys.exit`` cannot be seen
    from here.

    Parameters
    ----------
    rank, size
        This rank, and the number of ranks.
    abort
        Ends all ranks with a status, at once: MPI's `Abort`.
    others
        How ranks see each other; None where they cannot. Where they can, a rank that waits for all
        others, one of which has ended or waits in another call, ends the job within seconds.

    Raises
    ------
    ConfigError
        ``MAGMAGRAPH_TIMEOUT`` is no number above 0.
    """
    global _installed
    if _tell is not None:
        _tell({"size": size})
        return
    if size == 1 or _installed:
        return
    limit = timeout()
    _installed = True
    _end_with_job(rank, size, abort, others)
    _limit_waiting(rank, size, limit, others)


def timeout() -> float:
    """Return the seconds that a rank may wait in one call: ``MAGMAGRAPH_TIMEOUT``, or 300."""
    text = os.environ.get("MAGMAGRAPH_TIMEOUT", "")
    try:
        limit = float(text) if text else TIMEOUT
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise ConfigError(
            message(f"MAGMAGRAPH_TIMEOUT is {text!r}", need="seconds, a number above 0")
        )
    return limit


# ------------------------------------------------------------------- without a launcher


class _Exit(SystemExit):
    """What `sys.exit` raises: it notes when the interpreter, and nothing else, asks for the status.

    A SystemExit that the program catches ends no job, and which it will be is not known before.
    """

    noted: Any = None

    @property
    def code(self) -> Any:  # type: ignore[override]
        status = self.args[0] if self.args else None
        try:
            sys._getframe(1)
        except ValueError:  # no Python calls: the interpreter is about to end
            _Exit.noted = status
        return status


def _end_with_job(
    rank: int, size: int, abort: Callable[[int], object], others: Others | None
) -> None:
    owner = os.getpid()
    hook = sys.excepthook

    def failed(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        hook(kind, error, trace)
        if os.getpid() == owner:
            at = line_of(trace)
            _say(f"rank {rank} of {size} failed with {kind.__name__} at {at}: the job ends")
            time.sleep(HEARD)
            abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def leave(status: Any = None, /) -> NoReturn:
        raise _Exit(status)

    def at_end() -> None:
        status = _Exit.noted
        if others is not None and os.getpid() == owner:
            others.write({"ended": True})
        if status is None or status == 0 or os.getpid() != owner:
            return
        _say(f"rank {rank} of {size} left with status {status!r}: the job ends")
        time.sleep(HEARD)
        abort(status & 0xFF or 1 if isinstance(status, int) else 1)

    sys.excepthook = failed
    sys.exit = leave
    # Runs before MPI's own, which would wait for the others.
    atexit.register(at_end)


def _limit_waiting(rank: int, size: int, limit: float, others: Others | None) -> None:
    def look() -> None:
        last: dict[str, Any] = {}
        while True:
            time.sleep(min(BEAT, limit / 4))
            now = state()
            if others is not None and now != last:
                last = now
                others.write(now)
            if now["waiting"] is None:
                continue
            late = now["seconds"] > limit
            cause = "" if others is None else missed(rank, size, now, others)
            if not late and not cause:
                continue
            if state()["count"] != now["count"]:
                continue  # it has just gone on
            waits = f"{now['seconds']:.0f}" if cause else f"{limit:g}"
            _say(
                f"rank {rank} of {size} has waited {waits} s in {now['waiting']}, "
                f"at {now['where']}{cause}: the job ends"
                + ("" if cause else " (MAGMAGRAPH_TIMEOUT sets the time)")
            )
            time.sleep(HEARD)
            # MPI itself may be locked by the call that waits. A process that leaves without a
            # word to MPI ends the job as well.
            os._exit(HUNG)

    threading.Thread(target=look, name="magmagraph-watch", daemon=True).start()


def missed(rank: int, size: int, now: dict[str, Any], others: Others) -> str:
    """Return in words why a rank that waits for all others will wait for ever; empty if not.

    Parameters
    ----------
    rank, size
        The rank, and the number of ranks.
    now
        Its state.
    others
        How it sees the other ranks.
    """
    everybody = f" on {size} ranks"
    if now["seconds"] < MISSED or not now["waiting"].endswith(everybody):
        return ""
    states = others.read()
    ended = {other for other, theirs in states.items() if theirs.get("ended")}
    if not ended:
        ended = set(range(size)) - others.living()
    if ended:
        which = ", ".join(map(str, sorted(ended)))
        return f", for all ranks, and rank {which} {_through(len(ended))}"
    if now["seconds"] < APART:
        return ""
    for other, theirs in states.items():
        call = theirs.get("waiting") or ""
        if (
            other != rank
            and theirs.get("seconds", 0.0) > APART
            and call.endswith(everybody)
            and _kind(call) != _kind(now["waiting"])
        ):
            return f", and rank {other} as long in {call}, at {theirs['where']}"
    return ""


def _through(count: int) -> str:
    return "is through with its program" if count == 1 else "are through with their program"


def _kind(call: str) -> str:
    """Return a call without its arguments, which differ between ranks of other roles."""
    return call.partition(" of ")[0]


def _say(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"magmagraph: {text}\n")
    sys.stderr.flush()
