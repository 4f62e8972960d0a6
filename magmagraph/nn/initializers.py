"""Initializers by name, with seeds of their own from the program's random streams."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import init as module
from ..errors import ConfigError, message
from ..ir.graph import Node
from ..ops.random.bits import next_stream

__all__ = ["initializer"]


def initializer(given: Any) -> Any:
    """Return what `mg.variable` takes as ``init``, made of a name, a function or a value.

    A name may stand with arguments: ``("normal", 0.0, 0.02)``.

    A random one that is named draws from the next random stream: what is built after
    ``mg.random.seed(n)`` starts from the same weights every time.
    """
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], str):
        return _by_name(given[0], given[1:])
    if isinstance(given, str):
        return _by_name(given, ())
    if callable(given) and not isinstance(given, Node):
        return given
    return np.asarray(given)


def _by_name(name: str, arguments: Sequence[Any]) -> Any:
    if name not in module.__all__:
        raise ConfigError(
            message(
                f"there is no initializer {name!r}", need=f"one of {', '.join(module.__all__)}"
            )
        )
    maker = getattr(module, name)
    needed = [
        parameter.name
        for parameter in inspect.signature(maker).parameters.values()
        if parameter.default is parameter.empty
    ]
    if len(needed) > len(arguments):
        raise ConfigError(
            message(
                f"the initializer {name!r} needs {', '.join(needed)}",
                hint=f"({name!r}, ...), its name and arguments, or mg.init.{name}(...)",
            )
        )
    return maker(*arguments, seed=next_stream())
