"""Encoding of sentences by every family: each word once, with its pieces, long sentences in windows."""

import numpy as np
import pytest
import torch

from components.learners.task_models.kinds import tagging
from components.models import FAMILIES
from components.models.encoder import load_encoder

SENTENCE = ("the", "Old", "apple", "is", "here", "very", "small", "\x00", "iron", "goat", "7", "there")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_word_is_one_unit_of_its_own_pieces(family, make_encoder, settings):
    encoder = load_encoder(make_encoder(family))
    tokenizer = encoder.tokenizer
    short = settings.model_copy(update={"max_length": 10 if tokenizer.kind != "char" else 24})
    for changed, several in ((settings, False), (short, True)):
        (actual,) = tagging.encode([SENTENCE], tokenizer, encoder.model, changed)
        limit = encoder.model.max_tokens or changed.max_length
        assert all(len(pieces) <= min(changed.max_length, limit) for pieces in actual.pieces)
        assert (len(actual.pieces) > 1) == several or tokenizer.kind == "char"
        spelled = []
        for pieces, units in zip(actual.pieces, actual.units, strict=True):
            assert (units[:, 0] <= units[:, 1]).all() and (np.diff(units.ravel()) >= 0).all()
            spelled += [pieces[first : last + 1].tolist() for first, last in units.tolist()]
        lead = " " if tokenizer.leads_with_space else ""
        alone = [tokenizer.encode_batch([f"{lead}{word}"])[0].tolist() or [1] for word in SENTENCE]
        assert spelled == alone


def test_flair_concatenates_the_states_at_both_ends_of_a_word(make_encoder, settings):
    encoder = load_encoder(make_encoder("flair"))
    model = encoder.model
    (actual,) = tagging.encode([("the", "old", "cat")], encoder.tokenizer, model, settings)
    text = "the old cat"
    assert actual.pieces[0][1:-1].tolist() == encoder.tokenizer.encode_batch([text])[0].tolist()
    assert actual.units[0].tolist() == [[1, 3], [5, 7], [9, 11]]
    tokens = torch.from_numpy(actual.pieces[0])[None]
    with torch.no_grad():
        hidden = model.hidden_states(tokens, torch.tensor([tokens.shape[1]]))[-1]
        states = model.unit_states(hidden, torch.from_numpy(actual.units[0])[None])[0]
        ahead, _ = model.forwards(tokens[:, : 7 + 1].t(), ())
        back, _ = model.backwards(tokens.flip(1)[:, : tokens.shape[1] - 5].t(), ())
    torch.testing.assert_close(states[1], torch.cat([ahead[-1][-1, 0], back[-1][-1, 0]]), rtol=0, atol=1e-6)
