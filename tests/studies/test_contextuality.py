"""The measures against direct computation, words in sentences, and the senses of a word."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.studies.contextuality import (
    likeness,
    pseudo_words,
    two_senses,
)
from components.studies.words import of_letters, plain, sample, search, sentences_of, word_vectors
from tests.studies.conftest import findings, fits

NONE = Segmentation("none")


def cosine(item: np.ndarray, other: np.ndarray) -> float:
    return float(item @ other / np.linalg.norm(item) / np.linalg.norm(other))


def test_measures_against_all_pairs():
    vectors = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    pairs = [cosine(item, other) for item, other in combinations(vectors, 2)]
    assert likeness(vectors).mean() == pytest.approx(np.mean(pairs), abs=1e-6)


def test_two_separate_clusters_are_two_senses():
    rng = np.random.default_rng(1)
    centres = np.array([[5, 0, 0]] * 6 + [[0, 5, 0]] * 14)
    clusters, silhouette = two_senses((centres + 0.1 * rng.normal(size=(20, 3))).astype(np.float32))
    assert clusters.tolist() == [1] * 6 + [0] * 14 and silhouette > 0.9
    clusters, silhouette = two_senses(np.ones((5, 3), dtype=np.float32))
    assert clusters.tolist() == [0] * 5 and silhouette == 0


def test_a_sample_is_evenly_spread_over_the_corpus(outputs, add_corpus):
    add_corpus("domain", [f"The old bank number {n} is here." if n % 2 else "Short." for n in range(100)])
    directory = outputs.out / "corpus" / "domain"
    numbers = [int(item[4]) for item in sample(directory, NONE, count=10)]
    assert len(numbers) == 10 and numbers == sorted(set(numbers)) and numbers[0] < 12 and numbers[-1] > 80
    actual = search(directory, NONE, "BANK", count=5)
    assert [item[index] for item, index in actual] == ["bank"] * 5
    assert [item[4] for item, _ in actual] == ["1", "21", "41", "61", "81"]


@pytest.mark.parametrize("name", ["bert", "ulmfit", "gpt"])
def test_vectors_are_the_hidden_states_at_the_words(outputs, add_encoder, name):
    add_encoder(name)
    encoder = outputs.encoder(name, "adapted")
    sentences = [
        ["The", "red", "bank", "is", "old"],
        ["A", "very", "large", "river", "is", "here", "and", "there", "and", "money."],
    ]
    layers, starts = word_vectors(encoder, sentences)
    # The eight positions of gpt are fewer than the second sentence has; windows read it.
    assert starts.tolist() == [0, 5] and {len(layer) for layer in layers} == {15}
    (ids,) = encoder.tokenizer.encode_batch(["The red bank is old"])
    tokens = torch.tensor([encoder.model.special_tokens(ids.tolist())])
    with torch.no_grad():
        hidden = encoder.model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))
    column = tokens[0].tolist().index(encoder.tokenizer.pieces.index("bank"))
    for layer, expected in zip(layers, hidden, strict=True):
        assert layer[2] == pytest.approx(expected[0, column].numpy(), abs=1e-5)


TEXTS = [
    f"The {side} bank is {['old', 'red', 'here', 'there'][n % 4]} and very {n}."
    for n in range(60)
    for side in ("river", "money")
]


def test_the_study(outputs, add_corpus, add_encoder):
    add_corpus("domain", TEXTS)
    add_encoder("bert")
    actual = findings(outputs, "contextuality", encoder="bert", word="bank", sentences=80)
    fits(actual, "contextuality")
    layers, changes, merged, senses = actual.numbers.values()
    assert [layer["layer"] for layer in layers] == [0, 1, 2, 3]
    for layer in layers:
        means = {key: value["mean"] for key, value in layer.items() if isinstance(value, dict)}
        assert means["self-similarity, adjusted"] == pytest.approx(means["self-similarity"] - means["anisotropy"])
    for key in ("anisotropy", "self-similarity, adjusted"):
        assert changes[0][key]["mean"] == pytest.approx(layers[-1][key]["mean"] - layers[0][key]["mean"])
    assert merged[0]["pseudo-words"] > 2 and merged[0]["gain"]["mean"] == pytest.approx(
        merged[0]["purity"] - merged[0]["chance"]
    )
    assert sum(int(label[3:-1]) for label in {row["cluster"] for row in senses}) >= 10
    assert set(outputs.read) == {"corpus/domain", "encoder/bert/adapted"}


def test_the_interval_of_a_mean_cosine_covers_that_of_other_samples():
    """The pseudo-values have the variance of a mean over pairs, which is more than that of a mean over rows."""
    rng = np.random.default_rng(0)
    samples = [likeness(0.5 + rng.normal(size=(40, 6))) for _ in range(200)]
    spread = np.std([of.mean() for of in samples])
    assert np.mean([of.std(ddof=1) / np.sqrt(40) for of in samples]) == pytest.approx(spread, rel=0.15)


def test_messages_about_too_little_text(outputs, add_corpus, add_encoder):
    add_encoder("bert")
    add_corpus("domain", ["Short."] * 20)
    with pytest.raises(DataError, match="contains no sentence of 5 to 60 words"):
        findings(outputs, "contextuality", encoder="bert")
    add_corpus("domain", [f"One{n} two{n} three{n} four{n} five{n}." for n in range(20)])
    with pytest.raises(DataError, match="no word occurs in 5 of the 20 sentences; raise --sentences"):
        findings(outputs, "contextuality", encoder="bert")
    add_corpus("domain", TEXTS)
    with pytest.raises(DataError, match="'zebra': occurs 0 times in the corpus; at least 10 are needed"):
        findings(outputs, "contextuality", encoder="bert", word="zebra")


def test_words_of_a_sentence():
    texts = list(sentences_of("It is. The user's red bank, is old there! Too short.", NONE))
    assert texts == [["The", "user's", "red", "bank,", "is", "old", "there!"]]
    assert list(map(plain, texts[0])) == ["the", "user's", "red", "bank", "is", "old", "there"]
    assert [of_letters(word) for word in ("ที่", "naïve", "user's", "", "2")] == [True, True, False, False, False]


def test_static_vectors_do_not_depend_on_the_context(outputs, add_corpus, add_encoder):
    add_corpus("domain", TEXTS)
    add_encoder("word2vec")
    actual = findings(outputs, "contextuality", encoder="word2vec", word="bank", sentences=80)
    (layer,), _, (merged,), senses = actual.numbers.values()
    assert layer["self-similarity"]["mean"] == pytest.approx(1, abs=1e-5)
    # A pseudo-word is one word, so its vectors are one cluster.
    assert merged["purity"] == merged["chance"] and {row["silhouette"] for row in senses} == {0.0}


def test_a_pseudo_word_is_told_apart_by_its_context(outputs, add_encoder):
    """`bank` beside red, and `river` beside old, both written as `bank`."""
    add_encoder("ulmfit")
    encoder = outputs.encoder("ulmfit", "adapted")
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.mul_(3)
    read = [f"the {near} {word} is here".split() for near, word in (("red", "bank"), ("old", "river")) * 8]
    words = {word: [(number, 2) for number, of in enumerate(read) if of[2] == word] for word in ("bank", "river")}
    actual = pseudo_words(encoder, read, words)
    assert (actual["pseudo-words"], actual["purity"]) == (1, 1.0) and actual["chance"] < 0.8
