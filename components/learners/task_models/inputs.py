"""Encoding of one text or two texts as sequences of piece ids, windows over long texts, and how much of a text is read.

Windows have the special pieces and are encoded independently; the head reads the pooled vectors. Encoders with a state
read the whole text chunk by chunk (`LanguageModel.set_chunks`)."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.data.tasks.data import Fields, spaced
from components.learners.task_models.base import Combine, Encoded, Task, most_pieces
from components.learners.task_models.heads import precise
from components.models.base import LanguageModel
from components.models.layers.host import on_host
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

Ids = list[int]


def cut_texts(texts: Sequence[str], tokenizer: Tokenizer, *, most: int | None = None) -> list[Ids]:
    """The pieces of each text, truncated to `most`; a text without pieces becomes one unknown piece."""
    room = None if most is None else max(1, most)
    return [pieces[:room].tolist() or [UNK] for pieces in tokenizer.encode_texts(texts)]


def shortened(first: Ids, second: Ids, room: int) -> tuple[Ids, Ids]:
    """Both texts, truncated to `room` pieces in total, at least one each: the longer text first, until both have the
    same length, then both (BERT's `_truncate_seq_pair`)."""
    kept = max(1, min(len(first), max(room - len(second), -(-room // 2))))
    return first[:kept], second[: max(1, room - kept)]


def encode_sequences(
    rows: Sequence[Sequence[tuple[str, ...]]], tokenizer: Tokenizer, encoder: LanguageModel, most: int
) -> list[Encoded]:
    """Rows of sequences of one text or two, each with the family's special pieces and at most `most` pieces."""
    texts = list(dict.fromkeys(text for row in rows for sequence in row for text in sequence))
    pieces_of = dict(zip(texts, cut_texts(texts, tokenizer, most=most), strict=True))
    alone, pair = (most - len(special) for special in (encoder.special_tokens([]), encoder.pair_tokens([], [])[0]))

    def encoded(row: Sequence[tuple[str, ...]]) -> Encoded:
        parts = [list(map(pieces_of.__getitem__, texts)) for texts in row]
        if len(parts[0]) == 1:
            return Encoded.of_texts([encoder.special_tokens(first[: max(1, alone)]) for (first,) in parts])
        pairs = [encoder.pair_tokens(*shortened(first, second, pair)) for first, second in parts]
        return Encoded.of_texts(*zip(*pairs, strict=True))

    return list(map(encoded, rows))


def reads_apart(settings: FinetuneSettings, encoder: LanguageModel) -> bool:
    """Whether two texts are encoded as two sequences (`FinetuneSettings.pairs`)."""
    return settings.pairs == "apart" or (settings.pairs == "auto" and encoder.attention == "none")


def encode_pairs(
    rows: Sequence[Fields],
    tokenizer: Tokenizer,
    encoder: LanguageModel,
    settings: FinetuneSettings,
    *,
    both_orders: bool = False,
) -> list[Encoded]:
    """Pairs of texts as one sequence with a delimiter, or as two (`reads_apart`); with `both_orders` and a causal
    encoder as two sequences with either text first (Radford et al. 2018, section 3.3)."""
    if reads_apart(settings, encoder):
        sequences: list[list[Fields]] = [[(text,) for text in row] for row in rows]
    else:
        turned = both_orders and encoder.attention == "before"
        sequences = [[row, row[::-1]] if turned else [row] for row in rows]
    return encode_sequences(sequences, tokenizer, encoder, most_pieces(settings, encoder))


def halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(2 B, F) vectors of two sequences a row -> (B, F) of the first ones and of the second ones."""
    return vectors.unflatten(0, (-1, 2)).unbind(1)


def summed(vectors: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
    """(2 B, F) vectors of both orders -> (B, F): their sum."""
    first, second = halves(vectors)
    return first + second


def compared(vectors: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
    """(2 B, F) vectors u and v of both texts -> (B, 4 F): [u, v, |u - v|, u v] (Conneau et al. 2017, figure 1)."""
    return torch.cat([*halves(vectors), likened(vectors, rows)], dim=1)


def likened(vectors: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
    """(2 B, F) vectors u and v of both texts -> (B, 2 F): [|u - v|, u v], symmetric (Tai et al. 2015)."""
    first, second = halves(vectors)
    return torch.cat([(first - second).abs(), first * second], dim=1)


def combination(apart: Combine, *, turned: Combine | None = None) -> Callable[..., Combine | None]:
    """Implements `Task.combine` for pairs."""

    def choose(settings: FinetuneSettings, encoder: LanguageModel) -> Combine | None:
        return apart if reads_apart(settings, encoder) else turned if encoder.attention == "before" else None

    return choose


def window_size(settings: FinetuneSettings, encoder: LanguageModel) -> int | None:
    """Maximum number of pieces of a window, special pieces included; None if a text is one sequence. Without `chunk`, a
    `max_length` above the encoder's positions means windows; `layers: mix` reads one sequence and cuts it."""
    if encoder.carries_state or (settings.chunk is None and settings.layers == "mix"):
        return None
    chunk = settings.chunk or settings.max_length
    most = min(chunk, encoder.max_tokens or chunk)
    return None if most == settings.max_length else most


def windows(pieces: Ids, *, size: int, encoder: LanguageModel) -> list[Ids]:
    """The pieces of a text (at least one) in windows of at most `size` pieces."""
    room = max(1, size - len(encoder.special_tokens([])))
    return [encoder.special_tokens(pieces[start : start + room]) for start in range(0, len(pieces), room)]


class WindowPooling:
    """Pooling of a row's windows: the maximum of features that are maxima over pieces, the mean of all others, weighted
    by their numbers of pieces. A text of one window has the same vector as without windows. `width`: of a layer."""

    def __init__(self, settings: FinetuneSettings, *, width: int = 0) -> None:
        self.pooling, self.width, self.learned = settings.pooling, width, settings.chunks_learned

    def __call__(self, features: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, F) windows, (S,) their rows, ascending, and (S,) lengths (by default equal) -> (B, F)."""
        count = int(on_host(rows)[-1]) + 1
        wide = precise(features)
        pieces = wide.new_ones(len(rows)) if lengths is None else lengths.to(wide)
        shares = pieces / pieces.new_zeros(count).index_add(0, rows, pieces)[rows]
        mean = wide.new_zeros(count, features.shape[1]).index_add(0, rows, wide * shares[:, None]).to(features)
        if self.pooling not in ("concat", "max"):
            return mean
        index = rows[:, None].expand_as(features)
        most = torch.zeros_like(mean).scatter_reduce(0, index, features, "amax", include_self=False)
        middle = torch.arange(features.shape[1], device=features.device) // self.width % 3 == 1
        return most if self.pooling == "max" else torch.where(middle, most, mean)


def pooling_of_windows(settings: FinetuneSettings, encoder: LanguageModel) -> WindowPooling | None:
    """`Task.combine` of kinds that read one text; None if a text is one sequence."""
    return None if window_size(settings, encoder) is None else WindowPooling(settings)


#: Maximum number of rows that are measured, evenly spaced; more pieces than a text has.
ROWS, WHOLE = 2000, 10**9


class _WithoutLimit:
    """An encoder as one that reads texts of any length."""

    max_tokens = None

    def __init__(self, encoder: LanguageModel) -> None:
        self._encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)


def sizes_of(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings, *, task: Task
) -> NDArray[np.int64]:
    """(N,) pieces of the longest sequence of each row, if nothing were cut; N is at most `ROWS`."""
    chosen = [rows[index] for index in spaced(len(rows), ROWS)]
    whole, reader = settings.model_copy(update={"max_length": WHOLE, "chunk": None}), _WithoutLimit(encoder)
    encoded = task.encode(chosen, tokenizer, cast(LanguageModel, reader), whole)
    return np.asarray([max(map(len, row.pieces)) for row in encoded])


def share_cut(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings, *, task: Task
) -> float:
    """Share of the rows (of at most `ROWS`) of which the model reads a part only; 0 for kinds that read units."""
    if task.reads == "units" or not len(rows):
        return 0.0
    windows = task.single and window_size(settings, encoder) is not None
    most = settings.max_length if windows else most_pieces(settings, encoder)
    sizes = sizes_of(rows, tokenizer, encoder, settings, task=task)
    return float((sizes > most).mean())
