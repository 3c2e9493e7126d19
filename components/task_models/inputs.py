"""Encoding of one text or two texts as sequences of piece ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.task_models.base import Combine, Encoded, most_pieces
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

Ids = list[int]


def cut_texts(texts: Sequence[str], tokenizer: Tokenizer, *, most: int | None = None) -> list[Ids]:
    """The pieces of each text, truncated to `most`, but at least one: a text without pieces (for example control
    characters) becomes one unknown piece."""
    room = None if most is None else max(1, most)
    return [pieces[:room].tolist() or [UNK] for pieces in tokenizer.encode_batch(texts)]


def encode_texts(
    texts: Sequence[str], tokenizer: Tokenizer, encoder: LanguageModel, most: int
) -> list[NDArray[np.int64]]:
    """The pieces of each text with the family's special pieces, truncated to `most` in total."""
    result = cut_texts(texts, tokenizer, most=most - len(encoder.special_tokens([])))
    return [np.asarray(encoder.special_tokens(pieces), dtype=np.int64) for pieces in result]


def plain_pieces(texts: Sequence[str], tokenizer: Tokenizer, most: int) -> list[NDArray[np.int32]]:
    """The sequences of `encode_texts` for encoders without special pieces, as views of one array."""
    room, unknown = max(1, most), np.asarray([UNK], dtype=np.int32)
    return [pieces[:room] if len(pieces) else unknown for pieces in tokenizer.encode_batch(texts)]


def shortened(first: Ids, second: Ids, room: int) -> tuple[Ids, Ids]:
    """Both texts, truncated to `room` pieces in total, at least one each: the longer text first, until both have the
    same length, then both (BERT's `_truncate_seq_pair`)."""
    kept = max(1, min(len(first), max(room - len(second), -(-room // 2))))
    return first[:kept], second[: max(1, room - kept)]


def joined(first: Ids, second: Ids, encoder: LanguageModel, most: int) -> tuple[Ids, Ids]:
    """Two texts as one sequence of at most `most` pieces; returns pieces and segments."""
    return encoder.pair_tokens(*shortened(first, second, most - len(encoder.pair_tokens([], [])[0])))


def reads_apart(settings: FinetuneSettings, encoder: LanguageModel) -> bool:
    """Whether two texts are encoded as two sequences (`FinetuneSettings.pairs`)."""
    return settings.pairs == "apart" or (settings.pairs == "auto" and encoder.attention == "none")


def encode_pairs(
    rows: Sequence[tuple[str, ...]],
    tokenizer: Tokenizer,
    encoder: LanguageModel,
    settings: FinetuneSettings,
    *,
    both_orders: bool = False,
) -> list[Encoded]:
    """Pairs of texts: as one sequence with a delimiter, or as two sequences (`reads_apart`). With `both_orders` and a
    causal encoder: as two sequences with either text first (Radford et al. 2018, section 3.3)."""
    most, apart = most_pieces(settings, encoder), reads_apart(settings, encoder)
    turned = both_orders and encoder.attention == "before"
    firsts, seconds = (cut_texts([row[part] for row in rows], tokenizer) for part in (0, 1))
    encoded: list[Encoded] = []
    for first, second in zip(firsts, seconds, strict=True):
        if apart:
            room = max(1, most - len(encoder.special_tokens([])))
            encoded.append(Encoded.of_texts([encoder.special_tokens(text[:room]) for text in (first, second)]))
            continue
        orders = [(first, second), (second, first)] if turned else [(first, second)]
        pieces, segments = zip(*(joined(*order, encoder, most) for order in orders), strict=True)
        encoded.append(Encoded.of_texts(pieces, segments))
    return encoded


def summed(vectors: Tensor, rows: Tensor) -> Tensor:
    """(2 B, F) vectors of both orders -> (B, F): their sum."""
    first, second = vectors.unflatten(0, (-1, 2)).unbind(1)
    return first + second


def compared(vectors: Tensor, rows: Tensor) -> Tensor:
    """(2 B, F) vectors u and v of both texts -> (B, 4 F): [u, v, |u - v|, u v] (Conneau et al. 2017, figure 1)."""
    first, second = vectors.unflatten(0, (-1, 2)).unbind(1)
    return torch.cat([first, second, (first - second).abs(), first * second], dim=1)


def likened(vectors: Tensor, rows: Tensor) -> Tensor:
    """(2 B, F) vectors u and v of both texts -> (B, 2 F): [|u - v|, u v], symmetric (Tai et al. 2015)."""
    first, second = vectors.unflatten(0, (-1, 2)).unbind(1)
    return torch.cat([(first - second).abs(), first * second], dim=1)


def combination(apart: Combine, *, turned: Combine | None = None) -> Callable[..., Combine | None]:
    """`Task.combine` for pairs.

    Args:
        apart: used if the texts are two sequences.
        turned: used if the texts are encoded in both orders.
    """

    def choose(settings: FinetuneSettings, encoder: LanguageModel) -> Combine | None:
        if reads_apart(settings, encoder):
            return apart
        return turned if encoder.attention == "before" else None

    return choose
