"""Run a script on many ranks, and end all of them when one fails.

The same as ``python -m magmagraph.run``.
"""

from __future__ import annotations

import argparse

from ..run import declare, execute

__all__ = ["declare", "run"]


def run(options: argparse.Namespace) -> int:
    """Run the job; return its exit status."""
    return execute(options)
