"""Studies of words: contextuality, senses, order, neighbours and vocabularies, against direct computation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from components.core.artifacts import writing
from components.core.errors import ArtifactError, ConfigError, DataError
from components.data.segmenters import Segmentation
from components.studies.contextuality import (
    likeness,
    of_letters,
    plain,
    pseudo_words,
    sample,
    sentences_of,
    two_clusters,
    word_vectors,
)
from components.studies.neighbours import parts_of_speech, same_part
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from components.tokenization.wordpiece import WordPieceTokenizer
from tests.studies.conftest import FILLER, findings, fits

NONE = Segmentation("none")
TEXTS = [
    f"The {side} bank is {['old', 'red', 'here', 'there'][n % 4]} and very {n}."
    for n in range(60)
    for side in ("river", "money")
]


def test_likeness_is_the_mean_cosine_of_all_pairs_and_its_interval_covers_that_of_other_samples():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(7, 4)).astype(np.float32)
    pairs = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in combinations(vectors, 2)]
    assert likeness(vectors).mean() == pytest.approx(np.mean(pairs), abs=1e-6)
    # The pseudo-values have the variance of a mean over pairs, which is more than that of a mean over rows.
    samples = [likeness(0.5 + rng.normal(size=(40, 6))) for _ in range(200)]
    spread = np.std([of.mean() for of in samples])
    assert np.mean([of.std(ddof=1) / np.sqrt(40) for of in samples]) == pytest.approx(spread, rel=0.15)


def test_two_separate_clusters():
    centres = np.array([[5, 0, 0]] * 6 + [[0, 5, 0]] * 14)
    clusters = two_clusters((centres + 0.1 * np.random.default_rng(1).normal(size=(20, 3))).astype(np.float32)).tolist()
    assert clusters == [clusters[0]] * 6 + [1 - clusters[0]] * 14
    assert not two_clusters(np.ones((5, 3), dtype=np.float32)).any()


def test_words_of_a_sentence_and_sentences_of_a_corpus(outputs, add_corpus):
    (words,) = sentences_of("It is. The user's red bank, is old there! Too short.", NONE)
    assert words == ["The", "user's", "red", "bank,", "is", "old", "there!"]
    assert list(map(plain, words)) == ["the", "user's", "red", "bank", "is", "old", "there"]
    assert [of_letters(word) for word in ("ที่", "naïve", "user's", "", "2")] == [True, True, False, False, False]
    add_corpus("domain", [f"The old bank number {n} is here." if n % 2 else "Short." for n in range(100)])
    directory = outputs.out / "corpus" / "domain"
    numbers = [int(item[4]) for item in sample(directory, NONE, count=10)]
    assert len(numbers) == 10 and numbers == sorted(set(numbers)) and numbers[0] < 12 and numbers[-1] > 80


@pytest.mark.parametrize("name", ["bert", "ulmfit", "gpt"])
def test_vectors_are_the_hidden_states_at_the_words(outputs, add_encoder, name):
    add_encoder(name)
    encoder = outputs.encoder(name, "adapted")
    long = "A very large river is here and there and money."
    layers, starts = word_vectors(encoder, [["The", "red", "bank", "is", "old"], long.split()])
    # The eight positions of gpt are fewer than the second sentence has; windows read it.
    assert starts.tolist() == [0, 5] and {len(layer) for layer in layers} == {15}
    (ids,) = encoder.tokenizer.encode_batch(["The red bank is old"])
    tokens = torch.tensor([encoder.model.special_tokens(ids.tolist())])
    with torch.no_grad():
        hidden = encoder.model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))
    column = tokens[0].tolist().index(encoder.tokenizer.pieces.index("bank"))
    for layer, expected in zip(layers, hidden, strict=True):
        assert layer[2] == pytest.approx(expected[0, column].numpy(), abs=1e-5)


def test_contextuality(outputs, add_corpus, run_with):
    add_corpus("domain", TEXTS)
    run_with("bert", "word2vec")
    actual = findings(outputs, "contextuality", encoder="bert", sentences=80)
    fits(actual, "contextuality")
    layers, (change,), (of,) = actual.numbers.values()
    assert [layer["layer"] for layer in layers] == [0, 1, 2, 3]
    means = [{key: of["mean"] for key, of in layer.items() if isinstance(of, dict)} for layer in layers]
    for layer in means:
        assert layer["self-similarity, adjusted"] == pytest.approx(layer["self-similarity"] - layer["anisotropy"])
    for key in means[0]:
        assert change[key]["mean"] == pytest.approx(means[-1][key] - means[0][key])
    assert of["pseudo-words"] > 2 and of["gain"]["mean"] == pytest.approx(of["purity"] - of["chance"])
    assert set(outputs.read) == {"corpus/domain", "encoder/bert/adapted"}
    # Static vectors do not depend on the context; a pseudo-word is one word, so its vectors are one cluster.
    (layer,), _, (of,) = findings(outputs, "contextuality", encoder="word2vec", sentences=80).numbers.values()
    assert layer["self-similarity"]["mean"] == pytest.approx(1, abs=1e-5) and of["purity"] == of["chance"]


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


def test_too_little_text(outputs, add_corpus, add_encoder):
    add_encoder("bert")
    add_corpus("domain", ["Short."] * 20)
    for study in ("contextuality", "word-order"):
        with pytest.raises(DataError, match="contains no sentence of 5 to 60 words"):
            findings(outputs, study, encoder="bert")
    add_corpus("domain", [f"One{n} two{n} three{n} four{n} five{n}." for n in range(20)])
    with pytest.raises(DataError, match="no word occurs in 5 of the 20 sentences; raise --sentences"):
        findings(outputs, "contextuality", encoder="bert")


def test_static_vectors_guess_the_order_and_contextual_ones_do_not(outputs, run_with, add_corpus):
    # Sentences of six words in alphabetic order, so that the order can be learned.
    rng = np.random.default_rng(0)
    texts = [" ".join(sorted(rng.choice(FILLER, 6, replace=False))).capitalize() + "." for _ in range(200)]
    add_corpus("domain", texts)
    run_with("word2vec", "ulmfit")
    actual = findings(outputs, "word-order", sentences=200, seeds=2)
    fits(actual, "word-order")
    (rows,) = actual.numbers.values()
    means = [row["accuracy"]["mean"] for row in rows]
    assert [row["encoder"] for row in rows] == ["word2vec-adapted", *["ulmfit-adapted"] * 3]
    assert means[:2] == [0.5, 0.5] and means[-1] > 0.6
    assert actual.chapter.tables[0].rows[0] == ["word2vec-adapted", "0", "0.500"]
    lead = "domain text; 0 is the embedding: accuracy is highest for ulmfit-adapted, "
    assert actual.chapter.lead[0].startswith(lead) and "word2vec-adapted" in actual.chapter.figures[0].svg


def test_neighbours(outputs, add_encoder):
    model, _ = add_encoder("word2vec"), add_encoder("bert")
    outputs.params.run.__dict__["families"] = ["word2vec", "bert"]
    actual = findings(outputs, "neighbours", words="Apple, bank", count=3)
    assert actual.chapter.text[-1].startswith("bert-adapted is left out: no table of word vectors, such as word2vec")
    rows = actual.numbers["neighbours"]
    near = {row["word"]: [entry.rpartition(" ") for entry in row["nearest"].split(", ")] for row in rows}
    assert list(near) == ["Apple", "bank"] and [len(entries) for entries in near.values()] == [3, 3]
    vectors = torch.nn.functional.normalize(model.vectors(), dim=1)
    pieces = outputs.encoder("word2vec", "adapted").tokenizer.pieces
    cosines = vectors @ vectors[pieces.index("apple")]
    order = [pieces[index] for index in cosines.argsort(descending=True) if index >= len(SPECIAL_PIECES)]
    assert [name for name, _, _ in near["Apple"]] == order[1:4]
    assert near["Apple"][0][2] == f"{float(cosines[pieces.index(order[1])]):.2f}"
    with pytest.raises(ConfigError, match="bert: no table of word vectors, such as word2vec"):
        findings(outputs, "neighbours", encoder="bert")
    with pytest.raises(DataError, match="'aple' is not in the vocabulary; did you mean 'apple'"):
        findings(outputs, "neighbours", encoder="word2vec", words="aple")


def test_the_share_of_neighbours_of_the_same_part_of_speech(outputs, add_encoder, write_task):
    tagged = {"go": "VERB", "run": "VERB", "bank": "NOUN", "river": "NOUN"}
    actual = same_part({"go": ["Run", "bank"], "bank": ["river", "xyz"], "no": ["unread"]}, tagged)
    # Two thirds of the neighbours that have a tag are nouns; the one of a verb is half right, that of a noun wholly.
    assert (actual["words"], actual["same part"]) == (2, 0.75)
    assert actual["chance"] == pytest.approx((1 / 3 + 2 / 3) / 2) and actual["gain"].mean == pytest.approx(0.25)
    assert actual["gain"].low < 0 < actual["gain"].high
    with pytest.raises(DataError, match="fewer than two frequent words have neighbours"):
        same_part({"go": ["run"]}, tagged)
    add_encoder("word2vec")
    tags = {"The": "DET", "old": "ADJ", "apple": "NOUN", "here": "ADV", "red": "ADJ", "bank": "NOUN", "river": "NOUN"}
    rows = [{"words": list(tags), "tags": list(tags.values())}, {"words": ["red"], "tags": ["NOUN"]}]
    write_task("aws-type", [*rows, {"words": ["red"], "tags": ["ADJ"]}], kind="tagging", scheme="none")
    assert parts_of_speech(outputs, "aws-type") == {word.lower(): tag for word, tag in tags.items()}
    actual = findings(outputs, "neighbours", encoder="word2vec", words="bank", count=6, tags="aws-type")
    fits(actual, "neighbours")
    (row,) = actual.numbers["Neighbours with the same part of speech"]
    assert row["words"] == 7 and row["gain"]["mean"] == pytest.approx(row["same part"] - row["chance"])


def test_vocabularies(outputs, add_corpus):
    """Words have one piece each and half of them unknown; pieces are more, and none is unknown."""
    with pytest.raises(ArtifactError, match="missing; run `headstart stage tokenizer --item general-word`"):
        findings(outputs, "vocabulary")
    add_corpus("domain", ["never read"], ["red reds"] * 40)
    for kind, name, further in ((WordTokenizer, "word", ()), (WordPieceTokenizer, "wordpiece", ("##s",))):
        with writing(outputs.out / "tokenizer" / f"domain-{name}", kind="tokenizer") as draft:
            pieces = [*SPECIAL_PIECES, "red", *further]
            kind(pieces, segmentation=NONE, lowercase=True, strip_accents=True).save(draft.path)
    actual = findings(outputs, "vocabulary")
    fits(actual, "vocabulary")
    whole, scripts = actual.chapter.tables
    assert whole.columns == [
        "vocabulary", "pieces", "alphabet", "non-initial", "pieces per word", "characters per piece", "unknown"
    ]  # fmt: skip
    assert whole.rows[0][0] == "domain-word" and [row[4][:5] for row in whole.rows] == ["1.000", "1.500"]
    assert [row[-1].partition("%")[0] for row in whole.rows] == ["50.000", "0.000"]
    assert [row[:2] for row in scripts.rows] == [["domain-word", "latin"], ["domain-wordpiece", "latin"]]
    # Of 40 documents none has an unknown piece: the exact bound.
    unknown = actual.numbers["Held-out text"][1]["unknown"]
    assert (unknown["mean"], unknown["low"], unknown["high"]) == (0, 0, pytest.approx(1 - 0.025 ** (1 / 40)))
    assert set(outputs.read) == {"tokenizer/domain-word", "tokenizer/domain-wordpiece", "corpus/domain"}
