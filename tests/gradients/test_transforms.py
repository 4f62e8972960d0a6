"""Substitution, graphs as operations, and what checkpoints keep."""

import pickle

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.ir.graph import freeze, topological
from magmagraph.text.reading import load
from magmagraph.text.writing import dump


class TestSubstitute:
    def test_nodes_in_a_form(self):
        x, y = mg.input("x", dtype="float64"), mg.input("y", dtype="float64")
        h = mg.sin(x)
        found = mg.substitute({"a": h * 2.0, "b": [y]}, {h: y})
        assert found["b"][0] is y
        assert_close(value(found["a"], {y: 3.0}), 6.0)

    def test_all_at_once(self):
        """A replacement may be made of what it replaces, and of what others replace."""
        x, y = mg.input("x", dtype="float64"), mg.input("y", dtype="float64")
        found = mg.substitute(x - y, {x: y, y: x})
        assert_close(value(found, {x: 1.0, y: 5.0}), 4.0)
        assert_close(value(mg.substitute(x * x, {x: x + 1.0}), {x: 2.0}), 9.0)

    def test_what_does_not_change_is_kept(self):
        x, w = mg.input("x"), mg.var("w", init=2.0)
        outer = mg.exp(w)
        found = mg.substitute(outer * x, {x: 3.0})
        assert found.inputs[0] is outer

    def test_gradient_of_the_result(self):
        w, v = mg.var("w", init=np.float64(2.0)), mg.var("v", init=np.float64(5.0))
        assert value(mg.grad(mg.substitute(w**3, {w: v}), v)) == 75.0

    def test_function(self):
        x, y = mg.input("x"), mg.input("y")
        total = mg.var("total", init=0.0)
        f = mg.function([x, y], {"p": x * y}, updates={total: total + x})
        z = mg.input("z")
        g = mg.substitute(f, {y: z + 1.0})
        assert [node.name for node in g.inputs] == ["x", "z"]
        assert g(2.0, 3.0)["p"] == 8.0
        assert total.value == 2.0
        h = mg.substitute(f, {y: z})
        assert [node.name for node in h.inputs] == ["x", "z"]
        assert f(2.0, 3.0)["p"] == 6.0

    def test_graph(self):
        x, y = mg.input("x", dtype="float64"), mg.input("y", dtype="float64")
        graph = freeze([x, y], [mg.sin(x) * y])
        sine = next(node for node in graph.nodes if node.op.name == "sin")
        new = mg.substitute(graph, {sine: graph.inputs[1]})
        assert [node.op.name for node in new.nodes] == ["input", "input", "multiply"]
        new.verify()

    @pytest.mark.parametrize(
        ("new", "error", "text"),
        [
            (lambda: mg.input("y", (3,)), mg.ShapeError, "'y' float32[3] by input"),
            (lambda: mg.input("y", (2,), "float64"), mg.DTypeError, "'y' float64[2] by input"),
            (lambda: np.ones(3), mg.ShapeError, "float32[3] by cast"),
        ],
    )
    def test_types_are_checked(self, new, error, text):
        x = mg.input("x", (2,))
        with pytest.raises(error) as caught:
            mg.substitute(x * 2.0, {x: new()})
        first, *_ = str(caught.value).splitlines()
        assert first.startswith(f"substitute: {text}")
        assert "takes the place of 'x' float32[2] by input" in first

    def test_wrong_keys_and_targets(self):
        x, y = mg.input("x"), mg.input("y")
        with pytest.raises(mg.GraphError, match="the target does not contain 'y'"):
            mg.substitute(x * 2.0, {y: x})
        with pytest.raises(mg.GraphError, match="a key is str, not a node"):
            mg.substitute(x * 2.0, {"x": y})
        with pytest.raises(mg.GraphError, match="the target holds str"):
            mg.substitute(["x"], {x: y})
        with pytest.raises(mg.GraphError, match="the replacements are list"):
            mg.substitute(x * 2.0, [x])


def squared_distance():
    a, b = mg.input("a", ("n",), "float64"), mg.input("b", ("n",), "float64")
    return mg.op_from_graph([a, b], mg.sum((a - b) ** 2), name="squared_distance")


@mg.op_from_graph(name="both")
def both(h, scale):
    """Two results, a captured variable."""
    return {"sum": mg.tanh(h) + W, "product": mg.tanh(h) * scale}


W = mg.var("W", init=np.float64(0.5))


class TestOpFromGraph:
    def test_is_one_node_with_its_name(self):
        f = squared_distance()
        x = mg.var("x", init=np.array([1.0, 2.0, 4.0]))
        node = f(x, np.zeros(3))
        assert repr(node) == "<subgraph 'squared_distance' float64[]>"
        assert f.__name__ == "squared_distance"
        assert "squared_distance" in mg.show(node).text()
        assert "squared_distance" in mg.show(node).dot()
        assert value(node) == 21.0
        assert node.eval() == 21.0

    def test_is_written_out_first(self):
        """The compiled graph is the one without the name: nothing is lost."""
        x, y = mg.input("x", (5,), "float64"), mg.input("y", (5,), "float64")
        named = mg.function([x, y], squared_distance()(x, y) * 2.0)
        plain = mg.function([x, y], mg.sum((x - y) ** 2) * 2.0)
        assert dump(named.graph) == dump(plain.graph)

    def test_gradients_go_through(self, rng):
        x, y = mg.var("x", init=rng.normal(size=3)), mg.var("y", init=rng.normal(size=3))
        f = squared_distance()
        gx, gy = values(mg.grad(f(x, y), [x, y]))
        assert_close(gx, 2 * (x.value - y.value))
        assert_close(gy, -gx)
        assert_close(value(mg.hessian(f(x, y), x)), 2 * np.eye(3))
        mg.check_gradients(lambda a, b: f(a, b) * f(a, a * b), (x.value, y.value))

    def test_several_results_and_captured_nodes(self, rng):
        h = mg.var("h", init=rng.normal(size=3))
        made = both(h, 2.0)
        assert made.keys() == {"sum", "product"}
        tanh = np.tanh(h.value)
        assert_close(values([made["sum"], made["product"]]), [tanh + 0.5, tanh * 2.0])
        compiled = mg.function([], made)()
        assert_close(compiled["product"], tanh * 2.0)
        gh, gw = values(mg.grad(mg.sum(made["sum"] * made["product"]), [h, W]))
        assert_close(gw, np.sum(tanh * 2.0))
        assert_close(gh, (1 - tanh**2) * (2 * (tanh + 0.5) + 2 * tanh))
        assert [n.op.name for n in mg.function([], made).graph.nodes].count("subgraph") == 0

    def test_captured_operands_that_depend_on_each_other(self):
        w = mg.var("w", init=np.float64(0.7))
        scale = w * 2.0
        block = mg.op_from_graph(lambda h: mg.sin(h * scale) * w)
        x = mg.var("x", init=np.float64(0.4))
        s = 2 * 0.4 * 0.7
        assert_close(value(mg.grad(block(x), w)), np.cos(s) * 2 * 0.4 * 0.7 + np.sin(s))

    def test_nested(self, rng):
        inner = mg.op_from_graph(lambda h: mg.sin(h) * h, name="inner")
        outer = mg.op_from_graph(lambda h: inner(inner(h)) + 1.0, name="outer")
        x = mg.var("x", init=np.float64(0.3))
        plain = mg.sin(mg.sin(x) * x) * (mg.sin(x) * x) + 1.0
        found = outer(x)
        for _ in range(3):
            assert_close(*values([found, plain]), scale=10.0)
            assert_close(found.eval(), value(plain), scale=10.0)
            found, plain = mg.grad(found, x), mg.grad(plain, x)

    def test_own_gradient(self):
        f = mg.op_from_graph(
            lambda a, b: a * b, name="product", gradient=lambda a, b, u: (u * 100.0, None)
        )
        a, b = mg.var("a", init=np.float64(2.0)), mg.var("b", init=np.float64(3.0))
        assert value(f(a, b)) == 6.0
        assert value(mg.grad(f(a, b), a)) == 100.0
        with pytest.raises(mg.GradientError):
            mg.grad(f(a, b), b)

    def test_mapped_keeps_its_name(self, rng):
        f = squared_distance()
        xs, y = rng.normal(size=(4, 3)), rng.normal(size=3)
        mapped = mg.vmap(f, (0, None))(xs, y)
        assert repr(mapped) == "<subgraph 'squared_distance' float64[4]>"
        assert_close(value(mapped), ((xs - y) ** 2).sum(axis=1), scale=10.0)
        made = mg.vmap(lambda h: both(h, h))(xs)
        assert_close(value(made["product"]), np.tanh(xs) * xs)

    def test_pickled_and_as_text(self, rng):
        x = mg.input("x", (3,), "float64")
        f = mg.function([x], squared_distance()(x, np.ones(3)))
        at = rng.normal(size=3)
        assert_close(pickle.loads(pickle.dumps(f))(at), f(at))
        graph = freeze([x], [squared_distance()(x, np.ones(3))])
        assert dump(load(dump(graph))) == dump(graph)

    def test_without_the_pass_that_writes_it_out(self, rng):
        x = mg.input("x", (3,), "float64")
        at = rng.normal(size=3)
        f = mg.function([x], squared_distance()(x, np.ones(3)), skip=("simplify",))
        assert_close(f(at), ((at - 1.0) ** 2).sum(), scale=10.0)

    def test_wrong_use(self):
        a, b = mg.input("a"), mg.input("b")
        with pytest.raises(mg.GraphError, match="do not depend on 'b'"):
            mg.op_from_graph([a, b], a * 2.0, name="double")
        with pytest.raises(mg.GraphError, match="an input of double is str"):
            mg.op_from_graph(["a"], a * 2.0, name="double")
        f = mg.op_from_graph([a], a * 2.0, name="double")
        with pytest.raises(mg.GraphError, match="double: 2 operands"):
            f(a, b)
        with pytest.raises(mg.DTypeError, match="double: the operand for 'a'"):
            f(mg.input("c", dtype="float64"))
        with pytest.raises(mg.GraphError, match="2 outputs and a gradient of its own"):
            mg.op_from_graph([a], [a * 2.0, a * 3.0], gradient=lambda x, u: u)(a)


def tower(weights, wrap):
    """Return a block of three products and curves, eight times."""

    def build(h):
        for i in range(0, len(weights), 3):

            def block(h, three=tuple(weights[i : i + 3])):
                for w in three:
                    h = mg.checkpoint_name(mg.tanh(mg.sin(h @ w) * 1.5), "curve")
                return h

            h = wrap(block)(h)
        return h

    return build


POLICIES = {
    "plain": lambda f: f,
    "everything": lambda f: mg.checkpoint(f, policy="everything"),
    "contractions": lambda f: mg.checkpoint(f, policy="contractions"),
    "curves": lambda f: mg.checkpoint(f, policy=["curve"]),
    "chosen": lambda f: mg.checkpoint(f, policy=lambda node: node.op.name == "tanh"),
    "nothing": mg.checkpoint,
}


class TestCheckpointPolicies:
    def test_values_and_memory(self, rng):
        start = [rng.normal(size=(32, 32)) / 6 for _ in range(24)]
        fed = rng.normal(size=(256, 32))
        arenas, results, products = {}, {}, {}
        for name, wrap in POLICIES.items():
            x = mg.var("x", shape=("batch", 32), dtype="float64")
            weights = [mg.var(f"w{i}", init=w) for i, w in enumerate(start)]
            f = mg.function([x], mg.grad(mg.sum(tower(weights, wrap)(x) ** 2), weights))
            results[name] = f(fed)
            arenas[name] = f.plan.arena
            products[name] = sum(step.kernel == "gemm" for step in f.plan.steps)
        for name in POLICIES:
            for left, right in zip(results[name], results["plain"], strict=True):
                assert_close(left, right, scale=100.0)
        assert arenas["everything"] == arenas["plain"]
        assert arenas["nothing"] < 0.6 * arenas["plain"]
        assert arenas["nothing"] < arenas["contractions"] < arenas["plain"]
        # Products are computed again where they are not kept, and only there.
        assert products["contractions"] == products["plain"] == products["everything"]
        assert products["nothing"] > products["contractions"]

    def test_what_is_kept_is_read(self):
        """The gradient of a kept exponential reads its value: nothing is computed again."""
        x = mg.var("x", init=np.float64(0.4))

        def block(h):
            return mg.sin(mg.checkpoint_name(mg.exp(mg.cos(h)), "power"))

        counts = {}
        for policy in ("nothing", ("power",)):
            loss = mg.checkpoint(block, policy=policy)(x)
            graph = freeze([], [loss, mg.grad(loss, x)])
            names = [node.op.name for node in graph.nodes]
            counts[policy] = (names.count("exp"), names.count("cos"))
        # The slopes of sine and cosine are a cosine and a sine: one more each, in either case.
        assert counts["nothing"][0] == 2
        assert counts[("power",)][0] == 1
        assert counts[("power",)][1] < counts["nothing"][1]

    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_to_the_third_derivative(self, name):
        x = mg.var("x", init=np.float64(0.4))

        def block(h):
            return mg.checkpoint_name(mg.exp(mg.sin(h)), "curve") * mg.tanh(h)

        found, plain = POLICIES[name](block)(x), block(x)
        for _ in range(4):
            assert_close(*values([found, plain]), scale=10.0)
            found, plain = mg.grad(found, x), mg.grad(plain, x)

    def test_mapped(self, rng):
        xs = rng.normal(size=(5, 3))
        W = rng.normal(size=(3, 3))
        for policy in ("nothing", "contractions"):
            block = mg.checkpoint(lambda h: mg.sum(mg.tanh(mg.sin(h @ W))), policy=policy)
            found = mg.vmap(lambda x, block=block: mg.grad(block(x), x))(xs)
            plain = mg.vmap(lambda x: mg.grad(mg.sum(mg.tanh(mg.sin(x @ W))), x))(xs)
            assert_close(*values([found, plain]), scale=10.0)

    def test_name_alone_changes_nothing(self):
        x = mg.input("x", (3,))
        assert dump(mg.function([x], mg.checkpoint_name(x * 2.0, "h") + 1.0).graph) == dump(
            mg.function([x], x * 2.0 + 1.0).graph
        )

    def test_unknown_policy(self):
        with pytest.raises(mg.GradientError) as caught:
            mg.checkpoint(lambda h: h, policy="products")
        assert str(caught.value) == (
            "checkpoint: policy='products'\n"
            "  expected: one of 'nothing', 'everything', 'contractions'; names given by "
            "mg.checkpoint_name; or a function of nodes"
        )
        with pytest.raises(mg.GradientError, match="the name is int"):
            mg.checkpoint_name(1.0, 3)


def test_bodies_take_part_in_substitution():
    """The body of an operation follows when its operands change their type."""
    x = mg.input("x", ("n",), "float64")
    node = mg.vmap(squared_distance(), (0, None))(mg.input("xs", ("m", "n"), "float64"), x)
    mg.check_gradients(lambda a: mg.sum(squared_distance()(a, a * a)), np.array([1.0, 2.0]))
    assert len(topological([node])) == 3
