"""WordPiece: words as a first piece and continuations marked `##` (Schuster and Nakajima 2012; Devlin et al. 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from components.errors import DataError
from components.settings.tokenizer import WordPieceSettings
from components.tokenization.bert import BertWordsTokenizer, backend, count_words, marks_are_letters
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES

#: Words longer than this become UNK as a whole, as in BERT.
LONGEST_WORD: Final = 100
#: The alphabet is the most frequent characters, as many as this share of the vocabulary (1000 of 8000, the usual limit)
#: but no fewer than LEAST_ALPHABET; a word with a rarer character becomes UNK.
ALPHABET_SHARE: Final = 1 / 8
LEAST_ALPHABET: Final = 256
REPEATS: Final = 500


class WordPieceTokenizer(BertWordsTokenizer):
    """Each word is cut into the longest pieces of the vocabulary from left to right, or is UNK if that fails."""

    kind = "wordpiece"

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
    """Learn a vocabulary by merging the most frequent pairs of pieces; `texts` are already segmented.

    The library numbers continuing characters in the order of a hash table, which differs from run to run and decides
    which of two equally frequent pairs is merged first. Naming the alphabet and the continuing characters in advance
    makes the vocabulary the same every time. Only the counts of the words matter to it, so it is given each word as
    often as it comes, cut already: a third of the time of cutting the texts again.

    Raises:
        DataError: the texts give fewer pieces than asked for, or the special pieces and the alphabet alone are more.
    """
    strip_accents = settings.lowercase and not marks_are_letters(texts)
    cutter = backend(models.WordPiece(unk_token="[UNK]"), lowercase=settings.lowercase, strip_accents=strip_accents)
    words = count_words(texts, cutter)
    alphabet, continuing = frequent_characters(
        words, limit=max(LEAST_ALPHABET, int(settings.vocabulary * ALPHABET_SHARE))
    )
    learner = Backend(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        repeated(words),
        trainers.WordPieceTrainer(
            vocab_size=settings.vocabulary,
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
    check_size(len(pieces), asked=settings.vocabulary, key="tokenizer.wordpiece.vocabulary")
    return WordPieceTokenizer(
        pieces, segmentation=segmentation, lowercase=settings.lowercase, strip_accents=strip_accents
    )


def repeated(words: Counter[str]) -> Iterator[str]:
    """Texts in which each word stands as often as it was counted, at most REPEATS times in one text."""
    for word, count in words.items():
        for start in range(0, count, REPEATS):
            yield " ".join([word] * min(REPEATS, count - start))


def frequent_characters(words: Counter[str], *, limit: int) -> tuple[list[str], list[str]]:
    """The `limit` most frequent characters, sorted, and those of them that stand inside or at the end of a word."""
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            counts[character] += count
        inside.update(word[1:])
    alphabet = sorted(sorted(counts, key=lambda character: (-counts[character], character))[:limit])
    return alphabet, [character for character in alphabet if character in inside]


def check_size(given: int, *, asked: int, key: str, remedy: str = "lower min_frequency, or ") -> None:
    """Refuse a vocabulary of another size than was asked for.

    Raises:
        DataError: it came out smaller (too little text) or larger (the alphabet alone is).
    """
    if given < asked:
        raise DataError(
            f"{key}: {asked} pieces are more than the corpus can give ({given}); set it to {given} or less, {remedy}"
            "add text"
        )
    if given > asked:
        raise DataError(
            f"{key}: {asked} pieces are too few, the special ones and the alphabet of the corpus are {given} already; "
            "set it to some hundreds at least"
        )
