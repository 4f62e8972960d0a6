"""How distributions are made: a function and its record from one entry; exact rejection.

A sampler that rejects needs as many candidates as it needs. Round r reads part r of the node's
stream at the element's own counter, for those elements only that have none accepted yet, until
there are no such elements: no number of rounds is fixed, nothing is truncated, and an element's
value depends on the stream, the step and its position alone. Candidates are computed and compared
in float64.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtypes import canonical, is_float, is_integer
from ...errors import DTypeError, ShapeError, message
from ...ir.graph import Node
from ...ir.op import Call, Composite, Effect, Kind, Op, Parts
from ...ir.types import Extent, Shape, Type
from ..convert import cast
from ..elementwise.family import publish
from ..rules.batching import mapped_extent
from ..shape.arrange import lifted
from .bits import (
    FLOAT64,
    INT32,
    Key,
    check_step,
    common_shape,
    drawing_record,
    misfit,
    origin,
    parameter,
    result_dtype,
    wide,
)
from .philox import WORD, philox, stream_key

Distribution = Callable[..., Node]
Requirement = tuple[str, Callable[[Any], bool]]

ANY: Requirement = ("", lambda value: True)
POSITIVE: Requirement = ("above 0", lambda value: value > 0)
NOT_NEGATIVE: Requirement = ("at least 0", lambda value: value >= 0)
SHARE: Requirement = ("in [0, 1]", lambda value: 0 <= value <= 1)
POSITIVE_SHARE: Requirement = ("in (0, 1]", lambda value: 0 < value <= 1)

REQUIRED = inspect.Parameter.empty


def check(name: str, parameter: str, value: Any, requirement: Requirement) -> None:
    """Raise where a parameter that is a plain number is out of its range."""
    text, holds = requirement
    if isinstance(value, (int, float, np.number)) and not holds(value):
        raise ShapeError(
            message(f"random.{name}: {parameter}={value}", need=f"values of {parameter} {text}")
        )


def _signature(parameters: Sequence[tuple[str, Any, Requirement]], dtype: Any) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # Behind it nothing without a default can stand, so that it has none where a parameter has none.
    bare = any(default is REQUIRED for _, default, _ in parameters)
    members = [inspect.Parameter("shape", kind, default=REQUIRED if bare else None, annotation=Any)]
    members += [
        inspect.Parameter(name, kind, default=default, annotation=Any)
        for name, default, _ in parameters
    ]
    members.append(inspect.Parameter("dtype", kind, default=dtype, annotation=Any))
    keyword = inspect.Parameter.KEYWORD_ONLY
    members.append(inspect.Parameter("key", keyword, default=None, annotation="Key | None"))
    return inspect.Signature(members, return_annotation=Node)


_FIELDS = """
shape: Of the result: ints, names, Dims; None for the broadcast shape of the parameters.
{parameters}
dtype: {dtype}
returns: {gradient}
raises ShapeError: If a parameter does not broadcast to `shape`, or is a plain number out of its
    range.
raises DTypeError: If `dtype` is not {kind}.
"""
_EXAMPLE = """
>>> mg.random.seed(0)
>>> x = mg.random.{call}.eval()
>>> {statistic}
{value}
"""


def _described(name: str, default: Any, requirement: Requirement) -> str:
    text = "Number, array or node"
    if requirement[0]:
        text += f", {requirement[0]}"
    if default is not REQUIRED:
        text += f"; {default} unless said"
    return f"{name}: {text}."


def distribution(
    name: str,
    parameters: Sequence[tuple[str, Any, Requirement]],
    summary: str,
    body: Callable[..., Node],
    *,
    module: str,
    notes: str,
    example: tuple[str, str, str],
    no_gradient: str = "",
    gradient: str = "",
    integers: bool = False,
) -> tuple[Distribution, Composite]:
    """Make a distribution's function and its record.

    name: Of the function.
    parameters: For each its name, its default (`REQUIRED` for none) and what plain numbers must be.
    summary, notes, example: What the docstring is made of; the example is a call, a statistic of
        ``x``, its value.
    body: ``body(shape, computing, key, *nodes)`` makes the result in the computing dtype.
    module: ``__name__`` of the calling module.
    gradient, no_gradient: Where it flows to, or why it does not.
    integers: True where the result is whole: `dtype` is an integer's then, and `computing` float64.
    """
    signature = _signature(parameters, INT32 if integers else None)

    def function(*args: Any, **keywords: Any) -> Node:
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        values = bound.arguments
        raw = [values[each] for each, _, _ in parameters]
        for (each, _, requirement), value in zip(parameters, raw, strict=True):
            check(name, each, value, requirement)
        if integers:
            target, computing = integer_dtype(name, values["dtype"]), FLOAT64
        else:
            target = result_dtype(name, values["dtype"], *raw)
            computing = wide(target)
        nodes = tuple(parameter(value, computing) for value in raw)
        extents = common_shape(name, values["shape"], nodes)
        return cast(body(extents, computing, values["key"], *nodes), target)

    flow = f"No gradient: {no_gradient}." if no_gradient else f"Gradients flow to {gradient}."
    fields = _FIELDS.format(
        parameters="\n".join(_described(*each) for each in parameters),
        dtype="An integer dtype."
        if integers
        else "A float dtype; `mg.config.float_dtype`, or that of the parameters, unless said.",
        gradient=flow,
        kind="an integer's" if integers else "a float's",
    )
    call, statistic, value = example
    example_text = _EXAMPLE.format(call=call, statistic=statistic, value=value)
    function.__signature__ = signature  # type: ignore[attr-defined]
    publish(function, name, module, summary, notes, fields, example_text)
    return function, drawing_record(function, summary, no_gradient)


def integer_dtype(name: str, dtype: Any) -> np.dtype:
    """Return an integer dtype, or raise."""
    target = canonical(dtype)
    if not is_integer(target):
        raise DTypeError(message(f"random.{name}: dtype={target.name}", need="an integer dtype"))
    return target


# Operations that draw.


def _drawn_type(call: Call, step: Type, *parameters: Type, shape: Shape, **attrs: Any) -> Type:
    check_step(call, step)
    for each in parameters:
        if not is_float(each.dtype):
            raise call.dtype_error(f"a parameter of dtype {each.dtype.name}", need="a float dtype")
        if call.broadcast(each.shape, shape) != shape:
            raise misfit(call.op.name, each.shape, shape)
    return Type(parameters[0].dtype, shape)


def _mapped(node: Node, operands: Sequence[Node], batched: Sequence[bool]) -> Node:
    """Map a draw over a new first axis, with parameters for each position."""
    extent: Extent = mapped_extent(operands, batched)
    rank = len(node.attrs["shape"])
    lifted_operands = [
        lifted(operand, rank) if is_batched else operand
        for operand, is_batched in zip(operands, batched, strict=True)
    ]
    return node.op(*lifted_operands, **{**node.attrs, "shape": (extent, *node.attrs["shape"])})


def drawing_op(
    name: str,
    doc: str,
    sample: Callable[..., Any],
    *,
    attributes: Mapping[str, str] | None = None,
    gradient: Callable[[Node, Node], Parts] | None = None,
    no_gradient: str = "",
) -> Op:
    """Make a record whose array expression draws.

    ``sample(xp, draw, *parameters, **attrs)`` gets flat float64 parameters, one for each element,
    and ``draw(elements, part)``, which gives two independent numbers in (0, 1) for each of some
    elements.
    """

    def evaluate(
        xp: Any,
        step: Any,
        *parameters: Any,
        seed: int,
        stream: int,
        shape: tuple[int, ...],
        **attrs: Any,
    ) -> Any:
        flat = [xp.broadcast_to(each, shape).astype(np.float64).reshape(-1) for each in parameters]
        moment = int(step) & 0xFFFFFFFFFFFFFFFF

        def draw(elements: Any, part: int) -> tuple[Any, Any]:
            return _pair(xp, stream_key(seed, stream, part), moment, elements)

        # Parameters outside a distribution's domain give NaN, without an error.
        with np.errstate(all="ignore"):
            result = sample(xp, draw, *flat, **attrs)
        return result.reshape(shape).astype(parameters[0].dtype)

    return Op(
        name=name,
        kind=Kind.RANDOM,
        effect=Effect.RANDOM,
        doc=doc,
        rule=_drawn_type,
        attributes={"seed": "Seed", "stream": "Seed", **(attributes or {})},
        evaluate=evaluate,
        gradient=gradient,
        no_gradient=no_gradient,
        batching=_mapped,
    )


def _pair(xp: Any, key: tuple[int, int], moment: int, elements: Any) -> tuple[Any, Any]:
    """Return two numbers of 53 digits in (0, 1) for each element: the middles of their cells."""
    half, word = xp.uint64(32), xp.uint64(WORD)
    at = elements.astype(np.uint64)
    zero = xp.zeros_like(at)
    counter = (
        at & word,
        at >> half,
        zero + xp.uint64(moment & WORD),
        zero + xp.uint64(moment >> 32),
    )
    w0, w1, w2, w3 = philox(xp, counter, key)
    eleven = xp.uint64(11)
    first, second = (w0 | (w1 << half)) >> eleven, (w2 | (w3 << half)) >> eleven
    scale = 2.0**-53
    return (first + 0.5) * scale, (second + 0.5) * scale


def draw_node(op: Op, shape: Shape, key: Key | None, *parameters: Node, **attrs: Any) -> Node:
    """Return a new node of a drawing operation."""
    step, seed, stream = origin(key)
    return op(step, *parameters, seed=seed, stream=stream, shape=shape, **attrs)


MOST_ROUNDS = 2000  # acceptance is above 1/4 everywhere: more trials mean an error, not bad luck


def accepted(
    xp: Any,
    draw: Callable[[Any, int], tuple[Any, Any]],
    result: Any,
    elements: Any,
    propose: Callable[[Any, Any, Any], tuple[Any, Any]],
    part: int = 0,
) -> int:
    """Fill the elements of a flat result with accepted candidates; return the next free part.

    ``propose(elements, first, second)`` gives, for some elements and two uniform numbers each, the
    candidates and whether they are accepted.
    """
    for _ in range(MOST_ROUNDS):
        if not elements.size:
            return part
        candidates, good = propose(elements, *draw(elements, part))
        result[elements[good]] = candidates[good]
        elements = elements[~good]
        part += 1
    raise AssertionError("a rejection sampler accepts nothing")
