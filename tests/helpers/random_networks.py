"""Random programs of what networks are made of: convolutions, pooling, norms, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from random_domains import DOMAINS, SIZES, Domain, Pairs

import magmagraph as mg
from magmagraph.ir.graph import Node

LAST = {3: "NWC", 4: "NHWC", 5: "NDHWC"}


def _images(build: Pairs) -> None:
    batch = build.some(("batch", 2, 1))
    count = int(build.some((1, 2, 2, 2, 3)))
    spatial = build.extents(("h", "w", "d")[:count], range(3, 9))
    channels = int(build.some((1, 2, 3, 4, 6)))
    build.leaf((batch, channels, *spatial[: max(1, len(spatial))]))
    build.leaf((batch, channels, *spatial))


def _image(build: Pairs) -> Node:
    fitting = [node for node, _ in build.made if 3 <= node.ndim <= 5]
    place = int(len(fitting) * np.sqrt(build.rng.uniform()))
    return fitting[min(place, len(fitting) - 1)]


def _weights(build: Pairs, *shape: int) -> Node:
    node = build.leaf(shape)
    build.made.pop()  # not an image
    return node * 0.5


def _extents(node: Node) -> list[Any]:
    """Return the extents, with the size of the batch in its place; others may be named."""
    return [SIZES["batch"] if extent == "batch" else extent for extent in node.shape]


def _known(extent: Any) -> int:
    """Return an extent that weights are made for."""
    if not isinstance(extent, int):
        raise LookupError
    return extent


def _each(build: Pairs, count: int, low: int, high: int) -> Any:
    """Return an int for each of the axes, or one for all."""
    if build.rng.uniform() < 0.5:
        return int(build.rng.integers(low, high))
    return tuple(int(e) for e in build.rng.integers(low, high, count))


def _padded(build: Pairs, count: int) -> Any:
    which = build.rng.integers(4)
    if which < 2:
        return ("valid", "same")[which]
    if which == 2:
        return _each(build, count, 0, 3)
    return tuple((int(a), int(b)) for a, b in build.rng.integers(0, 3, (count, 2)))


def _turned(build: Pairs, x: Node) -> tuple[Node, bool]:
    """Return an image, sometimes with its channels last."""
    if build.rng.uniform() < 0.4:
        return mg.moveaxis(x, 1, -1), True
    return x, False


def _windowed(build: Pairs, make: Callable[[], Node], last: bool) -> None:
    try:
        node = make()
    except mg.ShapeError:  # a window that is larger than the image
        raise LookupError from None
    build.add(mg.moveaxis(node, -1, 1) if last else node)


def _convolved(build: Pairs) -> None:
    x = _image(build)
    axes, channels = x.ndim - 2, _known(_extents(x)[1])
    groups = int(build.some([g for g in (1, 1, 2, 3, channels) if channels % g == 0]))
    results = groups * int(build.rng.integers(1, 4))
    window = [int(e) for e in build.rng.integers(1, 4, axes)]
    image, last = _turned(build, x)
    shape = (*window, channels // groups, results) if last else (
        results, channels // groups, *window
    )  # fmt: skip
    weights = _weights(build, *shape)
    bias = _weights(build, results) if build.rng.uniform() < 0.5 else None
    stride, padding = _each(build, axes, 1, 3), _padded(build, axes)
    dilation = _each(build, axes, 1, 3)
    algorithm = build.some(("auto", "auto", "auto", "direct", "im2col", "fft"))
    _windowed(
        build,
        lambda: mg.conv(
            image, weights, stride, padding, dilation, groups,
            LAST[x.ndim] if last else None, algorithm, bias,
        ),
        last,
    )  # fmt: skip


def _spread(build: Pairs) -> None:
    x = _image(build)
    axes, channels = x.ndim - 2, _known(_extents(x)[1])
    groups = int(build.some([g for g in (1, 1, 2, channels) if channels % g == 0]))
    results = int(build.rng.integers(1, 3))
    window = [int(e) for e in build.rng.integers(1, 4, axes)]
    image, last = _turned(build, x)
    shape = (*window, results, channels) if last else (channels, results, *window)
    weights = _weights(build, *shape)
    stride, padding = _each(build, axes, 1, 3), build.some(("valid", "same", 1))
    dilation = _each(build, axes, 1, 3)
    _windowed(
        build,
        lambda: mg.conv_transpose(
            image, weights, stride, padding, 0, dilation, groups, LAST[x.ndim] if last else None
        ),
        last,
    )


def _pooled(build: Pairs) -> None:
    x = _image(build)
    axes = x.ndim - 2
    image, last = _turned(build, x)
    layout = LAST[x.ndim] if last else None
    window, padding = _each(build, axes, 1, 4), _padded(build, axes)
    stride = _each(build, axes, 1, 3) if build.rng.uniform() < 0.7 else None
    dilation = _each(build, axes, 1, 3) if build.rng.uniform() < 0.3 else 1
    kind = build.some(("max_pool", "avg_pool"))
    function = getattr(mg, f"{kind}{axes}d")
    options = {"count_include_pad": bool(build.rng.integers(2))} if kind == "avg_pool" else {}

    def made() -> Node:
        pooled = function(image, window, stride, padding, dilation, layout, **options)
        return mg.where(mg.isfinite(pooled), pooled, 0.0)  # windows of padding alone

    _windowed(build, made, last)


def _gathered(build: Pairs) -> None:
    x = _image(build)
    functions: tuple[Callable[[Node], Node], ...] = (
        lambda a: mg.global_avg_pool(a),
        lambda a: mg.adaptive_avg_pool(a, int(build.rng.integers(1, 4))),
        lambda a: mg.adaptive_max_pool(a, int(build.rng.integers(1, 4))),
    )
    node = build.some(functions)(x)
    build.add(mg.reshape(node, (x.shape[0], -1, 1)) if node.ndim < 3 else node)


def _resized(build: Pairs) -> None:
    x = _image(build)
    image, last = _turned(build, x)
    method = build.some(("nearest", "linear", "cubic"))
    corners = bool(build.rng.integers(2)) and method != "nearest"
    sizes = [int(e) for e in build.rng.integers(1, 9, x.ndim - 2)]
    node = mg.resize(image, sizes, method=method, align_corners=corners, channels_last=last)
    build.add(mg.moveaxis(node, -1, 1) if last else node)


def _normalized(build: Pairs) -> None:
    x = _image(build)
    channels = _known(_extents(x)[1])
    scale, offset = _weights(build, channels), _weights(build, channels)
    mean, variance = _weights(build, channels), mg.square(_weights(build, channels)) + 0.5
    groups = int(build.some([g for g in (1, 2, 3, channels) if channels % g == 0]))
    functions: tuple[Callable[[Node], Node], ...] = (
        lambda a: mg.batch_norm(a, scale, offset, eps=0.1),
        lambda a: mg.batch_norm(a, scale, eps=0.1),
        lambda a: mg.batch_norm(a, scale, offset, mean, variance, training=False),
        lambda a: mg.batch_norm(mg.moveaxis(a, 1, -1), scale, offset, eps=0.1, axis=-1),
        lambda a: mg.group_norm(a, groups, scale, offset, eps=0.1),
        lambda a: mg.instance_norm(a, scale, offset, eps=0.1),
        lambda a: mg.layer_norm(mg.moveaxis(a, 1, -1), scale, offset, eps=0.1),
        lambda a: mg.layer_norm(a, axis=(1, 2), eps=0.1),
        lambda a: mg.rms_norm(mg.moveaxis(a, 1, -1), scale, eps=0.1),
        lambda a: mg.local_response_norm(a, 3, 0.1),
        lambda a: mg.softmax(a, axis=1) * mg.expand_dims(scale, tuple(range(1, a.ndim - 1))),
        lambda a: mg.normalize(a + 0.5, axis=1),
    )
    build.add(build.some(functions)(x))


def _activated(build: Pairs) -> None:
    x = _image(build)
    names = ("relu", "gelu", "silu", "sigmoid", "elu", "softplus", "mish", "hard_swish")
    node = getattr(mg, build.some(names))(x)
    fitting = [other for other, _ in build.made if other.shape == x.shape]
    build.add(node + build.some(fitting) if build.rng.uniform() < 0.5 else node)


def _attended(build: Pairs) -> None:
    x = _image(build)
    width, heads = _known(_extents(x)[-1]), int(build.some((1, 2, 4)))
    shared = int(build.some([h for h in (1, heads) if heads % h == 0]))
    rows = mg.reshape(x, (x.shape[0], -1, width))
    length = _extents(rows)[1]
    if isinstance(length, int) and length * length * heads > 4000:
        raise LookupError

    def cut(count: int, size: int) -> Node:
        part = rows @ _weights(build, width, count * size)
        return mg.swapaxes(mg.reshape(part, (x.shape[0], length, count, size)), 1, 2)

    query, key, value = cut(heads, 4), cut(shared, 4), cut(shared, 3)
    if build.rng.uniform() < 0.3:
        query, key = mg.apply_rotary(query), mg.apply_rotary(key)
    mask = None
    which = build.rng.integers(3) if isinstance(length, int) else 0
    if which == 1:
        mask = mg.constant(build.rng.uniform(size=(length, length)) < 0.7)
    elif which == 2:
        mask = _weights(build, heads, 1, length)
    attended = mg.scaled_dot_product_attention(
        query, key, value, mask,
        causal=bool(build.rng.integers(2)),
        scale=build.some((None, 0.3)),
        algorithm=build.some(("auto", "full", "rows")),
        block=int(build.some((256, 3, 7))),
    )  # fmt: skip
    build.add(mg.reshape(mg.swapaxes(attended, 1, 2), (x.shape[0], length, -1)))


def _unfolded(build: Pairs) -> None:
    x = _image(build)
    if x.ndim != 4:
        raise LookupError
    _, channels, high, wide = _extents(x)
    channels = _known(channels)
    window, stride = (int(build.rng.integers(1, 4)) for _ in range(2))
    padding = build.some(("valid", 1))

    def made() -> Node:
        patches = mg.unfold(x, window, stride, padding)
        if not isinstance(high, int) or not isinstance(wide, int):
            return mg.tanh(patches)
        return mg.fold(mg.tanh(patches), (high, wide), window, stride, padding)

    if channels % 4 == 0 and build.rng.uniform() < 0.4:
        build.add(mg.pixel_shuffle(x, 2))
    elif 0 == high % 2 == wide % 2 and build.rng.uniform() < 0.4:
        build.add(mg.pixel_unshuffle(x, 2))
    else:
        _windowed(build, made, False)


def _padded_out(build: Pairs) -> None:
    x = _image(build)
    axis = int(build.rng.integers(1, x.ndim))
    functions: tuple[Callable[[Node], Node], ...] = (
        lambda a: mg.pad(a, [(0, 0)] * (a.ndim - 1) + [(1, 2)]),
        lambda a: mg.concatenate([a, a * 0.5], axis=1),
        lambda a: a[..., 1:] if _extents(a)[-1] != 1 else a,
        lambda a: a + mg.max(a, axis=axis, keepdims=True),
        lambda a: a - mg.mean(a, axis=tuple(range(2, a.ndim)), keepdims=True),
        lambda a: mg.linear_recurrence(mg.sigmoid(a), a, axis=axis),
        lambda a: mg.glu(mg.concatenate([a, a], axis=1), axis=1),
    )
    build.add(build.some(functions)(x))


DOMAINS["network"] = Domain(
    _images,
    (
        *(_convolved, _convolved, _convolved, _spread, _pooled, _pooled, _gathered, _resized),
        *(_normalized, _normalized, _activated, _activated, _attended, _unfolded, _padded_out),
    ),
)
