"""Products: shapes with names, their errors, einsum against NumPy and the order it chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, value

import magmagraph as mg
from magmagraph.errors import DTypeError, ShapeError
from magmagraph.ir.dims import Constraint, Dim
from magmagraph.ir.graph import topological
from magmagraph.ops.products.contraction import MATMUL

N, M = Dim("n"), Dim("m")


def products(node: mg.Node) -> list[mg.Node]:
    """Return the matrix products below a node."""
    return [each for each in topological([node]) if each.op is MATMUL]


def test_matmul_of_names() -> None:
    x, W = mg.input("x", ("n", 784)), mg.input("W", (784, 10))
    assert (x @ W).shape == (N, 10)
    assert mg.matmul(mg.input("x", ("n", "m", 3)), mg.input("W", (3, 5))).shape == (N, M, 5)
    assert mg.matmul(mg.input("x", ("n", 1, 2, 3)), mg.input("y", ("m", 3, 4))).shape == (
        N,
        M,
        2,
        4,
    )
    assert mg.matmul(mg.input("x", ("n",)), mg.input("y", ("n",))).shape == ()


def test_a_name_against_an_int_is_checked_at_the_call() -> None:
    node = mg.matmul(mg.input("x", (2, "n")), mg.input("y", (3, 4)))
    assert node.constraints == (Constraint(N, "==", 3),)


def test_batched_rows_are_one_product() -> None:
    node = mg.matmul(mg.input("x", ("n", 5, 3)), mg.input("W", (3, 4)))
    (product,) = products(node)
    assert product.shape == (5 * N, 4)


@pytest.mark.parametrize(
    ("left", "right", "first", "hint"),
    [
        ((2, 3), (4, 3), "matmul: inner extents 3 and 4 differ", "transpose the second operand"),
        ((3, 2), (3, 4), "matmul: inner extents 2 and 3 differ", "transpose the first operand"),
        ((3, 2), (5, 3), "matmul: inner extents 2 and 5 differ", "exchange the operands"),
        (("m", "n"), ("m", 4), "matmul: inner extents n and m differ", "transpose the first"),
        ((2, 3), (5, 7), "matmul: inner extents 3 and 5 differ", "transpose or reshape one"),
    ],
)
def test_inner_extents_that_differ(left: Any, right: Any, first: str, hint: str) -> None:
    x, y = mg.input("x", left), mg.input("y", right)
    with pytest.raises(ShapeError) as caught:
        mg.matmul(x, y)
    lines = str(caught.value).splitlines()
    assert lines[0] == first
    assert lines[2].startswith(f"  try: {hint}")
    assert "operand 0: 'x'" in lines[3]
    assert "test_contraction.py" in lines[3]
    assert "operand 1: 'y'" in lines[4]


def test_bools_are_refused() -> None:
    x = mg.input("x", (2, 2), "bool")
    with pytest.raises(DTypeError, match="matmul: operands of dtype bool"):
        mg.matmul(x, x)


def test_integers_stay_exact() -> None:
    x = np.array([[2**30, 3], [-5, 7]], dtype=np.int64)
    node = mg.matmul(mg.constant(x), mg.constant(x))
    assert node.dtype == np.int64
    np.testing.assert_array_equal(value(node), x @ x)
    small = mg.constant(x.astype(np.int8))
    assert mg.matmul(small, small).dtype == np.int8
    assert mg.matmul(small[0], small[1]).dtype == np.int8


def test_flops() -> None:
    node = MATMUL(mg.input("x", ("n", 2, 3)), mg.input("y", (3, 4)))
    assert MATMUL.flops is not None
    assert MATMUL.flops(*[operand.type for operand in node.inputs]) == 48 * N


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->ik", (2, 3), (4, 3)),
    ("ji,jk->ki", (3, 2), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bthd,bThd->bhtT", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("ijij->ij", (2, 3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("...ij,...jk->...ik", (4, 2, 3), (3, 5)),
    ("...ij,...jk->...ik", (4, 1, 2, 3), (6, 3, 5)),
    ("i...,i...->...", (2, 3, 4), (2, 3, 4)),
    ("...i->...", (2, 3)),
    ("ij,j->ij", (2, 3), (1,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk,ki->", (2, 3), (3, 4), (4, 2)),
    ("bi,bj,bk->bijk", (2, 2), (2, 3), (2, 4)),
    ("a,ab,bc,c->", (2,), (2, 3), (3, 4), (4,)),
    ("ab,ab,b->a", (2, 3), (2, 3), (3,)),
    ("ij,k->ik", (2, 3), (4,)),
    ("ab,cd->", (2, 3), (4, 5)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    (",ij->ij", (), (2, 3)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda case: f"{case[0]} {case[1:]}")
def test_einsum_is_numpys(case: Any, rng: np.random.Generator) -> None:
    subscripts, *shapes = case
    arrays = [rng.normal(size=shape) for shape in shapes]
    leaves = [mg.input(f"x{i}", shape, "float64") for i, shape in enumerate(shapes)]
    node = mg.einsum(subscripts, *leaves)
    expected = np.einsum(subscripts, *arrays)
    assert node.shape == expected.shape
    result = value(node, dict(zip(leaves, arrays, strict=True)))
    assert_close(result, expected, scale=100.0)


def test_einsum_of_integers() -> None:
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    node = mg.einsum("ij,kj->ik", x, x)
    assert node.dtype == np.int16
    np.testing.assert_array_equal(value(node), x @ x.T)
    np.testing.assert_array_equal(value(mg.einsum("ij->", x)), 15)


def test_einsum_takes_the_cheapest_pair_first() -> None:
    tall, flat, thin = (
        mg.input(name, shape) for name, shape in (("a", (90, 4)), ("b", (4, 80)), ("c", (80, 2)))
    )
    chain = products(mg.einsum("ij,jk,kl->il", tall, flat, thin))
    assert [product.shape for product in chain] == [(4, 2), (90, 2)]


def test_einsum_gives_one_product_and_names() -> None:
    query = mg.input("query", ("b", "t", 8, 64))
    key = mg.input("key", ("b", "s", 8, 64))
    scores = mg.einsum("bthd,bshd->bhts", query, key)
    assert scores.shape == (Dim("b"), 8, Dim("t"), Dim("s"))
    assert len(products(scores)) == 1


def test_einsum_without_a_matrix_product_fuses() -> None:
    x, y = mg.input("x", (5, 3)), mg.input("y", (5, 3))
    assert not products(mg.einsum("ij,ij->i", x, y))
    assert not products(mg.einsum("i,j->ij", x[0], y[1]))


@pytest.mark.parametrize(
    ("subscripts", "shapes", "text"),
    [
        ("ij", [(2, 3), (3, 4)], "einsum: 'ij' names 1 operands, 2 are given"),
        ("ij,jk->ii", [(2, 3), (3, 4)], "einsum: the result has the label 'i' twice"),
        ("ij,jk->iz", [(2, 3), (3, 4)], "einsum: the result's label 'z' is in no operand"),
        ("i1->i", [(2, 3)], "einsum: '1' in 'i1' is not a label"),
        ("ijk->i", [(2, 3)], "einsum: 'ijk' labels 3 axes, the operand has 2"),
        ("i->i", [(2, 3)], "einsum: 'i' labels 1 axes, the operand has 2"),
        ("i...->i", [(2, 3)], "einsum: the axes of '...' are not in the result"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "einsum: extents of label 'j' differ: 3 and 4"),
        ("ij,jk->ik", [(2, "n"), ("m", 5)], "einsum: extents of label 'j' differ: n and m"),
    ],
)
def test_einsum_refuses(subscripts: str, shapes: Any, text: str) -> None:
    leaves = [mg.input(f"x{i}", shape) for i, shape in enumerate(shapes)]
    with pytest.raises(ShapeError) as caught:
        mg.einsum(subscripts, *leaves)
    assert str(caught.value).splitlines()[0] == text


def test_einsum_wants_subscripts_first() -> None:
    with pytest.raises(ShapeError, match="einsum: the subscripts are ndarray"):
        mg.einsum(np.ones(3), "i->i")  # type: ignore[arg-type]


def test_tensordot_of_names() -> None:
    x, y = mg.input("x", ("n", 3, 4)), mg.input("y", (4, 3, "m"))
    assert mg.tensordot(x, y, ((1, 2), (1, 0))).shape == (N, M)
    assert mg.tensordot(x, y, 0).shape == (N, 3, 4, 4, 3, M)
    with pytest.raises(ShapeError, match="tensordot: extents of axes 2 and 1 differ: 4 and 3"):
        mg.tensordot(x, y, ((2,), (1,)))
