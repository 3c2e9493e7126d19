"""Metrics of SQuAD, compared with hand-computed values and the arithmetic of the official script."""

import collections
import re
import string
from pathlib import Path

import numpy as np
import pytest
import yaml

from components.data.tasks.kinds.questions import Questions, answer_scores, normalised

SCORING = Questions()


def official_f1(gold: str, answered: str) -> float:
    """evaluate-v2.0.py, compute_f1, line by line."""

    def tokens(text: str) -> list[str]:
        text = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    gold_tokens, answer_tokens = tokens(gold), tokens(answered)
    common = collections.Counter(gold_tokens) & collections.Counter(answer_tokens)
    same = sum(common.values())
    if len(gold_tokens) == 0 or len(answer_tokens) == 0:
        return int(gold_tokens == answer_tokens)
    if same == 0:
        return 0
    precision, recall = same / len(answer_tokens), same / len(gold_tokens)
    return (2 * precision * recall) / (precision + recall)


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    yaml.safe_load(Path(__file__).with_name("questions.yaml").read_text(encoding="utf-8")),
)
def test_scores_by_hand(answer, references, expected):
    assert answer_scores(answer, references) == pytest.approx(expected)


def test_f1_is_that_of_the_official_script():
    rng = np.random.default_rng(0)
    words = ["the", "Cat", "sat.", "on", "a", "mat", "mat", "--", "cat!"]
    for _ in range(300):
        gold, actual = (" ".join(rng.choice(words, size=rng.integers(0, 6))) for _ in range(2))
        assert answer_scores(actual, [gold])[0] == pytest.approx(official_f1(gold, actual))


CONTEXT = "Marie Curie was born in Warsaw in 1867."
FIELDS = [("who", CONTEXT), ("where", CONTEXT), ("why", CONTEXT), ("how", CONTEXT)]
# Two references; one; none; none.
TARGETS = [np.asarray(offsets, dtype=float) for offsets in ([0, 11, 6, 11], [24, 30], [], [])]


def answer(start: int, end: int) -> np.ndarray:
    return np.asarray([start, end, 3.5, 1.0], dtype=np.float32)


def test_offsets_and_parts():
    answers = [answer(6, 11), answer(21, 30), answer(0, 0), answer(0, 5)]
    # "Curie" is right; "in Warsaw" for "Warsaw": words 2/3, characters 12/14; none is right; "Marie" is wrong.
    sums = SCORING.total(FIELDS, TARGETS, answers)
    assert {name: float(value) for name, value in SCORING.scores(sums).items()} == {
        "f1": pytest.approx((1 + 2 / 3 + 1 + 0) / 4),
        "exact_match": pytest.approx(2 / 4),
        "f1_characters": pytest.approx((1 + 12 / 14 + 1 + 0) / 4),
        "exact_match_characters": pytest.approx(2 / 4),
    }
    parts = SCORING.classes(sums)
    assert parts["answerable"] == {
        "f1": pytest.approx((1 + 2 / 3) / 2),
        "exact_match": 0.5,
        "f1_characters": pytest.approx((1 + 12 / 14) / 2),
        "exact_match_characters": 0.5,
        "rows": 2,
    }
    assert (parts["unanswerable"]["f1"], parts["unanswerable"]["rows"]) == (0.5, 2)


def test_answers_are_normalised():
    assert normalised("  The  Eiffel-Tower, (a) PARIS an") == "eiffeltower paris"
    assert normalised("theatre") == "theatre", "an article is a word of its own"


def test_the_constant_is_no_answer():
    actual = SCORING.score(FIELDS, TARGETS, SCORING.constant(TARGETS))
    assert actual["f1"] == actual["exact_match"] == 0.5
    assert "unanswerable" not in SCORING.classes(SCORING.total(FIELDS[:2], TARGETS[:2], SCORING.constant(TARGETS[:2])))
