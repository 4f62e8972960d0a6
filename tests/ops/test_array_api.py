"""The namespace of the array API standard: its names, its keywords, and NumPy's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from table import assert_agrees, results

import magmagraph as mg

X = np.array([[0.5, -1.25, 2.0], [3.5, 0.25, -0.75]])
Y = np.array([[1.5, 2.0, -0.5], [0.125, 4.0, 1.0]])
I = np.array([[5, 2, -3], [0, 7, 2]])  # noqa: E741
J = np.array([[1, 3, 2], [2, 1, 5]])
B = np.array([[True, False, True], [False, False, True]])
S = X[:, :2] @ X[:, :2].T + 2 * np.eye(2)
Z = X + 1j * Y

UNARY = {
    "abs": X, "acos": X / 4, "acosh": Y**2 + 1, "asin": X / 4, "asinh": X, "atan": X,
    "atanh": X / 4, "bitwise_invert": I, "ceil": X, "conj": Z, "cos": X, "cosh": X, "exp": X,
    "expm1": X, "floor": X, "imag": Z, "isfinite": X, "isinf": X, "isnan": X, "log": Y**2,
    "log10": Y**2, "log1p": Y**2, "log2": Y**2, "logical_not": B, "negative": X, "positive": X,
    "real": Z, "reciprocal": X, "round": X, "sign": X, "signbit": X, "sin": X, "sinh": X,
    "sqrt": Y**2, "square": X, "tan": X, "tanh": X, "trunc": X,
}  # fmt: skip
BINARY = {
    "add": (X, Y), "atan2": (X, Y), "bitwise_and": (I, J), "bitwise_left_shift": (I, J),
    "bitwise_or": (I, J), "bitwise_right_shift": (I, J), "bitwise_xor": (I, J),
    "copysign": (X, Y), "divide": (X, Y), "equal": (I, J), "floor_divide": (X, Y),
    "greater": (X, Y), "greater_equal": (X, Y), "hypot": (X, Y), "less": (X, Y),
    "less_equal": (X, Y), "logaddexp": (X, Y), "logical_and": (B, ~B), "logical_or": (B, ~B),
    "logical_xor": (B, ~B), "maximum": (X, Y), "minimum": (X, Y), "multiply": (X, Y),
    "nextafter": (X, Y), "not_equal": (I, J), "pow": (Y**2, X), "remainder": (X, Y),
    "subtract": (X, Y), "matmul": (X, Y.T),
}  # fmt: skip
OTHERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("clip", (X,), {"min": -1.0, "max": 1.0}),
    ("arange", (1, 9, 2), {"dtype": "float64"}),
    ("eye", (2, 3), {"k": 1, "dtype": "float64"}),
    ("full", ((2, 3), 1.5), {"dtype": "float64"}),
    ("full_like", (X,), {"fill_value": 2, "dtype": "int64"}),
    ("linspace", (0.0, 1.0), {"num": 5, "dtype": "float64", "endpoint": False}),
    ("meshgrid", (X[0], Y[1, :2]), {"indexing": "ij"}),
    ("ones", ((2, 3),), {"dtype": "int64"}),
    ("ones_like", (X,), {"dtype": "float64"}),
    ("tril", (X,), {"k": -1}),
    ("triu", (X,), {"k": 1}),
    ("zeros", ((2,),), {"dtype": "bool"}),
    ("zeros_like", (X,), {"dtype": "float64"}),
    ("broadcast_arrays", (X, Y[0]), {}),
    ("broadcast_to", (X[0],), {"shape": (4, 3)}),
    ("concat", ([X, Y],), {"axis": 1}),
    ("concat", ([X, Y],), {"axis": None}),
    ("expand_dims", (X,), {"axis": -1}),
    ("flip", (X,), {"axis": 1}),
    ("moveaxis", (X, 0, 1), {}),
    ("permute_dims", (X, (1, 0)), {}),
    ("repeat", (X, 2), {"axis": 1}),
    ("reshape", (X, (3, 2)), {"copy": True}),
    ("roll", (X,), {"shift": (1, -1), "axis": (0, 1)}),
    ("squeeze", (X[None],), {"axis": 0}),
    ("stack", ([X, Y],), {"axis": -1}),
    ("tile", (X, (2, 1)), {}),
    ("unstack", (X,), {"axis": 1}),
    ("argmax", (X,), {"axis": 1, "keepdims": True}),
    ("argmin", (X,), {"axis": None}),
    ("count_nonzero", (I,), {"axis": 0, "keepdims": True}),
    ("searchsorted", (np.sort(X[0]), Y[0]), {"side": "right", "sorter": np.arange(3)}),
    ("where", (B, X, Y), {}),
    ("argsort", (X,), {"axis": 0, "stable": True}),
    ("sort", (X,), {"axis": 0, "stable": True}),
    ("cumulative_sum", (X,), {"axis": 1, "dtype": "float64", "include_initial": True}),
    ("cumulative_prod", (X,), {"axis": 0, "dtype": "float64", "include_initial": True}),
    ("max", (X,), {"axis": 0, "keepdims": True}),
    ("mean", (X,), {"axis": (0, 1), "keepdims": False}),
    ("min", (X,), {"axis": 1, "keepdims": False}),
    ("prod", (X,), {"axis": 0, "dtype": "float64", "keepdims": True}),
    ("std", (X,), {"axis": 1, "correction": 1.0, "keepdims": True}),
    ("sum", (X,), {"axis": 1, "dtype": "float64", "keepdims": False}),
    ("var", (X,), {"axis": 1, "correction": 1.0, "keepdims": True}),
    ("all", (B,), {"axis": 1, "keepdims": True}),
    ("any", (B,), {"axis": 0, "keepdims": False}),
    ("diff", (X,), {"axis": 1, "n": 1, "prepend": X[:, :1], "append": Y[:, :1]}),
    ("take", (X, np.array([1, 0])), {"axis": 1}),
    ("take_along_axis", (X, np.array([[1], [2]])), {"axis": 1}),
    ("matrix_transpose", (X,), {}),
    ("tensordot", (X, Y), {"axes": ((0, 1), (0, 1))}),
    ("vecdot", (Z, Y), {"axis": 0}),
    ("linalg.cholesky", (S,), {"upper": True}),
    ("linalg.cross", (X, Y), {"axis": 1}),
    ("linalg.det", (S,), {}),
    ("linalg.diagonal", (X,), {"offset": 1}),
    ("linalg.eigh", (S,), {}),
    ("linalg.eigvalsh", (S,), {}),
    ("linalg.inv", (S,), {}),
    ("linalg.matmul", (X, Y.T), {}),
    ("linalg.matrix_norm", (X,), {"keepdims": True, "ord": "nuc"}),
    ("linalg.matrix_power", (S, 3), {}),
    ("linalg.matrix_rank", (S,), {"rtol": 1e-3}),
    ("linalg.matrix_transpose", (X,), {}),
    ("linalg.outer", (X[0], Y[0]), {}),
    ("linalg.pinv", (X,), {"rtol": 1e-6}),
    ("linalg.qr", (X.T,), {"mode": "reduced"}),
    ("linalg.slogdet", (S,), {}),
    ("linalg.solve", (S, X), {}),
    ("linalg.svd", (X,), {"full_matrices": False}),
    ("linalg.svdvals", (X,), {}),
    ("linalg.tensordot", (X, Y.T), {"axes": 1}),
    ("linalg.trace", (S,), {"offset": 0, "dtype": "float64"}),
    ("linalg.vecdot", (X, Y), {"axis": -1}),
    ("linalg.vector_norm", (X,), {"axis": 1, "keepdims": True, "ord": 3}),
    *((f"fft.{name}", (Z,), {"n": 4, "axis": 1, "norm": "ortho"}) for name in ("fft", "ifft")),
    *((f"fft.{name}", (X,), {"n": 4, "axis": 1, "norm": "forward"}) for name in ("rfft", "ihfft")),
    *((f"fft.{name}", (Z,), {"n": 4, "axis": 1, "norm": "backward"}) for name in ("irfft", "hfft")),
    *(
        (f"fft.{name}", (Z,), {"s": (2, 4), "axes": (0, 1), "norm": "ortho"})
        for name in ("fftn", "ifftn", "irfftn")
    ),
    ("fft.rfftn", (X,), {"s": (2, 4), "axes": (0, 1), "norm": "ortho"}),
    ("fft.fftfreq", (5,), {"d": 0.5}),
    ("fft.rfftfreq", (5,), {"d": 0.5}),
    ("fft.fftshift", (X,), {"axes": (0, 1)}),
    ("fft.ifftshift", (X,), {"axes": (1,)}),
]
CALLS = [
    *((name, (x,), {}) for name, x in UNARY.items()),
    *((name, pair, {}) for name, pair in BINARY.items()),
    *OTHERS,
]


def found(module: Any, name: str) -> Callable[..., Any]:
    for part in name.split("."):
        module = getattr(module, part)
    assert callable(module)
    return module


@pytest.mark.parametrize(
    ("name", "operands", "keywords"), CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(CALLS)]
)
def test_it_is_what_numpy_gives(
    name: str, operands: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    def as_nodes(value: Any) -> Any:
        if isinstance(value, list):
            return [as_nodes(each) for each in value]
        return mg.asarray(value) if isinstance(value, np.ndarray) else value

    nodes = results(
        found(mg, name)(
            *map(as_nodes, operands), **{key: as_nodes(value) for key, value in keywords.items()}
        )
    )
    expected = results(found(np, name)(*operands, **keywords))
    assert len(nodes) == len(expected)
    for node, value in zip(nodes, expected, strict=True):
        value = np.asarray(value)
        array = node.eval()
        assert array.dtype.kind == value.dtype.kind or name == "linalg.matrix_rank"
        if name.startswith(("linalg.svd", "linalg.qr", "linalg.eigh")) and value.ndim == 2:
            array, value = np.abs(array), np.abs(value)  # the signs of vectors are free
        assert_agrees(array, value, "reassoc", max(1.0, float(np.max(np.abs(value), initial=0))))


def test_every_function_of_the_standard_is_called() -> None:
    names = {call[0] for call in CALLS}
    elsewhere = {
        "asarray", "astype", "can_cast", "empty", "empty_like", "finfo", "from_dlpack", "iinfo",
        "isdtype", "nonzero", "result_type", "unique_all", "unique_counts", "unique_inverse",
        "unique_values",
    }  # fmt: skip
    assert len(names | elsewhere) > 160
    for name in (*names, *elsewhere):
        assert found(mg, name) is found(np, name) or found(mg, name).__module__.startswith("mag")
        *home, last = name.split(".")
        assert last in (getattr(mg, home[0]) if home else mg).__all__


def test_descending_sorts_are_stable() -> None:
    x = mg.asarray([2.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(mg.argsort(x, descending=True).eval(), [3, 0, 2, 1])
    np.testing.assert_array_equal(mg.sort(x, descending=True).eval(), [3, 2, 2, 1])


def test_what_depends_on_values_takes_a_size() -> None:
    x = mg.asarray([3, 1, 3, 0])
    (places,) = mg.nonzero(x, size=4, fill_value=-1)
    np.testing.assert_array_equal(places.eval(), [0, 1, 2, -1])
    np.testing.assert_array_equal(mg.unique_values(x, size=3).eval(), [0, 1, 3])
    with pytest.raises(mg.ShapeError, match="size="):
        mg.unique_values(x)


def test_the_namespace_tells_about_itself() -> None:
    x = mg.var("x", shape=("n", 2))
    assert x.__array_namespace__() is mg
    with pytest.raises(ValueError, match="2024.12"):
        x.__array_namespace__(api_version="1999.01")
    info = mg.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == mg.float32
    assert info.dtypes(kind="bool") == {"bool": mg.bool}
    assert info.capabilities()["data-dependent shapes"] is False
    assert x.mT.shape == (2, x.shape[0])


def test_dtypes() -> None:
    assert mg.result_type(mg.float32, 1.0, mg.asarray([1])) == mg.float32
    assert mg.result_type("int8", "int32") == mg.int32
    assert mg.can_cast(mg.int32, mg.float32)
    assert not mg.can_cast(mg.complex64, mg.float64)
    assert mg.isdtype(mg.int8, "signed integer")
    assert not mg.isdtype(mg.bool, "numeric")
    assert mg.isdtype(mg.float32, (mg.float64, "real floating"))
    assert mg.finfo(mg.float32).eps == np.finfo("f4").eps
    assert mg.iinfo(mg.int8).max == 127
    for wrong in (lambda: mg.isdtype(mg.int8, "whole"), lambda: mg.result_type(1.0)):
        with pytest.raises(mg.DTypeError):
            wrong()


def test_asarray_takes_nested_lists_of_nodes() -> None:
    half, wide = mg.var("half", init=np.float16(2.0)), mg.var("wide", init=np.float64(3.0))
    rows = mg.var("rows", shape=("n", 2))
    narrow = mg.asarray([[half, 0.5], (1, half)])
    assert narrow.dtype == mg.float16  # numbers beside nodes are weak, as everywhere
    np.testing.assert_array_equal(narrow.eval(), [[2.0, 0.5], [1.0, 2.0]])
    assert mg.asarray([half, wide]).dtype == mg.float64
    assert mg.asarray([[rows, rows + 1.0]], dtype="float64").shape == (1, 2, "n", 2)
    for ragged in ([[half, 1.0], [half]], [[half], half]):
        with pytest.raises(mg.ShapeError, match="unequal lengths or depths"):
            mg.asarray(ragged)
    with pytest.raises(mg.ShapeError, match="stack: operands of 2 and 0 axes"):
        mg.asarray([rows, half])


def test_a_list_of_nodes_elsewhere_names_what_joins_them() -> None:
    x = mg.var("x", init=1.0)
    for use in (mg.exp, mg.constant, mg.linalg.det):
        with pytest.raises(mg.DTypeError, match=r"a list of nodes is not a constant(.|\n)*stack"):
            use([[x, 1.0], [1.0, x]])
