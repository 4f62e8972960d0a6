"""What went wrong in a job: which ranks, what, where, and what the others did."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import CommunicationError, message
from ...runtime.watch import HUNG, of_user

__all__ = [
    "Failure",
    "JobError",
    "exception",
    "hang",
    "has_aborted",
    "lost",
    "ranks_text",
    "said_by_starter",
]


@dataclass(frozen=True)
class Failure:
    """Why a job has ended.

    ranks (tuple of int): Those that failed; empty where the job did not come so far.
    kind (str): "exception", "exit", "killed", "stopped", "silent", "hang", or "start".
    text (str): What happened, without the ranks.
    where (str): The line, as ``file:line in name``; empty if it is not known.
    trace (str): The traceback or the stack.
    status (int): The exit status of the job.
    """

    ranks: tuple[int, ...]
    kind: str
    text: str
    where: str = ""
    trace: str = ""
    status: int = 1

    def same(self, other: Failure) -> bool:
        """Return whether another rank, or another attempt, failed in the same words."""
        return (self.kind, self.text, self.where) == (other.kind, other.text, other.where)

    def joined(self, other: Failure) -> Failure:
        """Return this one with the ranks of another."""
        return replace(self, ranks=tuple(sorted({*self.ranks, *other.ranks})))


class JobError(CommunicationError):
    """A rank of a job has failed, and with it the job.

    Attributes
    ----------
    failure : Failure
        Which ranks, what, and where.
    status : int
        The exit status of the job: that of the rank that failed.
    """

    def __init__(self, text: str, failure: Failure | None = None) -> None:
        super().__init__(text)
        self.failure = failure or Failure((), "start", text)
        self.status = self.failure.status

    def __reduce__(self) -> tuple[type[JobError], tuple[str, Failure]]:
        return type(self), (str(self), self.failure)

    @classmethod
    def of(cls, failure: Failure, size: int, notes: Iterable[str] = ()) -> JobError:
        """Return the error for a failure in a job of some ranks."""
        text = failure.text
        if failure.ranks:
            text = f"{ranks_text(failure.ranks)} of {size} {text}"
        full_text = message("\n".join([text, *notes]), where=failure.where or None)
        if failure.trace:
            full_text += "\n" + failure.trace.rstrip()
        return cls(full_text, failure)


def ranks_text(ranks: Sequence[int]) -> str:
    """Return the names of ranks.

    Examples
    --------
    >>> ranks_text([2]), ranks_text([0, 1, 2, 5])
    ('rank 2', 'ranks 0-2, 5')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"


def exception(rank: int, fields: dict[str, Any]) -> Failure:
    """Return what a rank has told of its own end."""
    if fields["failed"] == "SystemExit":
        text, kind = f"left by {fields['text']}", "exit"
    else:
        text, kind = f"failed: {fields['failed']}: {fields['text']}".rstrip(": "), "exception"
    return Failure((rank,), kind, text, fields["where"], fields["trace"], fields["status"])


def said_by_starter(text: str) -> tuple[int | None, int | None]:
    r"""Return the process that `mpiexec` says has failed, and its status, signals being negative.

    Examples
    --------
    >>> said_by_starter("=   PID 12 RUNNING AT a\n=   EXIT CODE: 9\n... Killed (signal 9)")
    (12, -9)
    >>> said_by_starter("nothing")
    (None, None)
    """
    process = re.search(r"\bPID\s+(\d+)\b", text)
    died = re.search(r"\(signal (\d+)\)|\bsignal (\d+)\b", text)
    code = re.search(r"EXIT CODE: (\d+)|exit(?:ed on .*with)? code:?\s+(\d+)", text, re.IGNORECASE)
    status = None
    if died:
        status = -int(died.group(1) or died.group(2))
    elif code:
        status = int(code.group(1) or code.group(2))
    return int(process.group(1)) if process else None, status


def lost(rank: int, status: int | None, where: str, last: str) -> Failure:
    """Return what is known of a rank that has ended without a word.

    rank, status: Which one; its exit status, a signal if negative, None if not known.
    where: The line it was last seen at.
    last: What it has written as errors.
    """
    if has_aborted(last):
        status = status or 1
        text, code = f"has called MPI_Abort, with status {status}", status
    elif status is not None and status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = "unknown"
        text, code = f"was killed by signal {-status} ({name})", 128 - status
    elif status is not None:
        text, code = f"has left with status {status}, by os._exit or a crash", status or 1
    else:
        text, code = "was killed, has crashed, or has left by os._exit", 1
    where = _crashed_at(last) or (f"{where} (when last seen)" if where else "")
    return Failure((rank,), "killed", text, where, status=code)


def has_aborted(last: str) -> bool:
    """Return whether a rank has said, by MPI's own words, that it ends the job."""
    return "MPI_Abort" in last


def _crashed_at(last: str) -> str:
    """Return the line that Python's handler of crashes has written among a rank's errors."""
    _, _, stack = last.partition("Current thread")
    for file, line, name in re.findall(r'File "(.*)", line (\d+) in (.*)', stack):
        if of_user(file):
            return f"{file}:{line} in {name}"
    return ""


def hang(states: dict[int, dict[str, Any]], ended: Sequence[int], limit: float) -> Failure:
    """Return who is to blame where some ranks have waited too long.

    states: The last sign of life of each rank that has not ended.
    ended: Ranks that are through with the program.
    limit: The seconds that were allowed.
    """
    waiting = {rank: state for rank, state in states.items() if state["waiting"] is not None}
    late = [rank for rank in states if rank not in waiting]
    calls: dict[str, list[int]] = {}
    for rank, state in waiting.items():
        calls.setdefault(f"{state['waiting']}, at {state['where']}", []).append(rank)
    lines = [f"{ranks_text(ranks)}: waiting in {call}" for call, ranks in calls.items()]
    lines += [f"{ranks_text([rank])}: at {states[rank]['where']}" for rank in late[1:]]
    if late:
        text = f"kept {ranks_text(list(waiting))} waiting for more than {limit:g} s"
        blamed, where = tuple(late), states[late[0]]["where"]
    elif ended:
        text = f"ended while {ranks_text(list(waiting))} waited, for more than {limit:g} s"
        blamed, where = tuple(ended), ""
    else:
        text = f"have waited for each other for more than {limit:g} s"
        # The ones that are behind, where that can be told.
        blamed = tuple(waiting)
        if len(calls) > 1:
            fewest = min(len(ranks) for ranks in calls.values())
            odd = [ranks for ranks in calls.values() if len(ranks) == fewest]
            if len(odd) == 1 and fewest < len(waiting) - fewest:
                blamed = tuple(odd[0])
                text = f"waited elsewhere than the others for more than {limit:g} s"
        where = waiting[blamed[0]]["where"]
    return Failure(blamed, "hang", "\n".join([text, *lines]), where, status=HUNG)
