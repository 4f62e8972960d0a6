"""Building the libraries that no program changes, when the package is installed.

This module and those that it imports need Python's own library alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...files.trust import temporary_place
from ...ir.cores import allowed_cores
from ..keys import content_key
from .sources import Fixed, fixed_sources
from .toolchain import (
    BASE_FLAGS,
    INDEX,
    VARIANTS,
    Compiler,
    end_run,
    find_command,
    library_key,
    machine,
    machine_flags,
    portable_key,
    probe_key,
    question,
    start_run,
    told,
)

__all__ = ["build", "build_portable"]


def build_portable(
    folder: Path, seconds: float, regions: Sequence[Mapping[str, Any]] = ()
) -> int:
    """Build libraries that do not depend on this processor, and return how many.

    For wheels that are given away: each library once for each variant of this kind of machine,
    of which the one that reads them takes the best that it can run.

    Parameters
    ----------
    folder, seconds
        As of `build`; what is not built in time raises, as a wheel is whole or is not.
    regions
        Libraries of generated kernels (packaging/common_regions.py): the "source", its "level",
        and the "keys" of the kernels that are in it.

    Raises
    ------
    LookupError
        Where no compiler works, none builds for a variant, or a library is missing at the end.
    """
    end = time.monotonic() + seconds
    command = find_command(os.environ.get("MAGMAGRAPH_CC", ""), os.environ.get("PATH", ""))
    variants = VARIANTS.get(platform.machine(), ())
    if not variants:
        raise LookupError(f"there are no variants for {platform.machine()}")
    fixed = list(fixed_sources())
    keys = {one.name: [portable_key("-O" + one.level, one.source)] for one in fixed}
    for number, region in enumerate(regions):
        fixed.append(Fixed(f"regions-{number}", region["source"], region["level"]))
        keys[fixed[-1].name] = region["keys"]
    record: dict[str, dict[str, dict[str, str]]] = {}
    count = 0
    for variant in variants:
        compiler = _asked(command, end, [variant.flags])
        built = _build_all(fixed, folder, compiler, f".{variant.name}", end)
        missing = [one.name for one in fixed if one.name not in built]
        if missing:
            raise LookupError(f"{command[0]} built no {', '.join(missing)} for {variant.name}")
        count += len(built)
        record[variant.name] = {key: built[name] for name in built for key in keys[name]}
    (folder / INDEX).write_text(json.dumps({"portable": record}, indent=1), encoding="utf-8")
    return count


def _build_all(
    sources: Iterable[Fixed], folder: Path, compiler: Compiler, suffix: str, end: float
) -> dict[str, dict[str, str]]:
    """Build sources, and return by name the file of each that was built, and its digest."""
    ordered = sorted(sources, key=lambda fixed: -len(fixed.source))
    built: dict[str, dict[str, str]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="magmagraph-", dir=temporary_place()) as scratch,
        ThreadPoolExecutor(max(1, allowed_cores())) as pool,
    ):
        contents = pool.map(lambda fixed: _made(compiler, fixed, Path(scratch), end), ordered)
        for fixed, data in zip(ordered, contents, strict=True):
            if data is None:
                continue
            name = f"{fixed.name}{suffix}.so"
            (folder / name).write_bytes(data)
            built[fixed.name] = {"file": name, "sha256": hashlib.sha256(data).hexdigest()}
    return built


def build(folder: Path, seconds: float) -> int:
    """Build what can be built into a folder, in bounded time, and return how many libraries.

    Parameters
    ----------
    folder : pathlib.Path
        Where they and their index are put; there is no index where nothing was built.
    seconds : float
        When these are over, what is not built yet is left out.

    Raises
    ------
    LookupError
        Where no compiler works; the text says why.
    OSError
        Where the folder cannot be written, or no process started.
    """
    end = time.monotonic() + seconds
    command = find_command(os.environ.get("MAGMAGRAPH_CC", ""), os.environ.get("PATH", ""))
    compiler = _asked(command, end, machine_flags())
    built = _build_all(fixed_sources(), folder, compiler, "", end)
    libraries = {
        library_key(compiler, "-O" + fixed.level, fixed.source): built[fixed.name]
        for fixed in fixed_sources()
        if fixed.name in built
    }
    if libraries:
        record = {
            "probe": probe_key(command),
            "compiler": {
                "command": list(command),
                "version": compiler.version,
                "flags": list(compiler.flags),
            },
            "machine": content_key(*machine()),
            "libraries": libraries,
        }
        (folder / INDEX).write_text(json.dumps(record, indent=1), encoding="utf-8")
    return len(libraries)


def _asked(
    command: tuple[str, ...], end: float, choices: Sequence[tuple[str, ...]]
) -> Compiler:
    """Return a compiler with the first flags of some that it takes."""
    for extra in choices:
        flags = BASE_FLAGS + extra
        try:
            done = subprocess.run(
                question(command, flags), stdin=subprocess.DEVNULL, capture_output=True,
                text=True, errors="replace", env=dict(os.environ, LC_ALL="C"),
                timeout=max(0.1, end - time.monotonic()),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise LookupError(str(error)) from None
        compiler = told(command, flags, done)
        if compiler is not None:
            return compiler
    raise LookupError(f"{command[0]} is no C compiler that can be used")


def _made(compiler: Compiler, fixed: Fixed, scratch: Path, end: float) -> bytes | None:
    """Return a library, or None where it cannot be built, or not in time."""
    if time.monotonic() > end:
        return None
    place = scratch / fixed.name
    place.mkdir()
    file = place / fixed.name
    file.with_name(fixed.name + ".c").write_text(fixed.source, encoding="utf-8")
    process = start_run(compiler, "-O" + fixed.level, str(file), fixed.source)
    try:
        process.communicate(timeout=max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_run(process)
    return None if process.returncode else file.with_name(fixed.name + ".so").read_bytes()
