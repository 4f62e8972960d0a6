"""Networks as estimators of scikit-learn: in pipelines, grid searches and cross-validation.

`MLPClassifier` and `MLPRegressor` have the interface of scikit-learn's estimators; each fit builds
and trains a `mg.NeuralNetwork`, kept as ``network_``. This module needs scikit-learn
(``pip install magmagraph[sklearn]``).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from . import nn
from .callbacks import EarlyStopping
from .errors import ConfigError, message
from .functional.probabilities import softmax
from .ir.docstrings import documented
from .model import NeuralNetwork
from .model.data import as_array, on_host
from .ops.convert import as_node
from .optimizer import Adam, Optimizer
from .regularize import l2

__all__ = ["MLPClassifier", "MLPRegressor"]

_BLOCK = 128  # rows that are predicted together


def _of_host(array: Any) -> Any:
    """Return a device's array as the host's, and leave all else to scikit-learn's own checks."""
    return as_array(array) if hasattr(array, "__cuda_array_interface__") else array


class _MLP(BaseEstimator):  # type: ignore[misc]
    """What both estimators share."""

    def __init__(
        self,
        hidden: Sequence[int] = (100,),
        activation: str = "relu",
        *,
        optimizer: Optimizer | None = None,
        alpha: float = 1e-4,
        dropout: float = 0.0,
        batch_size: int = 32,
        epochs: int = 100,
        early_stopping: bool = False,
        validation_split: float = 0.1,
        patience: int = 10,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.optimizer = optimizer
        self.alpha = alpha
        self.dropout = dropout
        self.batch_size = batch_size
        self.epochs = epochs
        self.early_stopping = early_stopping
        self.validation_split = validation_split
        self.patience = patience
        self.random_state = random_state

    def _network(self, features: int, units: int, loss: str) -> NeuralNetwork:
        sizes = [self.hidden] if isinstance(self.hidden, int) else list(self.hidden)
        layers: list[nn.Layer] = [nn.Input((features,))]
        for size in sizes:
            layers.append(nn.Dense(int(size), self.activation, kernel_init="glorot_uniform"))
            if self.dropout:
                layers.append(nn.Dropout(self.dropout))
        layers.append(nn.Output(units))
        if self.optimizer is not None and not isinstance(self.optimizer, Optimizer):
            raise ConfigError(
                message(f"optimizer={self.optimizer!r}", need="an optimizer of mg.optimizer")
            )
        optimizer = Adam(1e-3) if self.optimizer is None else copy.deepcopy(self.optimizer)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return NeuralNetwork(
            layers,
            loss=loss,
            optimizer=optimizer,
            metrics=[],
            regularize=l2(self.alpha / 2) if self.alpha else None,
            seed=seed,
        )

    def _train(self, x: np.ndarray, y: np.ndarray, units: int, loss: str) -> None:
        network = self._network(x.shape[1], units, loss)
        callbacks = [EarlyStopping("val_loss", self.patience)] if self.early_stopping else []
        split = self.validation_split if self.early_stopping else 0.0
        if split:
            order = np.random.default_rng(network.seed).permutation(len(x))
            x, y = x[order], y[order]
        self.history_ = network.fit(
            x,
            y,
            batch_size=min(self.batch_size, len(x)),
            epochs=self.epochs,
            validation_split=split,
            callbacks=callbacks,
            progress=False,
        )
        self.network_ = network
        self.n_iter_ = len(self.history_.records)
        self.loss_curve_ = self.history_["loss"]

    def _raw(self, x: Any) -> np.ndarray:
        check_is_fitted(self)
        checked = validate_data(self, _of_host(x), dtype=(np.float64, np.float32), reset=False)
        rows = (checked - self._shift) / self._scale
        # Whole blocks: products of one row and of many round differently, and what is predicted
        # of a row must not depend on those beside it.
        padded = np.pad(rows, ((0, -len(rows) % _BLOCK), (0, 0)))
        scores: np.ndarray = self.network_.predict(padded, batch_size=_BLOCK)[: len(rows)]
        return scores

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        """Return features of mean 0 and variance 1, and remember how.

        In float64, so that columns which lie far from zero keep their digits.
        """
        self._shift = x.mean(0)
        spread = x.std(0)
        self._scale = np.where(spread > 0, spread, 1.0)
        scaled: np.ndarray = (x - self._shift) / self._scale
        return scaled


@documented
class MLPClassifier(ClassifierMixin, _MLP):  # type: ignore[misc]
    """A network of dense layers that classifies.

    Features are brought to mean 0 and variance 1 of the training data; the loss is the
    cross-entropy.

    hidden (sequence of int): Units of each hidden layer.
    activation (str): Of the hidden layers.
    optimizer (Optimizer, optional): ``Adam(1e-3)`` unless said; each fit uses a copy.
    alpha (float): Weight of the penalty ``alpha / 2 * sum(w**2)`` on kernels.
    dropout (float): Behind each hidden layer.
    batch_size, epochs (int): Of the training.
    early_stopping (bool): Whether rows are kept aside, and training stops when their loss stops
        falling.
    validation_split (float): Part of the rows that is kept aside then.
    patience (int): Epochs that are waited for then.
    random_state (int, RandomState or None): Of weights, order and dropout.

    Attributes
    ----------
    classes_ : ndarray
        The labels.
    network_ : NeuralNetwork
        What was trained. It takes scaled features.
    history_ : History
        What training reported.

    Examples
    --------
    >>> import numpy as np
    >>> from magmagraph.estimators import MLPClassifier
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> MLPClassifier((8,), epochs=200, random_state=0).fit(x, ["a", "a", "b", "b"]).predict(x)
    array(['a', 'a', 'b', 'b'], dtype='<U1')
    """

    def fit(self, X: Any, y: Any) -> MLPClassifier:
        """Train on examples ``(rows, features)`` and their labels."""
        x, labels = validate_data(self, _of_host(X), _of_host(y), dtype=(np.float64, np.float32))
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                message(
                    f"the labels are of one class, {self.classes_[0]!r}", need="at least 2 classes"
                )
            )
        self._train(self._scaled(x), numbers, len(self.classes_), "cross_entropy")
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return a score for each class; of two classes that of the second."""
        raw = self._raw(X)
        return raw[:, 1] - raw[:, 0] if len(self.classes_) == 2 else raw

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, in the order of ``classes_``."""
        raw = self._raw(X).astype(np.float64)
        shares: np.ndarray = on_host(softmax(as_node(raw)).eval())
        return shares

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest label of each example."""
        numbers = self._raw(X).argmax(1)
        labels: np.ndarray = self.classes_[numbers]
        return labels


class MLPRegressor(RegressorMixin, _MLP):  # type: ignore[misc]
    """A network of dense layers that predicts numbers.

    Features and targets are brought to mean 0 and variance 1 of the training data; the loss is the
    mean squared error. Parameters are those of `MLPClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from magmagraph.estimators import MLPRegressor
    >>> x = np.linspace(0.0, 1.0, 50)[:, None]
    >>> net = MLPRegressor((32,), batch_size=10, epochs=100, random_state=0)
    >>> net = net.fit(x, 3.0 * x[:, 0] + 1.0)
    >>> bool(net.score(x, 3.0 * x[:, 0] + 1.0) > 0.99)
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> MLPRegressor:
        """Train on examples ``(rows, features)`` and targets ``(rows,)`` or ``(rows, outputs)``."""
        x, targets = validate_data(
            self,
            _of_host(X),
            _of_host(y),
            dtype=(np.float64, np.float32),
            multi_output=True,
            y_numeric=True,
        )
        target_values = np.asarray(targets, np.float64)
        self._flat = target_values.ndim == 1
        columns = target_values[:, None] if self._flat else target_values
        self._target_shift = columns.mean(0)
        spread = columns.std(0)
        self._target_scale = np.where(spread > 0, spread, 1.0)
        scaled = (columns - self._target_shift) / self._target_scale
        self._train(self._scaled(x), scaled.astype(np.float32), columns.shape[1], "mse")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted numbers, in the shape of the targets."""
        raw = self._raw(X)
        raw = raw * self._target_scale + self._target_shift
        values: np.ndarray = raw[:, 0] if self._flat else raw
        return values
