"""Settings: `mg.config`, read once from environment variables and changeable at run time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from .errors import ConfigError, message

_COMPILER = ("auto", "off", "force")
_PRODUCTS = ("auto", "tiles", "blas")
_OFF = ("", "0", "false", "no", "off")
_SETTINGS = {  # each with its variable, and what it takes
    "float_dtype": (
        "MAGMAGRAPH_FLOAT_DTYPE",
        "a float dtype: 'float32', 'float64', 'float16' or 'bfloat16'",
    ),
    "device": ("MAGMAGRAPH_DEVICE", "'auto', 'cpu', 'cuda' or 'cuda:1'"),
    "verify": ("MAGMAGRAPH_VERIFY", "True or False"),
    "compiler": ("MAGMAGRAPH_COMPILER", "'auto', 'off' or 'force'"),
    "products": ("MAGMAGRAPH_PRODUCTS", "'auto', 'tiles' or 'blas'"),
    "tuning": ("MAGMAGRAPH_TUNING", "True or False"),
    "compile_budget": ("MAGMAGRAPH_COMPILE_BUDGET", "seconds, a number of at least 0"),
    "specializations": ("MAGMAGRAPH_SPECIALIZATIONS", "an int of at least 1"),
    "threads": ("MAGMAGRAPH_THREADS", "an int of at least 1, or None"),
    "cache_dir": ("MAGMAGRAPH_CACHE_DIR", "the path of a folder, or None"),
    "cache_size": ("MAGMAGRAPH_CACHE_SIZE", "bytes, an int of at least 0, or None"),
}
_LEFT_TO_VARIABLES = ("threads", "cache_dir", "cache_size")  # where they are None
CHANGED: dict[str, list[Callable[[Any], object]]] = {}  # who is told of a setting's new value


def _settled(name: str, value: Any) -> Any:
    """Return the value that a setting takes, or raise ValueError or TypeError."""
    if name in _LEFT_TO_VARIABLES and value is None:
        return None
    if name == "float_dtype":
        from .dtypes import canonical, is_float

        dtype = canonical(value)
        fits, value = is_float(dtype), dtype
    elif name == "device":
        family, _, number = value.partition(":")
        fits = value in ("auto", "cpu", "cuda") or (family == "cuda" and number.isdigit())
    elif name in ("verify", "tuning"):
        fits = isinstance(value, bool)
    elif name == "compiler":
        fits = value in _COMPILER
    elif name == "products":
        fits = value in _PRODUCTS
    elif name == "compile_budget":
        value = float(value)
        fits = value >= 0.0
    elif name == "cache_dir":
        value = os.fspath(value)
        fits = bool(value) and isinstance(value, str)
    else:
        least = 0 if name == "cache_size" else 1
        fits = not isinstance(value, bool) and int(value) == value >= least
        value = int(value)
    if not fits:
        raise ValueError(name)
    return value


def _read(name: str, default: Any) -> Any:
    """Return a setting as its environment variable has it."""
    variable, need = _SETTINGS[name]
    text = os.environ.get(variable)
    if text is None:
        return default
    if isinstance(default, bool):
        return text.strip().lower() not in _OFF
    try:
        if not text:
            return default
        return _settled(name, int(text) if isinstance(default, int) else text)
    except (ValueError, TypeError):
        raise ConfigError(message(f"{variable} is {text!r}", need=need)) from None


@dataclass(slots=True)
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
    products
        What matrix products run by on the CPU (``MAGMAGRAPH_PRODUCTS``: auto, the faster one of
        both; tiles, which are generated; blas).
    tuning
        Measure candidates where a pass asks (``MAGMAGRAPH_TUNING``, on); off takes the first.
    compile_budget
        Seconds after which the tiled runtime takes over from generated code
        (``MAGMAGRAPH_COMPILE_BUDGET``, 60).
    specializations
        How many sets of sizes a function keeps bound (``MAGMAGRAPH_SPECIALIZATIONS``, 16).
    threads
        Threads of kernels and products; None for what ``MAGMAGRAPH_THREADS`` says, or this
        process's share of the cores.
    cache_dir
        Folder of compiled kernels, measured choices and downloaded data; None for what
        ``MAGMAGRAPH_CACHE_DIR`` says.
    cache_size
        Bytes that compiled kernels may take there; None for what ``MAGMAGRAPH_CACHE_SIZE`` says.

    Raises
    ------
    ConfigError
        When a setting, or its variable at import, is given what it does not take.
    AttributeError
        There is no such setting.
    """

    float_dtype: np.dtype = field(default_factory=partial(_read, "float_dtype", "float32"))
    device: str = field(default_factory=partial(_read, "device", "auto"))
    verify: bool = field(default_factory=partial(_read, "verify", False))
    compiler: str = field(default_factory=partial(_read, "compiler", "auto"))
    products: str = field(default_factory=partial(_read, "products", "auto"))
    tuning: bool = field(default_factory=partial(_read, "tuning", True))
    compile_budget: float = field(default_factory=partial(_read, "compile_budget", 60.0))
    specializations: int = field(default_factory=partial(_read, "specializations", 16))
    threads: int | None = None
    cache_dir: str | None = None
    cache_size: int | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTINGS:
            raise AttributeError(
                message(f"there is no setting {name!r}", need=f"one of {', '.join(_SETTINGS)}")
            )
        try:
            settled = _settled(name, value)
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(
                message(f"mg.config.{name} is set to {value!r}", need=_SETTINGS[name][1])
            ) from None
        object.__setattr__(self, name, settled)
        for tell in CHANGED.get(name, ()):
            tell(settled)


config = Config()
