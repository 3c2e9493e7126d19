"""Tagging without a language model: the most frequent tag, and a CRF on features."""

import numpy as np
import pytest

from components.data.tasks.data import Split
from components.learners.baselines.tagging import FeatureTagger, _features, _Likelihood, most_frequent_tags

LABELS = ["B-X", "I-X", "O"]


def split_of(*sentences: tuple[str, list[int]]) -> Split:
    return Split(
        [tuple(words.split()) for words, _ in sentences],
        [np.asarray(tags, dtype=np.float64) for _, tags in sentences],
        [None] * len(sentences),
        [str(number) for number in range(len(sentences))],
    )


TRAIN = split_of(
    ("the Anna Berg sings", [2, 0, 1, 2]),
    ("Berg sings", [0, 2]),
    ("the river sings the song", [2, 2, 2, 2, 2]),
    ("Carl Dorf waits", [0, 1, 2]),
    ("a song waits", [2, 2, 2]),
)


def test_the_most_frequent_tag_of_each_word():
    train = split_of(("a b b", [1, 0, 2]), ("b a", [2, 0]), ("c", [2]))
    actual = most_frequent_tags(train, [("a", "b", "new"), ("c",)])
    # Of a's two tags, each seen once, the lower number; an unknown word gets 2, which is the most frequent.
    assert [answer.tolist() for answer in actual] == [[0, 2, 2], [2]]


def test_features_of_a_word_and_its_neighbours():
    (first, second, third) = _features(["New-York", "is", "4U2"])
    assert {"word=New-York", "lower=new-york", "begins=new-", "ends=york", "shape=Xxx-Xxxx", "short=Xx-Xx"} <= set(
        first
    )
    assert "-1:edge" in first and "1:near=is" in first and "2:near=4u2" in first
    assert "-1:near=new-york" in second and "-1:suffix=ork" in second and "1:short=9X9" in second
    assert "-2:near=new-york" in third and "1:edge" in third and "begins=4u2" in third
    assert "begins=i" in second and "ends=is" in second and "begins=isx" not in second


def test_the_gradient_is_that_of_finite_differences():
    tagger = FeatureTagger(LABELS)
    actual = [_features(words) for words in TRAIN.fields]
    tagger._number = {name: index for index, name in enumerate(sorted({n for s in actual for w in s for n in w})[:12])}
    problem = _Likelihood(tagger.crf, tagger._matrix(actual), [target.astype(np.int64) for target in TRAIN.targets])
    point = np.random.default_rng(0).normal(size=problem.size) / 3
    value, gradient = problem.value_and_gradient(point, 0.7)
    for place in (0, 7, problem.size - 1, problem.size - 5, problem.size - 12):
        step = np.zeros(problem.size)
        step[place] = 1e-5
        above, _ = problem.value_and_gradient(point + step, 0.7)
        below, _ = problem.value_and_gradient(point - step, 0.7)
        assert gradient[place] == pytest.approx((above - below) / 2e-5, abs=1e-5)
    assert np.isfinite(value)


def test_it_learns_and_stays_legal():
    def score(current):
        answers = current.answers(TRAIN.fields)
        right = [answer.tolist() == target.tolist() for answer, target in zip(answers, TRAIN.targets, strict=True)]
        return sum(right) / len(right)

    actual = dict(FeatureTagger(LABELS).fit(TRAIN))
    assert list(actual) == [3.0, 1.0, 0.3, 0.1]
    tagger = actual[0.1]
    assert score(tagger) == 1.0
    answers = tagger.answers([("the", "Emil", "Berg", "sings"), ("Fritz",)])
    assert answers[0].tolist() == [2, 0, 1, 2]
    assert [len(answer) for answer in answers] == [4, 1]
    for answer in answers:
        before = 2
        for tag in answer.tolist():
            assert tag != 1 or before != 2
            before = tag
