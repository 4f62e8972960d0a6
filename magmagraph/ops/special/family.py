"""How the functions of `mg.special` are made: a record and its function from one entry.

They have one to four operands, which broadcast and become of one float dtype, and partial
derivatives that are written as functions of the value and the operands.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...config import config
from ...dtypes import is_float
from ...errors import DTypeError, ShapeError, message
from ...ir.graph import Node
from ...ir.op import (
    BadSample,
    Composite,
    Kind,
    Op,
    Parts,
    Refusal,
    Sample,
    Scalar,
    ScalarRule,
    Tests,
)
from ..convert import cast, promoted
from ..elementwise.family import broadcast_floats, publish

SpecialFunction = Callable[..., Node]
Partial = Callable[..., Node] | Refusal | None
Samples = Callable[[], Sequence[Sample]]

NAMESPACE = "special"


def floats(name: str, *values: Any) -> tuple[Node, ...]:
    """Return operands as nodes of one float dtype; ints become `mg.config.float_dtype`."""
    nodes = promoted(*values)
    dtype = nodes[0].dtype
    if dtype.kind in "iub":
        return tuple(cast(node, config.float_dtype) for node in nodes)
    if not is_float(dtype):
        raise DTypeError(
            message(
                f"{name}: an operand of dtype {dtype.name}",
                need="real operands",
                hint="mg.real(x), or scipy.special on arrays",
            )
        )
    return nodes


def widened(node: Node) -> Node:
    """Return a node in float32 where it is of 16 bits."""
    return cast(node, np.float32) if node.dtype.itemsize < 4 else node


def unknown(name: str, parameter: str, reason: str = "has no closed form") -> Refusal:
    """Return a placeholder for an unknown derivative."""
    return Refusal(
        f"{name}: the derivative in {parameter} {reason}",
        need=f"no gradient asked for in {parameter}",
        hint=f"mg.stop_gradient({parameter})",
    )


def _fields(parameters: Sequence[str]) -> str:
    about = "Node or array" if len(parameters) == 1 else "Nodes, arrays or numbers that broadcast"
    shape = f"shape of `{parameters[0]}`" if len(parameters) == 1 else "broadcast shape"
    return (
        f"{', '.join(parameters)}: {about}; ints become floats.\n"
        f"returns: Of the {shape} and the float dtype."
    )


@functools.cache
def _signature(parameters: str) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    members = [inspect.Parameter(name, kind, annotation=Any) for name in parameters.split()]
    return inspect.Signature(members, return_annotation=Node)


def _published(
    body: Callable[..., Node],
    name: str,
    parameters: str,
    module: str,
    texts: tuple[str, str, str],
) -> SpecialFunction:
    """Return a function of the given parameters, which hands their float nodes to `body`."""
    names = parameters.split()
    signature = _signature(parameters)

    def function(*args: Any, **keywords: Any) -> Node:
        return body(*floats(name, *signature.bind(*args, **keywords).args))

    function.__signature__ = signature  # type: ignore[attr-defined]
    summary, notes, example = texts
    return publish(function, name, module, summary, notes, _fields(names), example)


def _misfits(record: str, parameters: str) -> list[BadSample]:
    count = len(parameters.split())
    if count == 1:
        return []
    shapes: tuple[Any, ...] = (*[np.full((2, 3), 0.5)] * (count - 1), np.full((2, 4), 0.5))
    return [BadSample(shapes, ShapeError, f"{record}: extents 3 and 4 do not broadcast (axis -1)")]


def elementwise(
    name: str,
    parameters: str,
    summary: str,
    example: str,
    *,
    module: str,
    evaluate: Callable[..., Any],
    samples: Samples,
    partials: tuple[Partial, ...] = (),
    no_gradient: str = "",
    scalar: ScalarRule | None = None,
    notes: str = "",
    reference: Callable[..., Any] | None = None,
    numerics: str = "stable",
    loses: str = "",
    public: bool = True,
    onnx: str | Callable[..., Any] = "",
) -> tuple[SpecialFunction, Op]:
    """Make a function that is an operation of its own, and its record.

    name, parameters: Of the function; parameters separated by blanks.
    summary, example, notes: What the docstring is made of; `example` is doctest text without the
        import.
    module: ``__name__`` of the calling module.
    partials: For each operand its partial derivative, ``partial(value, *operands)``; or the
        `Refusal` that `unknown` makes.
    evaluate, scalar, no_gradient, samples, reference, numerics, onnx, loses: Fields of the record;
        see `Op`. Default reference: the array expression in float64.
    public: False for operations that only derivatives are made of.
    """

    def body(*operands: Node) -> Node:
        return op(*operands)

    def gradient(node: Node, cotangent: Node) -> Parts:
        return tuple(
            cotangent * partial(node, *node.inputs) if callable(partial) else partial
            for partial in partials
        )

    if no_gradient:
        notes = f"{notes}\n\nNo gradient: {no_gradient}.".strip()
    function = _published(body, name, parameters, module, (summary, notes, example))
    op = Op(
        name=name,
        kind=Kind.ELEMENTWISE,
        namespace=NAMESPACE if public else "",
        doc=summary,
        rule=broadcast_floats,
        evaluate=evaluate,
        scalar=Scalar(scalar),
        gradient=None if no_gradient else gradient,
        no_gradient=no_gradient,
        function=function if public else None,
        tests=Tests(
            samples=samples,
            bad_samples=(lambda: _misfits(name, parameters)) if public else None,
            reference=reference or (lambda *operands: evaluate(np, *operands)),
            loses=loses,
        ),
        onnx=onnx,
        numerics=numerics,
    )
    return function, op


def composite(
    name: str,
    parameters: str,
    summary: str,
    example: str,
    body: Callable[..., Node],
    *,
    module: str,
    samples: Samples,
    reference: Callable[..., Any],
    notes: str = "",
    no_gradient: str = "",
    numerics: str = "stable",
    record: str = "",
) -> tuple[SpecialFunction, Composite]:
    """Make a function that is made of operations, and its record; see `elementwise.family`.

    `body` gets the operands as nodes of one float dtype, float32 in the place of 16-bit ones, so
    that what lies between is not rounded to these; `record` is the record's name where it is not
    the function's.
    """

    def wide_body(*operands: Node) -> Node:
        dtype = operands[0].dtype
        return cast(body(*(widened(node) for node in operands)), dtype)

    if no_gradient:
        notes = f"{notes}\n\nNo gradient: {no_gradient}.".strip()
    function = _published(wide_body, name, parameters, module, (summary, notes, example))
    composite_record = Composite(
        name=record or name,
        kind=Kind.ELEMENTWISE,
        namespace=NAMESPACE,
        doc=summary,
        function=function,
        tests=Tests(samples=samples, reference=reference),
        numerics=numerics,
        no_gradient=no_gradient,
    )
    return function, composite_record
