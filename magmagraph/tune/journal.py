"""The journal of a search: every start and every end of a trial, on disk before it counts.

JSON lines, appended and synchronized. What a kill can leave is a last line without its end, which
the next search cuts off.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError, message
from ..types import FilePath
from .domains import Code
from .goal import Values
from .trial import TrialResult

try:
    import fcntl
except ImportError:  # no lock where there is none; everything else works
    fcntl = None  # type: ignore[assignment]

__all__ = ["Journal", "numbers_of", "read_journal"]

_MARK = "magmagraph search"
_VERSION = 1
_START = f'{{"journal": "{_MARK}"'.encode()

Event = dict[str, Any]


class Journal:
    """A journal that is open for writing, locked against others.

    Parameters
    ----------
    path
        Of the file; made where there is none.
    header
        What the search is: a journal of another one is refused.

    Attributes
    ----------
    starts
        The codes and the number of starts of each trial that the file holds.
    ends
        The end of each trial that has ended.

    Raises
    ------
    ConfigError
        If the file belongs to another search, or another process writes it.
    DataError
        If the file is no journal, or is damaged elsewhere than at its end.
    """

    def __init__(self, path: FilePath, header: Mapping[str, Any]) -> None:
        self.path = Path(path)
        wanted = {"journal": _MARK, "version": _VERSION, **header}
        new = not self.path.exists()
        try:
            self._file: FileIO = self.path.open("ab+", buffering=0)
        except OSError as error:
            raise ConfigError(
                message(
                    f"the journal {str(path)!r} cannot be written: {error.strerror}",
                    mend=None if self.path.parent.is_dir() else f"mkdir {self.path.parent}",
                )
            ) from error
        try:
            self._lock()
            self._file.seek(0)
            found, events, whole = _parsed(self._file.readall(), self.path)
            self.starts, self.ends = _trials(events, self.path)
            if found is not None:
                _compare(found, wanted, self.path)
            self._file.truncate(whole)
            if found is None:
                self._write(wanted)
            if new:
                _sync_folder(self.path.parent)
        except BaseException:
            self._file.close()
            raise

    def session(self, **about: Any) -> None:
        """Write that a process goes to work on the search."""
        self._write({"event": "session", "time": time.time(), **about})

    def start(
        self, number: int, attempt: int, codes: Sequence[Code], labels: Mapping[str, Any]
    ) -> None:
        """Write that a trial starts, before it does."""
        self._write(
            {
                "event": "start",
                "trial": number,
                "attempt": attempt,
                "codes": list(codes),
                "params": dict(labels),
                "time": time.time(),
            }
        )

    def end(self, found: TrialResult) -> None:
        """Write that a trial has ended, and with what."""
        self._write(
            {
                "event": "end",
                "trial": found.number,
                "state": found.state,
                "goal": found.goal,
                "values": {name: _kept(value) for name, value in found.values.items()},
                "reports": [[step, _kept(value)] for step, value in found.reports],
                "seconds": found.seconds,
                **({"error": found.error} if found.error else {}),
                **({"notes": found.notes} if found.notes else {}),
                "time": time.time(),
            }
        )

    def close(self) -> None:
        """Give the file free."""
        self._file.close()

    def _write(self, event: Mapping[str, Any]) -> None:
        """Append a line; when this returns it survives the process and the machine."""
        line = memoryview(json.dumps(event, allow_nan=False).encode() + b"\n")
        while line:
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                message(
                    f"{self.path} is the journal of a search that is running",
                    need="one search at a time",
                    mend="wait for it, end it, or name another journal",
                )
            ) from None


def read_journal(path: FilePath) -> tuple[Event, dict[int, Event], dict[int, Event]]:
    """Return a journal's header, the starts and the ends of its trials.

    Parameters
    ----------
    path
        Of the file; it may be one that is being written.

    Returns
    -------
    tuple of dict
        The header; by number the codes, labels and attempts of each trial; and its end.

    Raises
    ------
    DataError
        If the file is missing, no journal, or damaged elsewhere than at its end.
    """
    place = Path(path)
    try:
        content = place.read_bytes()
    except OSError as error:
        raise DataError(message(f"{path} cannot be read: {error.strerror}")) from error
    header, events, _ = _parsed(content, place)
    if header is None:
        raise DataError(message(f"{path} is empty", need="the journal of a search"))
    return header, *_trials(events, place)


def numbers_of(event: Event) -> tuple[Values, list[tuple[int, float]]]:
    """Return the values and reports of an end as they were before they were written."""
    values = {name: float(value) for name, value in event["values"].items()}
    return values, [(int(step), float(value)) for step, value in event["reports"]]


def _parsed(content: bytes, path: Path) -> tuple[Event | None, list[Event], int]:
    """Return the header, the events, and the length of what is whole."""
    lines = content.split(b"\n")
    torn = lines.pop()  # what follows the last end of line
    if not lines and _START.startswith(torn[: len(_START)]):
        return None, [], 0  # killed while it wrote the header, or nothing was written
    events: list[Event] = []
    for number, line in enumerate(lines or [torn], 1):
        try:
            event = json.loads(line)
            if not isinstance(event, dict):
                raise ValueError("no object")
        except ValueError:
            if number == 1:
                break
            raise DataError(
                message(
                    f"{path}, line {number} is damaged: {line[:60]!r}",
                    need="a journal whose last line alone may be cut",
                    mend="restore it from a copy, or remove the line to run its trial again",
                )
            ) from None
        events.append(event)
    if not events or events[0].get("journal") != _MARK or not lines:
        raise DataError(message(f"{path} is not the journal of a search", mend="name another file"))
    return events[0], events[1:], len(content) - len(torn)


def _trials(events: Sequence[Event], path: Path) -> tuple[dict[int, Event], dict[int, Event]]:
    starts: dict[int, Event] = {}
    ends: dict[int, Event] = {}
    for line, event in enumerate(events, 2):
        kind, number = event.get("event"), event.get("trial")
        if kind == "session":
            continue
        if not isinstance(number, int) or (kind == "end" and number not in starts):
            raise DataError(message(f"{path}, line {line}: {kind!r} of trial {number!r}"))
        if kind == "start":
            starts[number] = event
            ends.pop(number, None)  # a failed one that is tried again
        else:
            ends[number] = event
    return starts, ends


def _compare(found: Event, wanted: Mapping[str, Any], path: Path) -> None:
    wanted = json.loads(json.dumps(wanted))
    for key in {**found, **wanted}:
        if found.get(key) != wanted.get(key):
            raise ConfigError(
                message(
                    f"{path} is the journal of another search: its {key} is\n"
                    f"{json.dumps(found.get(key))}, and here\n{json.dumps(wanted.get(key))}",
                    need="the call that began the journal",
                    mend="another journal for another search",
                )
            )


def _kept(value: float) -> float | str:
    """Return a number as JSON has it; it has no infinities, and nothing that is no number."""
    return value if math.isfinite(value) else str(value)


def _sync_folder(folder: Path) -> None:
    """Make the new file's name survive as well."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
