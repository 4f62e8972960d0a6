"""Share the state of ranks on one host without MPI: started, ended, or waiting.

A rank that starts MPI waits inside of it for all others, and nothing of Python runs meanwhile. So
ranks meet here first, in a small file that the processes of one launcher share: one that has ended
without coming is named, and no rank waits for it. Later each writes there what it waits in.

Only this user can open the file, and a file of another user is not used. Under the project's own
launcher nobody else can know its name, since that depends on the job's token.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

from ...errors import CommunicationError, FallbackWarning, message
from ...files.trust import Untrusted, open_own, temporary_place
from ..watch import timeout, waiting, where

__all__ = ["Host"]

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
_HERE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
_SLOT = 4096  # bytes of a rank
_LOOK = 0.5  # seconds between two looks at the processes
_MISSED = 3.0  # seconds that a rank is gone before it is said


def _number(names: tuple[str, ...]) -> int | None:
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdecimal()), None)


def _variables(process: int | str) -> dict[bytes, bytes]:
    """Return the variables that a process was started with; empty where they cannot be read."""
    try:
        text = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return {}
    return dict(line.split(b"=", 1) for line in text.split(b"\0") if b"=" in line)


def _stat(process: int | str) -> list[str]:
    """Return what Linux says of a process, from its state on; empty where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _launcher(process: int | str, variable: bytes) -> str:
    """Return the first process above one that is no rank, with when it began: a job's mark."""
    for _ in range(20):
        stat = _stat(process)
        if not stat:
            return ""
        process = stat[1]
        if variable not in _variables(process):
            above = _stat(process)
            return f"{process}-{above[19]}" if above else ""
    return ""


class Host:
    """The ranks of a job all of which run on this host.

    Parameters
    ----------
    rank, size
        This rank, and the number of ranks.
    variable
        The variable that holds a rank's number.
    job
        What tells the job from others of the host.
    """

    def __init__(self, rank: int, size: int, variable: str, job: str) -> None:
        self.rank, self.size = rank, size
        self._variable, self._job = variable.encode(), job
        secret = hashlib.sha256(os.environ.get("MAGMAGRAPH_LAUNCH", "").encode()).hexdigest()[:16]
        name = f"magmagraph-ranks-{os.getuid()}-{job}-{secret}"
        self._path = Path(temporary_place(), name)
        self._file = open_own(self._path, os.O_RDWR | os.O_CREAT)

    @classmethod
    def find(cls, size: int) -> Host | None:
        """Return the host of this job's ranks; None where some may run elsewhere, or none can tell.

        Parameters
        ----------
        size
            The number of ranks.
        """
        rank, here = _number(_RANKS), _number(_HERE)
        if rank is None or here != size or size < 2 or rank >= size:
            return None
        variable = next(name for name in _RANKS if os.environ.get(name, "").isdecimal())
        job = _launcher("self", variable.encode())
        if not job:
            return None
        try:
            return cls(rank, size, variable, job)
        except Untrusted as error:
            warnings.warn(
                message(
                    f"ranks of this host cannot see each other: {error}",
                    need="a folder for temporary files in which other users make no such file",
                    hint="remove it, or set TMPDIR; until then a rank that does not come is waited "
                    "for",
                ),
                FallbackWarning,
                stacklevel=2,
            )
            return None
        except OSError:
            return None

    # ---- The file

    def write(self, content: dict[str, Any]) -> None:
        """Say something to the other ranks."""
        text = json.dumps(content).encode()[: _SLOT - 1]
        os.pwrite(self._file, text.ljust(_SLOT, b"\0"), _SLOT * self.rank)

    def read(self) -> dict[int, dict[str, Any]]:
        """Return what each rank that has come said last."""
        by_rank = {}
        for rank in range(self.size):
            text = os.pread(self._file, _SLOT, _SLOT * rank).rstrip(b"\0")
            with contextlib.suppress(ValueError):  # nothing yet, or half of it
                content = json.loads(text)
                if isinstance(content, dict):
                    by_rank[rank] = content
        return by_rank

    def forget(self) -> None:
        """Remove the file's name, once all ranks have it open."""
        with contextlib.suppress(OSError):
            self._path.unlink()

    # ---- The processes

    def living(self) -> set[int]:
        """Return the ranks that have a process."""
        ranks = {self.rank}
        for name in os.listdir("/proc"):
            text = _variables(name).get(self._variable, b"") if name.isdigit() else b""
            if not text.isdigit() or int(text) in ranks or int(text) >= self.size:
                continue
            stat = _stat(name)
            if stat and stat[0] not in "ZX" and _launcher(name, self._variable) == self._job:
                ranks.add(int(text))
        return ranks

    def gather(self) -> None:
        """Return when all ranks have come here.

        Raises
        ------
        CommunicationError
            A rank has ended without coming, or does not come for `MAGMAGRAPH_TIMEOUT` seconds.
        """
        began = time.monotonic()
        limit, looked, gone_since = timeout(), began, 0.0
        self.write({"waiting": None})
        pause = 0.0005
        with waiting(f"the start of MPI on {self.size} ranks"):
            while len(come := self.read()) < self.size:
                time.sleep(pause)
                pause = min(2 * pause, 0.02)
                now = time.monotonic()
                if now - looked < _LOOK:
                    continue
                looked = now
                absent = set(range(self.size)) - set(come)
                gone = absent - self.living()
                gone_since = (gone_since or now) if gone else 0.0
                if gone and now - gone_since > _MISSED and not gone & set(self.read()):
                    self._refuse(gone, "has ended, and has spoken to no other rank")
                if now - began > limit:
                    self._refuse(absent, f"has not spoken to other ranks for {limit:g} s")

    def _refuse(self, ranks: set[int], what: str) -> None:
        self.forget()
        which = ", ".join(map(str, sorted(ranks)))
        raise CommunicationError(
            message(
                f"rank {self.rank} of {self.size} waits for rank {which}, which {what}",
                need="the same calls on all ranks, in one order",
                hint="the same functions with the same distribute= on every rank",
                where=where() or None,
            )
        )
