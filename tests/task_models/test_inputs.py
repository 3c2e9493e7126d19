"""Encoding of two texts: truncation, one or two sequences, both orders."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from components.learners.task_models import inputs
from components.learners.task_models.kinds import TASKS
from components.learners.task_models.model import TaskModel
from components.learners.task_models.sampler import collate
from components.models.encoder import Encoder, load_encoder
from components.settings.finetune import FinetuneSettings
from components.tokenization.special import END, START

Encoders = Callable[..., Path]
ROWS = [("the old apple", "a pear"), ("iron is here", "zinc \u0000")]


@pytest.mark.parametrize(
    ("first", "second", "room", "expected"),
    [
        (3, 4, 9, (3, 4)),
        (3, 9, 7, (3, 4)),
        (9, 2, 7, (5, 2)),
        (9, 9, 7, (4, 3)),
        (9, 9, 8, (4, 4)),
        (9, 9, 1, (1, 1)),
        (1, 9, 2, (1, 1)),
    ],
)
def test_the_longer_text_is_cut_until_both_are_equally_long(first, second, room, expected):
    single, other = inputs.shortened(list(range(first)), list(range(second)), room)
    assert (len(single), len(other)) == expected
    assert single == list(range(len(single))) and other == list(range(len(other))), "what is cut is the end"


def encoded(kind: str, encoder: Encoder, settings: FinetuneSettings, rows=ROWS):
    return TASKS[kind].encode(rows, encoder.tokenizer, encoder.model, settings)


@pytest.fixture
def load(make_encoder: Encoders) -> Callable[[str], Encoder]:
    return lambda family: load_encoder(make_encoder(family))


def pieces_of(encoder: Encoder, *texts: str) -> list[list[int]]:
    return [list(map(int, pieces)) for pieces in encoder.tokenizer.encode_batch(texts)]


def test_bert_reads_both_texts_with_segments(load, settings):
    encoder = load("bert")
    first, second = pieces_of(encoder, *ROWS[0])
    row = encoded("pair", encoder, settings)[0]
    assert [part.tolist() for part in row.pieces] == [[START, *first, END, *second, END]]
    assert [part.tolist() for part in row.segments] == [[0] * (len(first) + 2) + [1] * (len(second) + 1)]
    assert row.units[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("family", "before", "between", "after"),
    [
        ("gpt", [END], [END], []),
        ("transformer-xl", [END], [END], []),
        ("xlnet", [], [END], [END, START]),
        ("roberta", [START], [END, END], [END]),
        ("albert", [START], [END], [END]),
    ],
)
def test_special_pieces_of_a_pair(family, before, between, after, load, settings):
    encoder = load(family)
    first, second = pieces_of(encoder, *ROWS[0])
    row = encoded("pair", encoder, settings)[0]
    assert [part.tolist() for part in row.pieces] == [[*before, *first, *between, *second, *after]]


def test_a_causal_transformer_reads_both_orders_for_symmetric_tasks(load, settings):
    encoder = load("gpt")
    first, second = pieces_of(encoder, *ROWS[0])
    row = encoded("similarity", encoder, settings)[0]
    assert [part.tolist() for part in row.pieces] == [[END, *first, END, *second], [END, *second, END, *first]]
    assert len(encoded("similarity", load("bert"), settings)[0].pieces) == 1


def test_the_tokens_of_tasks_stand_around_and_between_the_texts(load, settings):
    encoder = load("gpt")
    TaskModel(encoder.model, task=TASKS["similarity"], settings=settings, labels=[])
    start, delimiter, extract = range(encoder.tokenizer.vocab_size, encoder.tokenizer.vocab_size + 3)
    first, second = pieces_of(encoder, *ROWS[0])
    orders = [[start, *first, delimiter, *second, extract], [start, *second, delimiter, *first, extract]]
    assert [part.tolist() for part in encoded("similarity", encoder, settings)[0].pieces] == orders
    assert [part.tolist() for part in encoded("pair", encoder, settings)[0].pieces] == orders[:1]
    (row,) = encoded("choice", encoder, settings, [("the old apple", "a pear", "a pear")])
    assert [part.tolist() for part in row.pieces] == orders[:1] * 2
    (text,) = encoded("classification", encoder, settings, [("the old apple",)])
    assert [part.tolist() for part in text.pieces] == [[start, *first, extract]]


@pytest.mark.parametrize(("change", "own"), [({}, True), ({"method": "features"}, False)])
def test_a_trained_encoder_has_tokens_of_its_own_for_tasks(load, settings, change, own):
    encoder = load("gpt")
    TaskModel(encoder.model, task=TASKS["pair"], settings=settings.model_copy(update=change), labels=["a", "b"])
    assert encoder.model.config.task_tokens is own


@pytest.mark.parametrize("family", ["gpt", "word2vec", "ulmfit", "flair"])
def test_similarity_is_symmetric(family, load, settings):
    encoder = load(family)
    model = TaskModel(encoder.model, task=TASKS["similarity"], settings=settings, labels=[]).eval()
    turned = [(second, first) for first, second in ROWS]
    with torch.inference_mode():
        single, other = (
            model(collate(encoded("similarity", encoder, settings, rows)))  # (B, 1)
            for rows in (ROWS, turned)
        )
    torch.testing.assert_close(single, other, atol=1e-5, rtol=1e-5)
    assert single.shape == (2, 1) and not torch.allclose(single[0], single[1])


def test_encoders_without_attention_read_two_sequences(load, settings):
    encoder = load("ulmfit")
    first, second = pieces_of(encoder, *ROWS[0])
    row = encoded("pair", encoder, settings)[0]
    assert [part.tolist() for part in row.pieces] == [[END, *first], [END, *second]]
    together = encoded("pair", encoder, settings.model_copy(update={"pairs": "joined"}))[0]
    assert [part.tolist() for part in together.pieces] == [[END, *first, END, *second]]
    apart = encoded("pair", load("bert"), settings.model_copy(update={"pairs": "apart"}))[0]
    assert len(apart.pieces) == 2


def test_every_choice_is_a_sequence_with_the_text(load, settings):
    encoder = load("bert")
    text, single, two, three = pieces_of(encoder, "the apple", "is red", "is a horse", "cat")
    actual = encoded("choice", encoder, settings, [("the apple", "is red", "is a horse"), ("the apple", "cat", "cat")])
    assert [part.tolist() for part in actual[0].pieces] == [
        [START, *text, END, *single, END],
        [START, *text, END, *two, END],
    ]
    assert actual[1].pieces[1].tolist() == [START, *text, END, *three, END]
