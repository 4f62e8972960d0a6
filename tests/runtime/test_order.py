"""The CPU's kernel of orders: `mg_order`."""

from __future__ import annotations

import numpy as np
import pytest
from planned import options_of

import magmagraph as mg
from magmagraph.ir.graph import Graph, Trace
from magmagraph.ir.interpret import evaluate
from magmagraph.passes import pipeline
from magmagraph.passes.pipeline import DEFAULT

pytestmark = pytest.mark.skipif(mg.config.compiler == "off", reason="no kernels without a compiler")

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
]
# Lines that are sorted by comparing and by digits; lines along each axis; nothing; one line.
SHAPES = [((7,), 0), ((3, 97), 1), ((97, 3), 0), ((2, 300, 5), 1), ((4, 0), 1), ((0, 4), 1)]
LONG = [((3, 2000), 1), ((2001, 2), 0)]


@pytest.fixture(params=[1, 2], autouse=True)
def _threads(request, monkeypatch) -> None:
    monkeypatch.setattr(mg.config, "threads", request.param)


def held(rng, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return numbers with ties, and floats with NaN of both signs, infinities and zeros."""
    kind = mg.dtypes.canonical(dtype)
    if kind.kind in "iub":
        low = -100 if kind.kind == "i" else 0
        return rng.integers(low, 100, shape).astype(kind)
    data = np.round(rng.standard_normal(shape) * 8) / 4
    special = rng.choice([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], shape)
    return np.where(rng.random(shape) < 0.3, special, data).astype(kind)


def families(f: mg.Function) -> set[str]:
    return {step.kernel for step in f.plan.steps}


def first(x: np.ndarray, axis: int, count: int, largest: bool) -> np.ndarray:
    x = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    if largest:
        backward = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(backward, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    return np.take(order, np.arange(count), axis=axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_orders_are_numpys(rng, dtype):
    for shape, axis in (*SHAPES, LONG[0]):
        x = mg.input("x", shape, dtype)
        f = mg.function([x], mg.argsort(x, axis=axis), device="cpu")
        data = held(rng, shape, dtype)
        np.testing.assert_array_equal(f(data), first(data, axis, shape[axis], False), strict=True)
        assert families(f) == {"order"}


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32", "uint64", "float64"])
def test_the_first_of_orders(rng, dtype, largest):
    for shape, axis in (*SHAPES, *LONG):
        extent = shape[axis]
        for count in sorted({0, min(1, extent), min(7, extent), extent // 2, extent}):
            x = mg.input("x", shape, dtype)
            if largest:
                found = mg.top_k(x, count, axis=axis).indices
            else:
                key = (*[slice(None)] * axis, slice(0, count))
                found = mg.argsort(x, axis=axis)[key]
            f = mg.function([x], found, device="cpu")
            data = held(rng, shape, dtype)
            np.testing.assert_array_equal(f(data), first(data, axis, count, largest), strict=True)


@pytest.mark.parametrize("count", [1, 20, 400])
@pytest.mark.parametrize("line", ["rising", "falling", "equal", "waves"])
def test_lines_that_pass_every_limit(line, count):
    """Each element of a rising line is one of the largest so far."""
    at = np.arange(5003, dtype=np.float32)
    data = {"rising": at, "falling": -at, "equal": 0 * at, "waves": np.sin(at)}[line]
    x = mg.input("x", ("n",))
    f = mg.function([x], list(mg.top_k(x, count)), device="cpu")
    for n in (5003, 1007):
        values, places = f(data[:n])
        np.testing.assert_array_equal(places, first(data[:n], 0, count, True))
        np.testing.assert_array_equal(values, data[:n][places])


def test_orders_stay_in_c_in_loops(rng):
    x = mg.input("x", (20, 50))

    def step(total, row):
        return total + mg.sum(mg.top_k(row, 3).values), mg.argsort(row)

    f = mg.function([x], list(mg.scan(step, mg.constant(0.0), x)), device="cpu")
    data = rng.standard_normal((20, 50)).astype(np.float32)
    total, orders = f(data)
    np.testing.assert_array_equal(orders, np.argsort(data, 1, kind="stable"))
    wanted = np.sort(data.astype(np.float64), 1)[:, -3:].sum()
    assert mg.dtypes.tolerance(np.dtype("float32"), "reassoc").close(total, wanted, 180.0)
    assert f._last.is_program


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint64", "bfloat16", "float64"])
def test_places_in_sorted_lines(rng, dtype, side):
    """NaN stands behind all numbers, in the line as among the values."""
    a, v = mg.input("a", ("n",), dtype), mg.input("v", ("k", 3), dtype)
    f = mg.function([a, v], mg.searchsorted(a, v, side), device="cpu")
    for n, k in ((0, 2), (1, 5), (7, 0), (100, 23), (1025, 4000)):
        line, values = np.sort(held(rng, (n,), dtype).astype("f8")), held(rng, (k, 3), dtype)
        wanted = np.searchsorted(line, values.astype("f8"), side)
        np.testing.assert_array_equal(f(line.astype(values.dtype), values), wanted, strict=True)
    assert families(f) == {"order"}


# On a GPU: what is read of an order, the operations that remain, and what NumPy says it is.
ENDS = {
    "top_k": lambda x: mg.top_k(x, 50).values,
    "first positions": lambda x: mg.argsort(x)[:, :50],
    "first of descending positions": lambda x: mg.argsort(x, descending=True)[:, :50],
    "last positions": lambda x: mg.argsort(x)[:, -50:],
    "last positions, from the end": lambda x: mg.argsort(x)[:, :-51:-1],
    "descending positions": lambda x: mg.argsort(x, descending=True),
    "first positions, reversed": lambda x: mg.argsort(x)[:, 49::-1],
    "first elements": lambda x: mg.sort(x)[:, :50],
    "last elements": lambda x: mg.sort(x)[:, -50:],
    "first of descending elements": lambda x: mg.sort(x, descending=True)[:, :50],
    "last of descending elements": lambda x: mg.sort(x, descending=True)[:, -50:],
    "top_k of reversed lines": lambda x: mg.top_k(x[:, ::-1], 50).indices,
    "last positions of columns": lambda x: mg.argsort(x, 0)[-2:],
    "last positions of short lines": lambda x: mg.argsort(x[:, :9])[:, -4:],
    "reversed positions": lambda x: mg.argsort(x)[:, ::-1],
}
WHOLE = {
    "the middle of an order": lambda x: mg.argsort(x)[:, 1:50],
    "every other element": lambda x: mg.sort(x)[:, :50:2],
    "most elements": lambda x: mg.sort(x)[:, :3000],
    "an order that is read twice": lambda x: (lambda y: y[:, :50] + mg.sum(y))(mg.argsort(x)),
    "elements of columns": lambda x: mg.sort(x, 0)[:1],
}


def simplified(node: mg.Node, x: mg.Node, device: str) -> Graph:
    graph = mg.function([x], node, device="cpu").source_graph
    passes = [record for record in DEFAULT if record.name == "simplify"]
    return pipeline.run(graph, Trace(), passes=passes, options=options_of(device=device))[0]


@pytest.mark.parametrize("name", ENDS)
def test_a_gpu_finds_the_ends_of_an_order_alone(rng, name):
    x = mg.input("x", (3, 5000))
    graph = simplified(ENDS[name](x), x, "cuda")
    names = [node.op.name for node in graph.nodes]
    assert names.count("first_ordered") == 1 and not {"sort", "argsort"} & set(names)
    (first,) = (node for node in graph.nodes if node.op.name == "first_ordered")
    assert first.inputs[0].size < x.size or first.inputs[0] is graph.inputs[0]  # no copy of all
    data = np.round(rng.standard_normal(x.shape) * 8).astype(np.float32) / 4
    data[rng.random(x.shape) < 0.1] = np.nan
    found = evaluate(graph, {graph.inputs[0]: data})[graph.roots[0]]
    wanted = mg.function([x], ENDS[name](x), device="cpu", skip=["simplify"])(data)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", WHOLE)
def test_a_gpu_sorts_whole_lines_for_the_rest(name):
    x = mg.input("x", (3, 5000))
    names = {node.op.name for node in simplified(WHOLE[name](x), x, "cuda").nodes}
    assert names & {"sort", "argsort"} and "first_ordered" not in names
