"""Neighbours in tables with known vectors."""

import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.studies.neighbours import parts_of_speech, same_part
from components.tokenization.special import SPECIAL_PIECES
from tests.studies.conftest import findings, fits


def test_neighbours(outputs, add_encoder):
    model = add_encoder("word2vec")
    actual = findings(outputs, "neighbours", encoder="word2vec", words="Apple, bank", count=3)
    rows = actual.numbers["neighbours"]
    near = {row["word"]: [entry.rpartition(" ") for entry in row["nearest"].split(", ")] for row in rows}
    assert list(near) == ["Apple", "bank"] and [len(entries) for entries in near.values()] == [3, 3]
    vectors = torch.nn.functional.normalize(model.vectors(), dim=1)
    pieces = outputs.encoder("word2vec", "adapted").tokenizer.pieces
    cosines = vectors @ vectors[pieces.index("apple")]
    order = [pieces[index] for index in cosines.argsort(descending=True) if index >= len(SPECIAL_PIECES)]
    assert [name for name, _, _ in near["Apple"]] == order[1:4]
    assert near["Apple"][0][2] == f"{float(cosines[pieces.index(order[1])]):.2f}"


def test_what_has_no_table_of_words_is_refused(outputs, add_encoder):
    add_encoder("bert")
    add_encoder("word2vec")
    with pytest.raises(ConfigError, match="bert: no table of word vectors, such as word2vec"):
        findings(outputs, "neighbours", encoder="bert")
    with pytest.raises(DataError, match="'aple' is not in the vocabulary; did you mean 'apple'"):
        findings(outputs, "neighbours", encoder="word2vec", words="aple")


def test_the_share_of_neighbours_of_the_same_part_of_speech():
    tagged = {"go": "VERB", "run": "VERB", "bank": "NOUN", "river": "NOUN"}
    actual = same_part({"go": ["Run", "bank"], "bank": ["river", "xyz"], "no": ["unread"]}, tagged)
    # Two thirds of the neighbours that have a tag are nouns; the one of a verb is half right, that of a noun wholly.
    assert (actual["words"], actual["same part"]) == (2, 0.75)
    assert actual["chance"] == pytest.approx((1 / 3 + 2 / 3) / 2) and actual["gain"].mean == pytest.approx(0.25)
    assert actual["gain"].low < 0 < actual["gain"].high
    with pytest.raises(DataError, match="fewer than two frequent words have neighbours"):
        same_part({"go": ["run"]}, tagged)


def test_the_parts_of_speech_come_from_a_task_of_tagging(outputs, add_encoder, write_task):
    add_encoder("word2vec")
    rows = [
        {"words": ["The", "old", "apple", "here"], "tags": ["DET", "ADJ", "NOUN", "ADV"]},
        {"words": ["red", "bank", "river"], "tags": ["ADJ", "NOUN", "NOUN"]},
        {"words": ["red"], "tags": ["NOUN"]},
        {"words": ["red"], "tags": ["ADJ"]},
    ]
    write_task("aws-type", rows, kind="tagging", scheme="none")
    assert parts_of_speech(outputs, "aws-type") == {
        "the": "DET", "old": "ADJ", "apple": "NOUN", "here": "ADV", "red": "ADJ", "bank": "NOUN", "river": "NOUN"
    }  # fmt: skip
    actual = findings(outputs, "neighbours", encoder="word2vec", words="bank", count=6, tags="aws-type")
    fits(actual, "neighbours")
    (row,) = actual.numbers["Neighbours with the same part of speech"]
    assert row["words"] == 7 and row["gain"]["mean"] == pytest.approx(row["same part"] - row["chance"])
