"""Strategies as plain values, for archives of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import PlanError, message
from .data_parallel import DataParallel
from .hybrid import Hybrid
from .strategies import Strategy

__all__ = ["strategy_of", "written"]

def _kinds() -> dict[str, type[Strategy]]:
    """Return the package's strategies by name; what is saved can be made again from its options."""
    room = f"{__package__}."
    kinds = Strategy.__subclasses__()
    return {kind.__name__: kind for kind in kinds if kind.__module__.startswith(room)}


def written(strategy: Strategy | None) -> dict[str, Any] | None:
    """Return a strategy as values that JSON holds.

    raises PlanError: It is a class of the user's own, or ranks that share an optimizer's memory
        hold more than an archive.
    """
    if strategy is None:
        return None
    if type(strategy) is Hybrid:
        return {"kind": "Hybrid", "of": [written(inner) for inner in strategy.strategies]}
    if type(strategy) not in _kinds().values():
        raise PlanError(
            message(
                f"a function with distribute={strategy!r} cannot be saved: "
                f"{type(strategy).__name__} is code",
                need="a strategy of mg.distributed",
            )
        )
    if isinstance(strategy, DataParallel) and strategy.shard_optimizer:
        raise PlanError(
            message(
                "a function with shard_optimizer=True cannot be saved: each rank holds its part "
                "of what the optimizer remembers",
                hint="mg.callbacks.Checkpoint, or optimizer.state_dict(), which gather the parts",
            )
        )
    return {"kind": type(strategy).__name__, "options": strategy.options()}


def strategy_of(form: Mapping[str, Any] | None) -> Strategy | None:
    """Return the strategy that `written` described."""
    if form is None:
        return None
    if form["kind"] == "Hybrid":
        strategies = [strategy_of(each) for each in form["of"]]
        return Hybrid(*(each for each in strategies if each is not None))
    return _kinds()[form["kind"]](**form["options"])
