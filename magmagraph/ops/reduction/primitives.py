"""Reductions: sums, products, extremes and their positions, truths, over any axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import is_float
from ...ir.graph import Node
from ...ir.op import INEXACT, Op, Reduction, Sample, Tests
from ...ir.types import Shape
from ..convert import cast
from ..elementwise.arithmetic import add, multiply
from ..elementwise.comparison import equal, maximum, minimum
from ..elementwise.comparison import where as select
from ..leaf import constant
from ..rules import onnx_forms, onnx_pairs
from ..shape.joining import broadcast_to
from .folding import (
    CUBE,
    NO_AXES,
    NOT_SMOOTH,
    WHOLE_CUBE,
    ExtremumFold,
    Fold,
    TruthFold,
    bad_axes,
    bad_extremum,
    extremum_fold,
    extremum_type,
    fold,
    fold_reference,
    fold_samples,
    position_reference,
    position_type,
    repeat_over,
    restored,
    same_dtype,
    truth_fold,
    truth_type,
    typed_fold,
)
from .others import product_of_others

# Array expressions.


def _folded(name: str) -> Callable[..., Any]:
    def evaluate(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        return getattr(xp, name)(x, axis=axes)

    return evaluate


def _extremum(name: str) -> Callable[..., Any]:
    def evaluate(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        if x.size:
            return getattr(xp, name)(x, axis=axes)
        if x.dtype.kind == "b":
            start: Any = name == "min"
        elif x.dtype.kind == "f":
            start = -np.inf if name == "max" else np.inf
        else:
            limits = np.iinfo(x.dtype)
            start = limits.min if name == "max" else limits.max
        return getattr(xp, name)(x, axis=axes, initial=start)

    return evaluate


def _position(name: str) -> Callable[..., Any]:
    def evaluate(xp: Any, x: Any, *, axes: tuple[int, ...]) -> Any:
        other_axes = [a for a in range(x.ndim) if a not in axes]
        rows = xp.transpose(x, (*other_axes, *axes))
        count = 1
        for a in axes:
            count *= x.shape[a]
        rows = rows.reshape(*[x.shape[a] for a in other_axes], count)
        if not count:
            return xp.zeros(rows.shape[:-1], dtype=np.int64)
        return getattr(xp, name)(rows, axis=-1)

    return evaluate


# Gradients.


def _sum_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    return (repeat_over(cotangent, node.inputs[0], node.attrs["axes"]),)


def _prod_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x, axes = node.inputs[0], node.attrs["axes"]
    return (restored(cotangent, axes) * product_of_others(x, axes),)


def _extremum_gradient(node: Node, cotangent: Node) -> tuple[Node]:
    x, axes = node.inputs[0], node.attrs["axes"]
    winners = cast(equal(x, restored(node, axes)), x.dtype)
    share = cotangent / SUM(winners, axes=axes)
    return (winners * restored(share, axes),)


# The reductions.

_SUMMED = "Without the reduced axes (unless `keepdims`), of the dtype told above. No elements give "

sum, SUM = typed_fold(
    "sum",
    "Add the elements along axes.",
    {
        "returns": _SUMMED + "0.",
        "example": """>>> mg.sum([[1.0, 2.0], [3.0, 4.0]], axis=0).eval()
array([4., 6.], dtype=float32)""",
    },
    neutral=0,
    join=add,
    rule=same_dtype,
    evaluate=_folded("sum"),
    reduction=Reduction(identity="(T)0", combine="a + b", blocked=True),
    gradient=_sum_gradient,
    tests=Tests(
        samples=fold_samples(NO_AXES, Sample((WHOLE_CUBE,), {"axis": 0}), Sample((CUBE > 0,))),
        bad_samples=lambda: bad_axes("sum"),
        reference=fold_reference("sum"),
    ),
    sharding="sum",
    dtypes=INEXACT,
    numerics="reassoc",
    onnx=onnx_pairs.Pairs(onnx_forms.over_axes("ReduceSum"), onnx_forms.over_axes("ReduceSum")),
)

prod, PROD = typed_fold(
    "prod",
    "Multiply the elements along axes.",
    {
        "notes": "Derivatives of every order are right where elements are zero, too.",
        "returns": _SUMMED + "1.",
        "example": """>>> mg.prod([[1.0, 2.0], [3.0, 4.0]], axis=0).eval()
array([3., 8.], dtype=float32)""",
    },
    neutral=1,
    join=multiply,
    rule=same_dtype,
    evaluate=_folded("prod"),
    reduction=Reduction(identity="(T)1", combine="a * b"),
    gradient=_prod_gradient,
    tests=Tests(
        samples=fold_samples(
            NO_AXES,
            Sample((WHOLE_CUBE,), {"axis": 0}),
            Sample((np.array([[2.0, 0.0, -1.5], [0.0, 3.0, 0.0]]),), {"axis": 1}),
        ),
        bad_samples=lambda: bad_axes("prod"),
        reference=fold_reference("prod"),
    ),
    dtypes=INEXACT,
    numerics="reassoc",
    onnx=onnx_forms.over_axes("ReduceProd"),
)


def _extremum_fold(
    name: str, word: str, nothing: str, result: str, reduction: Reduction, onnx: Any
) -> tuple[ExtremumFold, Op]:
    return extremum_fold(
        name,
        f"Find the {word} element along axes.",
        {
            "notes": "NaN where any element is NaN. Elements that tie share the gradient equally.\n"
            f"A named axis that is empty at a call gives {nothing},\n"
            "to which `initial` and the parts of other ranks are joined; one that is known to be\n"
            "empty raises.",
            "returns": "Of the dtype of `x`, without the reduced axes (unless `keepdims`).",
            "example": f""">>> mg.{name}([[1.0, 5.0], [3.0, 4.0]], axis=0).eval()
array({result}, dtype=float32)""",
        },
        of_none=empty_result,
        join=maximum if name == "max" else minimum,
        rule=extremum_type,
        evaluate=_extremum(name),
        reduction=reduction,
        gradient=_extremum_gradient,
        tests=Tests(
            samples=fold_samples(NOT_SMOOTH, Sample((WHOLE_CUBE,), {"axis": 0})),
            bad_samples=lambda: bad_extremum(name),
            reference=fold_reference(name),
        ),
        sharding=name,
        numerics="exact",
        onnx=onnx,
    )


def empty_result(node: Node, axes: tuple[int, ...], value: Any) -> Node:
    """Return a value in the shape of a reduction whose axes are empty.

    Of floats it depends on the operand, which so has a gradient (of no elements).
    """
    result = constant(value, node.dtype)
    if is_float(node.dtype):
        return select(constant(True), result, SUM(node, axes=axes))
    return broadcast_to(result, [node.shape[a] for a in range(node.ndim) if a not in axes])


max, MAX = _extremum_fold(
    "max", "largest", "-inf (the lowest integer)", "[3., 5.]",
    Reduction(identity="$lowest()", combine="$maximum(a, b)"),
    onnx=onnx_forms.over_axes("ReduceMax"),
)
min, MIN = _extremum_fold(
    "min", "smallest", "inf (the highest integer)", "[1., 4.]",
    Reduction(identity="$highest()", combine="$minimum(a, b)"),
    onnx=onnx_forms.over_axes("ReduceMin"),
)


def _position_fold(
    name: str, word: str, result: str, reduction: Reduction, onnx: Any
) -> tuple[Fold, Op]:
    return fold(
        name,
        f"Find the position of the {word} element along axes.",
        {
            "notes": "The first of equal elements wins, and NaN before any; 0 where a named axis\n"
            "is empty at a call. No gradient: integer valued.",
            "order": ".\n    Over several, the position counts through them in row-major order",
            "returns": "Positions, int64, without the reduced axes (unless `keepdims`).",
            "example": f""">>> mg.{name}([[1.0, 5.0], [3.0, 4.0]], axis=1).eval()
array({result})""",
        },
        rule=position_type,
        evaluate=_position(name),
        reduction=reduction,
        no_gradient="integer valued",
        tests=Tests(
            samples=fold_samples(NOT_SMOOTH, Sample((WHOLE_CUBE,), {"axis": 0})),
            bad_samples=lambda: bad_extremum(name),
            reference=position_reference(name),
        ),
        sharding=name,
        numerics="exact",
        onnx=onnx,
    )


argmax, ARGMAX = _position_fold(
    "argmax",
    "largest",
    "[1, 1]",
    Reduction(identity="$lowest()", combine="$greater_or_nan(b, a)", indexed=True),
    onnx=onnx_forms.position_over_axes("ArgMax"),
)
argmin, ARGMIN = _position_fold(
    "argmin",
    "smallest",
    "[0, 0]",
    Reduction(identity="$highest()", combine="$less_or_nan(b, a)", indexed=True),
    onnx=onnx_forms.position_over_axes("ArgMin"),
)


def _truth_fold(
    name: str, summary: str, nothing: bool, result: str, reduction: Reduction, onnx: Any
) -> tuple[TruthFold, Op]:
    return truth_fold(
        name,
        summary,
        {
            "kind": "; numbers are true where not zero",
            "returns": "bool, without the reduced axes (unless `keepdims`). No elements give "
            f"{nothing}.\n    No gradient: boolean valued.",
            "example": f""">>> mg.{name}([[True, False], [True, True]], axis=1).eval()
array({result})""",
        },
        neutral=nothing,
        rule=truth_type,
        evaluate=_folded(name),
        reduction=reduction,
        no_gradient="boolean valued",
        dtypes=INEXACT,
        tests=Tests(
            samples=fold_samples(
                Sample((CUBE > 2.5,), {"axis": 2}), Sample((CUBE > -1.5,), {"axis": 2})
            ),
            bad_samples=lambda: bad_axes(name),
            reference=fold_reference(name),
        ),
        numerics="exact",
        onnx=onnx,
    )


any, ANY = _truth_fold(
    "any",
    "Tell whether any element along axes is true.",
    False,
    "[ True,  True]",
    Reduction(identity="(T)0", combine="a | b"),
    onnx=onnx_forms.truth_over_axes("ReduceMax"),
)
all, ALL = _truth_fold(
    "all",
    "Tell whether every element along axes is true.",
    True,
    "[False,  True]",
    Reduction(identity="(T)1", combine="a & b"),
    onnx=onnx_forms.truth_over_axes("ReduceMin"),
)


def sum_to(x: Node, shape: Shape) -> Node:
    """Return `x` summed to a shape that broadcasts to its own: the gradient of broadcasting.

    An axis is summed where it is new, or where the target's extent is a literal 1 and the
    source's is not.
    """
    if x.shape == shape:
        return x
    new = x.ndim - len(shape)
    stretched = tuple(
        new + a
        for a, extent in enumerate(shape)
        if type(extent) is int
        and extent == 1
        and not (type(x.shape[new + a]) is int and x.shape[new + a] == 1)
    )
    axes = (*range(new), *stretched)
    if not axes:
        return x
    result = SUM(x, axes=axes)
    return restored(result, tuple(a - new for a in stretched))


def counted(mask: Node, axes: tuple[int, ...], dtype: np.dtype) -> Node:
    """Return how many elements count along axes."""
    return cast(SUM(cast(mask, np.dtype(np.int64)), axes=axes), dtype)


RECORDS: tuple[Op, ...] = (SUM, PROD, MAX, MIN, ARGMAX, ARGMIN, ANY, ALL)
