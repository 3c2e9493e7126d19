"""The measures against direct computation, words in sentences, and the senses of a word."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.studies import contextuality
from components.studies.contextuality import explainable_variance, intra_sentence_similarity, self_similarity
from components.studies.occurrences import sample, search, sentence, sentences_of, states, two_senses

NONE = Segmentation("none")


def cosine(item: np.ndarray, other: np.ndarray) -> float:
    return float(item @ other / np.linalg.norm(item) / np.linalg.norm(other))


def test_measures_against_all_pairs():
    vectors = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    pairs = [cosine(item, other) for item, other in combinations(vectors, 2)]
    assert self_similarity(vectors) == pytest.approx(np.mean(pairs), abs=1e-6)
    mean = vectors.mean(0)
    assert intra_sentence_similarity(vectors) == pytest.approx(np.mean([cosine(v, mean) for v in vectors]), abs=1e-6)
    values = np.linalg.eigvalsh(vectors.T @ vectors)
    assert explainable_variance(vectors) == pytest.approx(values[-1] / values.sum(), abs=1e-6)


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
    numbers = [int(item.word(4)) for item in sample(directory, NONE, count=10)]
    assert len(numbers) == 10 and numbers == sorted(set(numbers)) and numbers[0] < 12 and numbers[-1] > 80
    actual = search(directory, NONE, "BANK", count=5)
    assert [item.word(index) for item, index in actual] == ["bank"] * 5
    assert [item.word(4) for item, _ in actual] == ["1", "21", "41", "61", "81"]


@pytest.mark.parametrize("name", ["bert", "ulmfit", "gpt"])
def test_states_are_the_hidden_states_at_the_words(outputs, add_encoder, name):
    add_encoder(name)
    encoder = outputs.encoder(name, "adapted")
    texts = ["The red bank, is old.", "A very large river is here and there and money."]
    read = {
        number: (indices, layers) for number, indices, layers in states(encoder, [sentence(t, NONE) for t in texts])
    }
    indices, layers = read[0]
    (ids,) = encoder.tokenizer.encode_batch([texts[0]])
    tokens = torch.tensor([encoder.model.special_tokens(ids.tolist())])
    with torch.no_grad():
        hidden = encoder.model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))
    assert len(layers) == len(hidden) and indices == [0, 1, 2, 3, 4]
    column = tokens[0].tolist().index(encoder.tokenizer.pieces.index("bank"))
    for layer, expected in zip(layers, hidden, strict=True):
        assert layer[2] == pytest.approx(expected[0, column].numpy(), abs=1e-5)
    # The eight positions of gpt contain END and seven words.
    assert read[1][0] == (list(range(7)) if name == "gpt" else list(range(10)))


TEXTS = [
    f"The {side} bank is {['old', 'red', 'here', 'there'][n % 4]} and very {n}."
    for n in range(60)
    for side in ("river", "money")
]


def test_the_study(outputs, add_corpus, add_encoder):
    add_corpus("domain", TEXTS)
    add_encoder("bert")
    actual = contextuality.run(outputs, encoder="bert", sentences=80)
    entry = actual.numbers["bert-adapted"]
    assert [layer["layer"] for layer in entry["layers"]] == [0, 1, 2, 3]
    for layer in entry["layers"]:
        assert layer["adjusted_self_similarity"] == pytest.approx(layer["self_similarity"] - layer["anisotropy"])
        assert 0 < layer["random_variance"] < layer["explainable_variance"] <= 1
    assert sum(cluster["occurrences"] for cluster in entry["senses"]["clusters"]) >= 10
    assert contextuality.run(outputs, encoder="bert", sentences=80) == actual
    assert set(outputs.read) == {"corpus/domain", "encoder/bert/adapted"}


def test_messages_about_too_little_text(outputs, add_corpus, add_encoder):
    add_encoder("bert")
    add_corpus("domain", ["Short."] * 20)
    with pytest.raises(DataError, match="contains no sentence of 4 to 60 words"):
        contextuality.run(outputs, encoder="bert")
    add_corpus("domain", [f"One{n} two{n} three{n} four{n}." for n in range(20)])
    with pytest.raises(DataError, match="no word occurs in 5 of the 20 sentences; raise --sentences"):
        contextuality.run(outputs, encoder="bert")
    add_corpus("domain", TEXTS)
    with pytest.raises(DataError, match="'zebra': occurs 0 times in the corpus; at least 10 are needed"):
        contextuality.run(outputs, encoder="bert", word="zebra")


def test_words_of_a_sentence():
    actual = sentence("The user's bank, No. 2!", NONE)
    assert [actual.word(index) for index in range(len(actual.spans))] == ["the", "user's", "bank", "no", "2"]
    assert actual.snippet(2) == "The user's [bank], No. 2!"
    assert actual.snippet(2, around=4) == "\u2026r's [bank], No\u2026"
    texts = [item.text for item in sentences_of("It is. The red bank is old there. Too short.", NONE)]
    assert texts == ["The red bank is old there."]


def test_static_vectors_do_not_depend_on_the_context(outputs, add_corpus, add_encoder):
    add_corpus("domain", TEXTS)
    add_encoder("word2vec")
    actual = contextuality.run(outputs, encoder="word2vec", word="bank", sentences=80)
    (layer,) = actual.numbers["word2vec-adapted"]["layers"]
    assert layer["self_similarity"] == pytest.approx(1, abs=1e-5)
    assert layer["explainable_variance"] == pytest.approx(1, abs=1e-5)
    senses = actual.numbers["word2vec-adapted"]["senses"]
    assert senses["silhouette"] == 0 and "form one cluster" in senses["sentence"]
