"""Scaled dot-product attention: composed of products and a softmax, or block by block.

The composed form is two products with one fused kernel between them, and holds the scores of all
queries and keys. The form by rows holds a block of them; its record, its gradient's, and what they
compute of arrays (`attention_rows`) are the only primitives here. Second derivatives of the form by
rows are those of the composed one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...autodiff.autodiff import sweep
from ...dtypes import accumulation_dtype, is_integer
from ...errors import DTypeError, ShapeError, message
from ...ir import dims
from ...ir.graph import Node
from ...ir.lines import grouped
from ...ir.op import BadSample, Call, Composite, Kernel, Kind, Op, Precision, Sample, Tests
from ...ir.types import Extent, Shape, Type
from ..control.identities import ITEM, MARKER, stop_gradient
from ..convert import as_node, cast
from ..elementwise.arithmetic import add, divide, multiply, subtract
from ..elementwise.comparison import equal, where
from ..elementwise.family import BOOL, floating_operands, one_dtype
from ..elementwise.math import exp, rsqrt
from ..elementwise.rounding import isfinite
from ..leaf import extent
from ..products.contraction import matmul
from ..random.basic import bernoulli
from ..reduction.primitives import max, sum
from ..rules import onnx_forms
from ..shape.arrange import moveaxis, reshape, swapaxes
from . import attention_rows
from .masks import seen

__all__ = ["scaled_dot_product_attention"]
_ALGORITHMS = ("auto", "full", "rows")
# Scores of a head, and bytes of all scores, up to which two products and a softmax are faster where
# blocks are array expressions of small products. "auto" takes rows above both.
FULL_SCORES, FULL_BYTES = 1 << 20, 512 << 20


# The composed form. Queries are scaled and have an axis of groups: the heads that share keys.


def _folded(x: Node) -> Node:
    """Return queries, or what belongs to them, with groups and rows as one axis."""
    *lead, groups, length, width = x.shape
    return reshape(x, (*lead, groups * length, width))


def _composed(
    q: Node, k: Node, v: Node, mask: Node | None, causal: bool, dropout: Any = 0.0,
    fill: float = -math.inf,
) -> Node:  # fmt: skip
    *lead, groups, length, _ = q.shape
    scores = matmul(_folded(q), swapaxes(k, -1, -2))
    scores = reshape(scores, (*lead, groups, length, k.shape[-2]))
    if mask is not None:
        scores = where(mask, scores, fill) if mask.dtype == BOOL else add(scores, mask)
    if causal:
        scores = where(seen(length, k.shape[-2]), scores, -math.inf)
    # Of a row that sees nothing the largest score is -inf, and the sum of exponentials 0.
    top = stop_gradient(max(scores, -1, keepdims=True)) if _some(k.shape[-2]) else 0.0
    if isinstance(top, Node):
        top = where(isfinite(top), top, 0.0)
    power = exp(subtract(scores, top))
    total = sum(power, -1, keepdims=True)
    chances = divide(power, where(equal(total, 0.0), 1.0, total))
    if not (isinstance(dropout, (int, float)) and dropout == 0):
        keep = subtract(1.0, dropout) if isinstance(dropout, Node) else 1.0 - dropout
        chances = where(bernoulli(chances.shape, keep), divide(chances, keep), 0.0)
    result = matmul(_folded(chances), v)
    return reshape(result, (*lead, groups, length, v.shape[-1]))


def _some(count: Extent) -> bool:
    return not (isinstance(count, int) and count == 0)


# The form by rows.


def _lead_and_mask(call: Call, q: Type, k: Type, v: Type, mask: tuple[Type, ...]) -> None:
    one_dtype(call, q, k, v, *(each for each in mask if each.dtype != BOOL))
    for other, what in ((k, "queries and keys"), (v, "queries and values")):
        for left, right in zip(q.shape[:-3], other.shape[:-2], strict=True):
            call.unify(left, right, f"leading extents of {what}")
    call.unify(q.shape[-1], k.shape[-1], "dims of queries and keys")
    call.unify(k.shape[-2], v.shape[-2], "lengths of keys and values")
    for each in mask:
        call.broadcast((*q.shape[:-1], k.shape[-2]), each.shape)


def _heads_first(call: Call, q: Type, k: Type, v: Type) -> tuple[Type, Type, Type]:
    """Return operands whose rows come first in the order of the rest."""
    for each, least in ((q, 4), (k, 3), (v, 3)):
        if each.ndim < least:
            raise call.shape_error(f"an operand of type {each}", need=f"at least {least} axes")
    *lead, length, heads, groups, width = q.shape
    first = Type(q.dtype, (*lead, heads, groups, length, width))
    keys, values = (
        Type(x.dtype, (*x.shape[:-3], x.shape[-2], x.shape[-3], x.shape[-1])) for x in (k, v)
    )
    return first, keys, values


def _rows_type(
    call: Call, q: Type, k: Type, v: Type, *mask: Type, causal: bool, block: int,
    fill: float = -math.inf, rows_first: bool = False,
) -> tuple[Type, ...]:  # fmt: skip
    width = v.shape[-1]
    result = Type(q.dtype, (*q.shape[:-1], width))
    if rows_first:
        q, k, v = _heads_first(call, q, k, v)
    _lead_and_mask(call, q, k, v, mask)
    return result, Type(accumulation_dtype(q.dtype), q.shape[:-1])


def _rows_gradient(node: Node, cotangent: Any) -> tuple[Node | None, ...]:
    q, k, v, *mask = node.inputs
    to_out, to_lse = cotangent
    out, lse = ITEM(node, index=0), ITEM(node, index=1)
    if to_out is None:
        to_out = multiply(out, 0.0)
    assert to_lse is None  # only gradients read it, and second ones are the composed form's
    made = ROWS_GRADIENT(q, k, v, lse, out, to_out, *mask, **node.attrs)
    parts = [ITEM(made, index=i) for i in range(len(made.type))]
    return (*parts, *([None] if len(parts) < len(node.inputs) else []))


def _flops(products: int) -> Any:
    def flops(
        q: Type, k: Type, v: Type, *others: Type, rows_first: bool = False, **attrs: Any
    ) -> Extent:
        length = k.shape[-3 if rows_first else -2]
        return products * dims.size(q.shape[:-1]) * length * (k.shape[-1] + v.shape[-1])

    return flops


_ATTRIBUTES = {
    "block": "Positive", "fill": "NotRequired[float]", "rows_first": "NotRequired[bool]",
}  # fmt: skip

ROWS = Op(
    name="attention_rows",
    kind=Kind.CONTRACTION,
    doc="Attention block by block, with the logarithm of each row's sum of exponentials.",
    rule=_rows_type,
    attributes=_ATTRIBUTES,
    evaluate=attention_rows.forward,
    kernel=Kernel(
        into=attention_rows.forward_into, workspace=attention_rows.forward_bytes
    ),
    gradient=_rows_gradient,
    flops=_flops(2),
    precision=Precision(factors=(0, 1, 2)),
    numerics="reassoc",
    batching="leading",
    onnx=onnx_forms.rewritten(lambda node: (_written(node),)),
)


def _written(node: Node) -> Node:
    """Return the attention in the composed form; its logarithms have none."""
    q, k, v, *mask = node.inputs
    fill = node.attrs.get("fill", -math.inf)
    rows_first = node.attrs.get("rows_first", False)
    if rows_first:
        q, k, v = moveaxis(q, -4, -2), swapaxes(k, -3, -2), swapaxes(v, -3, -2)
    made = _composed(q, k, v, mask[0] if mask else None, node.attrs["causal"], fill=fill)
    return moveaxis(made, -2, -4) if rows_first else made


def _rows_gradient_type(
    call: Call, q: Type, k: Type, v: Type, lse: Type, out: Type, cotangent: Type, *mask: Type,
    causal: bool, block: int, fill: float = -math.inf, rows_first: bool = False,
) -> tuple[Type, ...]:  # fmt: skip
    made, logarithms = _rows_type(
        call, q, k, v, *mask, causal=causal, block=block, rows_first=rows_first
    )
    for given, wanted, what in (
        (lse, logarithms, "logarithms"), (out, made, "results"), (cotangent, made, "cotangents")
    ):  # fmt: skip
        if given.dtype != wanted.dtype or given.ndim != wanted.ndim:
            raise call.shape_error(f"{what} of type {given}", need=str(wanted))
        for left, right in zip(given.shape, wanted.shape, strict=True):
            call.unify(left, right, f"extents of queries and {what}")
    return (q, k, v, *(m for m in mask if m.dtype != BOOL))


def _rows_second(node: Node, cotangents: Any) -> tuple[Node | None, ...]:
    """Differentiate the composed form twice: its gradient is what this node holds.

    That counts also what goes through `lse` and `out`, which therefore get none themselves.
    """
    q, k, v, _, _, above, *mask = node.inputs
    assert not node.attrs.get("rows_first")  # made by a pass, after gradients are taken
    # Copies: two operands may be one node, or depend on each other.
    fresh = [MARKER(x, role="operand") for x in (q, k, v, above)]
    added = [MARKER(m, role="operand") if m.dtype != BOOL else m for m in mask]
    smooth = [m for m in added if m.dtype != BOOL]
    bias = added[0] if added else None
    fill = node.attrs.get("fill", -math.inf)
    out = _composed(fresh[0], fresh[1], fresh[2], bias, node.attrs["causal"], fill=fill)
    first = sweep([out], [fresh[3]], [("", x) for x in (*fresh[:3], *smooth)], free=True)
    pairs = [
        (g, c) for g, c in zip(first, cotangents, strict=True) if g is not None and c is not None
    ]
    wanted = [("", x) for x in (*fresh, *smooth)]
    parts = sweep([g for g, _ in pairs], [c for _, c in pairs], wanted, free=True)
    rest = parts[4:] if smooth else [None] * len(mask)
    return (*parts[:3], None, None, parts[3], *rest)


ROWS_GRADIENT = Op(
    name="attention_rows_gradient",
    kind=Kind.CONTRACTION,
    doc="The gradient of attention, block by block, from the logarithms that the forward keeps.",
    rule=_rows_gradient_type,
    attributes=_ATTRIBUTES,
    evaluate=attention_rows.backward,
    kernel=Kernel(
        into=attention_rows.backward_into, workspace=attention_rows.backward_bytes
    ),
    gradient=_rows_second,
    flops=_flops(5),
    precision=Precision(factors=(0, 1, 2, 4, 5)),
    numerics="reassoc",
    batching="leading",
)


# The public functions.


@grouped
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    causal: bool = False,
    scale: Any = None,
    dropout: float | Node = 0.0,
    algorithm: str = "auto",
    block: int = 256,
) -> Node:
    """Average values by how well their keys match queries.

    ``softmax(scale * query @ key.T + mask) @ value``; A. Vaswani et al., "Attention is all you
    need", NIPS 2017, equation 1.

    Parameters
    ----------
    query
        Node or array of shape ``(..., heads, length, dim)``, or ``(length, dim)``.
    key
        Of shape ``(..., key_heads, other, dim)``. `key_heads` divides `heads`: each head of keys
        and values serves a group of so many neighbouring heads of queries (one head of keys is
        multi-query attention).
    value
        Of shape ``(..., key_heads, other, width)``.
    mask
        Broadcast to ``(..., heads, length, other)``. Bool: true where a query may see a key.
        Float: added to the scores; gradients flow to it.
    causal
        Query i sees keys 0 to i only, besides what `mask` says.
    scale
        Of the scores; ``1 / sqrt(dim)`` unless said. A number or a scalar node.
    dropout
        Probability of a weight to be dropped (and the others scaled up): a number in [0, 1), or a
        scalar node. For training only.
    algorithm
        "full" computes all scores at once. "rows" never holds more than a block of them: memory
        beside the operands grows with the lengths, not with their product. It computes the scores
        again for the gradient; a second derivative goes through the full form. "auto" takes rows
        where a head has more than 2**20 scores and all scores together more than 512 MiB (16-bit
        floats have scores of float32), and there is no dropout. If extents are not known when the
        graph is built, and for devices with a kernel for it, the compiler decides: its pass
        `attention` takes rows under the same rule on a CPU, and far earlier with such a kernel.
    block
        Of "rows": the most queries, and keys, that are taken at once.

    Returns
    -------
    Node
        Of shape ``(..., heads, length, width)``. 16-bit floats are computed in float32; by rows,
        queries are rounded again when they are scaled. A query that may see no key gets zeros, and
        no gradient.

    Raises
    ------
    ShapeError
        If the shapes do not fit, or an option is none of those above.
    DTypeError
        If the mask holds integers.

    Notes
    -----
    The layout is that of PyTorch: heads before rows. ``mg.swapaxes(x, -3, -2)`` turns an operand
    with heads behind its rows into it. Values are those of `mask` and `causal` together.

    Examples
    --------
    >>> import magmagraph as mg
    >>> query = mg.constant([[0.0, 10.0], [10.0, 0.0]])
    >>> key = mg.constant([[0.0, 10.0], [10.0, 0.0]])
    >>> value = mg.constant([[1.0], [2.0]])
    >>> mg.scaled_dot_product_attention(query, key, value).eval()
    array([[1.],
           [2.]], dtype=float32)
    >>> mg.scaled_dot_product_attention(query, key, value, causal=True).eval()
    array([[1.],
           [2.]], dtype=float32)
    """
    given = floating_operands(query, key, value)
    call = Call(ATTENTION, given)
    _check_options(algorithm, block, dropout)
    flat = given[0].ndim == 2
    if flat:
        given = tuple(reshape(x, (1, *x.shape)) if x.ndim == 2 else x for x in given)
    groups = _check_heads(call, given)
    half = given[0].dtype.itemsize < 4
    q, k, v = (cast(x, np.float32) if half else x for x in given)
    heads, length = q.shape[-3], q.shape[-2]
    held = _mask(call, mask, (*q.shape[:-1], k.shape[-2]), groups, q.dtype)
    q = multiply(q, _scale(scale, q))
    idle = isinstance(dropout, (int, float)) and dropout == 0
    if algorithm == "auto":
        count = length * k.shape[-2]
        size = dims.size(q.shape[:-1]) * k.shape[-2] * q.dtype.itemsize
        known = isinstance(count, int) and isinstance(size, int)
        large = known and count > FULL_SCORES and size > FULL_BYTES
        algorithm = "rows" if large and idle else "full"
    if algorithm == "rows" and half and held is None:
        q, k, v = cast(q, given[0].dtype), given[1], given[2]  # devices have kernels of 16 bits
    q = reshape(q, (*q.shape[:-3], k.shape[-3], groups, length, q.shape[-1]))
    if algorithm == "rows":
        if not idle:
            raise call.shape_error(
                f"dropout={dropout} with algorithm='rows'",
                need="algorithm='full', which holds the weights that are dropped",
            )
        masks = [] if held is None else [held]
        result = ITEM(ROWS(q, k, v, *masks, causal=bool(causal), block=int(block)), index=0)
    else:
        result = _composed(q, k, v, held, causal, dropout)
    shape = (*result.shape[:-4], heads, length, v.shape[-1])
    return cast(reshape(result, shape[1:] if flat else shape), given[0].dtype)


def _check_options(algorithm: str, block: int, dropout: float | Node) -> None:
    name = "scaled_dot_product_attention"
    if algorithm not in _ALGORITHMS:
        need = f"one of {', '.join(_ALGORITHMS)}"
        raise ShapeError(message(f"{name}: algorithm={algorithm!r}", need=need))
    if not isinstance(block, (int, np.integer)) or isinstance(block, bool) or block < 1:
        raise ShapeError(message(f"{name}: block={block!r}", need="a positive int"))
    if not isinstance(dropout, Node) and not 0 <= dropout < 1:
        raise ShapeError(message(f"{name}: dropout={dropout}", need="0 <= dropout < 1"))


def _check_heads(call: Call, given: tuple[Node, ...]) -> int:
    """Return how many heads of queries share one of keys, or raise where shapes do not fit."""
    q, k, v = given
    if q.ndim < 3 or not q.ndim == k.ndim == v.ndim:
        raise call.shape_error(
            f"operands of {q.ndim}, {k.ndim} and {v.ndim} axes",
            need="as many axes each: (..., heads, length, dim), or (length, dim)",
        )
    for left, right in zip(q.shape[:-3], k.shape[:-3], strict=True):
        call.unify(left, right, "leading extents of queries and keys")
    for left, right in zip(k.shape[:-2], v.shape[:-2], strict=True):
        call.unify(left, right, "leading extents of keys and values")
    call.unify(q.shape[-1], k.shape[-1], "dims of queries and keys")
    call.unify(k.shape[-2], v.shape[-2], "lengths of keys and values")
    heads, shared = q.shape[-3], k.shape[-3]
    if heads == shared:
        return 1
    if not isinstance(heads, int) or not isinstance(shared, int) or not shared or heads % shared:
        raise call.shape_error(
            f"{heads} heads of queries for {shared} of keys",
            need="as many, or a number of heads of keys that divides that of the queries",
        )
    return heads // shared


def _mask(call: Call, mask: Any, shape: Shape, groups: int, dtype: np.dtype) -> Node | None:
    """Return a mask with as many axes as the scores, which have an axis of groups."""
    if mask is None:
        return None
    node = as_node(mask, dtype)
    if node.dtype != BOOL:
        if is_integer(node.dtype):
            raise call.dtype_error(
                f"a mask of dtype {node.dtype.name}",
                need="bool (true where a query may see a key), or floats, which are added",
                hint="mg.cast(mask, 'bool')",
            )
        node = cast(node, dtype)
    if node.ndim > len(shape):
        raise call.shape_error(f"a mask of {node.ndim} axes for scores of {len(shape)}")
    lead: list[Extent] = [1] * (len(shape) - node.ndim)
    full = (*lead, *node.shape)
    call.broadcast(shape, full)
    heads = full[-3]
    split: tuple[Extent, ...] = (1, 1)
    if heads != 1:
        assert isinstance(heads, int) or groups == 1
        split = (heads // groups, groups)
    return reshape(node, (*full[:-3], *split, *full[-2:]))


def _scale(scale: Any, q: Node) -> Any:
    if scale is not None:
        return cast(scale, q.dtype)
    width = q.shape[-1]
    if isinstance(width, int):
        return 1.0 / math.sqrt(width) if width else 1.0
    return rsqrt(cast(extent(width), q.dtype))


# Records.


def _reference(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray | None = None,
    causal: bool = False,
    scale: float | None = None,
    **others: Any,
) -> np.ndarray:
    """Attend row by row, as the formula reads."""
    flat = query.ndim == 2
    q, k, v = (x[None] if flat else x for x in (query, key, value))
    shared = q.shape[-3] // k.shape[-3]
    length, other = q.shape[-2], k.shape[-2]
    bias = np.broadcast_to(0.0 if mask is None else mask, (*q.shape[:-1], other))
    result = np.zeros((*q.shape[:-1], v.shape[-1]))
    factor = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    for place in np.ndindex(*q.shape[:-1]):
        *lead, head, i = place
        at = (*lead, head // shared)
        chosen = [
            j
            for j in range(other)
            if (not causal or j <= i) and (bias.dtype != bool or bias[place][j])
        ]
        if not chosen:
            continue
        scores = factor * k[at][chosen] @ q[place]
        scores = scores if bias.dtype == bool else scores + bias[place][chosen]
        finite = np.isfinite(scores.max())
        weights = np.exp(scores - scores.max()) if finite else np.zeros_like(scores)
        result[place] = weights @ v[at][chosen] / (weights.sum() or 1.0)
    assert length == result.shape[-2]
    return result[0] if flat else result


def _waves(*shape: int) -> np.ndarray:
    count = math.prod(shape)
    return 1.5 * np.sin(1.7 * np.arange(1.0, count + 1.0) ** 1.1).reshape(shape)


def _samples() -> list[Sample]:
    plain = (_waves(5, 3), _waves(4, 3)[::-1], _waves(4, 2))
    heads = (_waves(2, 4, 3, 2), _waves(2, 2, 5, 2) + 0.1, _waves(2, 2, 5, 3))
    flags = np.cos(np.arange(15.0)).reshape(3, 5) > -0.5
    flags[1] = False
    bias = _waves(4, 1, 5)
    rows = {"algorithm": "rows", "block": 2}
    return [
        Sample(plain),
        Sample(plain, {"causal": True, "scale": 0.3}),
        Sample(heads),
        Sample((*heads, flags)),
        Sample((*heads, bias), {"causal": True}),
        Sample(plain, rows),
        Sample(plain, {"causal": True, "algorithm": "rows", "block": 3}),
        Sample((*heads, flags), rows),
        Sample((*heads, bias), {"causal": True, **rows}),
        Sample((*heads, np.where(flags, 0.5, -np.inf)), rows, gradient=(0, 1, 2),
               reason="an infinite mask"),
        Sample((*heads, _waves(2, 1, 3, 1)), {"algorithm": "rows", "block": 4}),
        Sample((np.zeros((2, 0, 3)), np.ones((2, 4, 3)), np.ones((2, 4, 1))), rows),
        Sample((np.ones((2, 3, 3)), np.ones((2, 0, 3)), np.ones((2, 0, 1))), rows),
        Sample((np.ones((2, 3, 3)), np.ones((2, 0, 3)), np.ones((2, 0, 1)))),
    ]


_ONES = np.ones((2, 3, 4))

ATTENTION = Composite(
    name="scaled_dot_product_attention",
    kind=Kind.CONTRACTION,
    function=scaled_dot_product_attention,
    doc="Values averaged by how well their keys match queries.",
    tests=Tests(
        samples=_samples,
        bad_samples=lambda: [
            BadSample(
                (_ONES, _ONES[..., :3], _ONES),
                ShapeError,
                "scaled_dot_product_attention: dims of queries and keys differ: 4 and 3",
            ),
            BadSample(
                (_ONES, _ONES, _ONES[:, :2]),
                ShapeError,
                "scaled_dot_product_attention: lengths of keys and values differ: 3 and 2",
            ),
            BadSample(
                (np.ones((3, 3, 4)), _ONES, _ONES),
                ShapeError,
                "scaled_dot_product_attention: 3 heads of queries for 2 of keys",
            ),
            BadSample(
                (_ONES, _ONES, _ONES, np.ones((3, 3), np.int32)),
                DTypeError,
                "scaled_dot_product_attention: a mask of dtype int32",
            ),
            BadSample(
                (_ONES, _ONES, _ONES, np.ones((3, 4))),
                ShapeError,
                "scaled_dot_product_attention: extents 3 and 4 do not broadcast (axis -1)",
            ),
            BadSample(
                (_ONES, _ONES, _ONES),
                ShapeError,
                "scaled_dot_product_attention: algorithm='fast'",
                {"algorithm": "fast"},
            ),
            BadSample(
                (_ONES, _ONES, _ONES),
                ShapeError,
                "scaled_dot_product_attention: dropout=0.5 with algorithm='rows'",
                {"algorithm": "rows", "dropout": 0.5},
            ),
            BadSample(
                (_ONES, _ONES, _ONES),
                ShapeError,
                "scaled_dot_product_attention: block=0",
                {"block": 0},
            ),
        ],
        reference=_reference,
    ),
    numerics="reassoc",
)

RECORDS = (ROWS, ROWS_GRADIENT, ATTENTION)
