"""Claim: an LSTM and a transformer learn as torch's do: the same losses over 200 steps.

Characters of a text (Tiny Shakespeare in MAGMAGRAPH_DATA, or a docstring of NumPy), weights copied
from one to the other, Adam, float64, so that differences of rounding do not grow into others.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import common
import numpy as np
import opening

STEPS, BATCH, LENGTH, WIDTH, HEADS, BLOCKS = 200, 16, 32, 32, 4, 2
RATE = 2e-3


def batches() -> tuple[int, list[np.ndarray]]:
    """Return the number of characters, and pieces of the text with one character more."""
    path = Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / "tinyshakespeare.txt"
    text = path.read_text(encoding="utf-8") if path.exists() else str(np.ndarray.__doc__) * 4
    letters, ids = np.unique(np.array(list(text)), return_inverse=True)
    rng = np.random.default_rng(0)
    starts = rng.integers(0, len(ids) - LENGTH - 1, (STEPS, BATCH))
    pieces = [ids[place[:, None] + np.arange(LENGTH + 1)].astype(np.int32) for place in starts]
    return len(letters), pieces


def network(kind: str, count: int) -> Any:
    """Return our network, built."""
    import magmagraph as mg

    mg.config.float_dtype = "float64"
    nn = mg.nn
    if kind == "lstm":
        layers = [
            nn.Input((LENGTH,), "int32"),
            nn.Embedding(count, WIDTH, name="embedding"),
            nn.LSTM(WIDTH, return_sequences=True, name="lstm"),
            nn.Output(count),
        ]
    else:
        layers = nn.prebuilt.transformer(count, LENGTH, width=WIDTH, heads=HEADS, blocks=BLOCKS)
    return mg.NeuralNetwork(
        layers, loss="cross_entropy", optimizer=mg.optimizer.Adam(RATE), metrics=[]
    )


def torch_lstm(count: int, held: dict[str, np.ndarray]) -> Any:
    """Return torch's network with our weights."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(count, WIDTH)
            self.lstm = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True)
            self.output = torch.nn.Linear(WIDTH, count)

        def forward(self, ids: Any) -> Any:
            return self.output(self.lstm(self.embedding(ids))[0])

    net = Net().double()
    kernel, recurrent, bias = (
        next(v for k, v in held.items() if k.startswith("lstm") and k.endswith(part))
        for part in ("/kernel", "/recurrent", "/bias")
    )
    values = {
        "embedding.weight": held["embedding/table"],
        "lstm.weight_ih_l0": kernel.T,
        "lstm.weight_hh_l0": recurrent.T,
        "lstm.bias_ih_l0": bias,
        "lstm.bias_hh_l0": np.zeros_like(bias),
        "output.weight": held["output/kernel"].T,
        "output.bias": held["output/bias"],
    }
    net.load_state_dict({name: torch.tensor(v.copy()) for name, v in values.items()})
    net.lstm.bias_hh_l0.requires_grad_(False)  # one bias, as ours
    return net


def torch_transformer(count: int, held: dict[str, np.ndarray]) -> Any:
    """Return torch's network with our weights."""
    import torch
    from torch.nn import functional

    values = {name: torch.nn.Parameter(torch.tensor(v)) for name, v in held.items()}

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = torch.nn.ParameterList(values.values())

        def norm(self, x: Any, place: str) -> Any:
            return functional.layer_norm(
                x, (WIDTH,), values[f"{place}/scale"], values[f"{place}/offset"]
            )

        def dense(self, x: Any, place: str) -> Any:
            return x @ values[f"{place}/kernel"] + values[f"{place}/bias"]

        def heads(self, x: Any) -> Any:
            return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

        def forward(self, ids: Any) -> Any:
            x = values["embedding/table"][ids] + values["position_embedding/table"]
            for block in range(BLOCKS):
                first = f"residual_{2 * block}".removesuffix("_0")
                second = f"residual_{2 * block + 1}"
                seen = self.norm(x, f"{first}/layer_norm")
                inside = f"{first}/multi_head_attention"
                query, key, value = (
                    self.heads(self.dense(seen, f"{inside}/{part}"))
                    for part in ("query", "key", "value")
                )
                found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                x = x + self.dense(found.transpose(1, 2).flatten(2), f"{inside}/output")
                seen = self.dense(self.norm(x, f"{second}/layer_norm"), f"{second}/dense")
                x = x + self.dense(functional.gelu(seen), f"{second}/dense_1")
            return self.norm(x, "layer_norm") @ values["output/kernel"]

    return Net()


def ours(net: Any, pieces: list[np.ndarray]) -> list[float]:
    """Return our losses."""
    _, _, labels = net._checked(pieces[0][:, :-1], pieces[0][:, 1:])
    step = net.training_step(labels)
    return [float(step(p[:, :-1].copy(), p[:, 1:].copy())[0]) for p in pieces]


def theirs(net: Any, pieces: list[np.ndarray]) -> list[float]:
    """Return torch's losses."""
    import torch

    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=RATE)
    losses = []
    for piece in pieces:
        ids = torch.from_numpy(piece.astype(np.int64))
        logits = net(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main() -> None:
    """Train all four and write how far the losses lie apart."""
    opening.words(__doc__, "--dry", needs=("torch",))
    from magmagraph.dtypes import tolerance

    count, pieces = batches()
    results = {}
    for kind, twin in (("lstm", torch_lstm), ("transformer", torch_transformer)):
        net = network(kind, count)
        other = twin(count, net.tensors())
        left, right = np.array(ours(net, pieces)), np.array(theirs(other, pieces))
        apart = np.abs(left - right) / right
        row = tolerance(np.dtype("float64"), "reassoc")
        results[kind] = {
            "parameters": net.parameters,
            "first loss": float(left[0]),
            "last loss": float(left[-1]),
            "largest relative difference": float(apart.max()),
            "of the first step": float(apart[0]),
            "tolerance of one step": row.relative,
        }
        print(kind, results[kind])
    if "--dry" not in sys.argv:
        common.write("training_curves", results, steps=STEPS, batch=BATCH, length=LENGTH)


if __name__ == "__main__":
    main()
