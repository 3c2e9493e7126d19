"""Baselines for pairs, similarity, several labels, choices, and languages without spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from components.data.tasks.data import Fields, Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Rows
from components.learners.baselines import baselines_of
from components.learners.select import Predictions, predict
from components.learners.words.features import split_words


def data(kind: str, rows: list[tuple[Fields, list[float]]], labels: Sequence[str] = ()) -> Rows:
    targets = [np.asarray(target, dtype=np.float64) for _, target in rows]
    whole = Split([fields for fields, _ in rows], targets, [None] * len(rows))
    return Rows(whole, np.arange(len(whole)), whole, whole, labels, scoring_for(kind, labels))


def learned(kind: str, system: str, rows: list[tuple[Fields, list[float]]], labels: Sequence[str] = ()) -> Predictions:
    """A system that is judged on its own rows."""
    return predict(baselines_of(kind, language="en", which="all")[system], data(kind, rows, labels))


WORDS = ["apple", "pear", "plum", "iron", "zinc", "gold", "horse", "goat", "cat"]


def sentences(number: int) -> tuple[str, str]:
    """Two texts that share `number` of four words."""
    first = WORDS[:4]
    return " ".join(first), " ".join([*first[:number], *WORDS[4 : 8 - number]])


@pytest.mark.parametrize("system", ["tfidf-cosine", "tfidf-both"])
def test_pairs_are_classified_by_shared_words(system):
    rows = [(sentences(number), [float(number >= 2)]) for number in (0, 1, 3, 4)] * 5
    predictions = learned("pair", system, rows, ["no", "yes"])
    actual = np.stack(predictions.answers["test"])
    np.testing.assert_allclose(actual.sum(1), 1, atol=1e-6)
    assert actual.argmax(1).tolist() == [0, 0, 1, 1] * 5
    assert predictions.record["c"] in (1.0, 10.0, 100.0, 1000.0)


def test_similarity_is_a_linear_regression_on_the_cosine():
    rows = [(sentences(number), [1.0 + number]) for number in range(5)]
    predictions = learned("similarity", "tfidf-cosine", rows)
    weights = TfidfVectorizer(sublinear_tf=True).fit([text for fields, _ in rows for text in fields])
    first, second = (weights.transform([fields[part] for fields, _ in rows]) for part in (0, 1))
    cosines = np.asarray(first.multiply(second).sum(1)).ravel()
    slope, offset = np.polyfit(cosines, [1.0, 2, 3, 4, 5], 1)
    assert predictions.record == {"slope": pytest.approx(slope), "offset": pytest.approx(offset)}
    np.testing.assert_allclose(np.concatenate(predictions.answers["dev"]), offset + slope * cosines, rtol=1e-5)
    assert predictions.scores["spearman"] == pytest.approx(1.0)
    equal = learned("similarity", "tfidf-cosine", [(("apple", "pear"), [2.0]), (("a", "b"), [4.0])])
    assert equal.record == {"slope": 0.0, "offset": 3.0}


def test_the_choice_with_the_highest_cosine_is_predicted():
    rows: list[tuple[Fields, list[float]]] = [
        (("the old apple", "iron zinc", "an old apple"), [1]),
        (("goat and horse", "a horse", "gold", "plum"), [0]),
    ]
    answers = learned("choice", "tfidf-overlap", rows).answers["test"]
    assert [(answer.argmax(), len(answer)) for answer in answers] == [(1, 2), (0, 3)]
    usual = learned("choice", "most-frequent", rows).answers["test"]
    # Both positions were correct once; the first row has no third choice.
    np.testing.assert_allclose(np.concatenate(usual), [0.5, 0.5, 0.5, 0.5, 0.0])
    model = learned("choice", "most-frequent", [(("x", "a", "b", "c"), [2])] * 2).model
    assert model.answers([("x", "a", "b")])[0].tolist() == [0.5, 0.5], "fewer choices than the training rows"


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("th", [f"{'กข' * 3 if number % 2 else 'มน' * 3}{letter}" for number, letter in enumerate("abcdefghij")]),
        ("hi", ("यह अच्छा है", "यह बुरा है")),
        ("zh", ("这部电影很好看", "这部电影不好看")),
        ("ja", ("とても面白い", "とても退屈だ")),
    ],
)
def test_words_models_learn_languages_without_spaces_or_with_marks(language, texts):
    rows: list[tuple[Fields, list[float]]] = [((text,), [float(row % 2)]) for row, text in enumerate(texts)] * 4
    for name, system in baselines_of("classification", language=language, which="auto").items():
        # Words of which no other text has one are told apart by characters only.
        if name.endswith("characters") or (name.startswith("tfidf") and language != "th"):
            actual = np.stack(predict(system, data("classification", rows, ["a", "b"])).answers["test"])
            assert actual.argmax(1).tolist() == [0, 1] * (len(rows) // 2), name
            np.testing.assert_allclose(actual.sum(1), 1, atol=1e-6)
    if language != "th":
        first, second = map(split_words, texts)
        assert len({*first} & {*second}) >= 2 and first != second


@pytest.mark.parametrize(
    ("kind", "labels", "targets", "expected"),
    [
        ("classification", ["a", "b"], [[0], [1], [1]], [1 / 3, 2 / 3]),
        ("similarity", [], [[1.0], [4.0], [4.0]], [3.0]),
        ("regression", [], [[1.0], [4.0], [4.0]], [3.0]),
        ("multilabel", ["a", "b"], [[0], [0, 1], []], [2 / 3, 1 / 3]),
    ],
)
def test_constant_predictions(kind, labels, targets, expected):
    predictions = learned(kind, "most-frequent", [(("x", "y"), target) for target in targets], labels)
    np.testing.assert_allclose(predictions.answers["test"], [expected] * 3, rtol=1e-6)


def test_numbers_are_predicted_by_ridge_regression():
    rows = [
        ((f"{single} {other} here",), [float(number + place)])
        for number, single in enumerate(WORDS[:4])
        for place, other in enumerate(WORDS[4:])
    ]
    predictions = learned("regression", "ridge-words", rows)
    assert predictions.record["penalty"] == 0.03 and predictions.record["vocabulary"] == len(WORDS) + 1
    assert predictions.scores["r2"] > 0.99, "the rows are judged on themselves"


def test_multilabel_probabilities_are_independent():
    rows: list[tuple[Fields, list[float]]] = [
        (("apple here",), [0]),
        (("iron here",), [1]),
        (("apple iron",), [0, 1]),
        (("here there",), []),
    ]
    actual = np.stack(learned("multilabel", "tfidf-words", rows * 4, ["fruit", "metal", "never"]).answers["dev"])
    assert (actual[:4] >= 0.5).tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert not actual[:, 2].any(), "a label without training rows is never predicted"


CHARACTERS, PLAIN = (
    ["tfidf-words-characters", "svm-words-characters"],
    ["tfidf-words", "tfidf-words-pairs", "latent-words"],
)


@pytest.mark.parametrize(
    ("kind", "language", "which", "expected"),
    [
        ("classification", "en", "auto", [*CHARACTERS[:1], *PLAIN]),
        ("classification", "th", "auto", [*CHARACTERS, *PLAIN]),
        ("classification", "en", "all", [*CHARACTERS, *PLAIN]),
        ("pair", "en", "all", ["tfidf-cosine", "tfidf-both"]),
        ("regression", "th", "auto", ["ridge-words-characters", "ridge-words", "ridge-words-pairs"]),
        ("regression", "en", "auto", ["ridge-words", "ridge-words-pairs"]),
    ],
)
def test_baselines_by_language_and_setting(kind, language, which, expected):
    assert list(baselines_of(kind, language=language, which=which)) == [*expected, "most-frequent"]


PRINTER = ["paper jam", "toner is empty", "prints blank pages", "out of ink", "jam in tray two", "streaks on the page"]
PASSWORD = ["forgot my password", "password has expired"]


@pytest.fixture
def skewed() -> Rows:
    texts = [*PRINTER, "the printer is offline", "printer does not answer", *PASSWORD]
    rows: list[tuple[Fields, list[float]]] = [((text,), [float(text in PASSWORD)]) for text in texts]
    return replace(data("classification", rows, ["printer", "password"]), folds=np.asarray([0, 1] * 5))


@pytest.mark.parametrize("system", [*CHARACTERS, *PLAIN[:2]])
def test_a_training_text_of_a_rare_label_is_answered_with_it(system, skewed):
    predictions = predict(baselines_of("classification", language="en", which="all")[system], skewed)
    actual = [int(answer.argmax()) for answer in predictions.model.answers(skewed.whole.fields)]
    assert actual == skewed.whole.labels.tolist() and predictions.record["balanced"]


def test_labels_are_balanced_where_macro_f1_counts_and_numbers_differ(skewed):
    system = baselines_of("classification", language="en", which="auto")["tfidf-words"]
    details = [candidate.details for candidate in system(skewed)]
    assert [entry["balanced"] for entry in details] == [True] * 4 + [False] * 4
    assert [entry["c"] for entry in details] == [1.0, 10.0, 100.0, 1000.0] * 2
    by_accuracy = type("Accuracy", (type(skewed.scoring),), {"names": ("accuracy", "macro_f1")})(skewed.labels)
    equal = replace(skewed, drawn=np.asarray([0, 1, 8, 9]), folds=np.asarray([0, 1, 0, 1]))
    for plain in (replace(skewed, scoring=by_accuracy), equal):
        # Also in folds with other numbers.
        for training in (plain, plain.without(np.asarray([0]))):
            assert [candidate.details.get("balanced") for candidate in system(training)] == [None] * 4
