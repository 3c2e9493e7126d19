"""Sequence tagging (entities, slots, parts of speech, chunks): one tag per word.

A word is tokenized as in the middle of a text, independently of its neighbours. Its vector is the family's unit state
(BERT: state of the first piece, Devlin et al. 2019, section 5.3; FLAIR: forward state after the last character and
backward state before the first, Akbik et al. 2018). Sentences that are longer than a sequence are encoded in
overlapping windows; each word is tagged in the window with the most context around it.

With `context`, a sentence is encoded together with the nearest words before and after it in its document (FLERT,
Schweter and Akbik 2020, section 2.1). A sentence of several windows has no room for others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.task_models.base import Encoded, Task, most_pieces
from components.task_models.taggers import Tagger
from components.tasks.data import Fields
from components.tasks.documents import neighbours
from components.tokenization import Tokenizer
from components.tokenization.unit_windows import columns, cut
from components.tokenization.words import WordPieces, encode_words

_NONE: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per window; its units are the words that are tagged in it."""
    around = encoder.special_tokens([-1])
    lead, special = around.index(-1), len(around) - 1
    room = max(1, most_pieces(settings, encoder) - special)
    stride = settings.stride or max(1, room // 2)
    most = room + 2 * settings.context
    if encoder.max_tokens is not None:
        most = max(room, min(most, encoder.max_tokens - special))
    # A word has at least one piece, so no further words are needed.
    contexts = [neighbours(words, settings.context) for words in rows]
    found = encode_words(
        tokenizer, [[*left, *words, *right] for words, (left, right) in zip(rows, contexts, strict=True)]
    )
    encoded = []
    for words, (left, right), pieces in zip(rows, contexts, found, strict=True):
        first, last = len(left), len(left) + len(words)
        if not (left or right) or pieces.length(first, last) > room:
            encoded.append(_windows(pieces.part(first, last), encoder, lead=lead, room=room, stride=stride))
            continue
        begin, end = reach(pieces.spans, (first, last), each=settings.context, most=most)
        units = slice(first - begin, last - begin)
        encoded.append(_sequence(pieces.part(begin, end), encoder, units=units, lead=lead))
    return encoded


def reach(spans: NDArray[np.int64], sentence: tuple[int, int], *, each: int, most: int) -> tuple[int, int]:
    """The range of words that are encoded with a sentence: whole words, at most `each` pieces before and after it.

    If there is less room, each side gets half of it. A side that needs less leaves the rest to the other.

    Args:
        spans: (W, 2) first and last piece of each word of the document's part.
        sentence: range of the sentence's words, end exclusive.
        each: maximum number of pieces on each side.
        most: maximum number of pieces altogether, spaces included.

    Returns:
        Range of words, end exclusive.
    """
    first, last = sentence
    start, stop = int(spans[first, 0]), int(spans[last - 1, 1]) + 1
    before = min(each, start)
    after = min(each, int(spans[-1, 1]) + 1 - stop)
    rest = max(0, most - (stop - start))
    left = min(before, max(rest // 2, rest - after))
    right = min(after, rest - left)
    begin = int(np.searchsorted(spans[:first, 0], start - left, side="left"))
    end = int(np.searchsorted(spans[:, 1], stop + right - 1, side="right"))
    return begin, max(last, end)


def head(settings: FinetuneSettings, features: int, labels: Sequence[str]) -> Tagger:
    """The tagger of `finetune.<family>.tagger`."""
    return Tagger(features, labels, settings)


def _sequence(found: WordPieces, encoder: LanguageModel, *, units: slice, lead: int) -> Encoded:
    """A sentence as one sequence, in which the words `units` are tagged."""
    pieces = np.asarray(encoder.special_tokens(found.ids.tolist()), dtype=np.int64)
    return Encoded([pieces], [np.zeros_like(pieces)], [found.spans[units] + lead], [_NONE])


def _windows(found: WordPieces, encoder: LanguageModel, *, lead: int, room: int, stride: int) -> Encoded:
    windows = cut(found.spans, room=room, stride=stride)
    pieces = [
        np.asarray(encoder.special_tokens(found.ids[slice(*window.pieces)].tolist()), dtype=np.int64)
        for window in windows
    ]
    return Encoded(
        pieces,
        [np.zeros(len(sequence), dtype=np.int64) for sequence in pieces],
        [columns(found.spans, window, units=(window.first, window.last)) + lead for window in windows],
        [_NONE] * len(windows),
    )


TASK = Task(kind="tagging", reads="units", encode=encode, head=head, imitates=True)
