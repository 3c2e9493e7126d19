"""Tagging without a language model: the most frequent tag, and a CRF on features."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from components.core.errors import ArtifactError
from components.data.scoring.spans import legal_transitions
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.learners.base import Rows
from components.learners.baselines import baselines_of
from components.learners.baselines.tagging import FeatureTagger, _features
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
    rows = Rows(train, np.arange(3), train, train, LABELS, scoring_for("tagging", LABELS))
    (candidate,) = baselines_of("tagging", language="en", which="auto")["most-frequent"](rows)
    # Of a's two tags, each seen once, the lower number; an unknown word gets 2, which is the most frequent.
    assert [answer.tolist() for answer in candidate.model.answers([("a", "b", "new"), ("c",)])] == [[0, 2, 2], [2]]


def test_features_of_a_word_and_its_neighbours():
    (first, second, third) = _features(["New-York", "is", "4U2"])
    assert {"word=New-York", "lower=new-york", "begins=new-", "ends=york", "shape=Xxx-Xxxx", "short=Xx-Xx"} <= set(
        first
    )
    assert "-1:edge" in first and "1:near=is" in first and "2:near=4u2" in first
    assert "-1:near=new-york" in second and "-1:suffix=ork" in second and "1:short=9X9" in second
    assert "-2:near=new-york" in third and "1:edge" in third and "begins=4u2" in third
    assert "begins=i" in second and "ends=is" in second and "begins=isx" not in second


@pytest.mark.parametrize("word", ["Anna\n", "Anna\r", "An\0na", "An\u2028na", "a --> b", "(0) x: y"])
def test_words_may_have_any_characters(word):
    """CRFsuite's text form of a model is parsed by lines and arrows."""

    def fitted(name):
        fields = [tuple(name if part == "Anna" else part for part in words) for words in TRAIN.fields]
        return FeatureTagger.fit(replace(TRAIN, fields=fields), LABELS, penalty=0.1), fields

    (tagger, fields), (plain, _) = fitted(word), fitted("Anna")
    assert {f"word={word}", f"1:near={word.lower()}"} <= set(tagger.features)
    assert [answer.tolist() for answer in tagger.answers(fields)] == [tags.tolist() for tags in TRAIN.targets]
    berg, same = (each.weights[each.features.index("word=Berg")] for each in (tagger, plain))
    np.testing.assert_allclose(berg, same, atol=0.2)


def test_it_learns_stays_legal_and_is_stored(tmp_path):
    tagger = FeatureTagger.fit(TRAIN, LABELS, penalty=0.1)
    write_model(tagger, tmp_path)
    for model in (tagger, read_model(tmp_path, kind="tagging", labels=LABELS)):
        learned = model.answers(TRAIN.fields)
        assert [answer.tolist() for answer in learned] == [target.tolist() for target in TRAIN.targets]
        emil, empty, fritz = model.answers([("the", "Emil", "Berg", "sings"), (), ("Fritz",)])
        # I-X follows B-X only.
        assert emil.tolist() == [2, 0, 1, 2] and empty.tolist() == [] and fritz.tolist() in ([0], [2])
        assert model.answers([]) == []
    with pytest.raises(ArtifactError, match="do not fit"):
        read_model(tmp_path, kind="tagging", labels=[*LABELS, "B-Y"])


def test_the_best_tags_are_those_of_the_layer():
    rng, tags = np.random.default_rng(1), len(LABELS)
    layer = LinearChainCRF(tags, legal=Legal(*map(torch.from_numpy, legal_transitions(LABELS)))).double()
    fields = [tuple(f"w{word}" for word in rng.integers(0, 9, size)) for size in (3, 1, 7, 2)]
    tagger = FeatureTagger(
        LABELS,
        [f"word=w{word}" for word in range(9)],
        *(rng.normal(size=(*shape, tags)) for shape in ((9,), (tags,), (), ())),
    )
    with torch.no_grad():
        for name in ("transition", "start", "end"):
            getattr(layer, name).copy_(torch.from_numpy(getattr(tagger, name)))
    for words, answer in zip(fields, tagger.answers(fields), strict=True):
        scores = torch.from_numpy(np.stack([tagger.weights[int(word[1:])] for word in words]))[None]
        assert layer.decode(scores, torch.tensor([len(words)]))[0].tolist() == answer.tolist()


def test_weights_minimise_the_penalised_likelihood():
    """With the probabilities of one word, which has the features of no other: those of a softmax regression."""
    tagger = FeatureTagger.fit(split_of(("a", [0]), ("a", [0]), ("a", [2])), LABELS, penalty=0.5)
    scores = np.asarray([tagger.weights[:, tag].sum() for tag in (0, 2)])
    share = np.exp(scores[0]) / np.exp(scores).sum()
    features = (tagger.weights[:, 0] != 0).sum()
    # Of each feature, the gradient is 0: the expected number of the tag, less its number, plus the weighted penalty.
    np.testing.assert_allclose(3 * share - 2 + 0.5 * tagger.weights[:, 0].sum() / features, 0, atol=1e-2)
