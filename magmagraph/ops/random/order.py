"""The order of arguments of draws: the shape stands first here, and last in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import ShapeError, message
from ...ir.graph import Node

__all__ = ["shape_first"]


def shape_first(
    function: Callable[..., Any],
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None] | None:
    """Return what refuses arguments in NumPy's order; None for a function without a shape in front.

    A tuple in front is a shape, and so is a number from 1 on, unless a shape stands at the end. A 0
    with parameters behind it, by their places, is what NumPy's users write who mean a parameter:
    ``normal(0, 1, 5)`` would be no numbers where five are meant.
    """
    signature = getattr(function, "__signature__", None)
    if signature is None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
    else:
        names = tuple(signature.parameters)
    if not names or names[0] != "shape" or names[1:2] == ("dtype",):
        return None
    name = function.__name__
    count = names.index("dtype") - 1 if "dtype" in names else len(names) - 1

    def check(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        if not args:
            return
        first, last = args[0], args[-1]
        texts = [_text(arg) for arg in args]
        if "size" in keywords:
            args, last = (*args, keywords["size"]), keywords["size"]
            texts.append(f"size={last!r}")
        number = _whole(first)
        if number:
            is_shape_last = isinstance(last, (tuple, list)) or "size" in keywords
            # With all parameters and a real number last it cannot be NumPy's order.
            real = isinstance(last, float) and len(args) == count + 1
            if len(args) == 1 or (not is_shape_last and (real or first > 0)):
                return
        elif not isinstance(first, (float, np.floating, np.ndarray, Node)):
            return
        numpy = isinstance(last, (tuple, list)) or (_whole(last) and len(args) > 1)
        assignments = [f"{key}={text}" for key, text in zip(names[1:], texts, strict=False)]
        shape = _tuple(last) if numpy else "shape"
        suggestion = f"mg.random.{name}({', '.join((shape, *assignments[: len(args) - numpy]))})"
        wrong = f"random.{name}({', '.join(texts)}): the shape stands first"
        if number and not isinstance(last, (tuple, list)) and "size" not in keywords:
            ours = f"mg.random.{name}({', '.join((_tuple(first), *texts[1:]))})"
            raise ShapeError(
                message(
                    f"{wrong} here, and last in NumPy: which number it is cannot be known",
                    need="a tuple as shape, where parameters are given by their places",
                    hint=f"{suggestion} if they stand in NumPy's order, else {ours}",
                )
            )
        raise ShapeError(message(wrong, need="the shape first, a tuple", hint=suggestion))

    return check


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (Node, np.ndarray)) else repr(value)


def _tuple(value: Any) -> str:
    return repr(tuple(value)) if isinstance(value, (tuple, list)) else f"({value},)"
