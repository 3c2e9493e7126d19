"""Words that are exchanged in sentences, and what the vectors of the two versions have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from components.errors import DataError
from components.studies import exchange, word_order
from components.studies.exchange import distances, exchanged, measures, probe
from components.studies.frame import Outputs
from components.studies.occurrences import sentence
from components.studies.word_order import preference
from components.tokenization.segmenters import Segmentation

NONE = Segmentation("none")


def swapped(*texts: str) -> list[tuple[str, str]]:
    return [(one.text, other.text) for one, other in exchanged([sentence(text, NONE) for text in texts])]


def test_words_after_the_same_frequent_word_are_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FRAMES", 1)
    monkeypatch.setattr(exchange, "COMMON", 1)
    found = swapped(
        "Today the mouse chases the elephant, slowly.", "the cat sees the cat", "a dog sees a fox", "the 4 of the 5"
    )
    assert found == [("Today the mouse chases the elephant, slowly.", "Today the elephant chases the mouse, slowly.")]


def test_the_spans_of_the_exchanged_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "FRAMES", 1)
    monkeypatch.setattr(exchange, "COMMON", 1)
    ((one, other),) = exchanged([sentence("well, the ox and then the elephant left the barn", NONE)])
    assert other.text == "well, the elephant and then the ox left the barn"
    assert other.spans == sentence(other.text, NONE).spans
    assert sorted(map(one.word, range(9))) == sorted(map(other.word, range(9)))


def test_frequent_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "COMMON", 2)
    assert swapped("the cat and the cat", "the cat and the dog") == []


def test_distances_of_equal_and_zero_vectors() -> None:
    one = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    other = np.array([[1.0, 1e-9], [-1.0, -1.0], [1.0, 0.0], [0.0, 2.0]])
    assert distances(one, other).tolist() == pytest.approx([0, 2, 0, 1])


def test_the_measures_of_separable_and_of_equal_versions() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 6))
    assert measures(vectors, vectors) == {"distance": 0, "relative": 0, "probe": 0.5}
    moved = vectors + np.array([9.0, 0, 0, 0, 0, 0])
    assert probe(vectors, moved) == 1
    found = measures(vectors, moved)
    assert found["probe"] == 1 and found["relative"] == pytest.approx(
        distances(vectors, moved).mean() / distances(vectors, np.roll(vectors, 1, axis=0)).mean()
    )
    # A probe cannot learn what differs from sentence to sentence.
    assert probe(vectors, vectors + rng.normal(size=vectors.shape)) < 0.8


@pytest.fixture
def corpus(add_corpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences in which the fruit comes first, of words that the tokenizer knows."""
    monkeypatch.setattr(exchange, "FRAMES", 2)
    monkeypatch.setattr(exchange, "COMMON", 3)
    fruits, metals, more = ["apple", "pear", "plum"], ["iron", "zinc", "gold"], ["here", "there", "old", "red"]
    texts = [
        f"the {fruits[n % 3]} is {more[n % 4]} the {metals[n // 3 % 3]} is {more[n // 9 % 4]} {more[n // 2 % 4]}."
        for n in range(120)
    ]
    add_corpus("domain", texts)


def test_the_study(outputs: Outputs, corpus: None, add_encoder: Any) -> None:
    for name in ("word2vec", "ulmfit"):
        add_encoder(name)
    outputs.params = outputs.params.model_copy(
        update={"run": outputs.params.run.model_copy(update={"families": ["word2vec", "ulmfit"]})}
    )
    found = word_order.run(outputs, sentences=40)
    layers = found.numbers["layers"]
    equal = {"distance": 0, "relative": 0, "probe": 0.5, "example": 0}
    assert layers["bag of words"] == [equal]
    assert layers["word2vec-adapted"] == [equal], "static vectors are a bag of words"
    embedding, *above = layers["ulmfit-adapted"]
    assert embedding == equal
    assert len(above) == 2 and all(layer["distance"] > 0 and layer["example"] == 0 for layer in above)
    assert found.numbers["sentences"] == 40 and 0 <= found.numbers["preference"]["ulmfit-adapted"] <= 1
    assert "word2vec-adapted" not in found.numbers["preference"]
    assert len(found.chapter.tables[0].rows) == 1 + 1 + 3
    assert found.chapter.lead[0] == "bag of words: the probe tells the original order with an accuracy of 0.500."


def test_the_preference_counts_the_pairs_and_half_of_the_ties(
    outputs: Outputs, corpus: None, add_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_encoder("ulmfit")
    encoder = outputs.encoder("ulmfit", "adapted")
    pairs = exchanged([sentence(f"the apple is {word} the gold is here", NONE) for word in ("old", "red", "there")])
    assert len(pairs) == 3
    # The original is more probable, as probable, more probable.
    sums = iter([-1.0, -2.0, -3.0, -3.0, -1.0, -4.0])
    monkeypatch.setattr(word_order, "text_log_probs", lambda model, pieces: np.array([next(sums), 0.0]))
    assert preference(encoder, pairs) == pytest.approx(2.5 / 3)
    add_encoder("word2vec")
    assert preference(outputs.encoder("word2vec", "adapted"), pairs) is None


def test_too_few_sentences_are_reported(outputs: Outputs, add_corpus: Any, add_encoder: Any) -> None:
    add_corpus("domain", ["the apple is here and there."])
    add_encoder("ulmfit")
    with pytest.raises(DataError, match="0 sentences in which two words can be exchanged, at least 20 are needed"):
        word_order.run(outputs, encoder="ulmfit")
