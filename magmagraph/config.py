"""Settings: `mg.config`, read once from environment variables and changeable at run time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .errors import ConfigError, message
from .ir.element_types import FLOATS, dtype_of, is_float

_COMPILER = ("auto", "off", "force")
_PRODUCTS = ("auto", "tiles", "blas")
_OFF = ("", "0", "false", "no", "off")
_ON = ("1", "true", "yes", "on")
# No attributes of `mg.config`, read where they are needed: their words, or what unset ones mean.
_WORDS = {
    "MAGMAGRAPH_BLAS_POOL": ("shared", "own"),
    "MAGMAGRAPH_COMMUNICATOR": ("auto", "solo", "mpi"),
    "MAGMAGRAPH_DEVICE_MESSAGES": ("auto", "nccl", "mpi", "host"),
    "MAGMAGRAPH_OPTIMIZATION": tuple(f"{o}{level}" for o in ("-O", "") for level in "2013gs"),
}
_SWITCHES = {
    "MAGMAGRAPH_BLAS_PANELS": True,
    "MAGMAGRAPH_INSTALLED": True,
    "MAGMAGRAPH_OVERLAP": False,
}
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
    "unpacked_size": ("MAGMAGRAPH_UNPACKED_SIZE", "bytes, an int of at least 0"),
}
_LEFT_TO_VARIABLES = ("threads", "cache_dir", "cache_size")  # where they are None
CHANGED: dict[str, list[Callable[[Any], object]]] = {}  # who is told of a setting's new value


def _settled(name: str, value: Any) -> Any:
    """Return the value that a setting takes, or raise ValueError or TypeError."""
    if name in _LEFT_TO_VARIABLES and value is None:
        return None
    if name == "float_dtype":
        # float, which follows this setting, is Python's here.
        dtype = dtype_of(value, FLOATS[0])
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
        least = 0 if name in ("cache_size", "unpacked_size") else 1
        fits = not isinstance(value, bool) and int(value) == value >= least
        value = int(value)
    if not fits:
        raise ValueError(name)
    return value


def _read(name: str, default: Any) -> Any:
    """Return a setting as its environment variable has it, or raise `ConfigError`."""
    variable, need = _SETTINGS[name]
    text = os.environ.get(variable)
    if text is None:
        return default
    if isinstance(default, bool):
        return _switched(variable, text)
    try:
        if not text:
            return default
        return _settled(name, int(text) if isinstance(default, int) else text)
    except (ValueError, TypeError):
        raise ConfigError(message(f"{variable} is {text!r}", need=need)) from None


def _switched(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in (*_OFF, *_ON):
        raise ConfigError(
            message(f"{variable} is {text!r}", need=f"one of {', '.join((*_ON, *_OFF[1:]))}")
        )
    return word in _ON


def is_on(variable: str) -> bool:
    """Return whether a variable that is no attribute of `mg.config` switches its subject on.

    Raises
    ------
    ConfigError
        It says neither on nor off.
    """
    text = os.environ.get(variable)
    return _SWITCHES[variable] if text is None else _switched(variable, text)


def word(variable: str) -> str:
    """Return the word of a variable that is no attribute of `mg.config`; unset it is the first.

    Raises
    ------
    ConfigError
        It is none of those that the variable takes.
    """
    words = _WORDS[variable]
    text = os.environ.get(variable) or words[0]
    if text not in words:
        need = f"{', '.join(words[:-1])} or {words[-1]}"
        raise ConfigError(message(f"{variable} is {text!r}", need=need))
    return text


_DEFAULTS: dict[str, Any] = {
    "float_dtype": "float32",
    "device": "auto",
    "verify": False,
    "compiler": "auto",
    "products": "auto",
    "tuning": True,
    "compile_budget": 60.0,
    "specializations": 16,
    "threads": None,
    "cache_dir": None,
    "cache_size": None,
    "unpacked_size": 1 << 28,
}


class Config:
    """Every setting of the package; `docs/environment.md` lists the variables.

    A variable with a value that cannot be used is an error where its setting is read, not where
    the package is imported: setting it, or `magmagraph info`, still works.

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
        What matrix products run by on the CPU, and large 16-bit ones on a Hopper GPU
        (``MAGMAGRAPH_PRODUCTS``: auto, the faster one of both; tiles, which are generated; blas).
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
    unpacked_size
        Bytes to which the packed content of a file may unpack, if 64 times the file's length is
        less (``MAGMAGRAPH_UNPACKED_SIZE``, 256 MiB).

    Raises
    ------
    ConfigError
        When a setting is given what it does not take, or is read and its variable holds that.
    AttributeError
        There is no such setting.
    """

    __slots__ = tuple(_SETTINGS)

    float_dtype: np.dtype
    device: str
    verify: bool
    compiler: str
    products: str
    tuning: bool
    compile_budget: float
    specializations: int
    threads: int | None
    cache_dir: str | None
    cache_size: int | None
    unpacked_size: int

    def __init__(self) -> None:
        for name, default in _DEFAULTS.items():
            if name in _LEFT_TO_VARIABLES:
                setattr(self, name, default)
                continue
            with contextlib.suppress(ConfigError):  # said where it is read
                setattr(self, name, _read(name, default))

    def __getattr__(self, name: str) -> Any:
        # Only what has no value comes here.
        if name not in _SETTINGS:
            raise AttributeError(
                message(f"there is no setting {name!r}", need=f"one of {', '.join(_SETTINGS)}")
            )
        setattr(self, name, _read(name, _DEFAULTS[name]))  # raises unless the variable was mended
        return getattr(self, name)

    def __repr__(self) -> str:
        held = (f"{name}={getattr(self, name)!r}" for name in _SETTINGS)
        return f"Config({', '.join(held)})"

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


def unusable() -> dict[str, str]:
    """Return, by its variable, what is wrong with each setting that cannot be read."""
    found = {}
    for name, (variable, _) in _SETTINGS.items():
        try:
            getattr(config, name)
        except ConfigError as error:
            found[variable] = str(error)
    others: list[tuple[Callable[[str], object], Iterable[str]]] = [
        (is_on, _SWITCHES), (word, _WORDS),
    ]
    for read, variables in others:
        for variable in variables:
            try:
                read(variable)
            except ConfigError as error:
                found[variable] = str(error)
    return found
