"""How generated products are cut into tiles, and which of their factors is read first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.codegen.cuda.limits import MULTIPROCESSORS
from magmagraph.codegen.cuda.products.cuts import SHARED, cut_for, cut_of_rows
from magmagraph.codegen.cuda.products.shapes import read_first
from magmagraph.ir.plan import Place


def network(layers: int, batch: int, width: int) -> tuple[Any, list[Any]]:
    x = mg.var("x", shape=("batch", 784))
    labels = mg.var("labels", shape=("batch",), dtype="int32")
    value, parameters, inputs = x, [], 784
    for layer in range(layers):
        w = mg.var(f"W{layer}", init=mg.init.glorot_uniform(seed=layer), shape=(inputs, width))
        b = mg.var(f"b{layer}", init=mg.init.zeros(), shape=(width,))
        parameters += [w, b]
        value, inputs = mg.sigmoid(value @ w + b), width
    last = mg.var("W", init=mg.init.glorot_uniform(seed=99), shape=(inputs, 10))
    parameters.append(last)
    loss = mg.cross_entropy(value @ last, labels)
    updates = mg.optimizer.SGD(0.05, weight_decay=0.001).updates(loss, parameters)
    return mg.function([x, labels], loss, updates=updates, device="cpu"), parameters


def test_what_was_written_longer_ago_is_read_first() -> None:
    f, _ = network(2, 100, 528)
    f(np.zeros((100, 784), "f4"), np.zeros(100, "i4"))
    plan = f._last.plan
    found = []
    for step in plan.steps:
        if step.kernel == "gemm":
            places = tuple(plan.slots[value.slot].place for value in step.inputs[:2])
            found.append((places, step.node.attrs["transpose_a"], read_first(plan, step)))
    fed = [first for (a, _), _, first in found if a is Place.FEED]
    forward = [f for (a, b), t, f in found if not t and a is not Place.FEED and b is Place.STATE]
    gradients = [first for _, transposed, first in found if transposed]
    assert fed == [0, 0]  # the first layer's product, and the gradient of its weights
    assert forward and set(forward) == {1}  # weights before activations and their gradients
    assert gradients and set(gradients) == {0}  # activations before their gradients


@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(528, 528, 100), (784, 528, 100), (600, 700, 17), (700, 700, 128)]
)
def test_warps_share_what_they_multiply_where_the_contracted_axis_is_short(
    m: int, n: int, k: int, terms: int
) -> None:
    cut = cut_for(m, n, k, terms)
    assert cut is not None and cut.common and cut.reach >= k and cut.shared <= SHARED
    # What each of four warps beside each other brings by itself would be four times as much.
    alone = cut.threads // 32 * (2 * cut.down + cut.across)
    assert 2 * sum(cut.lines) < alone
    blocks = -(-m // cut.rows) * -(-n // cut.columns)
    assert blocks <= 2 * MULTIPROCESSORS


def test_split_factors_have_small_blocks_while_two_fit_a_multiprocessor() -> None:
    split, rounded = cut_for(100, 528, 528, 3), cut_for(100, 528, 528, 1)
    assert split is not None and (split.down, split.across) == (1, 2)
    assert rounded is not None and (rounded.down, rounded.across) == (1, 4)
    many = cut_for(200, 528, 528, 3)  # blocks of 16 x 16 would be more than two a multiprocessor
    assert many is not None and (many.down, many.across) == (1, 4)
    wide, tall = cut_for(528, 528, 100, 3), cut_for(528, 528, 100, 1)
    assert wide is not None and tall is not None and (wide.rows, tall.rows) == (32, 48)


def test_warps_read_more_of_a_long_axis_where_factors_are_rounded() -> None:
    split, rounded = cut_for(100, 528, 528, 3), cut_for(100, 528, 528, 1)
    assert split is not None and (split.warps[2], split.stages) == (11, 3)
    assert rounded is not None and (rounded.warps[2], rounded.stages) == (7, 5)
    for m, n, k in ((100, 528, 300), (100, 10, 528)):  # few sixteens, or few columns
        cut = cut_for(m, n, k, 1)
        assert cut is not None and cut.stages == 3


def test_a_gradient_with_nothing_beside_it_has_small_blocks() -> None:
    cuts = [cut_for(784, 528, 100, terms, alone) for terms in (3, 1) for alone in (False, True)]
    assert [cut and cut.rows for cut in cuts] == [32, 32, 64, 32]


def test_rows_of_a_tile_are_whole() -> None:
    for n in (1, 8, 9, 10, 24, 32):
        cut = cut_of_rows(100, n, 528)
        assert cut is not None and cut.columns >= n and cut.shared <= SHARED
    assert cut_of_rows(100, 33, 528) is None and cut_of_rows(100, 10, 1 << 20) is None
