"""Executors by name: what runs the modules of a workflow, and whatever else can be submitted."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from .errors import ConfigError, message
from .ir.cores import allowed_cores

__all__ = ["Serial", "executor_of"]

T = TypeVar("T")


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


@contextmanager
def executor_of(
    spec: str | Executor, workers: int | None = None, **options: Any
) -> Iterator[Executor | None]:
    """Open an executor, and close it at the end unless it was given.

    Parameters
    ----------
    spec
        "serial"; "process", processes of this machine; "mpi", the ranks of ``mpiexec``, of which
        rank 0 gets the executor and the others run what it submits, until it closes, and get None;
        "dask", a cluster of this machine; or an executor.
    workers
        How many processes; the cores of this machine unless given.
    **options
        For ``distributed.Client``, such as the ``address`` of a scheduler.

    Raises
    ------
    ConfigError
        There is no such executor, or its library is not installed.
    """
    count = workers or allowed_cores()
    if isinstance(spec, Executor):
        yield spec
    elif spec == "serial":
        yield Serial()
    elif spec == "process":
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
            yield pool
    elif spec == "mpi":
        with _library("mpi4py.futures", "mpi").MPICommExecutor() as ranks:
            yield ranks
    elif spec == "dask":
        settings: dict[str, Any] = {**options}
        if "address" not in options:  # TLS, as workers run whatever they are sent
            settings |= {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
            settings["security"] = True
        client = _library("distributed", "dask").Client(**settings)
        with client, client.get_executor() as cluster:
            yield cluster
    else:
        raise ConfigError(
            message(f"executor={spec!r}", need='"serial", "process", "mpi", "dask" or an Executor')
        )


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            message(f"{name} cannot be imported", hint=f"pip install 'magmagraph[{extra}]'")
        ) from None
