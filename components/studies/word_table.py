"""Vectors of the words of a vocabulary that do not depend on a context.

Shape suffixes: V vocabulary, D width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from components.core.errors import DataError, nearest
from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.models.static import StaticVectors
from components.studies.occurrences import of_letters
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK

#: Pieces per batch for families that compute their vectors from characters.
ROWS = 1024


@torch.inference_mode()
def table(model: LanguageModel) -> Tensor:
    """(V, D) float32 vectors of all pieces. Families without a table compute them from the pieces' characters."""
    if isinstance(model, StaticVectors):
        return model.vectors()
    weight = model.piece_embedding()
    if weight is not None:
        return weight.detach().float().cpu()
    framed = model.special_tokens([-1])
    position = framed.index(-1)
    parts = []
    for ids in torch.arange(model.config.vocabulary).split(ROWS):
        tokens = torch.tensor([framed]).repeat(len(ids), 1)
        tokens[:, position] = ids
        hidden = model.hidden_states(tokens, torch.full((len(ids),), len(framed)))
        parts.append(hidden[0][:, position].float())
    return torch.cat(parts)


def readable(tokenizer: Tokenizer) -> list[str]:
    """The surface forms of the pieces, all different. Pieces that continue a word keep their mark."""
    names = list(tokenizer.pieces)
    taken = set(names)
    for id_ in range(FIRST_ORDINARY, tokenizer.vocab_size):
        surface = tokenizer.surface(id_)
        if not tokenizer.continues(id_) and surface not in taken:
            taken.add(surface)
            names[id_] = surface
    return names


def frequent_words(tokenizer: Tokenizer, *, count: int, skip: int) -> list[str]:
    """The most frequent words of at least three letters that are a single piece, after skipping `skip` of them."""
    counts = tokenizer.frequencies
    order = np.arange(tokenizer.vocab_size) if counts is None else np.argsort(-counts, kind="stable")
    words: dict[str, None] = {}
    for id_ in order.tolist():
        if id_ < FIRST_ORDINARY or tokenizer.continues(id_):
            continue
        word = tokenizer.surface(id_)
        if len(word) >= 3 and of_letters(word) and piece_of(tokenizer, word) == id_:
            words[word] = None
            if len(words) == skip + count:
                break
    # A small vocabulary may have fewer words to skip.
    return list(words)[-count:]


def piece_of(tokenizer: Tokenizer, word: str) -> int | None:
    """The id of a word that is a single piece; None for other words."""
    (ids,) = tokenizer.encode_batch([f" {word}" if tokenizer.leads_with_space else word])
    return int(ids[0]) if len(ids) == 1 and ids[0] != UNK else None


def vector(encoder: Encoder, table_VD: Tensor, word: str) -> tuple[Tensor, list[str]]:
    """A word's vector, and the names of the word itself, which are excluded from its neighbours."""
    tokenizer, model = encoder.tokenizer, encoder.model
    spelled = word.lower() if getattr(tokenizer, "lowercase", False) else word
    if isinstance(model, StaticVectors):
        return model.vector(spelled), [word, spelled]
    id_ = piece_of(tokenizer, word)
    if id_ is None:
        (ids,) = tokenizer.encode_batch([word])
        parts = " + ".join(tokenizer.pieces[piece] for piece in ids)
        close = nearest(spelled, tokenizer.pieces[FIRST_ORDINARY:])
        hint = close if close.startswith("; did") else ""
        raise DataError(f"{word!r} is not a single piece of the vocabulary but {parts or 'nothing'}{hint}")
    return table_VD[id_], [word, spelled, tokenizer.pieces[id_]]
