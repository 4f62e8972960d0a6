"""The compiler: a graph goes down a visible tuple of passes and comes out as a plan."""

from __future__ import annotations

from .pipeline import DEFAULT, Options, Pass, default, run
from .report import Record, Report

__all__ = ["DEFAULT", "Options", "Pass", "Record", "Report", "default", "run"]


def __dir__() -> list[str]:
    return sorted(__all__)
