"""Baselines for pairs, similarity, several labels, choices, and languages without spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from components.data.tasks.data import Fields, Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Learner, Rows
from components.learners.baselines import baselines_of
from components.learners.baselines.base import most_frequent
from components.learners.select import predict
from components.learners.words.text import split_words


def split(fields: list[Fields], targets: list[list[float]]) -> Split:
    return Split(
        fields,
        [np.asarray(target, dtype=np.float64) for target in targets],
        [None] * len(fields),
        [str(row) for row in range(len(fields))],
    )


def data(kind: str, rows: list[tuple[Fields, list[float]]], labels: list[str] | None = None) -> Rows:
    whole = split([fields for fields, _ in rows], [target for _, target in rows])
    return Rows(whole, np.arange(len(whole)), whole, whole, labels or [], scoring_for(kind, labels or []))


def systems_of(kind: str) -> Mapping[str, Learner]:
    return baselines_of(kind, language="en", which="auto")


WORDS = ["apple", "pear", "plum", "iron", "zinc", "gold", "horse", "goat", "cat"]


def sentences(number: int) -> tuple[str, str]:
    """Two texts that share `number` of four words."""
    first = WORDS[:4]
    return " ".join(first), " ".join([*first[:number], *WORDS[4 : 8 - number]])


@pytest.mark.parametrize("system", ["tfidf-cosine", "tfidf-both"])
def test_pairs_are_classified_by_shared_words(system):
    rows = [(sentences(number), [float(number >= 2)]) for number in (0, 1, 3, 4)] * 5
    predictions = predict(systems_of("pair")[system], data("pair", rows, ["no", "yes"]))
    actual = np.stack(predictions.answers["test"])
    np.testing.assert_allclose(actual.sum(1), 1, atol=1e-6)
    assert actual.argmax(1).tolist() == [0, 0, 1, 1] * 5
    assert predictions.details["c"] in (1.0, 10.0, 100.0, 1000.0)


def test_similarity_is_a_linear_regression_on_the_cosine():
    rows = [(sentences(number), [1.0 + number]) for number in range(5)]
    given = data("similarity", rows)
    predictions = predict(systems_of("similarity")["tfidf-cosine"], given)
    weights = TfidfVectorizer(sublinear_tf=True).fit([text for fields, _ in rows for text in fields])
    cosines = [
        (weights.transform([first]) @ weights.transform([second]).T).toarray()[0, 0] for (first, second), _ in rows
    ]
    slope, offset = np.polyfit(cosines, [1.0, 2, 3, 4, 5], 1)
    assert (predictions.details["slope"], predictions.details["offset"]) == (
        pytest.approx(slope),
        pytest.approx(offset),
    )
    np.testing.assert_allclose(
        np.concatenate(predictions.answers["dev"]), offset + slope * np.asarray(cosines), rtol=1e-5
    )
    assert predictions.scores["spearman"] == pytest.approx(1.0)


def test_equal_cosines_give_slope_zero():
    predictions = predict(
        systems_of("similarity")["tfidf-cosine"],
        data("similarity", [(("apple", "pear"), [2.0]), (("a", "b"), [4.0])]),
    )
    assert predictions.details == {"slope": 0.0, "offset": 3.0}


def test_the_choice_with_the_highest_cosine_is_predicted():
    rows: list[tuple[Fields, list[float]]] = [
        (("the old apple", "iron zinc", "an old apple"), [1]),
        (("goat and horse", "a horse", "gold", "plum"), [0]),
    ]
    given = data("choice", rows)
    predictions = predict(systems_of("choice")["tfidf-overlap"], given)
    assert [answer.argmax() for answer in predictions.answers["test"]] == [1, 0]
    assert [len(answer) for answer in predictions.answers["test"]] == [2, 3]
    usual = predict(systems_of("choice")["most-frequent"], given)
    # Both positions were correct once; the first row has no third choice.
    np.testing.assert_allclose(np.concatenate(usual.answers["test"]), [0.5, 0.5, 0.5, 0.5, 0.0])


def test_a_row_with_fewer_choices_than_the_training_rows():
    rows: list[tuple[Fields, list[float]]] = [(("x", "a", "b", "c"), [2]), (("x", "a", "b", "c"), [2])]
    given = data("choice", rows)
    short = Rows(given.whole, given.drawn, split([("x", "a", "b")], [[0.0]]), given.test, [], given.scoring)
    assert predict(systems_of("choice")["most-frequent"], short).answers["dev"][0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("system", ["tfidf-words-characters", "svm-words-characters"])
def test_character_features_classify_unseen_words(system):
    rows: list[tuple[Fields, list[float]]] = [
        ((f"{'กข' * 3 if number % 2 else 'มน' * 3}{'abcdefghij'[number]}",), [float(number % 2)])
        for number in range(10)
    ]
    systems = baselines_of("classification", language="th", which="auto")
    predictions = predict(systems[system], data("classification", rows, ["even", "odd"]))
    actual = np.stack(predictions.answers["test"])
    np.testing.assert_allclose(actual.sum(1), 1, atol=1e-6)
    assert actual.argmax(1).tolist() == [0, 1] * 5


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("hi", ("यह अच्छा है", "यह बुरा है")),
        ("zh", ("这部电影很好看", "这部电影不好看")),
        ("ja", ("とても面白い", "とても退屈だ")),
    ],
)
def test_words_models_learn_languages_without_spaces_or_with_marks(language, texts):
    rows: list[tuple[Fields, list[float]]] = [((text,), [float(label)]) for label, text in enumerate(texts)] * 4
    for name, system in baselines_of("classification", language=language, which="auto").items():
        if name.startswith("tfidf"):
            actual = np.stack(predict(system, data("classification", rows, ["a", "b"])).answers["test"])
            assert actual.argmax(1).tolist() == [0, 1] * 4, name
    shared = set(split_words(texts[0])) & set(split_words(texts[1]))
    assert len(shared) >= 2 and split_words(texts[0]) != split_words(texts[1])


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
    predictions = predict(most_frequent, data(kind, [(("x", "y"), target) for target in targets], labels))
    np.testing.assert_allclose(predictions.answers["test"], [expected] * 3, rtol=1e-6)


def test_numbers_are_predicted_by_ridge_regression():
    rows = [
        ((f"{single} {other} here",), [float(number + place)])
        for number, single in enumerate(WORDS[:4])
        for place, other in enumerate(WORDS[4:])
    ]
    predictions = predict(systems_of("regression")["ridge-words"], data("regression", rows))
    assert predictions.details["penalty"] == 0.03 and predictions.details["vocabulary"] == len(WORDS) + 1
    assert predictions.scores["r2"] > 0.99, "the rows are judged on themselves"
    assert list(baselines_of("regression", language="th", which="auto")) == [
        "ridge-words-characters", "ridge-words", "ridge-words-pairs", "most-frequent",
    ]  # fmt: skip


def test_multilabel_probabilities_are_independent():
    rows: list[tuple[Fields, list[float]]] = [
        (("apple here",), [0]),
        (("iron here",), [1]),
        (("apple iron",), [0, 1]),
        (("here there",), []),
    ]
    labels = ["fruit", "metal", "never"]
    predictions = predict(systems_of("multilabel")["tfidf-words"], data("multilabel", [*rows * 4], labels))
    actual = np.stack(predictions.answers["dev"])
    assert (actual[:4] >= 0.5).tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert not actual[:, 2].any(), "a label without training rows is never predicted"


def test_baselines_by_language_and_setting():
    plain = ["tfidf-words-characters", "tfidf-words", "tfidf-words-pairs", "latent-words", "most-frequent"]
    assert list(baselines_of("classification", language="en", which="auto")) == plain
    characters = ["tfidf-words-characters", "svm-words-characters"]
    more = [*characters, *(name for name in plain if name not in characters)]
    assert list(baselines_of("classification", language="th", which="auto")) == more
    assert list(baselines_of("classification", language="en", which="all")) == more
    assert list(baselines_of("pair", language="en", which="all")) == ["tfidf-cosine", "tfidf-both", "most-frequent"]


PRINTER = ["paper jam", "toner is empty", "prints blank pages", "out of ink", "jam in tray two", "streaks on the page"]
PASSWORD = ["forgot my password", "password has expired"]


def skewed(kind: str = "classification") -> Rows:
    texts = [*PRINTER, "the printer is offline", "printer does not answer", *PASSWORD]
    rows: list[tuple[Fields, list[float]]] = [((text,), [float(text in PASSWORD)]) for text in texts]
    given = data(kind, rows, ["printer", "password"])
    return replace(given, folds=np.asarray([0, 1, 0, 1, 0, 1, 0, 1, 0, 1]))


@pytest.mark.parametrize(
    "system", ["tfidf-words-characters", "tfidf-words", "tfidf-words-pairs", "svm-words-characters"]
)
def test_a_training_text_of_a_rare_label_is_answered_with_it(system):
    given = skewed()
    predictions = predict(baselines_of("classification", language="en", which="all")[system], given)
    actual = [int(answer.argmax()) for answer in predictions.model.answers(given.whole.fields)]
    assert actual == given.whole.labels.tolist() and predictions.details["balanced"]


def test_labels_are_balanced_where_macro_f1_counts_and_numbers_differ():
    system = systems_of("classification")["tfidf-words"]
    given = skewed()
    details = [candidate.details for candidate in system(given)]
    assert [entry["balanced"] for entry in details] == [True] * 4 + [False] * 4
    assert [entry["c"] for entry in details] == [1.0, 10.0, 100.0, 1000.0] * 2
    by_accuracy = type("Accuracy", (type(given.scoring),), {"names": ("accuracy", "macro_f1")})(given.labels)
    equal = replace(given, drawn=np.asarray([0, 1, 8, 9]), folds=np.asarray([0, 1, 0, 1]))
    for plain in (replace(given, scoring=by_accuracy), equal):
        # Also in folds with other numbers.
        for training in (plain, plain.without(np.asarray([0]))):
            assert [candidate.details.get("balanced") for candidate in system(training)] == [None] * 4
