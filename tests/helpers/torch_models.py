"""Ten small networks of public architectures, in PyTorch, with random weights and inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """A block of ResNet: two convolutions, and a shortcut."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Any) -> Any:
        h = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(h)) + self.shortcut(x))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), Residual(8, 8), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


class Inverted(nn.Module):
    """A block of MobileNetV2: wide, depthwise, narrow."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        wide = before * 4
        self.body = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.Hardswish(), nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.adds = stride == 1 and before == after

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), Inverted(8, 8, 1),
        Inverted(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Any) -> Any:
        b, t, w = x.shape
        parts = self.qkv(x).reshape(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        h = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(h.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    """A transformer block with its norms in front."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"),
                                 nn.Linear(4 * width, width))  # fmt: skip

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, rows: int = 31, width: int = 16, length: int = 12) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(rows, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 2, True) for _ in range(2)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return self.norm(self.blocks(x)) @ self.wte.weight.T


class BERT(nn.Module):
    """Encoder layers with their norms behind, a mask of padding, and a pooled output."""

    def __init__(self, rows: int = 31, width: int = 16, length: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(rows, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 32, 0.0, "gelu", batch_first=True)
            for _ in range(2)
        )
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=mask)
        return torch.tanh(self.pooler(x[:, 0]))


class ViT(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        self.blocks = nn.Sequential(*(Block(width, 2) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = Residual(3, 8), Residual(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last, self.out = Residual(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        return self.out(self.last(torch.cat([self.up(second), first], 1)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(31, 8)
        self.lstm = nn.LSTM(8, 6, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(12, 5)

    def forward(self, ids: Any) -> Any:
        return functional.log_softmax(self.tags(self.lstm(self.words(ids))[0]), -1)


class VAE(nn.Module):
    """The noise is an input, so that both compute the same."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.SiLU(), nn.Flatten(),
                                    nn.Linear(4 * 8 * 8, 16))  # fmt: skip
        self.decode = nn.Sequential(nn.Linear(8, 4 * 8 * 8), nn.SiLU(), nn.Unflatten(1, (4, 8, 8)),
                                    nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Sigmoid())  # fmt: skip

    def forward(self, x: Any, noise: Any) -> Any:
        mean, log_variance = self.encode(x).chunk(2, -1)
        return self.decode(mean + noise * torch.exp(0.5 * log_variance))


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(11, 8) for _ in range(3))
        self.top = nn.Sequential(nn.Linear(8 + 6, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, numbers: Any, ids: Any) -> Any:
        dense = self.bottom(numbers)
        rows = [dense, *(table(ids[:, i]) for i, table in enumerate(self.tables))]
        stacked = torch.stack(rows, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        pairs = [products[:, i, j] for i in range(4) for j in range(i)]
        return torch.sigmoid(self.top(torch.cat([dense, torch.stack(pairs, 1)], 1)))


class Diffusion(nn.Module):
    """A U-Net with group norms that is told the time, and attends over positions."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.first, self.down = nn.Conv2d(1, width, 3, 1, 1), nn.Conv2d(width, width, 3, 2, 1)
        self.norm1, self.norm2 = nn.GroupNorm(2, width), nn.GroupNorm(2, width)
        self.attention = Attention(width, 2, False)
        self.middle = nn.Conv2d(width, width, 3, 1, 1)
        self.last = nn.Conv2d(2 * width, 1, 3, 1, 1)

    def forward(self, x: Any, t: Any) -> Any:
        rates = torch.exp(torch.arange(4) * (-math.log(1e4) / 4))
        angles = t[:, None] * rates
        time_features = self.time(torch.cat([torch.sin(angles), torch.cos(angles)], -1))
        first = self.first(x)
        h = functional.silu(self.norm1(self.down(first))) + time_features[:, :, None, None]
        h = h + self.attention(h.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(h.shape)
        h = functional.silu(self.norm2(self.middle(h)))
        h = functional.interpolate(h, scale_factor=2.0, mode="nearest")
        return self.last(torch.cat([h, first], 1))


def _ids(*shape: int, rows: int = 31) -> Any:
    return torch.randint(0, rows, shape)


# Name -> the module, and its inputs for so many rows.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Any, ...]]]] = {
    "ResNet": (resnet, lambda n: (torch.randn(n, 3, 32, 32),)),
    "MobileNet": (mobilenet, lambda n: (torch.randn(n, 3, 16, 16),)),
    "BERT": (BERT, lambda n: (_ids(n, 12), torch.arange(12)[None].expand(n, -1) > 8)),
    "GPT-2": (GPT, lambda n: (_ids(n, 12),)),
    "ViT": (ViT, lambda n: (torch.randn(n, 3, 16, 16),)),
    "U-Net": (UNet, lambda n: (torch.randn(n, 3, 16, 16),)),
    "LSTM tagger": (Tagger, lambda n: (_ids(n, 7),)),
    "VAE": (VAE, lambda n: (torch.randn(n, 1, 16, 16), torch.randn(n, 8))),
    "DLRM": (DLRM, lambda n: (torch.randn(n, 5), _ids(n, 3, rows=11))),
    "diffusion U-Net": (Diffusion, lambda n: (torch.randn(n, 1, 8, 8), torch.rand(n) * 100)),
}
