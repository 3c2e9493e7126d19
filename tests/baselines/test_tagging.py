"""Tagging without a language model: the most frequent tag, and a CRF on features."""

import numpy as np
import pytest
import torch

from components.core.errors import ArtifactError
from components.data.scoring.spans import legal_transitions
from components.data.tasks.data import Split
from components.learners.baselines.tagging import FeatureTagger, _features, _Likelihood, _matrix, most_frequent_tags
from components.learners.words.classifier import read_model, write_model
from components.models.layers.crf import Legal, LinearChainCRF

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
    described = [_features(words) for words in TRAIN.fields]
    names = sorted({name for sentence in described for word in sentence for name in word})[:12]
    matrix = _matrix(described, {name: index for index, name in enumerate(names)})
    problem = _Likelihood(matrix, [target.astype(np.int64) for target in TRAIN.targets], len(LABELS))
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

    *_, tagger = FeatureTagger.fit(TRAIN, LABELS)
    assert score(tagger) == 1.0
    answers = tagger.answers([("the", "Emil", "Berg", "sings"), ("Fritz",)])
    assert answers[0].tolist() == [2, 0, 1, 2]
    assert [len(answer) for answer in answers] == [4, 1]
    for answer in answers:
        before = 2
        for tag in answer.tolist():
            assert tag != 1 or before != 2
            before = tag


def test_the_likelihood_and_the_best_tags_are_those_of_the_layer():
    rng, tags = np.random.default_rng(1), len(LABELS)
    legal = Legal(*map(torch.from_numpy, legal_transitions(LABELS)))
    layer = LinearChainCRF(tags, legal=legal).double()
    fields = [tuple(f"w{word}" for word in rng.integers(0, 9, size)) for size in (3, 1, 7, 2)]
    split = Split(
        fields, [rng.integers(0, tags, len(words)).astype(float) for words in fields], [None] * 4, list("abcd")
    )
    described = [_features(words) for words in fields]
    names = sorted({name for sentence in described for word in sentence for name in word})
    matrix = _matrix(described, numbers := {name: index for index, name in enumerate(names)})
    problem = _Likelihood(matrix, [target.astype(np.int64) for target in split.targets], tags)
    point = rng.normal(size=problem.size)
    tagger = FeatureTagger(LABELS, numbers, *problem.parts(point))
    with torch.no_grad():
        for part, values in (
            (layer.transition, tagger.transition),
            (layer.start, tagger.start),
            (layer.end, tagger.end),
        ):
            part.copy_(torch.from_numpy(values))
    expected, emissions = 0.0, torch.from_numpy(matrix @ tagger.weights).split([len(words) for words in fields])
    for given, target, answer in zip(emissions, split.targets, tagger.answers(fields), strict=True):
        length, gold = torch.tensor([len(target)]), torch.from_numpy(target).long()[None]
        expected -= layer.log_likelihood(given[None], gold, length).sum().item()
        assert layer.decode(given[None], length)[0].tolist() == answer.tolist()
    assert problem.value_and_gradient(point, 0.0)[0] == pytest.approx(expected)


def test_an_empty_sentence_has_no_tags():
    *_, tagger = FeatureTagger.fit(TRAIN, LABELS)
    assert [answer.tolist() for answer in tagger.answers([(), ("Fritz",), ()])][0::2] == [[], []]
    assert tagger.answers([]) == []


def test_a_stored_tagger_answers_alike(tmp_path):
    *_, tagger = FeatureTagger.fit(TRAIN, LABELS)
    write_model(tagger, tmp_path)
    again = read_model(tmp_path, kind="tagging", labels=LABELS)
    fields = [("the", "Emil", "Berg", "sings"), ("Fritz",)]
    expected = [answer.tolist() for answer in tagger.answers(fields)]
    assert [answer.tolist() for answer in again.answers(fields)] == expected
    with pytest.raises(ArtifactError, match="do not fit"):
        read_model(tmp_path, kind="tagging", labels=[*LABELS, "B-Y"])
