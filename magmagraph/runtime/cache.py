"""The disk cache: compiled kernels and tuning choices, shared by processes without a lock.

Values are kept by content. A value lies in a file that is named by its own SHA-256 digest, and
a key is a small file that holds such a digest. Both are written beside their place and renamed
into it, so that a reader sees an old file, a new file or none, and never half of one; and since
the name of a value is its checksum, whatever was damaged on the disk is noticed when it is read.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import itertools
import json
import os
import stat
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from ..config import config
from ..errors import CacheWarning, ConfigError, message
from .keys import content_key

__all__ = [
    "Choices",
    "DiskCache",
    "cache_directory",
    "cache_limit",
    "content_key",
    "default_cache",
    "default_choices",
]

DEFAULT_LIMIT = 1 << 30
_HOUR = 3600.0
_serial = itertools.count()
_unusable: set[Path] = set()


def cache_directory() -> Path:
    """Return the folder that holds the cache.

    Returns
    -------
    pathlib.Path
        ``mg.config.cache_dir``, else ``MAGMAGRAPH_CACHE_DIR``, else ``magmagraph`` in
        ``XDG_CACHE_HOME``, else ``~/.cache/magmagraph``. It need not exist yet.
    """
    chosen = config.cache_dir or os.environ.get("MAGMAGRAPH_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()).absolute() / "magmagraph"


def cache_limit() -> int:
    """Return the bytes that the cache may take: ``MAGMAGRAPH_CACHE_SIZE``, 1 GiB unless set.

    ``mg.config.cache_size`` comes first.

    Raises
    ------
    ConfigError
        Where the variable is not a whole number of at least zero.
    """
    if config.cache_size is not None:
        return config.cache_size
    text = os.environ.get("MAGMAGRAPH_CACHE_SIZE")
    if text is None:
        return DEFAULT_LIMIT
    try:
        limit = int(text)
    except ValueError:
        limit = -1
    if limit < 0:
        raise ConfigError(
            message(
                f"MAGMAGRAPH_CACHE_SIZE is {text!r}",
                need="a whole number of bytes, 0 or more",
                mend=f"MAGMAGRAPH_CACHE_SIZE={DEFAULT_LIMIT}",
            )
        )
    return limit


def _write(path: Path, data: bytes) -> None:
    """Write a whole file, or leave what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f".{path.name}.{os.getpid()}.{threading.get_ident()}.{next(_serial)}.tmp"
    beside = path.with_name(name)
    try:
        with open(beside, "xb") as file:
            file.write(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _tell_unusable(directory: Path, reason: str) -> None:
    """Warn that a folder cannot be used, once for all that are in the same trouble."""
    trouble = directory
    while not trouble.exists() and trouble != trouble.parent:
        trouble = trouble.parent
    if trouble in _unusable:
        return
    _unusable.add(trouble)
    warnings.warn(
        message(
            f"the cache folder {directory} cannot be used ({reason})",
            need="a folder that this user may write to and load libraries from",
            mend="set MAGMAGRAPH_CACHE_DIR to one; until then every process compiles its kernels",
        ),
        CacheWarning,
        stacklevel=5,
    )


def _remove_at_exit(directory: str, owner: int) -> None:
    """Remove a private folder; a forked child leaves its parent's alone."""
    if os.getpid() == owner:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def private_directory() -> Path:
    """Return a new folder of this process alone, removed when it ends."""
    import tempfile

    directory = tempfile.mkdtemp(prefix="magmagraph-")
    atexit.register(_remove_at_exit, directory, os.getpid())
    return Path(directory)


class DiskCache:
    """Bytes by key in a folder, bounded in size, safe between processes.

    Where the folder cannot be written, one :class:`~magmagraph.CacheWarning` says so, and a
    private folder, removed at the end of the process, takes what is put.

    Parameters
    ----------
    directory : pathlib.Path or str, optional
        The folder, made when first needed; :func:`cache_directory` unless given.
    limit : int, optional
        Bytes above which the values used longest ago are removed; :func:`cache_limit` unless
        given.

    Examples
    --------
    >>> cache = DiskCache(private_directory())
    >>> key = content_key("the source", "the flags")
    >>> cache.put(key, b"machine code")
    >>> cache.get(key)
    b'machine code'
    """

    def __init__(self, directory: Path | str | None = None, limit: int | None = None) -> None:
        self.directory = cache_directory() if directory is None else Path(directory)
        self.limit = cache_limit() if limit is None else limit
        self._private: DiskCache | None = None
        self._told = False
        # The first write looks at the size once, later ones after each 32nd of the limit.
        self._unmeasured = self.limit

    def get(self, key: str) -> bytes | None:
        """Return the bytes kept under `key`, or None where there are none, or damaged ones."""
        found = self._lookup(key)
        return None if found is None else found[1]

    def get_file(self, key: str) -> Path | None:
        """Return the file that holds the bytes of `key`, read and found undamaged, or None."""
        found = self._lookup(key)
        return None if found is None else found[0]

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`."""
        self.put_file(key, data)

    def put_file(self, key: str, data: bytes, suffix: str = "") -> Path:
        """Keep `data` under `key` in a file whose name ends in `suffix`, and return the file.

        Parameters
        ----------
        key : str
            From :func:`content_key`.
        data : bytes
            The content.
        suffix : str
            For those who look at names, such as a dynamic loader: ``".so"``.

        Raises
        ------
        OSError
            Where neither the folder of the cache nor the system's temporary folder can be
            written.
        """
        if self._private is not None:
            return self._private.put_file(key, data, suffix)
        digest = hashlib.sha256(data).hexdigest()
        path = self.directory / "values" / digest[:2] / (digest + suffix)
        try:
            # Written even where it exists: what is there may be damaged.
            _write(path, data)
            _write(self._key_path(key), (digest + suffix).encode())
        except OSError as error:
            self.abandon(str(error))
            return self.put_file(key, data, suffix)
        self._unmeasured += len(data) + len(digest)
        if self._unmeasured > self.limit // 32:
            self._unmeasured = 0
            self._trim(keep=path)
        return path

    def abandon(self, reason: str) -> None:
        """Write to a private folder from now on, and say so once."""
        if self._private is None:
            _tell_unusable(self.directory, reason)
            self._private = DiskCache(private_directory(), self.limit)

    def _key_path(self, key: str) -> Path:
        return self.directory / "keys" / key[:2] / key

    def _lookup(self, key: str) -> tuple[Path, bytes] | None:
        if self._private is not None:
            found = self._private._lookup(key)
            if found is not None:
                return found
        try:
            name = self._key_path(key).read_bytes().decode("ascii", "replace")
        except OSError:
            return None
        digest = name[:64]
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef") or "/" in name:
            self._tell_damaged(self._key_path(key))
            return None
        path = self.directory / "values" / digest[:2] / name
        try:
            data = path.read_bytes()
            used = path.stat().st_mtime
        except OSError:  # evicted
            return None
        if hashlib.sha256(data).hexdigest() != digest:
            self._tell_damaged(path)
            return None
        now = time.time()
        if now - used > _HOUR:
            with contextlib.suppress(OSError):  # a cache that may only be read serves as well
                os.utime(path)
        return path, data

    def _tell_damaged(self, path: Path) -> None:
        if self._told:
            return
        self._told = True
        warnings.warn(
            message(
                f"the cached file {path} is damaged: its content does not fit its checksum",
                mend="nothing: it is made anew; where this repeats, look after the disk",
            ),
            CacheWarning,
            stacklevel=4,
        )

    def _trim(self, keep: Path) -> None:
        """Remove the values used longest ago, and their keys, until three quarters are left.

        The value just put stays, whatever its size: its caller is about to open it.
        """
        values, keys = _files(self.directory / "values"), _files(self.directory / "keys")
        total = sum(size for _, size, _ in (*values, *keys))
        if total <= self.limit:
            return
        known = {path.name for _, _, path in values}
        named: dict[str, list[tuple[int, Path]]] = {}
        for _, size, path in keys:
            with contextlib.suppress(OSError):
                name = path.read_bytes().decode("ascii", "replace")
                if name in known:
                    named.setdefault(name, []).append((size, path))
                else:
                    path.unlink()
                    total -= size
        for _, size, path in sorted(values):
            if total <= self.limit * 3 // 4:
                break
            if path == keep:
                continue
            for taken, file in (*named.get(path.name, ()), (size, path)):
                with contextlib.suppress(OSError):  # another process may have removed it
                    file.unlink()
                total -= taken
        for _, size, path in sorted(keys)[:-1]:  # of the values that stay: one may have many
            if total <= self.limit * 3 // 4:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Return time, bytes and path of the files in a folder; what killed writers left is removed."""
    found = []
    now = time.time()
    for inner, _, names in os.walk(folder):
        for name in names:
            path = Path(inner, name)
            with contextlib.suppress(OSError):
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode):
                    continue
                if not name.endswith(".tmp"):
                    found.append((status.st_mtime, status.st_size, path))
                elif now - status.st_mtime > _HOUR:
                    path.unlink()
    return found


class Choices:
    """What was chosen by measurement, by key: one small file a key, and a copy in memory.

    Parameters
    ----------
    directory : pathlib.Path or str, optional
        The folder, made when first needed; ``choices`` in :func:`cache_directory` unless given.

    Examples
    --------
    >>> choices = Choices(private_directory())
    >>> choices.get("gemv or kernel, 1000x10 float32") is None
    True
    >>> choices.set("gemv or kernel, 1000x10 float32", "gemv")
    >>> choices.get("gemv or kernel, 1000x10 float32")
    'gemv'
    """

    def __init__(self, directory: Path | str | None = None) -> None:
        base = cache_directory() / "choices" if directory is None else Path(directory)
        self.directory = base
        self._known: dict[str, Any] = {}
        self._told = False

    def get(self, key: str) -> Any:
        """Return the choice of `key`, or None where none was made."""
        if key in self._known:
            return self._known[key]
        record = self._read(self._path(key))
        if record is None or record["key"] != key:
            return None
        self._known[key] = record["choice"]
        return record["choice"]

    def set(self, key: str, choice: Any) -> None:
        """Keep a choice, of JSON's types, for this and later processes."""
        self._known[key] = choice
        text = json.dumps({"key": key, "choice": choice}, sort_keys=True)
        try:
            _write(self._path(key), text.encode())
        except OSError as error:
            _tell_unusable(self.directory, str(error))

    def items(self) -> dict[str, Any]:
        """Return every choice that is kept, those of other processes included."""
        found: dict[str, Any] = {}
        if self.directory.is_dir():
            for path in sorted(self.directory.glob("*.json")):
                record = self._read(path)
                if record is not None:
                    found[record["key"]] = record["choice"]
        return found | self._known

    def _path(self, key: str) -> Path:
        return self.directory / (content_key(key)[:40] + ".json")

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            text = path.read_bytes()
        except OSError:
            return None
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("key"), str) and "choice" in record:
            return record
        if not self._told:
            self._told = True
            warnings.warn(
                message(
                    f"the tuning choice in {path} is damaged",
                    mend="nothing: it is made anew; where this repeats, look after the disk",
                ),
                CacheWarning,
                stacklevel=3,
            )
        return None


_opened: dict[tuple[type, Path], Any] = {}


def default_cache() -> DiskCache:
    """Return the cache in :func:`cache_directory`, one object a folder."""
    directory = cache_directory()
    cache: DiskCache = _opened.setdefault((DiskCache, directory), DiskCache(directory))
    cache.limit = cache_limit()
    return cache


def default_choices() -> Choices:
    """Return the choices kept in :func:`cache_directory`, one object a folder."""
    directory = cache_directory() / "choices"
    choices: Choices = _opened.setdefault((Choices, directory), Choices(directory))
    return choices
