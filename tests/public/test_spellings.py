"""What users of other libraries try first: the error says what it is called here."""

from __future__ import annotations

import copy
import pickle
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph.errors import DTypeError, FeedError, GradientError, UpdateError
from magmagraph.help import spellings

X = mg.input("x", ("batch", 3))
W = mg.var("w", init=np.ones((3, 2), np.float32))
NET = mg.NeuralNetwork([mg.nn.Input((3,)), mg.nn.Dense(2)], loss="mse")


@pytest.mark.parametrize(
    ("tried", "hint"),
    [
        (lambda: X.unsqueeze(0), "mg.expand_dims(x, axis)"),  # type: ignore[attr-defined]
        (lambda: mg.sum(X).backward(), "mg.grad(loss, [w, b])"),  # type: ignore[attr-defined]
        (lambda: W.grad, "mg.grad(loss, w)"),  # type: ignore[attr-defined]
        (lambda: X.value, "only variables hold a value"),  # type: ignore[attr-defined]
        (lambda: W.item(), "x.value, an array"),  # type: ignore[attr-defined]
        (lambda: X.cumsum(0), "mg.cumsum(x)"),  # type: ignore[attr-defined]
        (lambda: X.softmax(), "mg.softmax(x)"),  # type: ignore[attr-defined]
        (lambda: mg.cat([X, X]), "mg.concatenate([a, b], axis=)"),
        (lambda: mg.random.randn(3), "mg.random.normal(shape)"),
        (lambda: mg.nn.Linear(3, 4), "mg.nn.Dense(units)"),
        (lambda: mg.amax(X), "mg.max(x, axis=)"),
        (lambda: mg.segment_sum(X, W, 3), "mg.zeros(shape).at[segments].add(x)"),
        (lambda: mg.shared(3), "mg.var(name, init=values)"),
        (lambda: mg.linalg.cho_factor(X), "mg.linalg.cholesky(a)"),
        (lambda: mg.array([[X]]), "mg.asarray([[a, 0.0], [b, c]]) of numbers and nodes"),
        (lambda: mg.binary_cross_entropy_with_logits(X, X), "mg.binary_cross_entropy(logits, lab"),
        (lambda: mg.soft_threshold(X, 0.1), "mg.softshrink(x, width)"),
        (lambda: mg.nn.LeakyReLU(0.2), "mg.leaky_relu(x, slope)"),
        (lambda: mg.nn.ModuleList([]), "a list of layers"),
        (lambda: mg.nn.Dense(3).parameters(), "layer.trainable_variables"),
        (lambda: mg.nn.Dense(3).forward(X), "layer(x)"),
        (lambda: NET.load_state_dict({}), "net.load_torch(state)"),
        (lambda: NET.train(), "net(x, training=True)"),
        (lambda: NET.eval(), "predict and evaluate do not"),
        (lambda: NET.to("cuda"), "mg.NeuralNetwork(..., device=)"),
        (lambda: NET.forward(X), "net(x), of nodes or arrays"),
        (lambda: NET.compile("adam"), "mg.NeuralNetwork(layers, loss=..., optimizer=..."),
        (lambda: NET.train_on_batch(1, 2), "net.step(x, y)"),
        (lambda: mg.optimizer.Adam(0.1).zero_grad(), "built again for each step"),
        (lambda: mg.optimizer.Adam(0.1).param_groups, "optimizer.learning_rate = rate"),
        (lambda: mg.flatten(X), "mg.nn.Flatten() keep the rows"),
        (lambda: mg.data.DataLoader(X), "fit takes a DataLoader of torch"),
        (lambda: mg.optimizer.lr_scheduler.StepLR, "mg.schedule"),
        (lambda: mg.schedule.StepLR, "mg.schedule.step(rate, every, factor)"),
        (lambda: mg.callbacks.ModelCheckpoint("path"), "monitor='val_loss'"),
        (lambda: mg.callbacks.ReduceLROnPlateau(), "mg.callbacks.ReduceOnPlateau("),
    ],
)
def test_a_name_of_another_library(tried: Callable[[], Any], hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        tried()
    assert "has no attribute" in str(caught.value) and hint in str(caught.value)


def test_every_counterpart_that_the_page_of_coverage_names_is_told() -> None:
    """Where the page says what NumPy's and `jax.nn`'s functions are called here, so does mg."""
    path = Path(__file__).parents[2] / "docs" / "coverage.toml"
    page = tomllib.loads(path.read_text())
    rare = {"common_type", "diag_indices_from", "iscomplexobj", "isrealobj", "mask_indices",
            "min_scalar_type", "polydiv", "show_config", "show_runtime", "sort_complex",
            "tril_indices_from", "triu_indices_from"}
    for library in ("NumPy", "jax.nn"):
        names = {name for name in page[library]["other"] if not hasattr(mg, name)}
        told = spellings.OF_MODULE["magmagraph"]
        assert names - rare <= set(told), names - rare - set(told)


def test_segments_as_the_mend_says() -> None:
    x, at = np.array([3.0, 5.0, 2.0, 7.0]), np.array([1, 0, 1, 1])
    for start, name, wanted in (
        (0.0, "add", [5.0, 12.0]), (1.0, "multiply", [5.0, 42.0]),
        (-np.inf, "max", [5.0, 7.0]), (np.inf, "min", [5.0, 2.0]),
    ):  # fmt: skip
        made = getattr(mg.full((2,), start, dtype="float64").at[at], name)(x)
        assert made.eval().tolist() == wanted


def test_other_names_are_missing_as_ever() -> None:
    assert not hasattr(X, "nothing") and not hasattr(mg, "nothing")
    with pytest.raises(AttributeError, match="'Node' object has no attribute 'nothing'$"):
        X.nothing  # type: ignore[attr-defined]  # noqa: B018
    for kept in (pickle.loads(pickle.dumps(W)), copy.deepcopy(W)):
        assert np.array_equal(kept.value, W.value)


def test_no_listed_name_exists() -> None:
    for module, names in spellings.OF_MODULE.items():
        place = mg if module == "magmagraph" else getattr(mg, module.partition(".")[2])
        assert not set(names) & set(place.__all__)
    objects = (
        (X, spellings.OF_NODE),
        (NET, spellings.OF_MODEL),
        (mg.nn.Dense(2), spellings.OF_LAYER),
        (NET.optimizer, spellings.OF_OPTIMIZER),
    )
    for held, names in objects:
        assert not [name for name in names if hasattr(held, name)]


def test_the_variables_of_a_network_are_not_given_to_an_optimizer() -> None:
    """PyTorch's first line: an error says what takes its place; the number stays a number."""
    with pytest.raises(mg.ArgumentError, match="net.trainable, .*optimizer=mg.optimizer.Adam"):
        mg.optimizer.Adam(NET.parameters(), lr=1e-3)  # type: ignore[operator]
    with pytest.raises(mg.ArgumentError, match=r"try: step = optimizer.step\(loss, \[w, b\]"):
        mg.optimizer.Adam(1e-3).step()  # type: ignore[call-arg]
    assert NET.parameters == 8 and copy.deepcopy(NET).parameters == 8


@pytest.mark.parametrize(
    ("tried", "error", "said"),
    [
        (lambda: mg.grad(lambda v: v, X), GradientError, "loss = f(x), mg.grad(loss, x)"),
        (lambda: mg.jacobian(lambda v: v, X), GradientError, "y = f(x)"),
        (lambda: mg.max(X, X), DTypeError, "mg.maximum(x, y)"),
        (lambda: mg.sum(X).eval(np.ones((2, 3))), FeedError, "node.eval({x: array})"),
        (lambda: mg.function([X], None, updates=[W]), UpdateError, "updates={w: new}"),
        (lambda: mg.function([X], None, updates="ab"), UpdateError, "updates={w: new}"),
        (
            lambda: mg.var("v", (3, 3), init="glorot_uniform"),
            DTypeError,
            "mg.init.glorot_uniform()",
        ),
        (lambda: mg.var("v", (3, 3), init="random"), DTypeError, "an initializer of mg.init"),
    ],
)
def test_arguments_of_another_form(
    tried: Callable[[], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        tried()
    assert said in str(caught.value)


def test_flatten_from_an_axis() -> None:
    with pytest.raises(mg.ConfigError, match=r"try: mg.reshape\(x, \(x.shape\[0\], -1\)\)"):
        X.flatten(1)  # type: ignore[attr-defined]
