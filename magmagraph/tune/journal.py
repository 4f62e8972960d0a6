"""The journal of a search: a study of optuna in a file, which its dashboard reads, too.

A trial is in it as running before it starts. Its end counts when its state is written, which comes
last: what was cut off before that is run again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..errors import ConfigError, DataError, message
from ..files.reading import open_file
from .goal import Goal
from .optuna_parts import directions_of, optuna, quiet, shown_as, state_of
from .space import Code, Space
from .trial import TrialResult

__all__ = ["Event", "Journal", "read_journal"]

_STUDY, _HEADER = "magmagraph", "magmagraph"
VERSION = 4
_KEPT = ("state", "goals", "values", "reports", "seconds", "error", "notes")  # of a result


class Event(NamedTuple):
    """The last start of a trial, and its end, if it has one."""

    identity: int
    attempt: int
    codes: list[Code | None]
    params: dict[str, Any]
    end: dict[str, Any] | None

    def result(self, number: int, params: dict[str, Any]) -> TrialResult:
        """Return its result."""
        assert self.end is not None
        return TrialResult(
            number, params, self.params, **self.end, attempts=self.attempt + 1, codes=self.codes
        )


class Journal:
    """The file of one search, held by one process at a time.

    Attributes
    ----------
    trials
        What it held when it was opened, by number.
    """

    def __init__(self, path: Any, header: dict[str, Any], space: Space) -> None:
        self.path = Path(path)
        self._space = space
        if not self.path.parent.is_dir():
            raise ConfigError(
                message(
                    f"journal={str(path)!r}: there is no folder {self.path.parent}",
                    hint=f"mkdir {self.path.parent}",
                )
            )
        self._file = _locked(self.path)
        try:
            _cut_torn_line(self._file, self.path)
            with quiet():
                self._storage = _storage(self.path)
                self.trials = self._opened({"version": VERSION, **header})
        except BaseException:
            self.close()
            raise

    def _opened(self, header: dict[str, Any]) -> dict[int, Event]:
        if not self.path.stat().st_size:
            goals = [Goal(goal["form"], goal["better"] == "more") for goal in header["goal"]]
            self._storage.create_new_study(directions_of(goals), _STUDY)
        header_there, trials = _read(self._storage, self.path)
        self._study = self._storage.get_study_id_from_name(_STUDY)
        if header_there is None:
            self._storage.set_study_user_attr(self._study, _HEADER, json.dumps(header))
            return trials
        # Its JSON values: tuples become lists.
        for name, value in json.loads(json.dumps(header)).items():
            if header_there.get(name) != value:
                raise ConfigError(
                    message(
                        f"{self.path} is the journal of another search: its {name} is\n"
                        f"{json.dumps(header_there.get(name))}, and here\n{json.dumps(value)}",
                        hint="the same arguments, or another file",
                    )
                )
        return trials

    def start(self, number: int, attempt: int, codes: list[Code | None]) -> int:
        """Write that a trial starts; return its identity."""
        with self._writing():
            params = self._space.labels_of(codes)
            trial = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=params,
                distributions=shown_as(self._space, params),
                user_attrs={"trial": number, "attempt": attempt, "codes": codes},
            )
            return int(self._storage.create_new_trial(self._study, trial))

    def end(self, identity: int, outcome: TrialResult) -> None:
        """Write the result of a trial."""
        result = {name: getattr(outcome, name) for name in _KEPT}
        with self._writing():
            for step, value in outcome.reports:
                self._storage.set_trial_intermediate_value(identity, step, value)
            # A text, as the numbers may be NaN, which browsers do not read in JSON.
            trial = self._storage.get_trial(identity).user_attrs
            text = json.dumps(result)
            sealed = f"{_digest(trial, text)} {text}"
            self._storage.set_trial_user_attr(identity, "result", sealed)
            self._storage.set_trial_state_values(identity, state_of(outcome.state), outcome.goals)

    def cut(self, identity: int) -> None:
        """Write that an attempt came to no end."""
        with self._writing():
            self._storage.set_trial_state_values(identity, optuna.trial.TrialState.FAIL)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with quiet():
                yield
        except (optuna.exceptions.OptunaError, LookupError) as error:
            raise _other(self.path, f": {error}") from error

    def close(self) -> None:
        """Give the file free."""
        self._file.close()


def read_journal(path: Any) -> tuple[dict[str, Any], dict[int, Event]]:
    """Return the header of a journal and its trials, by number; the search may be running.

    Raises
    ------
    DataError
        If it is no journal of a search, or is damaged elsewhere than at its end.
    """
    with open_file(path):
        pass
    with quiet():
        header, trials = _read(_storage(Path(path)), Path(path))
    if header is None:
        raise _other(path)
    return header, trials


def _read(storage: Any, path: Path) -> tuple[dict[str, Any] | None, dict[int, Event]]:
    try:
        study = storage.get_study_id_from_name(_STUDY)
        text = storage.get_study_user_attrs(study).get(_HEADER)
        header = None if text is None else json.loads(text)
        trials: dict[int, Event] = {}
        for trial in storage.get_all_trials(study):  # in the order of their starts
            attributes = trial.user_attrs
            ended = trial.state.is_finished() and "result" in attributes
            digest, _, text = attributes["result"].partition(" ") if ended else ("", "", "")
            if ended and digest != _digest(attributes, text):
                raise ValueError(f"the digest of trial {attributes['trial']} is of other content")
            trials[int(attributes["trial"])] = Event(
                trial._trial_id,
                int(attributes["attempt"]),
                list(attributes["codes"]),
                dict(trial.params),
                _checked(json.loads(text)) if ended else None,
            )
    except Exception as error:  # optuna documents no exception for a damaged file
        raise _other(path) from error
    return header, trials


def _digest(trial: Mapping[str, Any], result: str) -> str:
    """Return the digest of a trial's number, attempt, point and result."""
    content = json.dumps([trial["trial"], trial["attempt"], trial["codes"], result])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _checked(end: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a trial, with the types it was written with."""
    state_of(end["state"])
    return {
        "state": end["state"],
        "goals": None if end["goals"] is None else [float(goal) for goal in end["goals"]],
        "values": {name: float(value) for name, value in end["values"].items()},
        "reports": [(int(step), float(value)) for step, value in end["reports"]],
        "seconds": float(end["seconds"]),
        "error": str(end["error"]),
        "notes": dict(end["notes"]),
    }


def _storage(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    try:
        return JournalStorage(JournalFileBackend(str(path), JournalFileOpenLock(str(path))))
    except OSError:
        raise
    except Exception as error:  # optuna documents no exception for a damaged file
        raise _other(path, f": {error}") from error


def _other(path: Any, more: str = "") -> DataError:
    return DataError(
        message(
            f"{path} is not the journal of a search, or is damaged{more}",
            need="a file that mg.tune.search(journal=...) of this version has written",
        )
    )


def _locked(path: Path) -> IO[bytes]:
    if path.exists():
        with open_file(path):  # neither a pipe nor a device
            pass
    file = path.open("ab+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(
            message(f"{path} is the journal of a search that is running", hint="another file")
        ) from None
    # Optuna locks the file by another one for each line; that of a killed search is still there.
    Path(f"{path}.lock").unlink(missing_ok=True)
    return file


def _cut_torn_line(file: IO[bytes], path: Path) -> None:
    """Remove a last line without its newline, which a kill or a full disk has left."""
    file.seek(0)
    content = file.read()
    whole = content.rfind(b"\n") + 1
    if whole:  # optuna passes over a last line that it cannot read, until another one follows
        try:
            json.loads(content[:whole].splitlines()[-1])
        except ValueError as error:
            raise _other(path, f": {error}") from error
    if whole == len(content):
        return
    if not (whole or content.startswith(b'{"')):
        raise _other(path)
    os.ftruncate(file.fileno(), whole)
