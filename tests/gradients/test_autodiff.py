"""Reverse mode: values against closed forms, structure, cost, and the exact text of errors."""

import sys

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.ir.graph import topological


def scalar(name: str, at: float) -> mg.Node:
    return mg.var(name, init=np.float64(at))


class TestGrad:
    def test_polynomial(self):
        x = mg.var("x", init=np.array([1.0, -2.0, 3.0]))
        assert_close(value(mg.grad(mg.sum(x**3 - 2.0 * x), x)), 3 * x.value**2 - 2)

    def test_has_shape_and_dtype_of_the_target(self):
        W = mg.var("W", init=np.ones((3, 2), np.float32))
        x = mg.var("x", shape=("batch", 3), dtype="float64")
        gradient = mg.grad(mg.sum(mg.matmul(x, mg.cast(W, "float64"))), W)
        assert (gradient.dtype, gradient.shape) == (np.float32, (3, 2))

    @pytest.mark.parametrize("form", ["node", "list", "tuple", "dict", "nested"])
    def test_returns_the_form_of_the_targets(self, form):
        a, b = scalar("a", 2.0), scalar("b", 5.0)
        loss = a * b
        wrt = {
            "node": a,
            "list": [a, b],
            "tuple": (a, b),
            "dict": {"a": a, "b": b},
            "nested": {"both": [a, b], "one": (b,)},
        }[form]
        result = mg.grad(loss, wrt)
        if form == "node":
            assert value(result) == 5.0
        elif form == "nested":
            assert [type(result["both"]), type(result["one"])] == [list, tuple]
            assert values([*result["both"], *result["one"]]) == [5.0, 2.0, 2.0]
        else:
            assert type(result) is type(wrt)
            members = result.values() if form == "dict" else result
            assert values(list(members)) == [5.0, 2.0]

    def test_of_no_targets_is_empty(self):
        assert mg.grad(scalar("a", 1.0) * 2.0, []) == []

    def test_of_itself_is_one(self):
        a = scalar("a", 2.0)
        assert value(mg.grad(a, a)) == 1.0

    def test_intermediate_target_is_free(self):
        x = scalar("x", 0.5)
        y = mg.sin(x)
        assert_close(value(mg.grad(y * y * x, y)), 2 * np.sin(0.5) * 0.5)

    def test_target_under_a_target_gets_every_path(self):
        x = scalar("x", 0.5)
        y = mg.sin(x)
        outer, inner = mg.grad(y * x, [y, x])
        assert_close(value(outer), 0.5)
        assert_close(value(inner), np.cos(0.5) * 0.5 + np.sin(0.5))

    def test_adds_what_several_readers_give(self):
        x = scalar("x", 0.3)
        loss = x * 1.0
        for k in range(2, 8):
            loss = loss + x * float(k)
        assert_close(value(mg.grad(loss, x)), float(sum(range(1, 8))))

    @pytest.mark.parametrize(
        ("left", "right"),
        [((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3), ()), ((2, 1), (1, 3)), ((1,), (2, 2))],
    )
    def test_sums_over_broadcast_axes(self, left, right, rng):
        a = mg.var("a", init=rng.normal(size=left))
        b = mg.var("b", init=rng.normal(size=right))
        first, second = mg.grad(mg.sum(a * b), [a, b])
        full = np.broadcast_shapes(left, right)

        def summed(array, shape):
            array = np.broadcast_to(array, full)
            array = array.sum(axis=tuple(range(len(full) - len(shape))))
            ones = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
            return array.sum(axis=ones, keepdims=True)

        assert_close(value(first), summed(b.value, left))
        assert_close(value(second), summed(a.value, right))

    def test_through_a_named_dimension(self, rng):
        x = mg.var("x", shape=("batch", 3), dtype="float64")
        b = mg.var("b", init=rng.normal(size=3))
        gradient = mg.grad(mg.mean(x * b), b)
        fed = rng.normal(size=(5, 3))
        assert gradient.shape == (3,)
        assert_close(value(gradient, {x: fed}), fed.sum(axis=0) / fed.size)

    def test_none_flows_through_integers(self):
        x = mg.var("x", init=np.array([1.5, 2.5]))
        whole = mg.cast(x, "int32")
        assert_close(value(mg.grad(mg.sum(x * mg.cast(whole, "float64")), x)), [1.0, 2.0])

    def test_stop_gradient(self):
        x = scalar("x", 3.0)
        assert value(mg.grad(x * mg.stop_gradient(x), x)) == 3.0

    def test_unused_zeros(self):
        x = mg.var("x", shape=("batch",))
        a, b = mg.var("a", init=1.0), mg.var("b", init=np.ones((2, 2), np.float32))
        result = mg.grad(a * 2.0, {"a": a, "b": b, "x": x}, unused="zeros")
        assert result["x"].shape == x.shape
        one, zeros, symbolic = values(list(result.values()), {x: np.ones(3, np.float32)})
        assert one == 2.0
        assert np.array_equal(zeros, np.zeros((2, 2)))
        assert np.array_equal(symbolic, np.zeros(3))

    def test_leaves_markers(self):
        a = mg.var("a", init=2.0)
        gradient = mg.grad(a * a, a)
        roles = [n.attrs["role"] for n in topological([gradient]) if n.op.name == "marker"]
        assert sorted(roles) == ["gradient", "seed"]
        assert gradient.attrs["role"] == "gradient"
        assert gradient.name == "gradient(a)"

    def test_value_and_grad(self):
        x = scalar("x", 3.0)
        loss, slope = mg.value_and_grad(x**2, x)
        assert values([loss, slope]) == [9.0, 6.0]


class TestHigherOrder:
    def test_derivatives_of_sin(self):
        x = scalar("x", 0.7)
        node, found = mg.sin(x), []
        for _ in range(6):
            node = mg.grad(node, x)
            found.append(float(value(node)))
        s, c = np.sin(0.7), np.cos(0.7)
        assert_close(found, [c, -s, -c, s, c, -s])

    def test_third_derivative_through_a_product(self):
        x = scalar("x", 1.3)
        node = mg.exp(x) * x**3
        for _ in range(3):
            node = mg.grad(node, x)
        assert_close(value(node), np.exp(1.3) * (1.3**3 + 9 * 1.3**2 + 18 * 1.3 + 6), scale=50.0)

    def test_mixed_partials_agree(self, rng):
        a = mg.var("a", init=rng.normal(size=(3, 2)))
        b = mg.var("b", init=rng.normal(size=(2, 3)))
        loss = mg.sum(mg.tanh(mg.matmul(a, b)) ** 2)
        along_a, along_b = rng.normal(size=(3, 2)), rng.normal(size=(2, 3))
        ga, gb = mg.grad(loss, [a, b])
        ab = mg.sum(mg.grad(mg.sum(ga * along_a), b) * along_b)
        ba = mg.sum(mg.grad(mg.sum(gb * along_b), a) * along_a)
        assert_close(*values([ab, ba]), scale=20.0)


class TestVjp:
    def test_weights_the_rows(self):
        x = mg.var("x", init=np.array([1.0, 2.0]))
        assert_close(value(mg.vjp(x**2, x, np.array([1.0, 10.0]))), [2.0, 40.0])

    def test_several_outputs(self):
        x = scalar("x", 0.4)
        result = mg.vjp({"s": mg.sin(x), "c": mg.cos(x)}, x, {"s": 2.0, "c": 3.0})
        assert_close(value(result), 2 * np.cos(0.4) - 3 * np.sin(0.4))

    def test_a_scalar_stands_for_every_element(self):
        x = mg.var("x", init=np.array([1.0, 2.0]))
        assert_close(value(mg.vjp(x**2, x, 1.0)), [2.0, 4.0])


class TestScale:
    @pytest.mark.parametrize("length", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
    def test_long_chain(self, length, monkeypatch):
        """Each node is visited a fixed number of times, and nothing recurses."""
        x = scalar("x", 0.5)
        node, expected = x, 0.5
        slope = 1.0
        for _ in range(length // 2):
            node = mg.sin(node) * 1.0001
            slope *= np.cos(expected) * 1.0001
            expected = np.sin(expected) * 1.0001
        calls = {"sin": 0, "multiply": 0}

        def counting(name, rule):
            def counted(n, cotangent):
                calls[name] += 1
                return rule(n, cotangent)

            return counted

        for record in (node.op, node.inputs[0].op):
            counted = counting(record.name, record.gradient)
            monkeypatch.setitem(record.__dict__, "gradient", counted)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(min(limit, 400))
        try:
            gradient = mg.grad(node, x)
        finally:
            sys.setrecursionlimit(limit)
        assert calls == {"sin": length // 2, "multiply": length // 2}
        nodes = topological([gradient])
        assert len(nodes) < 8 * length
        assert_close(value(gradient), slope)

    def test_wide_fan_out_is_summed_as_a_tree(self):
        x = scalar("x", 1.0)
        loss = mg.constant(np.float64(0.0))
        for k in range(1000):
            loss = loss + x * float(k)
        gradient = mg.grad(loss, x)
        depth: dict[mg.Node, int] = {}
        for node in topological([gradient]):
            depth[node] = 1 + max((depth[i] for i in node.inputs), default=0)
            if node.op.name == "add":
                last = depth[node] - max(depth[i] for i in node.inputs)
                assert last == 1
        sums = {n for n in topological([gradient]) if n.op.name == "add"}
        assert len(sums) == 999
        levels: dict[mg.Node, int] = {}
        for node in topological([gradient]):
            below = max((levels[i] for i in node.inputs), default=0)
            levels[node] = below + (node in sums)
        assert max(levels.values()) == 10  # the ceiling of log2(1000)
        assert value(gradient) == sum(range(1000))

    def test_only_the_path_is_walked(self):
        """What cannot lead to the target gets no cotangent."""
        x, other = scalar("x", 1.0), scalar("other", 2.0)
        side = other
        for _ in range(50):
            side = mg.sin(side)
        gradient = mg.grad(x * side, x)
        assert not any(n.op.name == "cos" for n in topological([gradient]))


class TestErrors:
    def check(self, build, *lines):
        with pytest.raises(mg.GradientError) as caught:
            build()
        assert str(caught.value) == "\n  ".join(lines)

    def test_loss_is_no_scalar(self):
        x = mg.var("x", init=np.ones(3, np.float32))
        loss = x * 2.0
        self.check(
            lambda: mg.grad(loss, x),
            f"grad: the loss is not a scalar: float32[3] by multiply, made at {loss.line}",
            "expected: shape ()",
            "try: mg.sum(loss) or mg.mean(loss); or mg.vjp, mg.jacobian for every element",
        )

    def test_loss_is_an_integer(self):
        n = mg.var("n", init=3)
        self.check(
            lambda: mg.grad(n, n),
            f"grad: the loss is 'n' int32[] by variable, made at {n.line}",
            "expected: a float dtype",
            "try: mg.cast(loss, 'float32')",
        )

    def test_loss_is_no_node(self):
        self.check(
            lambda: mg.grad(2.0, []),
            "grad: the loss is of type float, not a node",
            "expected: a scalar node",
        )

    def test_target_is_an_integer(self):
        n, x = mg.var("n", init=3), mg.var("x", init=1.0)
        self.check(
            lambda: mg.grad(x * n, [x, n]),
            f"grad: the target wrt[1] is 'n' int32[] by variable, made at {n.line}",
            "expected: a float dtype: integers and booleans do not vary continuously",
        )

    def test_target_is_no_node(self):
        x = mg.var("x", init=1.0)
        self.check(
            lambda: mg.grad(x * x, {"x": x, "k": 3}), "grad: wrt['k'] is of type int, not a node"
        )

    def test_disconnected(self):
        a, b = mg.var("a", init=1.0), mg.var("b", init=1.0)
        self.check(
            lambda: mg.grad(a * a, {"a": a, "b": b}),
            f"grad: the loss does not depend on wrt['b'], 'b' float32[] by variable, "
            f"made at {b.line}",
            "expected: targets that the loss is computed from",
            "try: leave the target out, or unused='zeros' for a gradient of zeros",
        )

    def test_blocked(self):
        a = mg.var("a", init=1.0)
        self.check(
            lambda: mg.grad(mg.stop_gradient(a) * 2.0, a),
            f"grad: no gradient reaches wrt, 'a' float32[] by variable, made at {a.line}; "
            "it is read only through stop_gradient (taken as a constant by definition)",
            "expected: a path of operations that have a gradient",
            "try: leave the target out, or unused='zeros' for a gradient of zeros",
        )

    def test_unused_is_a_choice_of_two(self):
        a = mg.var("a", init=1.0)
        self.check(
            lambda: mg.grad(a * a, a, unused="ignore"),
            "grad: unused='ignore'",
            "expected: 'raise' or 'zeros'",
        )

    def test_another_number_of_cotangents(self):
        a = mg.var("a", init=1.0)
        self.check(
            lambda: mg.vjp([a * a, a], a, [1.0]),
            "vjp: 1 cotangents for 2 outputs",
            "expected: one cotangent per output, in the same form",
        )

    def test_another_shape_of_cotangent(self):
        a = mg.var("a", init=np.ones(3, np.float32))
        with pytest.raises(mg.ShapeError) as caught:
            mg.vjp(a * a, a, np.ones(2, np.float32))
        assert str(caught.value) == (
            "vjp: cotangents has shape (2,), its output (3,)\n  expected: equal shapes, or a scalar"
        )
