"""Limits of memory: `memory_limit=`, what a call takes by category, the largest size that fits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, FeedError, MemoryLimitError, message
from ..ir import dims

if TYPE_CHECKING:
    from ..passes.lowering.memory import Memory
    from ..passes.lowering.timeline import Timeline

__all__ = ["bytes_of", "dimensions", "largest", "refuse", "with_micro_batches"]

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
Planned = tuple[Any, Any, Any]  # a plan, the report of its passes, their trace
_NO_LIMIT = 1 << 62  # of which the passes compute nothing again
_MOST = 1 << 40  # of a dimension: above, nothing bounds it


def bytes_of(limit: Any) -> int:
    """Return the bytes that a limit says: a number, or a text with a unit.

    raises ConfigError: It is neither, or not positive.

    Examples
    --------
    >>> bytes_of("8GiB"), bytes_of("1.5 MB"), bytes_of(4096)
    (8589934592, 1500000, 4096)
    """
    count = None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", limit)
        if match is not None and match[2].lower() in _UNITS:
            count = int(float(match[1]) * _UNITS[match[2].lower()])
    elif isinstance(limit, (int, float)) and not isinstance(limit, bool) and limit == limit:
        count = int(min(limit, float(1 << 62)))
    if count is None or count <= 0:
        raise ConfigError(
            message(
                f"memory_limit={limit!r}",
                need="bytes: a positive number, or a text such as '8GiB' or '500MB'",
            )
        )
    return count


def refuse(
    memory: Memory, limit: int, sizes: Mapping[str, int], report: Any
) -> MemoryLimitError:
    """Return the error for a plan that takes more than a limit, and why its batch is whole."""
    from ..passes.lowering.timeline import readable

    timeline = memory.timeline()
    names = [name for name in sizes if "?" not in name]
    shown = ", ".join(f"{name} = {sizes[name]}" for name in names)
    hint = f"f.largest({names[0]!r}, memory_limit=...)" if names else "mg.checkpoint"
    return MemoryLimitError(
        message(
            f"a call takes {readable(int(memory.total))}{f' with {shown}' if shown else ''}, and "
            f"memory_limit is {readable(limit)}\n"
            + "\n".join([*_rows(memory, timeline), *_not_cut(report)]),
            need=f"at most {limit} bytes, and the plan needs {memory.total}; nothing has run",
            hint=f"{hint} says the largest size that fits"
            if names
            else "a smaller program, or a higher limit",
        )
    )


def _rows(memory: Memory, timeline: Timeline) -> list[str]:
    from ..passes.lowering.timeline import listed, readable

    rows = [
        f"  {name:<11}  {readable(int(size)):>10}" for name, size in memory.categories().items()
        if size
    ]
    if timeline.holders:
        rows.append(f"  alive in step {timeline.peak}, where most is:")
        rows += [f"  {line}" for line in listed(timeline.holders)]
    return rows


def _not_cut(report: Any) -> list[str]:
    """Return lines that say why the batch is not cut into micro-batches."""
    refusals = [r for record in report if record.name == "micro_batches" for r in record.refusals]
    rows = []
    for refusal in refusals:
        rows.append(f"  not {refusal.rule}: {refusal.reason}")
        made = f", made at {refusal.line}" if refusal.line else ""
        rows.append(f"    at {refusal.node}{made}")
    return rows


def with_micro_batches(
    whole: Planned,
    limit: int,
    most: int,
    plan_with: Callable[[int, int], Planned],
    measured: Callable[[Any], tuple[int, float]],
) -> Planned:
    """Return the plan with the fewest micro-batches that fits, else the smallest.

    Values are computed again in parts only where no number of parts fits without.

    whole: The plan of the whole batch, the report and the trace of its passes.
    limit: Bytes.
    most: The most micro-batches.
    plan_with: Makes a plan with so many micro-batches, for a limit.
    measured: Returns the bytes and the work of a plan.
    """
    from ..passes.lowering.timeline import readable

    before, work = measured(whole[0])
    best, least, last, parts, count = whole, before, math.inf, 1, 2
    while count <= most and least > limit:
        tried = plan_with(count, _NO_LIMIT)
        if not tried[1]["micro_batches"].hits:  # the reason is the same for any number of them
            whole[1]["micro_batches"].refusals += tried[1]["micro_batches"].refusals
            return whole
        size, _ = measured(tried[0])
        if size < least:
            best, least, parts = tried, size, count
        if size >= last:
            break  # what does not shrink with the parts is most of it
        last, count = size, 2 * count
    if best is whole:
        return whole
    if least > limit:  # both together
        tried = plan_with(parts, limit)
        size, _ = measured(tried[0])
        if size < least:
            best, least = tried, size
    best[1]["micro_batches"].note(
        f"{parts} micro-batches: {readable(before - least)} less, {readable(least)} in all; "
        f"about {100 * (measured(best[0])[1] / work - 1):.0f} % more work"
    )
    return best


def largest(
    dim: str, sizes: Mapping[str, int], names: set[str], fits: Callable[[Mapping[str, int]], bool]
) -> int:
    """Return the largest size of a dimension with which a plan fits; 0 where none does.

    dim: The dimension.
    sizes: The sizes of the others.
    names: All dimensions.
    fits: Whether a plan for some sizes fits. Larger sizes do not fit where smaller ones do not.
    raises FeedError: There is no such dimension, the size of another one is not known, or nothing
        bounds it.
    """
    if dim not in names:
        raise FeedError(
            message(
                f"there is no dimension {dim!r}",
                need=f"one of {', '.join(sorted(names)) or 'none: all extents are numbers'}",
            )
        )
    missing = sorted(names - {dim} - sizes.keys())
    if missing:
        raise FeedError(
            message(
                f"the size of {', '.join(missing)} is not known",
                need=f"the sizes of all dimensions but {dim!r}",
                hint=f"f.largest({dim!r}, ..., sizes={{{missing[0]!r}: 32}}), or call f first",
            )
        )

    def at(size: int) -> bool:
        return fits({**sizes, dim: size})

    if not at(1):
        return 0
    low, high = 1, 2
    while at(high):
        low, high = high, 2 * high
        if high > _MOST:
            raise FeedError(message(f"no size of {dim!r} reaches the limit of memory"))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) else (low, middle)
    return low


def dimensions(inputs: Any) -> set[str]:
    """Return the names of the dimensions of inputs."""
    return {name for node in inputs for extent in node.shape for name in dims.names(extent)}
