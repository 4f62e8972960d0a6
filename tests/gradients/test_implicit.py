"""Fixed points and roots: values, derivatives of every order, and iterations that fail."""

import pickle

import numpy as np
import pytest
from interpreted import value, values

import magmagraph as mg
from magmagraph.ir import interpret
from magmagraph.ir.graph import freeze, topological
from magmagraph.text.reading import load
from magmagraph.text.writing import dump


def contraction(rng, n=4):
    """Return a matrix of spectral norm 1/2."""
    M = rng.normal(size=(n, n))
    return M / (2.0 * np.linalg.norm(M, 2))


def near(actual, expected, factor=1.0):
    """Compare as well as an iteration promises: its last change is below eps ** (3/4).

    The error is at most q / (1 - q) times that for a map that shrinks distances by q, here below
    0.9; `factor` is the size of what is made of it.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    allowed = 10.0 * factor * np.finfo(actual.dtype).eps ** 0.75
    assert np.max(np.abs(actual - expected), initial=0.0) <= allowed, f"{actual} is not {expected}"


class TestFixedPoint:
    def test_linear_map_against_its_solution(self, rng):
        M, b = contraction(rng), rng.normal(size=4)
        A, c = mg.var("A", init=M), mg.var("c", init=b)
        found = mg.fixed_point(lambda x: A @ x + c, np.zeros(4))
        exact = np.linalg.solve(np.eye(4) - M, b)
        x, steps = mg.function([], list(found))()
        near(x, exact)
        assert 5 < steps < 100
        # d loss / d c = (I - A)^-T u, d loss / d A = that times x.
        u = rng.normal(size=4)
        gc, gA = values(mg.grad(mg.sum(found.value * u), [c, A]))
        w = np.linalg.solve((np.eye(4) - M).T, u)
        near(gc, w, 10.0)
        near(gA, np.outer(w, exact), 10.0)

    def test_derivatives_against_differences(self, rng):
        M, b = contraction(rng, 3), rng.normal(size=3)

        def loss(A, c):
            return mg.sum(mg.fixed_point(lambda x: mg.tanh(A @ x) + c, np.zeros(3)).value ** 2)

        mg.check_gradients(loss, (M, b))

        def slope(A, c):
            ga, gc = mg.grad(loss(A, c), [A, c])
            return mg.sum(ga * 0.7) + mg.sum(gc * np.array([0.3, -1.0, 0.5]))

        mg.check_gradients(slope, (M, b))

    def test_forward_mode_and_hessian(self):
        a = mg.var("a", init=np.float64(2.0))
        root = mg.fixed_point(lambda x: (x + a / x) / 2.0, np.float64(1.0)).value
        near(value(mg.jvp(root, a, 1.0)), 0.5 / np.sqrt(2.0))
        near(value(mg.hessian(root, a)), -0.25 * 2.0**-1.5)

    def test_several_parts(self, rng):
        k = mg.var("k", init=np.float64(0.3))
        start = {"p": np.zeros(2), "q": [np.float64(0.0)]}

        def step(state):
            q = state["q"][0]
            return {"p": mg.cos(state["p"]) * k + q, "q": [mg.sum(state["p"]) * 0.1]}

        found = mg.fixed_point(step, start)
        assert found.value.keys() == {"p", "q"}
        p, q, slope = values(
            [found.value["p"], found.value["q"][0], mg.grad(mg.sum(found.value["p"]), k)]
        )
        near(p, np.cos(p) * 0.3 + q)
        # By symmetry both elements are one number: p = k cos p + 0.2 p.
        exact = 2 * np.cos(p[0]) / (0.8 + 0.3 * np.sin(p[0]))
        near(slope, exact, 10.0)

    def test_no_gradient_to_the_start(self):
        x0, a = mg.var("x0", init=np.float64(1.0)), mg.var("a", init=np.float64(2.0))
        found = mg.fixed_point(lambda x: (x + a / x) / 2.0, x0).value
        with pytest.raises(mg.GradientError, match="no gradient reaches"):
            mg.grad(found, x0)
        assert value(mg.grad(found, x0, unused="zeros")) == 0.0

    def test_captured_nodes_are_computed_once(self):
        """What does not depend on the point stays outside of the body."""
        a = mg.var("a", init=np.float64(0.5))
        outer = mg.exp(a)
        found = mg.fixed_point(lambda x: mg.cos(x) * outer * 0.2, np.float64(0.0))
        (node,) = [n for n in topological([found.value]) if n.op.name == "fixed_point"]
        assert node.inputs[1:] == (outer,)
        assert "exp" not in [n.op.name for n in node.attrs["body"].nodes]

    def test_named_dimension(self, rng):
        c = mg.input("c", ("n",), dtype="float64")
        start = mg.broadcast_to(np.zeros(()), c.shape)
        found = mg.fixed_point(lambda x: 0.5 * mg.sin(x) + c, start)
        at = rng.normal(size=5)
        (x, slope) = mg.function([c], [found.value, mg.grad(mg.sum(found.value), c)])(at)
        near(x, 0.5 * np.sin(x) + at)
        near(slope, 1.0 / (1.0 - 0.5 * np.cos(x)), 10.0)

    def test_random_nodes_are_drawn_once(self):
        noise = []

        def step(x):
            noise.append(mg.random.normal((3,), dtype="float64"))
            return 0.5 * x + noise[0]

        found = mg.fixed_point(step, np.zeros(3))
        x, drawn = mg.function([], [found.value, noise[0]])()
        near(x, 2.0 * drawn)

    def test_mapped_by_vmap(self):
        starts = np.array([1.0, 4.0, 9.0])
        roots = mg.vmap(lambda a: mg.fixed_point(lambda x: (x + a / x) / 2.0, np.float64(1.0)))
        found = roots(starts)
        x, steps = values(list(found))
        near(x, [1.0, 2.0, 3.0])
        assert steps[0] < steps[1] <= steps[2]

    def test_pickles_and_checks_itself(self):
        a = mg.var("a", init=np.float64(3.0))
        found = mg.fixed_point(lambda x: (x + a / x) / 2.0, np.float64(1.0))
        f = mg.function([], [found.value, mg.grad(found.value, a)])
        again = pickle.loads(pickle.dumps(f))
        np.testing.assert_array_equal(f(), again())

    def test_float32_tolerance(self):
        a = mg.var("a", init=2.0)
        found = mg.fixed_point(lambda x: (x + a / x) / 2.0, 1.0)
        near(found.value.eval(), np.float32(np.sqrt(2.0)))


    def test_text_archive_and_check(self, tmp_path, rng):
        c = mg.input("c", ("n",), "float64")
        found = mg.fixed_point(lambda x: 0.5 * mg.sin(x) + c, c)
        outputs = [found.value, found.steps, mg.grad(mg.sum(found.value), c)]
        text = dump(freeze([c], outputs))
        assert dump(load(text)) == text
        f = mg.function([c], outputs)
        at = rng.normal(size=4)
        expected = f(at)
        assert f.check(at).ok
        f.save(tmp_path / "fixed.mgz")
        for left, right in zip(mg.load(tmp_path / "fixed.mgz")(at), expected, strict=True):
            np.testing.assert_array_equal(left, right)

    def test_the_body_is_compiled(self, rng):
        M, b = contraction(rng, 20), rng.normal(size=20)
        found = mg.fixed_point(lambda x: mg.tanh(M @ x) * 0.9 + b, np.zeros(20))
        f = mg.function([], found.value)
        near(f(), value(found.value))
        (step,) = [s for s in f.plan.steps if s.node.op.name == "fixed_point"]
        analyses = step.node.attrs["body"].analyses
        (inner,) = [kept for key, kept in analyses.items() if key[0] is interpret._compiled]
        assert "fused" in [s.kernel for s in inner.plan.steps]

    def test_complex(self):
        """The fixed point of an analytic map, and its derivative."""
        c = mg.var("c", init=np.complex128(0.2 + 0.3j))
        found = mg.fixed_point(lambda z: z * z * 0.5 + c, np.complex128(0.0)).value
        exact = 1.0 - np.sqrt(1.0 - 2.0 * c.value)
        near(np.abs(value(found) - exact), 0.0)
        mg.check_gradients(
            lambda c: mg.fixed_point(lambda z: z * z * 0.5 + c, np.complex128(0.0)).value, c.value
        )


class TestFailure:
    def test_divergence_names_the_node(self):
        a = mg.var("a", init=np.float64(3.0))
        found = mg.fixed_point(lambda x: a * x * x + 1.0, np.float64(1.0)).value
        with pytest.raises(mg.DivergedError) as caught:
            found.eval()
        text = str(caught.value)
        assert text.startswith("fixed_point: the iteration diverged: a value is not finite at step")
        assert "test_implicit.py:" in text
        assert caught.value.step > 1

    def test_too_few_steps(self):
        options = {"max_steps": 3, "tolerance": 1e-9}
        with pytest.raises(mg.DivergedError) as caught:
            mg.fixed_point(lambda x: mg.cos(x), np.float64(1.0), **options).value.eval()
        assert str(caught.value).startswith("fixed_point: 3 steps left a change of 0.")
        assert caught.value.step == 3

    def test_returned_as_it_is(self):
        found = mg.fixed_point(
            lambda x: 2.0 * x, np.float64(1.0), max_steps=10, unconverged="return"
        )
        x, steps = mg.function([], list(found))()
        assert (x, steps) == (1024.0, 10)
        blown = mg.fixed_point(lambda x: x * x, np.float64(9.0), unconverged="return")
        x, steps = mg.function([], list(blown))()
        assert np.isinf(x) and steps < 20

    def test_variables_are_unchanged_by_a_failed_call(self):
        w = mg.var("w", init=np.float64(3.0))
        found = mg.fixed_point(lambda x: w * x + 1.0, np.float64(1.0)).value
        f = mg.function([], found, updates={w: w + found})
        with pytest.raises(mg.DivergedError):
            f()
        assert w.value == 3.0

    @pytest.mark.parametrize(
        ("function", "start", "error", "text"),
        [
            (
                lambda x: mg.stack([x, x]), 1.0, mg.ShapeError,
                "fixed_point: result of the function has shape (2,), x0 has ()",
            ),
            (
                lambda x: mg.cast(x, "float64"), 1.0, mg.DTypeError,
                "fixed_point: result of the function is float64, x0 is float32",
            ),
            (
                lambda x: (x, x), 1.0, mg.GraphError,
                "fixed_point: the function returned result[0], result[1]",
            ),
            (
                lambda x: x, 1, mg.DTypeError,
                "fixed_point: x0 is int32[] by constant",
            ),
        ],
    )
    def test_wrong_maps(self, function, start, error, text):
        with pytest.raises(error) as caught:
            mg.fixed_point(function, start)
        assert str(caught.value).splitlines()[0].startswith(text)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"max_steps": 0}, "fixed_point: max_steps=0"),
            ({"tolerance": -1.0}, "fixed_point: tolerance=-1.0"),
            ({"unconverged": "ignore"}, "fixed_point: unconverged='ignore'"),
        ],
    )
    def test_wrong_options(self, options, text):
        with pytest.raises(mg.GraphError) as caught:
            mg.fixed_point(lambda x: x * 0.5, 1.0, **options)
        assert str(caught.value).splitlines()[0] == text


class TestRoot:
    def test_system_against_scipy(self, rng):
        import scipy.optimize

        b = np.array([1.0, 0.5])
        c = mg.var("c", init=b)

        def residual(x):
            return mg.stack([x[0] ** 2 + x[1] - c[0], mg.exp(x[1]) * x[0] - c[1]])

        found = mg.root(residual, np.array([1.0, 1.0]))
        x, steps = mg.function([], list(found))()
        exact = scipy.optimize.root(
            lambda x: [x[0] ** 2 + x[1] - b[0], np.exp(x[1]) * x[0] - b[1]], x
        ).x
        near(x, exact, 10.0)
        assert steps < 15
        J = np.array([[2 * x[0], 1.0], [np.exp(x[1]), np.exp(x[1]) * x[0]]])
        u = np.array([1.0, 2.0])
        slope = value(mg.grad(mg.sum(found.value * u), c))
        near(slope, np.linalg.solve(J.T, u), 10.0)

    def test_derivatives_against_differences(self):
        def loss(c):
            return mg.sum(mg.root(lambda x: x**3 + mg.sum(x) * 0.5 - c, np.ones(2)).value ** 2)

        point = (np.array([2.0, 3.0]),)
        mg.check_gradients(loss, point)
        mg.check_gradients(lambda c: mg.sum(mg.grad(loss(c), c) * np.array([1.0, -2.0])), point)

    def test_scalar(self):
        p = mg.var("p", init=np.float64(2.0))
        found = mg.root(lambda x: x**2 - p, np.float64(1.0)).value
        near(values([found, mg.grad(found, p)]), [np.sqrt(2), 0.5 / np.sqrt(2)])

    def test_without_a_root(self):
        found = mg.root(lambda x: x**2 + 1.0, np.float64(0.5))
        with pytest.raises(mg.DivergedError):
            found.value.eval()

    def test_wrong_residual(self):
        with pytest.raises(mg.ShapeError, match="root: the function returned float64"):
            mg.root(lambda x: mg.sum(x), np.ones(2))
        with pytest.raises(mg.DTypeError, match="expected"):
            mg.root(lambda x: mg.cast(x, "float32"), np.ones(2))
