"""Executors by name: what runs the trials of a search, the modules of a workflow, or any call.

All are a `concurrent.futures.Executor`. A call whose worker dies fails with `BrokenExecutor`; the
executors of this module can be used after that, except MPI's, whose library ends the job.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any, TypeVar

from .errors import ConfigError, message
from .ir.cores import allowed_cores
from .ir.launchers import is_started
from .ir.ranks import current

__all__ = ["Processes", "Serial", "executor_of", "has_died", "workers_of"]

T = TypeVar("T")

# Numerical libraries read these when they are loaded, before any code of ours.
_THREADS = ("MAGMAGRAPH_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SAFE_PATH = "PYTHONSAFEPATH"  # what -P sets: no folder of the program is put first


class Serial(Executor):
    """Runs each call when it is submitted, in the thread that submits it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function, and return a future that is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes(ThreadPoolExecutor):
    """Processes of this machine, each replaced by itself when it dies.

    `ProcessPoolExecutor` and loky give up all calls of a pool in which one process dies. Here each
    thread of a pool of threads owns a `ProcessPoolExecutor` of one process.

    workers: How many processes.
    threads: Threads of numerical libraries in each; an equal part of the cores unless given.
    timeout: Seconds after which a call's process is ended; the call raises TimeoutError.
    prepare: Called in each process before its first call, for which no time is counted.
    """

    def __init__(
        self,
        workers: int,
        *,
        threads: int | None = None,
        timeout: float | None = None,
        prepare: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(workers, "magmagraph process")
        self.timeout = timeout
        self._prepare = prepare
        self._each = threads or max(1, allowed_cores() // workers)
        self._own = threading.local()
        self._starting = threading.Lock()
        self._pools: dict[ProcessPoolExecutor, int] = {}  # with the process of each
        self._killed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call in the first process that is free; return a future of its result."""
        return super().submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and end the processes when those that were taken have ended."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        for pool in list(self._pools):
            pool.shutdown(wait)

    def kill(self) -> None:
        """End all processes at once, and drop the calls that wait."""
        with self._starting:
            self._killed = True
            for pool in list(self._pools):
                self._end(pool)
        self.shutdown(cancel_futures=True)

    def _call(self, fn: Callable[..., T], args: Any, kwargs: Any) -> T:
        pool = getattr(self._own, "pool", None) or self._start()
        future = pool.submit(fn, *args, **kwargs)
        try:
            return future.result(self.timeout)
        except BrokenExecutor:
            process = self._end(pool)
            raise BrokenExecutor(
                f"the process {process} that ran it was killed, or ended itself; a system without "
                "memory kills processes"
            ) from None
        except TimeoutError:
            if future.done():  # the call's own error
                raise
            self._end(pool)
            raise TimeoutError(f"it was ended after timeout={self.timeout:g} s") from None

    def _start(self) -> ProcessPoolExecutor:
        safe_path = os.environ.get(_SAFE_PATH)
        # Python starts without the modules of the current folder; those of this process follow.
        changes = {**dict.fromkeys(_THREADS, str(self._each)), _SAFE_PATH: "1"}
        with self._starting:
            if self._killed:
                raise BrokenExecutor("the executor was ended")
            with _environment(changes):  # of the process that tracks resources, too
                context = multiprocessing.get_context("spawn")
                pool = ProcessPoolExecutor(1, context, _begin_worker, (safe_path,))
                first = pool.submit(_first_call, self._prepare)
        try:
            self._pools[pool] = first.result()
        except BrokenExecutor:
            pool.shutdown()
            raise ConfigError(
                message(
                    "a process ended before its first call",
                    need="a program whose file can be imported without running it again",
                    hint='if __name__ == "__main__": in front of what the program does',
                )
            ) from None
        self._own.pool = pool
        return pool

    def _end(self, pool: ProcessPoolExecutor) -> int:
        """End the process of a pool, and return its number; the next call starts another one."""
        process = self._pools.pop(pool, 0)
        if getattr(self._own, "pool", None) is pool:
            del self._own.pool
        if process:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        pool.shutdown(wait=False, cancel_futures=True)
        return process


@contextmanager
def executor_of(spec: Any, workers: int | None = None, **options: Any) -> Iterator[Executor | None]:
    """Open an executor, and close it at the end unless it was given.

    spec (str or Executor or distributed.Client): "serial"; "process" or "processes",
        processes of this machine; "mpi", the ranks of ``mpiexec``, of which rank 0 gets the
        executor and the others run what it submits, until it closes, and get None (without
        ``mpiexec``, processes that MPI starts);
        "dask", a cluster of this machine, or the scheduler whose ``address=`` is given; the address
        of a scheduler itself, such as ``"tcp://10.0.0.1:8786"``; a client of Dask, or an executor,
        which stay open.
    workers (int, optional): How many processes; the cores of this machine unless given.
    **options: Of "process": `threads`, `timeout` and `prepare` (see `Processes`). Of "dask": those
        of ``distributed.Client``.
    raises ConfigError: There is no such executor, or its library is not installed.

    Yields
    ------
    Executor or None

    Examples
    --------
    >>> from magmagraph.executors import executor_of
    >>> with executor_of("serial") as executor:
    ...     executor.submit(pow, 2, 10).result()
    1024
    """
    count = workers or allowed_cores()
    if isinstance(spec, Executor):
        yield spec
    elif spec == "serial":
        yield Serial()
    elif spec in ("process", "processes"):
        pool = Processes(count, **options)
        try:
            yield pool
        except BaseException:
            pool.kill()
            raise
        pool.shutdown()
    elif spec == "mpi":
        with _ranks(count) as executor:
            yield executor
    elif spec == "dask" or (isinstance(spec, str) and "://" in spec):
        address = options.pop("address", None) if spec == "dask" else spec
        with _dask(address, count, options) as client:
            yield client.get_executor(pure=False)
    elif type(spec).__module__.partition(".")[0] == "distributed":
        yield spec.get_executor(pure=False)
    else:
        raise ConfigError(
            message(
                f"executor={spec!r}",
                need='"serial", "process", "mpi", "dask", the address of a scheduler of Dask, '
                "or an Executor",
            )
        )


def workers_of(executor: Executor) -> int:
    """Return how many calls an executor runs at once; the cores of this machine if unknown."""
    client = getattr(executor, "_client", None)
    if client is not None:  # Dask's
        return max(1, sum(map(int, client.nthreads().values())))
    if isinstance(executor, Serial):
        return 1
    return int(getattr(executor, "_max_workers", None) or allowed_cores())


def has_died(error: BaseException) -> bool:
    """Return whether an error of a future says that its worker died."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"  # Dask's


@contextmanager
def _ranks(count: int) -> Iterator[Executor | None]:
    try:
        futures: Any = importlib.import_module("mpi4py.futures")  # optional
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
        raise _missing("mpi", f"mpi4py ({error})") from None
    if is_started():
        current()  # all ranks make the communicator together, before some of them serve
        with futures.MPICommExecutor() as executor:
            yield executor
        return
    # MPI starts processes by programs that it finds on the path, and ends this one without them.
    path, here = os.environ.get("PATH", ""), str(Path(sys.executable).parent)
    with _environment({"PATH": path if shutil.which("mpiexec") else f"{path}{os.pathsep}{here}"}):
        if shutil.which("mpiexec") is None:
            raise ConfigError(
                message(
                    'executor="mpi": there is no mpiexec on the path',
                    hint="mpiexec -n 4 python ..., or pip install 'magmagraph[mpi]'",
                )
            )
        with futures.MPIPoolExecutor(count, path=sys.path) as executor:
            yield executor


@contextmanager
def _dask(address: str | None, count: int, options: dict[str, Any]) -> Iterator[Any]:
    try:
        distributed: Any = importlib.import_module("distributed")  # optional
        cluster_of, client_of = distributed.LocalCluster, distributed.Client
    except (ImportError, AttributeError):
        raise _missing("dask", "distributed") from None
    if address is not None:
        with client_of(address, **options) as client:
            yield client
        return
    settings = {
        "n_workers": count, "threads_per_worker": 1, "dashboard_address": None,
        # Without a dashboard it still opens a port, and warns if another cluster has that.
        "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}, **options,
    }  # fmt: skip
    with cluster_of(**settings) as cluster, client_of(cluster) as client:
        yield client


def _missing(extra: str, library: str) -> ConfigError:
    return ConfigError(
        message(
            f'executor="{extra}" needs {library}, which cannot be imported',
            hint=f'pip install "magmagraph[{extra}]"',
        )
    )


def _begin_worker(safe_path: str | None) -> None:
    """Restore what a program of the worker is to find, and follow the process that started it."""
    os.environ.pop(_SAFE_PATH, None)
    if safe_path is not None:
        os.environ[_SAFE_PATH] = safe_path
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    threading.Thread(target=_follow_parent, daemon=True).start()


def _first_call(prepare: Callable[[], Any] | None) -> int:
    if prepare is not None:
        prepare()
    return os.getpid()


def _follow_parent() -> None:
    """End with the parent, however that ends: nobody would take the result of this call."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
