"""Where data files lie, and how they are written."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from ..config import config
from ..errors import DataError, MissingFileError, message
from ..types import FilePath


def user_cache() -> Path:
    """Return the folder of this user that holds what can be had again.

    ``mg.config.cache_dir``, else ``MAGMAGRAPH_CACHE_DIR``, else ``magmagraph`` in
    ``XDG_CACHE_HOME``, else ``~/.cache/magmagraph``, as for compiled kernels. It need not exist
    yet.
    """
    chosen = config.cache_dir or os.environ.get("MAGMAGRAPH_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "magmagraph"


def unreadable(path: FilePath, error: OSError) -> DataError:
    """Return the error that says why a file cannot be read."""
    kind = MissingFileError if isinstance(error, FileNotFoundError) else DataError
    return kind(message(f"{path} cannot be read: {error.strerror or error}"))


@contextlib.contextmanager
def replace_file(path: FilePath) -> Iterator[Path]:
    """Give a new file beside `path` to write, which takes its place when the block ends well.

    A reader sees the old content or the new one, never a part, and an error leaves the old one.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
