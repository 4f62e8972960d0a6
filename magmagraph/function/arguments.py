"""What `mg.function` is given: checked when it is built, with the text that says what to try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..config import config
from ..errors import ConfigError, DeviceError, GraphError, UpdateError, message
from ..ir import dims
from ..ir.graph import Node, topological
from ..ir.op import Kind, describe
from ..ir.target import Target
from ..ir.types import Shape
from ..ops.convert import as_node
from ..ops.leaf import Variable, variable
from ..ops.random.basic import RANDOM_STEP
from ..ops.shape.joining import BROADCAST_TO


def resolved_device(device: str) -> str:
    """Return the name of a device, or "auto" where the configuration has no other either.

    raises DeviceError: It is no name of one.
    """
    name = config.device if device == "auto" else device
    if name in ("auto", "cpu"):
        return name
    family, _, number = str(name).partition(":")
    if family == "cuda" and (not number or number.isdigit()):
        return str(name)
    raise DeviceError(
        message(f"there is no device {device!r}", need="'auto', 'cpu', 'cuda' or 'cuda:1'")
    )


def check_inputs(inputs: Sequence[Node]) -> tuple[Node, ...]:
    """Return the inputs as a tuple, or raise `GraphError`: no input, or listed twice."""
    if isinstance(inputs, Node):
        raise GraphError(message("inputs is one node", need="a list of inputs", hint="[x]"))
    if not isinstance(inputs, Iterable) or isinstance(inputs, str):
        raise GraphError(
            message(f"inputs is {inputs!r}", need="a list of inputs", hint="[], to feed nothing")
        )
    listed = tuple(inputs)
    seen: set[Node] = set()
    for node in listed:
        if not isinstance(node, Node) or "key" not in node.attrs:
            what = describe(node) if isinstance(node, Node) else repr(node)
            raise GraphError(
                message(
                    f"{what} is listed in inputs and is not an input",
                    need="nodes made by mg.input(...), or mg.var(...) without init",
                )
            )
        if node in seen:
            raise GraphError(message(f"input '{node.name}' is listed twice in inputs"))
        seen.add(node)
    return listed


def check_budget(budget: Any) -> float:
    """Return the seconds that building kernels may take, or raise `ConfigError`."""
    try:
        seconds = float(budget)
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds >= 0.0:
        raise ConfigError(
            message(f"compile_budget={budget!r}", need="seconds, a number of at least 0")
        )
    return seconds


def check_target(target: Any, device: str) -> Target:
    """Return a target, or raise `ConfigError` where it is none, or a device is named, too."""
    if not isinstance(target, Target):
        raise ConfigError(
            message(f"target={target!r}", need="a target", hint="mg.Target.made_up('h200')")
        )
    if device != "auto":
        raise ConfigError(
            message(
                f"device={device!r} and target= are given",
                need="one of both: a target is for a device that is not here",
            )
        )
    return target


def check_updates(updates: Any) -> list[tuple[Node, Node]]:
    """Return updates as pairs, or raise `UpdateError`: no variable, twice, or another type."""
    if updates is None:
        return []
    pairs = list(updates.items()) if isinstance(updates, Mapping) else list(updates)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise UpdateError(
                message(
                    f"updates holds {describe(pair) if isinstance(pair, Node) else repr(pair)}",
                    need="a dict from variables to new values, or pairs of them",
                    hint="updates={w: new}",
                )
            )
    seen: set[Any] = set()  # by what they hold: a graph has nodes of its own for variables
    checked: list[tuple[Node, Node]] = []
    for target, new in pairs:
        if not isinstance(target, Variable):
            what = describe(target) if isinstance(target, Node) else repr(target)
            raise UpdateError(
                message(
                    f"{what} is updated and is not a variable",
                    need="a variable, made by mg.variable(...) or mg.var(..., init=...)",
                )
            )
        if target.state in seen:
            raise UpdateError(message(f"variable '{target.name}' is updated twice"))
        seen.add(target.state)
        value = as_node(new, target.dtype)
        if value.dtype != target.dtype:
            raise UpdateError(
                message(
                    f"the update of variable '{target.name}' ({target.type}) is {value.type}",
                    need=f"dtype {target.dtype.name}",
                    hint=f"mg.cast(value, '{target.dtype.name}')",
                )
            )
        if value.shape != target.shape and _may_be(value.shape, target.shape):
            # Sizes that only the call knows: this node holds what must be true of them.
            value = BROADCAST_TO(value, shape=target.shape, name=f"the update of {target.name}")
        if value.shape != target.shape:
            raise UpdateError(
                message(
                    f"the update of variable '{target.name}' ({target.type}) is {value.type}",
                    need=f"shape {target.shape}",
                )
            )
        checked.append((target, value))
    return checked


def _may_be(shape: Shape, expected: Shape) -> bool:
    """Whether extents may equal the expected ones; an axis of 1 is not broadcast here."""
    return len(shape) == len(expected) and all(
        dims.require(extent, "==", size, []) for extent, size in zip(shape, expected, strict=True)
    )


def check_leaves(
    inputs: Sequence[Node], outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]]
) -> None:
    """Raise `GraphError` where the graph needs an input that is not listed."""
    declared = set(inputs)
    for node in topological([*outputs, *(value for _, value in updates)]):
        if node.op.kind is Kind.LEAF and "key" in node.attrs and node not in declared:
            raise GraphError(
                message(
                    f"the graph needs the input {describe(node)}, which is not listed in inputs",
                    hint=f"mg.function([..., {node.name}], ...)",
                )
            )


def random_step(
    outputs: Sequence[Node], updates: Sequence[tuple[Node, Node]]
) -> Variable | None:
    """Return a step counter of the function's own where anything in it is random."""
    roots = [*outputs, *(value for _, value in updates)]
    if any(node.op is RANDOM_STEP for node in topological(roots)):
        return variable("random_step", init=np.int64(0))
    return None
