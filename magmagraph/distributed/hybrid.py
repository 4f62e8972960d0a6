"""Several strategies at once, each along its own axes of one mesh."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ConfigError, message
from ..ir.docstrings import documented
from ..ir.graph import Node
from ..ir.ranks import current
from .data_parallel import DataParallel
from .pipeline import PipelineParallel
from .strategies import Facts, Strategy
from .tensor_walk import Pair

__all__ = ["Hybrid"]


def _alone(strategy: Strategy) -> str:
    """Return the option of a strategy that does not go together with others; empty if none."""
    if isinstance(strategy, DataParallel):
        if strategy.asynchronous:
            return "algorithm='async'"
        if strategy.shard_optimizer:
            return "shard_optimizer=True"
    return ""


@documented
class Hybrid(Strategy):
    """Spread a function by several strategies, each over other axes of the mesh.

    Weights and layers are spread first, then rows: ``Hybrid(DataParallel(), TensorParallel())`` on
    ``Mesh(data=2, tensor=4)`` gives each of two groups half of every batch, and each rank of
    a group a quarter of the large matrices.

    *strategies (Strategy): At least one; at most one of them cuts rows. Axes named ``data``,
        ``tensor`` and ``stage`` are found by themselves, others are named by ``group=`` of each.
    raises ConfigError: One is no strategy, or two cut rows.

    >>> import numpy as np
    >>> def job():
    ...     x = mg.input("x", shape=("batch", 4))
    ...     w = mg.var("w", init=np.ones((4, 6), np.float32))
    ...     both = mg.distributed.Hybrid(
    ...         mg.distributed.DataParallel(), mg.distributed.TensorParallel(least=1))
    ...     f = mg.function([x], mg.sum(x @ w), distribute=both)
    ...     return float(f(np.ones((2, 4), np.float32)))
    >>> mg.distributed.threads(4, job, mesh=mg.distributed.Mesh(data=2, tensor=2))
    [96.0, 96.0, 96.0, 96.0]
    """

    def __init__(self, *strategies: Strategy) -> None:
        for strategy in strategies:
            if not isinstance(strategy, Strategy) or isinstance(strategy, Hybrid):
                raise ConfigError(
                    message(f"Hybrid is given {strategy!r}", need="strategies of mg.distributed")
                )
        kinds = [type(strategy) for strategy in strategies]
        if not kinds or len(set(kinds)) < len(kinds):
            raise ConfigError(
                message(f"Hybrid of {len(kinds)} strategies", need="at least one, of each kind one")
            )
        for strategy in strategies:
            wrong = _alone(strategy)
            if wrong:
                raise ConfigError(
                    message(
                        f"Hybrid is given DataParallel({wrong})",
                        need="one that sums gradients, and has whole optimizers",
                        hint="DataParallel as the only strategy, or without that",
                    )
                )
        micro = next((g for g in strategies if isinstance(g, PipelineParallel)), None)
        rows = next((g for g in strategies if isinstance(g, DataParallel)), None)
        if micro is not None and rows is not None:
            if rows.accumulate > 1:
                raise ConfigError(
                    message(
                        f"Hybrid cuts rows into micro-batches twice: accumulate={rows.accumulate} "
                        f"and micro_batches={micro.micro_batches}",
                        need="one of the two",
                        hint=f"PipelineParallel({rows.accumulate * micro.micro_batches}), and "
                        "accumulate= left out",
                    )
                )
            if rows.dim != micro.dim:
                raise ConfigError(
                    message(
                        f"Hybrid cuts rows along dim={rows.dim!r} and dim={micro.dim!r}",
                        need="the same dimension of both",
                    )
                )
        self.strategies = tuple(sorted(strategies, key=lambda strategy: strategy.last))

    def facts(self) -> Facts | None:
        """Return what the pass is told of the rows."""
        self._check_axes()
        all_facts = [
            facts for strategy in self.strategies if (facts := strategy.facts()) is not None
        ]
        if not all_facts:
            return None
        pipelines = [facts.pipeline for facts in all_facts if facts.pipeline is not None]
        return replace(all_facts[-1], pipeline=pipelines[0] if pipelines else None)

    def _check_axes(self) -> None:
        """Refuse strategies that share an axis of the mesh."""
        mesh = current().mesh
        taken: dict[str, Strategy] = {}
        for strategy in self.strategies:
            for axis in strategy.axes_of(mesh):
                if axis in taken and mesh.axes[axis] > 1:
                    raise ConfigError(
                        message(
                            f"{taken[axis]!r} and {strategy!r} are both spread over the "
                            f"axis {axis!r} of {mesh!r}",
                            need="an axis of the mesh for each strategy",
                            hint="mg.distributed.use(mg.distributed.Mesh(data=2, tensor=2)), with "
                            "as many ranks in all; group= names other axes",
                        )
                    )
                taken[axis] = strategy

    def shard(self) -> tuple[int, int]:
        """Return which part of each batch this rank takes, and of how many."""
        return self.strategies[-1].shard()

    def prepared(
        self, outputs: list[Node], updates: list[Pair]
    ) -> tuple[list[Node], list[Pair]]:
        """Return what the rank computes, before rows are cut."""
        self._check_axes()
        for strategy in self.strategies:
            outputs, updates = strategy.prepared(outputs, updates)
        return outputs, updates

    def __repr__(self) -> str:
        return f"Hybrid({', '.join(map(repr, self.strategies))})"
