"""Bind a plan to sizes: the passes that decide when sizes are known, in their order."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from ...ir.plan import Plan
from ...ir.target import Target
from ..report import Record
from .specialize import laid_out, with_sizes

__all__ = ["bind"]


def bind(
    plan: Plan,
    sizes: Mapping[str, int],
    target: Target,
    skip: Collection[str] = (),
    records: list[Record] | None = None,
) -> Plan:
    """Return a plan with sizes and memory; on a CUDA device its steps are launches.

    Parameters
    ----------
    plan
        Symbolic in the named dimensions.
    sizes
        Of every dimension.
    target
        What it is for.
    skip
        Names of optional passes to leave out.
    records
        Where the records of passes that run on this target are appended.

    Examples
    --------
    >>> import magmagraph as mg
    >>> from magmagraph.ir.graph import Trace
    >>> from magmagraph.passes.pipeline import Options
    >>> from magmagraph.runtime.target import made_up
    >>> x = mg.input("x", ("n", 300))
    >>> f = mg.function([x], mg.tanh(x @ mg.var("W", init=mg.init.zeros(), shape=(300, 64))))
    >>> target = made_up("cuda:0", threads=264)
    >>> plan, _ = mg.passes.run(f.source_graph, Trace(), options=Options.make(target=target))
    >>> len(plan.steps), len(bind(plan, {"n": 100}, target).steps)
    (2, 1)
    """
    bound = with_sizes(plan, sizes)
    if target.device != "cpu":
        # Here: a program on the CPU does not wait for all that generates CUDA.
        from .fuse_products import fuse_products
        from .fuse_scans import fuse_scans
        from .launches import launches

        for decide in (fuse_products, fuse_scans, launches):
            notes = Record(decide.__name__, of_steps=True)
            notes.before, began = len(bound.steps), time.perf_counter()
            notes.skipped = decide is not launches and decide.__name__ in skip
            if not notes.skipped:
                bound = decide(bound, target, notes)
            notes.milliseconds = (time.perf_counter() - began) * 1e3
            notes.after = len(bound.steps)
            if records is not None:
                records.append(notes)
    return laid_out(bound, target.alignment, target.spread)
