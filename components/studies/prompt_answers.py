"""Answers of a causal language model to prompts: greedy decoding, and with a calibrated first piece.

The calibrated first piece is the maximum of

    p(piece | prompt) - mean of p(piece | prompt of a text without content)

and greedy decoding continues it (Zhao et al. 2021, section 5, the variant for generation).

Shape suffix: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.serving.generation import Sampling, generate
from components.tokenization.special import END, FIRST_ORDINARY

GREEDY: Final = Sampling(temperature=0.0)


def continuations(
    encoder: Encoder, prompts: Sequence[str], neutral: Sequence[str], *, length: int
) -> list[tuple[str, str]]:
    """The continuations of prompts by at most `length` pieces: greedy, and calibrated by the prompts `neutral`. A
    prompt that exceeds the model's positions loses its beginning."""
    model, tokenizer = encoder.model, encoder.tokenizer
    without_V = torch.stack([_first_piece(model, ids) for ids in _inputs(encoder, neutral, length)]).mean(0)
    continued = []
    for ids in _inputs(encoder, prompts, length):
        first_V = _first_piece(model, ids)
        greedy, calibrated = int(first_V.argmax()), int((first_V - without_V).argmax())
        texts = {END: ""}
        for first in (greedy, calibrated):
            if first not in texts:
                rest = generate(model, [*ids, first], length=length - 1, sampling=GREEDY)
                texts[first] = tokenizer.decode([first, *rest])
        continued.append((texts[greedy], texts[calibrated]))
    return continued


def truncated(encoder: Encoder, prompts: Sequence[str], *, length: int) -> int:
    """Number of prompts that do not fit the model's positions beside an answer of `length` pieces."""
    room = _room(encoder.model, length)
    return sum(len(ids) > room for ids in encoder.tokenizer.encode_batch(prompts))


def _inputs(encoder: Encoder, prompts: Sequence[str], length: int) -> list[list[int]]:
    """The pieces of prompts after the special ones that precede a text."""
    around, room = encoder.model.special_tokens([-1]), _room(encoder.model, length)
    return [[*around[: around.index(-1)], *ids.tolist()[-room:]] for ids in encoder.tokenizer.encode_batch(prompts)]


def _room(model: LanguageModel, length: int) -> int:
    """Pieces of a prompt that fit beside an answer; at least one, because generation shifts its window."""
    if model.max_tokens is None:
        return 1 << 30
    return max(1, model.max_tokens - length - len(model.special_tokens([])))


@torch.no_grad()
def _first_piece(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """(V,) probabilities of the next piece; 0 for special pieces other than END."""
    model.eval()
    logits, _ = model.predict(torch.tensor([ids], device=next(model.parameters()).device))
    last_V = logits[0, -1].double().cpu()
    last_V[[id_ for id_ in range(FIRST_ORDINARY) if id_ != END]] = -torch.inf
    return last_V.softmax(0)
