"""What the analysis of fused bodies finds: loops, passes, reads, bytes, and why not."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import regions
from random_checks import interpreted
from regions import B, N, make_body, region_of

import magmagraph as mg
from magmagraph.codegen.region.analysis import (
    MAX_NODES,
    MAX_OPERANDS,
    MAX_ROW_BYTES,
    Refusal,
    Region,
    analyze,
)
from magmagraph.codegen.region.parts import TOGETHER_BYTES, Walk
from magmagraph.codegen.region.views import view_strides
from magmagraph.config import config
from magmagraph.ir.dims import evaluate, maximum
from magmagraph.ir.identity import is_among
from magmagraph.ir.op import Op
from magmagraph.ops import TABLE
from magmagraph.passes.pipeline import DEFAULT


def region(operands: list[object], build: regions.Build) -> Region:
    return region_of(make_body(operands, build))


def reason(operands: list[object], build: regions.Build, **hints: int) -> str:
    verdict = analyze(make_body(operands, build), hints)
    assert isinstance(verdict, Refusal), verdict
    return verdict.reason


def extents(found: Region) -> list[object]:
    return [loop.extent for loop in found.loops]


def test_axes_behind_one_another_are_one_loop() -> None:
    found = region([(B, N, 4), (B, N, 4)], lambda x, y: x + y)
    assert extents(found) == [4 * B * N]
    assert found.elementwise
    assert found.strip
    assert found.passes == 1


def test_short_rows_lie_along_the_innermost_loop_where_that_is_asked_for() -> None:
    body = make_body([(B, 10)], lambda x: mg.softmax(x))
    beside, along = analyze(body), analyze(body, strips=False)
    assert isinstance(beside, Region) and isinstance(along, Region)
    assert (beside.row, beside.strip) == ({0}, True)
    assert (along.row, along.strip) == ({1}, False)
    assert analyze(body) is beside and analyze(body, strips=False) is along
    across = make_body([(10, B)], lambda x: mg.softmax(x, axis=0))
    found = analyze(across, strips=False)
    assert isinstance(found, Region) and found.strip  # rows are across the innermost loop anyway


def test_a_bias_keeps_its_axis_apart() -> None:
    assert extents(region([(B, N, 4), (4,)], lambda x, b: x + b)) == [B * N, 4]
    assert extents(region([(B, N, 4), (N, 1)], lambda x, b: x + b)) == [B, N, 4]


def test_an_int_stands_for_a_dimension_that_meets_it() -> None:
    found = region([(N,), (5,)], lambda x, y: x + y)
    assert extents(found) == [5]


def test_slices_split_loops_where_memory_has_gaps() -> None:
    assert extents(region([(B, N)], lambda x: x[1:] * 2.0)) == [N * maximum(B - 1, 0)]
    assert extents(region([(B, N)], lambda x: x[:, 1:] * 2.0)) == [B, maximum(N - 1, 0)]
    assert extents(region([(B, N)], lambda x: x[::-1] * 2.0)) == [B, N]
    assert extents(region([(B, N)], lambda x: x[::2, ::-3] * 2.0)) == [(B + 1) // 2, (N + 2) // 3]


def test_reads_know_where_they_begin_and_how_they_step() -> None:
    found = region([(B, N)], lambda x: mg.transpose(x)[::-2, 3:] * 2.0)
    (access,) = found.accesses.values()
    offset, steps = access.bind({"B": 10, "N": 7})
    data = np.arange(70).reshape(10, 7)
    view = data.T[::-2, 3:]
    assert offset == view[0, 0]
    assert [s * 8 for s in steps] == list(view.strides)
    assert not access.unit


def test_outputs_decide_the_order_of_loops() -> None:
    found = region([(B, N)], lambda x: mg.transpose(x) + 1.0)
    assert extents(found) == [N, B]
    assert found.outputs[0].unit
    assert not next(iter(found.accesses.values())).unit


def test_softmax_is_three_passes_over_a_row_and_keeps_the_exponentials() -> None:
    found = region([(B, N)], regions.softmax)
    assert (found.passes, found.row, found.strip) == (3, {1}, False)
    assert [node.op.name for node in found.saved] == ["exp"]
    assert found.bytes == 8 * B * N
    # The exponentials of a row, or of as many short rows as go together.
    assert found.workspace(4) == 4 * 64 * ((4 * N + 64 + TOGETHER_BYTES + 63) // 64)
    assert [fold.row for fold in found.folds] == [True, True]
    assert found.in_place == {(0, 0)}


def test_softmax_of_columns_takes_strips() -> None:
    found = region([(B, N)], lambda x: regions.softmax(x, 0))
    assert (found.passes, found.row, found.strip) == (3, {0}, True)


def test_what_is_kept_is_computed_by_the_pass_that_needs_it_first() -> None:
    found = region(
        [(B, N)], lambda x: regions.softmax(mg.tanh(x) + mg.mean(x, axis=1, keepdims=True))
    )
    ((kept, first),) = found.walk.saved.items()
    assert (kept.op.name, found.values[kept].phase, first) == ("tanh", 0, 1)
    assert [is_among(kept, nodes) for nodes in found.walk.passes] == [False, True, True, True]
    operand = found.walk.operands(kept)[0]
    reads = [is_among(operand, nodes) for nodes in found.walk.passes]
    assert reads == [True, True, False, False]


def test_norms_compute_nothing_dear_twice() -> None:
    found = region([(B, N), (N,), (N,)], regions.layer_norm)
    assert (found.passes, found.saved) == (3, ())
    assert found.workspace(8) == 0
    assert found.bytes == 8 * B * N + 8 * N


def test_layer_norm_gradient_folds_along_rows_and_across_them() -> None:
    found = region([(B, N), (N,), (B, N)], regions.layer_norm_gradient)
    assert found.row == {1}
    cross = [fold for fold in found.folds if not fold.row]
    assert [fold.kept for fold in cross] == [(1,), (1,)]
    assert [output.epilogue for output in found.outputs] == [False, True, True]
    assert found.bytes == 12 * B * N + 12 * N


def test_batch_norm_over_images_is_rows_of_two_loops() -> None:
    found = region([(B, 3, 4, 5), (3,)], regions.image_norm)
    assert extents(found) == [B, 3, 20]
    assert found.row == {0, 2}
    assert found.outer == (1,)


def test_cross_entropy_with_its_gradient_is_one_region() -> None:
    case = next(c for c in regions.CASES if c.name == "cross entropy")
    found = region_of(case.body())
    assert extents(found) == [10, B]  # rows of ten stand side by side in strips
    assert (found.row, found.strip) == ({0}, True)
    assert [fold.row for fold in found.folds].count(False) == 1
    assert found.bytes == 2 * 40 * B + 4 * B + 4


def test_a_total_and_column_sums_go_across_rows() -> None:
    total = region([(B, N)], lambda x: mg.sum(x))
    assert (total.row, total.folds[0].kept, total.folds[0].row) == (frozenset(), (), False)
    columns = region([(B, N), (N,)], lambda x, b: b - 0.1 * mg.sum(x, axis=0))
    assert columns.outputs[0].epilogue
    assert columns.columns
    assert columns.flat  # the addend is read when all rows are done
    assert (1, 0) in columns.in_place


def test_columns_have_a_line_of_sums_for_each_thread() -> None:
    wide = region([(B, 4096)], lambda x: mg.sum(x, axis=0))
    assert wide.columns
    assert wide.row == {0}
    assert wide.workspace(8) == 8 * 4096 * 8
    short = region([(B, 10)], lambda x: mg.sum(x, axis=0))
    assert short.workspace(2) == 2 * 8 * (10 + 512 + 6)  # short rows lie side by side


def test_short_rows_lie_side_by_side_where_all_is_read_in_order() -> None:
    assert region([(B, N)], lambda x: mg.sum(x * x, axis=0)).flat
    assert region([(B, N), ()], lambda x, s: mg.sum(x * s, axis=0)).flat
    assert not region([(B, N), (N,)], lambda x, b: mg.sum(x * b, axis=0)).flat
    assert not region([(B, N), (B, 1)], lambda x, b: mg.sum(x * b, axis=0)).flat
    assert not region([(B, 4, N)], lambda x: mg.sum(x, axis=(0, 2))).columns
    assert not region([(B, N)], lambda x: mg.argmax(x, axis=0)).columns


def test_row_sums_are_folds_of_rows() -> None:
    found = region([(B, N)], lambda x: 2.0 * mg.sum(x, axis=1))
    assert (found.row, found.passes) == ({1}, 1)
    assert not found.outputs[0].epilogue


def test_values_over_more_axes_than_the_sum_make_it_an_epilogue() -> None:
    found = region([(B, N), (4, N)], lambda x, w: w - mg.sum(x, axis=0))
    assert found.outputs[0].epilogue
    assert [loop.extent for loop in found.loops[found.depth :]] == [4]


def test_operands_read_in_two_ways_count_once() -> None:
    found = region([(N, N)], lambda x: mg.exp(x) + x[::-1])
    assert len(found.accesses) == 2
    assert found.bytes == 8 * N * N


def test_a_part_counts_as_a_part() -> None:
    found = region([(B, N)], lambda x: mg.exp(x[:4]))
    assert found.bytes == 2 * 4 * N * mg.dims.minimum(B, 4)


def test_no_place_is_written_before_its_last_read() -> None:
    twice = region([(B, N)], lambda x: (x + 1.0, x - mg.max(x, axis=1, keepdims=True)))
    assert twice.in_place == {(0, 1)}  # the first is written while the row is read again
    turned = region([(N, N)], lambda x: mg.transpose(x) + 1.0)
    assert turned.in_place == frozenset()
    shifted = region([(B, N)], lambda x: x + mg.flip(x, 1))
    assert shifted.in_place == frozenset()
    shared = region([(N,), (B, N)], lambda b, x: (x + b, b - mg.sum(x, axis=0)))
    assert (0, 1) in shared.in_place
    other = region([(N,), (B, N)], lambda b, x: (
        b - mg.sum(x, axis=0), b + mg.sum(mg.square(x), axis=0)
    ))
    assert {(0, 0), (0, 1)} <= other.in_place  # one nest reads before it writes either
    narrower = region([(N,)], lambda x: mg.cast(x, "float16"))
    assert narrower.in_place == frozenset()


def test_reductions_of_one_element_are_none() -> None:
    found = region([(B, 1)], lambda x: mg.sum(mg.exp(x), axis=1))
    assert found.elementwise


def test_walk_puts_row_values_between_passes() -> None:
    walk = Walk(region([(B, N)], regions.softmax))
    named = [[node.op.name for node in stage] for stage in walk.stages]
    assert named == [[], ["max"], ["sum"]]
    last = [node.op.name for node in walk.passes[2]]
    assert last == ["exp", "sum", "divide"]


@pytest.mark.parametrize(
    ("operands", "build", "text"),
    [
        (
            [(B, N)],
            lambda x: x - mg.max(x, axis=0, keepdims=True) - mg.max(x, axis=1, keepdims=True),
            "values inside it are reduced over different axes",
        ),
        ([(N, N)], lambda x: x + mg.transpose(x), "two axes of"),
        (
            [(B, N)],
            lambda x: mg.reshape(mg.exp(x), (B * N,)),
            "reshape of a computed value joins or splits axes",
        ),
        ([(B, N)], lambda x: mg.exp(x)[1:], "of a computed value picks some of its elements"),
        ([(B, N)], lambda x: mg.concatenate([mg.exp(x), x]), "concatenate of a computed value"),
        ([(B, N), (N, 4)], lambda x, y: x @ y, "matmul has no scalar expression"),
        (
            [(B, N), (N,)],
            lambda x, w: x * regions.softmax(w),
            "a reduction does not run over all of the region's axes",
        ),
        (
            [(B, N), (N,)],
            lambda x, w: (mg.exp(x + w), mg.exp(w)),
            "an output has other axes than the rest of the region",
        ),
        (
            [(B, N)],
            lambda x: mg.sum(x, axis=0) / mg.sum(x),
            "the result of a reduction over all rows is combined with single rows",
        ),
        (
            [(N,)],
            lambda x: x + mg.constant(np.arange(5, dtype=np.float32)),
            "the result of constant is an operand, not part of a region",
        ),
    ],
)
def test_refusals(operands: list[object], build: regions.Build, text: str) -> None:
    assert text in reason(operands, build)


def test_rows_that_leave_the_cache_are_refused_for_expected_sizes() -> None:
    body = make_body([(B, N)], regions.softmax)
    assert isinstance(analyze(body, {"B": 4, "N": 1000}), Region)
    assert isinstance(analyze(body), Region)
    long = MAX_ROW_BYTES // 4
    text = f"a row takes {12 * long} bytes, and is passed over 3 times"
    assert reason([(B, N)], regions.softmax, N=long) == text
    assert reason([(B, long)], regions.softmax) == text
    one_pass = make_body([(B, N)], lambda x: mg.sum(x, axis=1))
    assert isinstance(analyze(one_pass, {"B": 1, "N": 100 * long}), Region)


def test_large_bodies_are_refused() -> None:
    def deep(x: mg.Node) -> mg.Node:
        for _ in range(MAX_NODES // 2 + 1):
            x = mg.tanh(mg.sin(x))
        return x

    assert reason([(N,)], deep) == f"more than {MAX_NODES} nodes"

    def wide(*leaves: mg.Node) -> mg.Node:
        total = leaves[0]
        for leaf in leaves[1:]:
            total = total + leaf
        return total

    assert reason([(N,)] * MAX_OPERANDS, wide) == f"more than {MAX_OPERANDS} operands and results"
    assert region([(N,)] * (MAX_OPERANDS - 1), wide).bytes == 4 * MAX_OPERANDS * N


def test_layout_operations_say_how_their_axes_run() -> None:
    x = mg.var("x", shape=(B, N, 3))

    def axes(node: mg.Node) -> list[tuple[int | None, object, int]]:
        assert node.op.layout.view is not None
        return [tuple(part) for part in node.op.layout.view(node)]

    assert [axis for axis, _, _ in axes(mg.transpose(x, (2, 0, 1)))] == [2, 0, 1]
    assert axes(x[:, ::-2]) == [(0, 0, 1), (1, N - 1, -2), (2, 0, 1)]
    assert axes(mg.broadcast_to(x, (7, B, N, 3)))[0] == (None, 0, 1)
    assert mg.pad(x, 1).op.layout.view is None


VIEWED = {
    "slice": [
        lambda x: x[1:, :, ::2],
        lambda x: x[::-1, 2:3, 1:-1],
        lambda x: x[0, ::-2],
    ],
    "transpose": [lambda x: mg.transpose(x, (2, 0, 1)), lambda x: mg.swapaxes(x, 1, 2)],
    "broadcast_to": [
        lambda x: mg.broadcast_to(x, (2, B, N, 4)),
        lambda x: mg.broadcast_to(x[:, :, :1], (B, N, 5)),
    ],
}


def test_view_rules_agree_with_numpy_for_all_sizes() -> None:
    """A rule's offset and strides are those of the array expression's view, 1 among the sizes."""
    viewing = {
        op.name for op in TABLE.values() if isinstance(op, Op) and op.layout.view is not None
    }
    assert viewing == VIEWED.keys(), "write examples for a new rule"
    chains = [f for examples in VIEWED.values() for f in examples]
    chains += [
        lambda x: mg.broadcast_to(x[..., 0], (2, B, N))[:, :-1],
        lambda x: mg.transpose(mg.reshape(x, (B * N, 4)))[1:, ::-1],
        lambda x: mg.expand_dims(mg.transpose(x)[1], 1)[..., 1:],
    ]
    for make, (b, n) in itertools.product(chains, ((4, 3), (1, 3), (4, 1), (3, 1))):
        x = mg.input("x", (B, N, 4))
        node, views = make(x), []
        while node is not x:
            views.insert(0, node)
            node = node.inputs[0]
        elements = np.arange(b * n * 4).reshape(b, n, 4)
        expected = interpreted([x], views[-1:], [elements])[0]
        if not expected.size:
            continue
        offset, strides = view_strides(tuple(views), views[-1])
        places = np.full(expected.shape, evaluate(offset, {"B": b, "N": n}))
        for axis, position in enumerate(np.indices(expected.shape)):
            places += position * evaluate(strides[axis], {"B": b, "N": n})
        np.testing.assert_array_equal(places, expected)


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_axes_that_are_one_long_at_the_call(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops that were joined for all sizes have the steps of all sizes."""
    monkeypatch.setattr(config, "compiler", compiler)
    x = mg.input("x", (4, "m", 2))
    cut = mg.broadcast_to(x[..., 0], (2, 4, mg.Dim("m")))[:, :-1]
    total = mg.sum(cut * cut)
    f = mg.function([x], [cut, mg.stack([cut, cut * 2.0]), total, mg.grad(total, x)])
    for m in (1, 3):
        value = np.arange(8.0 * m, dtype=np.float32).reshape(4, m, 2)
        expected = np.broadcast_to(value[..., 0], (2, 4, m))[:, :-1]
        slope = np.zeros_like(value)
        slope[:-1, :, 0] = 4.0 * value[:-1, :, 0]
        found = f(value)
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(found[1], np.stack([expected, expected * 2.0]))
        assert found[2] == np.sum(expected * expected)
        np.testing.assert_array_equal(found[3], slope)


def test_short_rows_that_are_one_row_repeated() -> None:
    """They do not follow one another in memory, so that several are not taken as one."""
    b, x = mg.input("b", ("n",)), mg.input("x", ("m", "n"))
    repeated = mg.broadcast_to(b, ("m", "n"))[:-1]
    optional = (record.name for record in DEFAULT if record.optional and record.name != "fuse")
    f = mg.function([b, x], [mg.sum(repeated * x[1:], axis=0)], skip=tuple(optional))
    row, rows = np.float32([1, 2, 3]), np.arange(150, dtype=np.float32).reshape(50, 3)
    np.testing.assert_array_equal(f(row, rows)[0], (row * rows[1:]).sum(0))


@pytest.mark.parametrize("ndim", [3, 4])
def test_memory_of_the_analysis_does_not_depend_on_sizes(ndim: int) -> None:
    named = mg.input("x", tuple("bhsd"[:ndim]))
    alike = mg.input("y", ("n",) * ndim)
    large = mg.input("z", (5000,) * ndim)
    outputs = [named.at[:, 0].set(1.5), mg.ravel(named).at[0].multiply(3.0)]
    for x in (named, alike, large):
        outputs += [mg.grad(mg.sum(x[:, :1] ** 2), x), mg.transpose(x)[1:-1, ::-2] * 2.0]
    tracemalloc.start()
    try:
        regions_made = mg.function([named, alike, large], outputs).graph
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(regions_made.nodes) > 3
    assert peak < 64 << 20


def test_single_nodes_are_looked_at_when_somebody_asks() -> None:
    """Fusion asks of most bodies only whether they are regions."""
    softmax = region([(B, N)], regions.softmax)
    found = {"values", "accesses", "counters", "folds", "outputs"}
    assert not found & vars(softmax).keys()
    assert softmax.passes == 3
    assert len(softmax.folds) == 2
    assert found & vars(softmax).keys() == {"folds"}
