"""The journal of a search: every start and every end of a trial, on disk before it counts.

JSON lines, appended and synchronized, each with a checksum of itself at its end. What a kill can
leave is a last line without its end, which the next search cuts off.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError, message
from ..files.reading import Damaged, parse_json, read_file
from ..files.schema import (
    anything,
    either,
    flag,
    items,
    mapping,
    none,
    number,
    one_of,
    row,
    table,
    text,
    whole,
)
from ..files.writing import flush_folder, storage_errors
from ..ir.types import FilePath
from .domains import MOST_STEPS, Code
from .goal import Values
from .trial import TrialResult

try:
    import fcntl
except ImportError:  # no lock where there is none; everything else works
    fcntl = None  # type: ignore[assignment]

__all__ = ["Journal", "numbers_of", "read_journal"]

_MARK = "magmagraph search"
_VERSION = 2  # of version 1, lines need not have checksums
MOST_LINES = 10_000_000
_SUM = re.compile(rb', "crc": "([0-9a-f]{8})"\}')
_SUM_LENGTH = len(', "crc": "00000000"}')
_START = f'{{"journal": "{_MARK}"'.encode()

Event = dict[str, Any]


_PLAIN = either(none, flag, number(finite=False), text())
_VALUE = either(number(), one_of("nan", "inf", "-inf"))  # as `_kept` writes them
_STEP = either(none, number())
_DOMAINS = {
    "choice": table({"kind": text(), "names": items(_PLAIN)}),
    "grid": table(
        {"kind": text(), "low": number(), "count": whole(1, MOST_STEPS)},
        {"step": _STEP, "factor": _STEP},
    ),
    "uniform": table({"kind": text(), "low": number(), "high": number()}),
    "log_uniform": table({"kind": text(), "low": number(), "high": number()}),
}


def _domain(value: Any, place: str) -> None:
    """Take a domain as `Domain.describe` gives it."""
    table({"kind": one_of(*_DOMAINS)}, others=anything)(value, place)
    _DOMAINS[value["kind"]](value, place)


_HEADER = table(
    {
        "journal": one_of(_MARK),
        "version": whole(1, _VERSION),
        "space": items(row(text(), _domain)),
        "goal": table(
            {"form": either(text(), mapping(number())), "better": one_of("more", "less")}
        ),
    },
    others=anything,
)
_EVENTS = table({"event": one_of("session", "start", "end")}, others=anything)
_OF_KIND = {
    "session": anything,
    "start": table(
        {
            "event": text(),
            "trial": whole(),
            "attempt": whole(),
            "codes": items(number()),
            "params": mapping(_PLAIN),
        },
        others=anything,
    ),
    "end": table(
        {
            "event": text(),
            "trial": whole(),
            "state": one_of("done", "stopped", "failed"),
            "goal": either(none, number()),
            "values": mapping(_VALUE),
            "reports": items(row(whole(-(1 << 63)), _VALUE)),
            "seconds": number(0),
        },
        {"error": text(), "notes": mapping(anything)},
        others=anything,
    ),
}


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
        new = not self.path.exists()
        try:
            self._file: FileIO = self.path.open("ab+", buffering=0)
        except OSError as error:
            raise ConfigError(
                message(
                    f"the journal {str(path)!r} cannot be written: {error.strerror}",
                    hint=None if self.path.parent.is_dir() else f"mkdir {self.path.parent}",
                )
            ) from error
        try:
            self._lock()
            self._file.seek(0)
            found, events, whole = _parsed(self._file.readall(), self.path)
            self.starts, self.ends = _trials(events, self.path)
            version = _VERSION if found is None else found["version"]
            wanted = {"journal": _MARK, "version": version, **header}
            if found is not None:
                _compare(found, wanted, self.path)
            with storage_errors(self.path):
                self._file.truncate(whole)
                if found is None:
                    self._write(wanted)
                if new:
                    flush_folder(self.path.parent)
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
        """Append a line; when this returns it survives the process and the machine.

        Raises
        ------
        StorageError
            If the disk is full or refuses; the journal is then as it was.
        """
        before = os.fstat(self._file.fileno()).st_size
        with storage_errors(self.path):
            try:
                line = memoryview(sealed(event))
                while line:
                    line = line[self._file.write(line) :]
                os.fsync(self._file.fileno())
            except BaseException:  # half a line would be before the next one
                self._file.truncate(before)
                raise

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
                    hint="wait for it, end it, or name another journal",
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
    header, events, _ = _parsed(read_file(path), place)
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
    if len(lines) > MOST_LINES:
        raise DataError(message(f"{path} has {len(lines)} lines", need=f"at most {MOST_LINES}"))
    if not lines and _START.startswith(torn[: len(_START)]):
        return None, [], 0  # killed while it wrote the header, or nothing was written
    events: list[Event] = []
    for place, line in enumerate(lines or [torn], 1):
        try:
            event = _event(line, events)
        except ValueError as error:
            if place == 1 and not line.startswith(_START):
                break
            raise _damaged(path, place, error) from None
        events.append(event)
    if _is_sealed(torn[:-1]):  # a kill leaves less than a line, never more
        raise _damaged(path, len(lines) + 1, ValueError("its end is another byte"))
    if not events or events[0].get("journal") != _MARK or not lines:
        raise DataError(message(f"{path} is not the journal of a search", hint="name another file"))
    try:
        _HEADER(events[0], "it")
    except Damaged as error:
        raise _damaged(path, 1, error) from None
    return events[0], events[1:], len(content) - len(torn)


def _damaged(path: Path, number: int, error: ValueError) -> DataError:
    return DataError(
        message(
            f"{path}, line {number} is damaged: {error}",
            need="a journal whose last line alone may be cut",
            hint="restore it from a copy, or remove the line to run its trial again",
        )
    )


def sealed(event: Mapping[str, Any]) -> bytes:
    """Return a line: an event, whose last member is the checksum of all before it."""
    text = json.dumps(event, allow_nan=False).encode()[:-1]
    return text + f', "crc": "{zlib.crc32(text):08x}"}}\n'.encode()


def _is_sealed(line: bytes) -> bool:
    """Return whether a line ends with its checksum."""
    found = _SUM.fullmatch(line, max(0, len(line) - _SUM_LENGTH))
    return found is not None and int(found[1], 16) == zlib.crc32(line[:-_SUM_LENGTH])


def _event(line: bytes, before: Sequence[Event]) -> Event:
    """Return the event of a line, or raise `Damaged`."""
    whole_line = _is_sealed(line)
    if not whole_line and b'"crc"' in line[-2 * _SUM_LENGTH :]:
        raise Damaged("its checksum does not fit")
    event: Event = parse_json(line, "it")
    if not isinstance(event, dict):
        raise Damaged("it is no table")
    event.pop("crc", None)
    header = before[0] if before else event
    if not whole_line and header.get("journal") == _MARK and header.get("version") != 1:
        raise Damaged("it has no checksum")
    if not before:
        return event
    _EVENTS(event, "it")
    _OF_KIND[event["event"]](event, "it")
    return event


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
                    hint="another journal for another search",
                )
            )


def _kept(value: float) -> float | str:
    """Return a number as JSON has it; it has no infinities, and nothing that is no number."""
    return value if math.isfinite(value) else str(value)


