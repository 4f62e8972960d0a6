"""Taps, asserts, values of any node, and who is to blame for a NaN."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.checks.debug import assert_ as asserted
from magmagraph.errors import CheckError, DTypeError, GraphError, NonFiniteError
from magmagraph.ir.op import Effect


def here() -> str:
    """Return the caller's line, as nodes know it."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Seen(list[Any]):
    """What a tap was given."""

    def __call__(self, array: np.ndarray) -> None:
        self.append(array)


def training(tapped: Any = None) -> tuple[mg.Function, dict[str, mg.Node], np.ndarray]:
    """Return a step whose hidden layer, gradient and new value are tapped, if asked for."""
    rng = np.random.default_rng(0)
    look = (lambda node, name: tapped(node, name)) if tapped else (lambda node, name: node)
    x = mg.var("x", shape=("batch", 6))
    w = mg.var("w", init=rng.normal(size=(6, 4)).astype(np.float32))
    product = x @ w
    hidden = look(product, "hidden")
    loss = mg.mean(mg.tanh(hidden) ** 2)
    gradient = look(mg.grad(loss, w), "gradient")
    new = look(w - 0.1 * gradient, "new")
    function = mg.function([x], loss, {w: new})
    return function, {"w": w, "product": product}, rng.normal(size=(5, 6)).astype(np.float32)


# ---------------------------------------------------------------------- taps


def test_taps_see_each_call_in_order_and_change_nothing() -> None:
    seen: dict[str, Seen] = {}

    def tapped(node: mg.Node, name: str) -> mg.Node:
        return mg.debug.tap(node, seen.setdefault(name, Seen()))

    function, nodes, batch = training(tapped)
    plain, plain_nodes, _ = training()
    w = nodes["w"].value
    loss = function(batch)
    np.testing.assert_array_equal(loss, plain(batch))
    np.testing.assert_array_equal(nodes["w"].value, plain_nodes["w"].value)
    assert {name: len(found) for name, found in seen.items()} == {
        "hidden": 1, "gradient": 1, "new": 1,
    }
    np.testing.assert_allclose(seen["hidden"][0], batch @ w, rtol=1e-5)
    np.testing.assert_array_equal(seen["new"][0], nodes["w"].value)
    function(batch)
    assert len(seen["new"]) == 2
    assert [node.op.effect for node in function.graph.effects] == [Effect.ORDERED] * 3
    # What is tapped is stored; everything else is optimized as without: the update in one product.
    text = str(function.report)
    assert "product to gemm x2" in text


def test_print_writes_label_type_range_and_values(capsys: Any) -> None:
    x = mg.var("x", shape=(2,))
    doubled = mg.debug.print(x * 2.0, "doubled")
    y = mg.debug.print(doubled + 1.0)
    line = here()
    mg.function([x], y)([1.0, 2.0])
    place = line.rpartition("/")[2].rpartition(":")
    assert capsys.readouterr().out == (
        "doubled: float32[2] in [2, 4]\n[2. 4.]\n"
        f"add at {place[0]}:{int(place[2]) - 1}: float32[2] in [3, 5]\n[3. 5.]\n"
    )


def test_prints_run_in_the_order_in_which_they_are_written(capsys: Any) -> None:
    """Also where the data would allow any order, and where a variable is renewed in between."""
    w = mg.var("w", init=[1.0])
    new = mg.debug.print(w + 1.0, "first")
    old = mg.debug.print(w, "second")
    both = mg.debug.print(mg.sum(old) * 2.0, "third")
    function = mg.function([], both, {w: new})
    for _ in range(2):
        function()
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if ":" in line]
    assert said == ["first", "second", "third"] * 2
    np.testing.assert_array_equal(w.value, [3.0])


def test_taps_survive_what_drops_their_readers() -> None:
    seen = Seen()
    x = mg.var("x", shape=(2,))
    gone = mg.debug.tap(mg.exp(x), seen)
    function = mg.function([x], gone - gone + x)
    np.testing.assert_array_equal(function([0.0, 0.0]), [0.0, 0.0])
    np.testing.assert_array_equal(seen, [[1.0, 1.0]])


def test_equal_values_that_are_tapped_twice_are_seen_twice() -> None:
    seen = Seen()
    x = mg.var("x", shape=())
    first, second = (mg.debug.tap(mg.exp(x), seen) for _ in range(2))
    mg.function([x], first + second)(0.0)
    assert len(seen) == 2


def test_gradients_pass_through_taps_and_asserts() -> None:
    x = mg.var("x", init=[1.0, 2.0])
    looked = asserted(x > 0.0, mg.debug.tap(x * x, Seen()), "positive")
    np.testing.assert_array_equal(mg.grad(mg.sum(looked), x).eval(), [2.0, 4.0])
    second = mg.grad(mg.sum(mg.grad(mg.sum(looked**2), x)), x)
    np.testing.assert_array_equal(second.eval(), [12.0, 48.0])
    tangent = mg.jvp(looked, x, mg.constant([1.0, 1.0]))
    np.testing.assert_array_equal(tangent.eval(), [2.0, 4.0])


def test_a_tap_hides_no_stable_form_from_the_gradient() -> None:
    """The logarithm of a softmax that is zero: only together they have a finite gradient."""
    gradients = []
    for look in (lambda node: node, lambda node: mg.debug.tap(node, Seen())):
        x = mg.var("x", shape=(3,))
        chances = look(mg.softmax(look(x)))
        loss = -look(mg.sum(mg.log(chances) * mg.constant([0.0, 1.0, 0.0])))
        function = mg.function([x], [mg.grad(loss, x), mg.grad(loss, chances)])
        gradients.append(function([0.0, -1e4, 3.0]))
    for plain, tapped in zip(*gradients, strict=True):
        np.testing.assert_array_equal(plain, tapped)
    assert np.isfinite(gradients[0][0]).all()


def test_a_checkpoint_is_looked_at_once() -> None:
    seen = Seen()
    x = mg.var("x", init=[0.5])
    block = mg.checkpoint(lambda h: mg.sin(mg.debug.tap(mg.exp(h), seen)))
    value = mg.sum(block(x))
    mg.function([], [value, mg.grad(value, x)])()
    assert len(seen) == 1


def test_under_vmap_all_examples_are_seen_at_once() -> None:
    seen = Seen()
    xs = mg.var("xs", shape=("n", 2))

    def one(row: mg.Node) -> mg.Node:
        held = asserted(mg.sum(row) < 10.0, mg.debug.tap(row * 2.0, seen), "small")
        return mg.sum(held)

    function = mg.function([xs], mg.vmap(one)(xs))
    np.testing.assert_array_equal(function([[1.0, 2.0], [3.0, 4.0]]), [6.0, 14.0])
    np.testing.assert_array_equal(seen[0], [[2.0, 4.0], [6.0, 8.0]])
    with pytest.raises(CheckError, match=r"^small: 1 of 2 elements do not hold, first at \(1,\)"):
        function([[1.0, 2.0], [30.0, 4.0]])


def test_in_a_loop_each_iteration_is_seen() -> None:
    seen = Seen()
    a = mg.var("a", init=4.0)
    found = mg.fixed_point(lambda x: (mg.debug.tap(x, seen) + a / x) / 2.0, 1.0)
    value, steps = mg.function([], [found.value, found.steps])()
    assert float(value) == 2.0
    assert len(seen) == steps > 3
    assert seen[0] == 1.0


def test_in_a_scan_each_step_is_seen_once_with_and_without_its_gradient() -> None:
    seen = Seen()
    xs = mg.var("xs", shape=("n", 3))
    w = mg.var("w", init=[1.0])

    def body(carry: mg.Node, x: mg.Node) -> tuple[mg.Node, mg.Node]:
        held = mg.debug.tap(carry + x, seen)
        held = asserted(mg.sum(held) < 100.0, held, "small")
        return held, held * held

    last, squares = mg.scan(body, mg.constant(np.zeros(3, np.float32)), xs)
    gradient = mg.grad(mg.sum(squares), xs)
    function = mg.function([xs], [last, gradient], {w: w + 1.0})
    last_value, _ = function(np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(last_value, [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(seen, [np.full(3, i) for i in (1.0, 2.0, 3.0, 4.0)])
    with pytest.raises(CheckError, match="^small: the condition does not hold"):
        function(np.full((4, 3), 20.0, np.float32))
    np.testing.assert_array_equal(w.value, [2.0])


def test_of_a_branch_only_what_is_taken_is_seen() -> None:
    first, second = Seen(), Seen()
    x = mg.var("x", shape=())
    chosen = mg.cond(
        x > 0.0, lambda: mg.debug.tap(x * 2.0, first), lambda: mg.debug.tap(x * 3.0, second)
    )
    assert float(mg.function([x], chosen)(1.0)) == 2.0
    assert (len(first), len(second)) == (1, 0)


def test_what_a_callback_raises_ends_the_call_and_lands_nothing() -> None:
    def fail(array: np.ndarray) -> None:
        raise KeyError("mine")

    w = mg.var("w", init=[1.0])
    function = mg.function([], None, {w: mg.debug.tap(w * 2.0, fail)})
    with pytest.raises(KeyError, match="mine"):
        function()
    np.testing.assert_array_equal(w.value, [1.0])


def test_taps_are_pickled_copied_and_saved(tmp_path: Any, capsys: Any) -> None:
    x = mg.var("x", shape=(2,))
    function = mg.function([x], mg.debug.print(x + 1.0, "said") * 2.0)
    function.save(tmp_path / "f.magma")
    for again in (
        pickle.loads(pickle.dumps(function)),
        copy.deepcopy(function),
        mg.load(tmp_path / "f.magma"),
        mg.substitute(function, {x: x}),
    ):
        np.testing.assert_array_equal(again([0.0, 1.0]), [2.0, 4.0])
        assert capsys.readouterr().out == "said: float32[2] in [1, 2]\n[1. 2.]\n"


def test_a_loaded_tap_prints_since_files_hold_no_code(tmp_path: Any, capsys: Any) -> None:
    x = mg.var("x", shape=(2,))
    mg.function([x], mg.debug.tap(x + 1.0, Seen(), "said")).save(tmp_path / "f.magma")
    np.testing.assert_array_equal(mg.load(tmp_path / "f.magma")([0.0, 1.0]), [1.0, 2.0])
    assert capsys.readouterr().out == "said: float32[2] in [1, 2]\n[1. 2.]\n"


def test_looking_at_a_function_mutes_its_taps(capsys: Any) -> None:
    x = mg.var("x", shape=(2,))
    positive = asserted(x > 0.0, x, "positive")
    function = mg.function([x], mg.exp(mg.debug.print(positive, "said")))
    bad = [-1.0, 1.0]
    assert function.check(bad).ok
    function.profile(bad)
    function.ablate(bad, rounds=1)
    mg.debug.values(function, positive, bad)
    assert capsys.readouterr().out == ""
    with pytest.raises(CheckError):
        function(bad)


def test_explain_and_plan_show_taps() -> None:
    x = mg.var("x", shape=(2,))
    tap = mg.debug.print(mg.exp(x), "said")
    function = mg.function([x], tap + 1.0)
    (use,) = function.explain(tap).kernels
    assert function.plan.steps[use.step].node.attrs["label"] == "said"
    assert "tap of" in str(function.plan)


def test_wrong_taps_are_refused() -> None:
    x = mg.var("x", shape=(2,))
    with pytest.raises(GraphError, match="^tap: the callback is str\n  expected: a function"):
        mg.debug.tap(x, "label")  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="^assert: the condition is float32\n  expected: bool"):
        asserted(x, x)


# ---------------------------------------------------------------------- asserts


def test_a_failing_assert_names_node_and_line_and_lands_no_update() -> None:
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=np.ones(3, np.float32))
    total = mg.var("total", init=0.0)
    held = asserted(x < 5.0, x, "x is small"); line = here()  # noqa: E702
    function = mg.function([x], mg.sum(held), {w: w + 1.0, total: total + mg.sum(held)})
    function([1.0, 2.0, 3.0])
    with pytest.raises(CheckError) as raised:
        function([1.0, 7.0, 9.0])
    assert isinstance(raised.value, AssertionError)
    assert str(raised.value) == (
        "x is small: 2 of 3 elements do not hold, first at (1,); the value is in [1, 9]\n"
        "  expected: a condition that is true everywhere; no variable was changed\n"
        f"  node: float32[3] by assert, made at {line}"
    )
    np.testing.assert_array_equal(w.value, [2.0, 2.0, 2.0])
    assert float(total.value) == 6.0
    function([1.0, 1.0, 1.0])
    assert float(total.value) == 9.0


def test_finite_refuses_nan_and_infinity() -> None:
    x = mg.var("x", shape=(2,))
    function = mg.function([x], mg.debug.finite(mg.log(x), "logarithm"))
    np.testing.assert_array_equal(function([1.0, 1.0]), [0.0, 0.0])
    with pytest.raises(CheckError, match="^logarithm is finite: 2 of 2 elements .* 1 NaN, 1 inf"):
        function([0.0, -1.0])


# ---------------------------------------------------------------------- values


def test_values_of_nodes_that_optimization_took_away() -> None:
    function, nodes, batch = training()
    w = nodes["w"].value
    inside = mg.debug.values(function, nodes["product"], batch)
    np.testing.assert_allclose(inside, batch @ w, rtol=1e-5)
    np.testing.assert_array_equal(function.value(nodes["w"], batch), w)
    assert nodes["w"].attrs["state"].version == 0
    x = mg.var("x", shape=(2,))
    twice = mg.negative(x)
    function = mg.function([x], mg.negative(twice))
    first, second = mg.debug.values(function, [twice, x], [1.0, 2.0])
    np.testing.assert_array_equal(first, [-1.0, -2.0])
    np.testing.assert_array_equal(second, [1.0, 2.0])
    first[:] = 0.0  # they are the caller's
    np.testing.assert_array_equal(function.value(twice, [1.0, 2.0]), [-1.0, -2.0])
    with pytest.raises(GraphError, match="the function does not compute 'y'"):
        function.value(mg.var("y", shape=()), [1.0, 2.0])
    with pytest.raises(GraphError, match="^int has no value"):
        function.value(3, [1.0, 2.0])  # type: ignore[arg-type]


def test_values_come_from_the_optimized_graph() -> None:
    """The stable form of a log-softmax is finite where the written one is not."""
    x = mg.var("x", shape=(2,))
    written = mg.log(mg.softmax(x))
    function = mg.function([x], written * 2.0)
    assert np.isfinite(function.value(written, [0.0, 500.0])).all()


def test_values_of_several_results_and_of_taps() -> None:
    x = mg.var("x", shape=(3, 3), dtype="float64")
    q, r = mg.linalg.qr(x)
    tap = mg.debug.tap(q @ r, Seen())
    function = mg.function([x], mg.sum(tap))
    value = np.arange(9.0).reshape(3, 3) + np.eye(3)
    both = function.value(q.inputs[0], value)
    assert isinstance(both, tuple)
    np.testing.assert_allclose(both[0] @ both[1], value, atol=1e-12)
    np.testing.assert_allclose(function.value(tap, value), value, atol=1e-12)


# ---------------------------------------------------------------------- blame


def test_blame_names_the_line_in_the_forward_pass() -> None:
    x = mg.var("x", shape=(3,))
    shifted = x - 1.0
    root = mg.sqrt(shifted); line = here()  # noqa: E702
    function = mg.function([x], mg.sum(mg.exp(root)))
    assert mg.debug.blame(function, [1.0, 2.0, 3.0]) is None
    found = mg.debug.blame(function, [1.0, 0.5, 3.0])
    assert found is not None
    assert found.node is root
    assert found.lines == (line,)
    assert found.place == (1,)
    assert [(part.node, part.range, part.value) for part in found.operands] == [
        (shifted, "in [-0.5, 2]", -0.5)
    ]
    assert found.spoils == ("output 0",)
    assert found.forward is None
    text = str(found)
    assert text.startswith(f"float32[3] by sqrt, made at {line} makes the first value")
    assert "in [-0.5, 2], there -0.5" in text
    assert json.loads(found.to_json())["operation"] == "sqrt"


def test_blame_names_the_forward_line_of_a_gradient() -> None:
    x = mg.var("x", shape=(3,))
    w = mg.var("w", init=[1.0, 0.0, 2.0])
    root = mg.sqrt(w); line = here()  # noqa: E702
    gradient = mg.grad(mg.sum(root * x), w)
    function = mg.function([x], mg.sum(root * x), {w: w - 0.1 * gradient})
    found = mg.debug.blame(function, [1.0, 1.0, 1.0])
    assert found is not None
    assert found.forward is root
    assert f"in the gradient of: float32[3] by sqrt, made at {line}" in str(found)
    assert found.spoils == ("variable 'w'",)
    assert found.place == (1,)
    np.testing.assert_array_equal(w.value, [1.0, 0.0, 2.0])


def test_blame_names_the_line_of_an_update() -> None:
    w = mg.var("w", init=[1.0, 0.0])
    scale = mg.var("scale", init=[1.0, 0.0])
    loss = mg.sum(w * w)
    gradient = mg.grad(loss, w)
    step = gradient / scale; line = here()  # noqa: E702
    function = mg.function([], loss, {w: w - step})
    found = mg.debug.blame(function)
    assert found is not None
    assert found.node is step
    assert found.lines == (line,)
    assert found.spoils == ("variable 'w'",)
    assert [part.value for part in found.operands] == [0.0, 0.0]


def test_blame_of_an_optimizer() -> None:
    w = mg.var("w", init=[-1.0, 4.0])
    loss = mg.sum(mg.log(w))
    step = mg.optimizer.Adam(0.1).step(loss, [w], outputs=[loss])
    found = mg.debug.blame(step)
    assert found is not None
    assert found.node is loss.inputs[0]
    assert found.spoils[0] == "output 0"


def test_blame_of_what_was_fed_and_held() -> None:
    x, w = mg.var("x", shape=(2,)), mg.var("w", init=[1.0, np.inf])
    found = mg.debug.blame(mg.function([x], mg.sum(x * 2.0)), [np.nan, 1.0])
    assert found is not None
    assert found.node is x
    assert "'x' float32[2] by input" in str(found)
    assert "holds the first value" in str(found)
    found = mg.debug.blame(mg.function([x], mg.sum(x * w)), [1.0, 1.0])
    assert found is not None
    assert found.node is w


def test_blame_passes_over_a_mask_and_over_what_is_repaired() -> None:
    x = mg.var("x", shape=(None, 3))
    masked = mg.where(x > 0.0, x, -np.inf)
    shifted = masked - mg.max(masked, axis=1, keepdims=True); line = here()  # noqa: E702
    function = mg.function([x], mg.exp(shifted))
    assert mg.debug.blame(function, [[1.0, -1.0, 2.0]]) is None
    found = mg.debug.blame(function, [[1.0, -1.0, 2.0], [-1.0, -1.0, -1.0]])
    assert found is not None
    assert found.lines == (line,), str(found)
    assert found.place == (1, 0)
    repaired = mg.function([x], mg.log(mg.softmax(x)))
    assert mg.debug.blame(repaired, [[1e4, -1e4, 0.0]]) is None


def test_blame_stands_in_the_error_of_a_refused_call() -> None:
    x = mg.var("x", shape=(2,))
    w = mg.var("w", init=[1.0, 1.0])
    function = mg.function([x], None, {w: w + mg.log(x)}, nan="raise"); line = here()  # noqa: E702
    function([1.0, 1.0])
    with pytest.raises(NonFiniteError) as raised:
        function([1.0, -1.0])
    text = str(raised.value)
    assert text.startswith("the new value of variable 'w' holds 1 values that are not finite")
    assert f"float32[2] by log, made at {line} makes the first value that is not finite" in text
    np.testing.assert_array_equal(w.value, [1.0, 1.0])


def test_a_refused_call_of_much_work_only_names_how_to_ask(monkeypatch: Any) -> None:
    from magmagraph.inspect.checking import blame

    monkeypatch.setattr(blame, "_QUICK", 1)
    x = mg.var("x", shape=(2,))
    with pytest.raises(NonFiniteError) as raised:
        mg.function([x], mg.log(x), nan="raise")([1.0, -1.0])
    assert str(raised.value).endswith("mg.debug.blame(f, ...) names the node that made the first")
