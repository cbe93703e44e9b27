"""Logistic regression on probabilities instead of labels, as AlpacaEval's length control fits it.

L1 penalty (liblinear), no intercept, the penalty's strength by cross-validation over five groups,
log loss against the probabilities. scikit-learn takes labels only, so that each row is given
twice, as a win and as a loss, weighted by its probability; both copies stay in one fold. What the
columns mean is `winrate`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

_NUM_FOLDS = 5
_SOLVER: Mapping[str, Any] = {
    "solver": "liblinear",
    "fit_intercept": False,
    "random_state": 123,  # as the package alpaca-eval
}
_EPSILON = 1e-15
_MARGIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Rows of a regression: ``features`` (rows, columns), and of each row preference and weight."""

    features: Array
    preferences: Array
    weights: Array

    def __add__(self, other: "Design") -> "Design":
        return Design(
            features=np.concatenate([self.features, other.features]),
            preferences=np.concatenate([self.preferences, other.preferences]),
            weights=np.concatenate([self.weights, other.weights]),
        )

    def rows(self, kept: npt.NDArray[np.bool_]) -> "Design":
        """The rows that a mask keeps."""
        return Design(
            features=self.features[kept],
            preferences=self.preferences[kept],
            weights=self.weights[kept],
        )


class Fit(NamedTuple):
    """The inverse strength of the penalty, and a coefficient for each column."""

    strength: float
    coefficients: Array


def fit(design: Design) -> Fit:
    """Fits with the penalty that predicts held-out folds best.

    Raises:
        ValueError: Fewer rows than folds.
    """
    # Lazy: scikit-learn takes a second to import, and a plan or a workspace never fits.
    import sklearn
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import GroupKFold

    rows = _soft_rows(design)
    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(_log_loss, response_method="predict_proba", greater_is_better=False)
        model: Any = LogisticRegressionCV(
            cv=GroupKFold(n_splits=_NUM_FOLDS),
            scoring=scorer.set_score_request(probability=True, weight=True),
            use_legacy_attributes=False,
            l1_ratios=(1.0,),
            **_SOLVER,
        ).set_fit_request(sample_weight=True)
        model.fit(
            rows.features,
            rows.labels,
            sample_weight=rows.probability * rows.weight,
            groups=rows.group,
            probability=rows.probability,
            weight=rows.weight,
        )
    return Fit(float(model.C_), np.asarray(model.coef_[0], dtype=np.float64))


def refit(design: Design, *, strength: float) -> Array:
    """Coefficients at a given inverse strength of the penalty."""
    from sklearn.linear_model import LogisticRegression

    rows = _soft_rows(design)
    model: Any = LogisticRegression(C=strength, l1_ratio=1.0, **_SOLVER)
    model.fit(rows.features, rows.labels, sample_weight=rows.probability * rows.weight)
    return np.asarray(model.coef_[0], dtype=np.float64)


class _SoftRows(NamedTuple):
    features: Array
    labels: npt.NDArray[np.int64]
    probability: Array
    weight: Array
    group: npt.NDArray[np.int64]


def _soft_rows(design: Design) -> _SoftRows:
    """Every row as a win and as a loss.

    No probability is quite 0 or 1: where one label has no weight at all, liblinear fits nothing,
    and a model that lost every comparison would come out at even chances.
    """
    wins = np.clip(design.preferences, _MARGIN, 1.0 - _MARGIN)
    group = np.arange(len(wins))
    return _SoftRows(
        features=np.concatenate([design.features, design.features]),
        labels=np.repeat(np.array([1, 0]), len(wins)),
        probability=np.concatenate([wins, 1.0 - wins]),
        weight=np.concatenate([design.weights, design.weights]),
        group=np.concatenate([group, group]),
    )


def _log_loss(hard: Array, predicted: Array, *, probability: Array, weight: Array) -> float:
    """Mean weighted log loss; a row's label and its probability tell what was preferred."""
    wins = np.where(hard == 1, probability, 1.0 - probability)
    sure = np.clip(predicted, _EPSILON, 1.0 - _EPSILON)
    return -float(np.mean(weight * (wins * np.log(sure) + (1.0 - wins) * np.log(1.0 - sure))))
