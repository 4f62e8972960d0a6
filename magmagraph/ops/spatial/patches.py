"""Patches as values: what every window of an image meets, and images that are added up from it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir import dims
from ...ir.dims import Dim
from ...ir.docstrings import documented
from ...ir.graph import Node
from ...ir.op import BadSample, Call, Composite, Kind, Sample, Tests
from ...ir.types import Extent, Shape
from ..convolution.functions import per_axis, reference_slide, values
from ..convolution.shapes import numbers, paddings, slide, spatial_axes
from ..elementwise.arithmetic import add
from ..elementwise.family import floating
from ..shape.arrange import reshape
from ..shape.joining import stack
from ..shape.padding import pad
from ..shape.slicing import PLACE, SLICE

__all__ = ["fold", "unfold"]


def _starts(tap: tuple[int, ...], dilation: tuple[int, ...]) -> Shape:
    return (0, 0, *[k * d for k, d in zip(tap, dilation, strict=True)])


def _taps(window: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, window)))


def _sides(call: Call, padding: Any, count: int) -> tuple[tuple[int, int], ...]:
    pairs = paddings(call, padding, count)
    if isinstance(pairs, str):
        raise call.shape_error(
            f"padding={padding!r}", need="'valid', an int, or a pair for each axis"
        )
    return pairs


@documented
def unfold(
    x: Any, window: Any, stride: Any = 1, padding: Any = "valid", dilation: Any = 1
) -> Node:
    """Lay what every window meets side by side, as the columns of a matrix.

    ``reshape(w, (results, -1)) @ unfold(x, window)`` is ``conv(x, w)``, with its results in a row.

    x: Node or array of shape ``(batch, channels, *spatial)`` with one to three spatial axes; ints
        become floats. Every extent but those of channels may be named.
    window: Extents of the window: an int, or one per spatial axis.
    stride, dilation: As for `conv`.
    padding: As for `conv`, but not ``"same"``.
    returns: Of shape ``(batch, channels * elements of the window, windows)``.
    raises ShapeError, DTypeError: As for `conv`.

    >>> mg.unfold(mg.constant([[[1.0, 2.0, 3.0, 4.0]]]), 2).eval()
    array([[[1., 2., 3.],
            [2., 3., 4.]]], dtype=float32)
    """
    node = floating(x)
    call = Call(UNFOLD, (node,))
    count = spatial_axes(call, node.ndim)
    extents = numbers(call, window, count, "window", 1)
    sliding = slide(call, node.shape[2:], extents, stride, padding, dilation)
    around = _sides(call, padding, count)
    padded = pad(node, ((0, 0), (0, 0), *around)) if any(map(any, around)) else node
    shape = (*node.shape[:2], *sliding.extents)
    steps = (1, 1, *sliding.strides)
    parts = [
        SLICE(padded, starts=_starts(tap, sliding.dilation), steps=steps, shape=shape)
        for tap in _taps(extents)
    ]
    rows = node.shape[1] * len(parts)
    return reshape(stack(parts, 2), (node.shape[0], rows, dims.size(sliding.extents)))


@documented
def fold(
    patches: Any,
    extents: Any,
    window: Any,
    stride: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
) -> Node:
    """Add up patches where their windows lie: the transpose of `unfold`.

    patches: Node or array of shape ``(batch, channels * elements of the window, windows)``, as
        `unfold` gives it; ints become floats.
    extents: The spatial extents of the result: a tuple of ints, one per axis.
    window, stride, padding, dilation: Those of the `unfold` that this is the transpose of.
    returns: Of shape ``(batch, channels, *extents)``.
    raises ShapeError: If the axes of the patches are not those of so many windows.
    raises DTypeError: For extents that are not ints, and as for `conv`.

    >>> mg.fold(mg.ones((1, 2, 3)), (4,), 2).eval()
    array([[[1., 2., 2., 1.]]], dtype=float32)
    """
    node = floating(patches)
    call = Call(FOLD, (node,))
    if not isinstance(extents, (tuple, list)) or not 1 <= len(extents) <= 3:
        raise call.shape_error(f"extents={extents!r}", need="a tuple of one to three ints")
    count = len(extents)
    spatial = numbers(call, tuple(extents), count, "extents", 0)
    if node.ndim != 3:
        raise call.shape_error(
            f"patches of {node.ndim} axes", need="3: batch, channels and taps, windows"
        )
    elements = numbers(call, window, count, "window", 1)
    sliding = slide(call, spatial, elements, stride, padding, dilation)
    around = _sides(call, padding, count)
    taps = _taps(elements)
    batch, rows, windows = node.shape
    expected_count = dims.size(sliding.extents)
    if isinstance(rows, Dim) or rows % len(taps):
        raise call.shape_error(
            f"{rows} rows for windows of {len(taps)} elements", need="channels times elements"
        )
    call.unify(windows, expected_count, "the patches and the windows of the extents")
    channels = rows // len(taps)
    grid = reshape(node, (batch, channels, len(taps), *sliding.extents))
    outer: Shape = tuple(n + a + b for n, (a, b) in zip(spatial, around, strict=True))
    total: Node | None = None
    for i, tap in enumerate(taps):
        cut_shape: tuple[Extent, ...] = (batch, channels, 1, *sliding.extents)
        part = SLICE(
            grid, starts=(0, 0, i, *(0,) * count), steps=(1,) * grid.ndim, shape=cut_shape
        )
        placed = PLACE(
            reshape(part, (batch, channels, *sliding.extents)),
            starts=_starts(tap, sliding.dilation),
            steps=(1, 1, *sliding.strides),
            shape=(batch, channels, *outer),
            value=0,
        )
        total = placed if total is None else add(total, placed)
    assert total is not None
    if not any(map(any, around)):
        return total
    inner = (0, 0, *[before for before, _ in around])
    return SLICE(
        total, starts=inner, steps=(1,) * total.ndim, shape=(batch, channels, *spatial)
    )


def _places(
    extents: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Return the input positions of every window's elements, including those outside."""
    count = len(extents)
    sizes, strides = per_axis(window, count), per_axis(stride, count)
    dilations, around = per_axis(dilation, count), per_axis(padding, count)
    geometry = [
        reference_slide(*entry)
        for entry in zip(extents, sizes, strides, around, dilations, strict=True)
    ]
    return [
        (place, [
            tuple(
                o * s + k * d - g[0]
                for o, s, k, d, g in zip(place, strides, tap, dilations, geometry, strict=True)
            )
            for tap in np.ndindex(*sizes)
        ])
        for place in np.ndindex(*[windows for *_, windows in geometry])
    ]  # fmt: skip


def _inside(at: tuple[int, ...], extents: Any) -> bool:
    return all(0 <= i < n for i, n in zip(at, extents, strict=True))


def _reference_unfold(
    x: Any, window: Any, stride: Any = 1, padding: Any = "valid", dilation: Any = 1
) -> np.ndarray:
    places = _places(x.shape[2:], window, stride, padding, dilation)
    taps = math.prod(per_axis(window, x.ndim - 2))
    result = np.zeros((*x.shape[:2], taps, len(places)), x.dtype)
    for column, (_, elements) in enumerate(places):
        for row, at in enumerate(elements):
            if _inside(at, x.shape[2:]):
                result[:, :, row, column] = x[(slice(None), slice(None), *at)]
    return result.reshape(x.shape[0], x.shape[1] * taps, len(places))


def _reference_fold(
    patches: Any,
    extents: Any,
    window: Any,
    stride: Any = 1,
    padding: Any = "valid",
    dilation: Any = 1,
) -> np.ndarray:
    taps = math.prod(per_axis(window, len(extents)))
    grid = patches.reshape(patches.shape[0], patches.shape[1] // taps, taps, -1)
    result = np.zeros((*grid.shape[:2], *extents), patches.dtype)
    places = _places(extents, window, stride, padding, dilation)
    for column, (_, elements) in enumerate(places):
        for row, at in enumerate(elements):
            if _inside(at, extents):
                target: Any = (slice(None), slice(None), *at)
                result[target] += grid[:, :, row, column]
    return result


_LINES = values(2, 3, 7)
_IMAGES = values(2, 2, 5, 4)

UNFOLD = Composite(
    kind=Kind.CONVOLUTION,
    function=unfold,
    tests=Tests(
        samples=lambda: [
            Sample((_LINES,), {"window": 3, "stride": 2, "padding": 1}),
            Sample((_IMAGES,), {"window": (2, 3), "dilation": (2, 1), "padding": ((0, 1), 1)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (_LINES,), ShapeError, "unfold: padding='same'", {"window": 3, "padding": "same"}
            ),
            BadSample(
                (_LINES,),
                ShapeError,
                "unfold: a window that reaches over 9 elements along spatial axis 0, and 7 with "
                "padding",
                {"window": 9},
            ),
        ],
        reference=_reference_unfold,
    ),
    numerics="exact",
)
FOLD = Composite(
    kind=Kind.CONVOLUTION,
    function=fold,
    tests=Tests(
        samples=lambda: [
            Sample((values(2, 6, 4),), {"extents": (7,), "window": 3, "stride": 2, "padding": 1}),
            Sample((values(1, 8, 6),), {"extents": (4, 3), "window": 2, "dilation": (1, 1)}),
        ],
        bad_samples=lambda: [
            BadSample(
                (values(2, 6, 4),),
                ShapeError,
                "fold: the patches and the windows of the extents differ: 4 and 5",
                {"extents": (7,), "window": 3},
            ),
            BadSample(
                (values(2, 5, 5),),
                ShapeError,
                "fold: 5 rows for windows of 3 elements",
                {"extents": (7,), "window": 3},
            ),
        ],
        reference=_reference_fold,
    ),
    numerics="reassoc",
)

RECORDS = (UNFOLD, FOLD)
