"""Move pooling before elementwise operations: there are fewer windows than elements.

The largest element of a window stays the largest one under what never decreases, and the gradient
of a maximum is nothing but at one element of each window. So biases, relu, its mask in the
gradient and the sums of biases' gradients need the windows' numbers alone:

    max_pool(relu(x))                                  ->  relu(max_pool(x))
    max_pool(x + bias)                                 ->  max_pool(x) + bias
    where(y > 0, pool_spread(g, taps(y)), 0)           ->  pool_spread(where(max_pool(y) > 0, g, 0),
                                                                       taps(y))
    sum(pool_spread(g, taps))                          ->  sum(g)

Values are the same to the last bit, but for the order of the sum. Where two elements of a window
become equal only by rounding their sums with the bias, the gradient goes to the larger one, not to
the first. A bias moves where a product makes the other term, which is in memory in any case.
"""

from __future__ import annotations

from ...dtypes import is_float
from ...ir.graph import Node
from ...ops.elementwise.arithmetic import ADD
from ...ops.elementwise.comparison import GREATER, WHERE
from ...ops.networks.activation import RELU
from ...ops.reduction.primitives import SUM
from ...ops.spatial.pooling_records import MAX_POOL, MAX_POOL_TAPS, POOL_SPREAD, spatial_of
from ..rewriting.pattern import uniform
from ..rewriting.rewrite import Match, Rule

_LARGEST = (MAX_POOL, MAX_POOL_TAPS)


def _pool_before_relu(match: Match) -> Node | None:
    """Return relu of the largest elements in place of the largest elements of relu."""
    pool = match.root
    (source,) = pool.inputs
    if source.op is not RELU or not _shrinks(pool, source) or not _pooled_alone(match, source):
        return None
    return RELU(MAX_POOL(source.inputs[0], **pool.attrs))


def _pool_before_bias(match: Match) -> Node | None:
    """Return the sum of the largest elements and a bias that all elements of a window share."""
    pool = match.root
    (source,) = pool.inputs
    biased = _biased(pool, source)
    if biased is None or not _pooled_alone(match, source):
        return None
    x, bias = biased
    return ADD(MAX_POOL(x, **pool.attrs), bias)


def _taps_before_bias(match: Match) -> Node | None:
    """Return the positions of the largest elements before a bias is added."""
    taps = match.root
    (source,) = taps.inputs
    biased = _biased(taps, source)
    if biased is None or not _pooled_alone(match, source):
        return None
    return MAX_POOL_TAPS(biased[0], **taps.attrs)


def _mask_of_windows(match: Match) -> Node | None:
    """Mask the values before they are scattered to windows, not after."""
    mask, spread, nothing = match.root.inputs
    if mask.op is not GREATER or spread.op is not POOL_SPREAD or uniform(nothing) != 0:
        return None
    g, taps = spread.inputs
    y, bound = mask.inputs
    if taps.op is not MAX_POOL_TAPS or taps.inputs[0] is not y or uniform(bound) is None:
        return None
    if bound.shape != () or nothing.shape != () or not _shrinks(taps, y):
        return None
    if match.reads(spread) > 1:
        return None  # what is spread is in memory without the mask, too
    passed = WHERE(GREATER(MAX_POOL(y, **taps.attrs), bound), g, nothing)
    return POOL_SPREAD(passed, taps, **spread.attrs)


def _taps_before_relu(match: Match) -> Node | None:
    """Return what is spread by places before relu, where only positive elements get anything."""
    spread = match.root
    passed, taps = spread.inputs
    if taps.op is not MAX_POOL_TAPS or taps.inputs[0].op is not RELU or passed.op is not WHERE:
        return None
    mask, _, nothing = passed.inputs
    if mask.op is not GREATER or uniform(nothing) != 0 or uniform(mask.inputs[1]) != 0:
        return None
    (z,) = taps.inputs[0].inputs
    largest = mask.inputs[0]
    if largest.op is not RELU or match.intern(MAX_POOL(z, **taps.attrs)) is not largest.inputs[0]:
        return None  # pooling has not moved before relu, as something else reads that
    return POOL_SPREAD(passed, MAX_POOL_TAPS(z, **taps.attrs), **spread.attrs)


def _sum_of_windows(match: Match) -> Node | None:
    """Return the sum of the values before they are scattered to windows."""
    (spread,) = match.root.inputs
    axes: tuple[int, ...] = match.root.attrs["axes"]
    if spread.op is not POOL_SPREAD:
        return None
    g, taps = spread.inputs
    if taps.op is not MAX_POOL_TAPS or not set(_spatial(spread)) <= set(axes):
        return None
    if not _shrinks(taps, taps.inputs[0]):
        return None
    return SUM(g, axes=axes)


def _spatial(node: Node) -> range:
    """Return the spatial axes of a pooled value."""
    count, end = len(node.attrs["window"]), node.ndim - node.attrs["channels_last"]
    return range(end - count, end)


def _shrinks(pool: Node, source: Node) -> bool:
    """Return whether there are fewer windows than elements, each with an element of the input."""
    attrs = pool.attrs
    extents = spatial_of(source.shape, len(attrs["window"]), attrs["channels_last"])
    axes = zip(
        extents, attrs["extents"], attrs["window"], attrs["strides"], attrs["dilation"],
        attrs["low"], strict=True,
    )
    fewer = False
    for n, count, window, stride, dilation, low in axes:
        if not all(isinstance(number, int) for number in (n, count, low)):
            return False
        if dilation != 1 or not 0 <= low < window or (count - 1) * stride - low >= n:
            return False
        fewer = fewer or count < n
    return fewer and is_float(source.dtype)


def _biased(pool: Node, source: Node) -> tuple[Node, Node] | None:
    """Return the terms of a product's result and a bias that is the same within windows."""
    if source.op is not ADD or not _shrinks(pool, source):
        return None
    for x, bias in (source.inputs, source.inputs[::-1]):
        ahead = source.ndim - bias.ndim
        same = all(
            axis < ahead or bias.shape[axis - ahead] == 1 for axis in _spatial(pool)
        )
        if x.shape == source.shape and x.op.policy == "allow" and same:
            return x, bias
    return None


def _pooled_alone(match: Match, source: Node) -> bool:
    """Return whether nothing but pooling reads a value."""
    readers = match.readers(source)
    return readers is not None and all(reader.op in _LARGEST for reader in readers)


RULES: tuple[Rule, ...] = (
    Rule(
        "max-pool before relu", (MAX_POOL,), _pool_before_relu,
        looks=lambda node: node.inputs[0].op is RELU,
    ),
    Rule(
        "max-pool before bias", (MAX_POOL,), _pool_before_bias,
        looks=lambda node: node.inputs[0].op is ADD,
    ),
    Rule(
        "max-pool indices before bias", (MAX_POOL_TAPS,), _taps_before_bias,
        looks=lambda node: node.inputs[0].op is ADD,
    ),
    Rule(
        "mask of max-pool gradient", (WHERE,), _mask_of_windows,
        looks=lambda node: node.inputs[1].op is POOL_SPREAD,
    ),
    Rule(
        "max-pool indices before relu", (POOL_SPREAD,), _taps_before_relu,
        looks=lambda node: node.inputs[1].op is MAX_POOL_TAPS,
    ),
    Rule(
        "sum of max-pool gradient", (SUM,), _sum_of_windows,
        looks=lambda node: node.inputs[0].op is POOL_SPREAD,
    ),
)  # fmt: skip
