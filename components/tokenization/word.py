"""Word vocabularies: the most frequent words of the corpus (ULMFiT: 60,000 with at least 3 occurrences), and open ones
for models that read the spelling of words (ELMo: characters, fastText: n-grams)."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Unpack

import numpy as np
from tokenizers import models

from components.data.segmenters import Segmentation
from components.settings.tokenizer import WordSettings
from components.tokenization.base import PROBES, Ids, well_formed
from components.tokenization.bert import BertWords, BertWordsTokenizer, backend, count_words, marks_are_letters
from components.tokenization.distinct import DistinctWordEncoder
from components.tokenization.special import SPECIAL_PIECES, UNK
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
    most = max(0, settings.size - len(SPECIAL_PIECES))
    tokenizer = frequent_words(texts, settings=settings, segmentation=segmentation, most=most)
    check_size(tokenizer.vocab_size, settings, kind="word")
    return tokenizer


def frequent_words(
    texts: Sequence[str], *, settings: WordSettings, segmentation: Segmentation, most: int
) -> WordTokenizer:
    """A vocabulary of at most `most` words, as `train_word` learns it; it may be empty."""
    strip_accents = settings.lowercase and not marks_are_letters(texts)
    cutter = backend(models.WordLevel(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    words = ranked(count_words(texts, cutter), least=settings.min_frequency)[:most]
    return WordTokenizer(
        [*SPECIAL_PIECES, *words], segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents
    )


def ranked(words: Counter[str], *, least: int) -> list[str]:
    """The words with at least `least` occurrences, the most frequent first; ties are broken alphabetically."""
    frequent = [word for word, count in words.items() if count >= least]
    return sorted(frequent, key=lambda word: (-words[word], word))


#: Maximum number of unseen words that are assigned ids (about 200 MB); further ones are UNK.
MOST_UNSEEN: Final = 1 << 20
#: Maximum number of characters of an unseen word with an id; longer ones are UNK.
LONGEST_UNSEEN: Final = 256


class OpenWordTokenizer(WordTokenizer):
    """A `WordTokenizer` that assigns a new id, `vocab_size` or higher, to each word outside the vocabulary.

    `spelling(id)` is the word of any id. Ids of unseen words are assigned in order of occurrence and never change; they
    are valid for this object and its models, and must not be stored. `encode_batch` and `encode_with_offsets` return
    them; in `encode_ragged`, which fills token stores, unseen words are UNK."""

    kind = "open_word"

    def __init__(self, pieces: Sequence[str], **others: Unpack[BertWords]) -> None:
        super().__init__(pieces, **others)
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}
        self._unseen: list[str] = []
        self._lock = threading.Lock()
        self._open = DistinctWordEncoder(self._open_ids, lowercase=self.lowercase)

    def spelling(self, id_: int) -> str:
        return self.pieces[id_] if id_ < self.vocab_size else self._unseen[id_ - self.vocab_size]

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        ids, offsets = self._open.encode([self.segmentation.spaced(text) for text in texts])
        return [ids[start:end] for start, end in pairwise(offsets.tolist())]

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        _, spans = super().encode_with_offsets(text)
        (ids,) = self._open_ids([self.segmentation.spaced(well_formed(text))])
        return np.asarray(ids, dtype=np.int32), spans

    def _open_ids(self, texts: list[str]) -> list[list[int]]:
        return [[self._id(word) for word in self._cut(text)] for text in texts]

    def _cut(self, text: str) -> list[str]:
        normalised = self.backend.normalizer.normalize_str(text)
        return [word for word, _ in self.backend.pre_tokenizer.pre_tokenize_str(normalised)]

    def _id(self, word: str) -> int:
        if (id_ := self._ids.get(word)) is not None:
            return id_
        if len(word) > LONGEST_UNSEEN:
            return UNK
        with self._lock:
            if word not in self._ids:
                if len(self._unseen) == MOST_UNSEEN:
                    return UNK
                self._unseen.append(word)
                self._ids[word] = self.vocab_size + len(self._unseen) - 1
            return self._ids[word]

    def _probed(self) -> Iterator[bytes]:
        # Words instead of ids, because the id of an unseen word depends on the words before it.
        for text in PROBES:
            yield "\n".join(self._cut(self.segmentation.spaced(text))).encode()


def train_open_word(texts: Sequence[str], *, settings: WordSettings, segmentation: Segmentation) -> OpenWordTokenizer:
    """`train_word` with an open vocabulary; `texts` are segmented. Raises DataError as `train_word`."""
    closed = train_word(texts, settings=settings, segmentation=segmentation)
    return OpenWordTokenizer(
        closed.pieces, segmentation=segmentation, lowercase=closed.lowercase, strip_accents=closed.strip_accents
    )
