"""Several strategies at once, each along its own axes of one mesh."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ConfigError, message
from ..graph import Node
from .strategies import Facts, Strategy
from .tensor_walk import Pair

__all__ = ["Hybrid"]


class Hybrid(Strategy):
    """Spread a function by several strategies, each over other axes of the mesh.

    Weights and layers are spread first, then rows: ``Hybrid(DataParallel(), TensorParallel())`` on
    ``Mesh(data=2, tensor=4)`` gives each of two groups half of every batch, and each rank of
    a group a quarter of the large matrices.

    Parameters
    ----------
    *strategies : Strategy
        At least one; at most one of them cuts rows. Axes named ``data``, ``tensor`` and ``stage``
        are found by themselves, others are named by ``group=`` of each.

    Raises
    ------
    ConfigError
        One is no strategy, or two cut rows.

    Examples
    --------
    >>> import numpy as np
    >>> import magmagraph as mg
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
        for given in strategies:
            if not isinstance(given, Strategy) or isinstance(given, Hybrid):
                raise ConfigError(
                    message(f"Hybrid is given {given!r}", need="strategies of mg.distributed")
                )
        kinds = [type(given) for given in strategies]
        if not kinds or len(set(kinds)) < len(kinds):
            raise ConfigError(
                message(f"Hybrid of {len(kinds)} strategies", need="at least one, of each kind one")
            )
        self.strategies = tuple(sorted(strategies, key=lambda given: given.last))

    def facts(self) -> Facts | None:
        """Return what the pass is told of the rows."""
        found = [facts for given in self.strategies if (facts := given.facts()) is not None]
        if not found:
            return None
        pipelines = [facts.pipeline for facts in found if facts.pipeline is not None]
        return replace(found[-1], pipeline=pipelines[0] if pipelines else None)

    def shard(self) -> tuple[int, int]:
        """Return which part of each batch this rank takes, and of how many."""
        return self.strategies[-1].shard()

    def prepared(
        self, outputs: list[Node], updates: list[Pair]
    ) -> tuple[list[Node], list[Pair]]:
        """Return what the rank computes, before rows are cut."""
        for given in self.strategies:
            outputs, updates = given.prepared(outputs, updates)
        return outputs, updates

    def __repr__(self) -> str:
        return f"Hybrid({', '.join(map(repr, self.strategies))})"
