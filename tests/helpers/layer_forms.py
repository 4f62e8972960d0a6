"""What layers compute, written out in NumPy with loops: for the tests of layers."""

import itertools

import numpy as np

from magmagraph.dtypes import tolerance


def close(result, expected, scale=1.0):
    row = tolerance(np.dtype("float32"), "reassoc")
    size = scale * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(result, expected, row.relative * scale, row.absolute * size)


def convolution(x, w, stride=1, low=0, dilation=1, groups=1):
    """Channels first, any number of axes, `low` zeros on both sides."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(low, low)] * axes])
    window = w.shape[2:]
    extents = [
        (n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], window, strict=True)
    ]
    out = np.zeros((len(x), len(w), *extents))
    ins, outs = x.shape[1] // groups, len(w) // groups
    for o in range(len(w)):
        part = x[:, o // outs * ins : (o // outs + 1) * ins]
        for at in itertools.product(*map(range, extents)):
            cut = tuple(
                slice(i * stride, i * stride + dilation * (k - 1) + 1, dilation)
                for i, k in zip(at, window, strict=True)
            )
            out[(slice(None), o, *at)] = (part[(..., *cut)] * w[o]).reshape(len(x), -1).sum(-1)
    return out


def transposed(x, w, stride=1, low=0, extra=0, groups=1):
    """Spread each element over a window; w of shape (channels, results / groups, *window)."""
    window = w.shape[2:]
    full = [(n - 1) * stride + k + extra for n, k in zip(x.shape[2:], window, strict=True)]
    share, ins = w.shape[1], x.shape[1] // groups
    out = np.zeros((len(x), share * groups, *full))
    for c in range(x.shape[1]):
        first = c // ins * share
        for at in itertools.product(*map(range, x.shape[2:])):
            cut = tuple(
                slice(i * stride, i * stride + k) for i, k in zip(at, window, strict=True)
            )
            value = x[(slice(None), c, *at)].reshape(-1, 1, *(1,) * len(window))
            out[(slice(None), slice(first, first + share), *cut)] += value * w[c]
    ends = tuple(slice(low, n - low) for n in full)
    return out[(..., *ends)]


def pooled(x, window, stride, reduce):
    extents = [(n - window) // stride + 1 for n in x.shape[2:]]
    out = np.zeros((*x.shape[:2], *extents))
    axes = tuple(range(2, x.ndim))
    for at in itertools.product(*map(range, extents)):
        cut = tuple(slice(i * stride, i * stride + window) for i in at)
        out[(..., *at)] = reduce(x[(..., *cut)], axes)
    return out


def grid(x, parts, reduce):
    out = np.zeros((*x.shape[:2], *parts))
    axes = tuple(range(2, x.ndim))
    for at in itertools.product(*map(range, parts)):
        cut = tuple(
            slice(i * n // m, -(-(i + 1) * n // m))
            for i, m, n in zip(at, parts, x.shape[2:], strict=True)
        )
        out[(..., *at)] = reduce(x[(..., *cut)], axes)
    return out


def normalized(x, axes, eps):
    variance = x.var(axes, keepdims=True)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(variance + eps)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rotated(x, base=10000.0):
    """(..., length, features), pairs in both halves, as complex numbers."""
    half = x.shape[-1] // 2
    turn = np.exp(1j * np.arange(x.shape[-2])[:, None] / base ** (np.arange(half) / half))
    z = (x[..., :half] + 1j * x[..., half:]) * turn
    return np.concatenate([z.real, z.imag], -1)


def attention(x, c, w, heads, key_heads=None, causal=False, rotary=False, mask=None):
    """Multi-head attention with weights by name, ``query/kernel`` and so on."""
    key_heads = key_heads or heads

    def project(value, name, count):
        projected = value @ w[f"{name}/kernel"] + w.get(f"{name}/bias", 0.0)
        return projected.reshape(*projected.shape[:2], count, -1).transpose(0, 2, 1, 3)

    q = project(x, "query", heads)
    k, v = (project(c, name, key_heads) for name in ("key", "value"))
    if rotary:
        q, k = rotated(q), rotated(k)
    k, v = (np.repeat(part, heads // key_heads, 1) for part in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    heads_first = (softmax(scores) @ v).transpose(0, 2, 1, 3)
    merged = heads_first.reshape(*heads_first.shape[:2], -1)
    return merged @ w["output/kernel"] + w.get("output/bias", 0.0)


def below(weights, name):
    """Return the weights of a sublayer, under their names there."""
    start = name + "/"
    return {key.removeprefix(start): w for key, w in weights.items() if key.startswith(start)}


def layer_norm(x, w, eps=1e-5):
    return normalized(x, (-1,), eps) * w["scale"] + w["offset"]


def rms_norm(x, w, eps=1e-6):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w["scale"]


def dense(x, w, name):
    return x @ w[f"{name}/kernel"] + w.get(f"{name}/bias", 0.0)


def experts(x, w, active, function, gated=False, capacity=None, normalized=True):
    """Go through positions one by one; first choices have precedence."""
    rows = x.reshape(-1, x.shape[-1])
    chances = softmax(rows @ w["router"])
    order = np.argsort(-chances, -1, kind="stable")[:, :active]
    count = w["router"].shape[1]
    limit = len(rows)
    if capacity is not None:
        limit = int(np.ceil(round(len(rows) * active * capacity / count, 6)))
    loads, out = [0] * count, np.zeros_like(rows)
    for choice in range(active):
        for n, row in enumerate(rows):
            e = order[n, choice]
            if loads[e] >= limit:
                continue
            loads[e] += 1
            share = chances[n, e] / (chances[n, order[n]].sum() if normalized else 1.0)
            wide = row @ w["expand"][e]
            wide = wide * function(row @ w["gate"][e]) if gated else function(wide)
            out[n] += share * (wide @ w["output"][e])
    return out.reshape(x.shape)
