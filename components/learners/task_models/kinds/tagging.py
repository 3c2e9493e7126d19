"""Sequence tagging (entities, slots, parts of speech, chunks): one tag per word.

A word is tokenized as in the middle of a text, independently of its neighbours. Its vector is the family's unit state
(BERT: state of the first piece, Devlin et al. 2019, section 5.3; FLAIR: forward state after the last character and
backward state before the first, Akbik et al. 2018). Sentences that are longer than a sequence are encoded in
overlapping windows; each word is tagged in the window with the most context around it.
"""

from collections.abc import Sequence
from dataclasses import replace

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, most_pieces
from components.learners.task_models.taggers import Tagger
from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer
from components.tokenization.words import WordPieces, columns, cut, encode_words


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per window; its units are the words that are tagged in it."""
    around = encoder.special_tokens([-1])
    lead, room = around.index(-1), max(1, most_pieces(settings, encoder) - len(around) + 1)
    result = encode_words(tokenizer, [list(words) for words in rows])
    return [_windows(pieces, encoder, lead=lead, room=room) for pieces in result]


def _windows(result: WordPieces, encoder: LanguageModel, *, lead: int, room: int) -> Encoded:
    windows = cut(result.spans, room=room, stride=max(1, room // 2))
    pieces = [encoder.special_tokens(result.ids[slice(*window.pieces)].tolist()) for window in windows]
    units = [columns(result.spans, window, units=(window.first, window.last)) + lead for window in windows]
    return replace(Encoded.of_texts(pieces), units=units)


TASK = Task(
    kind="tagging",
    reads="units",
    encode=encode,
    head=Tagger,
    imitates=True,
)
