"""What the page shows of a workflow that runs: the records of `run(watch=)`, counted by module."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..modules import Workflow
from ..result import ModuleRun

__all__ = ["Progress", "line_of", "record_of"]

_SHOWN = 5  # failures and outputs of a module
_BUSY = 512  # workers
_LEFT = ("skipped", "stopped")
_LAST = 2000  # bytes of an output


def line_of(record: ModuleRun) -> str:
    """Return a record as a line of JSON."""
    return json.dumps(asdict(record)) + "\n"


def record_of(line: str) -> ModuleRun:
    """Return the record that `line_of` has written.

    Examples
    --------
    >>> record = ModuleRun("fit", 0, 0, (1, 2), "done", 0.0, 1.5)
    >>> record_of(line_of(record)) == record
    True
    """
    fields = json.loads(line)
    return ModuleRun(**{**fields, "ranks": tuple(fields["ranks"])})


class Progress:
    """Counts records; threads may call and ask it.

    Parameters
    ----------
    workflow
        What runs.
    """

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.began = time.time()
        self.ended = ""  # how it ended, for people
        self.ok: bool | None = None
        self._seconds = 0.0
        self._lock = threading.Lock()
        self._last: dict[tuple[str, int], ModuleRun] = {}
        self._turn = 0
        self._failed: dict[str, list[ModuleRun]] = {}

    def __call__(self, record: ModuleRun) -> None:
        """Take over a record."""
        with self._lock:
            module = self.workflow.modules.get(record.module)
            if module is None:  # of a file that was changed before it ran
                return
            self._turn = max(self._turn, record.turn)
            failed = self._failed.setdefault(record.module, [])
            if record.status == "failed" and len(failed) < _SHOWN:
                failed.append(record)
            if record.status == "done" and record.iteration + 1 < module.iterations:
                record = replace(
                    record, status="running", iteration=record.iteration + 1, start=record.end
                )
            self._last[record.module, record.copy] = record

    def end(self, ok: bool, text: str) -> None:
        """Note how the workflow ended."""
        with self._lock:
            self._seconds = time.time() - self.began
            self.ok, self.ended = ok, text

    def shown(self, module: str = "") -> dict[str, Any]:
        """Return the numbers of all modules, and more of one."""
        with self._lock:
            last = list(self._last.values())
            failed = {name: list(records) for name, records in self._failed.items()}
            turn, ok, ended = self._turn, self.ok, self.ended
            seconds = time.time() - self.began if ok is None else self._seconds
        by_module: dict[str, list[ModuleRun]] = {name: [] for name in self.workflow.modules}
        for record in last:
            by_module[record.module].append(record)
        workers = [
            (rank, record.module, record.copy, record.iteration, record.start)
            for record in last
            if record.status == "running" and ok is None
            for rank in record.ranks
        ]
        return {
            "turn": turn,
            "turns": self.workflow.iterations,
            "seconds": seconds,
            "ok": ok,
            "ended": ended,
            "modules": {
                name: self._module(name, records, failed.get(name, []))
                for name, records in by_module.items()
            },
            "workers": sorted(workers)[:_BUSY],
            "outputs": self._outputs(by_module.get(module, [])),
        }

    def _module(
        self, name: str, records: list[ModuleRun], failed: list[ModuleRun]
    ) -> dict[str, Any]:
        counts = Counter(record.status for record in records)
        module = self.workflow.modules[name]
        started = [record for record in records if record.status != "waiting" and record.ranks]
        return {
            "state": _state(counts, max((r.attempt for r in records), default=1)),
            "counts": counts,
            "copies": module.copies,
            "iterations": module.iterations,
            "iterations_done": sum(
                record.iteration + (record.status == "done") for record in started
            ),
            "attempts": max((record.attempt for record in records), default=1),
            "ranks": sorted({rank for record in started for rank in record.ranks})[:_BUSY],
            "start": min((r.start for r in started), default=None),
            "end": None
            if counts["running"]
            else max((record.end for record in started), default=None),
            "failures": [
                {
                    "copy": r.copy, "turn": r.turn, "iteration": r.iteration,
                    "ranks": r.ranks, "cause": r.cause,
                }
                for r in failed
            ],
            "causes": sorted({r.cause for r in records if r.status in _LEFT})[:_SHOWN],
        }  # fmt: skip

    def _outputs(self, records: list[ModuleRun]) -> list[dict[str, str]]:
        """Return the last lines of what programs of a module print: first of those that failed."""
        outputs = []
        order = ("failed", "running", "done")
        for record in sorted(
            (r for r in records if r.status in order), key=lambda r: order.index(r.status)
        )[:_SHOWN]:
            module = self.workflow.modules[record.module]
            if module.command:
                path = self.workflow.printed(module, record.copy, record.turn, record.iteration)
                outputs.append({"name": path.name, "text": _tail(path)})
        return outputs


def _state(counts: Counter[str], attempts: int) -> str:
    """Return the state of a module of several copies: what matters most."""
    for state in ("failed", "stopped", "running", "skipped"):
        if counts[state]:
            return "retried" if state == "running" and attempts > 1 else state
    if counts["waiting"]:
        return "running" if counts["done"] else "waiting"
    return "done" if counts["done"] else "waiting"


def _tail(path: Path) -> str:
    """Return the end of a file; empty where it is on another machine, or not there yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LAST))
            return file.read(_LAST).decode(errors="replace")
    except OSError:
        return ""
