"""Heart disease in Cleveland: cross-validated accuracy, without a look at the rows held back.

    MAGMAGRAPH_DATA=... python examples/heart_disease.py

The UCI file ``processed.cleveland.data`` (303 patients) is looked for in MAGMAGRAPH_DATA; without
it the breast cancer data of scikit-learn stand in. Medians, categories and scales are learned
anew in each fold, from its training rows alone: a pipeline holds them.

Over three times five folds: network 0.854 +- 0.044, Matthews' coefficient 0.709 +- 0.090; logistic
regression 0.846 +- 0.039 and 0.694 +- 0.080. Nothing near the 99 % and 0.98 that a paper reports on
this file is seen without rows of the test in the preparation or in the choice of a model.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, matthews_corrcoef
from sklearn.model_selection import RepeatedStratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import magmagraph as mg
from magmagraph.estimators import MLPClassifier

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=60, help="passes over the data (60)")
parser.add_argument("--repeats", type=int, default=3, help="times that the folds are drawn (3)")
arguments = parser.parse_args()

path = Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / "processed.cleveland.data"
if path.exists():
    table = mg.data.read_csv(path, header=False, missing=("?",)).values
    x, y = table[:, :13], (table[:, 13] > 0).astype(int)
    named = [1, 2, 5, 6, 8, 10, 11, 12]  # sex, kind of pain, ...: categories written as numbers
else:
    x, y = load_breast_cancer(return_X_y=True)
    named = []
print(f"{path.name if named else 'breast cancer'}: {len(x)} rows, {y.mean():.1%} of class 1")

numbers = [column for column in range(x.shape[1]) if column not in named]
prepare = make_column_transformer(
    (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
    (
        make_pipeline(
            SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
        ),
        named,
    ),
    sparse_threshold=0,
)
network = MLPClassifier(
    (16,),
    optimizer=mg.optimizer.Adam(3e-3),
    alpha=0.03,
    dropout=0.3,
    epochs=arguments.epochs,
    random_state=0,
)
folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=arguments.repeats, random_state=0)
scores = {"accuracy": "accuracy", "Matthews": make_scorer(matthews_corrcoef)}
for name, model in (
    ("most frequent class", DummyClassifier()),
    ("logistic regression", LogisticRegression(max_iter=1000)),
    ("network", network),
):
    found = cross_validate(make_pipeline(prepare, model), x, y, cv=folds, scoring=scores)
    line = [
        f"{score} {np.mean(found[f'test_{score}']):.3f} +- {np.std(found[f'test_{score}']):.3f}"
        for score in scores
    ]
    print(f"{name:20} {'   '.join(line)}")
