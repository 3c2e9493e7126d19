"""Encoding of one text or two texts as sequences of piece ids, windows over long texts, and how much of a text is read.

Windows have the special pieces and are encoded independently; the head reads the pooled vectors. Encoders with a state
read the whole text chunk by chunk (`LanguageModel.set_chunks`)."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from components.data.tasks.data import Fields
from components.learners.task_models.base import Combine, Encoded, Task, most_pieces
from components.learners.task_models.heads import precise
from components.models.base import Batch, LanguageModel
from components.models.layers.host import move, on_host, places
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import has
from components.tokenization import Tokenizer
from components.tokenization.special import UNK

Ids = list[int]


def cut_texts(texts: Sequence[str], tokenizer: Tokenizer, *, most: int | None = None) -> list[Ids]:
    """The pieces of each text, truncated to `most`; a text without pieces becomes one unknown piece."""
    room = None if most is None else max(1, most)
    return [pieces[:room].tolist() or [UNK] for pieces in tokenizer.encode_texts(texts)]


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
    """Pairs of texts as one sequence with a delimiter, or as two (`reads_apart`); with `both_orders` and a causal
    encoder as two sequences with either text first (Radford et al. 2018, section 3.3)."""
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
    """Implements `Task.combine` for pairs."""

    def choose(settings: FinetuneSettings, encoder: LanguageModel) -> Combine | None:
        if reads_apart(settings, encoder):
            return apart
        return turned if encoder.attention == "before" else None

    return choose


def window_size(settings: FinetuneSettings, encoder: LanguageModel) -> int | None:
    """Maximum number of pieces of a window, special pieces included; None if a text is one sequence. Without `chunk`, a
    `max_length` above the encoder's positions means windows; `layers: mix` reads one sequence and cuts it."""
    if encoder.carries_state or (settings.chunk is None and settings.layers == "mix"):
        return None
    chunk = settings.chunk or settings.max_length
    most = min(chunk, encoder.max_tokens or chunk)
    return None if most == settings.max_length else most


def windows(pieces: Sequence[int], *, size: int, encoder: LanguageModel) -> list[NDArray[np.int64]]:
    """The pieces of a text (at least one) in windows of at most `size` pieces."""
    room = max(1, size - len(encoder.special_tokens([])))
    return [
        np.asarray(encoder.special_tokens(list(pieces[start : start + room])), dtype=np.int64)
        for start in range(0, len(pieces), room)
    ]


class WindowPooling:
    """Pooling of a row's windows: the maximum of features that are maxima over pieces, the mean of all others, weighted
    by their numbers of pieces. A text of one window has the same vector as without windows."""

    def __init__(self, settings: FinetuneSettings, *, width: int) -> None:
        self.pooling = settings.pooling
        self.width = width
        self.learned = settings.chunks_learned

    def __call__(self, features: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(S, F) windows, (S,) their rows, ascending, and (S,) lengths (by default equal) -> (B, F)."""
        count = int(on_host(rows)[-1]) + 1
        index = rows[:, None].expand_as(features)
        zeros = features.new_zeros(count, features.shape[1])
        wide = precise(features)
        pieces = wide.new_ones(len(rows)) if lengths is None else lengths.to(wide)
        shares = pieces / pieces.new_zeros(count).index_add(0, rows, pieces)[rows]
        mean = wide.new_zeros(zeros.shape).index_add(0, rows, wide * shares[:, None]).to(features)
        if self.pooling not in ("concat", "max"):
            return mean
        most = zeros.scatter_reduce(0, index, features, "amax", include_self=False)
        if self.pooling == "max":
            return most
        middle = torch.arange(features.shape[1], device=features.device) // self.width % 3 == 1
        return torch.where(middle, most, mean)


def pooling_of_windows(settings: FinetuneSettings, encoder: LanguageModel) -> WindowPooling | None:
    """`Task.combine` of kinds that read one text; None if a text is one sequence."""
    if window_size(settings, encoder) is None:
        return None
    hidden, _ = states_of_pieces([], encoder)
    return WindowPooling(settings, width=hidden[-1].shape[-1])


@torch.no_grad()
def states_of_pieces(pieces: list[int], encoder: LanguageModel) -> tuple[list[Tensor], Tensor]:
    """Hidden states of one sequence and its length (1,), on the encoder's device."""
    tokens = torch.tensor([encoder.special_tokens(pieces)], device=next(encoder.parameters()).device)
    lengths = tokens.new_full((1,), tokens.shape[1])
    return encoder.hidden_states(tokens, lengths), lengths


def states_of_windows(encoder: LanguageModel, batch: Batch, *, learned: int) -> list[Tensor]:
    """`hidden_states` of a batch; only the last `learned` sequences of each row receive gradients."""
    rows, device = on_host(batch["rows"]), batch["tokens"].device
    behind = rows.bincount().cumsum(0)[rows] - torch.arange(len(rows))
    learns = behind <= learned

    def read(chosen: Tensor) -> list[Tensor]:
        index = places(chosen, device)
        segments = batch["segments"][index] if "segments" in batch else None
        lengths = move(on_host(batch["lengths"])[chosen], device)
        return encoder.hidden_states(batch["tokens"][index], lengths, segments)

    if not torch.is_grad_enabled() or bool(learns.all()):
        return read(torch.ones_like(learns))
    with torch.no_grad():
        before = read(~learns)
    after = read(learns)
    order = move(torch.cat([(~learns).nonzero(), learns.nonzero()]).flatten().argsort(), device)
    return [torch.cat(parts)[order] for parts in zip(before, after, strict=True)]


#: Maximum number of rows that are measured, evenly spaced.
ROWS: Final = 2000


def sizes_of(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings, *, task: Task
) -> NDArray[np.int64]:
    """(N,) pieces of the longest sequence of each row, if nothing were cut; N is at most `ROWS`."""
    chosen = [rows[index] for index in np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).astype(int))]
    lengths = iter([len(pieces) for pieces in tokenizer.encode_batch([text for fields in chosen for text in fields])])
    counts = [[next(lengths) for _ in fields] for fields in chosen]
    item = len(encoder.special_tokens([]))
    if has(task.kind, "words"):
        return np.asarray([sum(words) + item for words in counts])
    if len(counts[0]) == 1 or (has(task.kind, "second") and reads_apart(settings, encoder)):
        return np.asarray([max(parts) + item for parts in counts])
    two = len(encoder.pair_tokens([], [])[0])
    return np.asarray([first + max(others) + two for first, *others in counts])


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
