"""What users of other libraries try first: the error says what it is called here."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmagraph as mg
from magmagraph import spellings
from magmagraph.errors import DTypeError, FeedError, GradientError, UpdateError

X = mg.input("x", ("batch", 3))
W = mg.var("w", init=np.ones((3, 2), np.float32))


@pytest.mark.parametrize(
    ("tried", "mend"),
    [
        (lambda: X.unsqueeze(0), "mg.expand_dims(x, axis)"),  # type: ignore[attr-defined]
        (lambda: mg.sum(X).backward(), "mg.grad(loss, [w, b])"),  # type: ignore[attr-defined]
        (lambda: W.grad, "mg.grad(loss, w)"),  # type: ignore[attr-defined]
        (lambda: X.value, "only variables hold a value"),  # type: ignore[attr-defined]
        (lambda: mg.cat([X, X]), "mg.concatenate([a, b], axis=)"),
        (lambda: mg.jit, "mg.function(inputs, outputs)"),
        (lambda: mg.random.randn(3), "mg.random.normal(shape)"),
        (lambda: mg.nn.Linear(3, 4), "mg.nn.Dense(units)"),
    ],
)
def test_a_name_of_another_library(tried: Callable[[], Any], mend: str) -> None:
    with pytest.raises(AttributeError) as caught:
        tried()
    assert "has no attribute" in str(caught.value) and mend in str(caught.value)


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
    assert not [name for name in spellings.OF_NODE if hasattr(X, name)]


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
