"""Models as scikit-learn estimators: for pipelines, cross-validation and grid search.

Inputs are lists or arrays of texts, (N, 2) pairs of texts, or the columns of a DataFrame. The constructor stores its
arguments, which are the arguments of `headstart.fit`; everything is done in `fit`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from components.data.tasks.reading.records import class_name
from components.settings.tasks import has
from headstart.fitting import fit
from headstart.model import Model
from headstart.report import Report
from headstart.tables import Data, InputError
from headstart.tasks import Kind, holds_pairs, indicator_labels


class _Estimator(BaseEstimator):
    """The arguments and the fitted model.

    Args:
        start, unlabelled, text, minutes, folds, language, verbose: as in `headstart.fit`.
        random_state: seed of training and of the folds; None: 0.

    Attributes:
        model_: the fitted `Model`.
        report_: what was tried.
    """

    def __init__(
        self,
        *,
        start: str | Path | None = None,
        unlabelled: Data = None,
        text: str | Sequence[str] | None = None,
        minutes: float | None = None,
        folds: int = 5,
        language: str | None = None,
        random_state: int | None = 0,
        verbose: bool = False,
    ) -> None:
        self.start = start
        self.unlabelled = unlabelled
        self.text = text
        self.minutes = minutes
        self.folds = folds
        self.language = language
        self.random_state = random_state
        self.verbose = verbose

    @property
    def report_(self) -> Report:
        """The report: what was tried."""
        check_is_fitted(self, "model_")
        assert self.model_.report is not None
        return self.model_.report

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model as a folder, which `headstart.load` reads; arguments as of `Model.save`."""
        check_is_fitted(self, "model_")
        return self.model_.save(folder, overwrite=overwrite)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = False
        tags.target_tags.required = True
        return tags

    model_: Model

    def _fit(self, X: Data, y: Any, kind: Kind | None) -> None:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        given = self.get_params(deep=False)
        seed = given.pop("random_state")
        self.model_ = fit(
            self._inputs(X),
            label=y.tolist() if hasattr(y, "tolist") else list(y),
            kind=kind,
            seed=0 if seed is None else int(seed),
            **given,
        )

    def _inputs(self, X: Data) -> Data:
        if X is None:
            raise InputError("X: is None; give a list of texts or a DataFrame")
        if hasattr(X, "toarray"):
            raise InputError("X: is a sparse matrix; give texts, the features are made here")
        # The columns of a frame without names are those of an array.
        unnamed = self.text is None and isinstance(getattr(X, "columns", None), pd.RangeIndex)
        return X.to_numpy() if unnamed and X.shape[1] == 2 and X.map(type).eq(str).any().all() else X

    def _answers(self, X: Data) -> list[NDArray[np.float32]]:
        check_is_fitted(self, "model_")
        return self.model_.answers(self._inputs(X))


class HeadstartClassifier(ClassifierMixin, _Estimator):
    """A classifier of texts or of pairs of texts, with one label or several labels each.

    With `y` of shape (N, C) of zeros and ones, a text has several labels, as in scikit-learn.

    Attributes:
        classes_: (C,) sorted labels; of several labels the column numbers, or names of a DataFrame's columns.
    """

    classes_: NDArray[Any]

    def fit(self, X: Data, y: Any) -> Self:
        """Train on N texts with labels.

        Raises:
            InputError: as `headstart.fit`.
        """
        if getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:
            labels, names = indicator_labels(y)
            used = {name for row in labels for name in row}
            if unused := [name for name in names if name not in used]:
                raise InputError(f"y: no row has the label {unused[0]!r}; leave its column out")
            self._fit(X, labels, "multilabel")
            self.classes_ = np.asarray(names)
            return self
        if getattr(y, "ndim", 1) == 2:
            y = np.asarray(y)[:, 0]
        if y is not None:
            check_classification_targets(y)
        self._fit(X, y, "pair" if holds_pairs(self._inputs(X), self.text) else "classification")
        self.classes_ = np.unique(np.asarray(self.model_.classes))
        return self

    def predict(self, X: Data) -> NDArray[Any]:
        """(N,) labels, or (N, C) zeros and ones of several labels."""
        answers = self._answers(X)
        if has(self.model_.kind, "labels"):
            return (np.asarray(answers)[:, self._order] >= 0.5).astype(np.int64)
        labels = np.asarray(self.model_.classes)
        return labels[[int(answer.argmax()) for answer in answers]]

    def predict_proba(self, X: Data) -> NDArray[np.float64]:
        """(N, C) probabilities, in the order of `classes_`."""
        return np.asarray(self._answers(X), dtype=np.float64)[:, self._order]

    @property
    def _order(self) -> list[int]:
        return [self.model_.labels.index(class_name(value)) for value in self.classes_.tolist()]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class HeadstartRegressor(RegressorMixin, _Estimator):
    """A regression of a number from a text, or from a pair of texts."""

    def fit(self, X: Data, y: Any) -> Self:
        """Train on N texts with numbers.

        Raises:
            InputError: as `headstart.fit`.
        """
        self._fit(X, y, "similarity" if holds_pairs(self._inputs(X), self.text) else "regression")
        return self

    def predict(self, X: Data) -> NDArray[np.float64]:
        """Predict (N,) numbers."""
        return np.asarray([float(answer[0]) for answer in self._answers(X)])


class HeadstartTagger(_Estimator):
    """A tagger: a tag for each word of a list of words, such as names (`B-PER`) or parts of speech."""

    def fit(self, X: Data, y: Any) -> Self:
        """Train on N lists of words and N lists of tags.

        Raises:
            InputError: as `headstart.fit`.
        """
        self._fit(X, y, "tagging")
        self.classes_ = np.unique(np.asarray(self.model_.classes))
        return self

    def predict(self, X: Data) -> list[list[Any]]:
        """N lists of tags."""
        classes = self.model_.classes if hasattr(self, "model_") else []
        return [[classes[int(number)] for number in answer] for answer in self._answers(X)]

    def score(self, X: Data, y: Any) -> float:
        """Share of the words with the right tag."""
        predicted = self.predict(X)
        pairs = [pair for tags, given in zip(y, predicted, strict=True) for pair in zip(tags, given, strict=True)]
        return float(accuracy_score([tag for tag, _ in pairs], [tag for _, tag in pairs]))
