"""What `mg.from_torch` does where torch is missing, and its table against NumPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from interpreted import value

import magmagraph as mg
from magmagraph.interchange.torch.table import OPERATORS


def test_torch_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(mg.MissingLibraryError, match="torch is not installed\n  try: pip install"):
        mg.from_torch(object(), None)


A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 7 - 1
M = np.array([[1.0, -2.0], [0.5, 3.0], [2.0, 0.25]], np.float32)
AT = np.array([[0, 2], [1, 1]])

CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("add", (M, M, 2), M + 2 * M),
    ("sub", (M, 1.0), M - 1),
    ("div", (M, 3.0, "floor"), np.floor(M / 3)),
    ("div", (M, 3.0, "trunc"), np.trunc(M / 3)),
    ("addmm", (M[0], M, M[:2], 0.5, 2.0), 0.5 * M[0] + 2 * M @ M[:2]),
    ("sum", (A, [0, 2], True), A.sum((0, 2), keepdims=True)),
    ("mean", (A, None), A.mean()),
    ("var", (A, [1], 1), A.var(1, ddof=1)),
    ("slice", (A, 2, 1, 9223372036854775807, 2), A[:, :, 1::2]),
    ("select", (A, 1, -1), A[:, -1]),
    ("expand", (M[:, None], [-1, 4, 2]), np.broadcast_to(M[:, None], (3, 4, 2))),
    ("constant_pad_nd", (M, [1, 2, -1, 0], 5.0),
     np.pad(M[1:], ((0, 0), (1, 2)), constant_values=5)),
    ("index", (A, [None, AT]), A[:, AT]),
    ("index_select", (A, 1, AT[0]), A[:, AT[0]]),
    ("gather", (M[:2], 1, np.array([[1, 0], [0, 0]])), np.array([[-2, 1], [0.5, 0.5]])),
    ("cat", ([M, M], 1), np.concatenate([M, M], 1)),
    ("permute", (A, [2, 0, 1]), A.transpose(2, 0, 1)),
    ("squeeze", (A[:1], [0, 1]), A[0]),
    ("repeat", (M, [2, 1, 3]), np.tile(M, (2, 1, 3))),
    ("embedding", (M, AT), M[AT]),
    ("clamp", (M, -1.0, 1.0), np.clip(M, -1, 1)),
    ("linalg_vector_norm", (M, 2, [1]), np.linalg.norm(M, axis=1)),
    ("where", (M > 0, M, 0.0), np.where(M > 0, M, 0)),
    ("tril", (A,), np.tril(A)),
    ("cumsum", (A, 1), np.cumsum(A, 1)),
    ("arange", (1, 7, 2), np.arange(1, 7, 2)),
    ("full", ([2, 3], 1.5), np.full((2, 3), 1.5)),
    ("max", (M,), M.max()),
    ("pow", (M, 2), M**2),
    ("logical_not", (M > 0,), M <= 0),
    ("masked_fill", (M, M > 0, -1.0), np.where(M > 0, -1, M)),
    ("scatter_add", (np.zeros((3, 2), np.float32), 0, AT, M[:2]),
     np.array([[1, 0], [0.5, 3], [0, -2]])),
    ("avg_pool2d", (A[:, None], [2, 2]), A[:, :2].reshape(2, 1, 2, 2, 2).mean((2, 4))[:, :, None]),
    ("native_layer_norm", (M, [2], None, None, 1e-5),
     (M - M.mean(1, keepdims=True)) / np.sqrt(M.var(1, keepdims=True) + 1e-5)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_rows(case: tuple[str, tuple[Any, ...], Any]) -> None:
    name, arguments, expected = case

    def node(argument: Any) -> Any:
        if isinstance(argument, list):
            return [node(member) for member in argument]
        return mg.constant(argument) if isinstance(argument, np.ndarray) else argument

    result = OPERATORS[name](*map(node, arguments))
    result = result[0] if isinstance(result, tuple) else result
    np.testing.assert_allclose(value(result), expected, rtol=1e-5, atol=1e-6)
