"""Find the devices that work, and the fastest of several graphs on a device.

Passes and the runtime are imported in functions, as a program that only imports the package is not
to wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..ir import dims
from ..ir.communicator import Communicator
from ..ir.docstrings import documented
from ..ir.graph import Graph, Trace
from .arguments import resolved_device


def replace_threads(count: int | None) -> int | None:
    """Set the threads of kernels and BLAS, and return what was set before; None is the default."""
    from ..runtime.cpu.threads import replace_threads as replace

    return replace(count)


@documented
def synchronize(device: str = "auto") -> None:
    """Wait until a device has done all that was asked of it; a CPU's calls return done.

    device: As for `function`.
    raises DeviceError: There is no such device.

    >>> mg.synchronize("cpu")
    """
    from ..runtime.execute import synchronize as wait

    wait(usable(device))


def device_arrays(number: int) -> Any:
    """Return what `mg.Tensor` makes arrays of a CUDA device with, or raise `DeviceError`."""
    from ..runtime.execute import arrays

    return arrays(number)


def array_type(device: str) -> type:
    """Return the type of the arrays that a device's plans read where these are."""
    if device == "cpu":
        return np.ndarray
    from ..runtime.execute import array_type as of_device

    return of_device()


def usable(device: str) -> str:
    """Return the full name of a device that works here, or raise `DeviceError`."""
    from ..runtime.execute import best
    from ..runtime.execute import usable as named

    name = resolved_device(device)
    return best() if name == "auto" else named(name)


def chosen_by_first(
    world: Communicator,
    choose: Any,
    key: str,
    candidates: Mapping[str, Graph],
    hints: Mapping[str, int],
) -> str:
    """Return what rank 0 chooses, on every rank."""
    return str(world.from_first(choose(key, candidates, hints) if world.rank == 0 else None))


def choose_fastest(
    key: str, candidates: Mapping[str, Graph], hints: Mapping[str, int], device: str = "cpu"
) -> str:
    """Return the fastest of some graphs: a pass asks, the runtime measures, once per machine."""
    from ..passes import pipeline
    from ..passes.lowering.bind import bind
    from ..passes.lowering.buffers import UNKNOWN_EXTENT
    from ..runtime.target import target_of
    from ..runtime.trial import fastest

    target = replace(target_of(device), spread=0, alignment=64)

    def planned(graph: Graph) -> Any:
        options = pipeline.Options.make(
            target=target, hints=dict(hints), tuning=False
        )
        first = next(i for i, record in enumerate(pipeline.DEFAULT) if record.name == "fuse")
        plan, _ = pipeline.run(graph, Trace(), passes=pipeline.DEFAULT[first:], options=options)
        extents = [slot.size for slot in plan.slots]
        for node in graph.nodes:
            for value in node.attrs.values():
                extents += [e for e in (value if type(value) is tuple else (value,))
                            if isinstance(e, dims.Dim)]  # fmt: skip
        unknown = {name for extent in extents for name in dims.names(extent)}
        return bind(plan, {**dict.fromkeys(unknown, UNKNOWN_EXTENT), **hints}, target)

    makers = {name: partial(planned, graph) for name, graph in candidates.items()}
    return fastest(key, makers, device)
