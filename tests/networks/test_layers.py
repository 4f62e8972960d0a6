"""Layers against forms written out in NumPy: values, gradients, files, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from interpreted import value
from layer_forms import (
    attention,
    below,
    close,
    convolution,
    dense,
    experts,
    grid,
    layer_norm,
    normalized,
    pooled,
    rms_norm,
    rotated,
    sigmoid,
    silu,
    transposed,
)

import magmagraph as mg
from magmagraph.dtypes import tolerance

nn = mg.nn
LIMIT = tolerance(np.dtype("float32"), "reassoc")


def last(x):
    return np.moveaxis(x, 1, -1)


def first(x):
    return np.moveaxis(x, -1, 1)


def channels(w, like):
    return w.reshape(-1, *(1,) * (like.ndim - 2))


def with_bias(y, w):
    return y + channels(w["bias"], y)


def relu(x):
    return np.maximum(x, 0)


def block(x, w, heads, *, first_norm, norm, function, causal=False, context=None, **options):
    def half(x, name, layer):
        scale = below(w, f"{name}_norm")
        if first_norm:
            return x + layer(norm(x, scale), below(w, name))
        return norm(x + layer(x, below(w, name)), scale)

    def feed(x, w):
        if "expand/gate/kernel" in w:
            wide = dense(x, w, "expand/value") * function(dense(x, w, "expand/gate"))
        else:
            wide = function(dense(x, w, "expand"))
        return dense(wide, w, "output")

    x = half(x, "attention", lambda x, w: attention(x, x, w, heads, causal=causal, **options))
    if context is not None:
        scale, inner = below(w, "context_norm"), below(w, "context_attention")
        if first_norm:
            x = x + attention(norm(x, scale), context, inner, heads)
        else:
            x = norm(x + attention(x, context, inner, heads), scale)
    return half(x, "feed_forward", feed)


def bilinear(x):
    """Twice the size of the last axis, outer edges upon each other."""
    n = x.shape[-1]
    at = np.clip((np.arange(2 * n) + 0.5) / 2 - 0.5, 0, n - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, n - 1)
    return x[..., low] + (at - low) * (x[..., high] - x[..., low])


def recurrent(x, w, reverse=False):
    h = np.zeros((len(x), w["cell/recurrent"].shape[0]))
    steps = range(x.shape[1])
    for t in reversed(steps) if reverse else steps:
        h = np.tanh(x[:, t] @ w["cell/kernel"] + h @ w["cell/recurrent"] + w["cell/bias"])
    return h


def spectral(w):
    matrix = w["layer/kernel"].T
    return matrix.T / (w["left"] @ matrix @ w["right"])


SEQUENCE, IMAGE, VOLUME, TOKENS = (2, 4, 9), (2, 4, 6, 5), (2, 2, 4, 5, 3), (2, 5, 8)

# Name: the layer, the shape of its input, and what it gives, of x and the weights by name.
FORMS = {
    "Conv1D": (
        lambda: nn.Conv1D(6, 3, stride=2, padding=1, dilation=2, groups=2), SEQUENCE,
        lambda x, w: with_bias(convolution(x, w["kernel"], 2, 1, 2, 2), w),
    ),
    "Conv1D, channels last": (
        lambda: nn.Conv1D(3, 2, "tanh", layout="NWC"), SEQUENCE,
        lambda x, w: np.tanh(
            last(with_bias(convolution(first(x), w["kernel"].transpose(2, 1, 0)), w))
        ),
    ),
    "Conv3D": (
        lambda: nn.Conv3D(3, (2, 3, 2), padding=1), VOLUME,
        lambda x, w: with_bias(convolution(x, w["kernel"], low=1), w),
    ),
    "Conv1DTranspose": (
        lambda: nn.Conv1DTranspose(3, 3, stride=2, output_padding=1), SEQUENCE,
        lambda x, w: with_bias(transposed(x, w["kernel"], 2, extra=1), w),
    ),
    "Conv2DTranspose": (
        lambda: nn.Conv2DTranspose(6, 3, stride=2, padding=1, groups=2), IMAGE,
        lambda x, w: with_bias(transposed(x, w["kernel"], 2, 1, groups=2), w),
    ),
    "Conv2DTranspose, channels last": (
        lambda: nn.Conv2DTranspose(3, 2, stride=2, layout="NHWC"), IMAGE,
        lambda x, w: last(
            with_bias(transposed(first(x), w["kernel"].transpose(3, 2, 0, 1), 2), w)
        ),
    ),
    "Conv3DTranspose": (
        lambda: nn.Conv3DTranspose(2, 2, bias=False), VOLUME,
        lambda x, w: transposed(x, w["kernel"]),
    ),
    "DepthwiseConv1D": (
        lambda: nn.DepthwiseConv1D(3), SEQUENCE,
        lambda x, w: with_bias(convolution(x, w["kernel"], groups=4), w),
    ),
    "DepthwiseConv2D": (
        lambda: nn.DepthwiseConv2D(3, multiplier=2, padding=1), IMAGE,
        lambda x, w: with_bias(convolution(x, w["kernel"], low=1, groups=4), w),
    ),
    "SeparableConv1D": (
        lambda: nn.SeparableConv1D(3, 3, "tanh"), SEQUENCE,
        lambda x, w: np.tanh(with_bias(
            convolution(convolution(x, w["depthwise/kernel"], groups=4), w["pointwise/kernel"]),
            below(w, "pointwise"),
        )),
    ),
    "SeparableConv2D": (
        lambda: nn.SeparableConv2D(3, 3, multiplier=2, stride=2, padding=1), IMAGE,
        lambda x, w: with_bias(
            convolution(
                convolution(x, w["depthwise/kernel"], 2, 1, groups=4), w["pointwise/kernel"]
            ),
            below(w, "pointwise"),
        ),
    ),
    "MaxPool1D": (
        lambda: nn.MaxPool1D(3, stride=2), SEQUENCE, lambda x, w: pooled(x, 3, 2, np.max)
    ),
    "AvgPool1D": (lambda: nn.AvgPool1D(2), SEQUENCE, lambda x, w: pooled(x, 2, 2, np.mean)),
    "MaxPool3D": (
        lambda: nn.MaxPool3D(2, stride=1), VOLUME, lambda x, w: pooled(x, 2, 1, np.max)
    ),
    "AvgPool3D": (
        lambda: nn.AvgPool3D(2, stride=1), VOLUME, lambda x, w: pooled(x, 2, 1, np.mean)
    ),
    "GlobalMaxPool2D": (lambda: nn.GlobalMaxPool2D(), IMAGE, lambda x, w: x.max((2, 3))),
    "AdaptiveAvgPool": (
        lambda: nn.AdaptiveAvgPool((4, 2)), IMAGE, lambda x, w: grid(x, (4, 2), np.mean)
    ),
    "AdaptiveMaxPool": (
        lambda: nn.AdaptiveMaxPool(3), IMAGE, lambda x, w: grid(x, (3, 3), np.max)
    ),
    "Upsample": (
        lambda: nn.Upsample((2, 3)), IMAGE, lambda x, w: x.repeat(2, 2).repeat(3, 3)
    ),
    "Upsample, linear": (
        lambda: nn.Upsample(2, method="linear"), SEQUENCE, lambda x, w: bilinear(x)
    ),
    "PixelShuffle": (
        lambda: nn.PixelShuffle(2), IMAGE,
        lambda x, w: x.reshape(2, 1, 2, 2, 6, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 12, 10),
    ),
    "GroupNorm": (
        lambda: nn.GroupNorm(2), IMAGE,
        lambda x, w: normalized(x.reshape(2, 2, 2, 6, 5), (2, 3, 4), 1e-5).reshape(x.shape)
        * channels(w["scale"], x) + channels(w["offset"], x),
    ),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(eps=1e-3), IMAGE,
        lambda x, w: normalized(x, (2, 3), 1e-3) * channels(w["scale"], x)
        + channels(w["offset"], x),
    ),
    "InstanceNorm, without weights": (
        lambda: nn.InstanceNorm(scaled=False, axis=-1), IMAGE,
        lambda x, w: normalized(x, (1, 2), 1e-5),
    ),
    "RMSNorm": (lambda: nn.RMSNorm(), TOKENS, lambda x, w: rms_norm(x, w)),
    "WeightNorm of Dense": (
        lambda: nn.WeightNorm(nn.Dense(3)), (4, 5),
        lambda x, w: x @ (
            w["scale"] * w["layer/kernel"] / np.linalg.norm(w["layer/kernel"], axis=0)
        ) + w["layer/bias"],
    ),
    "WeightNorm of Conv2DTranspose": (
        lambda: nn.WeightNorm(nn.Conv2DTranspose(3, 2, bias=False)), IMAGE,
        lambda x, w: transposed(
            x,
            (v := w["layer/kernel"])
            * w["scale"].reshape(1, -1, 1, 1)
            / np.sqrt((v**2).sum((0, 2, 3), keepdims=True)),
        ),
    ),
    "SpectralNorm": (
        lambda: nn.SpectralNorm(nn.Dense(3, bias=False)), (4, 5),
        lambda x, w: x @ spectral(w),
    ),
    "LoRA": (
        lambda: nn.LoRA(nn.Dense(3, "tanh"), rank=2, alpha=4.0), (4, 5),
        lambda x, w: np.tanh(
            x @ (w["layer/kernel"] + 2.0 * w["down"] @ w["up"]) + w["layer/bias"]
        ),
    ),
    "GLU": (
        lambda: nn.GLU(3), TOKENS,
        lambda x, w: dense(x, w, "value") * sigmoid(dense(x, w, "gate")),
    ),
    "FeedForward": (
        lambda: nn.FeedForward(12, "tanh", width=3), TOKENS,
        lambda x, w: dense(np.tanh(dense(x, w, "expand")), w, "output"),
    ),
    "SwiGLU": (
        lambda: nn.SwiGLU(12), TOKENS,
        lambda x, w: dense(
            dense(x, w, "expand/value") * silu(dense(x, w, "expand/gate")), w, "output"
        ),
    ),
    "RotaryEmbedding": (
        lambda: nn.RotaryEmbedding(100.0), (2, 3, 5, 4), lambda x, w: rotated(x, 100.0)
    ),
    "MultiHeadAttention, grouped, rotary": (
        lambda: nn.MultiHeadAttention(4, causal=True, key_heads=2, rotary=True), TOKENS,
        lambda x, w: attention(x, x, w, 4, 2, causal=True, rotary=True),
    ),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(2, 12, "tanh"), TOKENS,
        lambda x, w: block(x, w, 2, first_norm=True, norm=layer_norm, function=np.tanh),
    ),
    "TransformerEncoder, norm behind": (
        lambda: nn.TransformerEncoder(2, 12, norm_first=False, bias=False), TOKENS,
        lambda x, w: block(x, w, 2, first_norm=False, norm=layer_norm, function=relu),
    ),
    "TransformerDecoder, as of Llama": (
        lambda: nn.TransformerDecoder(
            4, 12, "silu", norm="rms", gated=True, bias=False, key_heads=2, rotary=True
        ), TOKENS,
        lambda x, w: block(
            x, w, 4, first_norm=True, norm=rms_norm, function=silu, causal=True, key_heads=2,
            rotary=True,
        ),
    ),
    "MixtureOfExperts": (
        lambda: nn.MixtureOfExperts(4, 6, "silu", gated=True), TOKENS,
        lambda x, w: experts(x, w, 2, silu, gated=True),
    ),
    "MixtureOfExperts, one active": (
        lambda: nn.MixtureOfExperts(3, 6, "tanh", active=1), TOKENS,
        lambda x, w: experts(x, w, 1, np.tanh, normalized=False),
    ),
    "MixtureOfExperts, with a capacity": (
        lambda: nn.MixtureOfExperts(4, 6, "tanh", capacity=0.75), TOKENS,
        lambda x, w: experts(x, w, 2, np.tanh, capacity=0.75),
    ),
    "Bidirectional": (
        lambda: nn.Bidirectional(nn.RNN(3)), TOKENS,
        lambda x, w: np.concatenate(
            [recurrent(x, below(w, "forward")), recurrent(x, below(w, "backward"), True)], -1
        ),
    ),
    "Bidirectional, multiplied": (
        lambda: nn.Bidirectional(nn.RNN(3), merge="mul"), TOKENS,
        lambda x, w: recurrent(x, below(w, "forward")) * recurrent(x, below(w, "backward"), True),
    ),
}  # fmt: skip


def shaken(layer, rng):
    """Give all trained weights random values: those that begin at 0 or 1, too."""
    for weight in layer.weights().values():
        if weight.trainable:
            held = weight.variable
            held.value = rng.normal(0.1, 0.5, held.value.shape).astype("f4")
    return {name: w.variable.value.astype("f8") for name, w in layer.weights().items()}


@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients(name, rng):
    make, shape, form = FORMS[name]
    layer = make()
    x = mg.var("x", shape=("batch", *shape[1:]))
    y = layer(x)
    weights = shaken(layer, rng)
    given = rng.standard_normal(shape).astype("f4")
    trained = {name: w.variable for name, w in layer.weights().items() if w.trainable}
    f = mg.function([x], [y, mg.grad(mg.sum(y * y), [x, *trained.values()])])
    found, gradients = f(given)
    wide = given.astype("f8")
    wanted = form(wide, weights)
    assert found.shape == wanted.shape == (shape[0], *y.shape[1:])
    close(found, wanted, 10.0)
    # Central differences of the form, at some elements of the input and of each weight.
    for name, gradient in zip(["x", *trained], gradients, strict=True):
        point = wide if name == "x" else weights[name]
        for place in rng.choice(point.size, min(4, point.size), replace=False):
            slope = 0.0
            for sign in (1.0, -1.0):
                moved = point.copy()
                moved.flat[place] += sign * 1e-5
                at = form(moved, weights) if name == "x" else form(wide, {**weights, name: moved})
                slope += sign * (at**2).sum() / 2e-5
            size = float(np.abs(gradient).max())
            allowed = 10.0 * LIMIT.absolute * max(1.0, size)
            assert abs(gradient.flat[place] - slope) < allowed, (name, place)


@pytest.mark.parametrize("name", FORMS)
def test_files_hold_them(name, rng, tmp_path):
    make, shape, _ = FORMS[name]
    net = mg.NeuralNetwork([nn.Input(shape[1:]), make()], loss="mse")
    x = rng.standard_normal(shape).astype("f4")
    net.save(tmp_path / "net.safetensors")
    again = mg.NeuralNetwork.load(tmp_path / "net.safetensors")
    assert list(again.weights()) == list(net.weights())
    for other, own in zip(again.weights().values(), net.weights().values(), strict=True):
        assert np.array_equal(other.variable.value, own.variable.value)
        assert other.trainable == own.trainable
    found, wanted = (value(n.outputs[0], {n.inputs[0]: x}) for n in (again, net))
    assert np.array_equal(found, wanted)


def called(layer, *arrays, training=False, **options):
    nodes = [mg.var(f"x{i}", shape=("batch", *a.shape[1:])) for i, a in enumerate(arrays)]
    return mg.function(nodes, layer(*nodes, training=training, **options))(*arrays)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_looks_at_its_context(rng, norm_first):
    layer = nn.TransformerDecoder(2, 12, "tanh", norm_first=norm_first)
    x, c = (rng.standard_normal(shape).astype("f4") for shape in (TOKENS, (2, 7, 6)))
    nodes = mg.var("x", shape=("batch", 5, 8)), mg.var("c", shape=("batch", 7, 6))
    y = layer(*nodes)
    weights = shaken(layer, rng)
    wanted = block(
        x.astype("f8"), weights, 2, first_norm=norm_first, norm=layer_norm, function=np.tanh,
        causal=True, context=c.astype("f8"),
    )  # fmt: skip
    close(value(y, dict(zip(nodes, (x, c), strict=True))), wanted, 10.0)
    seen = layer(*nodes, context_mask=mg.padding_mask(mg.constant([3, 5]), 7)[:, None, None, :])
    first_rows = value(seen, dict(zip(nodes, (x, c), strict=True)))[0]
    c[0, 3:] = 100.0
    assert np.array_equal(value(seen, dict(zip(nodes, (x, c), strict=True)))[0], first_rows)
    with pytest.raises(mg.ConfigError, match="is called without a context"):
        layer(nodes[0])


def test_an_encoder_takes_a_mask(rng):
    layer = nn.TransformerEncoder(2, 12)
    x = mg.var("x", shape=("batch", 5, 8))
    y = layer(x, mask=mg.padding_mask(mg.constant([3, 5]), 5)[:, None, None, :])
    given = rng.standard_normal(TOKENS).astype("f4")
    before = value(y, {x: given})[0, :3]
    given[0, 3:] = 9.0
    assert np.array_equal(value(y, {x: given})[0, :3], before)


def test_weight_norm_begins_as_the_layer(rng):
    x = rng.standard_normal((4, 5)).astype("f4")
    dense_layer = nn.Dense(3)
    plain = called(dense_layer, x)
    close(called(nn.WeightNorm(dense_layer), x), plain)


def test_spectral_norm_finds_the_largest_singular_value(rng):
    layer = nn.SpectralNorm(nn.Conv2D(3, 2, bias=False, kernel_init=("normal", 0.0, 1.0)))
    x = mg.var("x", shape=("batch", 2, 4, 4))
    train = mg.function([x], layer(x, training=True))
    given = rng.standard_normal((2, 2, 4, 4)).astype("f4")
    for _ in range(40):
        train(given)
    kernel = layer.layer.kernel.value
    largest = np.linalg.svd(kernel.reshape(3, -1), compute_uv=False)[0]
    close(value(layer(x), {x: given}), convolution(given, kernel / largest), 10.0)
    held = layer.left.value
    mg.function([x], layer(x))(given)
    assert np.array_equal(layer.left.value, held)
    frozen = nn.SpectralNorm(nn.Dense(2), trainable=False)
    assert mg.default_updates(frozen(mg.var("y", shape=("n", 3)), training=True)) == {}


def test_lora_begins_as_the_layer_and_trains_two_thin_matrices(rng):
    x = rng.standard_normal((32, 6)).astype("f4")
    wanted = np.tanh(x @ rng.standard_normal((6, 3)).astype("f4"))
    base = nn.Dense(3, "tanh")
    before = called(base, x)
    layer = nn.LoRA(base, rank=2, alpha=4.0)
    assert np.array_equal(called(layer, x), before)
    net = mg.NeuralNetwork(
        [nn.Input((6,)), layer], loss="mse", optimizer=mg.optimizer.Adam(0.05), device="cpu"
    )
    assert {held.name.rpartition("/")[2] for held in net.trainable} == {"down", "up"}
    kernel = base.kernel.value
    history = net.fit(x, wanted, epochs=30, batch_size=32)
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    assert np.array_equal(base.kernel.value, kernel)
    trained = net.predict(x)
    assert layer.merge() is base
    close(called(base, x), trained, 10.0)
    close(net.predict(x), trained, 10.0)


def test_experts_report_their_balance(rng):
    layer = nn.MixtureOfExperts(4, 6, active=1, return_balance=True, capacity=2.0)
    x = mg.var("x", shape=("rows", 3))
    y, balance = layer(x)
    layer.router.value = np.zeros((3, 4), "f4")
    layer.router.value = np.concatenate([np.full((3, 1), 50.0), np.zeros((3, 3))], 1).astype("f4")
    positive = np.abs(rng.standard_normal((8, 3))).astype("f4") + 0.1
    found, all_to_one = value(y, {x: positive}), value(balance, {x: positive})
    close(all_to_one, 4.0)
    # An expert takes 2.0 * 1 * 8 / 4 positions, the first ones.
    assert (np.abs(found[:4]).max(1) > 0).all() and not found[4:].any()
    layer.router.value = np.eye(3, 4, dtype="f4") * 0.0
    close(value(balance, {x: positive}), 1.0)


def test_experts_compute_named_extents(rng):
    layer = nn.MixtureOfExperts(4, 6, "tanh", capacity=1.25)
    x = mg.var("x", shape=("batch", "length", 3))
    y = layer(x)
    weights = shaken(layer, rng)
    f = mg.function([x], y)
    for shape in ((2, 5, 3), (1, 1, 3), (3, 7, 3)):
        given = rng.standard_normal(shape).astype("f4")
        wide = given.astype("f8")
        close(f(given), experts(wide, weights, 2, np.tanh, capacity=1.25), 10.0)


def test_bidirectional_is_the_option_of_recurrent_layers(rng):
    x, lengths = mg.var("x", shape=("batch", 5, 3)), mg.var("n", shape=("batch",), dtype="int32")
    one = nn.Bidirectional(nn.LSTM(4, return_sequences=True))
    other = nn.LSTM(4, return_sequences=True, bidirectional=True)
    nodes = one(x, lengths), other(x, lengths)
    for a, b in zip(one.variables, other.variables, strict=True):
        b.value = a.value
    feeds = {x: rng.standard_normal((2, 5, 3)).astype("f4"), lengths: np.array([3, 5], "i4")}
    assert np.array_equal(value(nodes[0], feeds), value(nodes[1], feeds))


def apply(layer, *shape):
    return lambda: layer(mg.var("x", shape=("batch", *shape)))


MISTAKES = [
    (apply(nn.Conv1D(2, 3), 2, 5, 5), "need", "expected: sequences: (batch, channels, length)"),
    (apply(nn.Conv3D(2, 3), 2, 5), "given", "expected: volumes: (batch, channels, depth,"),
    (lambda: nn.Conv3D(2, (3, 3)), "window=(3, 3)", "expected: a positive int, or 3 of them"),
    (lambda: nn.Conv1D(2, 0), "window=0", "expected: a positive int"),
    (lambda: nn.Conv2D(0, 3), "filters=0", "expected: an int of at least 1"),
    (lambda: nn.Conv1D(2, 3, layout="NHWC"), "layout='NHWC'", "expected: 'NCW' or 'NWC'"),
    (lambda: nn.Conv2D(2, 3, groups=0), "groups=0", "expected: an int of at least 1"),
    (apply(nn.Conv2D(3, 3, groups=2), 4, 5, 5), "3 filters in groups=2", "the groups divide"),
    (apply(nn.Conv2D(4, 3, groups=2), 3, 5, 5), "3 channels of the input", "the groups divide"),
    (lambda: nn.DepthwiseConv2D(3, groups=2), "groups=2", "expected: no groups"),
    (lambda: nn.AdaptiveAvgPool(0), "extents=0", "expected: a positive int"),
    (apply(nn.AdaptiveAvgPool(2), 3, "w"), "adaptive_avg_pool", "expected"),
    (lambda: nn.Upsample(-2), "scale=-2", "expected: positive numbers"),
    (lambda: nn.PixelShuffle(0), "factor=0", "expected: an int of at least 1"),
    (apply(nn.PixelShuffle(2), 3, 4, 4), "pixel_shuffle", "expected"),
    (lambda: nn.GroupNorm(0), "groups=0", "expected: an int of at least 1"),
    (apply(nn.GroupNorm(3), 4, 4), "group_norm", "expected"),
    (apply(nn.InstanceNorm(), 4), "instance_norm", "expected"),
    (apply(nn.RotaryEmbedding(), 5, 3), "apply_rotary: 3 features", "expected: an even number"),
    (lambda: nn.RotaryEmbedding(-1.0), "base=-1.0", "expected: True, False, or a positive base"),
    (lambda: nn.MultiHeadAttention(4, key_heads=3), "key_heads=3", "divides the heads"),
    (lambda: nn.MultiHeadAttention(4, rotary="yes"), "rotary='yes'", "or a positive base"),
    (lambda: nn.WeightNorm(nn.LSTM(3)), "WeightNorm is given LSTM", "a layer with a kernel"),
    (lambda: nn.SpectralNorm(nn.Dense(3), iterations=0), "iterations=0", "at least 1"),
    (lambda: nn.LoRA(nn.Conv2D(3, 3)), "LoRA is given Conv2D", "expected: a layer mg.nn.Dense"),
    (lambda: nn.LoRA(nn.Dense(3), rank=0), "rank=0", "expected: an int of at least 1"),
    (lambda: nn.GLU(0), "units=0", "expected: an int of at least 1"),
    (lambda: nn.FeedForward(8, "nothing"), "no activation 'nothing'", "expected"),
    (apply(nn.FeedForward(8), "w"), "the input has w features", "or width="),
    (lambda: nn.SwiGLU(8, gated=False), "SwiGLU: gated=False", "gated by silu"),
    (lambda: nn.TransformerEncoder(2, 8, norm="batch"), "norm='batch'", "'layer' or 'rms'"),
    (apply(nn.TransformerEncoder(3, 8), 5, 8), "width 8 in 3 heads", "the heads divide"),
    (lambda: nn.MixtureOfExperts(2, 8, active=3), "active=3 of experts=2", "at most as many"),
    (lambda: nn.MixtureOfExperts(2, 8, capacity=0), "capacity=0", "a positive number"),
    (lambda: nn.Bidirectional(nn.Dense(3)), "Bidirectional is given Dense", "RNN, LSTM or GRU"),
    (lambda: nn.Bidirectional(nn.RNN(3), merge="add"), "merge='add'", "'concat', 'sum'"),
    (lambda: nn.Bidirectional(nn.RNN(3, return_state=True)), "return_state=True", "reverse=False"),
    (lambda: nn.Bidirectional(nn.RNN(3), nn.RNN(3)), "RNN(units=3", "expected: reverse=True"),
]


@pytest.mark.parametrize("place", range(len(MISTAKES)))
def test_mistakes_say_what_is_expected(place):
    make, what, expected = MISTAKES[place]
    with pytest.raises((mg.ConfigError, mg.ShapeError)) as caught:
        make()
    text = str(caught.value)
    assert expected in text and "  expected: " in text
    assert what in text or what in ("need", "given")


class Encoder(nn.Layer):
    def __init__(self, depth, **options):
        super().__init__(**options)
        self.depth = depth
        self.embed = nn.Dense(8)
        self.encoder = [nn.TransformerEncoder(2, 12) for _ in range(depth)]

    def call(self, x, training):
        x = self.embed(x)
        for member in self.encoder:
            x = member(x)
        return x


def test_paths_are_those_of_attributes():
    layer = Encoder(2, name="net")
    layer(mg.var("x", shape=("batch", 5, 3)))
    paths = layer.paths()
    assert paths["encoder.1.attention.query.kernel"].variable is (
        layer.encoder[1].attention.query.kernel
    )
    assert list(paths)[:3] == ["embed.kernel", "embed.bias", "encoder.0.attention.query.kernel"]
    assert len(paths) == len(layer.weights())
    assert layer.embed.kernel.name == "net/embed/kernel"
    block = nn.Residual([layer], shortcut=nn.Dense(8))
    assert "0.encoder.0.attention.query.kernel" in block.paths()
    layer.encoder[0].trainable = False
    assert not layer.paths()["encoder.0.attention.query.kernel"].trainable
    shared = nn.Dense(3)
    twice = nn.Sequential(shared, nn.Sequential(shared))
    twice(mg.var("x", shape=("batch", 3)))
    assert list(twice.paths()) == ["0.kernel", "0.bias"]


def test_the_printed_form_is_the_tree():
    net = nn.Sequential(Encoder(1), nn.Dense(3, bias=False, name="last"))
    assert str(net).splitlines() == [
        "Sequential()",
        "  0: Encoder(depth=1)",
        "    embed: Dense(units=8)",
        "    encoder.0: TransformerEncoder(heads=2, hidden=12)",
        "      attention: MultiHeadAttention(heads=2)",
        "      attention_norm: LayerNorm()",
        "      feed_forward: FeedForward(hidden=12)",
        "        expand: Dense(units=12, activation='relu')",
        "        dropout: Dropout(rate=0.0)",
        "      feed_forward_norm: LayerNorm()",
        "      dropout: Dropout(rate=0.0)",
        "  1: Dense(units=3, bias=False)",
    ]
    net(mg.var("x", shape=("batch", 5, 3)))
    assert "        query: Dense(units=8)" in str(net).splitlines()
