"""Word vocabulary: the most frequent words of the corpus (ULMFiT: 60,000 with at least 3 occurrences)."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import models

from components.settings.tokenizer import WordSettings
from components.tokenization.bert import BertWordsTokenizer, backend, count_words, marks_are_letters
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.wordpiece import check_size


class WordTokenizer(BertWordsTokenizer):
    """Each word or punctuation mark is one piece; words outside the vocabulary are UNK."""

    kind = "word"

    def _model(self, vocabulary: dict[str, int]) -> models.Model:
        return models.WordLevel(vocabulary, unk_token="[UNK]")


def train_word(texts: Sequence[str], *, settings: WordSettings, segmentation: Segmentation) -> WordTokenizer:
    """A vocabulary of the most frequent words; ties are broken alphabetically.

    Raises:
        DataError: too few words are frequent enough.
    """
    strip_accents = settings.lowercase and not marks_are_letters(texts)
    cutter = backend(models.WordLevel(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    words = count_words(texts, cutter)
    frequent = [word for word, count in words.items() if count >= settings.min_frequency]
    frequent.sort(key=lambda word: (-words[word], word))
    pieces = [*SPECIAL_PIECES, *frequent[: max(0, settings.size - len(SPECIAL_PIECES))]]
    check_size(len(pieces), settings, kind="word")
    return WordTokenizer(pieces, segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents)
