"""How a run differs from the one that wrote a checkpoint, and which differences are allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigError, DataError, message
from .saving import same_json

__all__ = ["CHANGES", "aspects", "check_same", "checked_changes"]

# What may differ, in the order of messages. The layers may not: the weights would not fit.
CHANGES = (
    "loss", "metrics", "regularize", "optimizer", "learning_rate", "seed", "data", "shuffle",
    "batch_size", "callbacks",
)  # fmt: skip
_LAYERS = "layers"
_SHOWN = 120  # characters of a value in a message


def checked_changes(changes: str | Iterable[str]) -> frozenset[str]:
    """Return the names of what may differ, or raise `ConfigError` for an unknown one."""
    names = [changes] if isinstance(changes, str) else list(changes)
    for name in names:
        if name not in CHANGES:
            near = difflib.get_close_matches(str(name), CHANGES, 1)
            raise ConfigError(
                message(
                    f"resume_changes holds {name!r}",
                    need=f"some of {', '.join(CHANGES)}",
                    hint=repr(near[0]) if near else None,
                )
            )
    return frozenset(names)


def aspects(architecture: Mapping[str, Any] | None, **others: Any) -> dict[str, Any]:
    """Return what two runs are compared by: name -> JSON value.

    Parameters
    ----------
    architecture
        As `Model.architecture` gives it; None where a file cannot hold it.
    **others
        ``optimizer``, the name of its class; ``data``, ``shuffle``, ``callbacks``.
    """
    remaining = dict(architecture or {})
    optimizer = remaining.pop("optimizer", None) or {}
    parts = {name: remaining.pop(name, None) for name in ("loss", "metrics", "regularize", "seed")}
    rule = {"class": others.pop("optimizer"), **optimizer.get("settings", {})}
    rate = optimizer.get("learning_rate")
    return {_LAYERS: remaining, **parts, "optimizer": rule, "learning_rate": rate, **others}


def check_same(
    source: str, there: Mapping[str, Any], here: Mapping[str, Any], allowed: frozenset[str]
) -> None:
    """Raise `DataError` if a run differs from a checkpoint's in an aspect not in `allowed`."""
    names = [
        name
        for name in (_LAYERS, *CHANGES)
        if name in here and name not in allowed and not same_json(there[name], here[name])
    ]
    if not names:
        return
    lines = [f"{source} is a checkpoint of a run with other {', '.join(names)}:"]
    lines += [f"{name}: {_difference(there[name], here[name])}" for name in names]
    names_to_allow = [name for name in CHANGES if name in names or name in allowed]
    hint = f"fit(..., resume=path, resume_changes={names_to_allow!r}), if that is meant"
    if _LAYERS in names:
        hint = "net.load_weights(path), or mg.NeuralNetwork.load(path), of a network as there"
    raise DataError(message("\n".join(lines), need="the same call of fit that wrote it", hint=hint))


def _difference(there: Any, here: Any) -> str:
    """Return the first part in which two JSON values differ, as text."""
    place = ""
    while True:
        if isinstance(there, Mapping) and isinstance(here, Mapping):
            classes = there.get("class"), here.get("class")
            if classes[0] != classes[1]:  # then its settings are others, too
                return (
                    f"{place}class: {_shortened(classes[0])} there, {_shortened(classes[1])} here"
                )
            for one, other, where in ((there, here, "there"), (here, there, "here")):
                for key in one:
                    if key not in other:
                        return f"{place}{key}: {_shortened(one[key])} {where} alone"
            parts: list[tuple[Any, Any, Any]] = [(key, there[key], here[key]) for key in there]
        elif isinstance(there, (list, tuple)) and isinstance(here, (list, tuple)):
            if len(there) != len(here) or all(isinstance(v, (int, float, str)) for v in here):
                break
            parts = [(i, *pair) for i, pair in enumerate(zip(there, here, strict=True))]
        else:
            break
        key, there, here = next(part for part in parts if not same_json(part[1], part[2]))
        if key == "sample":  # of data, whose shapes are equal
            return "other values, of the same shapes"
        place += f"{key}: " if isinstance(key, str) else f"number {key}: "
    return f"{place}{_shortened(there)} there, {_shortened(here)} here"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
