"""The models as scikit-learn estimators."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from headstart import HeadstartClassifier, HeadstartRegressor, HeadstartTagger, fit, load
from headstart.tables import InputError
from tests.example_task import ROWS, rows

#: scikit-learn's checks of estimators that do not pass numbers as inputs.
CHECKS = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_valid_tag_types",
)


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("estimator", [HeadstartClassifier, HeadstartRegressor, HeadstartTagger])
def test_checks_of_scikit_learn(estimator, name):
    getattr(estimator_checks, name)(estimator.__name__, estimator())


def test_classifier(frame, later, tmp_path):
    X, y = frame["text"], frame["label"]
    model = HeadstartClassifier(folds=3)
    assert model.fit(X, y) is model
    assert model.classes_.tolist() == ["animal", "fruit", "metal"]
    actual = model.predict(later["text"])
    assert isinstance(actual, np.ndarray) and actual.shape == (12,)
    shares = model.predict_proba(later["text"])
    assert np.array_equal(model.classes_[shares.argmax(1)], actual)
    assert model.score(later["text"], later["label"]) == (actual == later["label"]).mean() >= 0.9
    # The same model as by `fit`, from its arguments alone.
    other = fit(X, label=y, folds=3, verbose=False)
    assert np.array_equal(other.predict_proba(later["text"]), shares)
    assert np.array_equal(clone(model).fit(X.to_numpy(), y.tolist()).predict_proba(later["text"].tolist()), shares)
    assert not hasattr(clone(model), "model_")
    # Searches of scikit-learn send estimators to their processes by pickle; the bytes are those of the line itself.
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(later["text"]), shares)  # noqa: S301
    assert np.array_equal(load(model.save(tmp_path / "saved")).predict_proba(later["text"]), shares)
    assert model.report_.folds == 3


def test_numbers_as_labels_stay_numbers(frame):
    y = frame["label"].map({"animal": 10, "fruit": 9, "metal": 2}).to_numpy()
    model = HeadstartClassifier().fit(frame["text"], y)
    assert model.classes_.tolist() == [2, 9, 10]
    actual, shares = model.predict(frame["text"]), model.predict_proba(frame["text"])
    assert actual.dtype.kind == "i"
    assert np.array_equal(model.classes_[shares.argmax(1)], actual)
    flags = HeadstartClassifier().fit(frame["text"], y > 5)
    assert flags.classes_.tolist() == [False, True]
    assert flags.predict(frame["text"]).dtype == bool


def test_cross_validation_and_pipeline(frame):
    X, y = frame["text"], frame["label"]
    scores = cross_val_score(HeadstartClassifier(folds=2), X, y, cv=2)
    assert scores.shape == (2,) and scores.mean() > 1 / 3
    upper = make_pipeline(FunctionTransformer(lambda texts: [text.upper() for text in texts]), HeadstartClassifier())
    assert upper.fit(X, y).score(X, y) > 0.9
    assert upper.predict_proba(X).shape == (30, 3)


def test_several_labels():
    data = pd.DataFrame([ROWS["multilabel"](row) for row in rows(8)])
    y = pd.DataFrame({name: [int(name in labels) for labels in data["label"]] for name in ("fruit", "odd", "even")})
    model = HeadstartClassifier().fit(data["text"], y)
    assert model.classes_.tolist() == ["fruit", "odd", "even"]
    actual, shares = model.predict(data["text"]), model.predict_proba(data["text"])
    assert actual.shape == shares.shape == y.shape
    assert np.array_equal(actual, shares >= 0.5)
    numbered = HeadstartClassifier().fit(data["text"], y.to_numpy())
    assert numbered.classes_.tolist() == [0, 1, 2]
    assert np.allclose(numbered.predict_proba(data["text"]), shares)
    assert 0 <= numbered.score(data["text"], y.to_numpy()) <= 1
    with pytest.raises(InputError, match="no row has the label 3"):
        HeadstartClassifier().fit(data["text"], np.c_[y.to_numpy(), np.zeros(len(y))])


def test_pairs_and_numbers():
    pairs = pd.DataFrame([ROWS["pair"](row) for row in rows(8)])
    model = HeadstartClassifier().fit(pairs[["first", "second"]], pairs["label"])
    assert model.model_.kind == "pair"
    assert np.array_equal(
        model.predict(pairs[["first", "second"]]), model.predict(pairs[["first", "second"]].to_numpy())
    )
    numbers = pd.DataFrame([ROWS["regression"](row) for row in rows(8)])
    regressor = HeadstartRegressor().fit(numbers["text"], numbers["score"])
    assert regressor.predict(numbers["text"]).shape == (24,)
    assert regressor.score(numbers["text"], numbers["score"]) > 0.5


def test_tagger(make_encoder, in_process):
    data = [ROWS["tagging"](row) for row in rows(3)]
    X, y = [row["words"] for row in data], [row["tags"] for row in data]
    model = HeadstartTagger(start=make_encoder("bert"), minutes=1, folds=2).fit(X, y)
    assert [len(tags) for tags in model.predict(X)] == [len(words) for words in X]
    right = [
        tag == actual
        for tags, guess in zip(y, model.predict(X), strict=True)
        for tag, actual in zip(tags, guess, strict=True)
    ]
    assert model.score(X, y) == np.mean(right) > 0.5


def test_errors_are_those_of_scikit_learn(frame):
    with pytest.raises(NotFittedError):
        HeadstartClassifier().predict(["a"])
    with pytest.raises(ValueError, match="only one class"):
        HeadstartClassifier().fit(["a", "b"], ["x", "x"])
    with pytest.raises(ValueError, match="continuous"):
        HeadstartClassifier().fit(["a", "b"], [0.5, 1.5])
    with pytest.raises(InputError, match="row 1: is float"):
        HeadstartClassifier().fit(frame["text"], frame["label"]).predict(["a", 1.5])
