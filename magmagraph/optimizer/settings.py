"""Which values the settings of optimizers may have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ConfigError, message
from ..ir.graph import Node

__all__ = ["RANGES", "check_settings"]

# Name -> from (included) and to (not included).
RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("beta1", "beta2", "decay", "momentum", "average_decay"), (0.0, 1.0)),
    **dict.fromkeys(
        ("eps", "initial", "trust", "weight_decay", "momentum_decay", "decay_power", "smallest",
         "clip_update", "radius"),
        (0.0, math.inf),
    ),
}


def check_settings(
    who: str, settings: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]
) -> None:
    """Raise `ConfigError` where a setting is no number, or out of its range; nodes are trusted."""
    for name, value in settings.items():
        if name not in ranges or isinstance(value, Node):
            continue
        low, high = ranges[name]
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not low <= value < high:
            end = "a finite number" if high == math.inf else f"below {high:g}"
            raise ConfigError(
                message(f"{who}: {name}={value!r}", need=f"at least {low:g}, and {end}")
            )
