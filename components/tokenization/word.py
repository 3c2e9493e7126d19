"""A vocabulary of whole words, the most frequent ones of the corpus (ULMFiT: 60,000, each seen at least 3 times)."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import models, trainers

from components.config import WordSettings
from components.tokenization.bert import BertWordsTokenizer, backend
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.wordpiece import check_size


class WordTokenizer(BertWordsTokenizer):
    """Each word or punctuation mark is one piece; a word outside the vocabulary is UNK."""

    kind = "word"

    def _model(self, vocabulary: dict[str, int]) -> models.Model:
        return models.WordLevel(vocabulary, unk_token="[UNK]")


def train_word(
    texts: Iterable[str], *, settings: WordSettings, segmentation: Segmentation, strip_accents: bool
) -> WordTokenizer:
    """Count words and keep the most frequent, equal counts in alphabetical order; `texts` are already segmented.

    Raises:
        DataError: fewer different words are frequent enough than were asked for.
    """
    learner = backend(models.WordLevel(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    learner.train_from_iterator(
        texts,
        trainers.WordLevelTrainer(
            vocab_size=settings.vocabulary,
            min_frequency=settings.min_frequency,
            special_tokens=list(SPECIAL_PIECES),
            show_progress=False,
        ),
    )
    vocabulary = learner.get_vocab()
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    check_size(len(pieces), asked=settings.vocabulary, key="tokenizer.word.vocabulary")
    return WordTokenizer(pieces, segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents)
