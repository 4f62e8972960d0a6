"""Downloads that are checked, whole or absent, and over within a given time.

A socket's timeout bounds neither the look-up of a name nor a server that sends a byte a second.
So each file is fetched into memory by a thread of its own, the caller waits for all of them until
one common deadline, and only what has arrived whole, with the right checksum, is written.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError, message
from ..files.writing import write_file

_CHUNK = 1 << 16


@dataclass(frozen=True)
class RemoteFile:
    """A file that lies at the same name under each of several addresses.

    Attributes
    ----------
    name : str
        The name of the file.
    size : int
        Its length in bytes.
    sha256 : str
        The checksum of its content, in hexadecimal.
    """

    name: str
    size: int
    sha256: str

    def matches(self, content: bytes) -> bool:
        """Return whether `content` is that of this file."""
        return hashlib.sha256(content).hexdigest() == self.sha256


def download(
    files: Sequence[RemoteFile], mirrors: Sequence[str], folder: Path, *, timeout: float = 5.0
) -> None:
    """Download files into a folder, side by side, each from the first mirror that has it.

    A file that arrives stays, even where another one fails, so that a second try needs less.

    Parameters
    ----------
    files : sequence of RemoteFile
        What to download.
    mirrors : sequence of str
        The addresses, ending in a slash, to which a file's name is appended.
    folder : Path
        Where to put the files; it is made if need be.
    timeout : float
        Seconds after which the attempt is given up, in whole.

    Raises
    ------
    DataError
        If a file did not arrive; it names the first one, and what each mirror said.
    OSError
        If the folder cannot be written.
    """
    deadline = time.monotonic() + timeout
    # An empty folder tells at once, and not after the download, that it cannot be written.
    folder.mkdir(parents=True, exist_ok=True)
    arrivals: queue.SimpleQueue[tuple[RemoteFile, bytes | None, list[str]]] = queue.SimpleQueue()
    for file in files:
        threading.Thread(
            target=lambda file=file: arrivals.put((file, *_fetch(file, mirrors, deadline))),
            name=f"download {file.name}",
            daemon=True,
        ).start()
    absent = {file.name: ["no answer in time"] for file in files}
    for _ in files:
        try:
            file, content, complaints = arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if content is None:
            absent[file.name] = complaints
            continue
        write_file(folder / file.name, content)
        del absent[file.name]
    if absent:
        name, complaints = next(iter(absent.items()))
        raise DataError(
            message(
                f"{name} could not be downloaded within {timeout:g} s: {'; '.join(complaints)}",
                need="a connection to one of " + ", ".join(mirrors),
                hint="put the file there yourself and set MAGMAGRAPH_DATA to its folder",
            )
        )


def _fetch(
    file: RemoteFile, mirrors: Sequence[str], deadline: float
) -> tuple[bytes | None, list[str]]:
    """Return the content of a file, or None, and what went wrong on the way."""
    # Imported here and below, for it takes longer than all else that `import magmagraph` brings.
    import urllib.error

    complaints: list[str] = []
    for position, mirror in enumerate(mirrors):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        # A mirror that does not answer leaves time for those after it.
        patience = left / (len(mirrors) - position)
        try:
            content = _read(mirror + file.name, file.size, patience, deadline)
        except (OSError, ValueError) as error:
            # The text of an HTTPError holds its status; that of a URLError only wraps its reason.
            refused = isinstance(error, urllib.error.HTTPError)
            complaints.append(f"{mirror}: {error if refused else getattr(error, 'reason', error)}")
            continue
        if content is None:
            complaints.append(f"{mirror}: too slow")
        elif file.matches(content):
            return content, complaints
        else:
            complaints.append(f"{mirror}: the checksum is another one")
    return None, complaints or ["no time was left to try"]


def _read(address: str, size: int, patience: float, deadline: float) -> bytes | None:
    """Return what an address holds, or None where that takes too long.

    Not a byte beyond `size` and one more is read, however much the server sends.
    """
    import urllib.request

    content = bytearray()
    with urllib.request.urlopen(address, timeout=patience) as answer:
        while len(content) <= size:
            if time.monotonic() > deadline:
                return None
            chunk = answer.read1(_CHUNK)
            if not chunk:
                break
            content += chunk
    return bytes(content)
