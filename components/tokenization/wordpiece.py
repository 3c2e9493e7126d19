"""WordPiece: words are split into an initial piece and continuations, marked `##` (Schuster and Nakajima 2012)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from components.errors import DataError
from components.settings.tokenizer import SubwordSettings, WordPieceSettings, WordSettings
from components.tokenization.base import Ids
from components.tokenization.bert import BertWords, BertWordsTokenizer, backend, count_words, marks_are_letters
from components.tokenization.fast_wordpiece import PRINTABLE, FastWordPiece, spans_of
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES, UNK

#: Longer words become UNK, as in BERT.
LONGEST_WORD: Final = 100
#: Size of the alphabet, the most frequent characters, as a share of the vocabulary (1000 of 8000, the usual limit), but
#: at least LEAST_ALPHABET; words with rarer characters become UNK.
ALPHABET_SHARE: Final = 1 / 8
LEAST_ALPHABET: Final = 256
#: Characters of the sample for which the ids of tokie and of `tokenizers` are compared.
CHECKED: Final = 4_000_000
#: Maximum number of repetitions of a word in one training text.
REPEATS: Final = 500


class WordPieceTokenizer(BertWordsTokenizer):
    """Greedy longest-match-first segmentation of each word, from left to right; UNK if it fails.

    Args:
        fast: whether tokie encodes the texts for which it gives the ids of the `tokenizers` library
            (`components.tokenization.fast_wordpiece`), where it is installed.
        others: see `BertWordsTokenizer`.
    """

    kind = "wordpiece"

    def __init__(self, pieces: Sequence[str], *, fast: bool = True, **others: Unpack[BertWords]) -> None:
        super().__init__(pieces, **others)
        self.fast = fast
        self._fast: FastWordPiece | None = None
        normaliser = {"lowercase": self.lowercase, "strip_accents": self.strip_accents}
        if fast and FastWordPiece.suits(**normaliser):
            self._fast = FastWordPiece(self.backend, **normaliser)
        self._lengths = np.array([len(self.surface(id_)) for id_ in range(self.vocab_size)], dtype=np.int64)

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        if self._fast is None:
            return super().encode_ragged(texts)
        flat: list[Ids] = [np.empty(0, dtype=np.int32)]
        lengths = [np.zeros(1, dtype=np.int64)]
        # Neighbours that the same library encodes are one call.
        for accepted, group in groupby(texts, self._fast.accepts):
            if accepted:
                ids, sizes = self._fast.encode(list(group))
            else:
                ids, offsets = super().encode_ragged(list(group))
                sizes = np.diff(offsets)
            flat.append(ids)
            lengths.append(sizes)
        return np.concatenate(flat), np.cumsum(np.concatenate(lengths))

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        if self._fast is not None and PRINTABLE.fullmatch(text) and self._fast.accepts(text):
            ids, _ = self._fast.encode([text])
            # The length of an unknown word is not known.
            if UNK not in ids:
                return ids, spans_of(text, self._lengths[ids])
        return super().encode_with_offsets(text)

    def agrees(self, texts: Sequence[str]) -> bool:
        """Whether texts have the same ids with tokie as with the `tokenizers` library."""
        ids, offsets = self.encode_ragged(texts)
        expected, expected_offsets = super().encode_ragged(texts)
        return np.array_equal(ids, expected) and np.array_equal(offsets, expected_offsets)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"fast": self.fast}

    def _model(self, vocabulary: dict[str, int]) -> models.Model:
        return models.WordPiece(
            vocabulary, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD, continuing_subword_prefix="##"
        )

    def continues(self, id_: int) -> bool:
        return self.pieces[id_].startswith("##") and len(self.pieces[id_]) > 2

    def surface(self, id_: int) -> str:
        return self.pieces[id_][2:] if self.continues(id_) else self.pieces[id_]


def train_wordpiece(
    texts: Sequence[str], *, settings: WordPieceSettings, segmentation: Segmentation
) -> WordPieceTokenizer:
    """Learn a vocabulary by merging the most frequent pairs of pieces.

    The library assigns ids to continuing characters in the order of a hash table, which breaks ties between equally
    frequent pairs at random. Passing the alphabet and the continuing characters makes training deterministic. Only word
    counts matter, so the library receives every word, already split, as often as it occurs.

    The ids of tokie and of the library are compared on a part of the texts. If they differ, the library encodes all
    texts with this vocabulary.

    Raises:
        DataError: the texts yield too few pieces, or the vocabulary is smaller than special pieces and alphabet.
    """
    strip_accents = settings.lowercase and not marks_are_letters(texts)
    cutter = backend(models.WordPiece(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    words = count_words(texts, cutter)
    alphabet, continuing = frequent_characters(words, limit=max(LEAST_ALPHABET, int(settings.size * ALPHABET_SHARE)))
    learner = Backend(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        repeated(words),
        trainers.WordPieceTrainer(
            vocab_size=settings.size,
            min_frequency=settings.min_frequency,
            special_tokens=[*SPECIAL_PIECES, *("##" + character for character in continuing)],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            continuing_subword_prefix="##",
            show_progress=False,
        ),
    )
    vocabulary = learner.get_vocab()
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    check_size(len(pieces), settings, kind="wordpiece")
    rules = BertWords(segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents)
    learned = WordPieceTokenizer(pieces, **rules)
    evenly_spaced = texts[:: max(1, sum(map(len, texts)) // CHECKED)]
    return learned if learned.agrees(evenly_spaced) else WordPieceTokenizer(pieces, fast=False, **rules)


def repeated(words: Counter[str]) -> Iterator[str]:
    """Texts in which each word occurs as often as counted, at most REPEATS times per text."""
    for word, count in words.items():
        for start in range(0, count, REPEATS):
            yield " ".join([word] * min(REPEATS, count - start))


def frequent_characters(words: Counter[str], *, limit: int) -> tuple[list[str], list[str]]:
    """The `limit` most frequent characters, sorted, and which of them occur after the first one of a word."""
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            counts[character] += count
        inside.update(word[1:])
    alphabet = sorted(sorted(counts, key=lambda character: (-counts[character], character))[:limit])
    return alphabet, [character for character in alphabet if character in inside]


def check_size(given: int, settings: SubwordSettings | WordSettings, *, kind: str) -> None:
    """Verify the number of pieces of a learned vocabulary. If no size was set, a smaller one is reported, and accepted.

    Raises:
        DataError: there are fewer pieces than requested (too little text) or more (the alphabet is larger).
    """
    asked, key = settings.size, f"tokenizer.{kind}.vocabulary"
    if given < asked and settings.vocabulary is None:
        print(f"{key}: {given:,} pieces, which is all that the corpus yields; the default is {asked:,}", flush=True)
    elif given < asked:
        remedy = "" if kind == "unigram" else "lower min_frequency, "
        raise DataError(
            f"{key}: {asked} pieces requested, but the corpus yields {given}; set it to {given} or less, {remedy}or "
            "add text"
        )
    if given > asked:
        raise DataError(
            f"{key}: {asked} pieces are too few, because special pieces and alphabet have {given}; set it to a few "
            "hundred at least"
        )
