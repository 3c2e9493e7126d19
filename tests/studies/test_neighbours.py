"""Neighbours in tables with known vectors."""

import json

import pytest
import torch

from components.core.artifacts import writing
from components.core.errors import ConfigError, DataError
from components.data.segmenters import Segmentation
from components.data.tasks.examples import ExamplesJob, examples
from components.models.encoder import build_model, save_encoder
from components.settings.tasks import TaskSource
from components.studies.neighbours import parts_of_speech, same_part, table
from components.tokenization.char import CharTokenizer
from components.tokenization.special import SPECIAL_PIECES
from tests.studies.conftest import findings, fits


def test_the_table_of_every_family_is_its_embedding(outputs, add_encoder):
    vectors = add_encoder("word2vec")
    assert torch.equal(table(outputs.encoder("word2vec", "adapted").model), vectors.vectors())
    bert = add_encoder("bert")
    assert torch.equal(table(outputs.encoder("bert", "adapted").model), bert.piece_embedding().detach())
    sizes = {"characters": 4, "filters": ((1, 6), (2, 6)), "cells": 10, "projection": 6}
    assert table(build_model("elmo", vocabulary=8, settings=sizes)) is None


def test_neighbours(outputs, add_encoder):
    add_encoder("word2vec")
    actual = findings(outputs, "neighbours", encoder="word2vec", words="Apple, bank", count=3)
    rows = actual.numbers["neighbours"]
    near = {row["word"]: [entry.rpartition(" ") for entry in row["nearest"].split(", ")] for row in rows}
    assert list(near) == ["Apple", "bank"] and [len(entries) for entries in near.values()] == [3, 3]
    vectors = torch.nn.functional.normalize(table(outputs.encoder("word2vec", "adapted").model), dim=1)
    pieces = outputs.encoder("word2vec", "adapted").tokenizer.pieces
    cosines = vectors @ vectors[pieces.index("apple")]
    order = [pieces[index] for index in cosines.argsort(descending=True) if index >= len(SPECIAL_PIECES)]
    assert [name for name, _, _ in near["Apple"]] == order[1:4]
    assert near["Apple"][0][2] == f"{float(cosines[pieces.index(order[1])]):.2f}"


def test_words_that_are_not_a_single_piece(outputs, add_encoder):
    add_encoder("bert")
    add_encoder("word2vec")
    with pytest.raises(DataError, match=r"'aple' is not a single piece of the vocabulary but \[UNK\]; did you mean"):
        findings(outputs, "neighbours", encoder="bert", words="aple")
    with pytest.raises(DataError, match="'aple' is not in the vocabulary; did you mean 'apple'"):
        findings(outputs, "neighbours", encoder="word2vec", words="aple")


def test_a_character_model_has_no_table_of_words(outputs, tmp_path):
    CharTokenizer([*SPECIAL_PIECES, *"abc"], segmentation=Segmentation("none")).save(tmp_path / "characters")
    with writing(outputs.out / "encoder" / "ulmfit" / "adapted", kind="encoder") as draft:
        model = build_model("flair", vocabulary=8, settings={"embedding": 4, "hidden": 4})
        save_encoder(draft.path, family="flair", model=model, tokenizer=tmp_path / "characters")
    with pytest.raises(ConfigError, match="ulmfit-adapted: is a character model, which has no table of words"):
        findings(outputs, "neighbours", encoder="ulmfit")


def test_the_share_of_neighbours_of_the_same_part_of_speech():
    tagged = {"go": "VERB", "run": "VERB", "bank": "NOUN", "river": "NOUN"}
    actual = same_part({"go": ["Run", "bank"], "bank": ["river", "xyz"], "no": ["unread"]}, tagged)
    # Two thirds of the neighbours that have a tag are nouns; the one of a verb is half right, that of a noun wholly.
    assert (actual["words"], actual["same part"]) == (2, 0.75)
    assert actual["chance"] == pytest.approx((1 / 3 + 2 / 3) / 2) and actual["gain"].mean == pytest.approx(0.25)
    assert actual["gain"].low < 0 < actual["gain"].high
    with pytest.raises(DataError, match="fewer than two frequent words have neighbours"):
        same_part({"go": ["run"]}, tagged)


def test_the_parts_of_speech_come_from_a_task_of_tagging(outputs, add_encoder, add_task, tmp_path):
    add_encoder("word2vec")
    rows = [
        {"words": ["The", "old", "apple", "here"], "tags": ["DET", "ADJ", "NOUN", "ADV"]},
        {"words": ["red", "bank", "river"], "tags": ["ADJ", "NOUN", "NOUN"]},
        {"words": ["red"], "tags": ["NOUN"]},
        {"words": ["red"], "tags": ["ADJ"]},
    ]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = TaskSource(path=str(tmp_path), kind="tagging", scheme="none", budgets=[2], seeds=[0], overlap="report")
    examples(ExamplesJob(task="aws-type", source=source, output=outputs.out / "examples" / "aws-type"))
    assert parts_of_speech(outputs, "aws-type") == {
        "the": "DET", "old": "ADJ", "apple": "NOUN", "here": "ADV", "red": "ADJ", "bank": "NOUN", "river": "NOUN"
    }  # fmt: skip
    actual = findings(outputs, "neighbours", encoder="word2vec", words="bank", count=6, tags="aws-type")
    fits(actual, "neighbours")
    (row,) = actual.numbers["Neighbours with the same part of speech"]
    assert row["words"] == 7 and row["gain"]["mean"] == pytest.approx(row["same part"] - row["chance"])
