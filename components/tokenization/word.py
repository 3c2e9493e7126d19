"""A vocabulary of whole words, the most frequent ones of the corpus (ULMFiT: 60,000, each seen at least 3 times)."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import models

from components.settings.tokenizer import WordSettings
from components.tokenization.bert import BertWordsTokenizer, backend, count_words, marks_are_letters
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.wordpiece import check_size


class WordTokenizer(BertWordsTokenizer):
    """Each word or punctuation mark is one piece; a word outside the vocabulary is UNK."""

    kind = "word"

    def _model(self, vocabulary: dict[str, int]) -> models.Model:
        return models.WordLevel(vocabulary, unk_token="[UNK]")


def train_word(texts: Sequence[str], *, settings: WordSettings, segmentation: Segmentation) -> WordTokenizer:
    """Count words and keep the most frequent, equal counts in alphabetical order; `texts` are already segmented.

    Raises:
        DataError: fewer different words are frequent enough than were asked for.
    """
    strip_accents = settings.lowercase and not marks_are_letters(texts)
    cutter = backend(models.WordLevel(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    words = count_words(texts, cutter)
    frequent = [word for word, count in words.items() if count >= settings.min_frequency]
    frequent.sort(key=lambda word: (-words[word], word))
    pieces = [*SPECIAL_PIECES, *frequent[: max(0, settings.vocabulary - len(SPECIAL_PIECES))]]
    check_size(len(pieces), asked=settings.vocabulary, key="tokenizer.word.vocabulary")
    return WordTokenizer(pieces, segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents)
