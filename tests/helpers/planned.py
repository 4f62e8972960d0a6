"""Options of passes for plans of devices that need not be here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from magmagraph.passes.pipeline import Options
from magmagraph.passes.report import Record
from magmagraph.runtime.target import made_up


def options_of(
    device: str = "cpu",
    *,
    threads: int = 1,
    spread: int = 0,
    record: Record | None = None,
    **settings: Any,
) -> Options:
    """Return options for a device, with all kernel families."""
    options = Options.make(target=made_up(device, threads=threads, spread=spread), **settings)
    return options if record is None else replace(options, record=record)
