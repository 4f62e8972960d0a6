"""Operations that users define: definition, running, gradients, passes, saving, checks."""

import pickle
import re

import numpy as np
import pytest
from interpreted import assert_close, value, values

import magmagraph as mg
from magmagraph.functional.custom import OWN
from magmagraph.ir.graph import freeze
from magmagraph.text.reading import load
from magmagraph.text.writing import dump


class Cube(mg.Operation):
    """The third power."""

    kernel = "a * a * a"

    def numpy(self, x):
        return x * x * x

    def gradient(self, x, cotangent):
        return cotangent * 3.0 * x * x


class Hypot(mg.Operation):
    """A hypotenuse, with a function of the C library."""

    kernel = "$hypot(a, b)"

    def numpy(self, x, y):
        return np.hypot(x, y)

    def gradient(self, x, y, cotangent):
        length = Hypot()(x, y)
        return cotangent * x / length, cotangent * y / length


class RowPower(mg.Operation):
    """Sums of powers along the last axis: an argument, a type of its own, leading axes."""

    batching = "leading"

    def type(self, x, *, exponent):
        return mg.Type(x.dtype, x.shape[:-1])

    def numpy(self, x, *, exponent):
        return np.sum(x**exponent, axis=-1)

    def gradient(self, x, cotangent, *, exponent):
        return mg.expand_dims(cotangent, -1) * exponent * x ** (exponent - 1)


class Halves(mg.Operation):
    """Two results of two types."""

    def type(self, x):
        return mg.Type(x.dtype, x.shape), mg.Type(np.dtype(np.int64), x.shape)

    def numpy(self, x):
        return x / 2, np.floor(x / 2).astype(np.int64)

    def gradient(self, x, cotangents):
        return None if cotangents[0] is None else cotangents[0] * 0.5


class Median(mg.Operation):
    """No gradient, and the reason."""

    no_gradient = "the middle element jumps"

    def type(self, x):
        return mg.Type(x.dtype, ())

    def numpy(self, x):
        return np.median(x).astype(x.dtype)


class TestElementwise:
    def test_value_broadcasting_and_promotion(self, rng):
        x = rng.normal(size=(2, 3))
        assert_close(value(Cube()(x)), x**3, scale=10.0)
        assert_close(value(Hypot()(x, np.arange(3.0))), np.hypot(x, np.arange(3.0)))
        assert Hypot()(mg.input("a", ("n", 1)), 2.0).dtype == np.float32
        assert str(Hypot()(mg.input("a", ("n", 3)), np.ones(3, "f")).shape) == "(n, 3)"

    def test_is_fused(self):
        x = mg.input("x", ("n",))
        f = mg.function([x], mg.sum(mg.exp(Cube()(x) * 2.0)))
        (step,) = f.plan.steps
        assert step.kernel == "fused"
        assert "a * a" not in f.source(0), "the operand stands in the place of its letter"
        assert_close(f(np.zeros(3, "f")), 3.0, "float32")

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
    def test_dtypes(self, dtype, rng):
        at = rng.uniform(0.5, 1.5, 100).astype(dtype)
        x = mg.input("x", (100,), dtype)
        result = mg.function([x], Cube()(x))(at)
        assert result.dtype == dtype
        assert_close(result, (at.astype("float64") ** 3).astype(dtype), dtype, scale=4.0)

    def test_derivatives(self, rng):
        at = rng.normal(size=(2, 3))
        mg.check_gradients(lambda x: mg.sum(Cube()(x) * np.arange(6.0).reshape(2, 3)), at)
        x, y = mg.var("x", init=at), mg.var("y", init=np.ones(3))
        gx, gy = values(mg.grad(mg.sum(Hypot()(x, y)), [x, y]))
        assert gy.shape == (3,)
        assert_close(gy, np.sum(1.0 / np.hypot(at, 1.0), axis=0), scale=10.0)
        assert_close(gx, at / np.hypot(at, 1.0))


class TestOthers:
    def test_arguments_and_several_results(self, rng):
        x = mg.var("x", init=rng.normal(size=(4, 3)))
        result = RowPower()(x, exponent=3)
        assert_close(value(result), (x.value**3).sum(axis=1), scale=10.0)
        assert_close(value(mg.grad(mg.sum(result), x)), 3 * x.value**2, scale=10.0)
        half, whole = Halves()(x)
        assert (half.dtype, whole.dtype) == (np.float64, np.int64)
        f = mg.function([], [half, whole, mg.grad(mg.sum(half**2), x)])
        a, b, slope = f()
        assert_close(a, x.value / 2)
        np.testing.assert_array_equal(b, np.floor(x.value / 2))
        assert_close(slope, x.value / 2)

    def test_named_dimension(self, rng):
        x = mg.input("x", ("n", 3), "float64")
        result = RowPower()(x, exponent=2)
        assert [str(e) for e in result.shape] == ["n"]
        at = rng.normal(size=(5, 3))
        assert_close(mg.function([x], result)(at), (at**2).sum(axis=1), scale=10.0)

    def test_equal_ones_are_one_node(self):
        x = mg.input("x", (3,), "float64")
        nodes = [RowPower()(x, exponent=2), RowPower()(x, exponent=2), RowPower()(x, exponent=3)]
        graph = freeze([x], nodes)
        assert sum(node.op is RowPower.op for node in graph.nodes) == 2

    def test_without_a_gradient(self):
        x = mg.var("x", init=np.arange(5.0))
        with pytest.raises(mg.GradientError) as caught:
            mg.grad(Median()(x), x)
        assert "the middle element jumps" in str(caught.value)

    def test_mapped(self, rng):
        xs = rng.normal(size=(4, 2, 3))
        mapped = mg.vmap(lambda x: RowPower()(x, exponent=2))(xs)
        assert mapped.op is RowPower.op, "leading axes are batch axes: no loop"
        assert_close(value(mapped), (xs**2).sum(axis=-1), scale=10.0)
        assert_close(value(mg.vmap(Median())(xs)), [np.median(x) for x in xs])
        assert mg.vmap(Cube())(xs).op is Cube.op
        half, _ = mg.vmap(lambda x: Halves()(x))(xs)
        assert_close(value(half), xs / 2)


class TestKeeping:
    def test_pickle_by_path(self, rng):
        x = mg.input("x", (4, 3), "float64")
        f = mg.function([x], [Cube()(x), RowPower()(x, exponent=2)])
        at = rng.normal(size=(4, 3))
        again = pickle.loads(pickle.dumps(f))
        for left, right in zip(again(at), f(at), strict=True):
            np.testing.assert_array_equal(left, right)
        assert pickle.loads(pickle.dumps(Cube.op)) is Cube.op

    def test_pickle_of_a_local_class(self):
        class Local(mg.Operation):
            kernel = "a"

            def numpy(self, x):
                return x

        with pytest.raises(pickle.PicklingError, match="at the level of a module"):
            pickle.dumps(Local()(1.0))

    def test_text_and_archive(self, tmp_path, rng):
        x = mg.input("x", (3,), "float64")
        graph = freeze([x], [Cube()(x), RowPower()(x, exponent=2)])
        text = dump(graph)
        assert "test_custom_ops.Cube(%0)" in text
        assert dump(load(text)) == text
        f = mg.function([x], [Cube()(x), RowPower()(x, exponent=2)])
        at = rng.normal(size=3)
        expected = f(at)
        f.save(tmp_path / "own.mgz")
        for left, right in zip(mg.load(tmp_path / "own.mgz")(at), expected, strict=True):
            np.testing.assert_array_equal(left, right)

    def test_text_without_the_class(self, monkeypatch):
        text = dump(freeze([], [Cube()(np.ones(3))]))
        monkeypatch.delitem(OWN, Cube.op.name)
        with pytest.raises(mg.MagmagraphError) as caught:
            load(text)
        assert f"there is no operation {Cube.op.name!r}" in str(caught.value)
        assert "expected: an mg.Operation whose module is imported before" in str(caught.value)


def define(**members):
    """Define a class of these members."""
    return type("Wrong", (mg.Operation,), members)


BAD_CLASSES = [
    ({"kernel": "a"}, "Wrong has no method numpy"),
    ({"numpy": lambda self, x: x}, "Wrong has no method type"),
    (
        {"numpy": lambda self, x: x, "kernel": "0.5 * a"},
        "Wrong: the number 0.5 in the kernel is a double, whatever the operands are",
    ),
    (
        {"numpy": lambda self, x: x, "kernel": "a * 1e-3"},
        "Wrong: the number 1e-3 in the kernel is a double, whatever the operands are",
    ),
    ({"numpy": lambda self, x: x, "kernel": "a + b"}, "Wrong: b in the kernel is unknown"),
    ({"numpy": lambda self, x: x, "kernel": "exp(a)"}, "Wrong: exp in the kernel is unknown"),
    (
        {"numpy": lambda self, x: x, "kernel": "$sqr(a)"},
        "Wrong: $sqr in the kernel is no function",
    ),
    (
        {"numpy": lambda self, x: x, "kernel": "(a"},
        "Wrong: the kernel is not an expression: (a",
    ),
    (
        {"numpy": lambda self, *x: x[0], "kernel": "a"},
        "Wrong: a kernel for any number of operands",
    ),
    (
        {"numpy": lambda self, x: x, "kernel": "a", "gradient": lambda self, x: x},
        "Wrong.gradient takes 1 arguments, Wrong.numpy 1",
    ),
    (
        {"numpy": lambda self, x: x, "kernel": "a", "__init__": lambda self, n: None},
        "Wrong has a method __init__, and an operation has no state",
    ),
    (
        {"numpy": lambda self, x: x, "kernel": "a", "batching": "rows"},
        "Wrong: batching='rows'",
    ),
]


@pytest.mark.parametrize(("members", "text"), BAD_CLASSES, ids=[t for _, t in BAD_CLASSES])
def test_wrong_class(members, text):
    with pytest.raises(mg.GraphError) as caught:
        define(**members)
    assert str(caught.value).splitlines()[0] == text


def test_a_kernel_that_the_compiler_does_not_take_shows_its_message_and_line():
    """Not a warning that there is no compiler, and results of NumPy that nobody compared."""
    if mg.config.compiler == "off":
        pytest.skip("nothing is compiled")
    wrong = define(numpy=lambda self, x: x, kernel="a ++ + * 2", no_gradient="not needed")
    x = mg.var("x", shape=("n",))
    with pytest.raises(mg.GraphError) as caught:
        mg.function([x], mg.exp(wrong()(x)))(np.ones(3))
    first, *rest = str(caught.value).splitlines()
    assert "the kernel 'a ++ + * 2' of " in first and first.endswith("Wrong")
    assert re.match(r"  kernel\.c:\d+:\d+: error: ", rest[0]) and "++ + * 2" in rest[1]


def test_a_function_that_is_not_there_for_a_dtype_is_refused_where_the_node_is_made():
    operation = define(numpy=lambda self, x: np.exp(x), kernel="$exp(a)", no_gradient="not needed")
    with pytest.raises(mg.DTypeError, match=r"Wrong: \$exp has no C function for int32"):
        operation()(mg.input("i", (3,), "int32"))


def test_kernel_numbers_of_the_right_type():
    operation = define(numpy=lambda self, x: x * x.dtype.type(0.5), kernel="a * (T)0.5")
    mg.check_operation(operation(), np.array([1.0, 3.0], dtype="float32"))


class TestWrongUse:
    def test_result_of_another_type(self):
        wide = define(
            type=lambda self, x: mg.Type(x.dtype, x.shape), numpy=lambda self, x: x.astype("f8")
        )
        node = wide()(mg.input("x", (3,)))
        with pytest.raises(mg.GraphError) as caught:
            mg.function([node.inputs[0]], node)(np.ones(3, "f"))
        text = str(caught.value)
        assert text.startswith("Wrong.numpy returned float64[3], its type is float32[3]")
        assert "test_custom_ops.py:" in text

    def test_operands_are_not_written(self):
        def numpy(self, x):
            x += 1
            return x

        node = define(type=lambda self, x: x, numpy=numpy)()(np.ones(3))
        with pytest.raises(ValueError, match="read-only"):
            node.eval()

    def test_type_that_is_none(self):
        wrong = define(type=lambda self, x: x.shape, numpy=lambda self, x: x)
        with pytest.raises(mg.DTypeError, match="its method type returned"):
            wrong()(np.ones(3))

    def test_arguments_that_are_arrays(self):
        with pytest.raises(mg.GraphError) as caught:
            RowPower()(np.ones(3), exponent=np.ones(3))
        assert str(caught.value).splitlines()[0] == "RowPower: the argument exponent is ndarray"

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (lambda x: Cube()(), "Cube: missing a required argument"),
            (lambda x: Cube()(x, x), "Cube: too many positional arguments"),
            (lambda x: Cube()(x, k=2), "Cube: got an unexpected keyword argument 'k'"),
            (lambda x: RowPower()(x), "RowPower: missing a required"),
        ],
    )
    def test_number_of_operands(self, call, text):
        with pytest.raises(mg.GraphError, match=text):
            call(mg.var("x", shape=("n", 2)))

    def test_number_of_gradients(self):
        wrong = define(
            numpy=lambda self, x, y: x + y, kernel="a + b", gradient=lambda self, x, y, u: u
        )
        x = mg.var("x", init=1.0)
        with pytest.raises(mg.GradientError) as caught:
            mg.grad(wrong()(x, x), x)
        assert str(caught.value).splitlines()[0] == (
            "Wrong.gradient returned 1 gradients for 2 operands"
        )

    def test_base_without_numpy(self):
        base = define()
        with pytest.raises(mg.GraphError, match="Wrong computes nothing"):
            base()(1.0)


class TestCheckOperation:
    def test_right_ones(self, rng):
        at = rng.uniform(0.5, 1.5, (2, 3))
        mg.check_operation(Cube(), at)
        mg.check_operation(Hypot(), at, at[0])
        mg.check_operation(RowPower(), at, exponent=3, numerics="reassoc")
        mg.check_operation(Halves(), at + 0.1)
        mg.check_operation(Median(), at)
        mg.check_operation(mg.matmul, at, at.T, numerics="reassoc")

    @pytest.mark.parametrize(
        ("members", "error", "text"),
        [
            (
                {"numpy": lambda self, x: x * x, "kernel": "a * a * a"},
                mg.GraphError,
                "check_operation: the compiled result differs from that of numpy",
            ),
            (
                {
                    "numpy": lambda self, x: x * x,
                    "kernel": "a * a",
                    "gradient": lambda self, x, u: u * x,
                },
                mg.GradientError,
                "check_gradients: the gradient of argument 0 at",
            ),
            (
                {
                    "numpy": lambda self, x: np.cumsum(x, axis=0),
                    "type": lambda self, x: x,
                    "batching": "leading",
                },
                mg.GraphError,
                "check_operation: vmap gives another result than a loop",
            ),
            (
                {
                    "numpy": lambda self, x: np.ascontiguousarray(x) * x.strides[-1],
                    "type": lambda self, x: x,
                },
                mg.GraphError,
                "check_operation: operands that do not lie contiguously give another result",
            ),
        ],
    )
    def test_wrong_ones(self, members, error, text):
        with pytest.raises(error) as caught:
            mg.check_operation(define(**members)(), np.array([[0.5, 1.5], [2.0, 3.0]]))
        assert str(caught.value).startswith(text)
