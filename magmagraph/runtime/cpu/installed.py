"""Libraries that were built when the package was installed: looked into before compiling.

They lie in a folder beside the package, or beside the file by which an editable installation names
it. Nothing is ever written there. What the installation built is found by the key that it has in
the disk cache, too: for another processor, compiler or source there is none, and it is compiled at
the first call as it would be without the folder. What came with a wheel is found by its source and
level, for the best of the wheel's variants that this processor runs, and needs no compiler.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config import is_on
from ...errors import CacheWarning, message
from ...files.trust import Untrusted, read_installed
from ..keys import content_key
from . import toolchain
from .toolchain import FOLDER, INDEX

__all__ = ["Installed", "compiler", "found", "is_portable", "library", "portable_library"]


@dataclass(frozen=True)
class Installed:
    """A folder of libraries.

    Attributes
    ----------
    folder
        Where it is.
    probe
        The key of the compiler that built them.
    compiler
        What that is: its command, version and flags.
    machine
        The key of the processor and C library that they are for.
    libraries
        By key, the name of the file and the digest of its content.
    portable
        Of a wheel for all processors of a kind: by variant, and then by key, the same.
    """

    folder: Path
    probe: str
    compiler: dict[str, Any]
    machine: str
    libraries: dict[str, tuple[str, str]]
    portable: dict[str, dict[str, tuple[str, str]]]

    @property
    def variant(self) -> str | None:
        """The best variant of the wheel that this processor runs."""
        here = [variant.name for variant in toolchain.variants_here()]
        return next((name for name in here if name in self.portable), None)

    def is_for_this_machine(self) -> bool:
        """Return whether it was built where it is read."""
        return self.machine == content_key(*toolchain.machine())


def found() -> Installed | None:
    """Return what was installed, or None: nothing was, or ``MAGMAGRAPH_INSTALLED`` is off."""
    return _found() if is_on("MAGMAGRAPH_INSTALLED") else None


def compiler(probe: str) -> dict[str, Any] | None:
    """Return the compiler's properties that were found at installation, or None."""
    there = found()
    return there.compiler if there is not None and there.probe == probe else None


def library(key: str) -> Path | None:
    """Return the file of a library, read and found undamaged, or None."""
    there = found()
    return None if there is None else _checked(there, there.libraries.get(key))


def is_portable() -> bool:
    """Return whether a wheel brought libraries that this processor runs."""
    there = found()
    return there is not None and there.variant is not None


def portable_library(flag: str, source: str) -> tuple[str, Path] | None:
    """Return key and file of a library that came with the wheel, for this processor, or None.

    Where the user names a compiler in ``MAGMAGRAPH_CC``, that one builds.
    """
    there = found()
    if there is None or not there.portable or os.environ.get("MAGMAGRAPH_CC", "").strip():
        return None
    variant = there.variant
    if variant is None:
        return None
    key = toolchain.portable_key(flag, source)
    path = _checked(there, there.portable[variant].get(key))
    return None if path is None else (f"{variant} {key}", path)


def _checked(there: Installed, entry: tuple[str, str] | None) -> Path | None:
    """Return a file of the folder that is undamaged, or None."""
    if entry is None:
        return None
    name, digest = entry
    path = there.folder / name
    try:
        if hashlib.sha256(read_installed(path)).hexdigest() == digest:
            return path
        wrong = "its content does not fit its checksum"
    except OSError as error:
        wrong = str(error)
    _tell_damaged(path, wrong)
    return None


@functools.lru_cache(maxsize=1)
def _found() -> Installed | None:
    for folder in _folders():
        try:
            text = read_installed(folder / INDEX)
        except Untrusted as error:
            _tell_damaged(Path(error.filename), error.strerror)
            continue
        except OSError:
            continue
        try:
            return _read(folder, json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError):
            _tell_damaged(folder / INDEX, "it is no index of libraries")
            return None
    return None


def _folders() -> Iterator[Path]:
    """Yield possible places of the folder: next to the package, and on Python's path."""
    yield Path(__file__).parents[3] / FOLDER
    for place in sys.path:
        if os.path.isabs(place):
            yield Path(place) / FOLDER


def _read(folder: Path, record: Any) -> Installed:
    def files(entries: Any) -> dict[str, tuple[str, str]]:
        return {
            str(key): (os.path.basename(entry["file"]), str(entry["sha256"]))
            for key, entry in entries.items()
        }

    if "portable" in record:
        portable = {str(name): files(entries) for name, entries in record["portable"].items()}
        return Installed(folder, "", {}, "", {}, portable)
    compiler = {name: record["compiler"][name] for name in ("command", "version", "flags")}
    libraries = files(record["libraries"])
    return Installed(folder, str(record["probe"]), compiler, str(record["machine"]), libraries, {})


@functools.lru_cache(maxsize=64)
def _tell_damaged(path: Path, wrong: str) -> None:
    warnings.warn(
        message(
            f"the installed file {path} cannot be used: {wrong}",
            need="the file as it was when magmagraph was installed",
            hint="install magmagraph again; until then what it holds is compiled when it is needed",
        ),
        CacheWarning,
        stacklevel=5,
    )
