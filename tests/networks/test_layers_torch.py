"""Layers against those of PyTorch, values and gradients, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from layer_forms import close

import magmagraph as mg

torch = pytest.importorskip("torch")
nn, tnn = mg.nn, torch.nn

SEQUENCE, IMAGE, VOLUME, TOKENS = (2, 4, 9), (2, 4, 6, 5), (2, 2, 4, 5, 3), (2, 5, 8)


def turned(name, value):
    """Matrices of torch's linear layers are ``(units, features)``."""
    return value.T if value.ndim == 2 and name.endswith("weight") else value


def of_attention(own, theirs, found):
    """Queries, keys and values are one matrix in torch."""
    for kind, stem in (("kernel", "in_proj_weight"), ("bias", "in_proj_bias")):
        parts = np.split(found.pop(f"{theirs}.{stem}"), 3)
        for name, part in zip(("query", "key", "value"), parts, strict=True):
            yield f"{own}/{name}/{kind}", part.T if kind == "kernel" else part
    yield f"{own}/output/kernel", found.pop(f"{theirs}.out_proj.weight").T
    yield f"{own}/output/bias", found.pop(f"{theirs}.out_proj.bias")


def of_block(found, decoder):
    """Return a transformer block's parameters under our names."""
    found = dict(found)
    yield from of_attention("attention", "self_attn", found)
    norms = ["attention_norm", "feed_forward_norm"]
    if decoder:
        yield from of_attention("context_attention", "multihead_attn", found)
        norms.insert(1, "context_norm")
    for number, name in enumerate(norms, 1):
        yield f"{name}/scale", found[f"norm{number}.weight"]
        yield f"{name}/offset", found[f"norm{number}.bias"]
    for name, theirs in (("expand", "linear1"), ("output", "linear2")):
        yield f"feed_forward/{name}/kernel", found[f"{theirs}.weight"].T
        yield f"feed_forward/{name}/bias", found[f"{theirs}.bias"]


PAIRS = {
    "Conv1D": (
        lambda: nn.Conv1D(6, 3, stride=2, padding=1, dilation=2, groups=2),
        lambda: tnn.Conv1d(4, 6, 3, 2, 1, 2, 2), SEQUENCE,
    ),
    "Conv3D": (lambda: nn.Conv3D(3, 3, padding=1), lambda: tnn.Conv3d(2, 3, 3, 1, 1), VOLUME),
    "Conv1DTranspose": (
        lambda: nn.Conv1DTranspose(6, 3, stride=2, padding=1, output_padding=1, dilation=2),
        lambda: tnn.ConvTranspose1d(4, 6, 3, 2, 1, 1, dilation=2), SEQUENCE,
    ),
    "Conv2DTranspose": (
        lambda: nn.Conv2DTranspose(6, 3, stride=2, padding=1, output_padding=1, groups=2),
        lambda: tnn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), IMAGE,
    ),
    "Conv3DTranspose": (
        lambda: nn.Conv3DTranspose(3, 2, stride=2),
        lambda: tnn.ConvTranspose3d(2, 3, 2, 2), VOLUME,
    ),
    "DepthwiseConv2D": (
        lambda: nn.DepthwiseConv2D(3, multiplier=2),
        lambda: tnn.Conv2d(4, 8, 3, groups=4), IMAGE,
    ),
    "MaxPool1D": (lambda: nn.MaxPool1D(3, stride=2), lambda: tnn.MaxPool1d(3, 2), SEQUENCE),
    "AvgPool3D": (lambda: nn.AvgPool3D(2, stride=1), lambda: tnn.AvgPool3d(2, 1), VOLUME),
    "AdaptiveAvgPool": (
        lambda: nn.AdaptiveAvgPool((4, 3)), lambda: tnn.AdaptiveAvgPool2d((4, 3)), IMAGE,
    ),
    "AdaptiveMaxPool": (
        lambda: nn.AdaptiveMaxPool(4), lambda: tnn.AdaptiveMaxPool1d(4), SEQUENCE,
    ),
    "Upsample": (lambda: nn.Upsample(3), lambda: tnn.Upsample(scale_factor=3), IMAGE),
    "Upsample, linear": (
        lambda: nn.Upsample(2, method="linear", align_corners=True),
        lambda: tnn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), IMAGE,
    ),
    "Upsample, cubic": (
        lambda: nn.Upsample(2, method="cubic"),
        lambda: tnn.Upsample(scale_factor=2, mode="bicubic"), IMAGE,
    ),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), lambda: tnn.PixelShuffle(2), IMAGE),
    "GroupNorm": (lambda: nn.GroupNorm(2), lambda: tnn.GroupNorm(2, 4), IMAGE),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(), lambda: tnn.InstanceNorm2d(4, affine=True), IMAGE,
    ),
    "RMSNorm": (lambda: nn.RMSNorm(), lambda: tnn.RMSNorm(8, eps=1e-6), TOKENS),
    "WeightNorm": (
        lambda: nn.WeightNorm(nn.Conv2D(3, 3)),
        lambda: tnn.utils.parametrizations.weight_norm(tnn.Conv2d(4, 3, 3)), IMAGE,
    ),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(2, 12, "gelu", eps=1e-5),
        lambda: tnn.TransformerEncoderLayer(
            8, 2, 12, 0.0, tnn.functional.gelu, batch_first=True, norm_first=True
        ), TOKENS,
    ),
    "TransformerEncoder, norm behind": (
        lambda: nn.TransformerEncoder(2, 12, norm_first=False),
        lambda: tnn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), TOKENS,
    ),
}  # fmt: skip


def parameters(module):
    found = {name: p.detach().numpy() for name, p in module.named_parameters()}
    if any("self_attn" in name for name in found):
        return dict(of_block(found, "norm3.weight" in found))
    if any(name.endswith("original0") for name in found):  # weight norm: scale, then kernel
        g, v = (found[f"parametrizations.weight.original{i}"] for i in (0, 1))
        return {"scale": g.reshape(-1), "kernel": v, "bias": found["bias"]}
    return {name: turned(name, value) for name, value in found.items()}


def put(layer, module):
    given = parameters(module)
    weights = {n: w for n, w in layer.weights().items() if w.trainable}
    values = [given[n] for n in weights] if set(weights) <= set(given) else list(given.values())
    for weight, array in zip(weights.values(), values, strict=True):
        weight.variable.value = array


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients_are_those_of_torch(name, rng):
    make, theirs, shape = PAIRS[name]
    torch.manual_seed(0)
    layer, module = make(), theirs()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    given = rng.standard_normal(shape).astype("f4")
    x = mg.var("x", shape=("batch", *shape[1:]))
    y = layer(x)
    put(layer, module)
    f = mg.function([x], [y, mg.grad(mg.sum(y * y), [x, *layer.trainable_variables])])
    found, (slope, *slopes) = f(given)
    other = torch.tensor(given, requires_grad=True)
    wanted = module(other)
    (wanted * wanted).sum().backward()
    close(found, wanted.detach().numpy(), 10.0)
    close(slope, other.grad.numpy(), 20.0)
    # Gradients go by the names of parameters: put there, they are found as values are.
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(p.grad)
    put(layer, module)
    for held, gradient in zip(layer.trainable_variables, slopes, strict=True):
        close(gradient, held.value, 20.0)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_is_that_of_torch(rng, norm_first):
    torch.manual_seed(0)
    module = tnn.TransformerDecoderLayer(
        8, 2, 12, 0.0, batch_first=True, norm_first=norm_first
    )
    layer = nn.TransformerDecoder(2, 12, norm_first=norm_first)
    x, c = (rng.standard_normal((2, n, 8)).astype("f4") for n in (5, 7))
    nodes = mg.var("x", shape=("batch", 5, 8)), mg.var("c", shape=("batch", 7, 8))
    y = layer(*nodes)
    put(layer, module)
    mask = tnn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        wanted = module(torch.tensor(x), torch.tensor(c), tgt_mask=mask).numpy()
    close(mg.function(list(nodes), y)(x, c), wanted, 10.0)


def test_spectral_norm_trains_as_that_of_torch(rng):
    torch.manual_seed(0)
    module = tnn.utils.parametrizations.spectral_norm(tnn.Linear(5, 3, bias=False))
    state = module.parametrizations.weight[0]
    layer = nn.SpectralNorm(nn.Dense(3, bias=False))
    x = mg.var("x", shape=("batch", 5))
    y, trained = layer(x), layer(x, training=True)
    layer.layer.kernel.value = module.parametrizations.weight.original.detach().numpy().T
    layer.left.value, layer.right.value = state._u.numpy(), state._v.numpy()
    given = rng.standard_normal((4, 5)).astype("f4")
    f = mg.function([x], [trained, mg.grad(mg.sum(trained**2), layer.layer.kernel)])
    for _ in range(3):
        wanted = module(torch.tensor(given))
        module.zero_grad()
        (wanted**2).sum().backward()
        found, slope = f(given)
        close(found, wanted.detach().numpy(), 10.0)
        close(slope, module.parametrizations.weight.original.grad.numpy().T, 20.0)
    module.eval()
    close(mg.function([x], y)(given), module(torch.tensor(given)).detach().numpy(), 10.0)
