"""Arguments of wrong types are named, with what their parameters take."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import ArgumentError, MagmagraphError
from magmagraph.help.argument_types import expected

X = mg.input("x", ("batch", 3))
SQUARE = np.arange(9.0).reshape(3, 3)
NETWORK = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: mg.schedule.at(0.5, X), "mg.schedule.at: rate is 0.5\n  expected: a function"),
        (
            lambda: mg.percentile(X, np.dtype("float64")),
            "q is of dtype object\n  expected: real numbers",
        ),
        (lambda: mg.nn.Dropout(iter([1])), "mg.nn.Dropout: rate is <list_iterator"),
        (lambda: mg.data.read_npz(-1), "mg.data.read_npz: path is -1\n  expected: a path"),
        (lambda: mg.load(1.5), "mg.load: path is 1.5\n  expected: a path"),
        (lambda: mg.rot90(SQUARE, k="a"), "rot90: k='a' is not an int"),
        (
            lambda: mg.linalg.diagonal(SQUARE, offset=0.5),
            "linalg_diagonal: offset=0.5 is not an int",
        ),
        (lambda: X.round(decimals="a"), "x.round: decimals is 'a'\n  expected: an int"),
        (lambda: mg.concatenate([X, X], axis=0, dtype=0.5), "0.5 is not a dtype"),
        (
            lambda: mg.tile(X, reps=0.5),
            "0.5 is not a shape",
        ),
        (
            lambda: mg.batches(SQUARE, size=2, shard=(1,)),
            "mg.data.batches: shard is (1,)\n  expected: 2 values, each an int or None",
        ),
        (
            lambda: mg.fixed_point(lambda a, b: a, X),
            "mg.fixed_point: function is a function that does not fit: ",
        ),
        (lambda: mg.callbacks.GrowingBatch("a"), "mg.callbacks.GrowingBatch: every is 'a'"),
        (
            lambda: mg.optimizer.SGD(0.1, clip_norm="a"),
            "mg.optimizer.GradientDescent: clip_norm is 'a'",
        ),
        (lambda: mg.linalg.pinv(SQUARE, rtol="complex64"), "pinv: rtol is of dtype <U9\n"),
        (lambda: mg.linalg.pinv(SQUARE, rcond=b""), "pinv: rtol is of dtype |S"),
        (
            lambda: mg.diff(X, n=2**31, axis=0),
            "diff: n=2147483648 along an axis of a named extent\n  expected: at most 64",
        ),
        (
            lambda: mg.check_operation(lambda: 3),
            "check_operation: the operation returned int\n  expected: a node",
        ),
        (lambda: mg.histogram2d(SQUARE, SQUARE, bins=np.inf), "histogram2d: bins=inf\n"),
        (lambda: mg.histogram2d(SQUARE, SQUARE, bins="ab"), "histogram2d: bins='ab'\n"),
        (
            lambda: mg.histogram2d(SQUARE, SQUARE, range=(0, 0)),
            "histogram2d: range=0\n  expected: two numbers",
        ),
        (lambda: mg.histogram(SQUARE, range=5), "histogram: range=5\n"),
        (
            lambda: mg.nn.Dense(3)(SQUARE, training=np.zeros(2)),
            "Dense: training is of type ndarray\n  expected: True or False",
        ),
        (
            lambda: mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse").fit(X.at),
            "the examples are of dtype object",
        ),
        (lambda: mg.sum(SQUARE, axis=np.array(2.0)), "sum: axis=array(2.) is not an int"),
        (
            lambda: mg.tensordot(SQUARE, SQUARE, np.ma.array([1.0, 2.0], mask=[True, False])),
            "tensordot: axes[0]=masked is not an int",
        ),
        (lambda: mg.tensordot(SQUARE, SQUARE, np.array(0.5)), "mg.tensordot: axes is array(0.5)"),
        (lambda: mg.diff(mg.input("n", ("n",)), 2**31), "diff: n=2147483648 along an axis of a"),
        (lambda: mg.histogram(SQUARE, range=3), "histogram: range=3\n  expected: two"),
        (
            lambda: mg.histogram2d(X[:, 0], X[:, 1], range=(0, 0)),
            "histogram2d: range=0\n  expected: two numbers",
        ),
        (
            lambda: mg.histogram2d(X[:, 0], X[:, 1], bins=float("inf")),
            "histogram2d: bins=inf\n  expected: one int, or a pair",
        ),
        (
            lambda: mg.checkpoint(mg.sum(X), policy=np.zeros(3)),
            "checkpoint: policy=array([0., 0., 0.])",
        ),
        (lambda: NETWORK.fit(X.at), "the examples are of dtype object"),
    ],
)
def test_the_argument_is_named(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(MagmagraphError) as caught:
        call()
    assert str(caught.value).startswith(text), str(caught.value)
    assert isinstance(caught.value, (TypeError, ValueError))


@pytest.mark.parametrize(
    "call",
    [
        lambda: mg.histogram(SQUARE, bins=(99,)),
        lambda: mg.special.eval_legendre(10**30, X),
        lambda: mg.special.eval_gegenbauer(2**31, 0.5, X),
        lambda: mg.special.multigammaln(X, 2**63),
        lambda: mg.adaptive_avg_pool(np.ones((1, 1, 4, 4)), 10**30),
        lambda: mg.local_response_norm(np.ones((1, 2, 3)), 2**31),
        lambda: mg.distributed.threads(2**63, lambda: 0),
        lambda: mg.Dim("n") ** 2**64,
        lambda: mg.triu_indices(10**30),
        lambda: mg.constant(10**30, dtype="int64"),
    ],
)
def test_numbers_that_ask_for_too_much_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(MagmagraphError):
        call()


def test_large_numbers_take_no_time() -> None:
    assert mg.diff(SQUARE, 2**64).shape == (3, 0)
    assert mg.diff([True, False, True], 2**64).dtype == np.dtype(bool)
    assert mg.tensordot(SQUARE, SQUARE, np.array(2)).eval() == 204.0
    assert mg.softshrink(SQUARE, np.True_).eval()[0, 2] == 1.0
    assert NETWORK.summary(batch_size=2**40)  # which plans memory, and takes none


def test_hyp1f1_of_large_parameters() -> None:
    """Mpmath's values; SciPy's series takes 39 seconds for the last, or gives 1e25."""
    a = np.array([1e3, 1e3, 1e5, 1e7, 2.0**31])
    x = np.array([-0.6, -1.0, -0.6, -0.6, -0.6])
    expected = [-0.011000704431051146, 0.0015583342120842507, -3.012259481330405e-4,
                -6.159308324605587e-5, -2.4614067e-6]  # fmt: skip
    result = mg.special.hyp1f1(mg.constant(a), 1.6, mg.constant(x)).eval()
    np.testing.assert_allclose(result, expected, rtol=1e-8)


def test_hyp1f1_ends() -> None:
    """SciPy takes as many steps as the argument is large."""
    result = mg.special.hyp1f1(1.3, 1.6, np.array([1e15, 1e300, -1e300])).eval()
    assert result.tolist() == [np.inf, np.inf, 0.0]
    polynomial = mg.special.hyp1f1(-1.0, 2.0, np.array([1e15])).eval()
    assert polynomial.tolist() == [1.0 - 0.5e15]


def test_hyp1f1_of_large_first_parameters() -> None:
    """SciPy sums to 3e79 and 3e64 there, and takes no end for the larger one; these are right."""
    x = np.array([-0.9, -0.6])
    large = mg.special.hyp1f1(1e4, 1.6, mg.constant(x, dtype="float64")).eval()
    np.testing.assert_allclose(large, [0.00189147351747968, -0.00227752213735586], rtol=1e-9)
    endless = mg.special.hyp1f1(2.0**31, 1.6, mg.constant(x, dtype="float64")).eval()
    assert np.all(np.abs(endless) < 1e-5)


def test_hyp1f1_where_its_series_alternates() -> None:
    """Mpmath's values; SciPy 1.17 gives -1.530 and 3.298 for the first two, and for the others."""
    a = np.array([30.0, 44.0, -29.7, 41.0, 1.0, 50.0, 1e6])
    b = np.array([0.3, 0.18588858147526133, 0.3, 0.4, 0.1, 0.05, 0.7])
    x = np.array([-0.1, -0.16024389803905484, 0.1, -0.15, -1.0, -1.0, -5e-5])
    expected = [-1.4204750553711742, 3.1759078681060227, -1.5698677210481171, 0.49870033227416677,
                -3.125034088017899, -10.609094668954864, 0.15332380323402134]  # fmt: skip
    result = mg.special.hyp1f1(mg.constant(a), mg.constant(b), mg.constant(x)).eval()
    np.testing.assert_allclose(result, expected, rtol=2e-14)
    equal = np.array([30.0, 10.0, 2.0])  # b and x: SciPy gives 4.8e-9 for the first
    polynomials = mg.special.hyp1f1(np.array([-34.0, -31.0, -50.0]), equal, equal).eval()
    expected_of_equal = [-2.0476228388332959e-10, 1.187424174751626e-06, 0.025031246342757076]
    np.testing.assert_allclose(polynomials, expected_of_equal, rtol=1e-12)
    scalar = mg.special.hyp1f1(np.float64(30.0), np.float64(0.3), np.float64(-0.1)).eval()
    np.testing.assert_allclose(scalar, expected[0], rtol=2e-14)


def test_differences_end_where_no_element_is_left() -> None:
    assert mg.diff(SQUARE, n=2**31).eval().shape == (3, 0)


def test_summaries_of_huge_batches_allocate_nothing() -> None:
    network = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")
    assert network.summary(batch_size=2**31).memory.total > 2**34
    (labels,) = network._known.values()
    step = network.training_step(labels)
    assert not step.specializations  # no arena was allocated
    planned = network.summary(batch_size=32).memory
    assert planned == step.specialize(*((32, *n.shape[1:]) for n in step.inputs)).memory


def test_the_error_from_inside_is_the_cause() -> None:
    with pytest.raises(ArgumentError) as caught:
        X.round(decimals="a")
    assert isinstance(caught.value.__cause__, TypeError)
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_errors_of_callers_and_of_this_library_pass() -> None:
    """What no argument explains is not renamed."""

    def failing(x: mg.Node) -> mg.Node:
        raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        mg.vmap(failing)(X)
    with pytest.raises(mg.ShapeError):
        mg.sum(X, axis=7)


@pytest.mark.parametrize(
    ("annotation", "right", "wrong"),
    [
        ("int", [3, np.int64(3), np.array(3)], [True, 0.5, "3", None, X, np.arange(3)]),
        ("float", [3, 0.5, np.float32(1), np.array(1.0)], ["a", 1j, X, None, np.arange(3)]),
        ("bool", [True, False, np.bool_(True), 1], [2, "a", None, X]),
        ("str | None", ["a", None], [3, b"a"]),
        ("int | Sequence[int]", [3, (1, 2), [], range(3)], ["ab", (0.5,), 0.5, {1: 2}]),
        ("tuple[int, int]", [(1, 2), [1, 2]], [(1,), (1, 2, 3), 3]),
        ("tuple[int, ...]", [(1, 2, 3), ()], [("a",), 3]),
        ("Literal['a', 'b']", ["a"], ["c", 3]),
        ("Mapping[str, int]", [{"a": 1}], [[("a", 1)], "a"]),
        ("Callable[..., Any]", [len, lambda: 0], ["len", 3]),
        ("Operand", [X, 0.5, [1, 2], np.arange(3)], ["a", None, len, [[1], [1, 2]]]),
        ("Iterable[int]", [iter([1]), (1, 2)], [3, "ab", mg.input("y", ()).at]),
        ("mg.Node | float", [X, 0.5], ["a", None]),
        ("np.ndarray", [np.arange(3)], [[1], X]),
        ("DTypeLike", ["int8", np.float32, float], ["int9", 3]),
    ],
)
def test_annotations_are_a_schema(annotation: str, right: list[Any], wrong: list[Any]) -> None:
    import collections.abc as abc
    from typing import Literal

    place = {"np": np, "mg": mg, "Any": Any, "Literal": Literal, **vars(abc)}
    kind = expected(annotation, place)
    assert kind is not None
    assert [kind.accepts(value) for value in right] == [True] * len(right)
    assert [kind.accepts(value) for value in wrong] == [False] * len(wrong)


@pytest.mark.parametrize("annotation", ["Any", "object", "Missing", "np.missing", ""])
def test_what_says_nothing_takes_everything(annotation: str) -> None:
    assert expected(annotation or "Any", {"Any": Any, "np": np}) is None
