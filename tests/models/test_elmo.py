"""ELMo: causality of each direction, losses against the equations, unseen words, published sizes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.data.segmenters import Segmentation
from components.learners.task_models.pooling import Features
from components.models.elmo import ELMo, spell, spelling_table
from components.models.encoder import build_model
from components.settings.finetune import ReadingSettings
from components.tokenization.special import END, SPECIAL_PIECES, UNK
from components.tokenization.word import OpenWordTokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran"]
VOCABULARY = len(SPECIAL_PIECES) + len(WORDS)
WIDTH = 4


@pytest.fixture
def tokenizer() -> OpenWordTokenizer:
    return OpenWordTokenizer(
        [*SPECIAL_PIECES, *WORDS], segmentation=Segmentation("none"), lowercase=False, strip_accents=False
    )


@pytest.fixture
def model(tokenizer: OpenWordTokenizer) -> ELMo:
    sizes = {"characters": 3, "filters": ((1, 4), (3, 5)), "cells": 6, "projection": WIDTH}
    model = build_model("elmo", vocabulary=VOCABULARY, settings=sizes)
    assert isinstance(model, ELMo)
    # Large weights, so that distant words have an influence, but without clipping.
    for direction in (model.forwards, model.backwards):
        for parameter in direction.parameters():
            nn.init.normal_(parameter, std=0.7)
    model.bind(tokenizer)
    return model.eval()


def words(rows: int, columns: int) -> Tensor:
    return torch.randint(len(SPECIAL_PIECES), VOCABULARY, (rows, columns))


def directions(model: ELMo, x_TBP: Tensor, side: nn.Module) -> list[Tensor]:
    """The layers' outputs of one direction, from torch's LSTM and explicit residual connections."""
    outputs: list[Tensor] = []
    for layer in side.lstms:
        reference = nn.LSTM(WIDTH, 6, proj_size=WIDTH)
        weights = {"weight_ih_l0": layer.weight_ih, "weight_hh_l0": layer.weight_hh, "weight_hr_l0": layer.weight_hr}
        reference.load_state_dict(weights | {"bias_ih_l0": layer.bias, "bias_hh_l0": torch.zeros(24)})
        out, _ = reference(x_TBP)
        assert float(out.detach().abs().max()) < 3
        x_TBP = out + x_TBP if outputs else out
        outputs.append(x_TBP)
    return outputs


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def test_hidden_states_are_those_of_two_stacks_over_one_character_layer(model):
    tokens, lengths = words(2, 7), torch.tensor([7, 4])
    layers = model.hidden_states(tokens, lengths)
    assert [tuple(layer.shape) for layer in layers] == [(2, 7, 2 * WIDTH)] * 3
    for row, length in enumerate(lengths.tolist()):
        x = model.words(spelling_table([*SPECIAL_PIECES, *WORDS])[tokens[row, :length]])
        torch.testing.assert_close(layers[0][row, :length], torch.cat([x, x], dim=-1))
        forward = directions(model, x.unsqueeze(1), model.forwards)
        backward = directions(model, x.flip(0).unsqueeze(1), model.backwards)
        for layer, ahead, back in zip(layers[1:], forward, backward, strict=True):
            expected = torch.cat([ahead[:, 0], back[:, 0].flip(0)], dim=-1)
            torch.testing.assert_close(layer[row, :length], expected, atol=1e-5, rtol=1e-5)


def test_loss_is_the_sum_of_both_directions_through_one_softmax(model):
    nn.init.normal_(model.bias)
    stream, back = words(3, 7), words(3, 7)
    batch = {"tokens": stream[:, :-1], "targets": stream[:, 1:]}
    batch |= {"backward_tokens": back[:, :-1], "backward_targets": back[:, 1:]}
    result = model.losses(batch)
    parts = []
    for side, text in ((model.forwards, stream), (model.backwards, back)):
        x = model.words(model.spelling[text[:, :-1].flatten()]).unflatten(0, (3, 6))
        top = directions(model, x.transpose(0, 1), side)[-1].transpose(0, 1)
        parts.append(F.cross_entropy(F.linear(top, model.output, model.bias).flatten(0, 1), text[:, 1:].flatten()))
    torch.testing.assert_close(result.loss, parts[0] + parts[1])
    torch.testing.assert_close(result.sums["forward"][0], parts[0] * 18)
    torch.testing.assert_close(result.sums["backward"][0], parts[1] * 18)
    torch.testing.assert_close(result.sums["tokens"][0], (parts[0] + parts[1]) * 18)
    assert int(result.sums["tokens"][1]) == 36
    assert [tuple(part.shape) for part in result.carry] == [(3, WIDTH), (3, 6)] * 4


def test_prediction_uses_the_forward_half_and_its_carry(model):
    tokens = words(2, 6)
    whole, carry = model.predict(tokens)
    first, middle = model.predict(tokens[:, :2])
    second, last = model.predict(tokens[:, 2:], middle)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(last, carry)
    top = model.hidden_states(tokens, torch.tensor([6, 6]))[-1][..., :WIDTH]
    torch.testing.assert_close(whole, F.linear(top, model.output, model.bias))


def test_backward_prediction_reads_the_later_words_only(model):
    tokens = words(2, 6)
    logits = model.predict_backward(tokens)
    back = model.hidden_states(tokens, torch.tensor([6, 6]))[-1][..., WIDTH:]
    torch.testing.assert_close(logits, F.linear(back, model.output, model.bias))
    torch.testing.assert_close(model.predict_backward(tokens[:, 2:]), logits[:, 2:])


def test_vectors_of_unseen_words_come_from_their_characters(model, tokenizer):
    (ids,) = tokenizer.encode_batch(["the catalogue sat"])
    tokens, lengths = torch.from_numpy(ids).long().unsqueeze(0), torch.tensor([3])
    assert int(tokens[0, 1]) == VOCABULARY
    lowest = model.hidden_states(tokens, lengths)[0]
    torch.testing.assert_close(lowest[0, 1, :WIDTH], model.words(spell(["catalogue"]))[0])
    unknown = tokens.clone()
    unknown[0, 1] = UNK
    assert not torch.allclose(lowest[0, 1], model.hidden_states(unknown, lengths)[0][0, 1])
    # Ids that are assigned later, read in another order.
    for word in ("zebra", "yak", "catalogue", "xylophone"):
        (ids,) = tokenizer.encode_batch([word])
        (vector,) = model.hidden_states(torch.from_numpy(ids).long().unsqueeze(0), torch.tensor([1]))[0][0]
        torch.testing.assert_close(vector[:WIDTH], model.words(spell([word]))[0])
    assert model.predict(tokens)[0].shape == (1, 3, VOCABULARY)


def test_threads_do_not_mix_up_unseen_words(model, tokenizer, monkeypatch):
    names = ["catalogue", "zebra"]
    ids = [int(tokenizer.encode_batch([word])[0][0]) for word in names]
    expected = [model.words(spell([word]))[0] for word in names]
    together, first_ended = threading.Barrier(2), threading.Event()

    def interleaved(actual):
        """Both calls look up the unseen words; then the first call ends before the second reads their characters."""
        words = list(actual)
        together.wait(timeout=10)
        if "zebra" in words:
            assert first_ended.wait(timeout=10)
        return spell(words)

    def first_state(id_):
        return model.hidden_states(torch.tensor([[id_]]), torch.tensor([1]))[0][0, 0, :WIDTH]

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr("components.models.elmo.spell", interleaved)
        calls = [pool.submit(first_state, id_) for id_ in ids]
        calls[0].add_done_callback(lambda _: first_ended.set())
        actual = [call.result() for call in calls]
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close([first_state(id_) for id_ in ids], expected)


def test_after_a_change_of_vocabulary_words_keep_their_spelling(model):
    tokens, lengths = words(2, 5), torch.tensor([5, 5])
    before = model.hidden_states(tokens, lengths)
    changed = OpenWordTokenizer(
        [*SPECIAL_PIECES, "horse", *reversed(WORDS)],
        segmentation=Segmentation("none"),
        lowercase=False,
        strip_accents=False,
    )
    rows = torch.tensor([*range(5), -1, *range(VOCABULARY - 1, 4, -1)])
    model.remap_vocabulary(rows)
    model.bind(changed)
    moved = VOCABULARY + 5 - tokens
    torch.testing.assert_close(model.hidden_states(moved, lengths), before)
    horse = model.hidden_states(torch.tensor([[5]]), torch.tensor([1]))[0][0, 0, :WIDTH]
    torch.testing.assert_close(horse, model.words(spell(["horse"]))[0])


def test_a_mix_of_layers_is_beside_the_static_vectors(model, tokenizer):
    """[GloVe(w); gamma sum_j s_j h_j] of each word; the static vectors have no gradient and are stored."""
    stacked = build_model("elmo", vocabulary=VOCABULARY, settings=model.config.model_dump() | {"static": 3})
    assert isinstance(stacked, ELMo)
    table = torch.randn(VOCABULARY, 3)
    stacked.load_state_dict({**model.state_dict(), "static": table})
    stacked.bind(tokenizer)
    stacked.eval()
    tokens, units = torch.tensor([[END, 6, VOCABULARY - 1, END]]), torch.tensor([[[1, 1], [2, 2]]])
    lengths, weights = torch.tensor([4]), torch.tensor([0.2, 0.3, 0.5])
    plain, states = model.hidden_states(tokens, lengths), stacked.hidden_states(tokens, lengths)
    reading = ReadingSettings(layers="mix", pooling="mean")
    features = Features(stacked, reading, widths=[layer.shape[-1] for layer in states])
    assert features.mix is not None
    features.mix.scores.data.copy_(weights.log())
    features.mix.gamma.data.fill_(2.5)
    mixed = features.mixed(features.of_units(states, units))
    contextual = sum(weight * layer[:, 1:3] for weight, layer in zip(weights, plain, strict=True))
    torch.testing.assert_close(mixed, torch.cat([table[tokens[:, 1:3]], 2.5 * contextual], dim=-1))
    summary = stacked.summary(states[-1], lengths)
    expected = torch.cat([table[tokens[:, 1:3]].mean(1), model.summary(plain[-1], lengths)], dim=-1)
    torch.testing.assert_close(summary, expected)
    mixed.sum().backward()
    assert stacked.static is not None
    assert not stacked.static.requires_grad
    torch.testing.assert_close(stacked.state_dict()["static"], table)


def test_special_tokens_and_summary(model):
    assert model.special_tokens([7, 8]) == [END, 7, 8, END]
    hidden = torch.arange(40.0).view(1, 5, 8)
    assert model.summary(hidden, torch.tensor([5])).tolist() == [[24, 25, 26, 27, 12, 13, 14, 15]]
