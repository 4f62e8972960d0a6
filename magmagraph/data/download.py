"""Downloads by pooch that are checked, whole or absent, and over within a given time.

A timeout of a connection bounds neither the look-up of a name nor a server that sends a byte a
second. So each file is fetched into memory by a thread of its own until one common deadline, and
pooch writes it into the folder if its checksum is right.
"""

from __future__ import annotations

import io
import queue
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, message

_CHUNK = 1 << 16


@dataclass(frozen=True)
class RemoteFile:
    """A file with the same name at each of several addresses.

    name (str): The name of the file.
    size (int): Its length in bytes.
    sha256 (str): The checksum of its content, in hexadecimal.
    """

    name: str
    size: int
    sha256: str


def download(
    files: Sequence[RemoteFile], mirrors: Sequence[str], folder: Path, *, timeout: float = 5.0
) -> None:
    """Download the files that a folder lacks, at the same time, each from the first mirror with it.

    A file that is there with the right checksum is not downloaded. A file that arrives stays, even
    where another one fails, so that a second try needs less. A terminal shows the progress.

    files (sequence of RemoteFile): What to download.
    mirrors (sequence of str): The addresses, ending in a slash, to which a file's name is appended.
    folder (Path): Where to put the files; it is created if needed.
    timeout (float): Seconds after which all downloads are given up.
    raises DataError: If a file did not arrive; it names the first one, and the answer of each
        mirror.
    raises OSError: If the folder cannot be written.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    deadline = time.monotonic() + min(timeout, threading.TIMEOUT_MAX / 2)
    # An empty folder shows at once, and not after the download, that it cannot be written.
    folder.mkdir(parents=True, exist_ok=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    console = Console(stderr=True)
    with (
        Progress(
            *columns, console=console, transient=True, disable=not sys.stderr.isatty()
        ) as display,
        ThreadPoolExecutor(len(files)) as threads,
    ):
        found = list(
            threads.map(lambda file: _retrieve(file, mirrors, folder, deadline, display), files)
        )
    for file, complaints in zip(files, found, strict=True):
        if complaints is not None:
            raise DataError(
                message(
                    f"{file.name} could not be downloaded within {timeout:g} s: "
                    f"{'; '.join(complaints)}",
                    need="a connection to one of " + ", ".join(mirrors),
                    hint="put the file there yourself and set MAGMAGRAPH_DATA to its folder",
                )
            )


def _retrieve(
    file: RemoteFile, mirrors: Sequence[str], folder: Path, deadline: float, display: Any
) -> list[str] | None:
    """Have pooch put a file into a folder; return what went wrong at each mirror if none had it."""
    import pooch  # a tenth of a second, with requests
    from requests import RequestException

    pooch.get_logger().setLevel("WARNING")
    complaints = []
    for position, mirror in enumerate(mirrors):
        left = deadline - time.monotonic()
        # A mirror that does not answer leaves time for those after it.
        fetch = _Fetch(file, left / (len(mirrors) - position), deadline, display)
        try:
            pooch.retrieve(
                mirror + file.name, f"sha256:{file.sha256}", file.name, folder, downloader=fetch
            )
        except (RequestException, TimeoutError) as error:
            complaints.append(f"{mirror}: {error}")
        except ValueError as error:
            complaints.append(f"{mirror}: the checksum is another one ({error})")
        else:
            return None
    return complaints


class _Fetch:
    """Download an address for pooch, within a size and a time; it is pooch's progress bar, too."""

    def __init__(self, file: RemoteFile, patience: float, deadline: float, display: Any) -> None:
        self.file, self.patience, self.deadline = file, patience, deadline
        self.display = display
        self.task = display.add_task(file.name, total=file.size)
        self.received = io.BytesIO()
        self.total = 0  # pooch sets it to the length that the server states

    def __call__(self, address: str, output_file: str, _: Any) -> None:
        """Write what the address has to a file, or raise what went wrong."""
        from pooch import HTTPDownloader

        responses: list[Any] = []
        fetch = HTTPDownloader(
            progressbar=self,
            chunk_size=_CHUNK,
            timeout=max(self.patience, 0.01),
            hooks={"response": lambda response, **_: responses.append(response)},
        )
        outcome: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def run() -> None:
            try:
                fetch(address, self.received, None)
            except Exception as error:  # raised again by the thread that waits
                outcome.put(error)
            else:
                outcome.put(None)
            finally:
                for response in responses:  # pooch leaves them open where something is raised
                    response.close()

        # A thread that hangs must not keep the process from its end.
        threading.Thread(target=run, name=f"download {self.file.name}", daemon=True).start()
        try:
            error = outcome.get(timeout=max(0.0, self.deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError("no answer in time") from None
        finally:
            self.display.remove_task(self.task)
        if error is not None:
            raise error
        Path(output_file).write_bytes(self.received.getvalue())

    def update(self, _: int) -> None:
        """Show how much has arrived; raise where that is too much, or too late."""
        size = self.received.tell()
        if size > self.file.size:
            raise ValueError(f"more than {self.file.size} bytes")
        if time.monotonic() > self.deadline:
            raise TimeoutError("too slow")
        self.display.update(self.task, completed=size)

    def reset(self) -> None:
        """Do nothing; pooch calls it at the end."""

    def close(self) -> None:
        """Do nothing; pooch calls it at the end."""
