"""Encoding of rows by every family: one text, two texts, choices, words, questions and contexts; windows of long ones,
and how much is read."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError
from components.learners.task_models import inputs
from components.learners.task_models.base import Encoded
from components.learners.task_models.extent import LONGEST, Extent, reading_of
from components.learners.task_models.inputs import WindowPooling, share_cut, sizes_of, window_size
from components.learners.task_models.kinds import TASKS, find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.predictor import Predictor
from components.learners.task_models.sampler import collate, matrix
from components.models import FAMILIES
from components.models.encoder import Encoder, load_encoder
from components.settings.finetune import FinetuneSettings
from components.tokenization.special import END, START

PAIRS = [("the old apple", "a pear"), ("iron is here", "zinc \u0000")]
LONG = "the apple is red here and there a pear a plum very old iron zinc gold"
TEXTS = [(LONG,), ("red apple",), (f"{LONG} {LONG}",)]
Load = Callable[[str], Encoder]


@pytest.fixture
def load(make_encoder) -> Load:
    return lambda family: load_encoder(make_encoder(family))


def encode(kind: str, encoder: Encoder, settings: FinetuneSettings, rows: Any, **changes: Any) -> list[Encoded]:
    return TASKS[kind].encode(rows, encoder.tokenizer, encoder.model, settings.model_copy(update=changes))


def pieces(row: Encoded) -> list[list[int]]:
    return [part.tolist() for part in row.pieces]


def pieces_of(encoder: Encoder, *texts: str) -> list[list[int]]:
    return [list(map(int, ids)) for ids in encoder.tokenizer.encode_batch(texts)]


def model_of(encoder: Encoder, settings: FinetuneSettings, kind: str = "classification", **changes: Any) -> TaskModel:
    torch.manual_seed(0)
    chosen = settings.model_copy(update=changes)
    return TaskModel(encoder.model, task=find_task(kind), settings=chosen, labels=["a", "b", "c"]).eval()


# Two texts, and choices.


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
    parts = inputs.shortened(list(range(first)), list(range(second)), room)
    assert [list(range(count)) for count in expected] == [*parts], "what is cut is the end"


@pytest.mark.parametrize(
    ("family", "kind", "before", "between", "after"),
    [
        ("bert", "pair", [START], [END], [END]),
        ("gpt", "pair", [END], [END], []),
        ("transformer-xl", "pair", [END], [END], []),
        ("xlnet", "pair", [], [END], [END, START]),
        ("roberta", "pair", [START], [END, END], [END]),
        ("albert", "pair", [START], [END], [END]),
        ("bert", "similarity", [START], [END], [END]),
        ("bert", "choice", [START], [END], [END]),
    ],
)
def test_two_texts_are_a_sequence_with_special_pieces_and_segments(
    family, kind, before, between, after, load, settings
):
    encoder = load(family)
    first, second = pieces_of(encoder, *PAIRS[0])
    (row, _) = encode(kind, encoder, settings, PAIRS)
    assert pieces(row) == [[*before, *first, *between, *second, *after]]
    assert row.units[0].shape == (0, 2)
    if family == "bert":
        assert [part.tolist() for part in row.segments] == [[0] * (len(first) + 2) + [1] * (len(second) + 1)]
        (choices,) = encode("choice", encoder, settings, [(PAIRS[0][0], "cat", "a pear")])
        assert pieces(choices)[1:] == pieces(row) and len(choices.pieces) == 2


def test_a_causal_transformer_reads_both_orders_for_symmetric_tasks_with_tokens_of_its_own(load, settings):
    encoder = load("gpt")
    first, second = pieces_of(encoder, *PAIRS[0])
    row = encode("similarity", encoder, settings, PAIRS)[0]
    assert pieces(row) == [[END, *first, END, *second], [END, *second, END, *first]]
    model_of(encoder, settings, "similarity", method="features")
    assert not encoder.model.config.task_tokens, "only of a trained encoder"
    model_of(encoder, settings, "similarity")
    start, delimiter, extract = range(encoder.tokenizer.vocab_size, encoder.tokenizer.vocab_size + 3)
    orders = [[start, *first, delimiter, *second, extract], [start, *second, delimiter, *first, extract]]
    for kind, given, expected in (
        ("similarity", PAIRS[0], orders),
        ("pair", PAIRS[0], orders[:1]),
        ("choice", (*PAIRS[0], "a pear"), orders[:1] * 2),
        ("classification", PAIRS[0][:1], [[start, *first, extract]]),
    ):
        assert pieces(encode(kind, encoder, settings, [given])[0]) == expected


@pytest.mark.parametrize("family", ["gpt", "word2vec", "ulmfit", "flair"])
def test_similarity_is_symmetric(family, load, settings):
    encoder = load(family)
    model, turned = model_of(encoder, settings, "similarity"), [pair[::-1] for pair in PAIRS]
    with torch.inference_mode():
        single, other = (model(collate(encode("similarity", encoder, settings, rows))) for rows in (PAIRS, turned))
    torch.testing.assert_close(single, other, atol=1e-5, rtol=1e-5)
    assert single.shape == (2, 1) and not torch.allclose(single[0], single[1])


def test_encoders_without_attention_read_two_sequences(load, settings):
    encoder = load("ulmfit")
    first, second = pieces_of(encoder, *PAIRS[0])
    assert pieces(encode("pair", encoder, settings, PAIRS)[0]) == [[END, *first], [END, *second]]
    together = encode("pair", encoder, settings, PAIRS, pairs="joined")[0]
    assert pieces(together) == [[END, *first, END, *second]]
    assert len(encode("pair", load("bert"), settings, PAIRS, pairs="apart")[0].pieces) == 2


# Windows of one text.


def test_windows_are_no_longer_than_the_positions_and_recurrent_families_have_none(load, settings):
    def size(family, **changes):
        return window_size(settings.model_copy(update=changes), load(family).model)

    assert [size("bert", max_length=length) for length in (24, 25)] == [None, 24], "without chunk"
    assert size("bert", max_length=25, layers="mix") is None
    assert (size("bert", chunk=70), size("xlnet", chunk=70)) == (24, 70)
    for family in ("ulmfit", "flair", "elmo", "cove", "transformer-xl", "word2vec"):
        assert size(family, chunk=70) is None


@pytest.mark.parametrize(("family", "frame"), [("bert", 2), ("gpt", 1), ("xlnet", 2)])
def test_the_whole_text_is_read_up_to_the_limit_in_windows_with_special_pieces(family, frame, load, settings):
    encoder = load(family)
    counts = [len(ids) for ids in pieces_of(encoder, *(text for (text,) in TEXTS))]
    windows = encode("classification", encoder, settings, TEXTS, chunk=8, max_length=1000)
    assert [sum(len(window) - frame for window in row.pieces) for row in windows] == counts
    assert [len(row.pieces) for row in windows] == [-(-count // (8 - frame)) for count in counts]
    limited = encode("classification", encoder, settings, TEXTS, chunk=8, max_length=12)
    assert [sum(len(window) - frame for window in row.pieces) for row in limited] == [
        min(count, 12 - frame) for count in counts
    ]
    if family == "bert":
        cut = inputs.windows([7, 8, 9, 10, 11, 12, 13], size=5, encoder=encoder.model)
        expected = [[START, 7, 8, 9, END], [START, 10, 11, 12, END], [START, 13, END]]
        assert cut == expected


POOLINGS = ("concat", "mean", "max", "lead", "summary")


@pytest.mark.parametrize(
    ("family", "pooling"),
    [*(("bert", pooling) for pooling in POOLINGS), ("gpt", "summary"), ("xlnet", "concat"), ("ulmfit", "max")],
)
def test_one_chunk_that_holds_the_text_is_the_whole_computation(family, pooling, load, settings):
    encoder, results = load(family), []
    for chunk in (None, 24):
        changes = {"pooling": pooling, "max_length": 24, "chunk": chunk}
        model = model_of(encoder, settings, **changes)
        encoded = encode("classification", encoder, settings, TEXTS[:2], **changes)
        loss = model.loss(collate(encoded, [np.asarray([1.0]), np.asarray([2.0])]))
        model.zero_grad()
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        results.append(gradients | {"loss": loss.detach()})
    assert results[0].keys() == results[1].keys()
    for name, value in results[0].items():
        torch.testing.assert_close(value, results[1][name], msg=name)


def test_windows_are_pooled_like_their_pieces(settings):
    # Two layers of width 1: [summary, max, mean] each; windows of rows 0, 0, 1.
    features = torch.tensor([[1.0, 2, 3, 4, 5, 6], [3.0, 0, 5, 8, -5, 0], [7.0, 7, 7, 7, 7, 7]])
    rows = torch.tensor([0, 0, 1])
    mean = [2.0, 1, 4, 6, 0, 3]
    expected = {
        "concat": [2.0, 2, 4, 6, 5, 3],
        "mean": mean,
        "summary": mean,
        "lead": mean,
        "max": [3.0, 2, 5, 8, 5, 6],
    }
    pools = {name: WindowPooling(settings.model_copy(update={"pooling": name}), width=1) for name in expected}
    for name, vector in expected.items():
        assert pools[name](features, rows).tolist() == [vector, [7.0] * 6]
    # A last window of 3 pieces has the weight of 3 of 256 + 3; one window: exactly its vector.
    actual = pools["mean"](features, rows, torch.tensor([256, 3, 9]))
    torch.testing.assert_close(actual[0], (256 * features[0] + 3 * features[1]) / 259)
    assert torch.equal(actual[1], features[2])
    assert pools["max"](-features, rows)[1].tolist() == [-7] * 6, "negative maxima are not replaced by 0"


def test_a_text_is_the_mean_of_its_pieces_in_training_and_in_prediction(load, settings):
    encoder, changes = load("bert"), {"pooling": "mean", "layers": "last", "chunk": 8, "max_length": 1000}
    model = model_of(encoder, settings, **changes)
    encoded = encode("classification", encoder, settings, [(LONG,)], **changes)
    windows = [torch.from_numpy(window)[None] for window in encoded[0].pieces]
    assert len({window.shape for window in windows}) > 1, "the last window is shorter"
    with torch.no_grad():
        states = [encoder.model.hidden_states(window, torch.tensor([window.shape[1]]))[-1][0] for window in windows]
        expected = torch.cat(states).mean(0)
        torch.testing.assert_close(model.vectors(collate(encoded))[0], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(matrix(Predictor(model).read(encoded))[0], expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(ConfigError, match="layers: mix reads a text as one sequence"):
        model_of(encoder, settings, **changes | {"layers": "mix"})


@pytest.mark.parametrize("family", ["bert", "gpt", "xlnet"])
def test_states_are_computed_in_groups_and_gradients_go_through_the_last_windows(family, load, settings, monkeypatch):
    monkeypatch.setattr("components.learners.task_models.model.GROUP_PIECES", 32)
    encoder, changes = load(family), {"chunk": 8, "max_length": 1000, "chunks_learned": 2}
    model, batch = (
        model_of(encoder, settings, **changes),
        collate(encode("classification", encoder, settings, TEXTS, **changes)),
    )
    rows = batch["rows"].tolist()
    learns = [index for index in range(len(rows)) if rows[index + 1 : index + 3] != [rows[index]] * 2]
    assert len(rows) > 8 and len(learns) < len(rows)
    plain = encoder.model.hidden_states(batch["tokens"], batch["lengths"])
    # Values at padding are arbitrary.
    inside = torch.arange(batch["tokens"].shape[1]) < batch["lengths"][:, None]
    weights = [torch.randn_like(layer) * inside.unsqueeze(-1) for layer in plain]

    def gradient(states, indices):
        model.zero_grad()
        sum((layer * weight)[indices].sum() for layer, weight in zip(states, weights, strict=True)).backward()
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.encoder.parameters()]

    expected, shapes = gradient(plain, learns), []
    real = encoder.model.hidden_states
    monkeypatch.setattr(encoder.model, "hidden_states", lambda t, *of: shapes.append(t.numel()) or real(t, *of))
    states = model.states(batch)
    assert len(shapes) > 2 and max(shapes) <= 32
    for layer, other in zip(plain, states, strict=True):
        torch.testing.assert_close(layer[inside], other[inside], atol=1e-5, rtol=1e-4)
    for left, right in zip(expected, gradient(states, list(range(len(rows)))), strict=True):
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


# Words.

SENTENCE = ("the", "Old", "apple", "is", "here", "very", "small", "\x00", "iron", "goat", "7", "there")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_word_is_one_unit_of_its_own_pieces(family, load, settings):
    encoder = load(family)
    tokenizer = encoder.tokenizer
    for length, several in ((settings.max_length, False), (10 if tokenizer.kind != "char" else 24, True)):
        (row,) = encode("tagging", encoder, settings, [SENTENCE], max_length=length)
        assert all(len(ids) <= min(length, encoder.model.max_tokens or length) for ids in row.pieces)
        assert (len(row.pieces) > 1) == several or tokenizer.kind == "char"
        spelled = []
        for ids, units in zip(row.pieces, row.units, strict=True):
            assert (units[:, 0] <= units[:, 1]).all() and (np.diff(units.ravel()) >= 0).all()
            spelled += [ids[first : last + 1].tolist() for first, last in units.tolist()]
        lead = " " if tokenizer.leads_with_space else ""
        assert spelled == [(pieces_of(encoder, f"{lead}{word}")[0] or [1]) for word in SENTENCE]


def test_flair_concatenates_the_states_at_both_ends_of_a_word(load, settings):
    encoder = load("flair")
    model = encoder.model
    (row,) = encode("tagging", encoder, settings, [("the", "old", "cat")])
    assert pieces(row)[0][1:-1] == pieces_of(encoder, "the old cat")[0]
    assert row.units[0].tolist() == [[1, 3], [5, 7], [9, 11]]
    tokens = torch.from_numpy(row.pieces[0])[None]
    with torch.no_grad():
        hidden = model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))[-1]
        states = model.unit_states(hidden, torch.from_numpy(row.units[0])[None])[0]
        ahead, _ = model.forwards(tokens[:, : 7 + 1].t(), ())
        back, _ = model.backwards(tokens.flip(1)[:, : tokens.shape[1] - 5].t(), ())
    torch.testing.assert_close(states[1], torch.cat([ahead[-1][-1, 0], back[-1][-1, 0]]), rtol=0, atol=1e-6)


# Questions and contexts.

QUESTION = "is the goat here ?"
CONTEXT = "  the Old\tapple is here, very  small; the\u00a0iron\n goat is 7 \u200b there and naïve ก็ได้ "


def units_of(
    encoder: Encoder, context: str, settings: FinetuneSettings, **changes: Any
) -> tuple[Encoded, list[list[str]]]:
    """The row, and the characters of each window's units, unit 0 aside."""
    (row,) = encode("questions", encoder, settings, [(QUESTION, context)], **changes)
    for ids, segments, units, offsets in zip(row.pieces, row.segments, row.units, row.offsets, strict=True):
        assert len(ids) == len(segments) and len(units) == len(offsets) and units.max() < len(ids)
        assert units[0].tolist() == [0, len(ids) - 1] and offsets[0].tolist() == [0, 0]
    return row, [[context[start:end] for start, end in offsets[1:].tolist()] for offsets in row.offsets]


@pytest.mark.parametrize(("family", "empty"), [*zip(FAMILIES, cycle(["", " \n ", "\x00"]), strict=False)])
def test_units_are_the_contexts_characters_at_the_columns_of_their_pieces(family, empty, load, settings):
    encoder = load(family)
    by_character = encoder.tokenizer.kind == "char"
    row, windows = units_of(encoder, CONTEXT, settings, max_length=60 if by_character else 20)
    assert len(windows) > 1
    assert all(texts and all(text and text == text.strip() for text in texts) for texts in windows)
    # Together the windows cover the context except white space and invisible characters.
    assert CONTEXT.strip().startswith(windows[0][0]) and CONTEXT.strip().endswith(windows[-1][-1])
    read = {at for offsets in row.offsets for start, end in offsets.tolist() for at in range(start, end)}
    assert {at for at, character in enumerate(CONTEXT) if not character.isspace() and character != "\u200b"} <= read

    row, _ = units_of(encoder, "old apple", settings)
    columns, ids = row.units[0][1:], pieces(row)[0]
    expected, question = pieces_of(encoder, "old apple", QUESTION)
    assert (columns[:, 0] == columns[:, 1]).all()
    if by_character:
        # The space is encoded, but no answer starts or ends there.
        first, last = columns[0, 0], columns[-1, 0]
        assert columns[:, 0].tolist() == [at for at in range(first, last + 1) if at != first + 3]
    else:
        assert row.pieces[0][columns[:, 0]].tolist() == expected
    assert any(ids[at : at + len(question)] == question for at in range(len(ids)))

    _, windows = units_of(encoder, empty, settings)
    assert len(windows) == 1
    if not by_character or empty != "\x00":
        assert windows == [[]]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt", "flair"])
def test_a_long_question_is_truncated(family, load, settings):
    encoder, context = load(family), "the old apple is here and the goat is there"
    rows = [("goat " * 50, context), ("", context)]
    long, short = encode("questions", encoder, settings, rows, max_length=16)
    for row in (long, short):
        assert all(len(ids) <= 16 for ids in row.pieces)
        assert max(offsets[:, 1].max() for offsets in row.offsets) == len(context)
    room = 16 - len(encoder.model.pair_tokens([], [-1])[0]) + 1
    assert len(long.units[0]) - 1 <= room - room // 2
    assert len(long.pieces) > len(short.pieces)


def test_windows_start_one_stride_apart(load, settings):
    encoder = load("bert")
    (row,) = encode("questions", encoder, settings, [("is it", " ".join(["goat"] * 12))], max_length=12)
    # [CLS] is [UNK] [SEP] ... [SEP]: room for 7 pieces.
    assert [offsets[1, 0] // 5 for offsets in row.offsets] == [0, 3, 6]
    assert [len(units) - 1 for units in row.units] == [7, 7, 6]


# How much of the texts is read.


@pytest.mark.parametrize(
    ("sizes", "single", "most", "expected"),
    [
        ([10] * 20, True, 512, Extent(64)),
        ([10] * 19 + [200], True, 512, Extent(64, None, 0.05)),
        ([10] * 18 + [200] * 2, True, 512, Extent(256)),
        ([10] * 18 + [600] * 2, True, 512, Extent(768, 256)),
        ([10] * 18 + [600] * 2, False, 512, Extent(256, None, 0.1)),
        ([10] * 18 + [600] * 2, True, None, Extent(768, 256)),
        ([100] * 20, True, 24, Extent(120, 24)),
        ([9000] * 20, True, 512, Extent(LONGEST, 256, 1.0)),
    ],
)
def test_long_texts_are_read_in_windows(sizes, single, most, expected):
    assert reading_of(np.asarray(sizes), single=single, most=most) == expected


@pytest.mark.parametrize("pairs", ["apart", "joined"])
@pytest.mark.parametrize("kind", ["classification", "pair", "similarity", "choice", "tagging"])
def test_sizes_are_those_of_what_the_encoder_would_read(kind, pairs, load, settings):
    encoder, task = load("xlnet"), find_task(kind)
    rows = TEXTS if kind == "classification" else [(text, "red apple") for (text,) in TEXTS]
    rows = [tuple(text.split()) for (text,) in TEXTS] if kind == "tagging" else rows
    chosen = settings.model_copy(update={"max_length": 1000, "chunk": None, "pairs": pairs})
    expected = [max(map(len, row.pieces)) for row in encode(kind, encoder, chosen, rows)]
    assert sizes_of(rows, encoder.tokenizer, encoder.model, chosen, task=task).tolist() == expected
    limited = chosen.model_copy(update={"max_length": sorted(expected)[1]})
    cut = share_cut(rows, encoder.tokenizer, encoder.model, limited, task=task)
    assert cut == (0 if kind == "tagging" else pytest.approx(1 / 3)), "units are read in overlapping windows"


def test_windows_cut_only_what_is_longer_than_all_of_them(load, settings):
    encoder = load("bert")

    def cut(rows, **changes):
        chosen = settings.model_copy(update=changes)
        return share_cut(rows, encoder.tokenizer, encoder.model, chosen, task=find_task("classification"))

    rows = TEXTS[1:]
    assert cut(rows, max_length=24) == 0.5
    assert cut(rows, max_length=1000) == 0, "in windows of the 24 positions"
    assert cut(rows, max_length=1000, chunk=24) == cut([], max_length=24) == 0
