"""Running a function without consequences: on the caller's feeds, with every variable put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import NonFiniteError
from ...function.feeds import bind_sizes, conform
from ...ops.control.observing import muted


@dataclass(frozen=True)
class Feeds:
    """The feeds of a call, bound to the plan that would run it.

    arrays: An array for each input, in order.
    sizes: The size of each named dimension.
    bound: The bound plan.
    """

    arrays: list[np.ndarray]
    sizes: dict[str, int]
    bound: Any


def bind(function: Any, feeds: Sequence[Any], named: Mapping[str, Any]) -> Feeds:
    """Return feeds as a call would take them, the function compiled for them."""
    values = function._signature.arrange(feeds, named)
    arrays = [
        _host(conform(value, node, function.strict_feeds))
        for value, node in zip(values, function.inputs, strict=True)
    ]
    shapes = tuple(array.shape for array in arrays)
    sizes = bind_sizes(function.inputs, shapes, function.source_graph.constraints)
    with function._exclusive():
        return Feeds(arrays, sizes, function._specialize(shapes))


@contextlib.contextmanager
def kept_variables(function: Any) -> Iterator[None]:
    """Use a function alone, and put back what its variables held, whatever happens.

    Taps and asserts look away meanwhile.
    """
    with function._exclusive(), muted():
        states = [node.attrs["state"] for node in function.source_graph.variables]
        kept = [(state, state.data.copy(), state.version) for state in states]
        try:
            yield
        finally:
            for state, value, version in kept:
                state.write(value)
                state.version = version
                for copy in state.copies.values():
                    copy.version = -1  # what devices hold was made in between


def run_once(function: Any, feeds: Feeds) -> tuple[list[np.ndarray], str]:
    """Return the results of a call and the new values of variables, without a commit.

    The text is why there are none: the function refuses values that are not finite.
    """
    with kept_variables(function):
        try:
            results = [on_host(value) for value in feeds.bound.run(feeds.arrays)]
        except NonFiniteError as error:
            return [], str(error).splitlines()[0]
        updates = function.source_graph.updates
        return [*results, *(variable.attrs["state"].data.copy() for variable, _ in updates)], ""


def _host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else on_host(array)


def on_host(value: Any) -> np.ndarray:
    """Return a result as an unshared array on the host."""
    return np.array(value.get() if hasattr(value, "get") else value)
