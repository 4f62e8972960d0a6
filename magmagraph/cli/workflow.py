"""Run a workflow file on the ranks of the job, check one, or edit one on a page.

A workflow is a TOML file of modules, Python functions and programs, with what they need and what
they wait for: ``mpiexec -n 5 magmagraph workflow run FILE``.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

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
    run.add_argument("--page", action="store_true", help="show it live, until Ctrl-C")
    run.add_argument("--records", metavar="PATH", help="append a line of JSON for each change")
    edit = parts.add_parser("edit", help="edit the file on a page of this machine, until Ctrl-C")
    edit.add_argument("file", metavar="FILE.toml")
    for part in (run, edit):
        part.add_argument("--port", type=int, default=0, help="of the page; a free one by default")
    check = parts.add_parser("check", help="check the file and show its modules")
    check.add_argument("file", metavar="FILE.toml")
    check.add_argument("-n", "--workers", type=int, metavar="N", help="also whether N workers do")


def run(options: argparse.Namespace) -> int:
    """Run, check or edit the file."""
    return {"check": _check, "run": _run, "edit": _edit}[options.part](options)


def _run(options: argparse.Namespace) -> int:
    # Here, as other commands are not to wait for these imports.
    from ..errors import ConfigError, MagmagraphError
    from ..ir.ranks import current

    if current().rank:
        return _run_watched(options, None)
    with ExitStack() as stack:
        try:
            progress, calls = _watchers(options, stack)
        except (MagmagraphError, OSError) as error:  # a port, or the file of the records
            if current().size > 1:  # others wait for this rank
                current().abort(str(error))
            raise
        watch = (lambda record: [call(record) for call in calls]) if calls else None
        try:
            status = _run_watched(options, watch)
        except ConfigError:  # nothing has started
            raise
        except MagmagraphError as error:
            _keep(progress, False, str(error))
            raise
        _keep(progress, not status, "failed" if status else "done")
        return status


def _watchers(
    options: argparse.Namespace, stack: ExitStack
) -> tuple[Any, list[Callable[[Any], object]]]:
    """Open the page and the file of the records, and return what is called with records."""
    from ..errors import ConfigError
    from ..workflow.file import parse, text_of

    progress, calls = None, list[Callable[[Any], object]]()
    if options.records:
        from ..workflow.page import line_of

        file = open(options.records, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        stack.callback(file.close)
        calls.append(lambda record: file.write(line_of(record)))
    if options.page:
        from ..workflow.page import Page, Progress, served

        path = Path(options.file)
        with suppress(ConfigError):  # a file that is wrong is refused when it is run, by all ranks
            progress = Progress(parse(text_of(path), path))
        if progress is not None:
            address = stack.enter_context(served(Page(path, progress), options.port))
            print(f"page: {address}", flush=True)
            calls.append(progress)
    return progress, calls


def _keep(progress: Any, ok: bool, text: str) -> None:
    """Show the end of a workflow on its page until Ctrl-C."""
    if progress is not None:
        progress.end(ok, text)
        print("the page shows the end of it; Ctrl-C ends the page", flush=True)
        _until_interrupt()


def _until_interrupt() -> None:
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def _edit(options: argparse.Namespace) -> int:
    from ..workflow.page import Page, served

    page = Page(Path(options.file))
    page.read({})  # a file that cannot be read is refused here
    with served(page, options.port) as address:
        print(address, "open it in a browser of this machine; Ctrl-C ends it", sep="\n", flush=True)
        _until_interrupt()
    return 0


def _run_watched(options: argparse.Namespace, watch: Callable[[Any], object] | None) -> int:
    from ..errors import ConfigError
    from ..ir.ranks import current
    from ..workflow import WorkflowError
    from ..workflow import run as run_workflow

    error = None
    try:
        result = run_workflow(
            Path(options.file), options.folder, executor=options.executor, workers=options.workers,
            watch=watch,
        )  # fmt: skip
    except ConfigError:  # the same on all ranks: nothing has started
        if current().rank:
            return 0  # rank 0 prints: an exit status here could end it before it has
        raise
    except WorkflowError as failed:
        if failed.result is None:
            raise
        error, result = failed, failed.result
    if current().rank:
        return 0  # rank 0 prints for all
    for path, write in (
        (options.csv, result.to_csv),
        (options.json, result.to_json),
        (options.output, result.timeline),
    ):
        if path:
            write(path)
    print(result.summary())
    tables.show(result.rows(), left=(0, 3, 4, 7))
    if error is not None:
        raise error
    return 0 if result.ok else 1


def _check(options: argparse.Namespace) -> int:
    from ..workflow import read

    workflow = read(Path(options.file))
    if options.workers:
        workflow.check_workers(options.workers)
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
