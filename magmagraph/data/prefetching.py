"""Batches made ahead of time: a thread fills a queue while the program trains."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import DataError, message
from ..function.tensor import Tensor
from ..ir.docstrings import documented

__all__ = ["Prefetched", "prefetch"]

_END = object()


class _Failed:
    """An error that the thread met, on its way to the reader."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Prefetched:
    """An iterable whose members a thread makes ahead of time. Made by `prefetch`."""

    def __init__(
        self,
        source: Iterable[Any],
        depth: int,
        transform: Callable[[Any], Any] | None,
        device: str | None,
    ) -> None:
        self.source = source
        self.depth = depth
        self.transform = transform
        self.device = device

    def __repr__(self) -> str:
        return f"Prefetched({self.source!r}, depth={self.depth})"

    def __len__(self) -> int:
        """Return the number of members, where the source knows it."""
        return len(self.source)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass over the source, with a thread of its own."""
        return self._members(iter(self.source))

    def _members(self, members: Iterator[Any]) -> Iterator[Any]:
        line: queue.Queue[Any] = queue.Queue(self.depth)
        stop = threading.Event()
        thread = threading.Thread(
            target=self._fill, args=(members, line, stop), name="prefetch", daemon=True
        )
        thread.start()
        try:
            while True:
                member = line.get()
                if member is _END:
                    return
                if isinstance(member, _Failed):
                    raise member.error
                yield member
                del member  # its memory may be used again while the next one is waited for
        finally:
            # The reader may have left early: the thread must not wait for room for ever.
            stop.set()
            while thread.is_alive():
                try:
                    line.get_nowait()
                except queue.Empty:
                    thread.join(0.01)

    def _fill(
        self, members: Iterator[Any], line: queue.Queue[Any], stop: threading.Event
    ) -> None:
        try:
            for member in members:
                if stop.is_set():
                    return
                line.put(self._made(member))
                del member
            line.put(_END)
        except BaseException as error:  # to be raised where the members are read
            line.put(_Failed(error))

    def _made(self, member: Any) -> Any:
        made = member if self.transform is None else self.transform(member)
        if self.device is None:
            return made
        return _brought(made, self.device)


@documented
def prefetch(
    source: Iterable[Any],
    depth: int = 2,
    *,
    transform: Callable[[Any], Any] | None = None,
    device: str | None = None,
) -> Prefetched:
    """Make the members of an iterable ahead of time, in a thread.

    source (iterable): `batches`, or anything that is gone through once or again and again.
    depth (int): How many members may wait: memory is bounded by as many, one in the making and one
        in use.
    transform (callable, optional): Applied to each member in the thread: decoding, scaling,
        augmentation by NumPy.
    device (str, optional): "cuda" or "cuda:1": arrays are copied to that device's memory by the
        thread, as `mg.Tensor`.
    returns (Prefetched): An iterable over the same members, in the same order.
    raises DataError: If `depth` is not positive, or the source cannot be gone through.
    raises DeviceError: If there is no such device.

    Notes
    -----
    An error in the source or the transform is raised at its place in the order. The thread ends
    with the iteration, also where that is left early.

    >>> rows = mg.data.batches([1.0, 2.0, 3.0], size=2, shuffle=False)
    >>> [x.tolist() for x, in mg.data.prefetch(rows, transform=lambda batch: (batch[0] * 10.0,))]
    [[10.0, 20.0], [30.0]]
    """
    if not isinstance(depth, (int, np.integer)) or isinstance(depth, bool) or depth < 1:
        raise DataError(message(f"prefetch: depth={depth!r}", need="an int of at least 1"))
    if not isinstance(source, Iterable):
        raise DataError(
            message(f"prefetch: {type(source).__name__} cannot be gone through", need="an iterable")
        )
    if device is not None:
        device = _checked(device)
    return Prefetched(source, int(depth), transform, device)


def _checked(device: str) -> str | None:
    """Return a CUDA device's name, None for the host; raise where there is no such device."""
    family, _, number = device.partition(":")
    if family == "cpu":
        return None
    if family != "cuda" or (number and not number.isdigit()):
        raise DataError(message(f"prefetch: device={device!r}", need="'cpu', 'cuda' or 'cuda:1'"))
    Tensor.of(np.zeros(1, np.float32), "device", int(number or 0))
    return device


def _brought(member: Any, device: str) -> Any:
    """Return the arrays of a member in a device's memory, in the same form."""
    if isinstance(member, tuple):
        return tuple(_brought(part, device) for part in member)
    if isinstance(member, dict):
        return {name: _brought(part, device) for name, part in member.items()}
    if isinstance(member, np.ndarray):
        return Tensor.of(member, "device", int(device.partition(":")[2] or 0))
    return member
