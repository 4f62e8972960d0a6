"""Fill the tuning cache: the former name of `magmagraph autotune`.

Hyperparameters are searched by `mg.tune` and shown by `magmagraph search`.
"""

from __future__ import annotations

import argparse
import sys

from . import autotune

declare = autotune.declare


def run(options: argparse.Namespace) -> None:
    """Print the new name of the command, and run it."""
    print(
        "magmagraph tune is called magmagraph autotune now: it measures kernels for the tuning "
        "cache. Hyperparameters are searched by mg.tune and shown by magmagraph search.",
        file=sys.stderr,
    )
    autotune.run(options)
