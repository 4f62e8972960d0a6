"""Forward mode, Jacobians, Hessians, checkpoints and custom gradients."""

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.ir.graph import freeze, topological


def scalar(name: str, at: float) -> mg.Node:
    return mg.var(name, init=np.float64(at))


class TestJvp:
    def test_along_a_direction(self):
        x = mg.var("x", init=np.array([0.2, 0.5, -1.0]))
        tangent = np.array([1.0, -2.0, 0.5])
        assert_close(value(mg.jvp(mg.sin(x), x, tangent)), np.cos(x.value) * tangent)

    def test_several_targets_and_outputs(self):
        a, b = scalar("a", 2.0), scalar("b", 3.0)
        result = mg.jvp({"p": a * b, "q": a**2}, [a, b], [10.0, 100.0])
        assert values([result["p"], result["q"]]) == [10.0 * 3.0 + 100.0 * 2.0, 40.0]

    def test_agrees_with_vjp(self, rng):
        a = mg.var("a", init=rng.normal(size=(3, 4)))
        b = mg.var("b", init=rng.normal(size=4))
        output = mg.tanh(a * b) / (1.0 + mg.exp(b))
        cotangent, ta, tb = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.normal(size=4)
        forward = mg.sum(mg.jvp(output, [a, b], [ta, tb]) * cotangent)
        ga, gb = mg.vjp(output, [a, b], cotangent)
        assert_close(*values([forward, mg.sum(ga * ta) + mg.sum(gb * tb)]), scale=10.0)

    def test_with_a_named_dimension(self, rng):
        x = mg.var("x", shape=("batch", 3), dtype="float64")
        tangent = mg.var("t", shape=("batch", 3), dtype="float64")
        result = mg.jvp(mg.sum(x**2, axis=1), x, tangent)
        at, along = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
        assert_close(value(result, {x: at, tangent: along}), 2 * (at * along).sum(axis=1))

    def test_needs_no_placeholder(self):
        """The cotangents that it is derived with do not remain in the result."""
        x = scalar("x", 0.3)
        result = mg.jvp(mg.where(x > 0.0, mg.sin(x), x), x, 1.0)
        assert [n.name for n in topological([result]) if n.op.name == "input"] == []
        assert_close(value(result), np.cos(0.3))

    def test_is_differentiable(self):
        x = scalar("x", 0.3)
        assert_close(value(mg.grad(mg.jvp(mg.sin(x), x, 1.0), x)), -np.sin(0.3))

    def test_independent_output(self):
        x, y = scalar("x", 0.3), scalar("y", 0.4)
        assert value(mg.jvp(y * 1.0, x, 1.0, unused="zeros")) == 0.0
        output = y * 1.0
        with pytest.raises(mg.GradientError) as caught:
            mg.jvp(output, x, 1.0)
        assert str(caught.value) == (
            f"jvp: outputs depends on no target: float64[] by multiply, made at {output.line}\n"
            "  expected: outputs that are computed from a target\n"
            "  try: leave the output out, or unused='zeros' for zeros"
        )


class TestJacobian:
    def test_by_rows(self, rng):
        M = rng.normal(size=(2, 3))
        x = mg.var("x", init=rng.normal(size=3))
        result = mg.jacobian(mg.sum(x * M, axis=1), x)
        assert result.shape == (2, 3)
        assert_close(value(result), M)

    def test_by_columns(self, rng):
        """Fewer targets than outputs: forward mode."""
        x = mg.var("x", init=rng.normal(size=2))
        c = rng.normal(size=(3, 4, 2))
        result = mg.jacobian(mg.sum(mg.sin(x) * c, axis=2), x)
        assert result.shape == (3, 4, 2)
        assert_close(value(result), c * np.cos(x.value))

    def test_of_and_by_structures(self):
        a, b = scalar("a", 2.0), mg.var("b", init=np.array([1.0, 3.0]))
        result = mg.jacobian({"p": a * b, "q": mg.sum(b**2)}, [a, b], unused="zeros")
        assert_close(value(result["p"][0]), [1.0, 3.0])
        assert_close(value(result["p"][1]), 2.0 * np.eye(2))
        assert value(result["q"][0]) == 0.0
        assert_close(value(result["q"][1]), [2.0, 6.0])

    def test_symbolic_output(self, rng):
        x = mg.var("x", shape=("batch",), dtype="float64")
        w = mg.var("w", init=np.array([0.5, 1.5]))
        result = mg.jacobian(mg.exp(x) * mg.sum(w**2), w)
        fed = rng.normal(size=4)
        assert_close(value(result, {x: fed}), np.exp(fed)[:, None] * 2 * w.value)

    def test_symbolic_both_ways(self, rng):
        x = mg.var("x", shape=("batch",), dtype="float64")
        at = rng.normal(size=4)
        for mode in ("reverse", "forward"):
            result = mg.jacobian(mg.sin(x) * mg.sum(x), x, mode=mode)
            assert [str(extent) for extent in result.shape] == ["batch", "batch"]
            expected = np.diag(np.cos(at)) * at.sum() + np.sin(at)[:, None]
            assert_close(value(result, {x: at}), expected, scale=10.0)

    @pytest.mark.parametrize("mode", ["reverse", "forward"])
    def test_the_graph_does_not_grow_with_the_rows(self, mode):
        counts = []
        for extent in (3, 300):
            x = mg.var("x", init=np.zeros(extent))
            counts.append(len(topological([mg.jacobian(mg.sin(x) * x, x, mode=mode)])))
        assert counts[0] == counts[1]

    def test_modes_agree(self, rng):
        x, w = mg.var("x", init=rng.normal(size=(2, 3))), mg.var("w", init=rng.normal(size=3))
        outputs = {"p": mg.tanh(x @ mg.outer(w, w)), "q": mg.sum(x * w, axis=1)}
        found = [mg.jacobian(outputs, [x, w], mode=mode) for mode in ("reverse", "forward")]
        for name in outputs:
            for left, right in zip(found[0][name], found[1][name], strict=True):
                assert_close(*values([left, right]), scale=10.0)

    def test_without_elements(self):
        x = mg.var("x", init=np.zeros((0, 2)))
        y = mg.var("y", init=np.zeros(3))
        blocks = mg.jacobian(mg.sum(x) * y, [x, y])
        assert value(blocks[0]).shape == (3, 0, 2)
        assert_close(value(blocks[1]), np.zeros((3, 3)))

    def test_unknown_mode(self):
        x = mg.var("x", init=1.0)
        with pytest.raises(mg.GradientError) as caught:
            mg.jacobian(x * x, x, mode="rows")
        assert str(caught.value) == (
            "jacobian: mode='rows'\n  expected: one of auto, reverse, forward"
        )


class TestHessian:
    def test_rosenbrock(self):
        x = mg.var("x", init=np.array([-1.2, 1.0]))
        first, second = mg.take(x, 0), mg.take(x, 1)
        loss = (1.0 - first) ** 2 + 100.0 * (second - first**2) ** 2
        a, b = x.value
        expected = [[2 - 400 * (b - 3 * a**2), -400 * a], [-400 * a, 200.0]]
        assert_close(value(mg.hessian(loss, x)), expected)

    def test_blocks(self):
        a, b = scalar("a", 2.0), mg.var("b", init=np.array([1.0, 3.0]))
        blocks = mg.hessian(a**2 * mg.sum(b), {"a": a, "b": b})
        assert_close(value(blocks["a"]["a"]), 8.0)
        assert_close(value(blocks["a"]["b"]), [4.0, 4.0])
        assert_close(value(blocks["b"]["a"]), [4.0, 4.0])
        assert_close(value(blocks["b"]["b"]), np.zeros((2, 2)))

    def test_of_a_linear_loss_is_zero(self):
        x = mg.var("x", init=np.array([1.0, 2.0]))
        assert_close(value(mg.hessian(mg.sum(x), x)), np.zeros((2, 2)))


class TestHvp:
    def test_is_the_product_with_the_hessian(self, rng):
        a, b = mg.var("a", init=rng.normal(size=3)), mg.var("b", init=rng.normal(size=(2, 2)))
        loss = mg.sum(mg.sin(a)) * mg.sum(mg.exp(b) @ b) + mg.sum(a**3)
        u, v = rng.normal(size=3), rng.normal(size=(2, 2))
        found = mg.hvp(loss, {"a": a, "b": b}, {"a": u, "b": v})
        blocks = mg.hessian(loss, [a, b])
        expected = [mg.tensordot(row[0], u, 1) + mg.tensordot(row[1], v, 2) for row in blocks]
        for left, right in zip([found["a"], found["b"]], expected, strict=True):
            assert_close(*values([left, right]), scale=100.0)

    def test_named_dimension_and_scalar_vector(self, rng):
        x = mg.var("x", shape=("n",), dtype="float64")
        at = rng.normal(size=5)
        assert_close(value(mg.hvp(mg.sum(x**3), x, 2.0), {x: at}), 12.0 * at, scale=10.0)

    def test_of_a_linear_loss_is_zero(self):
        x = mg.var("x", init=np.array([1.0, 2.0]))
        assert_close(value(mg.hvp(mg.sum(x), x, 1.0)), np.zeros(2))

    def test_wrong_vector(self):
        x = mg.var("x", init=np.array([1.0, 2.0]))
        with pytest.raises(mg.ShapeError, match=r"vectors has shape \(3,\), its target \(2,\)"):
            mg.hvp(mg.sum(x**2), x, np.ones(3))


class TestCheckpoint:
    def test_same_values_and_gradients(self, rng):
        x, w = mg.var("x", init=rng.normal(size=3)), mg.var("w", init=rng.normal(size=3))

        def block(h):
            return mg.tanh(mg.sin(h) * w)

        plain = mg.sum(block(block(x)) ** 2)
        wrapped = mg.checkpoint(block)
        saving = mg.sum(wrapped(wrapped(x)) ** 2)
        expected, found = (values([loss, *mg.grad(loss, [x, w])]) for loss in (plain, saving))
        for left, right in zip(expected, found, strict=True):
            assert_close(right, left)

    def test_computes_the_body_again(self):
        x = scalar("x", 0.4)
        sines = []
        for function in (lambda h: mg.sin(mg.sin(h)), mg.checkpoint(lambda h: mg.sin(mg.sin(h)))):
            loss = function(x)
            graph = freeze([], [loss, mg.grad(loss, x)])
            sines.append(sum(node.op.name == "sin" for node in graph.nodes))
        assert sines == [2, 3]  # the outer one's value is not read by its derivative

    def test_captured_nodes_that_depend_on_each_other(self):
        """A weight that is read directly and through a captured node is counted once each."""
        x, w = scalar("x", 0.4), scalar("w", 0.7)
        scale = w * 2.0
        loss = mg.checkpoint(lambda h: mg.sin(h * scale) * w)(x)
        gx, gw = mg.grad(loss, [x, w])
        s = 2 * 0.4 * 0.7
        assert_close(value(gx), np.cos(s) * 2 * 0.7 * 0.7)
        assert_close(value(gw), np.cos(s) * 2 * 0.4 * 0.7 + np.sin(s))

    def test_several_arguments_and_results(self):
        a, b = scalar("a", 0.4), scalar("b", 0.7)
        first, second = mg.checkpoint(lambda p, q: (p * q, mg.exp(p)))(a, b)
        assert_close(values(mg.grad(first + second, [a, b])), [0.7 + np.exp(0.4), 0.4])

    def test_of_a_node(self):
        x = scalar("x", 0.4)
        h = mg.exp(x)
        loss = mg.checkpoint(mg.sin(mg.cos(h)), [h])
        expected = -np.cos(np.cos(np.exp(0.4))) * np.sin(np.exp(0.4)) * np.exp(0.4)
        assert_close(value(mg.grad(loss, x)), expected)
        assert_close(value(mg.grad(mg.checkpoint(mg.sin(mg.cos(mg.exp(x)))), x)), expected)

    def test_of_a_list_of_nodes_is_refused(self):
        x = scalar("x", 0.4)
        with pytest.raises(mg.GradientError, match="a function of nodes, or one node"):
            mg.checkpoint([mg.sin(x), mg.cos(x)], [x])

    def test_nested_and_again(self):
        x = scalar("x", 0.4)
        inner = mg.checkpoint(lambda h: mg.sin(h) * h)
        loss = mg.checkpoint(lambda h: inner(inner(h)))(x)
        plain = mg.sin(mg.sin(x) * x) * (mg.sin(x) * x)
        for _ in range(3):
            assert_close(*values([loss, plain]), scale=10.0)
            loss, plain = mg.grad(loss, x), mg.grad(plain, x)

    def test_saves_memory_once_compiled(self, rng):
        """Eight blocks of three products keep eight values, not twenty-four."""
        start = [rng.normal(size=(32, 32)) / 6 for _ in range(24)]
        fed = rng.normal(size=(256, 32))
        arenas, results = [], []
        for wrap in (lambda f: f, mg.checkpoint):
            x = mg.var("x", shape=("batch", 32), dtype="float64")
            weights = [mg.var(f"w{i}", init=w) for i, w in enumerate(start)]
            h = x
            for i in range(0, 24, 3):

                def block(h, three=tuple(weights[i : i + 3])):
                    for w in three:
                        h = mg.tanh(h @ w)
                    return h

                h = wrap(block)(h)
            f = mg.function([x], mg.grad(mg.sum(h**2), weights))
            results.append(f(fed))
            arenas.append(f.plan.arena)
        for left, right in zip(*results, strict=True):
            assert_close(left, right, scale=100.0)
        assert arenas[1] < 0.6 * arenas[0]

    def test_draws_the_same_random_numbers(self):
        x = mg.var("x", init=np.linspace(0.1, 1.0, 50))
        noise = []

        def block(h):
            noise.append(mg.random.normal((50,)))
            return mg.sin(h * mg.cast(noise[0], "float64"))

        loss = mg.sum(mg.checkpoint(block)(x))
        slope, drawn = mg.function([], [mg.grad(loss, x), noise[0]])()
        assert_close(slope, np.cos(x.value * drawn) * drawn)

    def test_needs_something_to_recompute(self):
        x, y = scalar("x", 0.4), scalar("y", 0.4)
        with pytest.raises(mg.GradientError, match="depends on none of the inputs"):
            mg.checkpoint(mg.sin(x), [y])


class TestCustomGradient:
    def test_replaces_the_rule(self):
        @mg.custom_gradient
        def straight(x):
            """Round, and pass the gradient on."""
            return mg.floor(x), lambda cotangent: cotangent

        x = mg.var("x", init=np.array([0.4, 1.7]))
        assert straight.__doc__ == "Round, and pass the gradient on."
        assert_close(value(straight(x)), [0.0, 1.0])
        assert_close(value(mg.grad(mg.sum(straight(x) * 3.0), x)), [3.0, 3.0])

    def test_several_arguments_to_any_order(self):
        @mg.custom_gradient
        def product(a, b):
            return a * b, lambda u: (u * b, u * a)

        a, b = scalar("a", 2.0), scalar("b", 5.0)
        loss = product(a, b) ** 2
        assert_close(values(mg.grad(loss, [a, b])), [2 * 2.0 * 25.0, 2 * 5.0 * 4.0])
        assert_close(value(mg.hessian(loss, [a, b])[0][1]), 4 * 2.0 * 5.0)

    def test_none_and_scalars(self):
        @mg.custom_gradient
        def pick(a, b):
            return a + b, lambda u: (None, 7.0)

        a, b = mg.var("a", init=np.ones(2)), mg.var("b", init=np.ones(2))
        loss = mg.sum(pick(a, b))
        assert_close(value(mg.grad(loss, b)), [7.0, 7.0])
        with pytest.raises(mg.GradientError, match="no gradient reaches wrt"):
            mg.grad(loss, a)

    def test_in_a_checkpoint(self):
        """The node is copied onto other operands; its rule follows."""

        @mg.custom_gradient
        def cube(x):
            squared = x * x
            return squared * x, lambda u: u * 3.0 * squared

        x = scalar("x", 1.5)
        loss = mg.checkpoint(lambda h: cube(mg.sin(h)))(x)
        assert_close(value(mg.grad(loss, x)), 3 * np.sin(1.5) ** 2 * np.cos(1.5))

    @pytest.mark.parametrize(
        ("rule", "text"),
        [
            (
                lambda u: (u, u),
                "custom_gradient: the rule of f returned 2 gradients for 1 arguments\n"
                "  expected: one per argument, None where no gradient flows",
            ),
            (
                lambda u: np.ones(3),
                "custom_gradient: the rule of f returned shape (3,) for argument 0, "
                "which has (2,)\n  expected: the argument's shape",
            ),
        ],
    )
    def test_wrong_rules(self, rule, text):
        def f(x):
            return x * 2.0, rule

        x = mg.var("x", init=np.ones(2))
        with pytest.raises(mg.GradientError) as caught:
            mg.grad(mg.sum(mg.custom_gradient(f)(x)), x)
        assert str(caught.value) == text

    def test_what_is_no_function(self):
        with pytest.raises(mg.GradientError) as caught:
            mg.custom_gradient(3)
        assert str(caught.value) == (
            "custom_gradient is given int\n"
            "  expected: a function that returns a pair: the value, a node, and its rule\n"
            "  try: @mg.custom_gradient above def f(x): return value, lambda cotangent: ..."
        )

    def test_function_without_a_rule(self):
        def f(x):
            return x * 2.0

        with pytest.raises(mg.GradientError) as caught:
            mg.custom_gradient(f)(mg.var("x", init=1.0))
        assert str(caught.value) == (
            "custom_gradient: f returned Node\n"
            "  expected: a pair: the value, a node, and its rule, a function of the cotangent\n"
            "  try: return value, lambda cotangent: (gradient, ...)"
        )
