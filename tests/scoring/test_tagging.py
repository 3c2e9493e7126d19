"""Spans by the strict definition, compared with hand-computed values and regular expressions on short sequences."""

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from sklearn import metrics

from components.data.scoring.spans import OUTSIDE, read_tags
from components.data.tasks.kinds.tagging import Tagging

BIO = ["O", "B-X", "I-X", "B-Y", "I-Y"]
Found = set[tuple[int, int, str]]


def spans(labels: list[str], *rows: list[str]) -> list[Found]:
    """The spans of each row as (start, end, type)."""
    tags = read_tags(labels)
    numbers = np.asarray([labels.index(tag) for row in rows for tag in row], dtype=np.int64)
    by_row: list[Found] = [set() for _ in rows]
    for row, start, end, kind in tags.spans(numbers, np.asarray([len(row) for row in rows])):
        by_row[row].add((start, end, tags.types[kind]))
    return by_row


def by_expression(pattern: str) -> Callable[[tuple[str, ...]], Found]:
    """The spans of a row as the matches of a regular expression over its tags, of each type in turn."""

    def find(row: tuple[str, ...]) -> Found:
        actual = set()
        for kind in "XY":
            # One letter a tag: of this type as it is, of the other in small letters.
            line = "".join("o" if tag == OUTSIDE else tag[0] if tag[2] == kind else tag[0].lower() for tag in row)
            actual |= {(match.start(), match.end(), kind) for match in re.finditer(pattern, line)}
        return actual

    return find


def test_every_short_sequence():
    expected = by_expression("BI*")
    rows = [row for length in range(6) for row in itertools.product(BIO, repeat=length)]
    for row, actual in zip(rows, spans(BIO, *map(list, rows)), strict=True):
        assert actual == expected(row), row


def test_a_span_does_not_go_over_the_end_of_a_row():
    assert spans(BIO, ["O", "B-X"], ["I-X", "O"], [], ["B-X", "I-X"]) == [
        {(1, 2, "X")},
        set(),
        set(),
        {(0, 2, "X")},
    ]


@pytest.mark.parametrize(
    ("labels", "types"),
    [
        (["B-LOC", "I-LOC", "O"], ["LOC"]),
        *((labels, []) for labels in (["NOUN", "VERB"], ["B-", "NN", "-LRB-"], ["O"], ["B-LOC", "NOUN"], ["I-LOC"])),
    ],
)
def test_whether_tags_mark_spans_follows_from_their_names(labels, types):
    assert read_tags(labels).types == types


def test_types_may_hold_hyphens():
    assert read_tags(["O", "B-creative-work", "I-creative-work"]).types == ["creative-work"]


def tagged(labels: list[str], *rows: str) -> list[np.ndarray]:
    return [np.asarray([labels.index(tag) for tag in row.split()], dtype=np.float32) for row in rows]


def test_scores_by_hand():
    scoring = Tagging(BIO)
    targets = tagged(BIO, "B-X I-X O B-Y", "O B-X", "B-Y O")
    answers = tagged(BIO, "B-X I-X O B-X", "O B-X", "I-Y O")
    # True: X(0,2) Y(3,4) X(1,2) Y(0,1); found: X(0,2) X(3,4) X(1,2); a lone I-Y is no span. Two are right.
    sums = scoring.total([()] * 3, targets, answers)
    assert {name: float(value) for name, value in scoring.scores(sums).items()} == {
        "span_f1": pytest.approx(4 / 7),
        "span_precision": pytest.approx(2 / 3),
        "span_recall": pytest.approx(2 / 4),
        "macro_f1": pytest.approx((4 / 5 + 0) / 2),
        "accuracy": pytest.approx(6 / 8),
    }
    assert scoring.main == "span_f1"
    assert scoring.classes(sums) == {
        "X": {"precision": 2 / 3, "recall": 1.0, "f1": 0.8, "rows": 2.0},
        "Y": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "rows": 2.0},
    }


def test_parts_of_speech_are_scored_per_tag():
    labels = ["ADJ", "NOUN", "VERB"]
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 90)
    guess = np.where(rng.random(90) < 0.7, truth, rng.integers(0, 3, 90))
    scoring = Tagging(labels)
    cut = [30, 31, 60]
    actual = scoring.score([()] * 4, np.split(truth.astype(float), cut), np.split(guess.astype(float), cut))
    assert scoring.names == tuple(actual) == ("accuracy", "macro_f1")
    assert actual["accuracy"] == pytest.approx(metrics.accuracy_score(truth, guess))
    assert actual["macro_f1"] == pytest.approx(metrics.f1_score(truth, guess, average="macro"))


def test_an_answer_of_another_length_is_an_error():
    with pytest.raises(ValueError, match="row 1: 1 tags for 2 units"):
        Tagging(BIO).score([()] * 2, tagged(BIO, "O", "O O"), tagged(BIO, "O", "O"))


def test_a_type_without_spans_in_the_targets_has_no_score():
    scoring = Tagging(BIO)
    sums = scoring.total([()] * 2, tagged(BIO, "B-X O", "B-X O"), tagged(BIO, "B-X O", "B-Y O"))
    assert scoring.classes(sums)["Y"] == {"precision": None, "recall": None, "f1": None, "rows": 0.0}
    assert float(scoring.scores(sums)["macro_f1"]) == pytest.approx(2 / 3), "the mean over X alone"


def test_a_span_with_a_wrong_end_is_wrong():
    scoring = Tagging(BIO)
    actual = scoring.score([()], tagged(BIO, "B-X I-X O"), tagged(BIO, "B-X I-X I-X"))
    assert (actual["span_f1"], actual["accuracy"]) == (0.0, pytest.approx(2 / 3))
    assert scoring.score([()], tagged(BIO, "O O"), tagged(BIO, "O O"))["span_f1"] == 0.0, "there is nothing to find"


def test_the_constant_is_the_most_frequent_tag():
    targets = tagged(BIO, "O O B-X", "O")
    assert [answer.tolist() for answer in Tagging(BIO).constant(targets)] == [[0, 0, 0], [0]]
