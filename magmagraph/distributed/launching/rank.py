"""The process of one rank under the launcher: runs the program, and tells how that ended.

Started by ``mpiexec`` as ``python -m magmagraph.distributed.launching.rank``; what it is to do
comes over its line.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import importlib
import importlib.util
import os
import pickle
import runpy
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from ...errors import CommunicationError, message
from ...ir import launchers
from ...runtime import watch
from . import processes
from .line import LARGEST, MAIN, READING, Line, enter, split_address

__all__ = ["number_of_rank"]

_WORD = 10.0  # seconds that a rank that has failed waits for the launcher's word


def number_of_rank() -> int:
    """Return this process's rank as its starter has written it into the environment, 0 if not."""
    return launchers.rank() or 0


def main() -> None:
    """Run the program of the launcher."""
    host, port, token, folder = split_address(os.environ["MAGMAGRAPH_LAUNCH"])
    rank = number_of_rank()
    if folder:
        try:
            _redirect(folder, rank)
        except OSError:  # the launcher has ended, and its folder or the readers of its pipes
            os._exit(1)
    if rank:  # rank 0 has the launcher's; that of the others never ends
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.enable()
    about = {"process": os.getpid(), "host": socket.gethostname()}
    try:
        line, program = enter(host, port, token, rank, about)
    except OSError as error:
        sys.stderr.write(f"magmagraph: rank {rank} has no launcher: {error}\n")
        os._exit(1)
    ended = threading.Event()
    threading.Thread(
        target=_listen, args=(line, ended), name="magmagraph-line", daemon=True
    ).start()
    watch.attend(line.send)
    result = None
    outcome: dict[str, Any] = {"done": True}
    try:
        result = _run(program)
    except SystemExit as stop:
        outcome = _left(stop)
    except BaseException as error:
        outcome = _failed(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or full: it is too late to care
            stream.flush()
    ended.set()
    try:
        if result is None:
            line.send(outcome)
        else:
            line.send_whole(outcome, "result", result)
    except OSError:  # the launcher is gone, and its word will not come
        os._exit(1)
    if "done" not in outcome:
        # What hangs on the exit of an interpreter (MPI's own end, threads) is not waited for.
        time.sleep(_WORD)
        os._exit(outcome["status"])


def _redirect(folder: str, rank: int) -> None:
    """Write into pipes of one's own: what goes through mpiexec is mixed with the others'."""
    for descriptor, name in ((1, "out"), (2, "err")):
        # Without a reader this is an error, where a blocking call would wait for one for ever.
        pipe = os.open(os.path.join(folder, f"{rank}.{name}"), os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(pipe, True)
        os.dup2(pipe, descriptor)
        os.close(pipe)


def _listen(line: Line, ended: threading.Event) -> None:
    """Leave at the launcher's word, or when it is gone; tell the stack when asked."""
    while True:
        received = line.receive()
        if received is None and ended.is_set():
            return
        if received is None:
            # The launcher was killed. Nobody else is left to end what this rank has started, or
            # another rank that hears nothing.
            processes.kill(processes.of_job(os.environ["MAGMAGRAPH_LAUNCH"]) or [])
            os._exit(1)
        if "end" in received:
            os._exit(int(received["end"]))
        if "stack" in received:
            frame = sys._current_frames().get(threading.main_thread().ident or 0)
            stack = "".join(_own_part(traceback.format_stack(frame)))
            line.send({"stack": stack, "where": watch.where()})


def _own_part(lines: list[str]) -> list[str]:
    """Return the lines of a stack that come after the launcher's own."""
    last = max((i for i, text in enumerate(lines) if _is_ours(text)), default=-1)
    return lines[last + 1 :] or lines


def _is_ours(text: str) -> bool:
    return f'"{__file__}"' in text or "<frozen runpy>" in text


def _run(program: dict[str, Any]) -> str | None:
    """Run a script or a function; return the result of a function, packed as text."""
    if "script" in program:
        sys.argv = [program["script"], *program["arguments"]]
        sys.path.insert(0, os.path.dirname(os.path.abspath(program["script"])))
        runpy.run_path(program["script"], run_name="__main__")
        return None
    if "module" in program:
        sys.argv = [program["module"], *program["arguments"]]
        sys.path.insert(0, os.getcwd())  # as for python -m, which this stands for
        runpy.run_module(program["module"], run_name="__main__", alter_sys=True)
        return None
    sys.path[:] = program["path"]
    READING.append(program["of"])
    function = _function(program["of"], program["file"], program["function"])
    READING.clear()
    positional, named = pickle.loads(base64.b64decode(program["with"]))
    result = function(*positional, **named)
    packed = base64.b64encode(pickle.dumps(result)).decode()
    if len(packed) > LARGEST:
        raise CommunicationError(
            message(
                f"the result of {program['function']} has {len(packed)} bytes, packed",
                need=f"at most {LARGEST}",
                hint="write it to a file, and return the path",
            )
        )
    return packed


def _function(module: str, file: str | None, name: str) -> Callable[..., Any]:
    if module == "__main__":
        spec = importlib.util.spec_from_file_location(MAIN, file)
        assert spec is not None
        assert spec.loader is not None
        imported = importlib.util.module_from_spec(spec)
        sys.modules[MAIN] = sys.modules["__main__"] = imported
        spec.loader.exec_module(imported)
    else:
        imported = importlib.import_module(module)
    value: Any = imported
    for part in name.split("."):
        value = getattr(value, part)
    function: Callable[..., Any] = value
    return function


def _left(stop: SystemExit) -> dict[str, Any]:
    """Return what is told of a `sys.exit`: status 0 is an end as any other."""
    status = stop.code
    if status is None or status == 0:
        return {"done": True}
    if not isinstance(status, int):
        print(status, file=sys.stderr)
    return {
        "failed": "SystemExit",
        "text": f"sys.exit({status!r})",
        "where": watch.line_of(stop.__traceback__),
        "trace": "",
        "status": status & 0xFF or 1 if isinstance(status, int) else 1,
    }


def _failed(error: BaseException) -> dict[str, Any]:
    trace = error.__traceback__
    while trace is not None and _is_ours(f'"{trace.tb_frame.f_code.co_filename}"'):
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename == "<frozen runpy>":
        trace = trace.tb_next
    error.__traceback__ = trace
    where = watch.line_of(trace)
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    return {
        "failed": type(error).__name__,
        "text": str(error),
        "where": where,
        "trace": _trace(error),
        "status": 130 if isinstance(error, KeyboardInterrupt) else 1,
    }


def _trace(error: BaseException) -> str:
    """Return the traceback, without the error itself where it is told of no other beside it."""
    context = None if error.__suppress_context__ else error.__context__
    if error.__cause__ is not None or context is not None or isinstance(error, SyntaxError):
        return "".join(traceback.format_exception(error))
    lines = traceback.format_tb(error.__traceback__)
    return "".join(["Traceback (most recent call last):\n", *lines]) if lines else ""


if __name__ == "__main__":
    main()
