"""The estimators pass scikit-learn's own checks."""

from __future__ import annotations

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from on_device import OnDevice  # noqa: E402
from sklearn.datasets import load_iris, make_regression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import magmagraph as mg  # noqa: E402
from magmagraph.estimators import MLPClassifier, MLPRegressor  # noqa: E402

SMALL = {"hidden": (12,), "epochs": 25, "batch_size": 16, "optimizer": mg.optimizer.Adam(0.02)}


@parametrize_with_checks([MLPClassifier(**SMALL), MLPRegressor(**SMALL)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_check_estimator(estimator, check):
    check(estimator)


def test_a_search_in_a_pipeline():
    x, y = load_iris(return_X_y=True)
    chain = make_pipeline(StandardScaler(), MLPClassifier(**SMALL, random_state=0))
    search = GridSearchCV(chain, {"mlpclassifier__hidden": [(4,), (16,)]}, cv=3).fit(x, y)
    assert search.best_score_ > 0.9


def test_early_stopping_ends_a_run():
    x, y = make_regression(200, 5, noise=20.0, random_state=0)
    given = {**SMALL, "epochs": 500, "early_stopping": True, "patience": 3}
    net = MLPRegressor(**given, random_state=0).fit(x, y)
    assert net.n_iter_ < 500
    assert net.score(x, y) > 0.8


def test_equal_seeds_give_equal_estimators():
    x, y = load_iris(return_X_y=True)
    given = {**SMALL, "epochs": 3, "dropout": 0.2, "random_state": 7}
    first, second = (MLPClassifier(**given).fit(x, y).predict_proba(x) for _ in range(2))
    assert np.array_equal(first, second)


def test_arrays_of_a_device_are_data():
    x, y = load_iris(return_X_y=True)
    given = {**SMALL, "epochs": 3, "random_state": 0}
    held = [OnDevice(array) for array in (x.astype(np.float32), y)]
    net = MLPClassifier(**given).fit(*held)
    same = MLPClassifier(**given).fit(x.astype(np.float32), y)
    assert np.array_equal(net.predict_proba(held[0]), same.predict_proba(x.astype(np.float32)))
    assert MLPRegressor(**given).fit(*held).predict(held[0]).shape == y.shape
