"""Compare what two versions of the package make of the same programs.

``make replay BASE=<commit>`` runs every program of `replay_programs.py` with the package of that
commit and with the one of this checkout, and compares the graphs as written and as optimized, the
plans, the rewrites, the sources of the kernels, and the bits of results and variables after two
calls. A refactor changes none of these, or its author explains each difference.

The exit status is 0 where nothing differs, 1 where something does, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import traceback
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
ASPECTS = ("error", "source", "rewrites", "optimized", "plan", "kernels", "results")
LONGEST = 40  # lines of a difference that are printed
LIMIT = 1800  # seconds that one version may take for all programs


def record(folder: Path, device: str, only: str) -> None:
    """Write what the package that is imported makes of each program, a folder for each."""
    from replay_programs import PROGRAMS

    for name, build in PROGRAMS.items():
        if only not in name:
            continue
        place = folder / name
        place.mkdir()
        try:
            texts = _texts(build, device, place / "archive")
        except Exception:
            # The last line names the error; those before it name files of one of the two versions.
            texts = {"error": traceback.format_exc().splitlines()[-1] + "\n"}
        for aspect, text in texts.items():
            (place / aspect).write_text(text)
        print(name, flush=True)


def _texts(build: Any, device: str, archive: Path) -> dict[str, str]:
    """Return what there is to compare of one program, a text for each aspect."""
    function, feeds = build({"device": device})
    lines = []
    for call in range(2):
        lines += [f"call {call}: {line}" for line in _bits(function(*feeds))]
    function.save(archive)
    with zipfile.ZipFile(archive) as members:
        names = sorted(members.namelist())
        read = {name: members.read(name) for name in names}
    archive.unlink()
    variables = [name for name in names if name.startswith("variables/")]
    lines += [f"{name}: {hashlib.sha256(read[name]).hexdigest()}" for name in variables]
    kernels = sorted(
        (read[name].decode() for name in names if name.startswith("kernels/")),
        key=lambda text: hashlib.sha256(text.encode()).hexdigest(),
    )
    return {
        "source": read["source.txt"].decode(),
        "optimized": read["optimized.txt"].decode(),
        "plan": read["plan.txt"].decode(),
        "rewrites": _rewrites(json.loads(read["report.json"])),
        "kernels": "\n".join(kernels),
        "results": "\n".join([*lines, ""]),
    }


def _bits(results: Any) -> list[str]:
    """Return a line for each result: its dtype, its shape and a digest of its bytes."""
    listed = results if isinstance(results, (list, tuple)) else [results]
    lines = []
    for result in listed:
        array = result.get() if hasattr(result, "get") else result
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        lines.append(f"{array.dtype} {list(array.shape)} {digest}")
    return lines


def _rewrites(report: Any) -> str:
    """Return a report without the times that its passes took."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: timeless(v) for k, v in value.items() if "second" not in k and k != "time"}
        return [timeless(each) for each in value] if isinstance(value, list) else value

    return json.dumps(timeless(report), indent=1) + "\n"


def unpack(commit: str, folder: Path) -> None:
    """Write the package as it was at a commit."""
    made = subprocess.run(
        ["git", "archive", commit, "magmagraph"], cwd=ROOT, capture_output=True, check=False
    )
    if made.returncode:
        raise SystemExit(f"no such commit: {commit}\n{made.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as packed:
        packed.extractall(folder, filter="data")


def run(package: Path, folder: Path, device: str, only: str) -> None:
    """Record the programs in a process of its own that imports the package of a folder.

    Both versions share a new cache: what is compiled is kept by its source, and nothing that was
    chosen before has a say.
    """
    folder.mkdir()
    known = {k: v for k, v in os.environ.items() if not k.startswith("MAGMAGRAPH_")}
    environment = known | {
        "PYTHONPATH": os.pathsep.join([str(package), str(HERE.parent)]),
        "MAGMAGRAPH_CACHE_DIR": str(folder.parent / "cache"),
        "MAGMAGRAPH_TUNING": "0",  # trials would make plans depend on the hour
        "MAGMAGRAPH_THREADS": "2",
    }
    command = [sys.executable, "-P", str(HERE), "--record", str(folder), "--device", device]
    subprocess.run(
        [*command, "--only", only], env=environment, check=True, timeout=LIMIT,
        stdout=subprocess.DEVNULL,
    )


def differences(before: Path, after: Path) -> dict[str, dict[str, list[str]]]:
    """Return the lines that differ, by program and aspect."""
    names = sorted({p.name for folder in (before, after) for p in folder.iterdir()})
    found: dict[str, dict[str, list[str]]] = {}
    for name in names:
        for aspect in ASPECTS:
            old, new = (
                (folder / name / aspect).read_text() if (folder / name / aspect).exists() else ""
                for folder in (before, after)
            )
            if old != new:
                lines = difflib.unified_diff(
                    old.splitlines(), new.splitlines(), "before", "after", lineterm="", n=1
                )
                found.setdefault(name, {})[aspect] = list(lines)
    return found


def show(names: list[str], found: dict[str, dict[str, list[str]]]) -> None:
    """Print a line for each program, then the beginning of each difference."""
    for name in names:
        differing = ", ".join(found.get(name, ())) or "the same"
        print(f"{name:32}{differing}")
    for name, aspects in found.items():
        for aspect, lines in aspects.items():
            print(f"\n{name}, {aspect}:")
            print("\n".join(f"  {line}" for line in lines[:LONGEST]))
            if len(lines) > LONGEST:
                print(f"  ... {len(lines) - LONGEST} more lines")
    print(f"\n{len(names)} programs, {len(found)} differ")


def main() -> int:
    """Compare; or record, in the process that `run` starts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--only", default="", help="a part of a program's name")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.record is not None:
        record(chosen.record, chosen.device, chosen.only)
        return 0
    if not chosen.base:
        parser.error("a commit is expected: make replay BASE=HEAD~1")
    with tempfile.TemporaryDirectory(prefix="magmagraph-replay-") as temporary:
        folder = Path(temporary)
        unpack(chosen.base, folder / "package")
        run(folder / "package", folder / "before", chosen.device, chosen.only)
        run(ROOT, folder / "after", chosen.device, chosen.only)
        found = differences(folder / "before", folder / "after")
        names = sorted(p.name for p in (folder / "after").iterdir())
        if not names:
            parser.error(f"no program has {chosen.only!r} in its name")
        broken = [name for name in names if (folder / "after" / name / "error").exists()]
        show(names, found)
        for name in broken:
            print(f"{name} raised {(folder / 'after' / name / 'error').read_text().strip()}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
