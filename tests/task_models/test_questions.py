"""Encoding of questions and contexts by every family: windows, and offsets in the context."""

from itertools import cycle

import numpy as np
import pytest

from components.learners.task_models import model as models
from components.learners.task_models.kinds import questions
from components.models import FAMILIES
from components.models.encoder import Encoder, load_encoder
from components.settings.finetune import FinetuneSettings

QUESTION = "is the goat here ?"
CONTEXT = "  the Old\tapple is here, very  small; the\u00a0iron\n goat is 7 \u200b there and naïve ก็ได้ "


def texts_of(encoder: Encoder, context: str, settings: FinetuneSettings, question: str = QUESTION) -> list[list[str]]:
    """The characters of each window's units, unit 0 aside."""
    (actual,) = questions.encode([(question, context)], encoder.tokenizer, encoder.model, settings)
    for pieces, segments, units, offsets in zip(
        actual.pieces, actual.segments, actual.units, actual.offsets, strict=True
    ):
        assert len(pieces) == len(segments)
        assert units[0].tolist() == [0, len(pieces) - 1] and offsets[0].tolist() == [0, 0]
        assert len(units) == len(offsets)
        assert units.max() < len(pieces)
    return [[context[start:end] for start, end in offsets[1:].tolist()] for offsets in actual.offsets]


@pytest.mark.parametrize("family", FAMILIES)
def test_units_are_the_contexts_characters(family, make_encoder, settings):
    encoder = load_encoder(make_encoder(family))
    changed = settings.model_copy(update={"max_length": 20 if encoder.tokenizer.kind != "char" else 60})
    windows = texts_of(encoder, CONTEXT, changed)
    assert len(windows) > 1
    for texts in windows:
        assert texts and all(text and text == text.strip() for text in texts)
    # Together the windows cover the context except white space and invisible characters.
    (first, *_), (last, *_) = windows[0], windows[-1][::-1]
    assert CONTEXT.strip().startswith(first) and CONTEXT.strip().endswith(last)
    (actual,) = questions.encode([(QUESTION, CONTEXT)], encoder.tokenizer, encoder.model, changed)
    read = {at for offsets in actual.offsets for start, end in offsets.tolist() for at in range(start, end)}
    assert {at for at, character in enumerate(CONTEXT) if not character.isspace() and character != "\u200b"} <= read


@pytest.mark.parametrize("family", FAMILIES)
def test_units_are_at_the_columns_of_their_pieces(family, make_encoder, settings):
    encoder = load_encoder(make_encoder(family))
    (actual,) = questions.encode([(QUESTION, "old apple")], encoder.tokenizer, encoder.model, settings)
    pieces, units = actual.pieces[0], actual.units[0]
    expected = encoder.tokenizer.encode_batch(["old apple"])[0].tolist()
    if encoder.tokenizer.kind == "char":
        # The space is encoded, but no answer starts or ends there.
        assert units[1:, 0].tolist() == [at for at in range(units[1, 0], units[-1, 0] + 1) if at != units[1, 0] + 3]
    else:
        assert pieces[units[1:, 0]].tolist() == expected
    assert (units[1:, 0] == units[1:, 1]).all()
    changed = encoder.tokenizer.encode_batch([QUESTION])[0].tolist()
    text = pieces.tolist()
    assert any(text[at : at + len(changed)] == changed for at in range(len(text)))


@pytest.mark.parametrize(("family", "context"), [*zip(FAMILIES, cycle(["", " \n ", "\x00"]), strict=False)])
def test_an_empty_context_is_one_sequence_without_units(family, context, make_encoder, settings):
    encoder = load_encoder(make_encoder(family))
    windows = texts_of(encoder, context, settings)
    assert len(windows) == 1
    if encoder.tokenizer.kind != "char" or context != "\x00":
        assert windows == [[]]


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt", "flair"])
def test_a_long_question_is_truncated(family, make_encoder, settings):
    encoder = load_encoder(make_encoder(family))
    changed = settings.model_copy(update={"max_length": 16})
    context = "the old apple is here and the goat is there"
    rows = [("goat " * 50, context), ("", context)]
    long, short = questions.encode(rows, encoder.tokenizer, encoder.model, changed)
    around, _ = encoder.model.pair_tokens([], [-1])
    for actual in (long, short):
        assert all(len(pieces) <= 16 for pieces in actual.pieces)
        read = {tuple(offset) for offsets in actual.offsets for offset in offsets[1:].tolist()}
        assert max(end for _, end in read) == len(context)
    room = 16 - len(around) + 1
    assert len(long.units[0]) - 1 <= room - room // 2
    assert len(long.pieces) > len(short.pieces)


def test_windows_start_one_stride_apart(make_encoder, settings):
    encoder = load_encoder(make_encoder("bert"))
    changed = settings.model_copy(update={"max_length": 12})
    context = " ".join(["goat"] * 12)
    (actual,) = questions.encode([("is it", context)], encoder.tokenizer, encoder.model, changed)
    starts = [offsets[1, 0] // 5 for offsets in actual.offsets]
    # [CLS] is [UNK] [SEP] ... [SEP]: room for 7 pieces.
    assert starts == [0, 3, 6]
    assert [len(units) - 1 for units in actual.units] == [7, 7, 6]
    assert np.diff([offsets[-1, 1] for offsets in actual.offsets]).min() > 0


@pytest.mark.parametrize("family", ["bert", "flair"])
def test_a_context_of_many_windows_is_encoded_in_parts(family, make_encoder, settings, monkeypatch):
    encoder = load_encoder(make_encoder(family))
    changed = settings.model_copy(update={"max_length": 24})
    rows = [("is it old ?", "the old apple is very small " * 40), ("is it ?", "a goat")]
    encoded = questions.encode(rows, encoder.tokenizer, encoder.model, changed)
    assert len(encoded[0].pieces) > 20
    model = models.TaskModel(encoder.model, task=questions.TASK, settings=changed, labels=[]).eval()
    whole, sizes = models.answers(model, encoded), []
    real = encoder.model.hidden_states

    def watched(tokens, lengths, segments=None):
        sizes.append(tokens.numel())
        return real(tokens, lengths, segments)

    monkeypatch.setattr(encoder.model, "hidden_states", watched)
    monkeypatch.setattr(models, "PREDICT_PIECES", 100)
    for single, other in zip(models.answers(model, encoded), whole, strict=True):
        np.testing.assert_allclose(single, other, atol=1e-5)
    assert len(sizes) > 5 and max(sizes) <= 100
