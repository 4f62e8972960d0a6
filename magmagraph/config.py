"""Settings: `mg.config`, read once from environment variables and changeable at run time."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name)
    return default if text is None else text.strip().lower() not in ("", "0", "false", "no", "off")


def _float_dtype() -> np.dtype:
    from .dtypes import canonical

    return canonical(os.environ.get("MAGMAGRAPH_FLOAT_DTYPE", "float32"))


@dataclass(slots=True)  # a setting that does not exist cannot be set
class Config:
    """Every setting of the package; `docs/environment.md` lists the variables.

    Attributes
    ----------
    float_dtype
        dtype of a Python float (``MAGMAGRAPH_FLOAT_DTYPE``, float32).
    device
        What ``device="auto"`` means first (``MAGMAGRAPH_DEVICE``, auto).
    verify
        Check every graph between passes (``MAGMAGRAPH_VERIFY``, off; on in the tests).
    compiler
        Build kernels with the system C compiler (``MAGMAGRAPH_COMPILER``: auto, off, or force:
        raise where it cannot be used).
    tuning
        Measure candidates where a pass asks (``MAGMAGRAPH_TUNING``, on); off takes the first.
    compile_budget
        Seconds after which the tiled runtime takes over from generated code
        (``MAGMAGRAPH_COMPILE_BUDGET``, 60).
    specializations
        How many sets of sizes a function keeps bound (``MAGMAGRAPH_SPECIALIZATIONS``, 16).
    """

    float_dtype: np.dtype = field(default_factory=_float_dtype)
    device: str = field(default_factory=lambda: os.environ.get("MAGMAGRAPH_DEVICE", "auto"))
    verify: bool = field(default_factory=lambda: _flag("MAGMAGRAPH_VERIFY", False))
    compiler: str = field(default_factory=lambda: os.environ.get("MAGMAGRAPH_COMPILER", "auto"))
    tuning: bool = field(default_factory=lambda: _flag("MAGMAGRAPH_TUNING", True))
    compile_budget: float = field(
        default_factory=lambda: float(os.environ.get("MAGMAGRAPH_COMPILE_BUDGET", "60"))
    )
    specializations: int = field(
        default_factory=lambda: int(os.environ.get("MAGMAGRAPH_SPECIALIZATIONS", "16"))
    )


config = Config()
