"""The perplexity of a task's texts against that of the same windows, computed one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from components.studies.outputs import Outputs
from components.studies.text_distance import WINDOW, perplexity
from components.tokenization.special import END

TEXT = " ".join(["the old apple is here and a goat", "gold river bank", "the plum is very large there"] * 34)


@pytest.mark.parametrize("family", ["ulmfit", "gpt", "transformer-xl"])
def test_perplexity_equals_that_of_the_windows_one_by_one(family: str, outputs: Outputs, add_encoder: Any) -> None:
    add_encoder(family)
    encoder = outputs.encoder(family, "adapted")
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter.mul_(3)
    found = perplexity(encoder, [TEXT])
    assert found is not None and found.perplexity_per_word is not None and found.bits_per_character is not None
    stream = torch.tensor([*encoder.tokenizer.encode_batch([TEXT])[0].tolist(), END])
    # Streams of equal length, each read in complete windows; a recurrent model carries its state.
    window = min(WINDOW, encoder.model.max_tokens or WINDOW)
    streams = min(32, len(stream) // (2 * window))
    length = len(stream) // streams
    assert length % window
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, streams * length, length):
            carry: tuple[torch.Tensor, ...] = ()
            for start in range(0, len(stream) // (streams * window) * window, window):
                part = stream[begin + start : begin + start + window + 1]
                logits, state = encoder.model.predict(part[None, :-1], carry)
                carry = state if encoder.model.max_tokens is None else ()
                total += F.cross_entropy(logits[0].double(), part[1:], reduction="sum").item()
                count += window
    assert found.pieces == count
    assert found.loss == pytest.approx(total / count, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert found.perplexity_per_word == pytest.approx(math.exp(found.loss * len(stream) / len(TEXT.split())))
    assert found.bits_per_character == pytest.approx(found.loss * len(stream) / len(TEXT) / math.log(2))


def test_word_vectors_and_short_texts_have_no_perplexity(outputs: Outputs, add_encoder: Any) -> None:
    for family in ("word2vec", "ulmfit"):
        add_encoder(family)
    assert perplexity(outputs.encoder("word2vec", "adapted"), [TEXT]) is None
    assert perplexity(outputs.encoder("ulmfit", "adapted"), ["the old apple", ""]) is None
    assert perplexity(outputs.encoder("ulmfit", "adapted"), []) is None
