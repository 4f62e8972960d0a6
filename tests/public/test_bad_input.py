"""Wrong input: every mistake has its own clear error and leaves everything as it was.

The texts are exact. Where a line of the user's source is named, ``{here}`` stands for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import magmagraph as mg


def network() -> tuple[Any, mg.Node, mg.Node, Any]:
    """Return a function with an input, an int input and a variable that it renews."""
    x = mg.var("x", shape=("batch", 3))
    k = mg.var("k", shape=("batch",), dtype="int32")
    w = mg.var("w", init=np.ones(3, np.float32))
    loss = mg.sum(x * w) + mg.sum(mg.cast(k, "float32"))
    f = mg.function([x, k], [loss], updates={w: w + mg.sum(x, axis=0)})
    return f, x, k, w


GOOD = np.ones((2, 3), np.float32)
INTS = np.ones(2, np.int32)
NAMES = "  expected: feeds for the inputs: 'x', 'k'"

CALLS: dict[str, tuple[Callable[[Any, mg.Node, mg.Node], Any], str]] = {
    "missing": (
        lambda f, x, k: f(GOOD),
        f"no feed for input 'k' (int32[batch])\n{NAMES}",
    ),
    "unknown name": (
        lambda f, x, k: f(GOOD, INTS, z=1),
        f"there is no input named 'z'\n{NAMES}",
    ),
    "duplicate": (
        lambda f, x, k: f(GOOD, INTS, x=GOOD),
        "input 'x' (float32[batch, 3]) is fed twice",
    ),
    "too many": (
        lambda f, x, k: f(GOOD, INTS, GOOD),
        f"3 feeds are given, but there are 2 inputs\n{NAMES}",
    ),
    "wrong shape": (
        lambda f, x, k: f(np.ones((2, 4), np.float32), INTS),
        "input 'x' (float32[batch, 3]) is fed an array of shape (2, 4): ",
    ),
    "wrong number of axes": (
        lambda f, x, k: f(np.ones(3, np.float32), INTS),
        "input 'x' (float32[batch, 3]) is fed an array of shape (3,)\n"
        "  expected: 2 axes, shape (batch, 3)",
    ),
    "a batch in the place of its array": (
        lambda f, x, k: f((GOOD,), INTS),
        "input 'x' (float32[batch, 3]) is fed an array of shape (1, 2, 3)\n"
        "  expected: 2 axes, shape (batch, 3)\n"
        "  try: f(*batch): what is fed holds one such array",
    ),
    "disagreeing sizes": (
        lambda f, x, k: f(GOOD, np.ones(5, np.int32)),
        "input 'k' (int32[batch]) is fed an array of shape (5,): ",
    ),
    "float for int": (
        lambda f, x, k: f(GOOD, np.ones(2, np.float32)),
        "input 'k' (int32[batch]) is fed float32 values that int32 does not hold",
    ),
    "ints for floats": (
        lambda f, x, k: f(np.full((2, 3), 2**24 + 1), INTS),
        "input 'x' (float32[batch, 3]) is fed int64, some of which float32 does not hold exactly\n"
        "  expected: float32, or values that it holds\n"
        "  try: array.astype('float32')",
    ),
    "int out of range": (
        lambda f, x, k: f(GOOD, np.array([1, 2**40])),
        "input 'k' (int32[batch]) is fed int64 values that int32 does not hold",
    ),
    "text": (
        lambda f, x, k: f(np.array([["a", "b", "c"]]), INTS),
        "input 'x' (float32[batch, 3]) is fed text\n"
        "  expected: numbers of dtype float32\n"
        "  try: array.astype('float64') where it spells numbers",
    ),
    "objects": (
        lambda f, x, k: f(np.array([[None, 1, 2]], dtype=object), INTS),
        "input 'x' (float32[batch, 3]) is fed Python objects, one of them None",
    ),
    "large ints": (
        lambda f, x, k: f([[10**30, 1, 2]], INTS),
        "input 'x' (float32[batch, 3]) is fed ints that no integer dtype holds\n"
        "  expected: numbers of dtype float32\n"
        "  try: np.asarray(values, 'float64')",
    ),
    "dates": (
        lambda f, x, k: f(np.zeros((2, 3), "M8[s]"), INTS),
        "input 'x' (float32[batch, 3]) is fed dates\n"
        "  expected: numbers of dtype float32\n"
        "  try: (dates - dates.min()) / np.timedelta64(1, 's'), which are seconds",
    ),
    "spans of time": (
        lambda f, x, k: f(np.zeros((2, 3), "m8[D]"), INTS),
        "input 'x' (float32[batch, 3]) is fed spans of time\n",
    ),
    "records": (
        lambda f, x, k: f(np.zeros((2, 3), [("a", "f4"), ("b", "f4")]), INTS),
        "input 'x' (float32[batch, 3]) is fed records of 'a', 'b'\n"
        "  expected: numbers of dtype float32\n"
        "  try: array['a'], one field",
    ),
    "wide floats": (
        lambda f, x, k: f(np.zeros((2, 3), np.longdouble), INTS),
        f"input 'x' (float32[batch, 3]) is fed {np.dtype(np.longdouble).name} values\n"
        "  expected: numbers of dtype float32\n"
        "  try: array.astype('float64')",
    ),
    "a generator": (
        lambda f, x, k: f((row for row in GOOD), INTS),
        "input 'x' (float32[batch, 3]) is fed an object of type generator\n"
        "  expected: numbers of dtype float32\n"
        "  try: np.array(list(values))",
    ),
    "masked elements": (
        lambda f, x, k: f(np.ma.array(GOOD, mask=GOOD == GOOD.flat[0]), INTS),
        "input 'x' (float32[batch, 3]) cannot be made an array: ",
    ),
    "a node": (
        lambda f, x, k: f(x, INTS),
        "input 'x' (float32[batch, 3]) is fed a node",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_feeds(case: str) -> None:
    f, x, k, w = network()
    f(GOOD, INTS)
    before = w.value
    call, text = CALLS[case]
    with pytest.raises(mg.FeedError) as caught:
        call(f, x, k)
    assert str(caught.value).startswith(text), str(caught.value)
    np.testing.assert_array_equal(w.value, before)
    assert len(f.specializations) == 1
    f(GOOD, INTS)


def test_strict_feeds_refuse_to_convert() -> None:
    x = mg.var("x", shape=(3,))
    f = mg.function([x], x * 1.5, strict_feeds=True)
    with pytest.raises(mg.FeedError, match="is fed float64, and strict_feeds is on"):
        f(np.ones(3))
    f(np.ones(3, np.float32))


@pytest.mark.parametrize("compiler", ["auto", "off"])
def test_nan_raises_and_changes_nothing(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mg.config, "compiler", compiler)
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=np.ones(3, np.float32))
    v = mg.var("v", init=np.ones(3, np.float32))
    f = mg.function([x], mg.sum(x), updates={v: v + 1.0, w: w * x}, nan="raise")
    f(np.ones(3, np.float32))
    before = w.value, v.value
    with pytest.raises(mg.NonFiniteError, match="nan='raise' is set"):
        f(np.array([1.0, np.nan, 2.0], np.float32))
    np.testing.assert_array_equal(w.value, before[0])
    np.testing.assert_array_equal(v.value, before[1])


def test_building_a_function_wrongly() -> None:
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=np.ones(3, np.float32))
    y = mg.var("y", shape=(3,))
    with pytest.raises(mg.UpdateError, match="variable 'w' is updated twice"):
        mg.function([x], x, updates=[(w, w + 1.0), (w, w + 2.0)])
    with pytest.raises(mg.UpdateError, match="is updated and is not a variable"):
        mg.function([x], x, updates={x: x + 1.0})
    with pytest.raises(mg.UpdateError, match="expected: dtype float32"):
        mg.function([x], x, updates={w: mg.cast(w, "int32")})
    with pytest.raises(mg.UpdateError, match=r"expected: shape \(3,\)"):
        mg.function([x], x, updates={w: mg.sum(w)})
    with pytest.raises(mg.GraphError, match="needs the input 'y'"):
        mg.function([x], x + y)
    with pytest.raises(mg.GraphError, match="is listed in inputs and is not an input"):
        mg.function([w], w + 1.0)
    with pytest.raises(mg.GraphError, match="input 'x' is listed twice"):
        mg.function([x, x], x)
    with pytest.raises(mg.PassError, match="skip names 'fusion', which is not a pass here"):
        mg.function([x], x, skip=("fusion",))
    with pytest.raises(mg.PassError, match="the pass 'memory' cannot be skipped"):
        mg.function([x], x, skip=("memory",))
    with pytest.raises(mg.DeviceError, match="there is no device 'gpu'"):
        mg.function([x], x, device="gpu")
    with pytest.raises(ValueError, match="precision='half'"):
        mg.function([x], x, precision="half")


def test_writing_a_variable_wrongly() -> None:
    w = mg.var("w", init=np.ones(3, np.float32))
    with pytest.raises(mg.ShapeError, match=r"variable 'w' has shape \(3,\), the new value \(2,\)"):
        w.value = np.zeros(2)
    with pytest.raises(mg.DTypeError, match="variable 'w' is float32, the new value int64"):
        w.assign(np.full(3, 2**24 + 1))
    np.testing.assert_array_equal(w.value, np.ones(3))


def test_text_is_no_value() -> None:
    x = mg.var("x", shape=("batch", 3))
    for make in (lambda: x + "a", lambda: mg.function([x], "a"), lambda: mg.sin("a")):
        with pytest.raises(mg.DTypeError) as caught:
            make()
        assert str(caught.value).splitlines() == [
            "the text 'a' stands where a value is computed with",
            "  expected: a node, a number or an array",
        ]
    with pytest.raises(mg.DTypeError, match="axis='batch' is not an int"):
        mg.sum(x, axis="batch")


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (None, mg.DTypeError, "numbers, not of None"),
        ([1.0, None], mg.DTypeError, "numbers, not of Python objects, one of them None"),
        ([len], mg.DTypeError, "one of them of type builtin_function_or_method"),
        ({"a": 1}, mg.DTypeError, "numbers, not of an object of type dict"),
        ({1, 2}, mg.DTypeError, "try: np.array(list(values))"),
        (["1.5"], mg.DTypeError, "numbers, not of text\n  try: array.astype('float64')"),
        ([10**30], mg.DTypeError, "ints that no integer dtype holds"),
        (np.array([1, 2], object), mg.DTypeError, "try: np.asarray(values, 'int64')"),
        ([Fraction(1, 2)], mg.DTypeError, "try: np.asarray(values, 'float64')"),
        (np.array("2020-01-01", "M8[D]"), mg.DTypeError, "not of dates\n  try: (dates"),
        (np.zeros(2, [("a", "f8")]), mg.DTypeError, "not of records of 'a'\n  try: array['a']"),
        (np.zeros(2, "V3"), mg.DTypeError, "bytes without a type (void24)"),
        ([[1, 2], [3]], mg.ShapeError, "inhomogeneous"),
    ],
)
def test_what_is_no_array_of_numbers(value: Any, error: type[Exception], said: str) -> None:
    x = mg.var("x", shape=(2,))
    makers: list[Callable[[], Any]] = [
        lambda: mg.constant(value), lambda: x + value, lambda: mg.sin(value),
    ]  # fmt: skip
    if value is not None:
        makers.append(lambda: mg.var("v", init=value))
    if "try: np.asarray" not in said and "holds" not in said:  # these are numbers all the same
        makers.append(lambda: mg.constant(value, dtype="float32"))
        if value is not None:
            makers.append(lambda: mg.var("v", init=value, dtype="float32"))
    for make in makers:
        with pytest.raises(error) as caught:
            make()
        assert said in str(caught.value)
    assert mg.constant([10**30], dtype="float64").eval().tolist() == [1e30]
    with pytest.raises(mg.DTypeError, match=r"the text '1\.5' stands where"):
        mg.constant("1.5", dtype="float32")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["1", "2"], "variable 'w' is given text\n  expected: numbers of dtype float64\n  try: "),
        ("ab", "variable 'w' is given text"),
        (None, "variable 'w' is given None"),
        ([None, 1.0], "variable 'w' is given Python objects, one of them None"),
        ([10**30, 1], "variable 'w' is given ints that no integer dtype holds"),
        (np.zeros(2, "M8[s]"), "variable 'w' is given dates"),
        (np.zeros(2, np.longdouble), f"is given {np.dtype(np.longdouble).name} values"),
        ([[1], [2, 3]], "variable 'w' is given what is no array: "),
    ],
)
def test_what_a_variable_is_not_assigned(value: Any, said: str) -> None:
    w = mg.var("w", init=np.ones(2))
    with pytest.raises(mg.DTypeError) as caught:
        w.assign(value)
    assert said in str(caught.value)
    assert w.value.tolist() == [1.0, 1.0]


def test_masked_elements_are_not_computed_with() -> None:
    """Whatever takes arrays: without its mask an array has numbers where there are none."""
    holes = np.ma.array([1.0, 2.0, 3.0, 4.0], mask=[False, True, True, False])
    x, v = mg.var("x", shape=(4,), dtype="float64"), mg.var("v", init=np.ones(4))
    net = mg.NeuralNetwork([mg.nn.Input((1,)), mg.nn.Dense(1)], loss="mse")
    f = mg.function([x], x + 1.0)
    for error, take in (
        (mg.FeedError, lambda: f(holes)),
        (mg.FeedError, lambda: x.eval({x: holes})),
        (mg.DTypeError, lambda: x * holes),
        (mg.DTypeError, lambda: mg.sum(holes)),
        (mg.DTypeError, lambda: mg.constant(holes, dtype="float32")),
        (mg.DTypeError, lambda: mg.var("w", init=holes)),
        (mg.DTypeError, lambda: v.assign(holes)),
        (ValueError, lambda: mg.Tensor((4,), init=holes)),
        (mg.DataError, lambda: mg.batches(np.ones(4), holes, size=2)),
        (mg.DataError, lambda: net.fit(holes[:, None], np.ones(4))),
        (mg.DataError, lambda: net.predict(holes[:, None])),
    ):
        with pytest.raises(error, match="2 of 4 elements are masked; array.filled"):
            take()
    assert v.value.tolist() == [1.0] * 4
    assert f(np.ma.array([1.0, 2.0, 3.0, 4.0])).tolist() == [2.0, 3.0, 4.0, 5.0]  # none is masked


def test_complex_feeds_of_real_inputs_name_their_parts() -> None:
    f, _, _, _ = network()
    with pytest.raises(mg.FeedError, match=r"\n  try: array\.real, array\.imag, or"):
        f(GOOD.astype(np.complex64), INTS)


def test_nothing_to_optimize() -> None:
    x = mg.var("x", init=5.0)
    optimizer = mg.optimizer.SGD(0.1)
    for who, call in (
        ("minimize", lambda: optimizer.minimize(x**2, [])),
        ("step", lambda: optimizer.step(x**2, [], outputs=[x**2])),
    ):
        with pytest.raises(mg.UpdateError, match=f"^{who}: wrt names no variable\n  expected: at"):
            call()
    assert optimizer.updates(x**2, []) == {}


def test_gradients_asked_for_wrongly() -> None:
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=np.ones(3, np.float32))
    with pytest.raises(mg.GradientError):
        mg.grad(mg.sum(x), w)
    with pytest.raises(mg.GradientError):
        mg.grad(x * w, w)
    assert mg.grad(mg.sum(x), w, unused="zeros").shape == (3,)


def test_nodes_do_not_change() -> None:
    x = mg.var("x", shape=("batch", 3))
    y, w = mg.exp(x), mg.var("w", init=1.0)
    for node in (x, y, w):
        before = (node.op, node.inputs, node.attrs, node.type)
        for name in ("op", "inputs", "attrs", "type", "shape", "dtype"):
            with pytest.raises(AttributeError, match=f"'{name}' of a node is set, and nodes do "):
                setattr(node, name, None)
        assert before == (node.op, node.inputs, node.attrs, node.type)
    with pytest.raises(AttributeError):
        y.color = "red"
    y.name, w.value = "y", 2.0  # a name says nothing of what is computed
    assert "'y'" in repr(y) and w.value == 2.0
    assert type(w) is mg.Variable and type(pickle.loads(pickle.dumps(w))) is mg.Variable


def test_nodes_do_not_pass_for_values() -> None:
    x = mg.var("x", shape=("batch",))
    y = mg.var("y", shape=(3,))
    with pytest.raises(TypeError, match="node is None"):
        x == None  # noqa: E711
    for condition in (x, x == 3.0, x != x):
        with pytest.raises(TypeError, match=r"mg\.where"):
            bool(condition)
    with pytest.raises(TypeError, match="eval"):
        float(x)
    with pytest.raises(TypeError, match="eval"):
        np.asarray(x)
    with pytest.raises(mg.ShapeError, match="iteration over the axis 'batch'"):
        list(x)
    assert len(list(y)) == 3


def test_a_function_s_name_is_a_string() -> None:
    x = mg.var("x", shape=(3,))
    with pytest.raises(mg.ConfigError) as raised:
        mg.function([x], x, name=3)  # type: ignore[arg-type]
    assert str(raised.value) == "name=3\n  expected: a string, or None"
    assert mg.function([x], x, name="f").name == "f" and mg.function([x], x).name is None
