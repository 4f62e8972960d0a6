"""Pipeline parallelism: every rank has some of the layers, and micro-batches pass through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ir.communicator import Communicator, Group
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.ranks import current
from ..ir.records import record
from ..ops.elementwise.arithmetic import add
from ..ops.leaf import Variable, constant
from .sharded_state import announcing, owned
from .strategies import Facts, Strategy, scaled_together
from .tensor import begin_alike, variables_of
from .tensor_walk import Pair

__all__ = ["Pipe", "PipelineParallel"]

SCHEDULES = ("gpipe", "1f1b")


@record(frozen=True, eq=False)
class Pipe:
    """What the pass is told of a pipeline.

    group, stages, stage: Axes of the mesh along which stages differ, how many there are, and which
        is this rank's.
    micro_batches, schedule, first: As of `PipelineParallel`.
    ranks: Those that have the stages.
    elsewhere: Noted here: states that other ranks renew, and which.
    """

    group: tuple[str, ...]
    stages: int
    stage: int
    micro_batches: int
    schedule: str
    first: tuple[str, ...]
    ranks: Communicator
    elsewhere: dict[Any, int]

    def own(self, held: Node) -> Node:
        """Return the variable that holds another one's value on this rank."""
        assert isinstance(held, Variable)
        return owned(held, self.ranks)

    def lives_on(self, held: Node, stage: int) -> None:
        """Note which stage has a variable's value."""
        if stage != self.stage:
            self.elsewhere[held.attrs["state"]] = stage


@documented
class PipelineParallel(Strategy):
    """Give each rank some of the layers; the batch passes through them in micro-batches.

    Layers are split so that the largest stage has as few parameters as can be. Each rank computes
    its stage for one micro-batch after the other, and sends what the next needs; backwards
    likewise. Gradients are sums over the micro-batches: a step's numbers are those of one process.

    micro_batches (int): Into how many parts of rows a batch is cut; their sizes may differ.
    schedule ({"1f1b", "gpipe"}): A stage does as soon as it can one micro-batch backward for each
        forward, and keeps activations of as many as there are stages behind it (D. Narayanan et
        al., "PipeDream", SOSP 2019); or all forward, and then all backward (Y. Huang et al.,
        "GPipe", NeurIPS 2019).
    stages (int, optional): How many; the ranks there are along the axis, unless said.
    first (sequence of str): Names of the variables that the second and later stages begin with, to
        split by hand.
    dim (str): Name of the rows' dimension.
    group (str or sequence of str, optional): Axes of the mesh along which stages differ: the axis
        ``stage`` where the mesh has one, all ranks otherwise.
    raises ConfigError: Where an option is not one of these. When a function is compiled,
        `ShardingError`: it has fewer layers than stages, or no output that the loss is found by.

    Notes
    -----
    All ranks are fed the same values, and return the same: the last stage's results are sent to
    the others. The outputs have to hold the loss. Variables start as rank 0's, and live where their
    layer is; who reads one fetches it, so that all ranks read together.

    >>> import numpy as np
    >>> def job():
    ...     x = mg.input("x", shape=("batch", 4))
    ...     v = mg.var("v", init=np.ones((4, 5), np.float32))
    ...     w = mg.var("w", init=np.ones((5, 6), np.float32))
    ...     pipeline = mg.distributed.PipelineParallel(micro_batches=2)
    ...     f = mg.function([x], mg.sum(x @ v @ w), distribute=pipeline)
    ...     return float(f(np.ones((3, 4), np.float32)))
    >>> mg.distributed.threads(2, job)
    [360.0, 360.0]
    """

    _own_axis = "stage"

    def __init__(
        self,
        micro_batches: int,
        schedule: str = "1f1b",
        *,
        stages: int | None = None,
        first: Sequence[str] = (),
        dim: str = "batch",
        group: Group | None = None,
    ) -> None:
        for name, value in (("micro_batches", micro_batches), ("stages", stages)):
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(message(f"{name}={value!r}", need="a number above 0"))
        if schedule not in SCHEDULES:
            raise ConfigError(
                message(f"schedule={schedule!r}", need=f"one of {', '.join(SCHEDULES)}")
            )
        if not isinstance(dim, str) or not dim.isidentifier():
            raise ConfigError(
                message(f"dim={dim!r}", need="the name of a dimension", hint="dim='batch'")
            )
        if isinstance(first, str) or not all(isinstance(name, str) for name in first):
            raise ConfigError(message(f"first={first!r}", need="a list of names of variables"))
        self.micro_batches, self.schedule, self.stages = micro_batches, schedule, stages
        self.first, self.dim, self.group = tuple(first), dim, group
        self._elsewhere: dict[Any, int] = {}

    def options(self) -> dict[str, Any]:
        """Return what it was made with, as plain values by the names of its arguments."""
        names = ("micro_batches", "schedule", "stages", "first", "dim", "group")
        return {name: getattr(self, name) for name in names}

    def _names(self) -> tuple[str, ...]:
        mesh = current().mesh
        group = self.group
        if group is None:
            group = "stage" if "stage" in mesh.axes else ()
        extent = mesh.extent(group)
        if self.stages not in (None, extent):
            raise ConfigError(
                message(
                    f"stages={self.stages}, and there are {extent} ranks along the pipeline",
                    need="a rank for each stage",
                    hint="mg.distributed.use(mg.distributed.Mesh(data=..., stage=...))",
                )
            )
        if self.first and extent > 1 and len(self.first) != extent - 1:
            raise ConfigError(
                message(
                    f"first={self.first!r} names {len(self.first)} variables",
                    need=f"one for each of {extent} stages but the first",
                )
            )
        return mesh.group(group)

    def pipe(self) -> Pipe | None:
        """Return what the pass is told; None where there is one stage."""
        names = self._names()
        ranks = current().group(names)
        if ranks.size == 1:
            return None
        return Pipe(
            names, ranks.size, ranks.rank, self.micro_batches, self.schedule, self.first, ranks,
            self._elsewhere,
        )  # fmt: skip

    def facts(self) -> Facts | None:
        """Return what the pass is told, for the ranks that there are."""
        pipe = self.pipe()
        if pipe is None:
            return None
        return Facts(dim=self.dim, group=(), size=1, pipeline=pipe)

    def shard(self) -> tuple[int, int]:
        """Return that each rank takes the whole of each batch."""
        return 0, 1

    def prepared(
        self, outputs: list[Node], updates: list[Pair]
    ) -> tuple[list[Node], list[Pair]]:
        """Return a program that counts its steps, so that ranks know what others have renewed."""
        pipe = self.pipe()
        if pipe is None:
            return outputs, updates
        begin_alike(variables_of(outputs, updates), pipe.ranks)
        if not updates:
            return outputs, updates
        steps, state = announcing(pipe.ranks)
        state.elsewhere = self._elsewhere = {}
        updates = scaled_together(updates, pipe.group, pipe.stages)
        return outputs, [*updates, (steps, add(steps, constant(1, dtype=np.int64)))]

    def __repr__(self) -> str:
        return f"PipelineParallel({self.micro_batches}, {self.schedule!r})"
