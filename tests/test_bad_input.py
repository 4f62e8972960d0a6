"""Wrong input: every mistake has its own clear error and leaves everything as it was.

The texts are exact. Where a line of the user's source is named, ``{here}`` stands for it.
"""

from __future__ import annotations

from collections.abc import Callable
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
NAMES = "  needed: feeds for the inputs: 'x', 'k'"

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
        "  needed: 2 axes, shape (batch, 3)",
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
        lambda f, x, k: f(np.ones((2, 3), np.int64), INTS),
        "input 'x' (float32[batch, 3]) is fed int64, and ints are not fed to float32\n"
        "  needed: float32, or values of its kind that fit\n"
        "  mend: array.astype('float32')",
    ),
    "int out of range": (
        lambda f, x, k: f(GOOD, np.array([1, 2**40])),
        "input 'k' (int32[batch]) is fed int64 values that int32 does not hold",
    ),
    "text": (
        lambda f, x, k: f(np.array([["a", "b", "c"]]), INTS),
        "input 'x' (float32[batch, 3]) is fed str32 values",
    ),
    "objects": (
        lambda f, x, k: f(np.array([[None, 1, 2]], dtype=object), INTS),
        "input 'x' (float32[batch, 3]) is fed object values",
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
    with pytest.raises(mg.UpdateError, match="needed: dtype float32"):
        mg.function([x], x, updates={w: mg.cast(w, "int32")})
    with pytest.raises(mg.UpdateError, match=r"needed: shape \(3,\)"):
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
        w.assign(np.zeros(3, np.int64))
    np.testing.assert_array_equal(w.value, np.ones(3))


def test_text_is_no_value() -> None:
    x = mg.var("x", shape=("batch", 3))
    for make in (lambda: x + "a", lambda: mg.function([x], "a"), lambda: mg.sin("a")):
        with pytest.raises(mg.DTypeError) as caught:
            make()
        assert str(caught.value).splitlines() == [
            "the text 'a' stands where a value is computed with",
            "  needed: a node, a number or an array",
        ]
    with pytest.raises(mg.DTypeError, match="axis='batch' is not an int"):
        mg.sum(x, axis="batch")


def test_complex_feeds_of_real_inputs_name_their_parts() -> None:
    f, _, _, _ = network()
    with pytest.raises(mg.FeedError, match=r"\n  mend: array\.real, array\.imag, or"):
        f(GOOD.astype(np.complex64), INTS)


def test_nothing_to_optimize() -> None:
    x = mg.var("x", init=5.0)
    optimizer = mg.optimizer.SGD(0.1)
    for who, call in (
        ("minimize", lambda: optimizer.minimize(x**2, [])),
        ("step", lambda: optimizer.step(x**2, [], outputs=[x**2])),
    ):
        with pytest.raises(mg.UpdateError, match=f"^{who}: wrt names no variable\n  needed: at l"):
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


def test_nodes_do_not_pass_for_values() -> None:
    x = mg.var("x", shape=("batch",))
    y = mg.var("y", shape=(3,))
    assert (x == x) is True
    assert (x != y) is True
    with pytest.raises(TypeError, match=r"mg\.equal"):
        x == 3.0
    with pytest.raises(TypeError, match=r"mg\.where"):
        bool(x)
    with pytest.raises(TypeError, match="eval"):
        float(x)
    with pytest.raises(TypeError, match="eval"):
        np.asarray(x)
    with pytest.raises(mg.ShapeError, match="iteration over the axis 'batch'"):
        list(x)
    assert len(list(y)) == 3
