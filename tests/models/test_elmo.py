"""ELMo: vectors of unseen words, another vocabulary, static vectors beside the mix of layers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from components.learners.task_models.pooling import Features
from components.models.elmo import ELMo, spell
from components.models.encoder import build_model
from components.settings.finetune import ReadingSettings
from components.tokenization.special import END, SPECIAL_PIECES, UNK
from components.tokenization.word import OpenWordTokenizer
from tests.tokenizers import make_tokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran"]
VOCABULARY = len(SPECIAL_PIECES) + len(WORDS)
WIDTH = 4


@pytest.fixture
def tokenizer() -> OpenWordTokenizer:
    return make_tokenizer("open_word", WORDS, lowercase=False)


@pytest.fixture
def model(tokenizer: OpenWordTokenizer) -> ELMo:
    sizes = {"characters": 3, "filters": ((1, 4), (3, 5)), "cells": 6, "projection": WIDTH}
    model = build_model("elmo", vocabulary=VOCABULARY, settings=sizes)
    model.bind(tokenizer)
    return model.eval()


def words(rows: int, columns: int) -> Tensor:
    return torch.randint(len(SPECIAL_PIECES), VOCABULARY, (rows, columns))


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
    changed = make_tokenizer("open_word", ["horse", *reversed(WORDS)], lowercase=False)
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
    table = torch.randn(VOCABULARY, 3)
    stacked.load_state_dict({**model.state_dict(), "static": table})
    stacked.bind(tokenizer)
    stacked.eval()
    tokens, units = torch.tensor([[END, 6, VOCABULARY - 1, END]]), torch.tensor([[[1, 1], [2, 2]]])
    lengths, weights = torch.tensor([4]), torch.tensor([0.2, 0.3, 0.5])
    plain, states = model.hidden_states(tokens, lengths), stacked.hidden_states(tokens, lengths)
    reading = ReadingSettings(layers="mix", pooling="mean")
    features = Features(stacked, reading, widths=[layer.shape[-1] for layer in states])
    features.mix.scores.data.copy_(weights.log())
    features.mix.gamma.data.fill_(2.5)
    mixed = features.mixed(features.of_units(states, units))
    contextual = sum(weight * layer[:, 1:3] for weight, layer in zip(weights, plain, strict=True))
    torch.testing.assert_close(mixed, torch.cat([table[tokens[:, 1:3]], 2.5 * contextual], dim=-1))
    summary = stacked.summary(states[-1], lengths)
    expected = torch.cat([table[tokens[:, 1:3]].mean(1), model.summary(plain[-1], lengths)], dim=-1)
    torch.testing.assert_close(summary, expected)
    mixed.sum().backward()
    assert not stacked.static.requires_grad
    torch.testing.assert_close(stacked.state_dict()["static"], table)
