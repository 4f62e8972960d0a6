"""`mg.function(..., precision=)` on the CPU: values, types, scaled losses, their state, errors."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table import assert_agrees

import magmagraph as mg
from magmagraph.dtypes import canonical
from magmagraph.errors import PassError
from magmagraph.ops.products.rounded import tf32

LOWER = ("tf32", "bfloat16", "float16")
HALVES = ("bfloat16", "float16")


def classifier(
    precision: str, optimizer: Any = None, **options: Any
) -> tuple[Any, list[Any]]:
    """Return a training step of a small network, and its variables."""
    x, labels = mg.input("x", ("n", 20)), mg.input("labels", ("n",), dtype="int32")
    sizes = (20, 32, 24, 5)
    variables: list[Any] = []
    value: Any = x
    for layer in range(3):
        init = mg.init.glorot_uniform(seed=layer)
        variables.append(mg.var(f"W{layer}", shape=sizes[layer : layer + 2], init=init))
        variables.append(mg.var(f"b{layer}", shape=(sizes[layer + 1],), init=mg.init.zeros()))
        value = value @ variables[-2] + variables[-1]
        value = value if layer == 2 else mg.gelu(value, approximate=True)
    loss = mg.cross_entropy(value, labels)
    chosen = mg.optimizer.SGD(0.2) if optimizer is None else optimizer
    step = chosen.step(loss, variables, [x, labels], [loss], precision=precision, **options)
    return step, variables


def batch(rng: np.random.Generator, rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((rows, 20)).astype("f4"), rng.integers(0, 5, rows).astype("i4")


def test_tf32_rounds_to_nearest_even_at_10_bits() -> None:
    unit = 2.0**-10
    given = np.array([1, 1 + unit / 2, 1 + unit * 1.5, 1 + unit * 0.51, -1 - unit / 2], "f4")
    np.testing.assert_array_equal(
        tf32(np, given), np.array([1, 1, 1 + 2 * unit, 1 + unit, -1], "f4")
    )
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3.4028235e38, 1e-42], "f4")
    rounded = tf32(np, special)
    np.testing.assert_array_equal(rounded[:2], special[:2])
    assert np.isnan(rounded[2])
    assert np.signbit(rounded[4])
    assert np.isinf(rounded[5]), "what is beyond the largest number rounds to infinity"


@pytest.mark.parametrize("precision", LOWER)
def test_a_product_is_that_of_rounded_operands(precision: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(s).astype("f4") for s in ((30, 70), (70, 20)))
    x, y = mg.input("x", a.shape), mg.input("y", b.shape)
    made = mg.function([x, y], x @ y, precision=precision)(a, b)
    assert made.dtype == np.float32
    if precision == "tf32":
        left, right = tf32(np, a), tf32(np, b)
    else:
        left, right = (v.astype(canonical(precision)) for v in (a, b))
    wanted = left.astype("f8") @ right.astype("f8")
    assert_agrees(made, wanted, "reassoc")
    assert np.abs(made - a.astype("f8") @ b.astype("f8")).max() > 1e-4


@pytest.mark.parametrize("precision", HALVES)
def test_what_goes_on_is_rounded_once_more(precision: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((24, 24)).astype("f4") for _ in range(2))
    x, y = mg.input("x", a.shape), mg.input("y", b.shape)
    made = mg.function([x, y], mg.tanh(x @ y) @ y, precision=precision)(a, b)
    half = canonical(precision)
    first = (a.astype(half).astype("f4") @ b.astype(half).astype("f4")).astype(half)
    second = np.tanh(first.astype("f4")).astype(half).astype("f8") @ b.astype(half).astype("f8")
    assert_agrees(made, second, "half", np.abs(second).max())


@pytest.mark.parametrize("precision", LOWER)
def test_training_agrees_with_float32(precision: str, rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    lower, ours = classifier(precision)
    full, theirs = classifier("float32")
    begun = [v.value for v in theirs]
    losses = []
    for _ in range(6):
        (loss,), (right,) = lower(x, labels), full(x, labels)
        assert_agrees(loss, right, "half")
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    for made, right, old in zip(ours, theirs, begun, strict=True):
        assert made.value.dtype == np.float32
        change = np.linalg.norm(right.value - old)
        assert np.linalg.norm(made.value - right.value) < 0.05 * change


@pytest.mark.parametrize(
    ("precision", "optimizer"), [("tf32", "RMSProp"), ("bfloat16", "LAMB"), ("float16", "Adam")]
)
def test_optimizers(precision: str, optimizer: str, rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    make = getattr(mg.optimizer, optimizer)
    step, _ = classifier(precision, make(1e-2, clip_norm=1.0))
    losses = [float(step(x, labels)[0]) for _ in range(8)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("precision", LOWER)
def test_float64_and_explicit_casts_never_change(precision: str, rng: np.random.Generator) -> None:
    a = rng.standard_normal((16, 16))
    x = mg.input("x", a.shape, dtype="float64")
    wide = mg.tanh(x @ x) @ x
    narrow = mg.cast(mg.cast(x, "float16") @ mg.cast(x, "float16"), "float64")
    lowered = mg.function([x], [wide, narrow], precision=precision)
    full = mg.function([x], [wide, narrow])
    for made, right in zip(lowered(a), full(a), strict=True):
        np.testing.assert_array_equal(made, right)


@pytest.mark.parametrize("precision", LOWER)
def test_skipped_it_is_float32_to_the_bit(precision: str, rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    skipped, ours = classifier(precision, skip=("precision",))
    full, theirs = classifier("float32")
    for _ in range(3):
        np.testing.assert_array_equal(skipped(x, labels)[0], full(x, labels)[0])
    for made, right in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(made.value, right.value)


@pytest.mark.parametrize("precision", LOWER)
def test_convolutions(precision: str, rng: np.random.Generator) -> None:
    image = rng.standard_normal((2, 3, 10, 10)).astype("f4")
    x = mg.input("x", ("n", 3, 10, 10))
    w = mg.var("w", shape=(4, 3, 3, 3), init=mg.init.normal(std=0.2, seed=1))
    v = mg.var("v", shape=(5, 4, 3, 3), init=mg.init.normal(std=0.2, seed=2))
    first = mg.tanh(mg.conv2d(x, w))
    value = mg.conv2d(mg.avg_pool2d(first, 2), v)
    pooled = mg.conv2d(mg.max_pool2d(first, 2), v)
    outputs = [value, pooled, *mg.grad(mg.mean(value * value), [w, v])]
    made = mg.function([x], outputs, precision=precision)(image)
    for part, right in zip(made, mg.function([x], outputs)(image), strict=True):
        assert part.dtype == np.float32
        assert_agrees(part, right, "half", np.abs(right).max())
        assert np.any(part != right), "nothing was rounded"


@pytest.mark.parametrize(
    ("precision", "algorithm"), [("bfloat16", "rows"), ("float16", "rows"), ("float16", "full")]
)
def test_attention(precision: str, algorithm: str, rng: np.random.Generator) -> None:
    given = [rng.standard_normal((2, 3, 12, 8)).astype("f4") for _ in range(3)]
    q, k, v = (mg.input(name, (2, 3, 12, 8)) for name in "qkv")
    value = mg.scaled_dot_product_attention(q, k, v, algorithm=algorithm, block=5)
    outputs = [value, *mg.grad(mg.sum(value * value), [q, k, v])]
    made = mg.function([q, k, v], outputs, precision=precision)(*given)
    for part, right in zip(made, mg.function([q, k, v], outputs)(*given), strict=True):
        assert part.dtype == np.float32
        assert_agrees(part, right, "half", np.abs(right).max())


# ---- Scaled losses


def test_gradients_too_small_for_float16_arrive(rng: np.random.Generator) -> None:
    a = rng.standard_normal((16, 16)).astype("f4")
    x, w = mg.input("x", a.shape), mg.var("w", init=np.eye(16, dtype="f4"))
    hidden = mg.tanh(x @ w)
    loss = mg.sum(mg.tanh(hidden @ w)) * 1e-7
    gradient = mg.grad(loss, w)
    right = mg.function([x], gradient)(a)
    f = mg.function([x], gradient, precision="float16")
    assert_agrees(f(a) * 1e7, right * 1e7, "half", np.abs(right).max() * 1e7)
    f.loss_scale.scale.value = 1.0
    lost = f(a)
    assert np.abs(lost - right).max() > 0.2 * np.abs(right).max(), "it would not have been needed"


def test_an_overflow_skips_all_updates_together(rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    optimizer = mg.optimizer.Adam(1e-2)
    step, variables = classifier("float16", optimizer)
    step(x, labels)
    state = step.loss_scale
    held = [*variables, *optimizer.state.values()]
    before = [v.value for v in held]
    state.scale.value = 2.0**40
    (loss,) = step(x, labels)
    assert np.isfinite(loss)
    for variable, old in zip(held, before, strict=True):
        np.testing.assert_array_equal(variable.value, old, err_msg=variable.name)
    assert (state.scale.value, state.steps.value, state.skipped.value) == (2.0**39, 0, 1)
    state.scale.value = 256.0
    step(x, labels)
    assert (state.scale.value, state.steps.value, state.skipped.value) == (256.0, 1, 1)
    assert all(np.any(v.value != old) for v, old in zip(variables, before, strict=False))


def test_a_loss_that_is_not_finite_changes_nothing_either(rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    step, variables = classifier("float16")
    before = [v.value for v in variables]
    x[3, 4] = np.nan
    assert np.isnan(step(x, labels)[0])
    for variable, old in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.value, old)


def test_the_scale_grows_after_finite_steps(rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    step, _ = classifier("float16", options={"loss_scale_growth": 3})
    state = step.loss_scale
    state.scale.value = 64.0
    seen = []
    for _ in range(7):
        step(x, labels)
        seen.append((float(state.scale.value), int(state.steps.value)))
    assert seen == [(64, 1), (64, 2), (128, 0), (128, 1), (128, 2), (256, 0), (256, 1)]


def test_the_scale_does_not_change_what_is_exact(rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    results = []
    for scale in (2.0**8, 2.0**12):
        step, variables = classifier("float16")
        step.loss_scale.scale.value = scale
        step(x, labels)
        results.append([v.value for v in variables])
    for one, other in zip(*results, strict=True):
        assert np.linalg.norm(one - other) < 1e-3 * np.linalg.norm(one)


def test_a_fetched_gradient_is_not_scaled_out_of_range(rng: np.random.Generator) -> None:
    x = mg.input("x", (32, 32))
    w = mg.var("w", init=np.eye(32, dtype="f4"))
    gradient = mg.grad(mg.sum(mg.tanh(x @ w) @ w), w)
    given = rng.standard_normal((32, 32)).astype("f4")
    right = mg.function([x], gradient)(given)
    f = mg.function([x], gradient, precision="float16")
    assert f.loss_scale.scale.value == 1024.0
    assert_agrees(f(given), right, "half", np.abs(right).max())


def test_results_of_a_skipped_step_are_told_by_its_count() -> None:
    """While the scale settles gradients are what float16 made of them; then they are unscaled."""
    x, w = mg.input("x", ("n", 4)), mg.var("w", init=np.ones((4, 4), np.float32))
    loss = mg.sum((x @ w) ** 2)
    gradient = mg.grad(loss, w)
    step = mg.function(
        [x], [loss, gradient], updates={w: w - 0.0 * gradient}, precision="float16", device="cpu"
    )
    rows = np.full((8, 4), 30.0, np.float32)
    held = step.loss_scale
    for _ in range(20):
        before = int(held.skipped.value)
        found = step(rows)
        skipped = int(held.skipped.value) > before
        assert np.isfinite(found[1]).all() == (not skipped)
        assert np.isfinite(found[0])
        if not skipped:
            break
    assert held.skipped.value > 0
    exact = 2.0 * rows.T.astype(np.float64) @ (rows @ np.ones((4, 4)))
    np.testing.assert_array_equal(found[1], exact)  # products of small whole numbers


def test_functions_without_float16_gradients_have_no_scale() -> None:
    x = mg.input("x", (8, 8))
    assert mg.function([x], x @ x, precision="float16").loss_scale is None
    for precision in ("float32", "tf32", "bfloat16"):
        assert classifier(precision)[0].loss_scale is None


def test_the_state_is_saved_pickled_and_copied(tmp_path: Path, rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    step, _ = classifier("float16", options={"loss_scale_growth": 2})
    step.loss_scale.scale.value = 512.0
    step(x, labels)
    step.save(tmp_path / "step.magma")
    others = [
        mg.load(tmp_path / "step.magma"),
        pickle.loads(pickle.dumps(step)),
        copy.deepcopy(step),
    ]
    wanted = [step(x, labels)[0] for _ in range(3)]
    for other in others:
        assert [v.value for v in other.loss_scale] == [512.0, 1, 0]
        assert other.loss_scale.scale is not step.loss_scale.scale
        for right in wanted:
            np.testing.assert_array_equal(other(x, labels)[0], right)
        assert [v.value for v in other.loss_scale] == [v.value for v in step.loss_scale]


def test_random_numbers_go_on_when_a_step_is_skipped(rng: np.random.Generator) -> None:
    x = mg.input("x", (16, 16))
    w = mg.var("w", init=np.eye(16, dtype="f4"))
    drawn = mg.random.uniform((4,))
    loss = mg.mean(mg.tanh(x @ w))
    f = mg.function([x], drawn, {w: w - mg.grad(loss, w)}, precision="float16")
    given = np.full((16, 16), np.inf, "f4")
    first, second = f(given), f(given)
    assert f.loss_scale.skipped.value == 2
    assert np.any(first != second)


def test_gradients_of_gradients(rng: np.random.Generator) -> None:
    a = rng.standard_normal((16, 16)).astype("f4") / 4
    x, w = mg.input("x", a.shape), mg.var("w", init=np.eye(16, dtype="f4") / 2)
    inner = mg.grad(mg.sum(mg.tanh(x @ w) ** 2), w)
    outer = mg.grad(mg.sum(inner * x), w)
    right = mg.function([x], [inner, outer])(a)
    for part, wanted in zip(
        mg.function([x], [inner, outer], precision="float16")(a), right, strict=True
    ):
        assert_agrees(part, wanted, "half", np.abs(wanted).max())


def test_derivatives_of_gradients_that_no_marker_ends(rng: np.random.Generator) -> None:
    x = mg.input("x", (8, 8))
    w = mg.var("w", init=rng.standard_normal((8, 8)).astype("f4") / 3)
    loss = mg.sum(mg.tanh(x @ w) @ w)
    gradient = mg.grad(loss, w)
    outputs = [
        mg.hessian(loss, w), mg.vjp(gradient, w, x), mg.jvp(gradient, w, x), gradient,
    ]  # fmt: skip
    given = rng.standard_normal((8, 8)).astype("f4")
    right = mg.function([x], outputs)(given)
    f = mg.function([x], outputs, precision="float16")
    for made, wanted in zip(f(given), right, strict=True):
        assert_agrees(made, wanted, "half", np.abs(wanted).max())
    (refusal,) = {r.reason for r in f.report["precision"].refusals if r.rule == "loss scaling"}
    assert "mg.hessian" in refusal


def test_gradients_of_complex_values(rng: np.random.Generator) -> None:
    start = (rng.standard_normal(6) + 1j * rng.standard_normal(6)).astype("c8")
    z, w = mg.var("z", init=start), mg.var("w", init=rng.standard_normal((6, 6)).astype("f4") / 3)
    loss = mg.mean(mg.absolute(z) ** 2) + mg.mean(mg.tanh(w @ mg.real(z)))
    gradients = mg.grad(loss, [z, w])
    right = mg.function([], gradients)()
    f = mg.function([], gradients, {z: z - 0.1 * gradients[0]}, precision="float16")
    for made, wanted in zip(f(), right, strict=True):
        assert_agrees(made, wanted, "half", np.abs(wanted).max())
    assert_agrees(z.value, start - 0.1 * right[0], "half", np.abs(start).max())


def test_a_step_may_be_resumed(rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    whole, _ = classifier("float16")
    wanted = [float(whole(x, labels)[0]) for _ in range(6)]
    first, _ = classifier("float16")
    losses = [float(first(x, labels)[0]) for _ in range(3)]
    rest = pickle.loads(pickle.dumps(first))
    losses += [float(rest(x, labels)[0]) for _ in range(3)]
    assert losses == wanted


# ---- Seeing


@pytest.mark.parametrize("precision", LOWER)
def test_check_names_the_pass_and_its_error(precision: str, rng: np.random.Generator) -> None:
    x, labels = batch(rng)
    step, _ = classifier(precision)
    step(x, labels)
    found = step.check(x, labels)
    assert found.ok, str(found)
    assert found.errors["contract"] < 1e-5 < found.errors["precision"] < 0.06


def test_ablate_and_report() -> None:
    x, w = mg.input("x", (8, 8)), mg.var("w", init=np.eye(8, dtype="f4"))
    f = mg.function([x], mg.tanh(x @ w) @ w, precision="bfloat16")
    measured = f.ablate(np.ones((8, 8), "f4"), rounds=1)
    assert "precision" in {row.name for row in measured}
    assert "product in bfloat16" in str(f.report)
    record = f.report["precision"]
    assert record.hits["product in bfloat16"] == 2
    assert any("variable 'w'" in note and "bytes" in note for note in record.notes)


def test_wrong_settings_are_refused() -> None:
    x = mg.input("x", (4, 4))
    with pytest.raises(ValueError, match="precision='half'"):
        mg.function([x], x, precision="half")
    with pytest.raises(PassError, match="loss_scale_growth=0"):
        mg.function([x], x @ x, precision="float16", options={"loss_scale_growth": 0})
