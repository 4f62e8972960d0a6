"""`Function.run` where a device takes all steps at once: which plans, which rows, which results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.graph import Node
from .feeds import conform

if TYPE_CHECKING:
    from ..data.batching import Batches

__all__ = ["joined", "repeated", "run_batches", "stack"]

Bind = Callable[[tuple[tuple[int, ...], ...]], Any]  # gives the plan bound to shapes of feeds


def repeated(bind: Bind, count: int, feeds: Sequence[Any], stacked: bool) -> list[Any] | None:
    """Return the outputs of so many calls with the same feeds, or None where they need the host.

    bind: Gives the plan bound to shapes of feeds.
    count: At least one.
    feeds: Arrays that fit the inputs.
    stacked: Whether each output is stacked over the steps; otherwise they are the last step's.
    """
    bound = bind(tuple(tuple(array.shape) for array in feeds))
    if not _loops(bound):
        return None
    results: list[Any] = bound.repeat(count, feeds, None, stacked)
    return results


def run_batches(
    bind: Bind,
    inputs: Sequence[Node],
    batches: Batches,
    stacked: bool,
    strict: bool,
    resident: Callable[[Any, Sequence[Any]], Any],
) -> list[Any] | None:
    """Return the outputs of a call for each batch of an epoch, or None where they need the host.

    bind: Gives the plan bound to shapes of feeds.
    inputs: What is fed.
    batches: Of at least one batch, with an array for each input.
    stacked: Whether each output is stacked over the steps; otherwise they are the last step's.
    strict: Whether feeds must have the inputs' dtypes.
    resident: Brings arrays to the device for as long as their owner lives; None where they do not
        fit.
    """
    size, rows = batches.size, len(batches.arrays[0])
    arrays = [
        conform(array, node, strict) for array, node in zip(batches.arrays, inputs, strict=True)
    ]
    whole, rest = rows // size, 0 if batches.drop_last else rows % size
    parts = [
        (number, length, bind(tuple((length, *array.shape[1:]) for array in arrays)))
        for number, length in ((whole, size), (1, rest))
        if number and length
    ]
    if not all(_loops(bound) for _, _, bound in parts):
        return None
    data = resident(batches, arrays)
    if data is None:
        return None
    order = batches.begin()
    data.begin(order)
    collected = [
        bound.repeat(
            number, None, data, stacked, size=length, apart=size, shuffled=order is not None
        )
        for number, length, bound in parts
    ]
    batches.prepare()  # all is queued: the next epoch begins without that
    if not stacked:
        last: list[Any] = collected[-1]
        return last
    return [joined(pieces) for pieces in zip(*collected, strict=True)]


def _loops(bound: Any) -> bool:
    """Return whether a bound plan repeats its steps without the host."""
    looped = getattr(bound, "looped", None)
    return looped is not None and looped() is not None


def joined(stacks: Sequence[Any]) -> Any:
    """Return the steps of an output, stack after stack, or a list where shapes differ.

    Examples
    --------
    >>> joined([np.zeros((2, 3)), np.ones((1, 3))]).shape
    (3, 3)
    >>> [step.shape for step in joined([np.zeros((2, 3)), np.ones((1, 2))])]
    [(3,), (3,), (2,)]
    """
    first = stacks[0]
    if len(stacks) == 1:
        return first
    if any(other.shape[1:] != first.shape[1:] for other in stacks):
        return [step for stack_ in stacks for step in stack_]
    count = sum(map(len, stacks))
    place: Any = getattr(first, "device", None)  # CuPy puts new arrays on the current device
    with place if hasattr(place, "__enter__") else contextlib.nullcontext():
        result = type(first)((count, *first.shape[1:]), first.dtype)
        start = 0
        for part in stacks:
            result[start : start + len(part)] = part
            start += len(part)
    return result


def stack(steps: Sequence[Any]) -> Any:
    """Return an output of some steps as one array, or as a list where shapes differ.

    Examples
    --------
    >>> stack([np.float32(1), np.float32(2)])
    array([1., 2.], dtype=float32)
    """
    if any(step.shape != steps[0].shape for step in steps):
        return list(steps)
    if isinstance(steps[0], (np.ndarray, np.generic)):
        return np.stack(steps)
    return joined([step.reshape(1, *step.shape) for step in steps])
