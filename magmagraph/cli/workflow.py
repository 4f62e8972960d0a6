"""Run a workflow file on the ranks of the job, or check one.

A workflow is a TOML file of modules, Python functions and programs, with what they need and what
they wait for: ``mpiexec -n 5 magmagraph workflow run FILE``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from . import tables

EXECUTORS = ("serial", "process", "mpi", "dask")


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    run = parts.add_parser("run", help="run it; the status is 1 if a module fails")
    run.add_argument("file", metavar="FILE.toml")
    run.add_argument("--folder", metavar="PATH", help="of what modules write")
    run.add_argument("--executor", choices=EXECUTORS, help="what runs modules")
    run.add_argument("--workers", type=int, metavar="N", help="how many modules run at once")
    run.add_argument("--csv", metavar="PATH", help="write what ran as a table")
    run.add_argument("--json", metavar="PATH", help="write what ran as JSON")
    run.add_argument("-o", "--output", metavar="PATH.svg", help="draw what ran where and when")
    check = parts.add_parser("check", help="check the file and show its modules")
    check.add_argument("file", metavar="FILE.toml")
    check.add_argument("-n", "--workers", type=int, metavar="N", help="also whether N workers do")


def run(chosen: argparse.Namespace) -> int:
    """Run or check the file."""
    return _check(chosen) if chosen.part == "check" else _run(chosen)


def _run(chosen: argparse.Namespace) -> int:
    # Here, as other commands are not to wait for these imports.
    from ..errors import ConfigError
    from ..ir.ranks import current
    from ..workflow import WorkflowError
    from ..workflow import run as run_workflow

    error = None
    try:
        result = run_workflow(
            Path(chosen.file), chosen.folder, executor=chosen.executor, workers=chosen.workers
        )
    except ConfigError:  # the same on all ranks: nothing has started
        if current().rank:
            return 0  # rank 0 speaks: a status here could end it before it has
        raise
    except WorkflowError as failed:
        if failed.result is None:
            raise
        error, result = failed, failed.result
    if current().rank:
        return 0  # rank 0 speaks for all
    for path, write in (
        (chosen.csv, result.to_csv),
        (chosen.json, result.to_json),
        (chosen.output, result.timeline),
    ):
        if path:
            write(path)
    print(result.summary())
    tables.show(result.rows(), left=(0, 3, 4, 7))
    if error is not None:
        raise error
    return 0 if result.ok else 1


def _check(chosen: argparse.Namespace) -> int:
    from ..workflow import read

    workflow = read(Path(chosen.file))
    if chosen.workers:
        workflow.check_workers(chosen.workers)
    rows = [("module", "what", "after", "processes", "copies", "iterations")]
    rows += [
        (
            module.name,
            module.function or " ".join(module.command),
            ", ".join(module.after),
            str(module.processes),
            str(module.copies),
            str(module.iterations),
        )
        for module in workflow.modules.values()
    ]
    tables.show(rows, left=(0, 1, 2))
    least = workflow.least_workers
    workers = "1 worker" if least == 1 else f"{least} workers"
    print(f"{workflow.source} is in order; it needs {workers} at least")
    return 0
