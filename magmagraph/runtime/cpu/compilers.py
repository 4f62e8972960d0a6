"""Find the C compiler once, and cache the result. `toolchain` has its flags."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess

from ...errors import CompilerUnavailable, message
from ..cache import default_choices
from . import installed
from .toolchain import (
    BASE_FLAGS,
    TIMEOUT,
    Compiler,
    end_run,
    family_flags,
    find_command,
    machine,
    machine_flags,
    probe_key,
    question,
    told,
)

__all__ = [
    "TIMEOUT",
    "Compiler",
    "SourceRefused",
    "abandon",
    "expected",
    "find_compiler",
    "forget",
    "machine",
    "unavailable",
]


class SourceRefused(CompilerUnavailable):
    """The compiler works, and does not take a source.

    Parameters
    ----------
    text
        The message.
    errors
        What the compiler wrote.
    """

    def __init__(self, text: str, errors: str = "") -> None:
        super().__init__(text)
        self.errors = errors

    @property
    def first(self) -> str:
        """The compiler's first error, with the line of C that it shows."""
        lines = self.errors.splitlines()
        start = next((i for i, line in enumerate(lines) if "error:" in line), 0)
        shown = re.sub(r"^\S*/\w+\.c:", "kernel.c:", "\n".join(lines[start : start + 3]))
        return shown or self.errors


def unavailable(wrong: str) -> CompilerUnavailable:
    """Return the error for a compiler that fails, or that is missing."""
    return CompilerUnavailable(
        message(
            wrong,
            need="a C compiler that builds shared libraries (gcc or clang)",
            hint="install one (Debian: apt install gcc; conda: conda install gcc), or name it in "
            "MAGMAGRAPH_CC",
        )
    )


def find_compiler() -> Compiler:
    """Return the C compiler: ``MAGMAGRAPH_CC``, else the first of cc, gcc and clang.

    The compiler is run once to learn its version and the flags that it takes; the answer is kept
    on disk under its path, size and time of change. Where the package was installed with it, the
    answer is among what was installed.

    Raises
    ------
    CompilerUnavailable
        Where there is none, or it cannot be run; the text says why.
    """
    return _find(os.environ.get("MAGMAGRAPH_CC", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, search: str) -> Compiler:
    return _probe(_command(chosen, search))


def _command(chosen: str, search: str) -> tuple[str, ...]:
    try:
        return find_command(chosen, search)
    except LookupError as error:
        raise unavailable(str(error)) from None


def _probe(command: tuple[str, ...]) -> Compiler:
    key = probe_key(command)
    kept = _kept(command, key)
    if kept is not None:
        for question in [question for question in list(_asked) if question[0] == command]:
            asked = _asked.pop(question, None)  # another process was told first
            if asked is not None:  # and no thread beside this one has seen it
                end_run(asked)
        return kept
    reason = ""
    for extra in machine_flags():
        flags = BASE_FLAGS + extra
        asked = _asked.pop((command, flags), None)
        done = _answer(command, asked or _ask(command, flags))
        answer = told(command, flags, done)
        if answer is not None:
            default_choices().set(key, {"version": answer.version, "flags": list(answer.flags)})
            return answer
        reason = reason or done.stderr.strip()[-500:] or f"it ends with code {done.returncode}"
    raise unavailable(f"{shlex.join(command)} is no C compiler that can be used: {reason}")


def _kept(command: tuple[str, ...], key: str) -> Compiler | None:
    """Return the compiler as an earlier process, or the installation, found it to be."""
    for kept in (installed.compiler(key), default_choices().get(key)):
        if not isinstance(kept, dict):
            continue
        version, flags = kept.get("version"), kept.get("flags")
        if not isinstance(version, str) or not isinstance(flags, list):
            continue
        if all(isinstance(flag, str) for flag in flags):
            return Compiler(command, version, tuple(flags))
    return None


def expected() -> tuple[Compiler, bool]:
    """Return the compiler, and whether that is known: else as it most likely is.

    What it is, it is asked meanwhile: `find_compiler` takes the answer.
    """
    command = _command(os.environ.get("MAGMAGRAPH_CC", ""), os.environ.get("PATH", ""))
    if _kept(command, probe_key(command)) is not None:
        return find_compiler(), True
    flags = BASE_FLAGS + machine_flags()[0]
    if (command, flags) not in _asked:
        _asked[command, flags] = _ask(command, flags)
    clang = "clang" in os.path.basename(os.path.realpath(command[0]))
    return Compiler(command, "", flags + family_flags(clang)), False


_asked: dict[tuple[tuple[str, ...], tuple[str, ...]], subprocess.Popen[str]] = {}


def _ask(command: tuple[str, ...], flags: tuple[str, ...]) -> subprocess.Popen[str]:
    """Ask the compiler for its version, and whether it accepts the flags."""
    try:
        return subprocess.Popen(
            question(command, flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(os.environ, LC_ALL="C"),
            start_new_session=True,
        )
    except OSError as error:
        raise unavailable(f"{command[0]} cannot be run: {error}") from error


def _answer(
    command: tuple[str, ...], asked: subprocess.Popen[str]
) -> subprocess.CompletedProcess[str]:
    try:
        said, errors = asked.communicate(timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise unavailable(f"{command[0]} cannot be run: {error}") from error
    finally:
        end_run(asked)
    return subprocess.CompletedProcess(command, asked.returncode, said, errors)


def abandon() -> None:
    """End compiler queries whose answers were not read."""
    while _asked:
        end_run(_asked.popitem()[1])


def forget() -> None:
    """In a forked child: the questions are the parent's."""
    _asked.clear()
