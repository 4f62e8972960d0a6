"""GPT-2, and its published weights under our names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ConfigError, DataError, message
from ...ir.docstrings import documented
from ..basic import Input
from ..language import LanguageModel
from ..layer import Layer

__all__ = ["gpt2", "gpt2_weights"]

# Width, heads, blocks.
_SIZES = {
    "124M": (768, 12, 12),
    "355M": (1024, 16, 24),
    "774M": (1280, 20, 36),
    "1558M": (1600, 25, 48),
}


@documented
def gpt2(
    size: str = "124M",
    *,
    vocabulary: int = 50257,
    positions: int = 1024,
    length: Any = None,
    dropout: float = 0.0,
) -> list[Layer]:
    """Return the layers of GPT-2.

    A. Radford et al., "Language models are unsupervised multitask learners", 2019, table 2.

    size: "124M", "355M", "774M" or "1558M", the number of parameters.
    vocabulary, positions: Tokens, and the most positions of a sequence.
    length: Of the sequences that are given, as of `Input`: any, up to `positions`, unless said.
    dropout: See `LanguageModel`; the published models were trained with 0.1.
    returns (list of Layer): From tokens ``(batch, length)``, int32, to logits ``(batch, length,
        vocabulary)``.
    raises ConfigError: If there is no such size.

    See Also
    --------
    gpt2_weights : the published weights.
    """
    if size not in _SIZES:
        sizes = ", ".join(map(repr, _SIZES))
        raise ConfigError(message(f"gpt2: size={size!r}", need=f"one of {sizes}"))
    width, heads, blocks = _SIZES[size]
    return [
        Input(("length" if length is None else length,), "int32"),
        LanguageModel(
            vocabulary, width, heads, blocks, positions=positions, dropout=dropout, name="gpt2"
        ),
    ]


_WHOLE = {
    "wte.weight": "embedding.table",
    "wpe.weight": "positions.table",
    "ln_f.weight": "norm.scale",
    "ln_f.bias": "norm.offset",
}
_OF_BLOCK = {
    "ln_1.weight": "attention_norm.scale",
    "ln_1.bias": "attention_norm.offset",
    "ln_2.weight": "feed_forward_norm.scale",
    "ln_2.bias": "feed_forward_norm.offset",
    "attn.c_proj.weight": "attention.output.kernel",
    "attn.c_proj.bias": "attention.output.bias",
    "mlp.c_fc.weight": "feed_forward.expand.kernel",
    "mlp.c_fc.bias": "feed_forward.expand.bias",
    "mlp.c_proj.weight": "feed_forward.output.kernel",
    "mlp.c_proj.bias": "feed_forward.output.bias",
}
_KINDS = {"weight": "kernel", "bias": "bias"}


@documented
def gpt2_weights(published: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return published weights of GPT-2 by the attribute paths of `LanguageModel`.

    published: Arrays by the names of the published file (``model.safetensors``): ``wte.weight``,
        ``h.0.attn.c_attn.weight``, ..., also with ``transformer.`` before them. Matrices are
        ``(features, units)``, as here. Masks (``h.0.attn.bias``), and the output matrix
        ``lm_head.weight``, which is that of the embeddings, are left out.
    returns (dict): ``{path: array}``, for each of `Layer.paths`.
    raises DataError: If a name is none of these.

    >>> import numpy as np
    >>> found = mg.nn.prebuilt.gpt2_weights({"h.3.attn.c_attn.bias": np.arange(6)})
    >>> found["blocks.3.attention.key.bias"]
    array([2, 3])
    """
    by_path: dict[str, np.ndarray] = {}
    for full, array in published.items():
        name = full.removeprefix("transformer.")
        block = re.fullmatch(r"h\.(\d+)\.(.+)", name)
        if name in _WHOLE:
            by_path[_WHOLE[name]] = np.asarray(array)
        elif block and block[2] in _OF_BLOCK:
            by_path[f"blocks.{block[1]}.{_OF_BLOCK[block[2]]}"] = np.asarray(array)
        elif block and block[2] in ("attn.c_attn.weight", "attn.c_attn.bias"):
            kind = _KINDS[block[2].rpartition(".")[2]]
            parts = np.split(np.asarray(array), 3, axis=-1)
            for part, value in zip(("query", "key", "value"), parts, strict=True):
                by_path[f"blocks.{block[1]}.attention.{part}.{kind}"] = value
        elif name != "lm_head.weight" and not (
            block and block[2] in ("attn.bias", "attn.masked_bias")
        ):
            raise DataError(
                message(
                    f"{full!r} is no weight of GPT-2",
                    need="names as wte.weight, h.0.attn.c_attn.weight, ln_f.bias",
                )
            )
    return by_path
