"""Heart disease in Cleveland: depth, rate, batch and epochs by a grid, on one core or on many.

    MAGMAGRAPH_DATA=... python examples/cleveland_search.py
    python examples/cleveland_search.py --executor process
    mpiexec -n 4 python examples/cleveland_search.py --executor mpi
    python examples/cleveland_search.py --executor dask

All find the same point. With ``--journal search.log`` the search can be killed and started
again; ``magmagraph search search.log -o search.html`` draws it, also while it runs.

A fifth of the patients is set aside. The accuracy of a point is that of five folds of the others;
the best point is then trained on all of them and tried on those that were set aside. Medians,
categories and scales are learned anew from each fold's training rows. Without the UCI file
``processed.cleveland.data`` the breast cancer data of scikit-learn stand in.
"""

import argparse
import functools
import os
from pathlib import Path

from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import magmagraph as mg
from magmagraph.estimators import MLPClassifier

CATEGORIES = [1, 2, 5, 6, 8, 10, 11, 12]  # sex, kind of pain, ...: written as numbers


@functools.cache
def patients():
    """Return examples and labels to search with, and those set aside."""
    path = Path(os.environ.get("MAGMAGRAPH_DATA", ".")) / "processed.cleveland.data"
    if path.exists():
        table = mg.data.read_csv(path, header=False, missing=("?",)).values
        x, y = table[:, :13], (table[:, 13] > 0).astype(int)
    else:
        x, y = load_breast_cancer(return_X_y=True)
    return train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)


def network(point, columns):
    """Return preparation and network for a point of the space."""
    named = CATEGORIES if columns == 13 else []
    numbers = [column for column in range(columns) if column not in named]
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
    model = MLPClassifier(
        (16,) * point["depth"],
        optimizer=mg.optimizer.Adam(point["rate"]),
        alpha=0.03,
        batch_size=point["batch"],
        epochs=point["epochs"],
        random_state=0,
    )
    return make_pipeline(prepare, model)


def objective(trial):
    """Return the accuracy over five folds."""
    x, _, y, _ = patients()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_score(network(trial, x.shape[1]), x, y, cv=folds)
    return {"accuracy": scores.mean(), "spread": scores.std()}


def space(points):
    """Return a grid of 54, 16 or 4 points."""
    if points == 4:
        return {"depth": [1, 2], "rate": [3e-3, 3e-2], "batch": [32], "epochs": [3]}
    if points == 16:
        return {"depth": [1, 2], "rate": [3e-3, 3e-2], "batch": [16, 32], "epochs": [5, 10]}
    return {
        "depth": mg.tune.integers(1, 3),
        "rate": mg.tune.grid(1e-3, 1e-1, factor=10),
        "batch": mg.tune.grid(16, 64, factor=2),
        "epochs": [20, 40],
    }


def main():
    """Search, then try the best point on the patients that were set aside."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--executor", choices=["serial", "process", "mpi", "dask"], default="serial",
        help="where trials run (serial)",
    )
    parser.add_argument("--points", type=int, choices=[4, 16, 54], default=54, help="of the grid")
    parser.add_argument("--journal", help="a file from which a killed search goes on")
    parser.add_argument("--report", help="a page with plots, to be written to this file")
    arguments = parser.parse_args()

    found = mg.tune.search(
        objective,
        space(arguments.points),
        method="grid",
        executor=arguments.executor,
        maximize="accuracy",
        journal=arguments.journal,
    )
    if mg.distributed.rank() != 0:
        return
    print(found)
    x, x_aside, y, y_aside = patients()
    model = network(found.best.params, x.shape[1]).fit(x, y)
    print(f"the best point: {found.best.params}, in five folds {found.best.goal:.3f}")
    print(f"of the {len(x_aside)} set aside it gets {model.score(x_aside, y_aside):.3f} right")
    if arguments.report:
        found.report(arguments.report, "Heart disease in Cleveland")
        print(f"wrote {arguments.report}")


if __name__ == "__main__":
    main()
