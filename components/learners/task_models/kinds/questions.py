"""Extractive question answering: the answer is a span of the context.

The sequence is [CLS] question [SEP] context [SEP], or the family's encoding of two texts; longer contexts are encoded
in windows that begin half a window apart. Questions are truncated to half of the maximum number of pieces."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, most_pieces
from components.learners.task_models.span_head import Answering
from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer
from components.tokenization.words import columns, cut


@dataclass(frozen=True)
class _Context:
    """A context's pieces; `columns` (U, 2) twice the index and `offsets` (U, 2) of those with visible text."""

    ids: list[int]
    columns: NDArray[np.int64]
    offsets: NDArray[np.int64]


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per window: its first unit, with offsets 0, 0, is the whole sequence, the others are pieces."""
    most = most_pieces(settings, encoder)
    around, _ = encoder.pair_tokens([], [-1])
    longest = max(1, (most - len(around) + 1) // 2)
    questions = [ids[:longest].tolist() for ids in tokenizer.encode_texts([question for question, _ in rows])]
    contexts = {text: _context(tokenizer, text) for text in dict.fromkeys(context for _, context in rows)}
    return [
        _windows(question, contexts[context], encoder, most=most)
        for question, (_, context) in zip(questions, rows, strict=True)
    ]


def _context(tokenizer: Tokenizer, text: str) -> _Context:
    ids, spans = tokenizer.encode_with_offsets(text)
    kept = []
    for index, (start, end) in enumerate(spans):
        # A piece may include the space before a word, which belongs to no answer.
        inner = text[start:end]
        begin = start + len(inner) - len(inner.lstrip())
        stop = start + len(inner.rstrip())
        # Combining marks that the tokenizer separates from their letter (accents, Thai tones) belong to the letter.
        following = spans[index + 1][0] if index + 1 < len(spans) else len(text)
        while begin < stop < following and unicodedata.category(text[stop])[0] == "M":
            stop += 1
        if begin < stop:
            kept.append((index, begin, stop))
    result = np.asarray(kept, dtype=np.int64).reshape(-1, 3)
    return _Context(ids.tolist(), result[:, [0, 0]], result[:, 1:])


def _windows(question: list[int], context: _Context, encoder: LanguageModel, *, most: int) -> Encoded:
    template, _ = encoder.pair_tokens(question, [-1])
    lead, room = template.index(-1), max(1, most - len(template) + 1)
    sequences, units, offsets = [], [], []
    for window in cut(context.columns, room=room, stride=max(1, room // 2)) if len(context.columns) else (None,):
        pieces = [] if window is None else context.ids[slice(*window.pieces)]
        sequences.append(encoder.pair_tokens(question, pieces))
        positions = characters = np.zeros((0, 2), dtype=np.int64)
        if window is not None:
            inside = (window.start, window.end)
            positions = columns(context.columns, window, units=inside) + lead
            characters = context.offsets[slice(*inside)]
        whole = np.asarray([[0, len(sequences[-1][0]) - 1]])
        units.append(np.concatenate([whole, positions]))
        offsets.append(np.concatenate([np.zeros((1, 2), dtype=np.int64), characters]))
    return replace(Encoded.of_texts(*zip(*sequences, strict=True)), units=units, offsets=offsets)


TASK = Task(
    kind="questions",
    reads="units",
    encode=encode,
    head=Answering.of,
    windows_apart=True,
)
