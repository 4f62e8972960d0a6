"""Architectures as JSON: layers and optimizers by class and constructor arguments.

A file names classes of `mg.nn`, `mg.optimizer` and `mg.schedule` only; what a user wrote is handed
over at loading. Nothing of a file is executed or imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import nn, optimizer, schedule
from ..errors import ConfigError, DataError, message
from ..nn.activations import activation_name
from ..nn.layer import Layer
from ..optimizer import EMA, LBFGS, SAM, SWA, Optimizer
from ..regularize import Penalty
from ..schedule import Schedule

__all__ = ["build_layer", "build_optimizer", "describe_layer", "describe_optimizer"]

Custom = Mapping[str, Any]


def describe_layer(layer: Layer) -> dict[str, Any]:
    """Return a layer as JSON values.

    Raises
    ------
    ConfigError
        If an argument is a function that has no public name.
    """
    arguments = {}
    for key, value in layer.arguments.items():
        if callable(value) and key.endswith("_init"):
            continue  # the values that it made are in the file
        arguments[key] = _described(value, f"{type(layer).__name__}: {key}")
    if layer.name is not None:
        arguments["name"] = layer.name
    return {"layer": type(layer).__name__, "arguments": arguments}


def _described(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_described(member, where) for member in value]
    if isinstance(value, Layer):
        return describe_layer(value)
    if isinstance(value, Penalty):
        return {"penalty": [value.l1, value.l2]}
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    name = activation_name(value) if callable(value) else None
    if name is None:
        raise ConfigError(
            message(
                f"{where} is {value!r}, which has no name that a file could hold",
                need="numbers, texts, layers, and activations by name",
                hint="a class of your own, derived from mg.nn.Layer, for what the function does; "
                "or save_weights(path)",
            )
        )
    return name


def build_layer(described: Any, custom: Custom) -> Layer:
    """Return the layer that `describe_layer` described.

    Raises
    ------
    DataError
        If it names a class that is neither in `mg.nn` nor in `custom`.
    """
    name = described["layer"]
    kind = custom.get(name, getattr(nn, name, None) if name in nn.__all__ else None)
    if not (isinstance(kind, type) and issubclass(kind, Layer)):
        raise DataError(
            message(
                f"the file holds a layer of class {name}, which is not one of mg.nn",
                hint=f"custom={{'{name}': {name}}}",
            )
        )
    arguments = {key: _built(value, custom) for key, value in described["arguments"].items()}
    try:
        layer: Layer = kind(**arguments)
    except TypeError:  # positional ones, or a constructor that takes no name
        arguments.pop("name", None)
        layer = kind(**arguments)
    layer.name = described["arguments"].get("name")
    return layer


def _built(value: Any, custom: Custom) -> Any:
    if isinstance(value, list):
        return [_built(member, custom) for member in value]
    if isinstance(value, Mapping):
        if "penalty" in value:
            return Penalty(*value["penalty"])
        return build_layer(value, custom)
    return value


# Optimizers.


def describe_optimizer(rule: Optimizer) -> dict[str, Any] | None:
    """Return an optimizer as JSON values, or None where it has what a file cannot hold."""
    rate = rule._rate.given
    if isinstance(rate, Schedule) and _is_in_module(rate, schedule):
        rate = _described_schedule(rate)
    elif not isinstance(rate, (int, float, np.number)) or isinstance(rate, bool):
        return None
    else:
        rate = float(rate)
    settings = {
        **rule.settings,
        "clip_value": rule.clip_value,
        "clip_norm": rule.clip_norm,
        "accumulate": rule.accumulate,
    }
    if isinstance(rule, (EMA, SAM, SWA)):  # its own settings and the other optimizer's, apart
        settings = {name: rule.settings[name] for name in rule.own}
        rate = describe_optimizer(rule.inner)
    elif isinstance(rule, LBFGS):
        settings = rule.settings
    plain = all(v is None or isinstance(v, (bool, int, float)) for v in settings.values())
    if not plain or rate is None or not _is_in_module(rule, optimizer):
        return None
    return {"optimizer": type(rule).__name__, "learning_rate": rate, "settings": settings}


def _is_in_module(value: Any, module: Any) -> bool:
    return getattr(module, type(value).__name__, None) is type(value)


def _described_schedule(instance: Schedule) -> dict[str, Any] | None:
    values = {}
    for key, value in vars(instance).items():
        if isinstance(value, Schedule):
            value = _described_schedule(value)
        if value is not None and not isinstance(value, (bool, int, float, dict)):
            return None
        values[key] = value
    return {"schedule": type(instance).__name__, "values": values}


def build_optimizer(described: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer that `describe_optimizer` described."""
    kind = getattr(optimizer, described["optimizer"], None)
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise DataError(message(f"the file names an optimizer {described['optimizer']!r}"))
    rate = described["learning_rate"]
    first: Any = rate
    if isinstance(rate, Mapping):  # a schedule; or the optimizer that this one is around
        first = build_optimizer(rate) if "optimizer" in rate else _built_schedule(rate)
    rebuilt: Optimizer = kind(first, **described["settings"])
    return rebuilt


def _built_schedule(described: Mapping[str, Any]) -> Schedule:
    name = described["schedule"]
    kind = getattr(schedule, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Schedule)):
        raise DataError(message(f"the file names a schedule {name!r}"))
    values = {
        key: _built_schedule(value) if isinstance(value, Mapping) else value
        for key, value in described["values"].items()
    }
    instance: Schedule = getattr(schedule, name.lower(), kind)(**values)
    return instance
