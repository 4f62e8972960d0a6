"""Functions and graphs mapped over an axis: every record against a loop, and what vmap promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interpreted import assert_close, value, values
from table import (
    PUBLIC,
    assert_agrees,
    each_record,
    is_float_array,
    leaves,
    magnitude,
    results,
    sample_of,
    samples,
    together,
)

import magmagraph as mg
from magmagraph.ir.graph import topological
from magmagraph.ir.op import Kind, Op
from magmagraph.ops import TABLE
from magmagraph.ops.control.mapped import MAPPED
from magmagraph.ops.rules.batching import WORDS, rule_of

SAMPLES = list(samples())
COUNT = 3


def _variants(array: np.ndarray) -> np.ndarray:
    """Return an array and others like it: the same elements in another order, say."""
    turned = np.flip(array) if array.ndim else array
    whole = not is_float_array(array) or bool((np.rint(array) == array).all())
    half = array if whole else (array * 0.5).astype(array.dtype)  # orders stay whole numbers
    return np.stack([array, turned, half])


def _stacked(feeds: dict[Any, Any], chosen: set[Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return inputs with the mapped axis for some of the inputs, and what to feed."""
    mapping, fed = {}, {}
    for node, array in feeds.items():
        if node in chosen:
            stack = _variants(np.asarray(array))
            mapping[node] = mg.input(f"{node.name}s", stack.shape, stack.dtype)
            fed[mapping[node]] = stack
        else:
            fed[node] = array
    return mapping, fed


def _one(feeds: dict[Any, Any], chosen: set[Any], i: int) -> dict[Any, Any]:
    return {n: _variants(np.asarray(a))[i] if n in chosen else a for n, a in feeds.items()}


def _check(name: str, number: int, pick: Any) -> None:
    record, sample = sample_of(name, number)
    assert record.function is not None
    nodes, feeds = leaves(sample.inputs)
    chosen = set(pick(list(feeds)))
    if not chosen:
        return
    made = results(record.function(*nodes, **sample.attrs))
    mapping, fed = _stacked(feeds, chosen)
    mapped = mg.vmap(made, mapping)
    found = values(mapped, fed)
    for i in range(COUNT):
        wanted = values(made, _one(feeds, chosen, i))
        for node, whole, part in zip(made, found, wanted, strict=True):
            assert whole.shape == (COUNT, *part.shape)
            assert whole.dtype == node.dtype
            assert_agrees(whole[i], part, record.numerics, magnitude(part, *feeds.values()))


@each_record(SAMPLES)
def test_mapped_is_the_stack_of_results(name: str, i: int) -> None:
    _check(name, i, lambda inputs: inputs)


@each_record(SAMPLES)
def test_operands_that_all_share(name: str, i: int) -> None:
    """Each operand in turn is the only one that varies."""
    _, sample = sample_of(name, i)
    _, feeds = leaves(sample.inputs)
    if len(feeds) < 2:
        return
    for k in range(len(feeds)):
        _check(name, i, lambda inputs, k=k: inputs[k : k + 1])


@pytest.mark.parametrize("names", together(PUBLIC, 8), ids=",".join)
def test_named_axis_and_compiled(names: list[str]) -> None:
    """The mapped axis is a named dimension, and what is mapped is compiled."""
    fed: dict[Any, Any] = {}
    made: list[Any] = []
    expected: list[tuple[str, Any, float]] = []
    for name in names:
        record, sample = sample_of(name, 0)
        assert record.function is not None
        nodes, feeds = leaves(sample.inputs, f"{name} ")
        if not feeds:
            continue
        outputs = results(record.function(*nodes, **sample.attrs))
        mapping = {}
        for node, array in feeds.items():
            stack = _variants(np.asarray(array))
            mapping[node] = mg.input(f"{node.name}s", ("batch", *node.shape), node.dtype)
            fed[mapping[node]] = stack
        mapped = mg.vmap(outputs, mapping)
        assert all(str(whole.shape[0]) == "batch" for whole in mapped), name
        made += mapped
        parts = [values(outputs, _one(feeds, set(feeds), i)) for i in range(COUNT)]
        scale = magnitude(*(fed[node] for node in mapping.values()))
        expected += [(name, np.stack(column), scale) for column in zip(*parts, strict=True)]
    if not made:
        return
    compiled = mg.function(list(fed), made)
    for found, (name, wanted, scale) in zip(compiled(*fed.values()), expected, strict=True):
        assert found.dtype == wanted.dtype, name
        assert_agrees(found, wanted, PUBLIC[name].numerics, max(scale, magnitude(wanted)), name)


# What has no rule of its own, and why: these run once for each position.
LOOPED = {
    "fixed_point": "each position stops after its own number of steps",
    "found": "how many elements are found differs from position to position",
    "ctc_of_logs": "alignments of each position have their own lengths",
    "ctc_gradient": "alignments of each position have their own lengths",
    "ctc_curvature": "alignments of each position have their own lengths",
    "convolve": "a signal of one axis; convolution has batches",
    "row_order": "rows of each position have an order of their own, by all their elements",
    "loop_pullback": "each position stops after its own number of steps",
}
# What is never asked: the first is taken from what its operand became, the others read nothing.
# Those of ranks stand in graphs that the pass `distribute` made, or goes through.
NOT_MAPPED = {
    "item", "iota", "random_bits", "allreduce_many", "allreduce_when", "allreduce_many_when",
    "rank_row", "rank_rows", "sent_when", "reduce_scatter_when", "allgather_when",
}  # fmt: skip


def test_only_these_loop() -> None:
    looped = {
        name
        for name, record in TABLE.items()
        if isinstance(record, Op)
        and record.kind not in (Kind.LEAF, Kind.LOWERED)
        and rule_of(record) is None
    }
    assert looped - NOT_MAPPED == set(LOOPED), "a rule (see Op.batching), or the reason here"


def test_words_are_known() -> None:
    for record in TABLE.values():
        if isinstance(record, Op) and isinstance(record.batching, str) and record.batching:
            assert record.batching in {*WORDS, "shape"}, record.name


def _graph_names(nodes: Any) -> list[str]:
    return [node.op.name for node in topological(results(nodes))]


class TestFunctions:
    def test_axes_in_and_out(self, rng: np.random.Generator) -> None:
        a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))

        def f(x: Any, y: Any) -> Any:
            return mg.outer(x, y)

        expected = np.stack([np.outer(a[:, i], b[i]) for i in range(4)])
        assert_close(value(mg.vmap(f, (1, 0))(a, b)), expected)
        assert_close(value(mg.vmap(f, (-1, 0), out_axes=2)(a, b)), np.moveaxis(expected, 0, 2))
        assert_close(value(mg.vmap(f, (1, 0), -2)(a, b)), np.moveaxis(expected, 0, -2))

    def test_forms(self, rng: np.random.Generator) -> None:
        w, b = rng.normal(size=(5, 3)), rng.normal(size=5)
        x = rng.normal(size=(3, 2))

        def f(parameters: Any, x: Any, *, scale: Any) -> Any:
            y = parameters["w"] @ x * scale
            return {"y": y + parameters["b"], "x": [x * 2.0]}

        found = mg.vmap(f, ({"w": 0, "b": 0}, None), {"y": 0, "x": None})(
            {"w": w, "b": b}, x, scale=np.arange(5.0)
        )
        expected = (w @ x) * np.arange(5.0)[:, None] + b[:, None]
        assert_close(value(found["y"]), expected, scale=10.0)
        assert_close(value(found["x"][0]), 2.0 * x)

    def test_result_that_all_share(self) -> None:
        w = mg.var("w", init=np.float64(3.0))
        xs = np.ones((4, 2))
        assert_close(value(mg.vmap(lambda x: w * 2.0)(xs)), np.full(4, 6.0))
        shared = mg.vmap(lambda x: w * 2.0, out_axes=None)(xs)
        assert shared.shape == ()

    def test_keeps_name_and_line(self) -> None:
        def f(x: Any) -> Any:
            """Square."""
            return mg.sum(x * x)

        mapped = mg.vmap(f)
        assert mapped.__name__ == "f"
        assert mapped.__doc__ == "Square."
        node = mapped(np.ones((2, 3)))
        inside = f.__code__.co_firstlineno + 2
        assert node.line.number == inside, "the line of the operation, not of the call"

    def test_named_dimension(self, rng: np.random.Generator) -> None:
        xs = mg.input("xs", ("batch", 3), "float64")
        found = mg.vmap(lambda x: x / mg.sum(x))(xs)
        assert [str(extent) for extent in found.shape] == ["batch", "3"]
        at = rng.uniform(1.0, 2.0, (5, 3))
        f = mg.function([xs], found)
        assert_close(f(at), at / at.sum(axis=1, keepdims=True))
        assert_close(f(at[:2]), at[:2] / at[:2].sum(axis=1, keepdims=True))

    def test_no_positions(self) -> None:
        xs = np.zeros((0, 3))
        assert value(mg.vmap(lambda x: mg.sum(mg.sort(x)))(xs)).shape == (0,)
        fallback = mg.vmap(lambda x: mg.fixed_point(lambda y: 0.5 * y + x, x).value)(xs)
        assert value(fallback).shape == (0, 3)

    def test_a_product_with_a_shared_matrix_is_one_product(self) -> None:
        W = mg.var("W", init=np.ones((4, 3)))
        found = mg.vmap(lambda x: W @ x)(mg.input("xs", ("batch", 3), "float64"))
        (product,) = [n for n in topological([found]) if n.op.name == "matmul"]
        assert [operand.ndim for operand in product.inputs] == [2, 2]

    def test_systems_with_a_shared_matrix_are_one_system(self, rng: np.random.Generator) -> None:
        M, bs = rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=(5, 3, 2))
        found = mg.vmap(lambda b: mg.linalg.solve(M, b))(bs)
        (node,) = [n for n in topological([found]) if n.op.name == "solve"]
        assert [operand.ndim for operand in node.inputs] == [2, 2]
        assert_close(value(found), np.linalg.solve(M, bs), scale=10.0)


class TestGradients:
    def test_per_example_gradients(self, rng: np.random.Generator) -> None:
        x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
        w = mg.var("w", init=rng.normal(size=(3, 2)))
        b = mg.var("b", init=rng.normal(size=2))

        def loss(x: Any, y: Any) -> Any:
            return mg.sum((mg.tanh(x @ w) + b - y) ** 2)

        per_example = mg.vmap(lambda x, y: mg.grad(loss(x, y), {"w": w, "b": b}))(x, y)
        assert per_example["w"].shape == (6, 3, 2)
        total = mg.grad(mg.sum(mg.vmap(loss)(x, y)), [w, b])
        gw, gb, sw, sb = values([per_example["w"], per_example["b"], *total])
        assert_close(gw.sum(axis=0), sw, scale=100.0)
        assert_close(gb.sum(axis=0), sb, scale=100.0)
        for i in range(6):
            assert_close(gw[i], value(mg.grad(loss(x[i], y[i]), w)), scale=100.0)
        assert MAPPED.name not in _graph_names(per_example["w"])

    def test_gradient_of_mapped_is_the_central_difference(self) -> None:
        """Also through a loop, and with an operand that all share."""
        starts = np.array([1.0, 1.5, 2.0])

        def looped(a: Any, c: Any) -> Any:
            def one(start: Any) -> Any:
                found = mg.fixed_point(lambda x: 0.4 * mg.sin(x) * c + start, start)
                return found.value * a

            return mg.sum(mg.vmap(one)(mg.constant(starts) * a) * starts)

        point = (np.float64(0.7), np.float64(0.9))
        mg.check_gradients(looped, point)
        mg.check_gradients(lambda a, c: mg.grad(looped(a, c), a) * c, point)

    def test_custom_gradient(self, rng: np.random.Generator) -> None:
        @mg.custom_gradient
        def scaled(x: Any, c: Any) -> Any:
            return x * c, lambda u: (u * 10.0 * c, mg.sum(u * x) * 100.0)

        xs = rng.normal(size=(4, 3))
        c = mg.var("c", init=np.float64(2.0))
        node = mg.vmap(lambda x: scaled(x, c))(xs)
        assert_close(value(node), xs * 2.0)
        x = mg.var("x", init=xs)
        gx, gc = values(mg.grad(mg.sum(mg.vmap(lambda x: scaled(x, c))(x)), [x, c]))
        assert_close(gx, np.full((4, 3), 20.0))
        assert_close(gc, 100.0 * xs.sum(), scale=1000.0)
        nested = mg.vmap(mg.vmap(lambda x: mg.grad(mg.sum(scaled(x, c)), x)))(xs[None])
        assert_close(value(nested), np.full((1, 4, 3), 20.0))

    def test_hessian_inside(self, rng: np.random.Generator) -> None:
        xs = rng.normal(size=(4, 3))
        found = mg.vmap(lambda x: mg.hessian(mg.sum(x**3) * mg.sum(x), x))(xs)
        expected = [value(mg.hessian(mg.sum(v**3) * mg.sum(v), v))
                    for v in (mg.var("v", init=x) for x in xs)]
        assert_close(value(found), expected, scale=100.0)


class TestNested:
    @pytest.mark.parametrize("name", ["sort", "searchsorted", "take", "matmul", "linalg_solve"])
    def test_two_axes(self, name: str, rng: np.random.Generator) -> None:
        operands: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "sort": (mg.sort, (rng.normal(size=(2, 3, 4)),)),
            "searchsorted": (
                mg.searchsorted, (np.sort(rng.normal(size=(2, 3, 4))), rng.normal(size=(2, 3, 2)))
            ),
            "take": (
                lambda x, i: mg.take(x, i, axis=1),
                (rng.normal(size=(2, 3, 4, 5)), rng.integers(-5, 5, (2, 3, 2))),
            ),
            "matmul": (mg.matmul, (rng.normal(size=(2, 3, 4, 2)), rng.normal(size=(2, 3, 2)))),
            "linalg_solve": (
                mg.linalg.solve,
                (rng.normal(size=(2, 3, 4, 4)) + 4 * np.eye(4), rng.normal(size=(2, 3, 4))),
            ),
        }
        function, arrays = operands[name]
        found = value(mg.vmap(mg.vmap(function))(*arrays))
        for i, j in np.ndindex(2, 3):
            wanted = value(function(*(a[i, j] for a in arrays)))
            assert_close(found[i, j], wanted, scale=100.0)
        # One axis of each operand, the other shared: what is mapped inside is not outside.
        if len(arrays) == 2:
            x, y = arrays[0][0], arrays[1][:, 0]
            outer = mg.vmap(lambda y: mg.vmap(lambda x: function(x, y))(x))(y)
            for i, j in np.ndindex(2, 3):
                wanted = value(function(x[j], y[i]))
                assert_close(value(outer)[i, j], wanted, scale=100.0)

    def test_convolutions(self, rng: np.random.Generator) -> None:
        x, w = rng.normal(size=(2, 3, 4, 6, 6)), rng.normal(size=(2, 3, 4, 3, 3))
        conv = mg.conv2d
        found = value(mg.vmap(conv)(x, w))
        for i in range(2):
            assert_close(found[i], value(conv(x[i], w[i])), scale=100.0)

        def slope(x: Any, w: Any) -> Any:
            return mg.grad(mg.sum(conv(x, w) ** 2), [x, w])

        gx, gw = mg.vmap(slope)(x, w)
        for i in range(2):
            vx, vw = mg.var("x", init=x[i]), mg.var("w", init=w[i])
            for all_, one in zip((gx, gw), slope(vx, vw), strict=True):
                assert_close(value(all_)[i], value(one), scale=1000.0)


class TestRandom:
    def test_each_position_draws_anew(self) -> None:
        found = mg.vmap(lambda x: x + mg.random.normal((3,)))(np.zeros((4, 3), "float32"))
        drawn = mg.function([], found)()
        assert len(np.unique(drawn)) == 12

    def test_the_first_draws_what_it_would_alone(self) -> None:
        mg.random.seed(3)
        alone = mg.random.uniform((3,)).eval()
        mg.random.seed(3)
        mapped = mg.vmap(lambda x: mg.random.uniform((3,)) + x)(np.zeros(4, "float32")).eval()
        np.testing.assert_array_equal(mapped[0], alone)

    def test_what_is_drawn_outside_is_shared(self) -> None:
        noise = mg.random.normal((3,))
        found = mg.vmap(lambda x: x + noise)(np.zeros((4, 3), "float32"))
        drawn = mg.function([], found)()
        assert (drawn == drawn[0]).all()

    def test_only_random(self) -> None:
        found = mg.vmap(lambda: mg.random.uniform((2,)), size=5)()
        assert len(np.unique(mg.function([], found)())) == 10
        named = mg.vmap(lambda: mg.random.uniform((2,)), size="n")()
        assert [str(extent) for extent in named.shape] == ["n", "2"]

    def test_a_graph_draws_anew(self) -> None:
        x = mg.input("x", (3,))
        y = x + mg.random.normal((3,))
        drawn = mg.function([], mg.vmap(y, {x: np.zeros((4, 3))}))()
        assert len(np.unique(drawn)) == 12

    def test_gradient_reads_the_same_draw(self) -> None:
        xs = mg.var("xs", init=np.ones((4, 3)))
        noise = []

        def f(x: Any) -> Any:
            noise.append(mg.random.normal((3,), dtype="float64"))
            return mg.sum(x * noise[0])

        loss = mg.vmap(f)(xs)
        slope, total = mg.function([], [mg.grad(mg.sum(loss), xs), loss])()
        assert_close(slope.sum(axis=1), total)


class TestWrongUse:
    @pytest.mark.parametrize(
        ("call", "error", "text"),
        [
            (
                lambda: mg.vmap(lambda x, y: x + y)(np.ones((3, 2)), np.ones((4, 2))),
                mg.ShapeError,
                "vmap: the mapped axis has extent 3 in arguments[0] and 4 in arguments[1]",
            ),
            (
                lambda: mg.vmap(lambda x: x, None)(np.ones(3)),
                mg.ShapeError,
                "vmap: nothing is mapped",
            ),
            (
                lambda: mg.vmap(lambda x: x, 2)(mg.input("x", (3, 4))),
                mg.ShapeError,
                "vmap: axis 2 of arguments[0] is out of range: 'x' float32[3, 4] by input",
            ),
            (
                lambda: mg.vmap(lambda x, y: x, (0, None, 0))(np.ones(3), 1.0),
                mg.ShapeError,
                "vmap: in_axes=(0, None, 0) does not fit arguments, which has 2 members",
            ),
            (
                lambda: mg.vmap(lambda x: x, out_axes=None)(np.ones(3)),
                mg.ShapeError,
                "vmap: result varies along the mapped axis",
            ),
            (
                lambda: mg.vmap(lambda x: x, out_axes=1)(np.ones(3)),
                mg.ShapeError,
                "vmap: axis 1 of result is out of range",
            ),
            (
                lambda: mg.vmap(lambda x: [])(np.ones(3)),
                mg.GraphError,
                "vmap: there is no result",
            ),
            (
                lambda: mg.vmap(mg.input("x"), 0),
                mg.GraphError,
                "vmap: the target is Node, and in_axes is 0",
            ),
            (
                lambda: mg.vmap(mg.constant(1.0), {"x": np.ones(3)}),
                mg.GraphError,
                "vmap: a key of in_axes is str, not a node",
            ),
        ],
    )
    def test_text(self, call: Any, error: type[Exception], text: str) -> None:
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value).splitlines()[0].startswith(text)

    def test_what_stands_for_a_node(self) -> None:
        x = mg.input("x", (3,))
        with pytest.raises(mg.ShapeError, match=r"has shape \(5, 4\)"):
            mg.vmap(x * 2.0, {x: mg.input("xs", (5, 4))})
        with pytest.raises(mg.DTypeError, match="mg.cast"):
            mg.vmap(x * 2.0, {x: mg.input("xs", (5, 3), "float64")})

    def test_named_axis_and_int_meet_at_the_call(self) -> None:
        xs, ys = mg.input("xs", ("batch", 2)), np.ones((3, 2), "float32")
        f = mg.function([xs], mg.vmap(lambda x, y: x + y)(xs, ys))
        assert f(np.zeros((3, 2), "float32")).shape == (3, 2)
        with pytest.raises(mg.FeedError):
            f(np.zeros((4, 2), "float32"))


def test_compiled_loop_is_the_interpreted_one(rng: np.random.Generator) -> None:
    xs = rng.normal(size=(4, 5))
    found = mg.vmap(lambda x: mg.searchsorted(x, np.array([0.0, 1.0])))(np.sort(xs))
    assert MAPPED.name in _graph_names(found)
    expected = [np.searchsorted(np.sort(x), [0.0, 1.0]) for x in xs]
    np.testing.assert_array_equal(mg.function([], found)(), expected)
